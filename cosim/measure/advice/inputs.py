"""Smaller inputs, inputs in parts, and layouts that the NPU takes without moving anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

from rkcosim.measure.advice.change import Change, NotApplicable, Subject, replace
from rkcosim.measure.advice.net import Net, attribute, edited

SIDES = ((3, 4), (1, 2))
"""Sides of smaller inputs as fractions of the present ones."""
STEP = 32
"""Sides are multiples of this, because networks halve them up to five times."""
LARGE = 128
"""Sides from which on smaller inputs are tried."""


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield changes of the inputs; `cycles` of all layers weigh them."""
    total = float(sum(cycles.values()))
    maps = {item.name: net.shapes.get(item.name, ()) for item in net.graph.input}
    for name, shape in maps.items():
        for node in net.users(name):
            if node.op_type == "Transpose" and net.alone(name):
                order = [int(axis) for axis in attribute(node, "perm", [])]
                text = f"input '{name}' in the order that the Transpose '{node.name}' makes of it, {order}"
                weight = float(cycles.get(node.name, 0)) + 1
                yield Change("inputs", f"layout:{name}", text, "program", _untransposed(name), weight)
        if len(maps) == 1 and len(shape) == 4 and min(shape[2:]) >= LARGE and shape[1] <= 4:
            for numerator, denominator in SIDES:
                sides = [side * numerator // denominator // STEP * STEP for side in shape[2:]]
                text = f"an input of {sides[0]} x {sides[1]} pixels instead of {shape[2]} x {shape[3]}"
                apply = _resized(name, (*shape[:2], *sides))
                share = 1 - (numerator / denominator) ** 2
                yield Change(
                    "inputs",
                    f"input-{sides[0]}x{sides[1]}",
                    text,
                    "retraining",
                    apply,
                    total * share,
                    "size",
                    True,
                    "sizes",
                )
            rows = shape[2] // 2 // STEP * STEP
            if rows * 2 == shape[2]:
                text = f"two inferences of {rows} x {shape[3]} pixels: upper and lower half"
                apply = _resized(name, (*shape[:2], rows, shape[3]), 2)
                yield Change(
                    "inputs", "halves", text, "approximate", apply, total * 0.02, "size", True, "sizes"
                )


def _untransposed(name: str) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        users = net.users(name)
        if len(users) != 1 or users[0].op_type != "Transpose":
            raise NotApplicable("no Transpose reads the input alone")
        node = users[0]
        shape, order = net.shape(name), [int(axis) for axis in attribute(node, "perm", [])]
        for item in net.graph.input:
            if item.name == name:
                _reshape(item, [shape[axis] for axis in order])
        net.rename_reads(node.output[0], node.input[0])
        if node.output[0] in net.outputs:
            raise NotApplicable("the Transpose makes an output")

    return edited(edit)


def _resized(name: str, shape: tuple[int, ...], runs: int = 1) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        for item in net.graph.input:
            if item.name == name:
                _reshape(item, shape)

    def apply(subject: Subject) -> Subject:
        return replace(edited(edit)(subject), runs=subject.runs * runs)

    return apply


def _reshape(item: onnx.ValueInfoProto, shape: tuple[int, ...] | list[int]) -> None:
    dims = item.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add().dim_value = size
