"""What a value name of a QDQ model can stand for while its nodes are walked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import MAX_ELEMENTS, Clamp, ModelError, Op

Shape = tuple[int, ...]
Cube = tuple[int, int, int]


@dataclass(frozen=True)
class Input:
    """A model input that no QuantizeLinear has seen yet."""

    name: str
    shape: Shape
    dtype: str
    given: Shape
    """Shape of the model's input; `shape` is the one after reshapes."""


@dataclass(frozen=True)
class Constant:
    """An initializer, with the quantisation of a DequantizeLinear on it."""

    array: npt.NDArray[Any]
    scale: npt.NDArray[np.float64] | None = None
    zero: npt.NDArray[Any] | None = None
    axis: int = 0

    def _spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.size == 1:
            return values.reshape(())
        shape = [1] * self.array.ndim
        shape[self.axis] = -1
        return values.reshape(shape)

    def real(self) -> npt.NDArray[Any]:
        """The numbers it stands for (the array itself when it is not quantised)."""
        if self.scale is None or self.zero is None:
            return self.array
        codes = self.array.astype(np.int64) - self._spread(self.zero).astype(np.int64)
        return codes * self._spread(self.scale)


@dataclass(frozen=True)
class Quantised:
    """The bytes of a tensor."""

    tensor: str


@dataclass(frozen=True)
class Real:
    """A tensor after its DequantizeLinear, possibly reshaped."""

    tensor: str
    shape: Shape
    cube: Cube


@dataclass(frozen=True)
class Pending:
    """An operation whose result has no quantisation yet."""

    build: Callable[[str, Clamp], Op]
    shape: Shape
    cube: Cube
    clamp: Clamp = field(default=Clamp())
    clampable: bool = True
    """Whether a Relu or Clip behind it can be taken up."""

    def finish(self, output: str) -> Op:
        """The operation, writing the tensor `output`."""
        return self.build(output, self.clamp)

    def clamped(self, clamp: Clamp) -> Pending:
        """The operation with one more clamp behind it."""
        return replace(self, clamp=self.clamp.then(clamp))

    def reshaped(self, shape: Shape, cube: Cube) -> Pending:
        """The operation with its result seen in another shape."""
        return replace(self, shape=shape, cube=cube)


@dataclass(frozen=True)
class Host:
    """Real numbers computed by the host."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Broken:
    """The result of a node that could not be read; its error is reported at the end."""


Value = Input | Constant | Quantised | Real | Pending | Host | Broken


def natural_cube(shape: Shape, what: str) -> Cube:
    """Return the cube (C, H, W) in which the NPU keeps a tensor of `shape`.

    (1, C, H, W) as it is; (M, K) and (1, M, K) as K channels of M rows of one pixel.

    Raises
    ------
    ModelError
        for a batch above one or a shape of other dimensions; `what` names the tensor.
    """
    if min(shape, default=1) < 1 or math.prod(shape) > MAX_ELEMENTS:
        raise ModelError(f"{what}: shape {shape} is not supported")
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3 and shape[0] == 1:
        return shape[2], shape[1], 1
    if len(shape) == 2:
        return shape[1], shape[0], 1
    if len(shape) == 1:
        return shape[0], 1, 1
    raise ModelError(f"{what}: shape {shape} is not supported; use (1, C, H, W) or (M, K)")


def reshaped_cube(cube: Cube, shape: Shape) -> Cube | None:
    """Return the cube under which the same bytes serve the new shape, or None."""
    if math.prod(cube) != math.prod(shape):
        return None
    flat = len(shape) >= 1 and sorted(shape)[-1] == math.prod(shape)
    if flat and (len(shape) == 1 or shape[1] == math.prod(shape)):
        return cube
    try:
        wanted = natural_cube(shape, "reshape")
    except ModelError:
        return None
    return cube if wanted == cube else None
