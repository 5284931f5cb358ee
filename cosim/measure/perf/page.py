"""Checked-in figures: JSON files with a version, and sections of Markdown pages.

Commands and `tools/pages` write each section between two marker comments:

    <!-- bench: begin -->
    ...
    <!-- bench: end -->

Text outside of the markers is written by hand and never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rkcosim.base import PACKAGE
from rkcosim.waves.whole_file import whole_file

SECTIONS = (
    "bench",
    "networks",
    "fast",
    "growth",
    "layers",
    "validate",
    "rknn",
    "errors",
    "constants",
    "estimator",
    "counters",
)
"""Names of the sections of `PAGE`."""

_NAME = re.compile(r"[a-z][a-z ]*")
_MARKER = re.compile(rf"<!-- ({_NAME.pattern}): (begin|end) -->")

PAGE = PACKAGE / "docs" / "results" / "performance.md"
"""The page of this repository."""


class PageError(ValueError):
    """The page or section cannot be written; the text says which line is wrong or missing."""


def markers(name: str) -> tuple[str, str]:
    """Return the lines before and after a section.

    Raises
    ------
    PageError
        If the name is not of small letters.
    """
    if not _NAME.fullmatch(name):
        raise PageError(f"{name!r} is no name of a section: small letters")
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def write_section(name: str, markdown: str, page: Path) -> None:
    """Replace the contents of one section; if the page does not exist, create it with that section.

    Parameters
    ----------
    name : name of the section, as in its markers.
    markdown : the new contents, without markers; white space around it is removed.
    page : file to change; it is replaced atomically.

    Raises
    ------
    PageError
        If the name is none of a section, the markdown contains a marker, or a marker of the page is missing
        or duplicated.
    OSError
        If the page cannot be read or written.
    """
    begin, end = markers(name)
    for line in markdown.splitlines():
        if _MARKER.fullmatch(line.strip()):
            raise PageError(f"the text for section {name!r} contains a marker: {line.strip()}")
    text = f"{begin}\n{markdown.strip()}\n{end}\n"
    if page.exists():
        lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
        first, last = _place(lines, name, page)
        text = "".join(lines[:first]) + text + "".join(lines[last + 1 :])
    else:
        text = f"# Performance\n\n{text}"
    with whole_file(page) as part:
        part.write_text(text)
        if page.exists():
            part.chmod(page.stat().st_mode)


def read_section(name: str, page: Path) -> str:
    """Return the contents of a section, "" if it is empty.

    Raises
    ------
    PageError
        As for `write_section`.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    first, last = _place(lines, name, page)
    return "\n".join(lines[first + 1 : last]).strip()


def check_section(name: str, page: Path) -> None:
    """Check before the work that `write_section` will find its section (same errors)."""
    markers(name)
    if page.exists():
        _place(page.read_text(encoding="utf-8").splitlines(), name, page)


def _place(lines: list[str], name: str, page: Path) -> tuple[int, int]:
    """Return the indices of a section's marker lines; all markers of the page are checked."""
    found: dict[str, tuple[int, int]] = {}
    opened: tuple[str, int] | None = None
    for index, line in enumerate(lines):
        marker = _MARKER.fullmatch(line.strip())
        if marker is None:
            continue
        of, kind = marker.groups()
        place = f"{page}, line {index + 1}: {marker[0]}"
        if kind == "end":
            if opened is None or opened[0] != of:
                raise PageError(f"{place} has no begin before it")
            found[of] = opened[1], index
            opened = None
            continue
        if opened is not None:
            raise PageError(f"{place} is inside the section {opened[0]!r}, which has not ended")
        if of in found:
            raise PageError(f"{place} appears a second time")
        opened = of, index
    if opened is not None:
        raise PageError(f"{page}, line {opened[1] + 1}: section {opened[0]!r} has no end")
    if name not in found:
        begin, end = markers(name)
        raise PageError(f"{page} has no section {name!r}: add the lines {begin} and {end}")
    return found[name]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(map(str, cells))} |" for cells in lines]


def read_stored(path: Path, version: int, anew: str = "make it again") -> dict[str, Any]:
    """Read the members of a JSON file with a version.

    Parameters
    ----------
    version : the `schema_version` that it must have.
    anew : advice for the user if it has another version.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema_version") != version:
        raise ValueError(f"{path}: schema_version must be {version}; {anew}")
    return data


def write_stored(path: Path, version: int, members: Mapping[str, Any]) -> None:
    """Write the version followed by the members; the file is replaced atomically."""
    with whole_file(path) as part:
        part.write_text(json.dumps({"schema_version": version, **members}, indent=1) + "\n")
