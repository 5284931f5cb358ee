"""The order of two operators: the one that makes fewer elements, or that joins a task, comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx
from onnx import helper

from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import Net, attribute, edited

JOINING = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh")
"""Activations that a convolution's task computes."""

RISING = ("Relu", "Clip", "Sigmoid", "HardSigmoid", "Tanh")
"""Activations that never fall, so that the maximum may be found first."""


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield the changes of order."""
    for node in net.graph.node:
        maker = net.maker(node.input[0]) if node.input else None
        if maker is None or not net.alone(maker.output[0]):
            continue
        weight = float(cycles.get(node.name, 0) + cycles.get(maker.name, 0))
        if node.op_type in JOINING and maker.op_type == "Concat":
            text = (
                f"{node.op_type} '{node.name}' before the Concat '{maker.name}', in its convolutions' tasks"
            )
            name = f"before-concat:{node.name}"
            yield Change("orders", name, text, "same", _before_concat(node.name), weight)
        elif node.op_type == "MaxPool" and maker.op_type in RISING:
            text = f"{maker.op_type} '{maker.name}' behind the MaxPool '{node.name}', on fewer elements"
            name = f"behind-pool:{maker.name}"
            yield Change("orders", name, text, "same", _behind_pool(node.name), weight)
        elif _pointwise(net, node) and _whole_nearest(net, maker):
            text = f"Conv '{node.name}' before the Resize '{maker.name}', on fewer pixels"
            name = f"before-resize:{node.name}"
            yield Change("orders", name, text, "same", _before_resize(node.name), weight)


def _before_concat(name: str) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        node = net.node(name)
        concat = net.maker(node.input[0])
        if concat is None or concat.op_type != "Concat":
            raise NotApplicable("no Concat is in front of the activation any more")
        end = node.output[0]
        for place, x in enumerate(concat.input):
            made = net.fresh(f"{name}_{place}")
            twin = onnx.NodeProto()
            twin.CopyFrom(node)
            twin.name = made
            twin.input[0] = net.uncoded(x, [concat])
            twin.output[0] = f"{made}_out"
            net.append(twin)
            concat.input[place] = net.coded_like(f"{made}_out", end, made)
        old = concat.output[0]
        node.CopyFrom(helper.make_node("Identity", [old], [f"{name}_unused"], name))
        concat.output[0] = end
        net.rename_reads(old, end)

    return edited(edit)


def _behind_pool(name: str) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        pool = net.node(name)
        act = net.maker(pool.input[0])
        if act is None or act.op_type not in RISING:
            raise NotApplicable("no activation is in front of the pool any more")
        before, end = act.input[0], pool.output[0]
        pool.input[0] = before
        pool.output[0] = middle = net.fresh(f"{name}_first")
        # The pool's result has the codes of what it reads.
        source = net.real(before)
        act.input[0] = middle if source == before else net.coded_like(middle, source, middle)
        act.output[0] = end

    return edited(edit)


def _before_resize(name: str) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        conv = net.node(name)
        resize = net.maker(conv.input[0])
        if resize is None or not _whole_nearest(net, resize):
            raise NotApplicable("no Resize is in front of the convolution any more")
        conv.input[0] = resize.input[0]
        last, end = conv, conv.output[0]
        while len(users := net.users(end)) == 1 and users[0].op_type in JOINING and not net.is_output(end):
            last, end = users[0], users[0].output[0]
        if net.is_output(end) and end not in net.outputs:
            raise NotApplicable("the result of the convolution is a coded output")
        last.output[0] = small = net.fresh(f"{name}_small")
        resize.input[0] = net.coded_like(small, end, small)
        resize.output[0] = end

    return edited(edit)


def _pointwise(net: Net, node: onnx.NodeProto) -> bool:
    """Whether a node is a convolution of one tap."""
    if node.op_type != "Conv":
        return False
    weights = net.array(node.input[1])
    plain = not any(attribute(node, "pads", []) or []) and set(attribute(node, "strides", [1])) == {1}
    return weights is not None and weights.ndim == 4 and weights.shape[2:] == (1, 1) and plain


def _whole_nearest(net: Net, node: onnx.NodeProto) -> bool:
    """Whether a node repeats pixels a whole number of times."""
    if node.op_type != "Resize" or attribute(node, "mode", b"nearest") != b"nearest":
        return False
    x, y = net.shapes.get(node.input[0], ()), net.shapes.get(node.output[0], ())
    return len(x) == len(y) == 4 and x[:2] == y[:2] and all(b % a == 0 for a, b in zip(x, y, strict=True))
