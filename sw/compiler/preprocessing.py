"""Preprocessing of a program's numbers before an input is quantised: order of channels, mean and std."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Preprocessing:
    """The function `(x - mean) / std` of each channel, after the order of the channels is reversed.

    In a `.rknn` file it belongs to the input, and the runtime computes it in float32 on numbers that a
    program gives without `pass_through`, except for codes (docs/rknn_files.md, "Inputs").

    Members
    -------
    mean, std : one number for all channels, or one for each channel of axis 1 of the model's shape.
    reverse : whether the channels are reversed first (`rgb2bgr`).
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    reverse: bool = False

    @property
    def neutral(self) -> bool:
        """Whether it changes no number."""
        return not self.reverse and not any(self.mean) and all(value == 1 for value in self.std)

    def apply(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
        """Return the numbers of the network in float32.

        Parameters
        ----------
        values
            An array in the model's shape, with the channels on axis 1.
        """
        reals = values[:, ::-1] if self.reverse else values
        if self.neutral:
            return reals.astype(np.float32, copy=False)
        trailing = (1,) * max(values.ndim - 2, 0)
        shapes = [(-1, *trailing) if len(numbers) > 1 else () for numbers in (self.mean, self.std)]
        mean = np.array(self.mean, np.float32).reshape(shapes[0])
        std = np.array(self.std, np.float32).reshape(shapes[1])
        return ((reals.astype(np.float32) - mean) / std).astype(np.float32, copy=False)
