"""How far a tensor is from another one: cosine, signal to noise, largest difference, error of channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.quantization.channels import by_channel, channel_axis

Array = npt.NDArray[Any]


@dataclass
class Figures:
    """How far a tensor is from the float model's, over all samples.

    Members
    -------
    cosine
        Cosine of the angle between the two tensors; 1 if both are 0.
    sqnr
        Ratio of the signal to the error in dB; None if there is no error.
    worst
        Largest absolute difference of an element.
    steps
        The same in steps of the tensor's quantisation; None for a tensor in floating point.
    channels
        Mean of the relative errors of the channels: the norm of a channel's error over the norm of the
        channel, at most 1. Channels of zeros are left out; `channels.channel_axis` says what the channels
        are. None if samples have different shapes.
    """

    cosine: float = 1.0
    sqnr: float | None = None
    worst: float = 0.0
    steps: float | None = None
    channels: float | None = None


@dataclass
class Sums:
    """Sums from which `Figures` follow.

    Members
    -------
    last
        Whether tensors of four dimensions and more have the channels last.
    both, theirs, ours, error, worst
        Products of both tensors, squares of the original, of the other one and of the difference, and the
        largest difference.
    of_channels
        Squares of the original and of the difference in each channel; None for samples of different shapes.
    """

    last: bool = False
    both: float = 0.0
    theirs: float = 0.0
    ours: float = 0.0
    error: float = 0.0
    worst: float = 0.0
    of_channels: Array | None = field(default_factory=lambda: np.zeros((2, 0)))

    def add(self, original: Array, found: Array) -> None:
        """Add the elements of one sample."""
        squares = channel_squares(original, found, self.last)
        if self.of_channels is not None:
            self.of_channels = _added(self.of_channels, squares)
        a, b = original.astype(np.float64).reshape(-1), found.astype(np.float64).reshape(-1)
        self.both += float(a @ b)
        self.ours += float(b @ b)
        self.theirs += float(squares[0].sum())
        self.error += float(squares[1].sum())
        apart = np.subtract(b, a, out=b)
        self.worst = max(self.worst, float(np.abs(apart, out=apart).max(initial=0.0)))

    def figures(self, scale: float | None = None) -> Figures:
        """Return the figures; `scale` is a step of the tensor's quantisation."""
        norm = np.sqrt(self.theirs * self.ours)
        cosine = self.both / norm if norm else float(self.theirs == self.ours)
        sqnr = None
        if self.error:
            ratio = self.theirs / self.error
            sqnr = float(10 * np.log10(ratio)) if ratio else -999.0
        channels = None if self.of_channels is None else relative_error(self.of_channels)
        return Figures(float(cosine), sqnr, self.worst, self.worst / scale if scale else None, channels)


def channel_squares(original: Array, found: Array, last: bool = False) -> Array:
    """Return the sums of the squares of a tensor and of its error in each channel, an array of two rows.

    Parameters
    ----------
    original, found
        The tensor of the float model and the one to be compared, in shapes of the same number of elements.
    last
        As for `channel_axis`.
    """
    axis = channel_axis(original.shape, last)
    a = by_channel(original.astype(np.float64), axis)
    apart = by_channel(found.reshape(original.shape).astype(np.float64), axis) - a
    return np.stack([np.einsum("ij,ij->i", rows, rows) for rows in (a, apart)])


def relative_error(squares: Array) -> float:
    """Return the mean relative error of the channels from the result of `channel_squares`."""
    signal, error = squares
    known = signal > 0
    if not known.any():
        return float(bool(error.any()))
    return float(np.minimum(np.sqrt(error[known] / signal[known]), 1.0).mean())


def _added(before: Array, more: Array) -> Array | None:
    """Return the sum of squares, None if there are other channels."""
    if not before.size:
        return more
    return before + more if before.shape == more.shape else None


def order(figures: Figures) -> float:
    """Return the SQNR in dB, infinity if there is no error: smaller is worse."""
    return float("inf") if figures.sqnr is None else figures.sqnr


def worst_of(figures: Mapping[str, Figures]) -> Figures:
    """Return the figures of the tensor with the smallest SQNR."""
    return min(figures.values(), key=order)
