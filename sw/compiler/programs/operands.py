"""Constant operands of a convolution as the NPU reads them: weights, bias table, slopes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import ModelError
from sw.compiler.steps import ConvStep, Slopes
from sw.compiler.tiling import Tile
from sw.layouts import pack_alu_table, pack_bs_table, pack_weights, pack_weights_depthwise

FLOAT_TABLE_BYTES = 4
"""Bytes of an fp32 bias."""

SLOPE_BYTES = 2
"""Bytes of a channel in a table of slopes."""

TABLE_BYTES = 8
"""Bytes of bias table a channel: 64 per eight (HARDWARE 3.7)."""


def packed_weights(step: ConvStep, tile: Tile) -> npt.NDArray[np.uint8]:
    """The weights of a tile's kernels."""
    part = step.weights[tile.first_kernel : tile.first_kernel + tile.kernels]
    if step.depthwise:
        return pack_weights_depthwise(part[:, 0], fill=step.weight_zero)
    return pack_weights(part, fill=step.weight_zero)


def table_entry(step: ConvStep) -> int:
    """Bytes of a channel in the bias table."""
    return FLOAT_TABLE_BYTES if step.output.real else TABLE_BYTES


def bias_table(step: ConvStep) -> npt.NDArray[np.uint8]:
    """A = bias - input zero * sum(w - w_zero), B = -w_zero, C = multiplier (HARDWARE 3.7, 5.11).

    Raises
    ------
    ModelError
        for an A beyond 32 bits.
    """
    if step.output.real:
        bias = np.zeros(-(-step.bias.size // 64) * 64 + 64, dtype=np.float32)
        bias[: step.bias.size] = step.bias
        return pack_alu_table(bias.view(np.int32))
    sums = (step.weights.astype(np.int64) - step.weight_zero).reshape(step.weights.shape[0], -1).sum(1)
    alu = step.bias - step.x_zero * sums
    limit = 2**31
    if np.abs(alu).max() >= limit:
        raise ModelError(f"{step.kind} '{step.name}': a bias passes 32 bits")
    count = -(-len(alu) // 64) * 64 + 32  # whole groups behind the last tile's first kernel
    table = np.zeros((3, count), dtype=np.int64)
    table[0, : len(alu)] = alu
    table[1, : len(alu)] = -step.weight_zero
    table[2, : len(alu)] = step.multipliers
    return pack_bs_table(table[0], table[1], table[2])


def slope_table(slopes: Slopes, channels: int) -> npt.NDArray[np.uint8]:
    """Multipliers for NRDMA, 16 bits a channel, whole groups of 32 channels (docs/hardware.md 5.3)."""
    table = np.zeros(-(-channels // 32) * 32, dtype="<i2")
    table[: slopes.words.size] = slopes.words
    return table.view(np.uint8)
