"""Many random tasks on an engine and on the golden model, all mapped memory compared after each kick."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cosim.crosscheck.check import use_memory
from cosim.crosscheck.compare import Verdict, judge
from cosim.crosscheck.kick import Device, run_kick
from cosim.crosscheck.random_tasks import KINDS, RandomTask, random_task
from cosim.golden.task import GoldenError, GoldenNpu, TaskReport

MAX_CYCLES = 3_000_000


@dataclass
class Outcome:
    """One kick's comparison."""

    index: int
    task: RandomTask
    verdict: Verdict
    cycles: int
    reports: list[TaskReport]


@dataclass
class Totals:
    """Counts of a sweep."""

    seed: int
    compared: int = 0
    """Tasks whose memory was compared."""
    kicks: int = 0
    refused: int = 0
    cycles: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def line(self) -> str:
        """One line for people."""
        kinds = " ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        return (
            f"seed {self.seed}: {self.compared} tasks in {self.kicks} kicks compared, "
            f"{self.refused} draws refused, {len(self.failures)} failures, {self.cycles} cycles ({kinds})"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "schema_version": 1,
            "seed": self.seed,
            "compared": self.compared,
            "kicks": self.kicks,
            "refused": self.refused,
            "cycles": self.cycles,
            "kinds": dict(self.kinds),
            "failures": self.failures,
            "match": not self.failures,
        }


class Sweep:
    """Runs random tasks on an engine and a golden device that live through the same kicks.

    Parameters
    ----------
    engine
        device under test.
    golden
        model to compare with; a fresh one with one core by default.
    """

    def __init__(self, engine: Device, golden: GoldenNpu | None = None) -> None:
        self.engine = engine
        self.golden = golden or GoldenNpu(1)
        self._mapped: set[int] = set()

    def run(self, index: int, task: RandomTask) -> Outcome:
        """Run one kick on both sides and compare everything that is mapped."""
        for address, data in task.regions:
            if address not in self._mapped:
                self.engine.memory.map(address, data.size)
                self._mapped.add(address)
            self.engine.memory.write(address, data)
        use_memory(self.golden, task.memory())
        notes: list[str] = []
        cycles = 0
        try:
            result = run_kick(self.golden, task.kick())
            if not result.done:
                notes.append(f"golden model hangs: {result.state}")
        except GoldenError as error:
            notes.append(f"golden model: {error}")
        if notes:  # an illegal draw: do not hang the engine with it
            self.reset()
        else:
            cycles = self._engine(task, notes)
        ranges = [(address, data.size) for address, data in task.regions]
        reports = self.golden.devices[0].reports
        verdict = judge(self.engine.memory, self.golden.memory, ranges, reports, (), notes)
        return Outcome(index, task, verdict, cycles, reports)

    def _engine(self, task: RandomTask, notes: list[str]) -> int:
        try:
            result = run_kick(self.engine, task.kick(), max_cycles=MAX_CYCLES)
        except Exception as error:  # whatever an engine raises belongs in the verdict
            notes.append(f"engine: {type(error).__name__}: {error}")
            self.reset()
            return 0
        if not result.done:
            notes.append(f"engine: no interrupt in {MAX_CYCLES} cycles: {result.state}")
            self.reset()
        return result.cycles

    def reset(self) -> None:
        """Reset the core on both sides."""
        self.engine.reset(1)
        self.golden.reset(1)


def draw(seed: int, index: int, kind: str | None, chain: int, budget: int) -> RandomTask:
    """Draw kick `index` of a sweep; the same four numbers always give the same kick."""
    rng = np.random.default_rng([seed, index])
    length = 1 + int(rng.integers(0, chain))
    return random_task(rng, kind, chain=length, budget=budget)


def sweep(
    engine: Device,
    count: int,
    seed: int,
    *,
    kind: str | None = None,
    chain: int = 3,
    budget: int = 12000,
    only: int | None = None,
    golden: GoldenNpu | None = None,
    reset: bool = False,
    say: Callable[[str], None] = print,
) -> Totals:
    """Compare at least `count` tasks.

    Parameters
    ----------
    engine
        device under test.
    count
        tasks to compare.
    seed
        of the whole sweep.
    kind
        draw only this kind.
    chain
        draws joined in one kick, at most.
    budget
        formula cycles of one layer, at most.
    only
        run just the kick with this index.
    golden
        model to compare with (see `Sweep`).
    reset
        reset the core before every kick, so that nothing is left from those before.
    say
        takes progress lines and failures.
    """
    totals, runner = Totals(seed), Sweep(engine, golden)
    started = last = time.monotonic()
    index = 0 if only is None else only
    while totals.compared < count:
        task = draw(seed, index, kind, chain, budget)
        if reset:
            runner.reset()
        outcome = runner.run(index, task)
        totals.refused += task.refused
        totals.kicks += 1
        totals.compared += len(task.words)
        totals.cycles += outcome.cycles
        totals.kinds.update(task.kinds)
        if not outcome.verdict.match:
            difference = outcome.verdict.difference
            place = f" in {task.arena.find(difference.address)}" if difference else ""
            lines = [f"FAILED kick {index} (--seed {seed} --only {index}){place}", *task.description]
            text = "\n  ".join([*lines, outcome.verdict.text()])
            totals.failures.append(text)
            say(text)
        if time.monotonic() - last > 5:
            last = time.monotonic()
            rate = totals.cycles / (last - started)
            say(f"  {totals.compared} of {count} tasks, {len(totals.failures)} failures, {rate:.0f} cycles/s")
        index += 1
        if only is not None:
            break
    return totals


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when everything matches, 1 otherwise, 2 for bad arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m cosim.crosscheck.random_tasks",
        description="Random tasks on an engine and on the golden model, compared byte by byte.",
    )
    parser.add_argument("--count", type=int, default=300, help="tasks to compare (default 300)")
    parser.add_argument("--seed", type=int, help="seed of the sweep (default: a fresh one, printed)")
    parser.add_argument("--engine", help="verilator, cxxrtl, amaranth or golden (default: the best there is)")
    parser.add_argument("--exact", action="store_true", help="RTL array cell instead of the C++ one")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only tasks of this kind")
    parser.add_argument("--chain", type=int, default=3, help="draws in one kick at most (default 3)")
    parser.add_argument("--budget", type=int, default=12000, help="formula cycles of a layer at most")
    parser.add_argument("--only", type=int, help="run just the kick with this index")
    parser.add_argument("--reset", action="store_true", help="reset the core before every kick")
    parser.add_argument("--trace", help="write a waveform of the whole run to this file")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    given = parser.parse_args(arguments)
    if given.count < 1 or given.chain < 1:
        parser.error("--count and --chain must be positive")
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    engine = _open(given)
    try:
        totals = sweep(
            engine,
            given.count,
            seed,
            kind=given.kind,
            chain=given.chain,
            budget=given.budget,
            only=given.only,
            reset=given.reset,
            say=lambda text: print(text, flush=True),
        )
    finally:
        engine.close()
    print(totals.line())
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(totals.as_json(), indent=1))
    return 1 if totals.failures else 0


def _open(given: argparse.Namespace) -> Any:
    if given.engine == "golden":  # the model against itself: tries the generator alone
        return GoldenNpu(1)
    from cosim.engines import EngineError, open_engine

    try:
        engine = open_engine(given.engine, exact=given.exact, cores=1)
    except (EngineError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if given.trace:
        engine.trace(given.trace)
    return engine
