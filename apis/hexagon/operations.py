"""The operations that exist here: a registry of functions on tensors, filled by the modules `host_*`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.geometry import Geometry, Padding
from rkcosim.apis.hexagon.names import NUMBERS
from rkcosim.apis.hexagon.tensors import Declared, Value

Array = npt.NDArray[Any]

Place = Literal["host", "sums", "layer", "pool", "check"]
"""Where an operation runs: on the host; its sums of products on the NPU, with the rest on the host; as a
layer of the NPU together with the operations that follow it, if that is exact; pooling on the NPU; a check or
a print of the host."""


class Arithmetic(Protocol):
    """What computes sums of products, and pooling."""

    def convolve(
        self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry
    ) -> npt.NDArray[np.int32]:
        """Return the sums of a convolution, int32 (B, OH, OW, OC).

        Parameters
        ----------
        x : uint8 (B, H, W, D).
        x_zero, w_zero : zero points, subtracted from each product's factors.
        w : uint8 (kh, kw, D, OC).
        window : the window.
        """
        ...

    def depthwise(
        self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry
    ) -> npt.NDArray[np.int32]:
        """Return the sums of a depthwise convolution, int32 (B, OH, OW, D * M), of w uint8 (kh, kw, D, M)."""
        ...

    def max_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """Return the largest code of each window, uint8 (B, OH, OW, D)."""
        ...

    def average_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """Return the average of each window's elements inside the input, uint8 (B, OH, OW, D).

        It is the sum times 32768 / count, truncated and at most 32767, rounded at bit 15.
        """
        ...


@dataclass
class NodeCall:
    """One execution of a node.

    Members
    -------
    name : name of the operation as it was appended.
    node : number of the node.
    padding : its padding.
    inputs : its inputs.
    declared : its declared outputs.
    arithmetic : computes sums of products.
    say : writes a line to the log of the graph.
    """

    name: str
    node: int
    padding: Padding
    inputs: Sequence[Value]
    declared: Sequence[Declared]
    arithmetic: Arithmetic
    say: Callable[[str], None] = field(default=lambda _: None)


Function = Callable[[NodeCall], list[Value]]


@dataclass(frozen=True)
class Operation:
    """An operation.

    Members
    -------
    name : its name, without the suffixes of its twins.
    function : computes its outputs.
    inputs, outputs : least and most number of them; None: no limit.
    place : where it runs.
    """

    name: str
    function: Function
    inputs: tuple[int, int | None]
    outputs: tuple[int, int | None]
    place: Place = "host"


OPERATIONS: dict[int, Operation] = {}
"""All operations by number, with their twins."""

TWINS = ("", "_ref", "_d32", "_d32_ref")
"""Suffixes of operations with the same result: the reference in C, and the one on blocks of 32 channels.

A graph cannot see the arrangement in blocks, except through the operations that convert it, which copy here.
"""

Limits = int | tuple[int, int | None]


def operation(
    *names: str, ins: Limits, outs: Limits, place: Place = "host"
) -> Callable[[Function], Function]:
    """Register a function for operations and their twins.

    Parameters
    ----------
    names : their names.
    ins, outs : number of inputs and outputs, or the least and most number.
    place : see `Operation`.
    """

    def limits(given: Limits) -> tuple[int, int | None]:
        return (given, given) if isinstance(given, int) else given

    def register(function: Function) -> Function:
        for name in names:
            found = Operation(name, function, limits(ins), limits(outs), place)
            for twin in TWINS:
                number = NUMBERS.get(name + twin)
                if number is not None:
                    assert number not in OPERATIONS, name + twin
                    OPERATIONS[number] = found
        return function

    return register
