"""Maxima and averages over windows."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.graph import Window
from rkcosim.compiler.limits import CONV_KERNEL, CONV_STRIDE, PPU_KERNEL, PPU_OPEN_RESULTS, PPU_PAD


@constraint("MaxPool", kernel=PPU_KERNEL, pad=PPU_PAD, results=PPU_OPEN_RESULTS)
def max_pool_window(window: Window, whole: bool, size: tuple[int, ...]) -> str:
    """A maximum has a window of at most {kernel} x {kernel}, strides of at most {kernel}, padding of at most
    {pad}, and the result has one row, or rows of the window times its columns are at most {results}."""
    fits = (
        max(window.kernel) <= PPU_KERNEL
        and max(window.pads) <= PPU_PAD
        and (max(window.strides) <= PPU_KERNEL or whole)
        and (window.kernel[0] * size[1] <= PPU_OPEN_RESULTS or size[0] == 1)
    )
    return "" if fits else f"{window}, result {size}"


@constraint("AveragePool")
def average_counts_padding(window: Window, outside: bool, counted: bool) -> str:
    """Windows of an average do not reach into padding, or padding counts as zeros (count_include_pad)."""
    return f"{window} reaches into padding that does not count" if outside and not counted else ""


@constraint("AveragePool", "GlobalAveragePool", "ReduceMean", kernel=CONV_KERNEL, stride=CONV_STRIDE)
def average_window(window: Window, fits: bool) -> str:
    """An average has a window of at most {kernel} x {kernel} and strides of at most {stride}, or it is that
    of a whole map that divides into blocks of these sizes, without padding."""
    return "" if fits else f"{window}"


@constraint("MaxPool", "AveragePool")
def pool_dilations(dilations: tuple[int, ...]) -> str:
    """Windows of pools are not dilated."""
    return f"dilations {dilations}" if tuple(dilations) != (1, 1) else ""


@constraint("AveragePool")
def average_inside_padding(size: tuple[int, ...], fits: bool) -> str:
    """With ceil_mode and count_include_pad, no window of an average reaches past the padding."""
    return "" if fits else f"a window of the result {size} reaches past the padding"
