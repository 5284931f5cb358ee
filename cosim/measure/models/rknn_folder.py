"""Checked runs of all `.rknn` files of a folder: right nodes by type, cycles."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from errno import ENOENT
from pathlib import Path
from typing import Any

from rkcosim.base import BAD_INPUT, progress
from rkcosim.base.files import read_model
from rkcosim.compiler.model import naming_model
from rkcosim.driver import DriverError
from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.draw import random_inputs
from rkcosim.measure.models.summary import unordered_lines
from rkcosim.rknn_file import RknnFileError, is_rknn, read_rknn
from rkcosim.rknn_file.opening import JobsBy, jobs_by
from rkcosim.running.session import RunError, Session
from rkcosim.verify.crosscheck.checks import checker_for


@dataclass
class FolderRow:
    """One run of one file.

    Members
    -------
    file : name of the file.
    cores : number of cores; 0 if the file was refused.
    jobs : "chain" or "node", the kind of its jobs.
    cycles, submits : cycles (None if not measured) and jobs of one inference.
    equal : whether every byte of every tensor equals the task-level golden model's.
    nodes : (number of right nodes, number of nodes) by the node's type.
    not_judged : nodes whose mathematical value is not computed, with the reason.
    unordered : words about bytes whose value depends on the order of a task's reads and writes.
    cancelled : number of fp16 elements beyond 2 units in the last place, but within the rounding of sums.
    worst : largest distance from a mathematical value, in units of its bound.
    problem : reason for which the file or run was refused or failed; "" without one.
    seconds : duration of the run on this machine.
    refused : whether the file or its plan was refused, so that nothing ran.
    first : the first difference, in words.
    """

    file: str
    cores: int = 0
    jobs: str = ""
    cycles: int | None = None
    submits: int = 0
    equal: bool | None = None
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    not_judged: list[dict[str, str]] = field(default_factory=list)
    unordered: list[str] = field(default_factory=list)
    cancelled: int = 0
    worst: float = 0.0
    problem: str = ""
    seconds: float = 0.0
    refused: bool = False
    first: str = ""

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "refused"."""
        return "refused" if self.refused else "right" if self.good else "wrong"

    @property
    def judged(self) -> int:
        """Number of nodes whose mathematical value was compared."""
        return self.right[1] - len(self.not_judged)

    @property
    def reason(self) -> str:
        """Why the verdict is not "right", or what was not compared; "" if there is nothing to say."""
        if self.problem or self.refused:
            return self.problem
        if self.equal is False or self.first:
            return self.first or "bytes differ from the golden model's"
        reasons = Counter(f"{item.get('kind', '')} {item['why']}".strip() for item in self.not_judged)
        words = [f"{count} not compared: {why}" for why, count in reasons.most_common()]
        return "; ".join([*words, *self.unordered])

    @property
    def right(self) -> tuple[int, int]:
        """Number of right nodes and number of all nodes."""
        return sum(n for n, _ in self.nodes.values()), sum(n for _, n in self.nodes.values())

    @property
    def good(self) -> bool:
        """Whether every byte is equal and every node whose value is computed is within its bound."""
        right, every = self.right
        return not self.problem and self.equal is True and right + len(self.not_judged) == every

    def as_json(self) -> dict[str, Any]:
        """Return all members, `good`, `verdict`, `judged` and `reason`."""
        said = {"good": self.good, "verdict": self.verdict, "judged": self.judged, "reason": self.reason}
        return {**self.__dict__, **said}


def files_of(folder: Path) -> list[Path]:
    """Return the `.rknn` files below a folder, sorted; for a file, the file alone.

    Raises
    ------
    FileNotFoundError
        if the path does not exist.
    """
    if not folder.exists():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(folder))
    return sorted(folder.rglob("*.rknn")) if folder.is_dir() else [folder]


def run_folder(
    files: Sequence[Path],
    *,
    engine: str | None = None,
    exact: bool = False,
    cores: Sequence[int] = (1, 2, 3),
    jobs: Sequence[JobsBy] = ("node", "chain"),
    seed: int = 0,
    dram: DramConfig | None = None,
) -> Iterator[FolderRow]:
    """Run each file on random inputs with each of its plans for the given numbers of cores.

    Parameters
    ----------
    files
        Paths of `.rknn` files.
    engine, exact, dram
        See `rkcosim.running.session.Session`.
    cores
        Numbers of cores.
    jobs
        Kinds of jobs: "node" for one job per node, "chain" for one job per linked chain.
    seed
        Seed of the inputs.

    Returns
    -------
    An iterator over the results; a file that cannot be read gives one with its `problem`. Each run is a step
    of `rkcosim.base.progress` that names the file, and a line names each file before its first run.
    """
    for number, path in enumerate(files, start=1):
        try:
            data = read_model(path)
            if not is_rknn(data):
                raise RknnFileError(f"{path}: not a .rknn file")
            with naming_model(path):
                plans = read_rknn(data).plans
        except (ValueError, OSError) as error:
            yield FolderRow(path.name, problem=str(error).removeprefix(f"{path}: "), refused=True)
            continue
        runs = [(count, how) for count in cores if count in plans for how in jobs]
        options: dict[str, Any] = {"engine": engine, "exact": exact, "dram": dram}
        for run, (count, how) in enumerate(runs):
            place = f"file {number} of {len(files)}, run {run + 1} of {len(runs)}"
            if not run:
                progress.say(f"{path.name}: file {number} of {len(files)}, runs: {len(runs)}")
            with progress.step(f"{path.name}, {count} core{'s' * (count > 1)} by {how} ({place})"):
                row = _run(path, count, how, seed, options)
            yield row


def _run(path: Path, cores: int, how: JobsBy, seed: int, options: dict[str, Any]) -> FolderRow:
    row = FolderRow(path.name, cores, how)
    begun = time.perf_counter()
    try:
        with jobs_by(how), Session(path, checker=checker_for, cores=cores, **options) as session:
            values = random_inputs(session, seed)
            session.infer(values)
            verdict = session.checker.check(list(values))
            row.equal = session.checker.check_memory() is None
            row.nodes = session.checker.summary()
            row.worst = max((node.worst for node in session.checker.nodes), default=0.0)
            said = session.checker.levels()
            row.not_judged, row.cancelled = said["nodes_not_judged"], said["cancelled_elements"]
            row.unordered = unordered_lines(said["bytes_not_compared"])
            assert session.model is not None
            row.cycles = session.report.cycles if session.device.has_cycles else None
            row.submits = session.checker.loaded.model.plan.jobs
            row.first = "" if verdict.first is None else str(verdict.first)
            if row.first and row.good:
                row.problem = row.first
    except (RunError, DriverError, ValueError) as error:
        row.problem = str(error).split("\n")[0].removeprefix(f"{path}: ")
        row.refused = getattr(error, "exit_code", BAD_INPUT) == BAD_INPUT
    row.seconds = round(time.perf_counter() - begun, 1)
    return row
