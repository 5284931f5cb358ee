"""Many changed files of all kinds, in processes that are forked from one that has loaded the readers.

`python -m tools.file_fuzz --minutes 30 --record record.json` gives each kind the same time of the processor
in turn.  A process does the cases of a share one after the other, within limits of memory; one that a file
ends (a fault, a kill for lack of memory) counts as one failure, and the next process goes on behind it.  A
case is named by its kind, a seed and a number, and depends on nothing else: `--kind NAME --case NUMBER` runs
it again in this process.  A run goes on where the record of an earlier one ends, and adds its counts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import mmap
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rkcosim.compiler.loaders import tflite_file
from rkcosim.waves import backend_worker, backends
from rkcosim.waves.whole_file import whole_file
from tools.file_fuzz import judge
from tools.file_fuzz.judge import Judge
from tools.file_fuzz.kinds import KINDS
from tools.file_fuzz.reports import KindReport

SPACE = 6 << 30
"""Address space of a process beyond that of its parent: readers reserve more than they use."""

LATE = 15.0
"""Seconds after the limits of a case until its process is killed, because no signal reaches its code."""

SHARE, TELL = 2.0, 0.1
"""Seconds of the processor of a share, and between two lines of its results."""

_NOW = struct.Struct("<qd")
"""What a process says in shared memory: the case that it does (-1: none), and when it began."""


class _Forked:
    """A process of `rkcosim.waves.backend_worker` that is forked instead of started, with its pipes.

    It has the part of subprocess.Popen that `rkcosim.waves.backends` uses.
    """

    def __init__(self, words: list[str], **_: Any) -> None:
        path, form, most = words[-3:]
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                judge.unwatched()
                os.dup2(theirs_in, 0)
                os.dup2(theirs_out, 1)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.closerange(3, 256)
                sys.stdin = os.fdopen(0, "r")
                backend_worker.main(path, form, int(most))
                code = 0
            except BaseException:
                pass
            finally:
                os._exit(code)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
        self._code: int | None = None

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the end, see subprocess.Popen."""
        end = time.monotonic() + timeout
        while self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise subprocess.TimeoutExpired("reader", timeout)
            else:
                time.sleep(0.0005)
        return self._code

    def kill(self) -> None:
        """Kill the process, see subprocess.Popen."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)


def _share(name: str, folder: Path, seed: int, first: int, count: int, now: mmap.mmap, out: int) -> None:
    """Do the cases of a share in this process, and write their results to a pipe, some cases a line."""
    at_first = judge.peak()  # of the process that this one is a copy of
    with judge.quiet_alarm(), os.fdopen(out, "w") as pipe:
        one = Judge(name, KINDS[name], folder)
        backends.subprocess = SimpleNamespace(Popen=_Forked, PIPE=None, DEVNULL=None)  # type: ignore[assignment]
        one.prepare()
        begun = told = judge.spent()
        for number in range(first, first + count):
            _NOW.pack_into(now, 0, number, time.monotonic())
            one.case(seed, number)
            more = judge.peak() - at_first
            large = more > judge.MOST_BYTES
            if large:
                one.report.unfit(f"seed {seed}, case {number}: needs {more:,} bytes")
            now_at = judge.spent()
            over = now_at > begun + SHARE
            if large or over or now_at > told + TELL or number == first + count - 1:
                one.report.largest = judge.peak()
                print(json.dumps(vars(one.report)), file=pipe, flush=True)
                one.report, told = KindReport(), now_at
            if large or over:  # the peak of a process never becomes less
                break
        _NOW.pack_into(now, 0, -1, 0.0)


def _process(name: str, folder: Path, seed: int, first: int, count: int) -> tuple[KindReport, int, str]:
    """Do cases of a kind in a forked process.

    Returns
    -------
    tuple
        The results that the process told, the case that ended it (-1: none), and how it ended.
    """
    report, now = KindReport(), mmap.mmap(-1, 4096)
    _NOW.pack_into(now, 0, -1, 0.0)
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(source)
            os.setpgid(0, 0)
            vast = (
                int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
                + SPACE
            )
            resource.setrlimit(resource.RLIMIT_AS, (vast, vast))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _share(name, folder, seed, first, count, now, target)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(target)
    text, killed = bytearray(), False
    while True:
        if select.select([source], [], [], 1.0)[0]:
            part = os.read(source, 1 << 16)
            if not part:
                break
            text += part
        _, begun = _NOW.unpack_from(now, 0)
        if begun and time.monotonic() - begun > judge.WAIT + LATE and not killed:
            os.killpg(child, signal.SIGKILL)
            killed = True
    os.close(source)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what readers have started
    for line in text.decode().splitlines():
        report.add(_report(json.loads(line)))
    if not status:
        return report, -1, ""
    why = "takes longer than its limit and hears no signal" if killed else f"ends the process ({status})"
    return report, _NOW.unpack_from(now, 0)[0], why


def _report(members: dict[str, Any]) -> KindReport:
    return KindReport(**members | {"refused": Counter(members["refused"])})


def run_share(name: str, folder: Path, seed: int, first: int, count: int) -> tuple[KindReport, int]:
    """Do cases of a kind in forked processes; return their results and the number of the next case.

    Raises
    ------
    RuntimeError
        If a process ends before its first case.
    """
    report, died, why = _process(name, folder, seed, first, count)
    if why and died < 0:
        raise RuntimeError(f"{name}: {why} before its first case")
    if not why:
        return report, first + report.inputs
    done = first + report.inputs
    if died > done:  # the results of these cases are lost with the process
        again, other, _ = _process(name, folder, seed, done, died - done)
        report.add(again)
        if other >= 0:
            report.fail(f"seed {seed}, case {other}: ends the process, now and then")
        died = done + again.inputs + (other >= 0) if other >= 0 or again.inputs < died - done else died
        if died < done:
            return report, first + report.inputs
    report.fail(f"seed {seed}, case {died}: {why}")
    return report, died + 1


@dataclasses.dataclass
class Record:
    """Counts of all runs by kind, and the number of the next case of each kind, in a JSON file."""

    seed: int
    next: dict[str, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, KindReport] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None, seed: int) -> Record:
        """Return the record in a file; a new one if there is none."""
        if path is None or not path.exists():
            return cls(seed)
        data = json.loads(path.read_text(encoding="utf-8"))
        kinds = {name: _report(one) for name, one in data["kinds"].items()}
        return cls(data["seed"], data["next"], kinds)

    def save(self, path: Path) -> None:
        """Write the record whole."""
        data = {"seed": self.seed, "next": self.next} | {
            "kinds": {name: vars(one) for name, one in self.kinds.items()}
        }
        with whole_file(path) as place:
            place.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    def lines(self) -> list[str]:
        """Return the counts as a table of Markdown."""
        rows = ["| kind | files | read | refused | wrong | slowest | ms a file | largest process |"]
        rows.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, one in self.kinds.items():
            each = 1000 * one.seconds / max(1, one.inputs)
            rows.append(
                f"| {name} | {one.inputs:,} | {one.taken:,} | {one.refused.total():,} | {one.failed} "
                f"| {one.slowest:.1f} s | {each:.1f} | {one.largest >> 20:,} MiB |"
            )
        total = sum(one.inputs for one in self.kinds.values())
        return [*rows, f"{total:,} files, {sum(one.failed for one in self.kinds.values())} wrong"]


def main() -> int:
    """Run cases of all kinds in turn and print a table; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.file_fuzz", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time of all kinds (%(default)s)")
    parser.add_argument("--each", type=int, default=5000, help="most cases of a kind in turn (%(default)s)")
    parser.add_argument("--most", type=int, help="cases of each kind at which the run ends")
    parser.add_argument("--seed", type=int, default=1, help="seed of a new record (%(default)s)")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="a kind; repeatable; all")
    parser.add_argument("--record", type=Path, help="file for the counts, from which a later run goes on")
    parser.add_argument("--case", type=int, help="run this case of a kind alone, in this process")
    asked = parser.parse_args()
    chosen = asked.kind or list(KINDS)
    if asked.case is not None:
        return _alone(chosen[0], asked.seed, asked.case)
    record = Record.load(asked.record, asked.seed)
    # Installed packages do not change.
    tflite_file.too_old = functools.cache(tflite_file.too_old)
    end = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(dir=judge.PLACE) as folder:
        places = {}
        for number, name in enumerate(chosen):
            places[name] = Path(folder) / str(number)
            places[name].mkdir()
            run_share(name, places[name], record.seed, 0, 0)  # makes the valid files
        open_kinds = list(chosen)
        while time.monotonic() < end and open_kinds:
            for name in open_kinds:
                first = record.next.get(name, 0)
                count = asked.each if asked.most is None else min(asked.each, asked.most - first)
                report, record.next[name] = run_share(name, places[name], record.seed, first, count)
                record.kinds.setdefault(name, KindReport()).add(report)
                if asked.record:
                    record.save(asked.record)
                if time.monotonic() >= end:
                    break
            open_kinds = [name for name in chosen if asked.most is None or record.next[name] < asked.most]
    print("\n".join(record.lines()))
    for name, one in record.kinds.items():
        for text in one.wrong[:20]:
            print(f"{name}: {text}")
    return 1 if any(one.failed for one in record.kinds.values()) else 0


def _alone(name: str, seed: int, number: int) -> int:
    """Run one case in this process; its file stays, and an exception shows its traceback."""
    folder = Path(tempfile.mkdtemp(prefix="rkcosim-case-"))
    one = Judge(name, KINDS[name], folder)
    path = one.change(seed, number)
    print(path)
    begun = time.monotonic()
    try:
        KINDS[name].read(path)
        print("accepted")
    except Exception:
        traceback.print_exc()
    print(f"{time.monotonic() - begun:.2f} s, {judge.peak() >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
