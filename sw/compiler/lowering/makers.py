"""What the lowering of fp16 numbers offers to operations that become many steps."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Tensor, Window
from rkcosim.compiler.lowering.curves import Curve
from rkcosim.compiler.steps import FloatStage, Step

LANES = 8
"""fp16 numbers of an atom."""


class Maker(Protocol):
    """Makes steps of one operation."""

    op: Any
    x: Tensor
    inputs: tuple[Tensor, ...]
    output: Tensor

    @property
    def clamped(self) -> bool:
        """Whether the operation limits its results."""

    def step(self, kind: type[Step], **fields: Any) -> list[Step]:
        """Return one step."""

    def pixelwise(
        self, x: Tensor, y: Tensor, weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None = None
    ) -> list[Step]:
        """Return a convolution of one tap with weights (OC, IC)."""

    def depthwise(self, x: Tensor, y: Tensor, weights: npt.NDArray[Any], window: Window) -> list[Step]:
        """Return sums of windows with weights (rows, columns), each channel by itself."""

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


def stage(mul: float | None = None, add: float | None = None, high: float | None = None) -> FloatStage:
    """Return a stage with one factor and one summand; with `high` it is limited to 0 and this number."""
    return FloatStage(
        add=None if add is None else np.array([add], np.float32),
        mul=None if mul is None else np.array([mul], np.float16),
        relu=high is not None,
        high=high,
    )
