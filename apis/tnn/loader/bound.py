"""A layer with everything that is known of it before it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rkcosim.apis.tnn.loader.params import Params
from rkcosim.apis.tnn.loader.proto import LayerInfo
from rkcosim.apis.tnn.loader.resources import Array, Resource
from rkcosim.compiler.graph import ModelError

Dims = tuple[int, ...]

INT_MAX, INT_MIN = (1 << 31) - 1, -(1 << 31)
"""Ends of slices that mean the end of the dimension."""


@dataclass(frozen=True)
class Bound:
    """A layer with its parameters, its resource, and the shapes of its inputs and outputs."""

    layer: LayerInfo
    params: Params
    resource: Resource
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...] = field(default=())

    def wrong(self, text: str) -> ModelError:
        """Return an error that names the layer."""
        return ModelError(f"{self.layer.label}: {text}")

    def axis(self, value: int, beyond: int = 0, index: int = 0) -> int:
        """Return an axis of an input as a number that is not negative."""
        rank = len(self.inputs[index]) + beyond
        if not -rank <= value < rank:
            raise self.wrong(f"the axis {value} does not exist in {self.inputs[index]}")
        return value % rank

    def map(self) -> tuple[int, int, int, int]:
        """Return the shape of the first input, which must have four dimensions."""
        if len(self.inputs[0]) != 4:
            raise self.wrong(f"its input {self.inputs[0]} has not four dimensions")
        n, c, h, w = self.inputs[0]
        return n, c, h, w

    def array(self, name: str, size: int | None = None) -> Array:
        """Return an array of the resource in float32, with a number of elements."""
        found = self.resource.get(name)
        if found is None or not found.size:
            raise self.wrong(f"the .tnnmodel has no {name} for it")
        if size is not None and found.size != size:
            raise self.wrong(f"its {name} has {found.size} elements, not {size}")
        return found


def element(b: Bound) -> Array:
    """Return the constant operand of a binary layer in the shape that broadcasts to its input."""
    values, shape = b.array("element"), b.inputs[0]
    if values.ndim > 1:
        return values
    size, rank = values.size, len(shape)
    if size == 1:
        return values.reshape((1,) * max(rank, 1))
    choices = [
        (1,) + (shape[1:2]) + (1,) * (rank - 2),
        (1, *shape[1:]),
        (1,) * (rank - 1) + shape[-1:],
        (1, 1, *shape[2:]),
    ]
    for choice in choices:
        if math.prod(choice) == size:
            return values.reshape(choice)
    raise b.wrong(f"a constant of {size} elements does not fit {shape}")
