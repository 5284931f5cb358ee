"""Convolutions and products with constants."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.graph import Window
from rkcosim.compiler.limits import (
    CONV_DILATION,
    CONV_KERNEL,
    CONV_PAD,
    CONV_STRIDE,
    MAX_SIZE,
    MOST_COPIES,
    MOST_DENSE,
    MOST_WEIGHTS,
)

Shape = tuple[int, ...]

CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("Gemm", "MatMul", "FullyConnected")


@constraint(*CONVOLUTIONS, "MaxPool", "AveragePool")
def window_dimensions(kernel: Shape) -> str:
    """The window has two dimensions, or one along a line (1, C, L)."""
    return "" if len(kernel) == 2 else f"window {kernel}"


@constraint(*CONVOLUTIONS, kernel=CONV_KERNEL, stride=CONV_STRIDE, dilation=CONV_DILATION)
def window_limits(window: Window) -> str:
    """The kernel has at most {kernel} rows and columns, strides are at most {stride}, dilations at most
    {dilation}."""
    limits = ((window.kernel, CONV_KERNEL), (window.strides, CONV_STRIDE), (window.dilations, CONV_DILATION))
    return f"{window}" if any(max(has) > most for has, most in limits) else ""


@constraint(*CONVOLUTIONS, most=CONV_PAD)
def window_padding(pads: Shape) -> str:
    """The padding above and on the left is at most {most}."""
    return f"padding {pads}" if max(pads[:2]) > CONV_PAD else ""


@constraint(*CONVOLUTIONS)
def window_steps(pads: Shape, strides: Shape) -> str:
    """Paddings are not negative, and strides are positive."""
    return f"pads {pads}, strides {strides}" if min(pads) < 0 or min(strides) < 1 else ""


@constraint("Conv", kernel=CONV_KERNEL, stride=CONV_STRIDE)
def wide_form(window: Window, form: str) -> str:
    """A convolution with a kernel above {kernel} or a stride above {stride} is neither dilated nor
    transposed."""
    return f"{window} of a {form} convolution" if form else ""


@constraint("Conv", kernel=CONV_KERNEL)
def wide_blocks(window: Window, block: int, channels: int, found: bool) -> str:
    """A larger kernel or stride divides into blocks of some pixels, with a kernel of at most {kernel}
    blocks."""
    what = f"no division into blocks of at most {block} pixels of an axis has at most {channels} channels"
    return "" if found else f"{window}: {what}"


@constraint("Conv", stride=CONV_STRIDE, most=MOST_COPIES)
def wide_copies(window: Window, count: int) -> str:
    """With a stride of a prime factor above {stride}, there are at most {most} windows along an axis."""
    return f"{window}, {count} windows along an axis" if count > MOST_COPIES else ""


@constraint("Conv", most=MOST_DENSE, weights=f"{MOST_WEIGHTS:,}")
def wide_depthwise(window: Window, kernels: int) -> str:
    """A depthwise convolution that is computed as one over all channels has at most {most} channels and
    {weights} weights; the host takes less time for larger ones."""
    height, width = window.kernel
    fits = kernels <= MOST_DENSE and kernels**2 * height * width <= MOST_WEIGHTS
    return "" if fits else f"{window} of {kernels} channels, {kernels} times the multiplications"


@constraint("Conv", most=MAX_SIZE)
def task_width(width: int) -> str:
    """Parts of a convolution that fit CBUF are at most {most} columns wide."""
    return f"width {width}" if width > MAX_SIZE else ""


@constraint("Conv")
def fits_cbuf(case: str) -> str:
    """The rows that a window covers, and a group of kernels, fit the 12 banks of CBUF."""
    return case


@constraint("ConvTranspose")
def transposed_pads(pads: Shape, name: str, fits: bool) -> str:
    """The padding of a transposed convolution leaves out no whole pixel of the input."""
    return "" if fits else f"pads {pads} leave out whole pixels of '{name}'"


@constraint("ConvTranspose")
def transposed_attributes(names: tuple[str, ...]) -> str:
    """The size of the result is given by pads, not by output_shape or auto_pad."""
    return f"{' and '.join(names)} is given" if names else ""


@constraint("Gemm")
def plain_rows(transposed: bool) -> str:
    """The first factor is not transposed (transA is 0)."""
    return "transA is 1" if transposed else ""


@constraint(*PRODUCTS)
def constant_matrix(name: str, shape: Shape | None) -> str:
    """The second factor is a constant matrix of two dimensions."""
    if shape is None:
        return f"'{name}' is computed by the model"
    return "" if len(shape) == 2 else f"'{name}' is {shape}"


@constraint(*PRODUCTS)
def product_depth(name: str, shape: Shape, depth: int, fits: bool) -> str:
    """The depth of the matrix is the last dimension of the first factor, or its number of elements."""
    return "" if fits else f"'{name}' {shape} times depth {depth}"


@constraint(*PRODUCTS)
def product_rows(name: str, shape: Shape, rows: bool) -> str:
    """A first factor of four dimensions is the result of an operator that keeps it as rows."""
    return "" if rows else f"'{name}' {shape} is stored as a map"
