"""Cuts a graph that fails down to the few nodes that still fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from tools.graph_fuzz.draw import Array, Graph, described, session

TRIES = 60


def shrunk(graph: Graph, fails: Callable[[Graph], bool], tries: int = TRIES) -> Graph:
    """Return a part of a graph that fails as well, with as few nodes as were found.

    Parameters
    ----------
    graph
        A graph that fails.
    fails
        Tells whether a part of it fails.
    tries
        How often `fails` may be asked.
    """
    left = tries
    again = True
    while again:
        again = False
        for smaller in _smaller(graph):
            if left == 0:
                return graph
            left -= 1
            if fails(smaller):
                graph, again = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Yield parts of a graph, the smallest first where many nodes go at once."""
    nodes = list(graph.model.graph.node)
    values = _values(graph)
    ends = [output.name for output in graph.model.graph.output]
    if len(ends) > 1:
        for name in ends:
            yield from _part(graph, values, nodes, [name])
    total = len(nodes)
    for step in sorted({total // 2, total // 4, 1} - {0}, reverse=True):
        if step < total:
            yield from _part(graph, values, nodes[: total - step], None)
            yield from _part(graph, values, nodes[step:], None)
    for number in range(1, total - 1):
        yield from _part(graph, values, nodes[:number] + nodes[number + 1 :], None)


def _values(graph: Graph) -> dict[str, Array]:
    """Return every tensor that onnxruntime computes."""
    names = [name for node in graph.model.graph.node for name in node.output if name]
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    found = session(model).run(names, graph.feeds)
    return dict(zip(names, found, strict=True)) | graph.feeds


def _part(
    graph: Graph, values: dict[str, Array], nodes: list[onnx.NodeProto], ends: list[str] | None
) -> Iterator[Graph]:
    """Yield the model of some of the nodes, if its inputs and outputs are floats."""
    made = {name for node in nodes for name in node.output if name}
    read = {name for node in nodes for name in node.input if name}
    outputs = ends or sorted(made - read)
    constants = {item.name: item for item in graph.model.graph.initializer}
    kept: list[onnx.NodeProto] = []
    needed = set(outputs)
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.insert(0, node)
            needed |= set(node.input)
    made = {name for node in kept for name in node.output if name}
    given = sorted({name for node in kept for name in node.input if name} - made - set(constants))
    if not kept or not given or len(given) > 8 or any(name not in values for name in given):
        return
    feeds = {name: values[name] for name in given}
    ends = [name for name in outputs if name in made]
    if any(array.dtype != np.float32 or not array.size for array in feeds.values()):
        return
    if not ends or any(values[name].dtype != np.float32 for name in ends):
        return
    feeds = {name: array.astype(np.float16).astype(np.float32) for name, array in feeds.items()}
    used = {name for node in kept for name in node.input}
    built = helper.make_graph(
        kept,
        graph.model.graph.name,
        [described(name, array) for name, array in feeds.items()],
        [described(name, values[name]) for name in ends],
        [item for name, item in constants.items() if name in used],
    )
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    model.graph.CopyFrom(built)
    if len(kept) == len(graph.model.graph.node) and len(ends) == len(graph.model.graph.output):
        return
    yield Graph(model, feeds, graph.seed)
