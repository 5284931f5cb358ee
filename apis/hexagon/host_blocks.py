"""Operations that rearrange pixels, blocks and channels (facts: nnlib's docs/ops.txt)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, check_size, range_of, value
from rkcosim.hostops import resize

Array = npt.NDArray[Any]


def _limits(call: NodeCall, first: int) -> Sequence[Value]:
    """Return the scalars of an input, which are those of the output."""
    return call.inputs[first : first + 2]


def _block(control: Value, other: int | None = None) -> tuple[int, int]:
    numbers = control.list[: control.elements]
    rows, columns = (numbers[0], numbers[0] if other is None else other) if len(numbers) == 1 else numbers[:2]
    if rows < 1 or columns < 1:
        raise Failure(f"blocks of {numbers}")
    return rows, columns


def _deeper(x: Value, control: Value) -> Value:
    rows, columns = _block(control)
    b, h, w, d = x.shape
    if h % rows or w % columns:
        raise Failure(f"{h}x{w} pixels cannot be divided into blocks of {rows}x{columns}")
    cut = x.raw.reshape(b, h // rows, rows, w // columns, columns * d)
    return value(cut.transpose(0, 1, 3, 2, 4).reshape(b, h // rows, w // columns, -1))


def _cropped(array: Array, crops: Sequence[int]) -> Value:
    top, bottom, left, right = [*crops, 0, 0, 0, 0][:4]
    _, height, width, _ = array.shape
    if min(top, bottom, left, right) < 0 or top + bottom >= height or left + right >= width:
        raise Failure(f"crops of {list(crops)} from {height}x{width} pixels")
    return value(array[:, top : height - bottom, left : width - right])


def _flatter(x: Value, control: Value, crops: Sequence[int]) -> Value:
    rows, columns = _block(control)
    b, h, w, d = x.shape
    if d % (rows * columns):
        raise Failure(f"a depth of {d} cannot be divided into blocks of {rows}x{columns}")
    cut = x.raw.reshape(b, h, w, rows, d // rows).transpose(0, 1, 3, 2, 4)
    return _cropped(cut.reshape(b, h * rows, w * columns, d // (rows * columns)), crops)


@operation("SpaceToDepth_f", ins=2, outs=1)
def space_to_depth(call: NodeCall) -> list[Value]:
    return [_deeper(*call.inputs[:2])]


@operation("SpaceToDepth_8", "SpaceToDepth_16", ins=4, outs=3)
def quantized_space_to_depth(call: NodeCall) -> list[Value]:
    return [_deeper(*call.inputs[:2]), *_limits(call, 2)]


@operation("DepthToSpace_f", ins=(2, 3), outs=1)
def depth_to_space(call: NodeCall) -> list[Value]:
    return [_flatter(call.inputs[0], call.inputs[1], call.inputs[2].list if len(call.inputs) > 2 else ())]


@operation("DepthToSpace_8", "DepthToSpace_16", ins=(4, 5), outs=3)
def quantized_depth_to_space(call: NodeCall) -> list[Value]:
    crops = call.inputs[4].list if len(call.inputs) > 4 else ()
    return [_flatter(call.inputs[0], call.inputs[1], crops), *_limits(call, 2)]


def _to_batches(call: NodeCall, fill: int) -> Value:
    x, control, pads = call.inputs[:3]
    rows, columns = _block(control, 1)
    top, bottom, left, right = [*pads.list, 0, 0][:4]
    if min(top, bottom, left, right) < 0:
        raise Failure(f"padding by {pads.list}")
    check_size(x.shape[0], x.shape[1] + top + bottom, x.shape[2] + left + right, x.shape[3])
    full = np.pad(x.raw, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    b, h, w, d = full.shape
    if h % rows or w % columns:
        raise Failure(f"{h}x{w} pixels cannot be divided into blocks of {rows}x{columns}")
    cut = full.reshape(b, h // rows, rows, w // columns, columns, d).transpose(2, 4, 0, 1, 3, 5)
    return value(cut.reshape(b * rows * columns, h // rows, w // columns, d))


def _from_batches(x: Value, control: Value, crops: Value) -> Value:
    rows, columns = _block(control, 1)
    b, h, w, d = x.shape
    if b % (rows * columns):
        raise Failure(f"{b} batches cannot be divided into blocks of {rows}x{columns}")
    cut = x.raw.reshape(rows, columns, b // (rows * columns), h, w, d).transpose(2, 3, 0, 4, 1, 5)
    return _cropped(cut.reshape(-1, h * rows, w * columns, d), crops.list)


@operation("SpaceToBatchND_f", ins=3, outs=1)
def space_to_batch(call: NodeCall) -> list[Value]:
    return [_to_batches(call, 0)]


@operation("SpaceToBatchND_8", ins=5, outs=3)
def quantized_space_to_batch(call: NodeCall) -> list[Value]:
    return [_to_batches(call, range_of(*call.inputs[3:5]).zero), *_limits(call, 3)]


@operation("BatchToSpaceND_f", ins=3, outs=1)
def batch_to_space(call: NodeCall) -> list[Value]:
    return [_from_batches(*call.inputs[:3])]


@operation("BatchToSpaceND_8", ins=5, outs=3)
def quantized_batch_to_space(call: NodeCall) -> list[Value]:
    return [_from_batches(*call.inputs[:3]), *_limits(call, 3)]


def _nearest(x: Value, sizes: Value, corners: bool) -> Value:
    wanted = sizes.list[:2]
    if len(wanted) != 2 or min(wanted) < 1:
        raise Failure(f"an output of {wanted}")
    check_size(x.shape[0], *wanted, x.shape[3])
    made = x.raw
    for axis, (old, new) in enumerate(zip(x.shape[1:3], wanted, strict=True), 1):
        aligned = corners and new > 1
        step = resize.step_of(old, new, aligned)
        step = step if aligned else np.float32(step)
        made = resize.nearest(made, axis, resize.places(new, step, resize.Coordinates.ASYMMETRIC), aligned)
    return value(made)


@operation("ResizeNearestNeighbor_f", ins=2, outs=1)
def resize_nearest(call: NodeCall) -> list[Value]:
    return [_nearest(call.inputs[0], call.inputs[1], False)]


@operation("ResizeNearestNeighbor_8", ins=(4, 5), outs=3)
def quantized_resize_nearest(call: NodeCall) -> list[Value]:
    corners = len(call.inputs) > 4 and bool(call.inputs[4].whole)
    return [_nearest(call.inputs[0], call.inputs[1], corners), *_limits(call, 2)]


@operation("QuantizedTile_8", ins=4, outs=3)
def quantized_tile(call: NodeCall) -> list[Value]:
    counts = call.inputs[1].list[: call.inputs[1].elements]
    if not 1 <= len(counts) <= 4 or min(counts) < 1:
        raise Failure(f"repetitions {counts}")
    check_size(call.inputs[0].elements, *counts)
    return [value(np.tile(call.inputs[0].codes, counts)), *_limits(call, 2)]


@operation("QuantizedChannelShuffle_8", ins=4, outs=3)
def quantized_channel_shuffle(call: NodeCall) -> list[Value]:
    groups, x = call.inputs[0].whole, call.inputs[1]
    if groups < 1 or x.shape[3] % groups:
        raise Failure(f"a depth of {x.shape[3]} cannot be divided into {groups} groups")
    cut = x.raw.reshape(*x.shape[:3], groups, -1).swapaxes(3, 4)
    return [value(cut.reshape(x.shape)), *_limits(call, 2)]
