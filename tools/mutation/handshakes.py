"""Do a block's own tests find every wrong handshake and count? Plants faults at the ports of components.

    python -m tools.mutation.handshakes

Each port of one bit, and each count, that a component of the RTL drives gets each kind of fault in turn
(`tools/mutation/faulty_ports.py`). The files of `tests/block` that use the component run until a test fails,
those with the fewest other components first, and behind the first file the bounded checks of the component's
proofs, for at most 30 seconds of processor time: a block's own tests have to find a fault quickly. Tests that
have found most of the component's other faults run ahead of all files, which saves time. The record
(docs/results/handshakes.json) keeps each verdict, and a run that was stopped goes on where it was: faults
that have never been tried come first, one of each component in turn, and then those whose component or test
has changed since. Faults that are known to be harmless are listed with the reason in
`tools/mutation/harmless.toml`. The exit code is 1 if another fault survives.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

import pytest
from amaranth.lib import wiring

from rkcosim.waves.whole_file import whole_file
from tools.mutation.faulty_ports import Faults, PortFault, components, faults_of, watch
from tools.mutation.handshake_record import (
    FOUND,
    PAGE,
    ROOT,
    SECONDS,
    SURVIVED,
    Finding,
    Record,
    counted,
    digest_of,
    page,
    reasons,
)
from tools.mutation.verdict import CONTEXT
from tools.proofs.catalog import PROOFS
from tools.proofs.solve import ProofError, find_failure

WALL_SECONDS = 600
"""Time without any work after which the tests of a fault are stopped, which is a find: they do not end."""

TURN = 3
"""Faults of a component that are tried before it is the turn of the others."""

WARM = 3
"""Tests that run without a fault before any test of their file has found one."""

GROUP = 64
"""Faults at most that are in one simulation: of all components whose own tests are in the same file."""

USES = Path("build/handshakes_uses.json")
"""Which components each file of tests elaborates, kept for unchanged sources."""


@dataclass(frozen=True)
class Use:
    """What a file of tests elaborates: names of components, and the faults of their ports.

    `seconds` has the processor time of each test without a fault.
    """

    path: str
    faults: Mapping[str, tuple[PortFault, ...]]
    seconds: Mapping[str, float] = field(default_factory=dict)


def _tests() -> list[Path]:
    return sorted(path for path in (ROOT / "tests/block").glob("test_*.py") if path.stem != "test_proofs")


def _child(work: Callable[[Connection], None], seconds: float) -> tuple[object, bool]:
    """Run work in a copy of this process; return what it sent (None if it died), and whether it ended.

    The copy and its processes are stopped when none of them has used the processor for some seconds.

    Raises
    ------
    RuntimeError
        if the work raises an exception.
    """
    mine, theirs = CONTEXT.Pipe(duplex=False)

    def run() -> None:
        os.setpgid(0, 0)
        theirs_out = io.StringIO()
        with contextlib.redirect_stdout(theirs_out), contextlib.redirect_stderr(theirs_out):
            try:
                work(theirs)
            except Exception:
                theirs.send(traceback.format_exc())

    process = CONTEXT.Process(target=run)
    process.start()
    theirs.close()
    assert process.pid is not None
    used = -1
    while not (ended := mine.poll(seconds)) and (now := _ticks(process.pid)) > used:
        used = now
    try:
        sent = mine.recv() if ended else None
    except EOFError:
        sent = None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    if isinstance(sent, str):
        raise RuntimeError(f"the tests cannot be run:\n{sent}")
    return sent, ended


def _ticks(group: int) -> int:
    """Return the processor time that the living processes of a group have used, in ticks of the kernel."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[2]) == group else 0
    return ticks


class _Failures:
    """A plugin of pytest that keeps the first test that fails, and the seconds of each test."""

    def __init__(self) -> None:
        self.first = ""
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid
        if report.when == "call":
            self.seconds[report.nodeid] = round(report.duration, 2)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid


def _run(paths: Sequence[str], seconds: dict[str, float] | None = None) -> str:
    """Run files of tests, or tests, until one fails; return its name, or "", and add the seconds of each."""
    failures = _Failures()
    failures.seconds = {} if seconds is None else seconds
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no"]
    options += ["--assert=plain", "-m", "not heavy and not shared"]
    try:
        code = pytest.main([*options, *paths], plugins=[failures])
    except Exception:  # at the end, for coroutines of a bench that failed
        if not failures.first:
            raise
        return failures.first
    if code == pytest.ExitCode.USAGE_ERROR:
        raise RuntimeError(f"{', '.join(paths)}: pytest finds no such tests")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return failures.first or f"pytest ends with {code}"
    return failures.first


def use_of(path: Path) -> Use:
    """Run a file of tests without a fault and return what it elaborates.

    Raises
    ------
    RuntimeError
        if a test fails.
    """

    def work(pipe: Connection) -> None:
        seen: dict[str, tuple[PortFault, ...]] = {}

        def note(name: str, component: wiring.Component) -> None:
            found = tuple(faults_of(name, component))
            seen[name] = tuple(dict.fromkeys((*seen.get(name, ()), *found)))

        watch(note)
        seconds: dict[str, float] = {}
        failed = _run([str(path)], seconds)
        pipe.send((seen, seconds, failed))

    sent, _ = _child(work, WALL_SECONDS)
    seen, seconds, failed = sent if isinstance(sent, tuple) else ({}, {}, "the tests do not end")
    if failed:
        raise RuntimeError(f"{path.relative_to(ROOT)}: {failed} fails without a fault")
    return Use(path.relative_to(ROOT).as_posix(), seen, seconds)


def _in_order(paths: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Return the tests of some files, short ones first; a file without known tests is itself one."""
    tests = [[one for one in seconds if one.partition("::")[0] == path] or [path] for path in paths]
    return sorted(itertools.chain(*tests), key=lambda test: seconds.get(test, 0.0))


def _disproved(fault: PortFault) -> str:
    """Return the first proof of the component that fails within its depth, or ""."""
    module, _, name = fault.component.rpartition(".")
    block = f"rtl/{module.replace('.', '/')}.py: {name}"
    for proof in PROOFS:
        with contextlib.suppress(ProofError):  # no verdict
            if proof.block == block and find_failure(proof).holds is False:
                return f"proof {proof.name}"
    return ""


def attempt(
    fault: PortFault,
    paths: Sequence[str],
    ahead: Sequence[str] = (),
    *,
    limit: int = SECONDS,
    planted: Faults | None = None,
    seconds: Mapping[str, float] = MappingProxyType({}),
) -> Finding:
    """Run files of tests with a fault, the first path before the others, and single tests `ahead` of them.

    `seconds` are those of each test without a fault; short tests of a file run first.

    A fault that survives a `limit` of less than `SECONDS` has no digest: it is not decided. `planted`
    are the faults that this process has planted already.
    """

    def work(pipe: Connection) -> None:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + limit + 1, hard))

        def over(number: int, frame: object) -> None:
            pipe.send((SURVIVED, f"no test failed in {limit} s", limit))
            os._exit(0)

        signal.signal(signal.SIGXCPU, over)
        (planted or Faults([fault])).choose(fault)
        own = [test for test in _in_order(paths[:1], seconds) if test not in ahead]
        others = [test for test in _in_order(paths[1:], seconds) if test not in ahead]
        failed = _run([str(ROOT / test) for test in (*ahead, *own)]) or _disproved(fault)
        failed = failed or (_run([str(ROOT / test) for test in others]) if others else "")
        taken = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - used
        pipe.send((FOUND, failed, taken) if failed else (SURVIVED, "all tests pass", taken))

    begin = time.monotonic()
    sent, ended = _child(work, WALL_SECONDS)
    if isinstance(sent, tuple):
        result, test, used = sent
    else:
        result, test = FOUND, "the process died" if ended else "the tests do not end"
        used = time.monotonic() - begin
    whole = result == FOUND or limit >= SECONDS
    return Finding(str(fault), result, test, round(used, 1), digest_of(fault, test, paths) if whole else "")


def _try_all(
    plans: Mapping[PortFault, tuple[str, ...]],
    known: Mapping[str, Finding],
    seconds: Mapping[str, float],
    limit: int,
    pipe: Connection,
) -> None:
    """Try faults and send the findings, or the text of an error."""
    findings, warm = list(known.values()), set[str]()
    try:
        planted = Faults(list(plans))
        for fault, paths in plans.items():
            ahead = finders(fault.component, findings, paths)
            before = known.get(str(fault))
            if before is not None and before.test.partition("::")[0] in paths:
                ahead = list(dict.fromkeys((before.test, *ahead)))
            for test in ahead or _in_order(paths[:1], seconds)[:WARM]:
                if test not in warm:
                    with contextlib.redirect_stdout(io.StringIO()):
                        failed = _run([str(ROOT / test)])
                    if failed:
                        raise RuntimeError(f"{failed} fails without a fault")
                    warm.add(test)
            findings.append(attempt(fault, paths, ahead, limit=limit, planted=planted, seconds=seconds))
            pipe.send(findings[-1])
    except Exception:
        pipe.send(traceback.format_exc())


def batches(
    groups: Iterable[Mapping[PortFault, tuple[str, ...]]],
    known: Mapping[str, Finding],
    seconds: Mapping[str, float],
    limit: int = SECONDS,
    jobs: int = 1,
) -> Iterator[Finding]:
    """Try groups of faults and yield the findings, several groups at the same time.

    Tests that have found other faults (if there are none, short ones of the first file) run once without a
    fault, in a process that is then copied for each fault: so a simulation that they share
    (`tests.simulation.shared`) is built once for a group.

    Raises
    ------
    RuntimeError
        if such a test fails without a fault, or tests cannot be run.
    """
    left = iter(groups)
    running: dict[Connection, tuple[BaseProcess, int]] = {}
    try:
        while True:
            for plans in itertools.islice(left, jobs - len(running)):
                mine, theirs = CONTEXT.Pipe(duplex=False)
                process: BaseProcess = CONTEXT.Process(
                    target=_try_all, args=(plans, dict(known), seconds, limit, theirs)
                )
                process.start()
                theirs.close()
                running[mine] = process, len(plans)
            if not running:
                return
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                try:
                    sent = pipe.recv()
                except EOFError:
                    sent = "the process that tries faults died"
                if isinstance(sent, str):
                    raise RuntimeError(sent)
                yield sent
                process, count = running.pop(pipe)
                if count > 1:
                    running[pipe] = process, count - 1
                else:
                    process.join()
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _digest(path: Path) -> str:
    """Return a digest of what the components depend on that a file of tests elaborates."""
    digest = hashlib.sha256(path.read_bytes())
    sources = [Path(__file__).with_name("faulty_ports.py")]
    for folder in ("spec", "rtl", "tests/makers"):
        sources += sorted((ROOT / folder).rglob("*.py"))
    sources += [one for one in sorted(path.parent.glob("*.py")) if not one.stem.startswith("test_")]
    for one in sources:
        digest.update(one.relative_to(ROOT).as_posix().encode() + one.read_bytes())
    return digest.hexdigest()[:16]


def _uses() -> list[Use]:
    """Return what each file of tests elaborates; the answers are kept for unchanged sources."""
    kept = json.loads(USES.read_text(encoding="utf-8")) if USES.is_file() else {}
    uses = []
    for path in _tests():
        name, digest = path.relative_to(ROOT).as_posix(), _digest(path)
        if name not in kept or kept[name]["sources"] != digest:
            begin = time.monotonic()
            use = use_of(path)
            rows = {
                component: [[one.component, one.port, one.kind] for one in faults]
                for component, faults in use.faults.items()
            }
            kept[name] = {"sources": digest, "uses": rows, "seconds": dict(use.seconds)}
            with whole_file(USES) as part:
                part.write_text(json.dumps(kept), encoding="utf-8")
            print(f"{path.stem}: {len(rows)} components, {time.monotonic() - begin:.0f} s", flush=True)
        rows = kept[name]["uses"]
        uses.append(
            Use(
                name,
                {key: tuple(PortFault(*row) for row in faults) for key, faults in rows.items()},
                kept[name]["seconds"],
            )
        )
    return uses


def planned(uses: Sequence[Use]) -> dict[PortFault, tuple[str, ...]]:
    """Return for each fault the files of tests that use its component, its own ones first."""
    found: dict[PortFault, list[Use]] = {}
    for use in uses:
        for faults in use.faults.values():
            for fault in faults:
                found.setdefault(fault, []).append(use)
    return {
        fault: tuple(use.path for use in sorted(found[fault], key=lambda use: (len(use.faults), use.path)))
        for fault in sorted(found, key=str)
    }


def finders(component: str, findings: Iterable[Finding], paths: Sequence[str]) -> list[str]:
    """Return the tests of some files that have found most of a component's faults, at most two.

    If there are none, those of the first of these files that have found most of the other components' faults.
    """
    own, others = Counter[str](), Counter[str]()
    for one in findings:
        file = one.test.partition("::")[0]
        if one.fault.partition(":")[0] == component and file in paths:
            own[one.test] += 1
        elif file == paths[0]:
            others[one.test] += 1
    return [test for test, _ in (own or others).most_common(2)]


def in_turn(
    plans: Mapping[PortFault, tuple[str, ...]], record: Record, most: int | None = None
) -> list[tuple[PortFault, ...]]:
    """Return groups of faults in the order in which they are tried, with at most `most` faults.

    Those without a verdict come first, then those that survived, then the rest. In each of these, the
    components take turns, each with some of its faults in an order by a hash of their names: so what has been
    tried when a run is stopped is a sample of every component. A group has the same first file of tests.
    """
    places: dict[tuple[int, int, str], list[PortFault]] = {}
    numbers: Counter[tuple[str, int]] = Counter()
    tried = Counter(fault.partition(":")[0] for fault in record.verdicts)
    for fault in sorted(plans, key=lambda one: hashlib.sha256(str(one).encode()).digest()):
        one = record.verdicts.get(str(fault))
        rank = 0 if one is None else 1 if one.result != FOUND else 2
        place = (
            rank,
            (numbers[fault.component, rank] + (0 if rank else tried[fault.component])) // TURN,
            plans[fault][0],
        )
        numbers[fault.component, rank] += 1
        places.setdefault(place, []).append(fault)
    groups, left = [], most
    for place in sorted(places):
        faults = sorted(places[place], key=str)[:left]
        left = None if left is None else left - len(faults)
        groups += [tuple(faults[at : at + GROUP]) for at in range(0, len(faults), GROUP)]
    return groups


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation.handshakes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", default="", help="try faults whose names match this expression now")
    parser.add_argument("--most", type=int, help="try at most this many faults now")
    parser.add_argument(
        "--seconds",
        type=int,
        default=SECONDS,
        help=f"stop after this processor time (default: {SECONDS}); with less, what survives is tried again",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="groups of faults that are tried at the same time"
    )
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    USES.parent.mkdir(parents=True, exist_ok=True)
    components()  # everything is imported once, before the process is copied for each fault
    for path in (*sorted((ROOT / "tests/block").glob("*.py")), ROOT / "tests/conftest.py"):
        importlib.import_module(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."))
    uses, record = _uses(), Record.read()
    plans = planned(uses)
    seconds = {test: taken for use in uses for test, taken in use.seconds.items()}
    record.faults = [str(fault) for fault in plans]
    record.verdicts = {name: one for name, one in record.verdicts.items() if name in set(record.faults)}
    missing = {
        fault: paths
        for fault, paths in plans.items()
        if re.search(given.only, str(fault)) and not record.current(fault, paths)
    }
    groups = ({fault: plans[fault] for fault in group} for group in in_turn(missing, record, given.most))
    for one in batches(groups, record.verdicts, seconds, given.seconds, given.jobs):
        before = record.verdicts.get(one.fault)
        first = one.result if before is None or not before.decided else before.first
        record.verdicts[one.fault] = replace(one, first=first)
        print(f"{one.result:9} {one.seconds:6.1f} s  {one.fault}  {one.test}", flush=True)
        record.write()
    record.write()
    why = reasons()
    PAGE.write_text(page(record, why), encoding="utf-8")
    counts = counted(record, why)
    for one_of in counts:
        print(
            f"{one_of.name}: {one_of.found} found, {one_of.harmless} harmless, {one_of.left} survive, "
            f"{one_of.undecided} not decided"
        )
    return 1 if counts[-1].left else 0


if __name__ == "__main__":
    sys.exit(main())
