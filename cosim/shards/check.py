"""The two golden levels beside each other: every tensor of an inference, from one memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from cosim.crosscheck.model_check import Difference, first_difference, graph_tensors
from sw.compiler import LoadedModel


def compare_levels(loaded: LoadedModel, inputs: Sequence[npt.ArrayLike]) -> Difference | None:
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
        task_level, graph_level = ("task golden", loaded.tensor(name)), ("graph golden", graph[name])
        found = first_difference(loaded, step, task_level, graph_level)
        if found:
            return found
    return None
