"""What is left out of `make test`, which has ten minutes: `tests/heavy.toml`, and long loops inside of tests.

`make test-all` runs everything; it sets `RKCOSIM_TESTS=all`, with which loops have their full length.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TABLE = Path(__file__).with_name("heavy.toml")
VARIABLE = "RKCOSIM_TESTS"

T = TypeVar("T")


def everything() -> bool:
    """Return whether this run leaves nothing out; then the table means nothing."""
    return os.environ.get(VARIABLE) == "all"


def extent(few: T, many: T) -> T:
    """Return `many` in `make test-all`, otherwise `few`: how often a test draws, how long a loop is."""
    return many if everything() else few


@dataclass(frozen=True)
class Group:
    """Tests that are left out of `make test` for one reason.

    Members
    -------
    name : a few words.
    reason : why they are left out, and which tests look at the same things in `make test`; a sentence.
    tests : names as pytest writes them; a file or function stands for all below it, `*` for any characters.
    """

    name: str
    reason: str
    tests: tuple[str, ...]

    def has(self, test: str) -> bool:
        return any(matches(pattern, test) for pattern in self.tests)


def matches(pattern: str, test: str) -> bool:
    """Return whether a pattern of the table stands for a test."""
    return _expression(pattern).fullmatch(test) is not None


@functools.cache  # thousands of tests are compared with hundreds of patterns
def _expression(pattern: str) -> re.Pattern[str]:
    text = ".*".join(map(re.escape, pattern.split("*")))
    return re.compile(rf"{text}(::.*|\[.*)?", re.DOTALL)


def groups(table: Path = TABLE) -> list[Group]:
    """Return the groups of the table."""
    found = tomllib.loads(table.read_text(encoding="utf-8"))["group"]
    return [Group(one["name"], one["reason"], tuple(one["tests"])) for one in found]


def is_heavy(test: str, known: Iterable[Group]) -> bool:
    """Return whether a test is in one of the groups."""
    return any(group.has(test) for group in known)
