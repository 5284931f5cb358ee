"""Conversion of the network of a `.rknn` file to the compiler's graph, so that our compiler can plan it.

Shapes, types and weights are those of the file. The file does not contain the scales of int8 kernels; they
are chosen to use the output's range and have no effect on the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rkcosim.compiler.graph import (
    Binary,
    Clamp,
    Concat,
    Conv,
    Graph,
    Lookup,
    OnHost,
    Op,
    Pool,
    Tensor,
    Upsample,
    Window,
)
from rkcosim.compiler.steps import HostStep
from rkcosim.rknn_file.constants import FileStep, group_of, step_weights, weights_of
from rkcosim.rknn_file.container import FileNode
from rkcosim.rknn_file.host import permutation
from rkcosim.rknn_file.plan import FilePlan
from rkcosim.rknn_file.tables import RknnFileError

CONV = " (convolution)"
"""Suffix of the name of a convolution whose node computes more; the other operation has the node's name."""

SPREAD = 75.0
"""Standard deviation of the codes of inputs and weights that is assumed for the chosen scales."""


def network_of(plan: FilePlan) -> Graph:
    """Return the graph of a file's network.

    The operations have the names of the nodes; `CONV` is appended to the convolution of a node that computes
    more.

    Raises
    ------
    RknnFileError
        if the compiler has no operation for a node; the message names the node.
    """
    known = plan.graph
    names = {item.tensor for item in known.inputs} | {step.output.name for step in plan.steps}
    names |= known.aliases.keys()
    graph = Graph(known.name, {name: known.tensors[name] for name in names})
    graph.inputs, graph.outputs = list(known.inputs), list(known.outputs)
    graph.host_ops, graph.aliases = list(known.host_ops), dict(known.aliases)
    for step in plan.steps:
        if isinstance(step, HostStep):
            inputs = tuple(tensor.name for tensor in step.inputs)
            graph.ops.append(OnHost(step.name, inputs, step.output.name, step.function, step.attributes))
        elif isinstance(step, FileStep):
            graph.ops += _operations(plan, step, graph)
    return graph


def node_of(name: str) -> str:
    """Return the name of the node to which an operation or step of our plan belongs."""
    return name.removesuffix(CONV)


def _operations(plan: FilePlan, step: FileStep, graph: Graph) -> Sequence[Op]:
    node = plan.file.nodes[step.nodes[-1]]
    names = tuple(tensor.name for tensor in step.inputs)
    label = f"{node.type} '{step.name}'"
    if weights_of(plan.file, step):
        return _convolution(plan, step, node, graph)
    if node.type == "Add" and len(names) == 2:
        return [Binary(step.name, names, step.output.name)]
    if node.type in ("MaxPool", "AveragePool"):
        method = "max" if node.type == "MaxPool" else "average"
        whole = bool(node.attributes.get("count_include_pad"))
        return [Pool(step.name, names, step.output.name, method, _window(node, label), whole)]  # type: ignore[arg-type]
    if node.type == "Resize":
        factors = tuple(y // x for x, y in zip(step.inputs[0].cube[1:], step.output.cube[1:], strict=True))
        return [Upsample(step.name, names, step.output.name, (factors[0], factors[1]))]
    if node.type == "Concat":
        return [Concat(step.name, names, step.output.name, int(node.attributes.get("axis", 1)) - 1)]
    if node.type in ("Transpose", "Reshape"):
        attributes: dict[str, object] = {"shape": step.output.shape}
        order = [plan.file.nodes[n] for n in step.nodes if plan.file.nodes[n].type == "Transpose"]
        if order:
            attributes["before"] = permutation(order[0], step.inputs[0])
        return [OnHost(step.name, names, step.output.name, "Rearrange", attributes)]
    raise RknnFileError(f"{label}: our compiler has no operation for it")


def _window(node: FileNode, label: str) -> Window:
    given = node.attributes
    kernel = tuple(given.get("kernel_shape", ()))
    strides, dilations = (tuple(given.get(name) or (1, 1)) for name in ("strides", "dilations"))
    pads = tuple(given.get("pads") or (0,) * 4)
    if [len(part) for part in (kernel, strides, dilations, pads)] != [2, 2, 2, 4]:
        raise RknnFileError(f"{label}: its window is {kernel}, {strides}, {dilations}, {pads}")
    return Window(kernel, strides, pads, dilations)


def _convolution(plan: FilePlan, step: FileStep, node: FileNode, graph: Graph) -> Sequence[Op]:
    x, y, groups = step.inputs[0], step.output, group_of(plan.file, step)
    w = step_weights(plan.file, step)
    rest = node.type.partition("+")[2] if plan.file.ours else node.type.removeprefix("Conv")
    clamp = Clamp(low=0.0) if rest.endswith("Relu") else Clamp()
    rest = rest.removesuffix("Relu")
    if rest == "Clip":  # Relu6; the plan does not depend on the limits
        least, most = (float(node.attributes.get(key, other)) for key, other in (("min", 0), ("max", 6)))
        rest, clamp = "", Clamp(least, most)
    name, output = step.name, y.name
    made: list[Op] = []
    if rest:
        name, output = step.name + CONV, y.name + CONV
        scale = 1.0 if y.real else y.scale
        zero = 0 if y.real else 0 if rest == "Sigmoid" else y.zero_point
        graph.tensors[output] = Tensor(output, y.shape, scale, zero, y.cube, real=y.real)
        if rest == "Add" and len(step.inputs) == 2:
            pair = (output, step.inputs[1].name)
            made = [Binary(step.name, pair, y.name, clamp=clamp)]
            clamp = Clamp()
        elif rest in ("Sigmoid", "Tanh") and y.real:
            made = [OnHost(step.name, (output,), y.name, "Function", {"function": rest})]
        elif rest in ("Sigmoid", "Tanh"):
            codes = np.arange(-128, 128)
            made = [Lookup(step.name, (output,), y.name, (codes // 2).astype(np.int8), rest)]
        else:
            raise RknnFileError(f"{node.type} '{step.name}': our compiler has no operation for '{rest}'")
    count, window = w.shape[0], _window(node, f"{node.type} '{step.name}'")
    if y.real:
        scales, bias = np.ones(count), np.zeros(count, np.float32)
    else:
        deviation = SPREAD * SPREAD * np.sqrt(w[0].size)
        scales = np.full(count, y.scale * SPREAD / (deviation * x.scale))
        bias = np.zeros(count, np.int64)
    conv = Conv(name, (x.name,), output, w, scales, 0, bias, window, groups, clamp=clamp)  # type: ignore[arg-type]
    return [conv, *made]
