"""Which codes of a quantised tensor are in use, in each channel and each input of a Concat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES = 256
"""Codes of a tensor of 8 bits."""

FEW = 4
"""A channel whose real values differ is lost if it uses fewer codes than this; see `Codes.lost`."""

SHARE = 0.1
"""Part of the varying channels that must be lost before a tensor is named."""

MOST_CHANNELS = 4096
"""Tensors with more channels are counted as one channel."""

MOST_NAMES = 4
"""Tensors and inputs that a sentence names."""

CONCATS = ("Concat", "CONCATENATION")

FIXED_RANGE = ("Softmax", "SOFTMAX")
"""Operators whose step is fixed by their range of 0 to 1: channels of small probabilities are no finding."""


def lost(width: float, used: int, step: float) -> bool:
    """Return whether values in a range of this width that use this number of codes cannot be told apart."""
    return used < 2 or (used < FEW and width < FEW * step)


def channel_axis(shape: Sequence[int], last: bool = False) -> int | None:
    """Return the axis of a tensor's channels, None if it is counted as one channel.

    Tensors of fewer than three dimensions have one value of each channel in a sample, which says nothing of
    the codes in use.  Of three dimensions, the shorter one behind the first is the axis of the channels.

    Parameters
    ----------
    shape
        Shape of the tensor.
    last
        Whether tensors of four dimensions and more have the channels last, as in TFLite files.
    """
    if len(shape) < 3:
        return None
    axis = len(shape) - 1 if last else 1
    if len(shape) == 3:
        axis = 1 if shape[1] <= shape[2] else 2
    return axis if 1 < shape[axis] <= MOST_CHANNELS else None


def by_channel(values: Array, axis: int | None) -> Array:
    """Return an array of two dimensions whose rows are the channels."""
    if axis is None:
        return values.reshape(1, -1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


@dataclass
class Part:
    """An input of a Concat.

    Members
    -------
    name
        Name of the tensor in the float model.
    low, high
        Smallest and largest real value in the float model on the samples.
    codes
        Number of codes of the Concat's result that this input's values use.
    """

    name: str
    low: float
    high: float
    codes: int


@dataclass
class Codes:
    """Codes of a quantised tensor that are in use on the samples.

    Members
    -------
    low, high
        Smallest and largest real value in the float model.
    step
        Difference of the real values of two neighbouring codes.
    first, last
        Real values of the first and of the last code.
    lows, highs
        `low` and `high` of each channel.
    used
        Number of codes in use in each channel.
    parts
        The inputs of a Concat; empty for other operators.
    """

    low: float
    high: float
    step: float
    first: float
    last: float
    lows: list[float]
    highs: list[float]
    used: list[int]
    parts: list[Part] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        """Places of the channels whose values differ in the float model, but use fewer than `FEW` codes.

        A channel of few values that are some steps apart from each other is none of them.
        """
        several = zip(self.lows, self.highs, self.used, strict=True)
        return [
            place
            for place, (low, high, used) in enumerate(several)
            if high > low and lost(high - low, used, self.step)
        ]

    @property
    def varying(self) -> int:
        """Number of channels whose values differ in the float model."""
        return sum(high > low for low, high in zip(self.lows, self.highs, strict=True))


class CodeSums:
    """Counts from which `Codes` follow; samples are added one at a time.

    Parameters
    ----------
    scale, zero, signed
        A step, the code of 0, and whether codes are -128 to 127 instead of 0 to 255.
    last
        As for `channel_axis`.
    parts
        Names of the inputs of a Concat in the float model.
    """

    def __init__(
        self, scale: float, zero: int, signed: bool = True, last: bool = False, parts: Sequence[str] = ()
    ) -> None:
        self._scale, self._zero, self._last, self._parts = scale, zero, last, parts
        self._first = -128 if signed else 0
        self._seen: Array | None = None
        self._lows = self._highs = np.zeros(0)
        self._ranges: dict[str, list[float]] = {}
        self._of_part: dict[str, Array] = {}

    def add(self, original: Array, found: Array, inputs: Mapping[str, Array]) -> None:
        """Add a sample.

        Parameters
        ----------
        original, found
            The tensor of the float model, and the real values of the quantised one, in the same shape.
        inputs
            Tensors of the float model by name, among them those of a Concat's inputs that are no constants.
        """
        axis = channel_axis(found.shape, self._last)
        if self._seen is not None and len(self._seen) != (1 if axis is None else found.shape[axis]):
            axis, self._seen = None, np.asarray(self._seen.any(axis=0, keepdims=True))
            self._lows, self._highs = self._lows.min(keepdims=True), self._highs.max(keepdims=True)
        codes = np.rint(found.astype(np.float64) / self._scale) + self._zero - self._first
        codes = np.clip(codes, 0, CODES - 1).astype(np.intp)
        rows, real = by_channel(codes, axis), by_channel(original, axis)
        if not rows.size:
            return
        seen = _seen(rows)
        lows, highs = real.min(axis=1), real.max(axis=1)
        if self._seen is None or len(self._seen) != len(seen):
            self._seen, self._lows, self._highs = seen, lows, highs
        else:
            self._seen |= seen
            self._lows, self._highs = np.minimum(self._lows, lows), np.maximum(self._highs, highs)
        for name, place, values in self._divided(codes, inputs):
            low, high = float(values.min()), float(values.max())
            known = self._ranges.setdefault(name, [low, high])
            known[:] = min(known[0], low), max(known[1], high)
            used = _seen(codes[place].reshape(1, -1))[0]
            self._of_part[name] = used | self._of_part.get(name, used)

    def _divided(
        self, codes: Array, inputs: Mapping[str, Array]
    ) -> Iterator[tuple[str, tuple[slice, ...], Array]]:
        """Yield name, place in the result and values of each input of a Concat."""
        arrays = [inputs.get(name) for name in self._parts]
        given = [one for one in arrays if one is not None and one.size]
        if len(given) != len(arrays) or any(one.ndim != codes.ndim for one in given):
            return
        for axis in range(codes.ndim):
            if sum(one.shape[axis] for one in given) != codes.shape[axis]:
                continue
            begin = 0
            for name, one in zip(self._parts, given, strict=True):
                end = begin + one.shape[axis]
                yield name, (*[slice(None)] * axis, slice(begin, end)), one
                begin = end
            return

    def codes(self) -> Codes | None:
        """Return the counts; None if no sample was added."""
        if self._seen is None:
            return None
        edges = [self._scale * (code + self._first - self._zero) for code in (0, CODES - 1)]
        return Codes(
            float(self._lows.min()),
            float(self._highs.max()),
            self._scale,
            edges[0],
            edges[1],
            [_short(value) for value in self._lows],
            [_short(value) for value in self._highs],
            [int(count) for count in self._seen.sum(axis=1)],
            [
                Part(name, low, high, int(self._of_part[name].sum()))
                for name, (low, high) in self._ranges.items()
            ],
        )


def _seen(rows: Array) -> Array:
    """Return for each row which of the codes it has."""
    places = rows + np.arange(len(rows))[:, None] * CODES
    seen = np.zeros(len(rows) * CODES, bool)
    seen[places.reshape(-1)] = True
    return seen.reshape(len(rows), CODES)


def _short(value: float) -> float:
    """Return a number with six significant digits, so that documents stay short."""
    return float(f"{value:.6g}")


def sentence(tensor: str, op: str, name: str, codes: Codes) -> str | None:
    """Return what is wrong with the codes of a tensor; None if less than `SHARE` of its channels are lost.

    Parameters
    ----------
    tensor, op, name
        Name of the tensor, and operator and name of the layer that computes it.
    codes
        Its codes.
    """
    if op in FIXED_RANGE:
        return None
    few = [
        part
        for part in codes.parts
        if part.high > part.low and lost(part.high - part.low, part.codes, codes.step)
    ]
    places = codes.lost
    if not few and (not places or len(places) < SHARE * codes.varying):
        return None
    said = []
    if places:
        low, high = min(codes.lows[n] for n in places), max(codes.highs[n] for n in places)
        count = len(codes.used)
        who = f"{len(places)} of {count} channels of '{tensor}' use" if count > 1 else f"'{tensor}' uses"
        said.append(
            f"{who} fewer than {FEW} of {CODES} codes: range {low:.3g}..{high:.3g} against a step of "
            f"{codes.step:.3g}"
        )
    parts = codes.parts
    if parts:
        named = sorted(parts, key=lambda part: part.codes)[:MOST_NAMES] if len(parts) > MOST_NAMES else parts
        shown = ", ".join(
            f"{part.name} {part.low:.3g}..{part.high:.3g} ({part.codes} codes)" for part in named
        )
        rest = len(parts) - MOST_NAMES
        more = f" and {rest} more" if rest > 0 else ""
        step = "" if places else f" share a step of {codes.step:.3g}"
        said.append(f"inputs of {op} '{name}'{step}: {shown}{more}")
    return "; ".join(said)
