"""Changed files of a kind, one after the other, and what is wrong with the end of each."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rkcosim.base.processes import resident
from rkcosim.cli.exits import exit_code, lacks_memory, said
from rkcosim.compiler import litert
from tools.file_fuzz.changes import mutated
from tools.file_fuzz.kinds import KINDS, of_sample
from tools.file_fuzz.reports import SELDOM, Kind, KindReport

BOUND, WAIT = 30.0, 300.0
"""Largest time for one input in seconds of the processor, and in seconds: the machine may be busy."""

MOST_BYTES = 1 << 30
"""Largest resident memory in bytes of a process that reads inputs, and of those that it has started, beyond
what it had before its first input: it is a copy of the process that starts it, which may be large itself."""

GROWTH = 512 << 20
"""Largest growth of the process in bytes from the first inputs to the end of a run of `fuzz_files`."""

WARM = 50
"""Number of inputs of a kind before memory is measured for the first time."""

MOST_TEXT, MOST_LINE = 20_000, 1200
"""Largest number of characters in the message of a refusal, and in each line of it."""

PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Folder for the files, in memory where the system has it; None: the default of `tempfile`."""


class _TooLong(BaseException):
    pass


class Judge:
    """Passes changed files of one kind to its reader and judges how each ends.

    Parameters
    ----------
    name, kind : the kind.
    folder : an empty folder, or one that another object was made with.

    Members
    -------
    report : results so far.
    """

    def __init__(self, name: str, kind: Kind, folder: Path) -> None:
        self._name, self._kind = name, kind
        place, self._work, note = folder / "files", folder / "work", folder / "sound"
        if not note.exists():
            place.mkdir()
            self._work.mkdir()
            path = kind.make(place)
            (folder / "copy").write_bytes(path.read_bytes())
            if kind.sound:
                with contextlib.redirect_stdout(io.StringIO()):
                    kind.read(path)
            note.write_text(path.name, encoding="utf-8")
        self._path = place / note.read_text(encoding="utf-8")
        self._sound = (folder / "copy").read_bytes()
        self._folder, self._others = folder / "others", list[bytes]()
        self._around = set(os.listdir(place))
        self.report = KindReport()

    def change(self, seed: int, number: int) -> Path:
        """Write the changed file of a case, which depends on nothing else, and return it."""
        rng = random.Random(f"{seed} {self._name} {number}")
        seldom = rng.randrange(SELDOM) == 0 and self._kind.others is not tuple
        data = rng.choice(self._all_others()) if seldom else self._sound
        if self._kind.change is not None and rng.random() < 0.8:
            self._kind.change(self._path, data, rng)
        else:
            self._path.write_bytes(mutated(data, rng, self._kind.text))
        return self._path

    def prepare(self) -> None:
        """Make the further contents, which may take longer than a case."""
        if self._kind.others is not tuple:
            self._all_others()

    def _all_others(self) -> list[bytes]:
        """Return the further contents, which are made when they are needed first, and kept in the folder."""
        if not self._folder.exists():
            made = self._kind.others()
            self._folder.mkdir()
            for number, data in enumerate(made):
                (self._folder / str(number)).write_bytes(data)
        if not self._others:
            self._others = [path.read_bytes() for path in sorted(self._folder.iterdir())]
        return self._others

    def case(self, seed: int, number: int) -> None:
        """Do a case and add its result to the report."""
        path, report, begin = self.change(seed, number), self.report, spent()
        wrong = ""
        signal.setitimer(signal.ITIMER_PROF, BOUND)
        signal.setitimer(signal.ITIMER_REAL, WAIT)
        try:
            with watched(path.parent, self._work) as seen:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    self._kind.read(path)
            outcome = ""
        except _TooLong:
            wrong = f"takes longer than {BOUND:g} s of the processor, or {WAIT:g} s"
        except MemoryError:
            wrong = "runs out of memory"
        except Exception as error:
            outcome, wrong = type(error).__name__, self._unfit(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        wrong = wrong or next(iter(seen), "") or self._left()
        if wrong:
            report.fail(f"seed {seed}, case {number}: {wrong}")
        elif outcome:
            report.refused[outcome] += 1
        else:
            report.taken += 1
        seconds = spent() - begin
        report.slowest = max(report.slowest, seconds)
        report.seconds += seconds

    def _unfit(self, error: Exception) -> str:
        """Return why a reader must not refuse a file with an error; "" if it may."""
        if lacks_memory(error):
            return "runs out of memory"
        if exit_code(error) not in self._kind.codes:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        text = said(error)
        longest = max(map(len, text.splitlines()), default=0)
        if not text.strip() or len(text) > MOST_TEXT or longest > MOST_LINE:
            return f"{type(error).__name__}: a message of {len(text)} characters: {text[:100]}"
        return ""

    def _left(self) -> str:
        """Return which files were created or removed; files that remain are removed."""
        found = set(os.listdir(self._path.parent))
        odd = sorted(found ^ self._around)
        for name in found - self._around:
            (self._path.parent / name).unlink()
        self._around = set(os.listdir(self._path.parent)) if odd else self._around
        return f"files were created or removed: {', '.join(odd)}" if odd else ""


# -- what a reader opens and starts ------------------------------------------------------------------

_ROOT = str(Path(__file__).resolve().parents[2])
_READ = (
    *{sys.prefix, sys.base_prefix, sys.exec_prefix, _ROOT, os.path.realpath(sys.prefix)},
    *(
        "/usr/",
        "/lib",
        "/proc/self/",
        "/proc/cpuinfo",
        "/sys/devices/system/",
        "/dev/null",
        "/dev/urandom",
        "/etc/os-release",
    ),
)
"""Where readers may read besides the folder of the file: programs, libraries, facts of the machine."""

_WORKERS = ("rkcosim.waves.backend_worker", "litert_worker.py")
"""Processes that readers may start, by the last part of a word of their command lines."""

_CHANGES = {
    **dict.fromkeys(("os.remove", "os.rmdir"), (1, 1)),
    **dict.fromkeys(("os.mkdir", "os.chmod"), (1, 2)),
    **dict.fromkeys(("os.chown", "os.utime"), (1, 3)),
    **dict.fromkeys(("os.rename", "os.link"), (2, 2)),
    "os.symlink": (1, 3),  # its second path; the first one is only a text
    **dict.fromkeys(("os.truncate", "os.setxattr", "os.removexattr"), (1, 9)),
}
"""Events that change files: how many paths they begin with, and where descriptors of their folders follow."""

_FORBIDDEN = {
    *("os.system", "os.exec", "os.spawn", "pty.spawn", "os.chdir"),
    *("socket.connect", "socket.bind", "pickle.find_class", "webbrowser.open", "urllib.Request"),
}
"""Events of `sys.addaudithook` (docs.python.org/3/library/audit_events.html)."""


class _Watch:
    """What a reader does to files and processes that it must not do."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.found: list[str] = []
        self._folder, self._work = f"{folder}{os.sep}", f"{work}{os.sep}"

    def event(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "open":
            path, _, flags = args
            if isinstance(path, (str, bytes, os.PathLike)):
                self._opened(os.path.abspath(os.fsdecode(path)), flags)
        elif name in _CHANGES:
            paths, folders = _CHANGES[name]
            if name == "os.symlink":
                args = (args[1], None, None, *args[2:])
            for number, path in enumerate(args[:paths]):
                if isinstance(path, (str, bytes)):
                    folder = args[folders + number] if len(args) > folders + number else -1
                    self._opened(_absolute(os.fsdecode(path), folder), os.O_WRONLY)
        elif name in ("subprocess.Popen", "os.posix_spawn"):  # the first may do the second
            words = [os.fsdecode(word) for word in args[1]] if isinstance(args[1], (list, tuple)) else []
            if words[:1] != [sys.executable] or not any(word.endswith(_WORKERS) for word in words):
                self.found.append(f"starts {args[1]}"[:200])
        elif name in _FORBIDDEN:
            self.found.append(f"{name} {args}"[:200])

    def _opened(self, path: str, flags: int) -> None:
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if writes and not (path.startswith(self._work) or path == os.devnull or "__pycache__" in path):
            self.found.append(f"writes {path}")
        elif not writes and not path.startswith((self._folder, self._work, *_READ)):
            self.found.append(f"reads {path}")


def _absolute(path: str, folder: int) -> str:
    """Return a path that is relative to the descriptor of a folder (-1: the current one) as absolute path."""
    return os.path.abspath(os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else "", path))


_watch: _Watch | None = None
_hooked = False


def _audit(name: str, args: tuple[Any, ...]) -> None:
    if _watch is not None:
        try:
            _watch.event(name, args)
        except Exception as error:  # it would look like an error of the reader
            _watch.found.append(f"{name} {args}: {error!r}"[:200])


def unwatched() -> None:
    """Watch nothing more in this process, which has been forked from one that reads a file."""
    global _watch
    _watch = None


@contextlib.contextmanager
def watched(folder: Path, work: Path) -> Iterator[list[str]]:
    """Yield a list that gets a text for each thing which a reader must not do.

    Parameters
    ----------
    folder : the folder of the file, of which everything may be read.
    work : the folder for temporary files, which is empty at the end.
    """
    global _watch, _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    watch, before = _Watch(folder, work), tempfile.tempdir
    tempfile.tempdir, _watch = str(work), watch
    try:
        yield watch.found
    finally:
        tempfile.tempdir, _watch = before, None
        watch.found += [f"leaves the temporary file {name}" for name in os.listdir(work)]


@contextlib.contextmanager
def quiet_alarm() -> Iterator[None]:
    """The timer of a case ends its reader."""

    def ring(number: int, frame: Any) -> None:
        raise _TooLong

    before = [(one, signal.signal(one, ring)) for one in (signal.SIGALRM, signal.SIGPROF)]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def spent() -> float:
    """Return the seconds of the processor of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def peak() -> int:
    """Return the largest resident memory so far of this process and of those that it has waited for."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * 1024


def fuzz_files(
    seed: int,
    inputs: int,
    kinds: list[str] | None = None,
    *,
    samples: Sequence[Path] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, KindReport]:
    """Pass changed files to the readers of the commands, all kinds in turn.

    Parameters
    ----------
    seed : seed of all random numbers.
    inputs : total number of files.
    kinds : names of `KINDS`; default: all, or none if there are samples.
    samples : valid files of the caller; copies of them are changed.  Their contents determine their kind.
    progress : called with the number of inputs done.

    Returns
    -------
    dict
        A report for each kind; its `wrong` is empty if there were no failures.

    Raises
    ------
    KeyError
        If a kind does not exist.
    ValueError
        If a sample has a kind whose reader is not tested.
    """
    chosen = {name: KINDS[name] for name in ([] if samples and not kinds else kinds or KINDS)}
    chosen |= {path.name: of_sample(path) for path in samples}
    with tempfile.TemporaryDirectory(dir=PLACE) as folder, quiet_alarm():
        judges: list[Judge] = []
        for number, (name, kind) in enumerate(chosen.items()):
            place = Path(folder) / str(number)
            place.mkdir()
            judges.append(Judge(name, kind, place))
        litert.start()  # its pipes stay open
        before, descriptors = 0, 0
        for number in range(inputs):
            judges[number % len(judges)].case(seed, number // len(judges))
            if number == WARM * len(judges):
                before, descriptors = _resident(), len(os.listdir("/proc/self/fd"))
            progress(number + 1)
        if before:
            grown, left = _resident() - before, len(os.listdir("/proc/self/fd")) - descriptors
            if grown > GROWTH:
                judges[-1].report.fail(f"memory grew by {grown:,} bytes")
            if left > 0:
                judges[-1].report.fail(f"{left} descriptors remain open")
    return dict(zip(chosen, (judge.report for judge in judges), strict=True))


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return resident()
