"""What a task costs at least: the vendor's cycle formula and the DRAM bound (DESIGN 4.5, HARDWARE 9.6)."""

from __future__ import annotations

import math

from cosim.engines.library import DramConfig


def conv_npu(pixels: int, kernels: int, channels: int, taps: int, depthwise: bool = False) -> int:
    """Array cycles of an int8 convolution: HARDWARE 9.6, pixels in stripes of 16.

    Parameters
    ----------
    pixels
        output pixels of the task.
    kernels, channels
        output and input channels, real ones.
    taps
        kernel height * width.
    """
    stripes = math.ceil(pixels / 16) * 16
    if depthwise:
        return stripes * math.ceil(kernels / 64) * taps
    return stripes * math.ceil(kernels / 32) * max(taps * math.ceil(channels / 32), 4)


def ddr(bytes_read: int, bytes_written: int, dram: DramConfig | None = None) -> int:
    """DRAM cycles: all bytes at the peak rate, and each direction at the port's rate."""
    dram = dram or DramConfig()
    peak = dram.peak_bytes_per_cycle * dram.efficiency
    port = dram.port_bytes_per_cycle
    return math.ceil(max((bytes_read + bytes_written) / peak, bytes_read / port, bytes_written / port))


def cycles(npu: int, bytes_read: int, bytes_written: int, dram: DramConfig | None = None) -> int:
    """`formula_cycles`: the larger of `npu` and `ddr`."""
    return max(npu, ddr(bytes_read, bytes_written, dram))
