"""Named choices of a draw: each depends only on seed and name, so that single ones can be changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Refused(Exception):
    """A draw breaks a documented rule or a bound; it is repeated and counted."""


@dataclass(frozen=True)
class Choice:
    """One choice that was made: an integer in [low, high]; `simple` is the simplest value."""

    key: str
    value: int
    low: int
    high: int
    simple: int


class Chooser:
    """Makes the choices of one draw.

    A choice depends only on the seed, its label and the number of earlier requests of the label. Forcing one
    choice therefore does not change any other.

    Parameters
    ----------
    seed : identifies the draw.
    forced : choice key -> value that replaces the drawn one (clipped to the choice's range).
    """

    def __init__(self, seed: Sequence[int | str], forced: Mapping[str, int] | None = None) -> None:
        self._key = hashlib.blake2b(repr(tuple(seed)).encode(), digest_size=16).digest()
        self._forced = dict(forced or {})
        self._count: dict[str, int] = {}
        self._shared: dict[str, bool] = {}
        self.made: list[Choice] = []

    def _name(self, label: str) -> str:
        count = self._count.get(label, 0)
        self._count[label] = count + 1
        return f"{label}#{count}" if count else label

    def _bits(self, name: str) -> int:
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=self._key).digest(), "little")

    def _take(self, name: str, value: int, low: int, high: int, simple: int) -> int:
        if name in self._forced:
            value = min(max(self._forced[name], low), high)
        self.made.append(Choice(name, value, low, high, simple))
        return value

    def integer(self, label: str, low: int, high: int, simple: int | None = None) -> int:
        """Return an integer in [low, high], all equally likely."""
        name = self._name(label)
        if high < low:
            raise Refused(f"{label}: nothing between {low} and {high}")
        value = low + self._bits(name) % (high - low + 1)
        return self._take(name, value, low, high, low if simple is None else simple)

    def corner(self, label: str, low: int, high: int, simple: int | None = None) -> int:
        """Return an integer in [low, high]; the ends, zero and powers of two are frequent."""
        name = self._name(label)
        if high < low:
            raise Refused(f"{label}: nothing between {low} and {high}")
        bits = self._bits(name)
        kind, rest, span = bits & 7, bits >> 8, high - low + 1
        if kind < 4:
            value = low + rest % span
        elif kind == 4:
            value = low
        elif kind == 5:
            value = high
        else:
            size = rest % (max(abs(low), abs(high)).bit_length() + 1)
            value = (1 << size) - (rest >> 8 & 1)
            if low < 0 and rest >> 9 & 1:
                value = -value
            value = min(max(value, low), high)
        return self._take(name, value, low, high, low if simple is None else simple)

    def chance(self, label: str, p: float) -> bool:
        """Return True with probability p; False is the simple choice."""
        name = self._name(label)
        hit = self._bits(name) % (1 << 20) < p * (1 << 20)
        return bool(self._take(name, int(hit), 0, 1, 0))

    def shared(self, label: str, p: float) -> bool:
        """Like `chance`, but with the same answer each time the label is requested."""
        if label not in self._shared:
            self._shared[label] = self.chance(label, p)
        return self._shared[label]

    def pick(self, label: str, options: Sequence[T]) -> T:
        """Return one of the options (a repeated one is likelier); the first is the simple choice."""
        return options[self.integer(label, 0, len(options) - 1)]

    def real(self, label: str, low: float, high: float) -> float:
        """Return a real number in [low, high], in 1024 steps."""
        return low + (high - low) * self.integer(label, 0, 1024, 512) / 1024

    def word(self, label: str, bits: int) -> int:
        """Return a bit pattern: random bits, all ones, a single one, or zero."""
        return self.corner(label, 0, (1 << bits) - 1)

    def rng(self, label: str) -> np.random.Generator:
        """Return a source of data for arrays; it is not a choice."""
        return np.random.Generator(np.random.SFC64(self._bits(self._name(f"data {label}"))))
