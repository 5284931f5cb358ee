"""Mutants of the golden model, each in a separate process that starts with all cases drawn."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.runner import MAX_CYCLES
from tools.mutation.corpus import Entry, Shown, ordered
from tools.mutation.operators import Mutant, mutants
from tools.mutation.rules import modules
from tools.mutation.verdict import FOUND, SURVIVED, VOID, Answer, Verdict, answer, forked

FOLDERS = ("cosim/golden/task",)
CASE_SECONDS = 10
"""Processor time after which a mutant's case counts as one that does not end."""

MEMORY_BYTES = 6 << 30
"""Address space that a mutant's process may allocate in addition."""

RELOADED = ("rkcosim.golden", "rkcosim.verify.crosscheck", "rkcosim.verify.conformance.runner")
"""Packages that must be imported again to use the changed module."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text."""

    def __init__(self, name: str, path: str, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self.path
        exec(compile(self.source, self.path, "exec"), module.__dict__)


def candidates(root: Path, rng: np.random.Generator) -> Iterator[Mutant]:
    """Yield mutants in random order; a file's share is proportional to its number of mutants."""
    found = [mutant for name, source in modules(root, FOLDERS) for mutant in mutants(name, source)]
    for number in rng.permutation(len(found)):
        yield found[number]


def unchanged(root: Path) -> Mutant:
    """Return a mutant that changes nothing."""
    path = f"{FOLDERS[0]}/arith.py"
    return Mutant(path, 1, "none", "", "", (root / path).read_text())


def _late(*_: object) -> None:
    raise TimeoutError(f"no end within {CASE_SECONDS} s")


def attempt(mutant: Mutant, cases: Sequence[tuple[Entry, Case | None]]) -> Answer:
    """Change this process's golden model and run the cases on it; return result and detail."""
    name = "rkcosim." + mutant.path.removeprefix("cosim/").removesuffix(".py").replace("/", ".")
    for loaded in list(sys.modules):
        if loaded.startswith(RELOADED):
            del sys.modules[loaded]
    sys.meta_path.insert(0, _Changed(name, mutant.path, mutant.source))
    signal.signal(signal.SIGPROF, _late)
    try:
        runner_module = importlib.import_module("rkcosim.verify.conformance.runner")
        golden_npu = importlib.import_module("rkcosim.golden.task").GoldenNpu
        model = golden_npu(1, strict=False)
        runner = runner_module.Runner(golden_npu(1, strict=False), model)
        shown = Shown(model, importlib.import_module("rkcosim.golden.task.rules").Diagnosis)
    except Exception as error:
        return VOID, f"{type(error).__name__}: {error}"
    for number, (entry, drawn) in enumerate(cases, 1):
        case = drawn or entry.draw()
        signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
        try:
            runner.reset()
            shown.clear()
            side = runner.observe(model, case, MAX_CYCLES)
            same = shown.digest(side, case) == entry.digest
        except Exception as error:
            return FOUND, f"{entry.group} {entry.seed}/{entry.index}, case {number}: {type(error).__name__}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if not same:
            return FOUND, f"{entry.group} {entry.seed}/{entry.index}, case {number} {side.error}".strip()
    return SURVIVED, f"{len(cases)} cases"


def _limited(mutant: Mutant, cases: Sequence[tuple[Entry, Case | None]]) -> Answer:
    """Like `attempt`, with a limit of the address space in addition to what is already reserved."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return attempt(mutant, cases)


def check(
    mutants_of_it: Iterator[Mutant],
    unchanged: Mutant,
    count: int,
    corpus: list[Entry],
    counts: list[int],
    workers: int,
    say: Callable[[Verdict], None],
    known: Mapping[str, Verdict] | None = None,
) -> list[Verdict]:
    """Try mutants until `count` of them are not void.

    Parameters
    ----------
    mutants_of_it
        Mutants in the order in which they are tried.
    unchanged
        A mutant that changes nothing, which must survive the first round.
    count
        Number of mutants wanted.
    corpus, counts
        Cases, and number of cases of each group after each round.
    workers
        Number of processes at a time.
    say
        Called with each verdict.
    known
        Verdicts of an earlier run by mutant, which are reused.

    Raises
    ------
    RuntimeError
        If the unchanged sources do not reproduce their results.
    """
    drawn = {(e.group, e.index): e.draw() for e in corpus if e.place < counts[min(1, len(counts) - 1)]}

    def start(mutant: Mutant, chosen: Iterator[Entry]) -> tuple[BaseProcess, Connection]:
        return forked(partial(_limited, mutant, [(e, drawn.get((e.group, e.index))) for e in chosen]))

    result, detail = answer(*start(unchanged, ordered(corpus, counts[:1], None)))
    if result != SURVIVED:
        raise RuntimeError(f"the unchanged sources do not reproduce their results: {detail}")
    running: dict[Connection, tuple[BaseProcess, Mutant, float]] = {}
    verdicts: list[Verdict] = []
    good = 0
    while True:
        while len(running) < workers and good + len(running) < count:
            mutant = next(mutants_of_it, None)
            if mutant is None:
                break
            if known and str(mutant) in known:
                verdicts.append(known[str(mutant)])
                good += verdicts[-1].result != VOID
                continue
            scope = (mutant.path, mutant.scope) if mutant.scope else None
            if scope is not None and not any(scope in entry.calls for entry in corpus):
                scope = None
            process, reader = start(mutant, ordered(corpus, counts, scope))
            running[reader] = (process, mutant, time.monotonic())
        if not running:
            return verdicts
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            process, mutant, begun = running.pop(pipe)
            result, detail = answer(process, pipe)
            good += result != VOID
            seconds = round(time.monotonic() - begun, 1)
            verdict = Verdict("golden", mutant.kind, str(mutant), result, detail, seconds)
            verdicts.append(verdict)
            say(verdict)
