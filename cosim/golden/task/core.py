"""CORE of the task-level golden model: convolution, window sums, drain ([HW 5], [HW 6])."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.arith import decode, sign_extend
from rkcosim.golden.task.cna import Cbuf, unpack_weights
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.core_float import Operands, tile_sums
from rkcosim.golden.task.dpu_float import from_floats
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.rules import Diagnosis
from rkcosim.golden.task.rules_conv import HALF_BITS
from rkcosim.golden.task.shapes import ConvShape
from rkcosim.spec.types import INT8, ElementType, conv_type

Ints = NDArray[np.int64]
ACC_BITS = 48
_BLOCK = 1 << 16
"""Number of sums (pixels times kernels) and of operands that are processed at a time, to fit the caches."""
EXACT_FLOAT32 = 1 << 24
"""Every integer up to this magnitude is a binary32 number."""
_PRODUCT = 1 << 20
"""Number of operands of one matrix product of integers."""


class Clip(NamedTuple):
    """CLIP_TRUNCATE and ROUND_TYPE, which the DPU applies; zero for floats ([HW 6.3], [HW 7.4])."""

    shift: int = 0
    half_up: bool = False


class ConvResult(NamedTuple):
    """Results that CORE delivers to the DPU.

    Members
    -------
    acc : int64 [pixels, shape.groups * 8 * shape.octets]; signed sums of 48 bits, or for floats
        (shape.is_float) binary32 bits as signed 32 bits. The groups of `shape.delivered_groups` above these
        are zeros and not included.
    sum : of the same shape, window sums as signed 32 bits; 0 for floats and without QD_EN.
    """

    shape: ConvShape
    acc: Ints
    sum: Ints
    clip: Clip

    def delivered(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """`acc` and `sum` as [octets of the task, 8] in the order of delivery: group, stripe, pixel, octet.

        The pixels of a group are in the order of its stripes, so that stripes need no special treatment.
        """
        out = []
        missing = self.shape.delivered_groups - self.shape.groups
        behind = ((0, missing * self.shape.pixels * self.shape.octets), (0, 0))
        for values, bits in ((self.acc, ACC_BITS), (self.sum, 32)):
            lanes = (values & ((1 << bits) - 1)).reshape(
                self.shape.pixels, self.shape.groups, self.shape.octets, 8
            )
            octets = lanes.transpose(1, 0, 2, 3).reshape(-1, 8)
            out.append(np.pad(octets, behind) if missing else octets)
        return out[0].astype(np.uint64), out[1].astype(np.uint32)


def convolve(ctx: Context, cna: View, core: View, cbuf: Cbuf) -> ConvResult:
    """Run CNA and CORE of a task.

    Raises
    ------
    GoldenHang
        For sizes and settings for which the task never ends.
    """
    check = Diagnosis(ctx, {"CNA": cna, "CORE": core})
    check.ask("CNA")
    check.ask("CORE")
    for hang in check.stops.values():
        raise hang
    drained = conv_type(core("MISC_CFG", "PROC_PRECISION"))
    shape = ConvShape(cna, core, ctx.options)
    message = f"the kernels are {shape.groups} groups of {shape.delivered_groups}: the others deliver 0"
    same = shape.groups == shape.delivered_groups
    ctx.require(same, "SIZE_MISMATCH", core, "DATAOUT_SIZE_1", "DATAOUT_CHANNEL", message)
    image = cbuf.features(ctx, cna, shape)
    kernels = unpack_weights(cbuf.weights(ctx, cna, shape), shape)
    pixels = _with_pads(image, pad_values(cna, shape))
    places = tap_places(shape)
    acc: NDArray
    if shape.type.is_float:
        acc = (_float_depthwise if shape.depthwise else _float_direct)(pixels, kernels, places, shape)
        total = np.zeros((shape.pixels, 1), np.int64)
    else:
        acc, total = (_depthwise if shape.depthwise else _direct)(pixels, kernels, places, shape)
    if drained.is_float or not core("MISC_CFG", "QD_EN"):
        total = np.zeros_like(total)
    ctx.report.macs += shape.macs
    out = _in_groups(_drain(acc, drained), shape)
    sums = _in_groups(sign_extend(np.broadcast_to(total, acc.shape), 32), shape, real_only=shape.depthwise)
    for half, bit in enumerate(HALF_BITS):
        if not core("MAC_GATING", "SLCG_OP_EN") >> bit & 1:
            out[:, :, half::2] = 0
            sums[:, :, half::2] = 0
    clip = Clip()
    if not drained.is_float:
        cut = "CLIP_TRUNCATE"
        clip = Clip(core(cut, cut), bool(core(cut, "ROUND_TYPE")))
    return ConvResult(shape, out.reshape(shape.pixels, -1), sums.reshape(shape.pixels, -1), clip)


# -- operands -------------------------------------------------------------------------------------


def pad_values(cna: View, shape: ConvShape) -> NDArray:
    """Pad value of every lane in the format of `decode`, [lanes]; unused lanes are 0 (3.5, 3.6)."""
    word = cna("PAD_CON1", "PAD_VALUE")
    raw = np.array([word], "<u4").view(np.uint8)
    elements = decode(shape.type, raw)
    values = np.full(shape.lanes, elements[0])
    if shape.depthwise and shape.type is INT8:
        lane = np.arange(shape.lanes) % 64
        values[(lane < 32) & (lane % 2 == 1)] = elements[1]
    values[shape.channels :] = 0
    return values


def _with_pads(image: NDArray, pad: NDArray) -> NDArray:
    """All input pixels in one axis, followed by the pad pixel: [rows * columns + 1, lanes]."""
    return np.concatenate((image.reshape(-1, image.shape[2]), pad[None]))


def tap_places(shape: ConvShape) -> NDArray[np.intp]:
    """Operand of every tap of every output pixel: index into `_with_pads`, [taps, pixels] (3.4)."""
    pixel = np.arange(shape.pixels)
    size, pads = (shape.height, shape.width), shape.pads
    kernel = shape.kernel
    inside, between, index = [], [], []
    for axis, out in enumerate(divmod(pixel, shape.out_width)):
        tap = np.arange(kernel[axis])[:, None] * shape.dilation[axis]
        at = out * shape.stride[axis] + tap - pads[axis]  # [taps of the axis, pixels]
        step = shape.spread[axis]
        inside.append((at >= 0) & (at < (size[axis] - 1) * step + 1))
        between.append(at % step != 0)
        index.append(at // step)
    pad = shape.height * shape.width
    place = index[0][:, None] * shape.width + index[1][None]
    place = np.where(between[0][:, None] | between[1][None], pad, place)
    place = np.where(inside[0][:, None] & inside[1][None], place, pad)
    return place.reshape(shape.taps, shape.pixels)


# -- integers -------------------------------------------------------------------------------------


def _direct(pixels: NDArray, kernels: NDArray, places: NDArray, shape: ConvShape) -> tuple[Ints, Ints]:
    """Exact sums as matrix products of floats, which are fast.

    Taps are added in one product of float32 as long as the largest pixel times the magnitudes of a kernel's
    weights cannot exceed 2^24: up to that number float32 represents every partial sum, in any order. A tap
    that alone can exceed it is multiplied in float64; with at most 65536 products its sum is below 2^46.
    """
    taps, lanes, count = shape.taps, pixels.shape[1], kernels.shape[3]
    weights = kernels.transpose(1, 0, 2, 3).reshape(taps, lanes, count)
    largest = max(int(pixels.max(initial=0)), -int(pixels.min(initial=0)))
    bounds = np.abs(weights.astype(np.int64)).sum(axis=1) * largest  # [taps, kernels]
    kind = np.float64 if bounds.sum(axis=0).max(initial=0) <= 1 << 53 else np.int64
    acc = np.zeros((shape.pixels, count), kind)
    operands: dict[type, NDArray] = {}
    first = 0
    while first < taps:
        reached, end = bounds[first].copy(), first + 1
        real = np.float32 if reached.max(initial=0) <= EXACT_FLOAT32 else np.float64
        while real is np.float32 and end < taps and (reached + bounds[end]).max() <= EXACT_FLOAT32:
            reached += bounds[end]
            end += 1
        if real not in operands:
            operands[real] = pixels.astype(real)
        factor = weights[first:end].reshape(-1, count).astype(real)
        step = max(1, _PRODUCT // factor.shape[0])
        for start in range(0, shape.pixels, step):
            here = places[first:end, start : start + step].T  # [pixels, taps]
            part = operands[real][here].reshape(-1, factor.shape[0]) @ factor
            acc[start : start + step] += part.astype(kind, copy=False)
        first = end
    sums = pixels.sum(axis=1, dtype=np.int64)
    return acc.astype(np.int64, copy=False), sums[places].sum(axis=0)[:, None]


def _depthwise(pixels: NDArray, kernels: NDArray, places: NDArray, shape: ConvShape) -> tuple[Ints, Ints]:
    operands, weights = pixels.astype(np.int64), kernels.astype(np.int64)
    acc = np.zeros((shape.pixels, shape.channels), np.int64)
    total = np.zeros_like(acc)
    for tap in range(shape.taps):
        values = operands[places[tap]][:, : shape.channels]
        acc += values * weights[tap, : shape.channels]
        total += values
    return acc, total


# -- floats ---------------------------------------------------------------------------------------


def _float_direct(pixels: NDArray, kernels: NDArray, places: NDArray, shape: ConvShape) -> NDArray[np.uint32]:
    """Tile sums added in order: channel group, kernel row, kernel column; binary32 bits."""
    groups, taps, lanes, count = kernels.shape
    features = Operands.of(pixels.reshape(-1, groups, lanes).transpose(1, 0, 2))
    weights = Operands.of(kernels)
    acc = np.zeros((shape.pixels, count), np.float32)
    step = max(1, _BLOCK // max(count, lanes))
    for first in range(0, shape.pixels, step):
        block = slice(first, min(first + step, shape.pixels))
        part = acc[block]
        at_once = max(1, 2 * _BLOCK // (part.shape[0] * max(count, lanes)))
        for group in range(groups):
            for tap in range(0, taps, at_once):
                here = places[tap : tap + at_once, block]
                tiles = tile_sums(shape.type, features[group][here], weights[group, tap : tap + at_once])
                with np.errstate(all="ignore"):
                    for tile in tiles:
                        part += tile
    return from_floats(acc)


def _float_depthwise(
    pixels: NDArray, kernels: NDArray, places: NDArray, shape: ConvShape
) -> NDArray[np.uint32]:
    """One product per tile, rounded to binary32 (fp16 and bf16: it has at most 22 bits), added in order."""
    operands = np.ascontiguousarray(pixels[:, : shape.channels]).view(np.float32)
    weights = np.ascontiguousarray(kernels[:, : shape.channels]).view(np.float32)
    acc = np.zeros((shape.pixels, shape.channels), np.float32)
    with np.errstate(all="ignore"):
        for tap in range(shape.taps):
            acc += operands[places[tap]] * weights[tap]
    return from_floats(acc)


# -- drain ----------------------------------------------------------------------------------------


def _drain(acc: NDArray, drained: ElementType) -> Ints:
    """Sums in the type that CORE delivers (3.8)."""
    return sign_extend(acc.astype(np.int64), 32 if drained.is_float else ACC_BITS)


def _in_groups(values: NDArray, shape: ConvShape, real_only: bool = True) -> NDArray:
    """Arrange lanes in the form of delivery: [pixels, real lanes] -> [pixels, groups, octets, 8].

    Lanes above the real ones are 0, or copies of their neighbour unless `real_only` (the single window sum).
    """
    lanes, size = shape.group_lanes, shape.octets * 8
    missing = ((0, 0), (0, shape.groups * lanes - values.shape[1]))
    out = np.pad(values, missing) if real_only else np.pad(values, missing, "edge")
    out = out.reshape(shape.pixels, shape.groups, lanes)
    out = np.pad(out, ((0, 0), (0, 0), (0, size)))[:, :, :size].copy()
    return out.reshape(shape.pixels, shape.groups, shape.octets, 8)


# -- lockstep runs --------------------------------------------------------------------------------


class Observer(Protocol):
    """Receives internal data of every completed convolution task, in the order of the tasks.

    For each task: first `cbuf` for the features, then `cbuf` for the weights, then `core` for each octet in
    the order of delivery: group, stripe, pixel, octet.
    """

    def cbuf(
        self,
        task: int,
        kind: str,
        numbers: NDArray[np.int64],
        entries: NDArray[np.uint8],
        held: NDArray[np.bool_],
    ) -> None:
        """Receive the contents of CBUF that belong to operands, after all operands have been fetched.

        Parameters
        ----------
        task
            Number of the task in its kick.
        kind
            "feature" or "weight"; if the weights are larger than their banks, the last ones in the ring.
        numbers
            Entries (64 bytes each) that hold a byte of them, int64 [n], ascending.
        entries
            Contents of the entries, uint8 [n, 64]; bytes that belong to no operand may hold data of earlier
            tasks.
        held
            Which bytes belong to an operand, bool [n, 64].
        """

    def core(self, task: int, octet: int, acc: NDArray[np.uint64], sum: NDArray[np.uint32]) -> None:
        """Receive an octet: its number in the task, `acc` as 48 bits and `sum` as 32 bits, [8] each."""


def observe(observer: Observer, task: int, cbuf: Cbuf, result: ConvResult) -> None:
    """Pass the data of one convolution task to an observer."""
    for kind in ("feature", "weight"):
        observer.cbuf(task, kind, *cbuf.occupied(kind))
    for number, (acc, total) in enumerate(zip(*result.delivered(), strict=True)):
        observer.core(task, number, acc, total)
