"""Smaller kernels, and strides in place of pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import Net, attribute, edited, set_attribute
from rkcosim.measure.advice.orders import JOINING

SMALL = 3


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield kernels of 3 x 3 for larger ones, and convolutions with a stride for those before a MaxPool."""
    large: dict[tuple[bool, int], list[onnx.NodeProto]] = {}
    for node in net.nodes("Conv"):
        weights = net.array(node.input[1])
        if weights is None or weights.ndim != 4 or weights.shape[2] != weights.shape[3]:
            continue
        size = weights.shape[2]
        if size > SMALL and size % 2 and set(attribute(node, "dilations", [1])) == {1}:
            large.setdefault((weights.shape[1] == 1 and weights.shape[0] > 1, size), []).append(node)
        if (pool := _pooled(net, node)) is not None:
            text = f"a stride of 2 in Conv '{node.name}' in place of the MaxPool '{pool.name}'"
            weight = float(cycles.get(node.name, 0) + cycles.get(pool.name, 0))
            yield Change(
                "kernels", f"stride:{node.name}", text, "retraining", _strided(node.name), weight + 1
            )
    for (depthwise, size), nodes in large.items():
        said = "depthwise kernels" if depthwise else "kernels"
        names = [node.name for node in nodes]
        weight = float(sum(cycles.get(name, 0) for name in names))
        what = f"of '{names[0]}'" if len(names) == 1 else f"of {len(names)} layers"
        text = f"{said} of {SMALL} x {SMALL} in place of {size} x {size} {what}"
        slug = f"{'depthwise' if depthwise else 'kernel'}-{size}-to-{SMALL}"
        yield Change("kernels", slug, text, "retraining", _cropped(names), weight)


def _cropped(names: list[str]) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        for name in names:
            node = net.node(name)
            source = net.real(node.input[1])
            weights = numpy_helper.to_array(net.constants[source])
            off = (weights.shape[2] - SMALL) // 2
            pads = [int(pad) - off for pad in attribute(node, "pads", [0] * 4)]
            if off <= 0 or min(pads) < 0:
                raise NotApplicable(f"the kernel of '{name}' is small already, or has no padding")
            small = np.ascontiguousarray(weights[:, :, off:-off, off:-off])
            net.constants[source].CopyFrom(numpy_helper.from_array(small, source))
            set_attribute(node, "pads", pads)
            set_attribute(node, "kernel_shape", [SMALL, SMALL])

    return edited(edit)


def _pooled(net: Net, conv: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the MaxPool of 2 x 2 behind a convolution and its activation, if nothing else reads these."""
    if set(attribute(conv, "strides", [1])) != {1}:
        return None
    end = conv.output[0]
    while net.alone(end):
        node = net.users(end)[0]
        if node.op_type == "MaxPool":
            sides = attribute(node, "kernel_shape"), attribute(node, "strides", [1, 1])
            plain = not attribute(node, "ceil_mode", 0)
            return (
                node
                if all(set(side) <= {2, 3} for side in sides) and set(sides[1]) == {2} and plain
                else None
            )
        if node.op_type not in JOINING:
            return None
        end = node.output[0]
    return None


def _strided(name: str) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        conv = net.node(name)
        pool = _pooled(net, conv)
        if pool is None:
            raise NotApplicable(f"no MaxPool is behind '{name}' any more")
        before, wanted = pool.input[0], net.shape(pool.output[0])
        set_attribute(conv, "strides", [2, 2])
        x, (rows, columns) = (
            net.shape(conv.input[0]),
            (int(side) for side in attribute(conv, "kernel_shape", [1, 1])),
        )
        pads = [int(pad) for pad in attribute(conv, "pads", [0] * 4)]
        for axis, kernel in ((0, rows), (1, columns)):
            have = x[2 + axis] + pads[axis]
            need = (wanted[2 + axis] - 1) * 2 + kernel
            pads[2 + axis] = need - have
            if not 0 <= pads[2 + axis] <= kernel:
                raise NotApplicable(f"a stride in '{name}' makes a map of another size")
        set_attribute(conv, "pads", pads)
        pool.CopyFrom(helper.make_node("Identity", [before], [pool.output[0]], pool.name))
        net.rename_reads(pool.output[0], before)
        for place, out in enumerate(net.outputs):
            if out == pool.output[0]:
                raise NotApplicable(f"the MaxPool's result is output {place}")

    return edited(edit)
