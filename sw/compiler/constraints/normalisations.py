"""Softmax and the normalisations of rows, in fp16."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.constraints.placement import followed_by_npu
from rkcosim.compiler.graph import HostOp, Tensor, channels_last
from rkcosim.compiler.limits import MAX_PIXELS, MAX_UNALIGNED, SMALL
from rkcosim.spec.layouts.features import atom_channels

NORMALISATIONS = ("LayerNormalization", "RMSNormalization")
OF_MAPS = ("InstanceNormalization", "GroupNormalization")


@constraint("Softmax", *NORMALISATIONS, *OF_MAPS)
def input_of_floats(real: bool, name: str) -> str:
    """The input is a tensor of floats, which the NPU computes in fp16."""
    return "" if real else f"'{name}' is a tensor of bytes"


@constraint("Softmax")
def softmax_axis(x: Tensor, axis: int) -> str:
    """The axis are the channels: the last one of rows (1, M, K), axis 1 of a map or a line (1, C, L)."""
    shape = x.shape
    axis %= len(shape)
    line = len(shape) == 3 and x.cube == (shape[1], 1, shape[2])
    if line or (len(shape) == 4 and shape == (1, *x.cube)):
        fits = axis == 1
    else:
        rows = x.cube == (shape[-1], math.prod(shape[:-1]), 1) and channels_last(x)
        fits = rows and axis == len(shape) - 1
    return "" if fits else f"axis {axis} of {shape}"


@constraint("Softmax")
def softmax_rows(channels: int, rows: int) -> str:
    """There are at least 2 channels and 2 rows or pixels."""
    return f"{rows} rows of {channels} channels" if min(channels, rows) < 2 else ""


@constraint(*NORMALISATIONS, most=MAX_PIXELS)
def normalised_rows(channels: int, rows: int) -> str:
    """There are at least 2 channels and at most {most} rows."""
    return f"{rows} rows of {channels} channels" if channels < 2 or rows > MAX_PIXELS else ""


@constraint("Softmax", *NORMALISATIONS, *OF_MAPS, most=SMALL)
def worth_a_job(elements: int) -> str:
    """There are more than {most} elements; the host takes less time for fewer ones."""
    return f"it has {elements} elements" if elements <= SMALL else ""


@constraint("Softmax", most=MAX_UNALIGNED)
def softmax_atoms(channels: int, name: str, product: bool) -> str:
    """The channels are a multiple of 8, or at most {most} and the input is a product of two activations."""
    if channels % atom_channels(2) == 0 or (channels <= MAX_UNALIGNED and product):
        return ""
    return f"{channels} channels of '{name}'" + (", which is no product" if not product else "")


@constraint(*NORMALISATIONS)
def normalised_axis(axis: int, shape: tuple[int, ...], rows: bool) -> str:
    """The axis is the last one of rows (1, M, K) or (M, K)."""
    return "" if rows and axis % len(shape) == len(shape) - 1 else f"axis {axis} of {shape}"


@constraint(*NORMALISATIONS, *OF_MAPS)
def normalised_range(names: tuple[str, ...], finite: bool) -> str:
    """Scale and bias are within the range of fp16."""
    return "" if finite else f"{' or '.join(repr(name) for name in names)} has larger numbers"


@constraint(*OF_MAPS)
def group_count(groups: int, channels: int) -> str:
    """The groups divide the channels."""
    return f"{groups} groups of {channels} channels" if groups < 1 or channels % groups else ""


@constraint(*OF_MAPS)
def pixels_of_a_map(pixels: int, channels: int) -> str:
    """The map or line has at least 2 pixels."""
    return f"{channels} channels of {pixels} pixels" if pixels < 2 else ""


def softmax_reason(x: Tensor, axis: int, is_product: Callable[[str], bool]) -> str:
    """Return why the NPU does not compute a Softmax of a tensor between two of its operations; "" if it does.

    Parameters
    ----------
    x
        The input.
    axis
        The axis of its shape.
    is_product
        Tells of the input's name whether it is a product of two activations.
    """
    channels, rows, columns = x.cube
    return (
        input_of_floats.reason(x.real, x.name)
        or softmax_rows.reason(channels, rows * columns)
        or softmax_axis.reason(x, axis)
        or worth_a_job.reason(x.elements)
        or softmax_atoms.reason(channels, x.name, is_product(x.name))
    )


def last_softmax_reason(x: Tensor | None, op: HostOp) -> str:
    """Return why the NPU does not compute a Softmax whose result no operation of the NPU reads.

    Parameters
    ----------
    x
        The input if it is a tensor of the NPU.
    op
        The Softmax.
    """
    found = ""
    if x is not None and x.shape == op.attributes.get("shape"):
        found = softmax_reason(x, cast(int, op.attributes.get("axis", -1)), lambda name: False)
    return found or followed_by_npu.reason(False, op.output)
