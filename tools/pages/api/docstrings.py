"""Docstrings in the form that CONTRIBUTING.md describes: a text, then sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from inspect import cleandoc

NAMED = ("Parameters", "Members", "Attributes", "Raises", "Warns")
"""Sections that consist of names with descriptions."""

PROSE = ("Returns", "Yields")
"""Sections with a description, and perhaps a type in front of it."""

TYPE = re.compile(r"None|bool|bytes|dict|float|int|list|optional|or|str|tuple|(?:\w+\.)*[A-Z]\w*")
"""A word of a type, such as `int`, `None` or `np.NDArray`."""

ITEM = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) +: +(.+)")
"""Names and what follows behind the colon."""


class DocstringError(ValueError):
    """A docstring does not have the form; the text says what is wrong."""


@dataclass
class Described:
    """Names that share a description.

    Members
    -------
    names : one or more names.
    type : what stands behind the colon if that is a type, otherwise "".
    lines : the description.
    """

    names: tuple[str, ...]
    type: str = ""
    lines: list[str] = field(default_factory=list)


@dataclass
class Docstring:
    """A docstring in its parts.

    Members
    -------
    summary : the first paragraph.
    lines : the other ones.
    named : names and descriptions of each of the sections `NAMED`.
    prose : type (or "") and lines of each of the sections `PROSE`.
    """

    summary: str = ""
    lines: list[str] = field(default_factory=list)
    named: dict[str, list[Described]] = field(default_factory=dict)
    prose: dict[str, tuple[str, list[str]]] = field(default_factory=dict)


def is_type(text: str) -> bool:
    """Whether a line of a docstring is a type rather than a description."""
    return all(TYPE.fullmatch(word) for word in re.split(r"[\[\](),| ]+", text.strip()) if word)


def parse(text: str) -> Docstring:
    """Divide a docstring into its parts.

    Raises
    ------
    DocstringError
        If it has a section of another name, or text where a name must be.
    """
    found, section = Docstring(), ""
    body: list[str] = []
    given = cleandoc(text).splitlines()
    at = 0
    while at < len(given):
        line, below = given[at], given[at + 1] if at + 1 < len(given) else ""
        if line and not line.startswith(" ") and re.fullmatch(r"-{3,}", below):
            _close(found, section, body)
            section, body = line, []
            at += 2
        else:
            body.append(line)
            at += 1
    _close(found, section, body)
    return found


def _close(found: Docstring, section: str, body: list[str]) -> None:
    """Put the lines of a section into a docstring."""
    while body and not body[-1]:
        body.pop()
    if not section:
        end = body.index("") if "" in body else len(body)
        found.summary, found.lines = " ".join(body[:end]), body[end + 1 :]
    elif section in PROSE:
        typed = len(body) > 1 and is_type(body[0]) and body[1].startswith(" ")
        rest = cleandoc("\n".join(["", *(body[1:] if typed else body)])).splitlines()
        found.prose[section] = (body[0] if typed else "", rest)
    elif section in NAMED:
        name = "Members" if section == "Attributes" else section
        found.named.setdefault(name, []).extend(_items(section, body))
    else:
        raise DocstringError(f"a section is called {section!r}")


def _items(section: str, body: list[str]) -> list[Described]:
    """Return the names of a section with their descriptions."""
    items: list[Described] = []
    for number, line in enumerate(body):
        below = body[number + 1] if number + 1 < len(body) else ""
        if line.startswith(" ") or not line:
            if not items and line:
                raise DocstringError(f"{section} begin with a description: {line.strip()!r}")
            if items:
                items[-1].lines.append(line)
        elif (match := ITEM.fullmatch(line)) and section not in ("Raises", "Warns"):
            names = tuple(match[1].split(", "))
            typed = is_type(match[2]) and below.startswith(" ")
            items.append(Described(names, match[2], []) if typed else Described(names, "", [match[2]]))
        elif re.fullmatch(r"\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*", line):
            items.append(Described(tuple(line.split(", "))))
        else:
            raise DocstringError(f"{section} have text in place of a name: {line!r}")
    for item in items:
        first, rest = item.lines[:1], item.lines[1:]
        if first and first[0].startswith(" "):
            first, rest = [], item.lines
        item.lines = [*first, *cleandoc("\n".join(["", *rest])).splitlines()]
        while item.lines and not item.lines[0]:
            item.lines.pop(0)
    return items
