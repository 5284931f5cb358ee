"""Constant operands of a convolution in the layout that the NPU reads: weights, bias table, slopes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.steps import ConvStep
from rkcosim.compiler.tiling import Tile
from rkcosim.spec.layouts import pack_alu_table, pack_bs_table, pack_weights, pack_weights_depthwise

FLOAT_TABLE_BYTES = 4
"""Bytes of a bias in fp32."""

SLOPE_BYTES = 2
"""Bytes per channel in a table of slopes or second multipliers."""

TABLE_BYTES = 8
"""Bytes per channel in the bias table: 64 per eight channels [HW 3.7]."""


def packed_weights(step: ConvStep, tile: Tile) -> npt.NDArray[np.uint8]:
    """Return the packed weights of a tile's kernels."""
    part = step.weights[tile.first_kernel : tile.first_kernel + tile.kernels]
    if step.depthwise:
        return pack_weights_depthwise(part[:, 0], fill=step.weight_zero)
    return pack_weights(part, fill=step.weight_zero)


def table_entry(step: ConvStep) -> int:
    """Bytes per channel in the bias table."""
    return FLOAT_TABLE_BYTES if step.output.real else TABLE_BYTES


def bias_table(step: ConvStep) -> npt.NDArray[np.uint8]:
    """Table of A = bias - input zero * sum(w - w_zero), B = -w_zero, C = multiplier ([HW 3.7], [HW 14.2]).

    Raises
    ------
    ModelError
        If an A does not fit 32 bits.
    """
    if step.output.real:
        bias = np.zeros(-(-step.bias.size // 64) * 64 + 64, dtype=np.float32)
        bias[: step.bias.size] = step.bias
        return pack_alu_table(bias.view(np.int32))
    sums = (step.weights.astype(np.int64) - step.weight_zero).reshape(step.weights.shape[0], -1).sum(1)
    alu = step.bias - step.x_zero * sums
    limit = 2**31
    if np.abs(alu).max() >= limit:
        raise ModelError(f"{step.kind} '{step.name}': a bias does not fit 32 bits")
    count = -(-len(alu) // 64) * 64 + 32  # whole groups after the last tile's first kernel
    table = np.zeros((3, count), dtype=np.int64)
    table[0, : len(alu)] = alu
    table[1, : len(alu)] = -step.weight_zero
    table[2, : len(alu)] = step.multipliers
    return pack_bs_table(table[0], table[1], table[2])


def channel_words(values: npt.NDArray[np.int64], channels: int) -> npt.NDArray[np.uint8]:
    """Multipliers for NRDMA: 16 bits per channel, whole groups of 32 channels [HW 8.3]."""
    table = np.zeros(-(-channels // 32) * 32, dtype="<i2")
    table[: values.size] = values
    return table.view(np.uint8)
