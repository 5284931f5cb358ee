"""Lower bounds of a task's cycles: the vendor's formula and the DRAM bound [HW 12.6]."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rkcosim.engines.library import DramConfig
from rkcosim.spec.regs import registers
from rkcosim.spec.types import CONV_CODES, DEPTHWISE_GROUP, STRIPE

GROUPS = {code: (kind.kernels, kind.channels) for code, kind in CONV_CODES.items()}
"""CNA precision code -> kernels per group, channels per weight tile [HW 3]."""

OUTPUT_RATE = 8
"""Channels that the output stage processes per cycle."""

Values = Mapping[str, Mapping[str, int]]
"""Block -> register -> 32-bit value, as in `rkcosim.golden.task.TaskReport.registers`."""


def conv_npu(
    pixels: int, kernels: int, channels: int, taps: int, depthwise: bool = False, precision: int = 0
) -> int:
    """Return the array cycles of a convolution: [HW 12.6], pixels in stripes of 16.

    Parameters
    ----------
    pixels
        Output pixels of the task.
    kernels, channels
        Real output and input channels; `channels` has no effect on a depthwise convolution.
    taps
        Kernel height * width.
    precision
        CNA's code of the type; reserved codes count as int8.
    """
    stripes = math.ceil(pixels / STRIPE) * STRIPE
    if depthwise:
        return stripes * math.ceil(kernels / DEPTHWISE_GROUP) * taps
    group, tile = GROUPS.get(precision, GROUPS[0])
    return stripes * math.ceil(kernels / group) * max(taps * math.ceil(channels / tile), group // OUTPUT_RATE)


def formula_npu(values: Values) -> int:
    """Return a task's array cycles from its registers; 0 for tasks without CORE (element-wise, pooling).

    Raises
    ------
    KeyError
        If a register that is needed was not written.
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


def ddr(bytes_read: int, bytes_written: int, dram: DramConfig | None = None, cores: int = 1) -> int:
    """DRAM cycles: all bytes at the bandwidth of the cores, each direction at the rate of their ports."""
    dram = dram or DramConfig()
    peak = dram.bandwidth(cores)
    port = cores * dram.port_bytes_per_cycle
    return math.ceil(max((bytes_read + bytes_written) / peak, bytes_read / port, bytes_written / port))
