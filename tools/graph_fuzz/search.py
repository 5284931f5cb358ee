"""Gives drawn graphs to the doors, one after the other, and keeps what fails."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tools.graph_fuzz.doors import DoorFault, Doors, Form
from tools.graph_fuzz.draw import Graph, drawn
from tools.graph_fuzz.judge import Judge
from tools.graph_fuzz.quantised import quantised
from tools.graph_fuzz.shrink import shrunk

EVERY = {"ort": 5}
"""Doors that get one graph of so many: a session of onnxruntime starts a process."""


@dataclass
class Verdict:
    """What the doors made of the graph of a seed.

    Members
    -------
    operators
        Types of its nodes.
    batch
        Whether an input has a first dimension above 1.
    doors
        The doors that got it.
    faults
        What is wrong, with seed, door and form.
    """

    seed: int
    operators: list[str]
    batch: bool
    doors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What a search found."""

    graphs: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    int8: int = 0
    batches: int = 0
    """Graphs with an input whose first dimension is above 1."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """Count a graph."""
        self.graphs += 1
        self.runs.update(verdict.doors)
        self.operators.update(verdict.operators)
        self.int8 += "QuantizeLinear" in verdict.operators
        self.batches += verdict.batch
        self.faults += verdict.faults

    def text(self) -> str:
        """Return the figures as lines."""
        runs = ", ".join(f"{name} {count:,}" for name, count in sorted(self.runs.items()))
        return (
            f"{self.graphs:,} graphs ({self.int8:,} in int8, {self.batches:,} with a first dimension "
            f"above 1), {self.operators.total():,} nodes of {len(self.operators)} operators; runs: {runs}; "
            f"{len(self.faults)} faults; {self.seconds:.0f} s"
        )


class Verdicts:
    """A file with a line of JSON for each graph that the doors have had; a stopped search goes on with it.

    The last line of a seed counts, so a graph whose fault was mended can be run again. A line that was cut
    off when a search was ended is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[int, Verdict] = {}
        if path.exists():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    verdict = Verdict(**json.loads(line))
                except json.JSONDecodeError:
                    continue
                except TypeError as error:
                    raise ValueError(f"{path}, line {number}: this is no verdict: {error}") from error
                self.found[verdict.seed] = verdict

    def add(self, verdict: Verdict) -> None:
        """Write a verdict to the end of the file."""
        self.found[verdict.seed] = verdict
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            if file.tell() and not self._whole(file):
                file.write(b"\n")
            file.write(json.dumps(asdict(verdict)).encode() + b"\n")

    @staticmethod
    def _whole(file: BinaryIO) -> bool:
        """Return whether a file ends in a whole line."""
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def made(seed: int) -> Graph:
    """Return the graph of a seed: in floating point, or quantised."""
    graph = drawn(seed)
    if random.Random(seed ^ 0x5EED).random() < 0.3:
        return quantised(graph) or graph
    return graph


def form_of(seed: int) -> Form:
    """Return how the graph of a seed is run."""
    rng = random.Random(seed ^ 0xF0)
    return Form(cores=rng.choice((0, 1, 2, 3)), order=rng.choice(("nchw", "nhwc")))


def one_sample(graph: Graph) -> bool:
    """Return whether the first dimension of every input is 1."""
    return all(array.ndim == 0 or array.shape[0] == 1 for array in graph.feeds.values())


def fault(doors: Doors, door: str, graph: Graph, form: Form, judge: Judge | None = None) -> str | None:
    """Return what is wrong with a graph behind a door; None if nothing is.

    Parameters
    ----------
    doors, door
        The ways into the simulation, and the name of one.
    graph, form
        What it gets.
    judge
        Of this graph, if there is one already.
    """
    try:
        judge = judge or Judge(graph)
        found = doors.outputs(door, graph, form)
    except DoorFault as error:
        return str(error)
    return None if found is None else judge.fault(found, shapes=door != "c")


def _fails(doors: Doors, door: str, form: Form, graph: Graph) -> bool:
    return fault(doors, door, graph, form) is not None


@dataclass(frozen=True)
class Search:
    """How graphs are searched for faults.

    Members
    -------
    engine
        The engine behind the doors.
    names
        The doors.
    folder
        Where a graph that fails is written, with its inputs, as `SEED_DOOR.onnx` and `.npz`; None: nowhere.
    cut
        Whether a graph that fails is cut down first.
    tell
        Whether faults and progress are printed.
    fits
        Chooses graphs; the others are left out.
    verdicts
        Has the verdicts of graphs that are not run again, and gets those of the others.
    again
        Whether graphs with a fault in `verdicts` are run again.
    """

    engine: str = "golden"
    names: Sequence[str] = Doors.NAMES
    folder: Path | None = None
    cut: bool = True
    tell: bool = True
    fits: Callable[[Graph], bool] = lambda graph: True
    verdicts: Verdicts | None = None
    again: bool = False

    def run(self, seeds: Iterable[int]) -> Report:
        """Give the graph of each seed to the doors."""
        report, started = Report(), time.monotonic()
        with Doors(self.engine) as doors:
            for seed in seeds:
                verdict = self._known(seed)
                if verdict is None:
                    graph = made(seed)
                    if not self.fits(graph):
                        continue
                    verdict = self._verdict(doors, seed, graph)
                    if self.verdicts is not None:
                        self.verdicts.add(verdict)
                report.add(verdict)
                if self.tell and report.graphs % 100 == 0:
                    report.seconds = time.monotonic() - started
                    print(report.text(), file=sys.stderr, flush=True)
        report.seconds = time.monotonic() - started
        return report

    def _known(self, seed: int) -> Verdict | None:
        verdict = self.verdicts.found.get(seed) if self.verdicts is not None else None
        return None if verdict is not None and verdict.faults and self.again else verdict

    def _verdict(self, doors: Doors, seed: int, graph: Graph) -> Verdict:
        kinds = [node.op_type for node in graph.model.graph.node]
        verdict = Verdict(seed, kinds, not one_sample(graph))
        form, judge = form_of(seed), Judge(graph)
        for door in self.names:
            if len(self.names) > 1 and seed % EVERY.get(door, 1):
                continue
            verdict.doors.append(door)
            text = fault(doors, door, graph, form, judge)
            if text is not None:
                verdict.faults.append(self._kept(doors, door, graph, form, text))
        return verdict

    def _kept(self, doors: Doors, door: str, graph: Graph, form: Form, text: str) -> str:
        """Cut down, print and write a graph that fails; return what is said of it."""
        seed, small = graph.seed, graph
        if self.cut:
            small = shrunk(graph, partial(_fails, doors, door, form))
            text = fault(doors, door, small, form) or text
        said = f"seed {seed}, {door}, {form.cores} cores, {form.order}: {text}"
        if self.tell:
            print(f"{said}\n{_indented(small)}", flush=True)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{seed}_{door}.onnx").write_bytes(small.model.SerializeToString())
            np.savez(self.folder / f"{seed}_{door}.npz", allow_pickle=False, **small.feeds)
        return said


def _indented(graph: Graph) -> str:
    return "\n".join(f"    {line}" for line in graph.text().splitlines())
