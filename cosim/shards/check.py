"""The two golden levels beside each other: every tensor of an inference, from one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.crosscheck.model_check import graph_tensors
from sw.compiler import LoadedModel


@dataclass(frozen=True)
class LevelDifference:
    """First tensor of which the golden levels think otherwise: where, and both values."""

    layer: str
    tensor: str
    coordinate: tuple[int, int, int]
    address: int
    task_level: float
    graph_level: float
    count: int

    def __str__(self) -> str:
        channel, row, column = self.coordinate
        return (
            f"layer '{self.layer}', tensor '{self.tensor}': {self.count} elements differ, first at channel "
            f"{channel}, row {row}, column {column} (tensor at 0x{self.address:08X}): "
            f"task golden {self.task_level}, graph golden {self.graph_level}"
        )


def compare_levels(loaded: LoadedModel, inputs: Sequence[npt.ArrayLike]) -> LevelDifference | None:
    """Compare the tensors that the task-level model left in memory with the graph level's.

    Parameters
    ----------
    loaded : the model on the golden driver, after a run.
    inputs : real values or codes in the model's shapes.
    """
    model = loaded.model
    cubes: list[npt.NDArray[Any]] = [model.encode_input(n, values) for n, values in enumerate(inputs)]
    graph = graph_tensors(model, cubes)
    for step in model.graph_nodes():
        name = step.output.name
        if model.graph.root(name) in model.plan.lost:
            continue
        ours, theirs = np.ascontiguousarray(loaded.tensor(name)), np.ascontiguousarray(graph[name])
        bits = np.uint16 if step.output.real else np.int8
        wrong = np.argwhere(ours.view(bits) != theirs.view(bits))
        if wrong.size:
            channel, row, column = (int(v) for v in wrong[0])
            place = model.plan.place(name)
            values = ours[channel, row, column].item(), theirs[channel, row, column].item()
            address = loaded.bases[place.ref.region] + place.ref.offset
            return LevelDifference(step.name, name, (channel, row, column), address, *values, len(wrong))
    return None
