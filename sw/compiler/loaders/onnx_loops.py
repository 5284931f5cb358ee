"""Loops with a constant number of turns as the nodes of all turns, so that these can run on the NPU."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_TURNS = 256
"""Largest number of turns."""
MOST_NODES = 4096
"""Largest number of nodes that a loop becomes."""


def unrolled(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each Loop of a constant number of turns is written out; else itself.

    The condition has to be true in all turns: absent or constant, and in the body constant or the one
    that the turn got. Loops whose bodies have bodies, and those of more than `MOST_TURNS` turns or
    `MOST_NODES` nodes, stay; the host computes them.
    """
    constants = {item.name: item for item in proto.graph.initializer}
    found = {index: _turns(node, constants) for index, node in enumerate(proto.graph.node)}
    if not any(found.values()):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(made.graph.node):
        turns = found[index]
        nodes += _written(made.graph, node, turns) if turns else [node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _turns(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> int:
    """Return the number of turns of a Loop that can be written out; 0 for other nodes."""
    if node.op_type != "Loop" or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return 0
    trips, condition = (constants.get(name) for name in node.input[:2])
    if trips is None or not node.input[0] or (node.input[1] and not _is_true(condition)):
        return 0
    body = next((item.g for item in node.attribute if item.name == "body"), None)
    count = numpy_helper.to_array(trips).reshape(-1)
    if body is None or count.size != 1 or not 1 <= int(count[0]) <= MOST_TURNS:
        return 0
    states = len(node.input) - 2
    if len(body.input) != states + 2 or len(body.output) != len(node.output) + 1 or not node.output:
        return 0
    inner = [item for part in body.node for item in part.attribute]
    if any(item.HasField("g") or item.graphs for item in inner) or not _goes_on(body):
        return 0
    return int(count[0]) if int(count[0]) * max(len(body.node), 1) <= MOST_NODES else 0


def _is_true(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and bool(numpy_helper.to_array(tensor).all())


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that a body gives is a true constant, or the one that it got."""
    name, constants = body.output[0].name, {item.name: item for item in body.initializer}
    makers = {name: node for node in body.node for name in node.output}
    for _ in range(len(body.node) + 1):
        if name == body.input[1].name:
            return True
        if name in constants:
            return _is_true(constants[name])
        node = makers.get(name)
        if node is not None and node.op_type == "Constant":
            return any(item.name == "value" and _is_true(item.t) for item in node.attribute)
        if node is None or node.op_type not in ("Identity", "Cast"):
            return False
        name = node.input[0]
    return False


def _written(graph: onnx.GraphProto, node: onnx.NodeProto, turns: int) -> list[onnx.NodeProto]:
    """Return the nodes of all turns; constants are added to the graph."""
    body = next(item.g for item in node.attribute if item.name == "body")
    start = node.name or node.output[0]
    states, scanned = list(node.input[2:]), dict[int, list[str]]()
    shared = {item.name: f"{start}/{item.name}" for item in body.initializer}
    for item in body.initializer:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(item)
        tensor.name = shared[item.name]
        graph.initializer.append(tensor)
    nodes: list[onnx.NodeProto] = []
    for turn in range(turns):
        place = f"{start}/{turn}"
        number, condition = f"{place}/turn", f"{place}/condition"
        graph.initializer.append(numpy_helper.from_array(np.array(turn, np.int64), number))
        graph.initializer.append(numpy_helper.from_array(np.array(True), condition))
        known = dict(shared)
        known |= zip((item.name for item in body.input), (number, condition, *states), strict=True)
        for part in body.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(part)
            copy.name = f"{place}/{part.name or (part.output[0] if part.output else part.op_type)}"
            known |= {name: f"{place}/{name}" for name in part.output if name}
            for names in (copy.input, copy.output):
                for index, name in enumerate(names):
                    names[index] = known.get(name, name) if name else ""
            nodes.append(copy)
        results = [known.get(item.name, item.name) for item in body.output]
        states = results[1 : 1 + len(states)]
        for index, name in enumerate(results[1 + len(states) :]):
            row = f"{place}/row{index}"
            axes = f"{row}/axes"
            graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), axes))
            nodes.append(helper.make_node("Unsqueeze", [name, axes], [row], row))
            scanned.setdefault(index, []).append(row)
    for name, output in zip(states, node.output, strict=False):
        if output:
            nodes.append(helper.make_node("Identity", [name], [output], f"{start}/{output}"))
    for index, rows in scanned.items():
        if output := node.output[len(states) + index]:
            nodes.append(helper.make_node("Concat", rows, [output], f"{start}/{output}", axis=0))
    return nodes
