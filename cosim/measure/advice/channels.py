"""Numbers of channels that fill the array: multiples of 32 kernels of bytes, 16 of floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import CODINGS, Net, attribute, edited, set_attribute

TRIED = 4
"""Groups of layers whose channels are tried."""

KEEPING = (
    *CODINGS,
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh", "Elu", "Softplus"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Identity", "Gelu", "Mish", "PRelu"),
)
"""Operators with one input whose result has its channels."""

PAIRS = ("Add", "Mul", "Sub", "Max", "Min")


@dataclass
class Width:
    """Values that have the same channels, and what has to change with them.

    Members
    -------
    size
        Number of channels.
    values
        Names of the values.
    makers, depthwise, readers
        Names of the convolutions that compute them, that keep the channels apart, and that read them.
    constants
        Constants with a number for each channel, and their axis.
    """

    size: int
    values: set[str] = field(default_factory=set)
    makers: set[str] = field(default_factory=set)
    depthwise: set[str] = field(default_factory=set)
    readers: set[str] = field(default_factory=set)
    constants: set[tuple[str, int]] = field(default_factory=set)


def width_of(net: Net, start: str) -> Width:
    """Return everything that changes with the channels of a value; raises NotApplicable."""
    found, queue = Width(net.shape(start)[1]), [start]
    inputs = {item.name for item in net.graph.input}
    while queue:
        name = queue.pop()
        if name in found.values:
            continue
        if name in inputs or name in net.outputs or len(net.shape(name)) != 4:
            raise NotApplicable(f"the channels of '{name}' are given")
        found.values.add(name)
        maker = net.makers.get(name)
        if maker is None:
            raise NotApplicable(f"'{name}' is no result of the network")
        for node in (maker, *net.readers.get(name, [])):
            queue += _follow(net, node, name, found)
    return found


def _follow(net: Net, node: onnx.NodeProto, name: str, found: Width) -> list[str]:
    """Note what a node has to do with the channels of a value; return further values with them."""
    makes = name in node.output
    if node.op_type == "Conv":
        groups = attribute(node, "group", 1)
        if groups == found.size and net.shape(node.output[0])[1] == found.size and found.size > 1:
            found.depthwise.add(node.name)
            return [node.input[0], node.output[0]]
        if groups != 1:
            raise NotApplicable(f"Conv '{node.name}' has {groups} groups")
        (found.makers if makes else found.readers).add(node.name)
        return []
    if node.op_type in PAIRS:
        more = [node.output[0]]
        for operand in node.input:
            constant = net.array(operand)
            if constant is None:
                if net.shape(operand)[1] != found.size:
                    raise NotApplicable(f"'{node.name}' has operands of other channels")
                more.append(operand)
            elif constant.size == found.size and constant.size > 1:
                found.constants.add((operand, constant.ndim - 3))
            elif constant.size != 1:
                raise NotApplicable(f"'{node.name}' has a constant of another shape")
        return more
    if node.op_type in KEEPING or node.op_type == "Resize":
        if node.op_type == "PRelu":
            slopes = net.array(node.input[1])
            if slopes is not None and slopes.size == found.size:
                found.constants.add((node.input[1], slopes.ndim - 3))
        if node.op_type == "Resize" and len(node.input) > 3 and node.input[3]:
            raise NotApplicable(f"Resize '{node.name}' is given sizes")
        return [node.input[0], node.output[0]]
    raise NotApplicable(f"{node.op_type} '{node.name}' needs its channels")


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield narrower layers where the last group of kernels is not full."""
    step = 2 * net.atom
    seen, found = set[str](), list[tuple[float, str, Width]]()
    for node in net.nodes("Conv"):
        if node.output[0] in seen:
            continue
        try:
            width = width_of(net, node.output[0])
        except NotApplicable:
            continue
        seen |= width.values
        touched = width.makers | width.depthwise | width.readers
        if width.size % step and width.size > net.atom:
            cost = sum(cycles.get(name, 0) for name in _rows(net, touched))
            found.append((float(cost), node.name, width))
    for weight, name, width in sorted(found, key=lambda one: -one[0])[:TRIED]:
        fewer = width.size // step * step or net.atom
        layers = f"'{name}'" + (f" and {len(width.makers) - 1} more" if len(width.makers) > 1 else "")
        text = f"{fewer} channels instead of {width.size} behind {layers}: whole groups of {step} kernels"
        yield Change("channels", f"channels:{name}", text, "retraining", _narrower(name, fewer), weight)


def _rows(net: Net, names: set[str]) -> set[str]:
    """Return the names of nodes with those of the operators behind them, which may be in their tasks."""
    found = set(names)
    for node in net.nodes("Conv"):
        if node.name in names:
            found |= {user.name for user in net.users(node.output[0])}
    return found


def _narrower(name: str, fewer: int) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        width = width_of(net, net.node(name).output[0])
        if width.size <= fewer:
            raise NotApplicable("the channels are that few already")
        kept = _largest(net, width, fewer)
        for node in net.nodes("Conv"):
            if node.name in width.makers or node.name in width.depthwise:
                for place in range(1, len(node.input)):
                    node.input[place] = _sliced(net, node.input[place], 0, kept)
            if node.name in width.depthwise:
                set_attribute(node, "group", fewer)
            if node.name in width.readers:
                node.input[1] = _sliced(net, node.input[1], 1, kept)
        for node in net.graph.node:
            if node.op_type in (*PAIRS, "PRelu"):
                for place, operand in enumerate(node.input):
                    for constant, axis in width.constants:
                        if operand == constant:
                            node.input[place] = _sliced(net, operand, axis, kept)

    return edited(edit)


def _largest(net: Net, width: Width, fewer: int) -> npt.NDArray[np.intp]:
    """Return the channels to keep, those with the largest weights."""
    sums = np.zeros(width.size)
    for node in net.nodes("Conv"):
        if node.name in width.makers:
            weights = net.array(node.input[1])
            if weights is None:
                raise NotApplicable(f"the weights of '{node.name}' are no constant")
            sums += np.abs(weights.astype(np.float64)).reshape(width.size, -1).mean(axis=1)
    return np.sort(np.argsort(-sums)[:fewer])


def _sliced(net: Net, name: str, axis: int, kept: npt.NDArray[np.intp]) -> str:
    """Return a constant with some of its channels; a coded one gets a DequantizeLinear of its own."""
    node = net.makers.get(name)
    if node is None:
        if name not in net.constants:
            raise NotApplicable(f"'{name}' is no constant")
        return net.constant(numpy_helper.to_array(net.constants[name]).take(kept, axis), f"{name}_narrow")
    if node.op_type != "DequantizeLinear":
        raise NotApplicable(f"'{name}' is computed by {node.op_type}")
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[0] = _sliced(net, node.input[0], axis, kept)
    for place in range(1, len(node.input)):
        numbers = numpy_helper.to_array(net.constants[node.input[place]])
        if numbers.size > 1 and attribute(node, "axis", 1) == axis:
            made.input[place] = net.constant(numbers[kept], f"{node.input[place]}_narrow")
    made.name = net.fresh(f"{node.name}_narrow")
    made.output[0] = f"{made.name}_out"
    net.append(made)
    return made.output[0]
