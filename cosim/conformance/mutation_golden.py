"""Mutants of the golden model, each in a process of its own that starts with all cases drawn."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cosim.conformance.case import Case
from cosim.conformance.mutate import Mutant, mutants
from cosim.conformance.mutation_corpus import Entry, digest, ordered
from cosim.conformance.mutation_rules import modules
from cosim.conformance.mutation_verdict import FOUND, SURVIVED, VOID, Verdict
from cosim.conformance.runner import MAX_CYCLES

FOLDERS = ("cosim/golden/task",)
CASE_SECONDS = 10
"""Processor time after which a case of a mutant counts as one that does not end."""

MEMORY_BYTES = 6 << 30
"""Address space that a mutant's process may add."""

RELOADED = ("cosim.golden", "cosim.crosscheck", "cosim.conformance.runner")
"""Packages that must see the changed module."""


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
    """Mutants in random order, files weighted by their number of mutants."""
    found = [mutant for name, source in modules(root, FOLDERS) for mutant in mutants(name, source)]
    for number in rng.permutation(len(found)):
        yield found[number]


def unchanged(root: Path) -> Mutant:
    """A mutant that changes nothing."""
    path = f"{FOLDERS[0]}/arith.py"
    return Mutant(path, 1, "none", "", "", (root / path).read_text())


def _late(*_: object) -> None:
    raise TimeoutError(f"no end within {CASE_SECONDS} s")


def attempt(mutant: Mutant, cases: Sequence[tuple[Entry, Case | None]]) -> tuple[str, str]:
    """Change this process's golden model and run the cases on it: result and detail."""
    name = mutant.path.removesuffix(".py").replace("/", ".")
    for loaded in list(sys.modules):
        if loaded.startswith(RELOADED):
            del sys.modules[loaded]
    sys.meta_path.insert(0, _Changed(name, mutant.path, mutant.source))
    signal.signal(signal.SIGPROF, _late)
    try:
        runner_module = importlib.import_module("cosim.conformance.runner")
        model = importlib.import_module("cosim.golden.task").GoldenNpu(1, strict=False)
        runner = runner_module.Runner(model)
    except Exception as error:
        return VOID, f"{type(error).__name__}: {error}"
    for number, (entry, drawn) in enumerate(cases, 1):
        case = drawn or entry.draw()
        signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
        try:
            runner.reset()
            side = runner.observe(model, case, MAX_CYCLES)
            same = digest(side, model, case) == entry.digest
        except Exception as error:
            return FOUND, f"{entry.group} {entry.seed}/{entry.index}, case {number}: {type(error).__name__}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if not same:
            return FOUND, f"{entry.group} {entry.seed}/{entry.index}, case {number} {side.error}".strip()
    return SURVIVED, f"{len(cases)} cases"


def _child(pipe: Connection, mutant: Mutant, cases: Sequence[tuple[Entry, Case | None]]) -> None:
    # The process that was forked may have reserved any number of addresses already.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(BrokenPipeError):
        pipe.send(attempt(mutant, cases))
    pipe.close()


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
        in the order in which they are tried.
    unchanged
        one that changes nothing, which must survive the first round.
    count
        mutants wanted.
    corpus, counts
        cases, and cases of each group after each round.
    workers
        processes at a time.
    say
        told each verdict.
    known
        verdicts of an earlier run by mutant, which are taken over.

    Raises
    ------
    RuntimeError
        when the unchanged sources do not repeat what they showed.
    """
    drawn = {(e.group, e.index): e.draw() for e in corpus if e.index < counts[min(1, len(counts) - 1)]}
    context = multiprocessing.get_context("fork")
    first = [(e, drawn.get((e.group, e.index))) for e in ordered(corpus, counts[:1], None)]
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, unchanged, first), daemon=True)
    process.start()
    result, detail = mine.recv()
    process.join()
    if result != SURVIVED:
        raise RuntimeError(f"the unchanged sources do not repeat what they showed: {detail}")
    running: dict[Connection, tuple[Any, Mutant, float]] = {}
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
            cases = [(e, drawn.get((e.group, e.index))) for e in ordered(corpus, counts, scope)]
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(theirs, mutant, cases), daemon=True)
            process.start()
            theirs.close()
            running[mine] = (process, mutant, time.monotonic())
        if not running:
            return verdicts
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            process, mutant, begun = running.pop(pipe)
            try:
                result, detail = pipe.recv()
            except EOFError:
                result, detail = FOUND, "the process died"
            pipe.close()
            process.join()
            good += result != VOID
            seconds = round(time.monotonic() - begun, 1)
            verdict = Verdict("golden", mutant.kind, str(mutant), result, detail, seconds)
            verdicts.append(verdict)
            say(verdict)
