"""Read the parameter grids of GoogleTest's parametrised tests from C++ source.

Only what lists values is read: `INSTANTIATE_TEST_SUITE_P` with `Combine` of `Values`, also by a macro, and
the names of `TEST_P`. What a test does with its parameters is not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIMITS = {"FLT_MAX": 3.4028234663852886e38, "INT_MAX": 2147483647}
"""Constants of <cfloat> and <climits>."""


@dataclass(frozen=True)
class Grid:
    """The instances of a parametrised test.

    Members
    -------
    suite : the prefix and the class, "LayerTest/AbsLayerTest".
    test : the name of the test, "UnaryLayerTest".
    axes : the values of each parameter, in its order. Numbers, True and False, lists of numbers; other names
        of C++ are texts.
    """

    suite: str
    test: str
    axes: Sequence[Sequence[Any]]

    @property
    def name(self) -> str:
        """Its name in GoogleTest's filter, without the number of an instance."""
        return f"{self.suite}.{self.test}"

    def cases(self) -> list[tuple[Any, ...]]:
        """Return the parameters of each instance, in GoogleTest's order: the last one changes first."""
        return list(itertools.product(*self.axes))


def grids(text: str, macros: Mapping[str, str] | None = None) -> list[Grid]:
    """Return the parametrised tests of a source file.

    Parameters
    ----------
    text : the file.
    macros : texts of macros that stand for arguments of `Combine` (`definitions`).

    Raises
    ------
    ValueError
        If a value or an argument cannot be read, or a test has no values.
    """
    plain = _without_comments(text)
    found = {}
    for place in re.finditer(r"\bINSTANTIATE_TEST_SUITE_P\s*\(", plain):
        prefix, suite, made, *more = _arguments(plain, place.end())
        if more:
            raise ValueError(f"{suite}: names of instances are not read: {more[0]}")
        found[suite] = f"{prefix}/{suite}", _combined(made, macros or {})
    tests = re.findall(r"\bTEST_P\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", plain)
    if missing := [suite for suite, _ in tests if suite not in found]:
        raise ValueError(f"{missing[0]}: no INSTANTIATE_TEST_SUITE_P names it")
    return [Grid(found[suite][0], test, found[suite][1]) for suite, test in tests]


def definitions(text: str) -> dict[str, str]:
    """Return the macros of a header; of several definitions of a name the last one, as behind `#else`."""
    lines = _without_comments(text).replace("\\\n", " ")
    return dict(re.findall(r"^[ \t]*#define[ \t]+(\w+)[ \t]+(\S.*?)[ \t]*$", lines, re.MULTILINE))


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def _arguments(text: str, begin: int) -> list[str]:
    """Return the arguments that begin behind an opening bracket, up to its closing one."""
    depth, last, found = 0, begin, []
    for at in range(begin, len(text)):
        if text[at] in "({[":
            depth += 1
        elif text[at] in ")}]":
            depth -= 1
        if depth < 0 or (text[at] == "," and depth == 0):
            found.append(" ".join(text[last:at].split()))
            last = at + 1
        if depth < 0:
            return [word for word in found if word]
    raise ValueError(f"a bracket is not closed: {text[begin : begin + 60]!r}")


def _combined(made: str, macros: Mapping[str, str]) -> list[list[Any]]:
    called = re.match(r"(?:::)?testing::Combine\s*\(", made)
    if called is None:
        raise ValueError(f"no Combine of Values: {made[:60]!r}")
    axes = []
    for word in _spelt_out(_arguments(made, called.end()), macros):
        values = re.match(r"(?:::)?testing::Values\s*\(", word)
        if values is None:
            raise ValueError(f"no Values: {word[:60]!r}")
        axes.append([_value(one) for one in _arguments(word, values.end())])
    return axes


def _spelt_out(words: Sequence[str], macros: Mapping[str, str]) -> Iterator[str]:
    for word in words:
        if word in macros:
            yield from _arguments(f"{macros[word]})", 0)
        else:
            yield word


def _value(word: str) -> Any:
    listed = re.fullmatch(r"std::vector<(?:int|float)>\s*\(\s*\{(.*)\}\s*\)", word)
    if listed is not None:
        return [_value(number.strip()) for number in listed[1].split(",") if number.strip()]
    if word in ("true", "false"):
        return word == "true"
    if re.fullmatch(r"[+-]?\d+", word):
        return int(word)
    number = re.fullmatch(r"([+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)f?", word)
    if number is not None:
        return float(number[1])
    if word.lstrip("-") in LIMITS:
        return -LIMITS[word[1:]] if word[0] == "-" else LIMITS[word]
    if re.fullmatch(r"[A-Za-z_]\w*", word):
        return word
    raise ValueError(f"a value that is not read: {word[:60]!r}")
