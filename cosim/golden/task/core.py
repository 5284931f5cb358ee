"""CORE of the task-level golden model: exact convolution and window sums (docs/hardware.md section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import saturate, shift_even, shift_up
from cosim.golden.task.cna import DEPTHWISE_GROUP, GROUP, Cbuf, ConvShape, conv_shape, unpack_weights
from cosim.golden.task.context import Context
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]


def convolve(ctx: Context, cna: View, core: View, cbuf: Cbuf) -> tuple[ConvShape, Ints, Ints]:
    """Run CNA and CORE of a task.

    Returns
    -------
    shape, and what CORE gives the DPU: accumulators int64 [pixels, groups * group size] after
    CLIP_TRUNCATE and saturation to 32 bits, window sums int64 of the same shape (zero without QD_EN).
    """
    shape = conv_shape(ctx, cna)
    ctx.require(
        bool(core.get("MISC_CFG", "DW_EN")) == shape.depthwise,
        "RESERVED_MODE",
        core,
        "MISC_CFG",
        "DW_EN",
        "CORE and CNA disagree about depthwise mode",
    )
    ctx.require(
        core.get("MISC_CFG", "PROC_PRECISION") == 0,
        "RESERVED_MODE",
        core,
        "MISC_CFG",
        "PROC_PRECISION",
        "only int8",
    )
    image = cbuf.features(ctx, cna, shape)
    kernels = unpack_weights(cbuf.weights(ctx, cna, shape), shape)
    padded = pad_image(image, shape, pad_values(cna, shape))
    if shape.depthwise:
        acc, total = _depthwise(padded, kernels, shape)
        lanes = shape.groups * DEPTHWISE_GROUP
    else:
        acc, total = _direct(padded, kernels, shape)
        lanes = shape.groups * GROUP
    acc = np.pad(acc[: shape.pixels], ((0, 0), (0, lanes - acc.shape[1])))
    total = total[: shape.pixels]
    if shape.depthwise:
        total = np.pad(total, ((0, 0), (0, lanes - total.shape[1])))
    if not core.get("MISC_CFG", "QD_EN"):
        total = np.zeros_like(total)
    total = ((total + (1 << 31)) % (1 << 32)) - (1 << 31)
    shift = core.get("CLIP_TRUNCATE", "CLIP_TRUNCATE")
    acc = shift_up(acc, shift) if core.get("CLIP_TRUNCATE", "ROUND_TYPE") else shift_even(acc, shift)
    channels = shape.argb or shape.channels
    ctx.report.macs += shape.pixels * shape.taps * channels * (1 if shape.depthwise else shape.kernels)
    return shape, saturate(acc, 32), np.broadcast_to(total, acc.shape)


def pad_values(cna: View, shape: ConvShape) -> NDArray[np.int8]:
    """Pad value of every live lane, int8 [channels] (docs/hardware.md 3.6)."""
    word = cna.get("PAD_CON1", "PAD_VALUE")
    values = np.full(shape.channels, word & 0xFF, np.uint8)
    if shape.depthwise:
        lane = np.arange(shape.channels) % DEPTHWISE_GROUP
        values[(lane < 32) & (lane % 2 == 1)] = word >> 8 & 0xFF
    return values.view(np.int8)


def pad_image(image: NDArray[np.int8], shape: ConvShape, pad: NDArray[np.int8]) -> NDArray[np.int8]:
    """Surround the image so that every tap of every output pixel is inside.

    Row `oy * stride + kr * dilation` of the result is input row `... - PAD_TOP`, columns alike
    (docs/hardware.md 3.4).
    """
    rows = -(-shape.pixels // shape.out_width)
    height = (rows - 1) * shape.stride[0] + (shape.kernel_height - 1) * shape.dilation[0] + 1
    width = (shape.out_width - 1) * shape.stride[1] + (shape.kernel_width - 1) * shape.dilation[1] + 1
    out = np.broadcast_to(pad, (height, width, shape.channels)).copy()
    inside = image[: max(0, height - shape.pad_top), : max(0, width - shape.pad_left)]
    top, left = shape.pad_top, shape.pad_left
    out[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return out


def _tap(padded: NDArray, shape: ConvShape, row: int, column: int) -> NDArray:
    """Return the operand of one tap for all output pixels: [rows, columns, ...] as a view."""
    y, x = row * shape.dilation[0], column * shape.dilation[1]
    rows = -(-shape.pixels // shape.out_width)
    sy, sx = shape.stride
    return padded[y : y + (rows - 1) * sy + 1 : sy, x : x + (shape.out_width - 1) * sx + 1 : sx]


def _direct(padded: NDArray[np.int8], kernels: NDArray[np.int8], shape: ConvShape) -> tuple[Ints, Ints]:
    # Products of int8 sum exactly in float64 (below 2^53), and matrix products of floats are fast.
    operands, weights = padded.astype(np.float64), kernels.astype(np.float64)
    pixel_sums = padded.sum(axis=2, dtype=np.int64)
    rows = -(-shape.pixels // shape.out_width)
    acc = np.zeros((rows * shape.out_width, shape.kernels))
    total = np.zeros((rows * shape.out_width, 1), np.int64)
    for row in range(shape.kernel_height):
        for column in range(shape.kernel_width):
            acc += _tap(operands, shape, row, column).reshape(-1, shape.channels) @ weights[row, column]
            total += _tap(pixel_sums, shape, row, column).reshape(-1, 1)
    return acc.astype(np.int64), total


def _depthwise(padded: NDArray[np.int8], kernels: NDArray[np.int8], shape: ConvShape) -> tuple[Ints, Ints]:
    operands, weights = padded.astype(np.int64), kernels.astype(np.int64)
    rows = -(-shape.pixels // shape.out_width)
    acc = np.zeros((rows, shape.out_width, shape.channels), np.int64)
    total = np.zeros_like(acc)
    for row in range(shape.kernel_height):
        for column in range(shape.kernel_width):
            tap = _tap(operands, shape, row, column)
            acc += tap * weights[row, column]
            total += tap
    return acc.reshape(-1, shape.channels), total.reshape(-1, shape.channels)
