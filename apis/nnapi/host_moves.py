"""Operations that move elements without changing them."""

from __future__ import annotations

import math

import numpy as np

from rkcosim.apis.nnapi.host_elements import spread
from rkcosim.apis.nnapi.values import QUANTISED, Array, OperationCall, bounded, host
from rkcosim.hostops import resize
from rkcosim.hostops.resize import Coordinates

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of the axes from NCHW to NHWC, and back."""


def channels_last(values: Array, nchw: bool) -> Array:
    """Return a map in the layout NHWC."""
    return values.transpose(TO_LAST) if nchw else values


def as_given(values: Array, nchw: bool) -> Array:
    """Return a map in NHWC in the layout that the operation has."""
    return np.ascontiguousarray(values.transpose(TO_FIRST)) if nchw else values


@host("RESHAPE")
def _reshape(call: OperationCall) -> list[Array]:
    x, shape = call.array(0), call.ints(1)
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise call.wrong(f"shape {shape}")
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = x.size // known if known else 0
    if math.prod(shape) != x.size:
        raise call.wrong(f"{x.size} elements cannot have the shape {shape}")
    return [x.reshape(shape)]


@host("SQUEEZE")
def _squeeze(call: OperationCall) -> list[Array]:
    x = call.array(0)
    given = call.ints(1) if call.has(1) else []
    axes = {axis % x.ndim for axis in given} if given else {n for n, size in enumerate(x.shape) if size == 1}
    if any(x.shape[axis] != 1 for axis in axes):
        raise call.wrong(f"dimensions {sorted(axes)} of {x.shape} are not all 1")
    return [x.reshape([size for axis, size in enumerate(x.shape) if axis not in axes] or [1])]


@host("EXPAND_DIMS")
def _expand(call: OperationCall) -> list[Array]:
    x = call.array(0)
    return [np.expand_dims(x, call.axis(1, x.ndim + 1))]


@host("TRANSPOSE")
def _transpose(call: OperationCall) -> list[Array]:
    x = call.array(0)
    order = call.ints(1) if call.has(1) and call.array(1).size else list(range(x.ndim))[::-1]
    if sorted(order) != list(range(x.ndim)):
        raise call.wrong(f"{order} is no order of {x.ndim} axes")
    return [np.ascontiguousarray(x.transpose(order))]


def _pads(call: OperationCall, rank: int) -> list[tuple[int, int]]:
    pads = call.array(1).reshape(-1, 2)
    if len(pads) != rank or (pads < 0).any():
        raise call.wrong(f"paddings {pads.tolist()} of a tensor of rank {rank}")
    bounded([n + int(a) + int(b) for n, (a, b) in zip(call.array(0).shape, pads, strict=True)])
    return [(int(a), int(b)) for a, b in pads]


@host("PAD", "PAD_V2")
def _pad(call: OperationCall) -> list[Array]:
    value = call.value(0)
    fill = call.array(2).reshape(-1)[0] if call.has(2) else value.zero if value.type in QUANTISED else 0
    return [np.pad(value.array, _pads(call, value.array.ndim), constant_values=fill)]


@host("MIRROR_PAD")
def _mirror(call: OperationCall) -> list[Array]:
    x, mode = call.array(0), call.integer(2)
    pads = _pads(call, x.ndim)
    if mode not in (0, 1):
        raise call.wrong(f"mode {mode} is neither 0 (reflect) nor 1 (symmetric)")
    if any(max(pair) > size - (mode == 0) for pair, size in zip(pads, x.shape, strict=True)):
        raise call.wrong(f"paddings {pads} are larger than the tensor {x.shape}")
    return [np.pad(x, pads, mode="reflect" if mode == 0 else "symmetric")]


@host("SPACE_TO_BATCH_ND")
def _to_batch(call: OperationCall) -> list[Array]:
    nchw, (bh, bw) = call.flag(3), call.ints(1)
    pads = call.array(2).reshape(2, 2)
    value = call.value(0)
    x = channels_last(value.array, nchw)
    fill = value.zero if value.type in QUANTISED else 0
    if (pads < 0).any():
        raise call.wrong(f"paddings {pads.tolist()} are negative")
    bounded([x.shape[0], *(n + int(p.sum()) for n, p in zip(x.shape[1:3], pads, strict=True)), x.shape[3]])
    x = np.pad(x, [(0, 0), tuple(pads[0]), tuple(pads[1]), (0, 0)], constant_values=fill)
    n, h, w, c = x.shape
    if bh < 1 or bw < 1 or h % bh or w % bw:
        raise call.wrong(f"blocks of {bh} x {bw} do not divide {h} x {w}")
    x = x.reshape(n, h // bh, bh, w // bw, bw, c).transpose(2, 4, 0, 1, 3, 5)
    return [as_given(x.reshape(n * bh * bw, h // bh, w // bw, c), nchw)]


@host("BATCH_TO_SPACE_ND")
def _from_batch(call: OperationCall) -> list[Array]:
    nchw, (bh, bw) = call.flag(2), call.ints(1)
    x = channels_last(call.array(0), nchw)
    n, h, w, c = x.shape
    if bh < 1 or bw < 1 or n % (bh * bw):
        raise call.wrong(f"blocks of {bh} x {bw} do not divide a batch of {n}")
    x = x.reshape(bh, bw, n // (bh * bw), h, w, c).transpose(2, 3, 0, 4, 1, 5)
    return [as_given(x.reshape(n // (bh * bw), h * bh, w * bw, c), nchw)]


@host("SPACE_TO_DEPTH")
def _to_depth(call: OperationCall) -> list[Array]:
    nchw, size = call.flag(2), call.integer(1)
    x = channels_last(call.array(0), nchw)
    n, h, w, c = x.shape
    if size < 1 or h % size or w % size:
        raise call.wrong(f"blocks of {size} do not divide {h} x {w}")
    x = x.reshape(n, h // size, size, w // size, size, c).transpose(0, 1, 3, 2, 4, 5)
    return [as_given(x.reshape(n, h // size, w // size, c * size * size), nchw)]


@host("DEPTH_TO_SPACE")
def _to_space(call: OperationCall) -> list[Array]:
    nchw, size = call.flag(2), call.integer(1)
    x = channels_last(call.array(0), nchw)
    n, h, w, c = x.shape
    if size < 1 or c % (size * size):
        raise call.wrong(f"blocks of {size} do not divide {c} channels")
    depth = c // (size * size)
    x = x.reshape(n, h, w, size, size, depth).transpose(0, 1, 3, 2, 4, 5)
    return [as_given(x.reshape(n, h * size, w * size, depth), nchw)]


@host("STRIDED_SLICE")
def _strided(call: OperationCall) -> list[Array]:
    """Every `stride`-th element of each axis; AOSP's indices are clamped as those of Python's slices.

    An axis of the shrink mask must have exactly one such element (common/cpu_operations/StridedSlice.cpp).
    """
    x = call.array(0)
    begins, ends, steps = (call.ints(index) for index in (1, 2, 3))
    begin_mask, end_mask, shrink = (call.integer(index) for index in (4, 5, 6))
    if not len(begins) == len(ends) == len(steps) == x.ndim:
        raise call.wrong(f"begin {begins}, end {ends} and strides {steps} of a tensor of rank {x.ndim}")
    places: list[int | slice] = []
    for axis, (begin, end, step, size) in enumerate(zip(begins, ends, steps, x.shape, strict=True)):
        bit = 1 << axis
        if step == 0 or (shrink & bit and step < 0):
            raise call.wrong(f"stride {step} of axis {axis}")
        part = slice(None if begin_mask & bit else begin, None if end_mask & bit else end, step)
        picked = range(*part.indices(size))
        if shrink & bit and len(picked) != 1:
            raise call.wrong(f"{begin} to {end} of axis {axis} is {len(picked)} elements, not one")
        places.append(picked[0] if shrink & bit else part)
    return [np.ascontiguousarray(x[tuple(places)])]


@host("SLICE")
def _slice(call: OperationCall) -> list[Array]:
    x, begins, sizes = call.array(0), call.ints(1), call.ints(2)
    places = []
    for begin, size, whole in zip(begins, sizes, x.shape, strict=True):
        size = whole - begin if size == -1 else size
        if begin < 0 or size < 0 or begin + size > whole:
            raise call.wrong(f"begin {begins} and size {sizes} of a tensor {x.shape}")
        places.append(slice(begin, begin + size))
    return [np.ascontiguousarray(x[tuple(places)])]


@host("SPLIT")
def _split(call: OperationCall) -> list[Array]:
    x, count = call.array(0), call.integer(2)
    axis = call.axis(1, x.ndim)
    if count < 1 or x.shape[axis] % count or count != len(call.outputs):
        raise call.wrong(f"{count} parts of axis {axis} of {x.shape} into {len(call.outputs)} results")
    return [np.ascontiguousarray(part) for part in np.split(x, count, axis)]


@host("CONCATENATION")
def _concat(call: OperationCall) -> list[Array]:
    count = len(call.inputs) - 1
    axis = call.axis(count, call.array(0).ndim)
    return [np.concatenate([spread(call.array(n), call, n) for n in range(count)], axis)]


@host("PACK")
def _pack(call: OperationCall) -> list[Array]:
    parts = [call.array(n) for n in range(1, len(call.inputs))]
    return [np.stack(parts, call.axis(0, parts[0].ndim + 1))]


@host("GATHER")
def _gather(call: OperationCall) -> list[Array]:
    x, places = call.array(0), call.array(2)
    axis = call.axis(1, x.ndim)
    _inside(call, places, x.shape[axis])
    return [np.take(x, places, axis)]


@host("EMBEDDING_LOOKUP")
def _lookup(call: OperationCall) -> list[Array]:
    _inside(call, call.array(0), call.array(1).shape[0])
    return [np.take(call.array(1), call.array(0).reshape(-1), 0)]


@host("HASHTABLE_LOOKUP")
def _hashtable(call: OperationCall) -> list[Array]:
    """Return the rows of the keys that are there, zeros for the others, and which were found."""
    wanted, keys, values = call.array(0).reshape(-1), call.array(1).reshape(-1), call.array(2)
    if len(keys) != len(values):
        raise call.wrong(f"{len(keys)} keys for {len(values)} rows")
    rows = {int(key): row for row, key in enumerate(keys)}
    made = np.zeros((len(wanted), *values.shape[1:]), values.dtype)
    found = np.array([int(key) in rows for key in wanted], np.uint8)
    for place, key in enumerate(wanted):
        if found[place]:
            made[place] = values[rows[int(key)]]
    return [made, found]


def _inside(call: OperationCall, places: Array, size: int) -> None:
    if places.size and not 0 <= places.min() <= places.max() < size:
        raise call.wrong(f"an index of {places.min()} to {places.max()} is not below {size}")


@host("TILE")
def _tile(call: OperationCall) -> list[Array]:
    times = call.ints(1)
    if min(times, default=1) < 1 or len(times) != call.array(0).ndim:
        raise call.wrong(f"multiples {times} of a tensor of rank {call.array(0).ndim}")
    bounded([n * size for n, size in zip(times, call.array(0).shape, strict=True)])
    return [np.tile(call.array(0), times)]


@host("REVERSE")
def _reverse(call: OperationCall) -> list[Array]:
    rank = call.array(0).ndim
    axes = call.ints(1)
    if any(not -rank <= axis < rank for axis in axes):
        raise call.wrong(f"axes {axes} of rank {rank}")
    return [np.ascontiguousarray(np.flip(call.array(0), tuple(axes)))]


@host("CHANNEL_SHUFFLE")
def _shuffle(call: OperationCall) -> list[Array]:
    x, groups = call.array(0), call.integer(1)
    axis = call.axis(2, x.ndim)
    size = x.shape[axis]
    if groups < 1 or size % groups:
        raise call.wrong(f"{groups} groups of {size} channels")
    order = np.arange(size).reshape(groups, size // groups).T.reshape(-1)
    return [np.take(x, order, axis)]


@host("RANK")
def _rank(call: OperationCall) -> list[Array]:
    return [np.asarray(call.array(0).ndim, np.int32)]


def resized(call: OperationCall, width: int, height: int) -> tuple[int, int]:
    """Return the output's (height, width) of a resize whose inputs 1 and 2 are sizes or factors."""
    if call.array(1).dtype.kind == "f":
        sizes = [
            int(np.floor(np.float32(n) * call.array(p).astype(np.float32)))
            for n, p in ((width, 1), (height, 2))
        ]
    else:
        sizes = [call.integer(1), call.integer(2)]
    if min(sizes) < 1:
        raise call.wrong(f"a result of {sizes[1]} x {sizes[0]} pixels")
    bounded([*sizes, *call.array(0).shape[:1]])
    return sizes[1], sizes[0]


def coordinates(size: int, made: int, align: bool, rule: Coordinates) -> Array:
    """Return the place in the input of each pixel of the result along an axis, float32, not yet clipped."""
    step = resize.step_of(size, made, align and made > 1, np.float32)
    return resize.places(made, step, rule, np.float32)


def picks(size: int, made: int, align: bool, half: bool) -> Array:
    """Return the index in the input of each pixel of a nearest-neighbour resize along an axis."""
    rule = Coordinates.CENTRES if half else Coordinates.ASYMMETRIC
    return resize.picked(coordinates(size, made, align, rule), size, half_up=align)


@host("RESIZE_NEAREST_NEIGHBOR")
def _nearest(call: OperationCall) -> list[Array]:
    nchw, align, half = (call.flag(index) for index in (3, 4, 5))
    x = channels_last(call.array(0), nchw)
    made = resized(call, x.shape[2], x.shape[1])
    for axis, (size, count) in enumerate(zip(x.shape[1:3], made, strict=True), 1):
        x = np.take(x, picks(size, count, align, half), axis)
    return [as_given(x, nchw)]
