"""A kind of file, and the results of its inputs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.base import BAD_INPUT, DEVICE_ERROR


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Members
    -------
    make : writes valid files to an empty folder and returns the one that is passed to the reader.
    read : the reader; returns if it accepts the file, raises if it refuses it.
    text : whether the file is a JSON document, whose values are changed too.
    change : changes a valid file, given its bytes, and corrects its checksums.
    codes : exit codes with which the reader may refuse a file.
    sound : whether the reader accepts the valid files.
    others : makes further contents of that file, which one of `SELDOM` cases
        changes: larger ones, forms that
        are seldom, and small files that become large when they are unpacked.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    text: bool = False
    change: Callable[[Path, bytes, random.Random], None] | None = None
    codes: tuple[int, ...] = (BAD_INPUT, DEVICE_ERROR)
    sound: bool = True
    others: Callable[[], Sequence[bytes]] = tuple


SELDOM = 64
"""One of so many cases changes one of `Kind.others`."""

MOST_WRONG = 100
"""Largest number of failures of a kind that are kept in words."""


@dataclass
class KindReport:
    """Results of the inputs of a kind.

    Members
    -------
    taken : number of accepted inputs.
    refused : number of refused inputs by class of the error.
    failed : number of failures.
    wrong : failures in words, the first `MOST_WRONG`.
    slowest : seconds of the processor of the slowest input.
    largest : largest resident memory in bytes of a process that read an input.
    seconds : of the processor, of all inputs together.
    """

    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0
    seconds: float = 0.0

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return self.taken + self.refused.total() + self.failed

    def fail(self, text: str) -> None:
        """Count an input as a failure."""
        self.failed += 1
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(text)

    def unfit(self, text: str) -> None:
        """Count an input that was accepted or refused, which does not matter then, as a failure."""
        if self.taken:
            self.taken -= 1
        elif self.refused:
            self.refused[next(iter(self.refused))] -= 1
        self.fail(text)

    def add(self, other: KindReport) -> None:
        """Add the results of further inputs."""
        self.taken += other.taken
        self.refused += other.refused
        self.failed += other.failed
        self.wrong += other.wrong[: MOST_WRONG - len(self.wrong)]
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)
        self.seconds += other.seconds
