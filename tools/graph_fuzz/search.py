"""Gives drawn graphs to the doors, one after the other, and keeps what fails."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tools.graph_fuzz.doors import DoorFault, Doors, Form
from tools.graph_fuzz.draw import Graph, drawn
from tools.graph_fuzz.judge import Judge
from tools.graph_fuzz.quantised import quantised
from tools.graph_fuzz.shrink import shrunk

EVERY = {"ort": 5}
"""Doors that get one graph of so many: a session of onnxruntime starts a process."""


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

    def text(self) -> str:
        """Return the figures as lines."""
        runs = ", ".join(f"{name} {count:,}" for name, count in sorted(self.runs.items()))
        return (
            f"{self.graphs:,} graphs ({self.int8:,} in int8, {self.batches:,} with a first dimension "
            f"above 1), {self.operators.total():,} nodes of {len(self.operators)} operators; runs: {runs}; "
            f"{len(self.faults)} faults; {self.seconds:.0f} s"
        )


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


def fault(doors: Doors, door: str, graph: Graph, form: Form) -> str | None:
    """Return what is wrong with a graph behind a door; None if nothing is."""
    try:
        judge = Judge(graph)
        found = doors.outputs(door, graph, form)
    except DoorFault as error:
        return str(error)
    return None if found is None else judge.fault(found, shapes=door != "c")


def _fails(doors: Doors, door: str, form: Form, graph: Graph) -> bool:
    return fault(doors, door, graph, form) is not None


def search(
    seeds: Iterable[int],
    *,
    engine: str = "golden",
    names: Sequence[str] = Doors.NAMES,
    folder: Path | None = None,
    cut: bool = True,
    tell: bool = True,
    fits: Callable[[Graph], bool] = lambda graph: True,
) -> Report:
    """Give the graph of each seed to the doors.

    Parameters
    ----------
    seeds
        Of the graphs.
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
    """
    report, started = Report(), time.monotonic()
    with Doors(engine) as doors:
        for seed in seeds:
            graph, form = made(seed), form_of(seed)
            if not fits(graph):
                continue
            report.graphs += 1
            kinds = [node.op_type for node in graph.model.graph.node]
            report.operators.update(kinds)
            report.int8 += "QuantizeLinear" in kinds
            report.batches += not one_sample(graph)
            for door in names:
                if len(names) > 1 and seed % EVERY.get(door, 1):
                    continue
                report.runs[door] += 1
                text = fault(doors, door, graph, form)
                if text is None:
                    continue
                small = graph
                if cut:
                    small = shrunk(graph, partial(_fails, doors, door, form))
                    text = fault(doors, door, small, form) or text
                said = f"seed {seed}, {door}, {form.cores} cores, {form.order}: {text}"
                report.faults.append(said)
                if tell:
                    print(f"{said}\n{_indented(small)}", flush=True)
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"{seed}_{door}.onnx").write_bytes(small.model.SerializeToString())
                    np.savez(folder / f"{seed}_{door}.npz", allow_pickle=False, **small.feeds)
            if tell and report.graphs % 100 == 0:
                report.seconds = time.monotonic() - started
                print(report.text(), file=sys.stderr, flush=True)
    report.seconds = time.monotonic() - started
    return report


def _indented(graph: Graph) -> str:
    return "\n".join(f"    {line}" for line in graph.text().splitlines())
