"""Operations that move or join elements, on any element type (facts: nnlib's docs/ops.txt)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, check_size, range_of, value

Array = npt.NDArray[Any]
MANY = None


def _limits(call: NodeCall, first: int) -> list[Value]:
    """Return the scalars of an input, which are those of the output."""
    return [call.inputs[first], call.inputs[first + 1]]


def axis_of(number: int) -> int:
    """Return an axis from 0 to 3; raises Failure for another one."""
    if not -4 <= number < 4:
        raise Failure(f"there is no axis {number}")
    return number % 4


@operation("Nop", ins=(0, MANY), outs=(0, MANY))
def nop(call: NodeCall) -> list[Value]:
    if len(call.declared) > len(call.inputs):
        raise Failure(f"{len(call.declared)} outputs of {len(call.inputs)} inputs")
    return list(call.inputs[: len(call.declared)])


@operation("Convert_to_d32", "Convert_from_d32", ins=(1, 5), outs=1)
def convert_d32(call: NodeCall) -> list[Value]:
    return [call.inputs[0]]


@operation("Flatten", ins=(1, 2), outs=1)
def flatten(call: NodeCall) -> list[Value]:
    x = call.inputs[0]
    return [Value((1, 1, 1, x.elements), x.data)]


@operation("QuantizedFlatten", ins=3, outs=3)
def quantized_flatten(call: NodeCall) -> list[Value]:
    return [*flatten(call), *_limits(call, 1)]


def _reshaped(x: Value, wanted: Value) -> Value:
    sizes = wanted.list
    if not 1 <= len(sizes) <= 4 or sizes.count(-1) > 1:
        raise Failure(f"a shape of {sizes}")
    known = math.prod(n for n in sizes if n != -1)
    sizes = [x.elements // known if n == -1 and known else n for n in sizes]
    if math.prod(sizes) != x.elements or min(sizes) < 0:
        raise Failure(f"{x.elements} elements cannot have the shape {sizes}")
    b, h, w, d = [1] * (4 - len(sizes)) + sizes
    return Value((b, h, w, d), x.data)


@operation("Reshape", ins=2, outs=1)
def reshape(call: NodeCall) -> list[Value]:
    return [_reshaped(*call.inputs[:2])]


@operation("QuantizedReshape", ins=4, outs=3)
def quantized_reshape(call: NodeCall) -> list[Value]:
    return [_reshaped(*call.inputs[:2]), *_limits(call, 2)]


@operation("ExpandDims_f", "ExpandDims_int32", ins=(1, 3), outs=1)
def expand_dims(call: NodeCall) -> list[Value]:
    """Copy a tensor with its shape, as nnlib does (hexagon/ops/src/op_expanddims.c)."""
    return [call.inputs[0]]


def _transposed(x: Value, control: Value) -> Value:
    order = control.list[: control.elements]
    if not 1 <= len(order) <= 4 or sorted(order) != list(range(len(order))):
        raise Failure(f"an order of axes {order}")
    first = 4 - len(order)
    return value(x.raw.transpose([*range(first), *(first + n for n in order)]))


@operation("Transpose_f", "Transpose_int32", ins=2, outs=1)
def transpose(call: NodeCall) -> list[Value]:
    return [_transposed(*call.inputs[:2])]


@operation("Transpose_8", "Transpose_16", ins=4, outs=3)
def quantized_transpose(call: NodeCall) -> list[Value]:
    return [_transposed(*call.inputs[:2]), *_limits(call, 2)]


def _pads(x: Value, control: Value) -> list[tuple[int, int]]:
    """Return the padding of each axis: pairs of a tensor (1, 1, n, 2), of the last n axes (op_pad.c)."""
    numbers = control.list[:8]
    if control.shape[3] != 2 or len(numbers) < 2 or min(numbers) < 0:
        raise Failure(f"padding by {numbers}, a tensor of {control.shape}")
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    pairs = [(0, 0)] * (4 - len(pairs)) + pairs
    check_size(*(size + before + after for size, (before, after) in zip(x.shape, pairs, strict=True)))
    return pairs


@operation("Pad_f", ins=2, outs=1)
def pad(call: NodeCall) -> list[Value]:
    return [value(np.pad(call.inputs[0].raw, _pads(*call.inputs[:2])))]


@operation("QuantizedPad_8", ins=(4, 6), outs=3)
def quantized_pad(call: NodeCall) -> list[Value]:
    """Pad with the code of a number, by default 0; infinity is the first or last code (op_pad.c)."""
    limits = range_of(call.inputs[1], call.inputs[2])
    fill = float(call.inputs[4].reals.reshape(-1)[0]) if len(call.inputs) > 4 else 0.0
    checked = len(call.inputs) > 5 and call.inputs[5].whole
    place = 255 * (fill - limits.low) / (limits.high - limits.low)
    if math.isfinite(fill) and (
        not -2.5 < place < 257.5 or (checked and not limits.low <= fill <= limits.high)
    ):
        raise Failure(f"padding by {fill:g} in a range from {limits.low:g} to {limits.high:g}")
    code = int(limits.codes(np.array([fill], np.float32))[0]) if math.isfinite(fill) else 255 * (fill > 0)
    return [
        value(np.pad(call.inputs[0].codes, _pads(call.inputs[0], call.inputs[3]), constant_values=code)),
        *_limits(call, 1),
    ]


@operation("QuantizedPad_V2_8", ins=5, outs=3)
def quantized_pad_code(call: NodeCall) -> list[Value]:
    code = int(call.inputs[4].codes.reshape(-1)[0])
    return [
        value(np.pad(call.inputs[0].codes, _pads(call.inputs[0], call.inputs[3]), constant_values=code)),
        *_limits(call, 1),
    ]


def _mirrored(call: NodeCall) -> Value:
    modes = {Padding.MIRROR_REFLECT: "reflect", Padding.MIRROR_SYMMETRIC: "symmetric"}
    if call.padding not in modes:
        raise Failure(f"padding {call.padding.name} for a mirror")
    mode: Any = modes[call.padding]
    x, pairs = call.inputs[0], _pads(*call.inputs[:2])
    if call.inputs[1].shape[2] != 4 or any(max(p) >= n for p, n in zip(pairs, x.shape, strict=True)):
        raise Failure(f"a mirror of {x.shape} in {pairs}")
    return value(np.pad(x.raw, pairs, mode=mode))


@operation("MirrorPad_f", ins=2, outs=1)
def mirror_pad(call: NodeCall) -> list[Value]:
    return [_mirrored(call)]


@operation("MirrorPad_8", ins=4, outs=3)
def quantized_mirror_pad(call: NodeCall) -> list[Value]:
    return [_mirrored(call), *_limits(call, 2)]


def _sliced(x: Value, start: Value, size: Value) -> Value:
    starts, sizes = start.list[: start.elements], size.list[: size.elements]
    if len(starts) != len(sizes) or not 1 <= len(starts) <= 4:
        raise Failure(f"a slice from {starts} of {sizes}")
    starts, sizes = [0] * (4 - len(starts)) + starts, [-1] * (4 - len(sizes)) + sizes
    ends = [a + n if n != -1 else whole for a, n, whole in zip(starts, sizes, x.shape, strict=True)]
    if any(not 0 <= a < end <= whole for a, end, whole in zip(starts, ends, x.shape, strict=True)):
        raise Failure(f"a slice from {starts} to {ends} of {x.shape}")
    return value(x.raw[tuple(slice(a, end) for a, end in zip(starts, ends, strict=True))])


@operation("Slice_f", "Slice_int32", "Slice_8", ins=3, outs=1)
def slice_(call: NodeCall) -> list[Value]:
    return [_sliced(*call.inputs[:3])]


@operation("QuantizedSlice_8", ins=5, outs=3)
def quantized_slice(call: NodeCall) -> list[Value]:
    return [_sliced(*call.inputs[:3]), *_limits(call, 3)]


def _strided(x: Value, lists: Sequence[Value], masks: Sequence[Value]) -> Value:
    """Return every step-th element; bits 0 to 3 of the masks are the axes."""
    begin, end, step = (one.list[: one.elements] for one in lists)
    if not len(begin) == len(end) == len(step) or not 1 <= len(begin) <= 4:
        raise Failure(f"a slice from {begin} to {end} by {step}")
    no_begin, no_end, shrink = (mask.whole for mask in masks) if masks else (0, 0, 0)
    first, index, kept = 4 - len(begin), [], []
    for axis, size in enumerate(x.shape):
        a, z, by = (
            (0, size, 1) if axis < first else (begin[axis - first], end[axis - first], step[axis - first])
        )
        if shrink >> axis & 1:
            z, by = a + 1, 1
        elif by:
            a = (0 if by > 0 else size - 1) if no_begin >> axis & 1 else a
            z = (size if by > 0 else -1) if no_end >> axis & 1 else z
        places = range(a, z, by) if by else range(0)
        if not places or min(places) < 0 or max(places) >= size:
            raise Failure(f"a slice from {a} to {z} by {by} of {size} elements")
        index.append(np.array(places))
        if not shrink >> axis & 1:
            kept.append(len(places))
    return value(x.raw[np.ix_(*index)].reshape(kept))


@operation("StridedSlice_f", "StridedSlice_int32", ins=(4, 7), outs=1)
def strided_slice(call: NodeCall) -> list[Value]:
    if len(call.inputs) not in (4, 7):
        raise Failure("the three masks are either all present or all absent")
    return [_strided(call.inputs[0], call.inputs[1:4], call.inputs[4:7])]


@operation("QuantizedStridedSlice_8", ins=9, outs=3)
def quantized_strided_slice(call: NodeCall) -> list[Value]:
    return [_strided(call.inputs[0], call.inputs[1:4], call.inputs[4:7]), *_limits(call, 7)]


def _parts(x: Value, axis: int, count: int) -> list[Value]:
    if count < 1 or x.shape[axis] % count:
        raise Failure(f"{x.shape[axis]} elements cannot be divided into {count} parts")
    return [value(part) for part in np.split(x.raw, count, axis)]


@operation("Split_f", "Split_int32", ins=2, outs=(1, MANY))
def split(call: NodeCall) -> list[Value]:
    return _parts(call.inputs[1], axis_of(call.inputs[0].whole), len(call.declared))


@operation("QuantizedSplit_8", ins=4, outs=(3, MANY))
def quantized_split(call: NodeCall) -> list[Value]:
    parts = _parts(call.inputs[1], axis_of(call.inputs[0].whole), len(call.declared) - 2)
    return [*parts, *_limits(call, 2)]


def joined(parts: Sequence[Array], axis: int) -> Value:
    """Return arrays of four dimensions, one after the other; raises Failure if their sizes differ."""
    sizes = {part.shape[:axis] + part.shape[axis + 1 :] for part in parts}
    if len(sizes) != 1:
        raise Failure(f"tensors of the shapes {[part.shape for part in parts]} along axis {axis}")
    return value(np.concatenate(parts, axis))


@operation("Concat_f", ins=(2, MANY), outs=1)
def concat(call: NodeCall) -> list[Value]:
    return [joined([x.raw for x in call.inputs[1:]], axis_of(call.inputs[0].whole))]


@operation("ConcatV2_f", "ConcatV2_int32", ins=(2, MANY), outs=1)
def concat_v2(call: NodeCall) -> list[Value]:
    return [joined([x.raw for x in call.inputs[:-1]], axis_of(call.inputs[-1].whole))]


@operation("Pack_f", "Pack_int32", ins=(2, MANY), outs=1)
def pack(call: NodeCall) -> list[Value]:
    shapes = {x.shape for x in call.inputs}
    if len(shapes) != 1:
        raise Failure(f"tensors of the shapes {sorted(shapes)}")
    sizes = list(call.inputs[0].shape)
    places = [axis for axis, size in enumerate(sizes) if size == 1]
    if not places:
        raise Failure(f"a tensor of {tuple(sizes)} has no free axis")
    sizes[places[-1]] = len(call.inputs)
    b, h, w, d = sizes
    return [Value((b, h, w, d), np.concatenate([x.data for x in call.inputs]))]


@operation("Shape_int32", ins=1, outs=1)
def shape_(call: NodeCall) -> list[Value]:
    return [value(np.array(call.inputs[0].shape, np.int32))]


@operation("Rank_int32", ins=2, outs=1)
def rank(call: NodeCall) -> list[Value]:
    return [value(np.array([call.inputs[1].whole], np.int32))]
