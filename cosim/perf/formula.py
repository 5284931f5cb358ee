"""What a task costs at least: the vendor's cycle formula and the DRAM bound (DESIGN 4.5, HARDWARE 9.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cosim.engines.library import DramConfig
from rtl.regs import registers

STRIPE = 16
"""Output pixels are counted in whole stripes."""

GROUPS = {6: (64, 32), 0: (32, 32), 1: (16, 32), 2: (16, 32), 3: (16, 32), 7: (16, 16)}
"""CNA precision code -> kernels of a group, channels of a weight tile (docs/hardware.md 0)."""

DEPTHWISE_GROUP = 64
OUTPUT_RATE = 8
"""Channels that the output stage takes a cycle."""

Values = Mapping[str, Mapping[str, int]]
"""Block -> register -> 32-bit value, as `cosim.golden.task.TaskReport.registers` has them."""


def conv_npu(
    pixels: int, kernels: int, channels: int, taps: int, depthwise: bool = False, precision: int = 0
) -> int:
    """Array cycles of a convolution: HARDWARE 9.6, pixels in stripes of 16.

    Parameters
    ----------
    pixels
        output pixels of the task.
    kernels, channels
        output and input channels, real ones; `channels` has no effect on a depthwise convolution.
    taps
        kernel height * width.
    precision
        CNA's code of the type; reserved ones count as int8.
    """
    stripes = math.ceil(pixels / STRIPE) * STRIPE
    if depthwise:
        return stripes * math.ceil(kernels / DEPTHWISE_GROUP) * taps
    group, tile = GROUPS.get(precision, GROUPS[0])
    return stripes * math.ceil(kernels / group) * max(taps * math.ceil(channels / tile), group // OUTPUT_RATE)


def formula_npu(values: Values) -> int:
    """Array cycles of a task from its register values; 0 for tasks without CORE (element-wise, pooling).

    Raises
    ------
    KeyError
        when a register that counts was not written.
    """
    if "CORE" not in values:
        return 0
    cna = registers()["CNA"]

    def field(register: str, name: str) -> int:
        return cna[register].decode(values["CNA"][register])[name]

    depthwise = field("CONV_CON1", "CONV_MODE") == 3
    channels = field("DATA_SIZE1", "DATAIN_CHANNEL")
    kernels = channels if depthwise else field("WEIGHT_SIZE2", "WEIGHT_KERNELS")
    taps = field("WEIGHT_SIZE2", "WEIGHT_HEIGHT") * field("WEIGHT_SIZE2", "WEIGHT_WIDTH")
    precision = field("CONV_CON1", "IN_PRECISION")
    return conv_npu(field("DATA_SIZE3", "DATAOUT_ATOMICS"), kernels, channels, taps, depthwise, precision)


def formula_ddr(bytes_read: int, bytes_written: int, dram: DramConfig | None = None) -> int:
    """DRAM cycles: all bytes at the peak rate, and each direction at the port's rate."""
    dram = dram or DramConfig()
    peak = dram.peak_bytes_per_cycle * dram.efficiency
    port = dram.port_bytes_per_cycle
    return math.ceil(max((bytes_read + bytes_written) / peak, bytes_read / port, bytes_written / port))


def formula_cycles(npu: int, bytes_read: int, bytes_written: int, dram: DramConfig | None = None) -> int:
    """Lower bound of a task: the larger of `npu` and `formula_ddr`."""
    return max(npu, formula_ddr(bytes_read, bytes_written, dram))


ddr = formula_ddr
cycles = formula_cycles
