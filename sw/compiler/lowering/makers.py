"""What the lowering of fp16 numbers offers to operations that become many steps."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.lowering.curves import Curve
from rkcosim.compiler.steps import Step

LANES = 8
"""fp16 numbers of an atom."""


class Maker(Protocol):
    """Makes steps of one operation."""

    op: Any
    x: Tensor
    output: Tensor

    def step(self, kind: type[Step], **fields: Any) -> list[Step]:
        """Return one step."""

    def pixelwise(
        self, x: Tensor, y: Tensor, weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None = None
    ) -> list[Step]:
        """Return a convolution of one tap with weights (OC, IC)."""

    def elementwise(self, method: str, a: Tensor, b: Tensor, y: Tensor) -> list[Step]:
        """Return an operation on the elements of two tensors."""

    def curve(self, curve: Curve, x: Tensor, y: Tensor) -> list[Step]:
        """Return a table of a function between 0 and 1."""

    def reciprocal(self, x: Tensor, y: Tensor) -> list[Step]:
        """Return 1 / x."""


def like(y: Tensor, suffix: str, channels: int) -> Tensor:
    """Return a tensor with the pixels of `y` and other channels."""
    cube = (channels, *y.cube[1:])
    return Tensor(f"{y.name}.{suffix}", (1, *cube), 1.0, 0, cube, real=True)


def copied(channels: int) -> npt.NDArray[np.float64]:
    """Return the weights that copy the first of eight lanes to all channels."""
    weights = np.zeros((channels, LANES))
    weights[:, 0] = 1.0
    return weights
