"""Tensors on the edges of a graph: four sizes and bytes, whose element type the reading operation chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import Range
from rkcosim.compiler.graph import MAX_ELEMENTS

Shape = tuple[int, int, int, int]
"""Batches, height, width, depth."""

Array = npt.NDArray[Any]

DIMENSIONS = 8
"""Most dimensions of a declared output."""


class Failure(Exception):
    """A call fails; the text is written to the graph's log.

    Parameters
    ----------
    text : what is wrong, and where.
    code : value that the call returns.
    """

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Edge:
    """An input of a node: the number of the node that makes it, and which of its outputs it is."""

    source: int
    index: int


@dataclass(frozen=True)
class Declared:
    """A declared output of a node.

    Members
    -------
    sizes : largest sizes; () if only the number of bytes is declared.
    room : the most bytes that it may have.
    """

    sizes: tuple[int, ...]
    room: int

    @classmethod
    def of_sizes(cls, rank: int, sizes: tuple[int, ...], element: int) -> Declared:
        """Return an output with the sizes of each dimension and the bytes of an element."""
        kept = sizes[: min(rank, DIMENSIONS)]
        return cls(kept, math.prod(kept) * element)


@dataclass(frozen=True)
class Value:
    """A tensor.

    Members
    -------
    shape : its sizes; some tensors (strides, windows) have only these.
    data : its bytes, uint8 (n,).
    """

    shape: Shape
    data: npt.NDArray[np.uint8]

    @property
    def elements(self) -> int:
        """The product of the sizes."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element by the number of bytes, at least 1."""
        return max(1, self.data.size // max(1, self.elements))

    def array(self, dtype: npt.DTypeLike) -> Array:
        """Return the elements in the tensor's shape.

        Raises
        ------
        Failure
            if the bytes are fewer than the shape needs.
        """
        size = self.elements * np.dtype(dtype).itemsize
        if self.data.size < size:
            kind = np.dtype(dtype).name
            raise Failure(f"a tensor of {_text(self.shape)} has {self.data.size} bytes, not {size} ({kind})")
        return self.data[:size].view(dtype).reshape(self.shape)

    @property
    def codes(self) -> npt.NDArray[np.uint8]:
        """The elements as unsigned bytes."""
        return self.array(np.uint8)

    @property
    def reals(self) -> npt.NDArray[np.float32]:
        """The elements as float32."""
        return self.array(np.float32)

    @property
    def ints(self) -> npt.NDArray[np.int32]:
        """The elements as int32."""
        return self.array(np.int32)

    @property
    def raw(self) -> Array:
        """The elements as unsigned integers of their size, for operations that only move them."""
        kinds: dict[int, type[np.unsignedinteger[Any]]] = {
            1: np.uint8,
            2: np.uint16,
            4: np.uint32,
            8: np.uint64,
        }
        if self.itemsize not in kinds:
            raise Failure(f"a tensor of {_text(self.shape)} has {self.data.size} bytes")
        return self.array(kinds[self.itemsize])

    @property
    def list(self) -> list[int]:
        """All int32 of a list, for axes and sizes."""
        return [int(n) for n in self.data[: self.data.size // 4 * 4].view(np.int32)]

    @property
    def scalar(self) -> float:
        """The first float32.

        Raises
        ------
        Failure
            if there is none.
        """
        if self.data.size < 4:
            raise Failure("a scalar without a number")
        return float(self.data[:4].view(np.float32)[0])

    @property
    def whole(self) -> int:
        """The first int32; raises Failure if there is none."""
        if self.data.size < 4:
            raise Failure("a scalar without a number")
        return int(self.data[:4].view(np.int32)[0])


def check_size(*sizes: int) -> None:
    """Raise Failure if a tensor of these sizes is too large."""
    if min(sizes) < 0 or math.prod(max(1, n) for n in sizes) > MAX_ELEMENTS:
        raise Failure(f"a tensor of {' x '.join(str(n) for n in sizes)} elements")


def range_of(low: Value, high: Value) -> Range:
    """Return the range of two scalars.

    Raises
    ------
    Failure
        if a scalar has no number, or one that is not finite.
    """
    found = Range(low.scalar, high.scalar)
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        raise Failure(f"a range from {found.low:g} to {found.high:g}")
    return found


def value(array: Array) -> Value:
    """Return an array of up to four dimensions as a tensor; missing sizes are 1, before the others."""
    sizes = (1,) * (4 - array.ndim) + array.shape
    return Value(
        (sizes[0], sizes[1], sizes[2], sizes[3]), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    )


def single(number: float) -> Value:
    """Return a float32 as a tensor."""
    return value(np.full(1, number, np.float32))


def quantised(codes: Array, limits: Range) -> list[Value]:
    """Return the three tensors of a quantised one: its codes, and its scalars."""
    return [value(codes), single(limits.low), single(limits.high)]


def _text(shape: Shape) -> str:
    return "x".join(str(n) for n in shape)
