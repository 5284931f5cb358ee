"""C++ files to one shared library: which files are compiled together, what may begin early, progress."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import progress as under_way
from rkcosim.engines import toolchain
from rkcosim.engines.cache import Progress
from rkcosim.engines.settings import processors as usable


@dataclass
class Source:
    """A C++ file.

    Members
    -------
    flags, optimise : its own options.
    keep_as : an object file that later builds may reuse, or None.
    usual : with the compiler's default options only, without `-march=native` and other additions.
    """

    path: Path
    flags: list[str]
    optimise: str = "-O3"
    keep_as: Path | None = None
    usual: bool = False


TOGETHER = 1_000_000
TOGETHER_UNOPTIMISED = 2_500_000
"""Bytes of generated C++ up to which files are always compiled together; the second is for `-O0`.

Reading Verilator's headers takes a compiler 0.6 s, for many of the files more than their own code takes.
Precompiled headers are no alternative: each level of optimisation needs its own one, of 80 MB and 3.5 s, and
GCC 12.2 crashed with them.
"""

SHARES = 2
SHARES_UNOPTIMISED = 1
"""Number of files for each processor that are enough to keep all processors busy, as `TOGETHER`."""


def together(sources: list[Source], folder: Path, processors: int | None = None) -> list[Source]:
    """Replace files with the same options by fewer files in `folder` that include them.

    Parameters
    ----------
    processors : number of processors that compile; the fewer there are, the fewer files remain. None: all
        that this process may use.
    """
    count = processors or usable()
    alike: dict[tuple[str, ...], list[Source]] = defaultdict(list)
    for source in sorted(sources, key=lambda s: s.path):
        alike[(source.optimise, str(source.usual), *source.flags)].append(source)
    groups: list[list[list[Source]]] = []
    for options, members in alike.items():
        sizes = [source.path.stat().st_size for source in members]
        slow = options[0] == "-O0"
        least, shares = (TOGETHER_UNOPTIMISED, SHARES_UNOPTIMISED) if slow else (TOGETHER, SHARES)
        most = max(least, sum(sizes) / (shares * count))
        files, filled = [[members[0]]], sizes[0]
        for source, size in zip(members[1:], sizes[1:], strict=True):
            if filled + size > most:
                files.append([])
                filled = 0
            files[-1].append(source)
            filled += size
        groups.append(files)
    found: list[Source] = []
    for files in groups:
        for several in files:
            if len(several) > 1:
                path = folder / f"together_{len(found)}.cpp"
                path.write_text("".join(f'#include "{source.path}"\n' for source in several))
                first = several[0]
                found.append(Source(path, first.flags, first.optimise, usual=first.usual))
            else:
                found += several
    return found


HEADER_SECONDS = 0.6
HARNESS_SECONDS = 5.0
"""Time for Verilator's headers, and for the templates of the harness, which `api.cpp` instantiates."""

SECONDS_PER_MEGABYTE = {"-O0": 0.6, "-O1": 1.2, "-O2": 1.8}


def _seconds(source: Source) -> float:
    """Return an estimate of the time for a file; the longest is compiled first, so that none remains."""
    text = source.path
    size = text.stat().st_size
    if text.name.startswith("together_"):
        size = sum(Path(line.split('"')[1]).stat().st_size for line in text.read_text().splitlines())
    harness = HARNESS_SECONDS if text.name == "api.cpp" else 0
    return HEADER_SECONDS + harness + SECONDS_PER_MEGABYTE.get(source.optimise, 2.0) * size / 1e6


class Compilation:
    """Compiles the files of one library; those that do not depend on the design can begin early.

    Parameters
    ----------
    flags : function of `optimise` and `usual` of a `Source` that returns the options all files share.
    """

    def __init__(self, work: Path, flags: Callable[[str, bool], list[str]]) -> None:
        self._work, self._flags = work, flags
        self._tool = toolchain.compiler()
        self._number = itertools.count()
        self._lock = threading.Lock()
        self._pools: list[ThreadPoolExecutor] = []
        self._early: list[Future[Path]] = []

    def begin(self, sources: list[Source]) -> None:
        """Start to compile files, on all processors but the one that prepares the others."""
        pool = self._pool(max(usable() - 1, 1))
        self._early += [pool.submit(self._compile, source) for source in sources]

    def finish(
        self, sources: list[Source], library: Path, added: list[str], progress: Progress, tell: Progress
    ) -> None:
        """Compile the other files and link `library`.

        Parameters
        ----------
        added : options for the linker.
        progress : called with a line at the start, a few times in between and at the end.
        tell : called with the state after each file.
        """
        begin = time.monotonic()
        order = sorted(sources, key=_seconds, reverse=True)
        count = usable()
        total = len(self._early) + len(order)
        progress(f"compiling {total} C++ files on {count} processors")
        pool = self._pool(count)
        jobs = [pool.submit(self._compile, source) for source in order]
        jobs += self._early
        with under_way.step("compiling", total) as step:
            for job in as_completed(jobs):
                job.result()
                step.advance()
                done = round(step.done)
                step.detail = f"{done}/{total} files"
                tell(f"compiling {step.detail}")
                if done < total and 4 * done // total > 4 * (done - 1) // total:
                    progress(f"{step.detail} compiled")
        link = ["-shared", "-pthread", "-o", str(library), *(str(job.result()) for job in jobs), *added]
        if platform.system() == "Linux":
            link.insert(0, "-Wl,-Bsymbolic")
        self._tool.run(link, self._work)
        progress(f"compiling took {time.monotonic() - begin:.1f} s")

    def close(self) -> None:
        """Wait for what is running and drop the rest."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def _pool(self, count: int) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(count)
        self._pools.append(pool)
        return pool

    def _compile(self, source: Source) -> Path:
        kept = source.keep_as
        if kept is not None and kept.exists():
            return kept
        with self._lock:
            number = next(self._number)
        target = self._work / f"{number}-{source.path.stem}.o"
        options = [*self._flags(source.optimise, source.usual), *source.flags]
        self._tool.run([*options, "-c", str(source.path), "-o", str(target)], self._work)
        if kept is not None:
            kept.parent.mkdir(exist_ok=True)
            fresh = kept.with_suffix(f".{os.getpid()}")
            shutil.copy(target, fresh)
            fresh.replace(kept)
        return target
