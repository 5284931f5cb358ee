"""A conformance run: groups of cases, counts, coverage, failures that are shrunk and saved as streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.base import progress
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.coverage import Coverage, Support
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import Outcome, Runner
from rkcosim.verify.conformance.shrink import shrink
from rkcosim.verify.conformance.touched import Touched

SCHEMA_VERSION = 1


@dataclass
class Failure:
    """A case on which the sides differ: as drawn, as shrunk, and the path of its stream."""

    group: str
    index: int
    problem: str
    text: str
    stream: str = ""


@dataclass
class GroupResult:
    """Counts of one group."""

    group: str
    cases: int = 0
    tasks: int = 0
    refused: int = 0
    mismatches: int = 0
    cycles: int = 0
    measured: bool = True
    """Whether `cycles` are hardware cycles; those of the engine golden have no meaning."""
    seconds: float = 0.0
    fields_covered: int = 0
    failures: list[Failure] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a report."""
        data = asdict(self) | {"seconds": round(self.seconds, 3)}
        if not data.pop("measured"):
            data["cycles"] = None
        return data


@dataclass
class Report:
    """Result of a run."""

    seed: int
    engine: str
    cell: str
    groups: list[GroupResult]
    coverage: Coverage
    support: Support
    touched: Touched
    """Tasks by the rules that they touch."""
    seconds: float = 0.0

    @property
    def tasks(self) -> int:
        """Number of compared tasks."""
        return sum(g.tasks for g in self.groups)

    @property
    def mismatches(self) -> int:
        """Number of cases on which the sides differ."""
        return sum(g.mismatches for g in self.groups)

    @property
    def ok(self) -> bool:
        """Whether every group ran and nothing differs."""
        return not self.mismatches and all(g.tasks for g in self.groups)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "engine": self.engine,
            "cell": self.cell,
            "tasks": self.tasks,
            "mismatches": self.mismatches,
            "match": self.ok,
            "seconds": round(self.seconds, 3),
            "tasks_per_second": round(self.tasks / self.seconds, 1) if self.seconds else 0,
            "coverage": self.coverage.as_json(),
            "rules": self.touched.as_json(),
            "groups": [group.as_json() for group in self.groups],
        }


class Campaign:
    """Runs groups on one device.

    Parameters
    ----------
    runner : device and golden model.
    seed : seed of every draw.
    folder : folder for streams of failures; None: they are not saved.
    say : called with a text for each failure.
    shrinking : maximum number of cases for shrinking a failure; 0: failures stay as drawn.
    failures_shown : number of failures per group that are shrunk and saved; others are only counted.
    patience : number of failing cases after which a group is given up.
    """

    def __init__(
        self,
        runner: Runner,
        seed: int,
        *,
        folder: Path | None = None,
        say: Callable[[str], None] = print,
        shrinking: int = 250,
        failures_shown: int = 3,
        patience: int = 12,
    ) -> None:
        self.runner, self.seed, self.folder, self.say = runner, seed, folder, say
        self.shrinking, self.failures_shown, self.patience = shrinking, failures_shown, patience
        self.coverage, self.support, self.touched = Coverage(), Support(), Touched()

    def run(self, groups: Sequence[str], tasks: int) -> Report:
        """Run about `tasks` tasks, divided among the groups by their shares, at least one case each."""
        started = time.monotonic()
        total = sum(GROUPS[name].share for name in groups)
        shares = {name: max(1, round(tasks * GROUPS[name].share / total)) for name in groups}
        with progress.step("conformance", sum(shares.values()), "tasks") as shown:
            results = []
            for name, share in shares.items():
                shown.detail, goal = name, shown.done + share
                results.append(self.group(name, share, shown=shown))
                shown.done = goal
        device = self.runner.device
        return Report(
            self.seed,
            device.name,
            device.cell,
            results,
            self.coverage,
            self.support,
            self.touched,
            time.monotonic() - started,
        )

    def group(self, name: str, tasks: int, first: int = 0, shown: progress.Step | None = None) -> GroupResult:
        """Run at least `tasks` tasks of a group, from case `first` on."""
        result = GroupResult(name, measured=self.runner.device.has_cycles)
        started = time.monotonic()
        index, begun = first, shown.done if shown is not None else 0
        while result.tasks < tasks and result.mismatches < self.patience:
            try:
                self.case(name, index, result)
            except Refused as refused:
                result.refused += 1
                result.mismatches += 1
                result.failures.append(Failure(name, index, "no draw", str(refused)))
                break
            index += 1
            if shown is not None:
                shown.done = min(begun + result.tasks, begun + tasks)
        result.seconds = time.monotonic() - started
        result.fields_covered = len(self.coverage.by_group.get(name, ()))
        return result

    def case(self, name: str, index: int, result: GroupResult) -> Outcome:
        """Run one case and count it."""
        case = draw_case(name, self.seed, index)
        outcome = self.runner.run(case)
        result.refused += case.refused
        result.cases += 1
        result.tasks += case.tasks
        result.cycles += outcome.device.cycles if outcome.device else 0
        if outcome.ok:
            self.coverage.add(outcome)
            self.support.add(case.plan.facts)
            self.touched.add(case.plan.tasks)
        else:
            result.mismatches += 1
            if len(result.failures) < self.failures_shown:
                result.failures.append(self._failure(outcome, index))
        return outcome

    def _failure(self, outcome: Outcome, index: int) -> Failure:
        case = outcome.case
        small = outcome
        if self.shrinking:
            small = shrink(outcome, self.seed, index, self.runner, self.shrinking)
        repeat = f"rkcosim conformance --seed {self.seed} --only '{case.group}' --case {index}"
        failure = Failure(case.group, index, outcome.problem, f"{small.text()}\n  repeat: {repeat}")
        if self.folder is not None:
            name = "".join(c if c.isalnum() else "_" for c in case.group)
            path = self.folder / f"{name}_{self.seed}_{index}.json"
            small.case.save(path)
            failure.stream = str(path)
            failure.text += f"\n  replay: rkcosim regcmd run {path} --check --on-diagnostic 'go on'"
        self.say(f"FAILED {failure.text}")
        return failure
