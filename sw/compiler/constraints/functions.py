"""Reasons of the host's functions between two jobs (`rkcosim.compiler.host_steps`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.constraints.movements import (
    moved_channels,
    nearest_ranges,
    order_in_memory,
    pad_edges,
    slice_steps,
)
from rkcosim.compiler.constraints.normalisations import softmax_reason
from rkcosim.compiler.constraints.pools import average_counts_padding, average_window, max_pool_window
from rkcosim.compiler.limits import CONV_KERNEL, CONV_STRIDE, INSERTS
from rkcosim.compiler.resampling import neighbours

if TYPE_CHECKING:
    from rkcosim.compiler.steps import HostStep


@constraint("ConvTranspose", strides=", ".join(map(str, INSERTS)))
def inserted_zeros(strides: tuple[int, int]) -> str:
    """A transposed convolution has strides of {strides}; for others the host inserts the zeros."""
    return "" if set(strides) <= set(INSERTS) else f"strides {strides}"


@constraint()
def function_of_floats(function: str, codes: bool) -> str:
    """The results of a function that has only a table are bytes."""
    return "" if codes else f"the results of {function} are floats"


@constraint()
def known_function(function: str, known: bool) -> str:
    """The NPU has an operation for the function."""
    return "" if known else f"the NPU has no operation for {function}"


def function_reason(step: HostStep) -> str:
    """Return why the host computes a step: the constraint that the operation does not meet."""
    made = _REASONS.get(step.function)
    found = made(step) if made else ""
    return found or known_function.reason(step.function, False)


def _pad(step: HostStep) -> str:
    value = step.attributes.get("value") or None
    return pad_edges.reason(step.attributes["pads"], value, step.output.real) or _moved(step)


def _moved(step: HostStep) -> str:
    return moved_channels.reason(step.output.cube[0], max(part.cube[0] for part in step.inputs))


def _pick(step: HostStep) -> str:
    picks = (step.attributes["rows"], step.attributes["columns"])
    count = sum(len(neighbours(axis)) for axis in picks)
    return nearest_ranges.reason(count, step.inputs[0].cube[1:], step.output.cube[1:])


def _average(step: HostStep) -> str:
    window = step.attributes["window"].used(step.output)
    fits = max(window.kernel) <= CONV_KERNEL and max(window.strides) <= CONV_STRIDE
    return average_window.reason(window, fits) or average_counts_padding.reason(window, True, False)


_REASONS: dict[str, Callable[[HostStep], str]] = {
    "Concat": _moved,
    "Slice": lambda step: slice_steps.reason(step.attributes["strides"][1:]) or _moved(step),
    "Pad": _pad,
    "Pick": _pick,
    "Insert": lambda step: inserted_zeros.reason(step.attributes["factors"]),
    "MaxPool": lambda step: max_pool_window.reason(step.attributes["window"], False, step.output.cube[1:]),
    "AveragePool": _average,
    "Rearrange": lambda step: order_in_memory.reason(step.inputs[0].shape, step.output.shape, False),
    "Softmax": lambda step: softmax_reason(step.inputs[0], int(step.attributes["axis"]), lambda name: False),
    "Function": lambda step: function_of_floats.reason(str(step.attributes.get("function")), False),
}
