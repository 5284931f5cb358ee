"""Operators that compute element by element, and reductions."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint

Shape = tuple[int, ...]

SUMS = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax")


@constraint("Max", "Min")
def two_operands(count: int) -> str:
    """There are two operands."""
    return "" if count == 2 else f"{count} operands"


@constraint(*SUMS, "Div")
def operand_shapes(first: Shape, second: Shape, fits: bool) -> str:
    """Both operands have one shape, or one of them has a number for each channel or is a constant."""
    return "" if fits else f"operands {first} and {second}"


@constraint("Div")
def larger_dividend(name: str, larger: bool) -> str:
    """The dividend is not smaller than the operand that divides it."""
    return "" if larger else f"'{name}' is smaller than the operand that divides it"


@constraint("Div")
def divisor_of_bytes(name: str, numbers: int) -> str:
    """Bytes are divided by one constant number."""
    return (
        ""
        if numbers == 1
        else f"'{name}' is {'computed by the model' if not numbers else f'{numbers} numbers'}"
    )


@constraint("Div")
def divisor_of_floats(name: str, shape: Shape, fits: bool) -> str:
    """Floats are divided by a tensor, a number, or one number for each channel."""
    return "" if fits else f"'{name}' {shape}"


@constraint("Div", *SUMS)
def finite_constant(name: str, fits: bool, zeros: bool = False) -> str:
    """A constant operand is finite, and a divisor has no zeros."""
    return "" if fits else f"'{name}' {'has zeros or is' if zeros else 'is'} not all finite"


@constraint("LeakyRelu", "PRelu")
def slopes_of_channels(name: str, shape: Shape, fits: bool) -> str:
    """There is one slope, or one for each channel."""
    return "" if fits else f"slopes '{name}' {shape} are not per channel"


@constraint(*REDUCTIONS)
def reduced_axes(method: str, axes: tuple[int, ...], shape: Shape, fits: bool) -> str:
    """Maxima and means are over rows, columns or both; means and sums over the channels."""
    return "" if fits else f"a {method} over the axes {list(axes)} of {shape}"


@constraint(*REDUCTIONS)
def kept_dimensions(what: str, kept: bool) -> str:
    """The reduced dimensions stay with size 1 (keepdims), unless both rows and columns are reduced."""
    return "" if kept else f"a reduction of the {what} that removes their dimension"
