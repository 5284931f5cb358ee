"""CORE of the task-level golden model: convolution, window sums, drain (docs/hardware.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.cna import Cbuf, ConvShape, conv_shape
from cosim.golden.task.cna_check import DEPTHWISE, stop
from cosim.golden.task.cna_weights import unpack_weights
from cosim.golden.task.context import Context
from cosim.golden.task.conv_types import INT8, ConvType, decode, type_of
from cosim.golden.task.core_float import Operands, tile_sums
from cosim.golden.task.dpu_float import from_floats
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
ACC_BITS = 48
_RUN_BIT = 24
"""Bit of MAC_GATING without which the array does not run (docs/hardware.md 3.8)."""
_HALF_BITS = (11, 23)
"""Bits of MAC_GATING that clock the even and the odd octets."""
_BLOCK = 1 << 16
"""Sums (pixels times kernels) and operands worked on at a time, so that they stay in the caches."""


class Clip(NamedTuple):
    """CLIP_TRUNCATE and ROUND_TYPE, which the DPU applies; zero for floats (docs/hardware.md 3.8, 4.3)."""

    shift: int = 0
    half_up: bool = False


class ConvResult(NamedTuple):
    """What CORE gives the DPU.

    `acc` and `sum` are int64 [pixels, shape.groups * 8 * shape.octets]; the groups of
    `shape.delivered_groups` behind them are zeros.  Integers: `acc` signed sums of 48 bits.  Floats
    (shape.is_float): `acc` binary32 bits as signed 32 bits.  `sum` the window sums as signed 32 bits, 0
    for floats and without QD_EN.
    """

    shape: ConvShape
    acc: Ints
    sum: Ints
    clip: Clip

    def delivered(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Both as [octets of the task, 8] in the order of delivery: group, stripe, pixel, octet.

        A group's pixels go through its stripes in order, so that stripes need no thought.
        """
        out = []
        missing = self.shape.delivered_groups - self.shape.groups
        behind = ((0, missing * self.shape.pixels * self.shape.octets), (0, 0))
        for values, bits in ((self.acc, ACC_BITS), (self.sum, 32)):
            lanes = (values & ((1 << bits) - 1)).reshape(
                self.shape.pixels, self.shape.groups, self.shape.octets, 8
            )
            out.append(np.pad(lanes.transpose(1, 0, 2, 3).reshape(-1, 8), behind))
        return out[0].astype(np.uint64), out[1].astype(np.uint32)


def convolve(ctx: Context, cna: View, core: View, cbuf: Cbuf) -> ConvResult:
    """Run CNA and CORE of a task.

    Raises
    ------
    GoldenHang
        for sizes and settings with which the task never ends.
    """
    drained = type_of(core.get("MISC_CFG", "PROC_PRECISION"))
    wide = bool(core.get("MISC_CFG", "DW_EN"))
    out_channels = core.get("DATAOUT_SIZE_1", "DATAOUT_CHANNEL") + 1
    try:
        shape = conv_shape(ctx, cna, 8 if wide else drained.octets, drained.is_float, out_channels)
    except GoldenHang:
        if not ctx.strict:  # CORE tells what it has to say all the same
            _check_core(ctx, cna, core)
        raise
    on = _check_core(ctx, cna, core)
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
    if drained.is_float or not core.get("MISC_CFG", "QD_EN"):
        total = np.zeros_like(total)
    channels = shape.argb or shape.channels
    ctx.report.macs += shape.pixels * shape.taps * channels * (1 if shape.depthwise else shape.kernels)
    out = _in_groups(_drain(acc, drained), shape)
    sums = _in_groups(signed_words(np.broadcast_to(total, acc.shape)), shape, real_only=shape.depthwise)
    for half in (0, 1):
        if not on[half]:
            out[:, :, half::2] = 0
            sums[:, :, half::2] = 0
    clip = Clip()
    if not drained.is_float:
        cut = "CLIP_TRUNCATE"
        clip = Clip(core.get(cut, cut), bool(core.get(cut, "ROUND_TYPE")))
    return ConvResult(shape, out.reshape(shape.pixels, -1), sums.reshape(shape.pixels, -1), clip)


def _check_core(ctx: Context, cna: View, core: View) -> tuple[bool, bool]:
    """Check the registers of CORE; return whether even and odd octets are clocked."""
    gates = core.get("MAC_GATING", "SLCG_OP_EN")
    on = [bool(gates >> bit & 1) for bit in _HALF_BITS]
    stopped: GoldenHang | None = None
    if not gates >> _RUN_BIT & 1:
        stopped = stop(ctx, core, "RESERVED_MODE", "MAC_GATING", "SLCG_OP_EN", "the array is not clocked")
    else:
        ctx.require(all(on), "RESERVED_MODE", core, "MAC_GATING", "SLCG_OP_EN", "half of the octets read 0")
    same = type_of(cna.get("CONV_CON1", "IN_PRECISION")).code == core.get("MISC_CFG", "PROC_PRECISION")
    ctx.require(same, "RESERVED_MODE", core, "MISC_CFG", "PROC_PRECISION", "not the type of CNA")
    agree = bool(core.get("MISC_CFG", "DW_EN")) == (cna.get("CONV_CON1", "CONV_MODE") == DEPTHWISE)
    ctx.require(agree, "RESERVED_MODE", core, "MISC_CFG", "DW_EN", "CORE and CNA disagree about depthwise")
    if stopped:
        raise stopped
    return on[0], on[1]


# -- operands -------------------------------------------------------------------------------------


def pad_values(cna: View, shape: ConvShape) -> NDArray:
    """Pad value of every lane as `decode` has elements, [lanes]; lanes that are not live 0 (3.5, 3.6)."""
    word = cna.get("PAD_CON1", "PAD_VALUE")
    raw = np.array([word], "<u4").view(np.uint8)
    elements = decode(shape.type, raw)
    values = np.full(shape.lanes, elements[0])
    if shape.depthwise and shape.type is INT8:
        lane = np.arange(shape.lanes) % 64
        values[(lane < 32) & (lane % 2 == 1)] = elements[1]
    values[shape.channels :] = 0
    return values


def _with_pads(image: NDArray, pad: NDArray) -> NDArray:
    """Line up all input pixels, then the pad pixel, then a zero: [rows * columns + 2, lanes]."""
    flat = image.reshape(-1, image.shape[2])
    return np.concatenate((flat, pad[None], np.zeros_like(pad)[None]))


def tap_places(shape: ConvShape) -> NDArray[np.intp]:
    """Operand of every tap of every output pixel: row of `_with_pads`, [taps, pixels] (3.4)."""
    pixel = np.arange(shape.pixels)
    size, pads = (shape.height, shape.width), (shape.pad_top, shape.pad_left)
    kernel = (shape.kernel_height, shape.kernel_width)
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
    place = np.where(between[0][:, None] | between[1][None], pad + 1, place)
    place = np.where(inside[0][:, None] & inside[1][None], place, pad)
    return place.reshape(shape.taps, shape.pixels)


# -- integers -------------------------------------------------------------------------------------


def _direct(pixels: NDArray, kernels: NDArray, places: NDArray, shape: ConvShape) -> tuple[Ints, Ints]:
    """Exact sums through matrix products of floats, which are fast.

    A sum over all channels of one tap has at most 65536 products: of int16 below 2^46, which float64
    holds; of int4 and, up to 1024 lanes, int8 it stays below 2^24, which float32 holds.
    """
    taps, lanes, count = shape.taps, pixels.shape[1], kernels.shape[3]
    narrow = lanes << 2 * (shape.type.bits - 1) <= 1 << 24
    real = np.float32 if narrow else np.float64
    operands = pixels.astype(real)
    weights = kernels.transpose(1, 0, 2, 3).reshape(taps, lanes, count).astype(real)
    sums = pixels.sum(axis=1, dtype=np.int64)
    acc = np.zeros((shape.pixels, count), np.int64)
    total = np.zeros((shape.pixels, 1), np.int64)
    for tap in range(taps):
        acc += (operands[places[tap]] @ weights[tap]).astype(np.int64)
        total += sums[places[tap]][:, None]
    return acc, total


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
    """One product a tile, rounded to binary32 (of fp16 and bf16 it has at most 22 bits), added in order."""
    operands = np.ascontiguousarray(pixels[:, : shape.channels]).view(np.float32)
    weights = np.ascontiguousarray(kernels[:, : shape.channels]).view(np.float32)
    acc = np.zeros((shape.pixels, shape.channels), np.float32)
    with np.errstate(all="ignore"):
        for tap in range(shape.taps):
            acc += operands[places[tap]] * weights[tap]
    return from_floats(acc)


# -- drain ----------------------------------------------------------------------------------------


def signed_words(value: Ints, bits: int = 32) -> Ints:
    """Wrap to signed integers of some bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def _drain(acc: NDArray, drained: ConvType) -> Ints:
    """Sums as the type of CORE delivers them (3.8)."""
    return signed_words(acc.astype(np.int64), 32 if drained.is_float else ACC_BITS)


def _in_groups(values: NDArray, shape: ConvShape, real_only: bool = True) -> NDArray:
    """Arrange lanes as they are delivered: [pixels, real lanes] -> [pixels, groups, octets, 8].

    Lanes past the real ones read 0, or like their neighbour unless `real_only` (the one window sum).
    """
    lanes, size = shape.group_lanes, shape.octets * 8
    missing = ((0, 0), (0, shape.groups * lanes - values.shape[1]))
    out = np.pad(values, missing) if real_only else np.pad(values, missing, "edge")
    out = out.reshape(shape.pixels, shape.groups, lanes)
    out = np.pad(out, ((0, 0), (0, 0), (0, size)))[:, :, :size].copy()
    return out.reshape(shape.pixels, shape.groups, shape.octets, 8)
