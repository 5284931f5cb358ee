"""Sections of docs/performance.md that commands write, each between two marker comments.

    <!-- bench: begin -->
    ...
    <!-- bench: end -->

What stands outside the markers is written by hand and never touched.
"""

from __future__ import annotations

from pathlib import Path

from waves.whole_file import whole_file

SECTIONS = (
    "bench",
    "networks",
    "layers",
    "validate",
    "errors",
    "constants",
    "estimator",
    "counters",
)
"""Names, in the order in which they stand on the page."""

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
"""The page of this repository."""


class PageError(ValueError):
    """A page or section that cannot be written; the text says which line is wrong or missing."""


def markers(name: str) -> tuple[str, str]:
    """The lines before and after a section.

    Raises
    ------
    PageError
        for a name that is not in `SECTIONS`.
    """
    if name not in SECTIONS:
        raise PageError(f"the page has no section {name!r}; there are {', '.join(SECTIONS)}")
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def write_section(name: str, markdown: str, page: Path) -> None:
    """Replace the contents of one section; a page that is not there yet is begun with that section.

    Parameters
    ----------
    name : one of `SECTIONS`.
    markdown : the new contents, without markers; spaces around it do not count.
    page : file to change; whoever reads it meanwhile sees it as it was or as it becomes.

    Raises
    ------
    PageError
        for an unknown name, markdown with a marker in it, or a page whose markers are missing, doubled
        or out of order.
    OSError
        when the page cannot be read or written.
    """
    begin, end = markers(name)
    for line in markdown.splitlines():
        if _marker(line):
            raise PageError(f"the text for section {name!r} has a marker in it: {line.strip()}")
    section = f"{begin}\n{markdown.strip()}\n{end}\n"
    if page.exists():
        lines = page.read_text().splitlines(keepends=True)
        first, last = _place(lines, name, page)
        text = "".join(lines[:first]) + section + "".join(lines[last + 1 :])
    else:
        text = f"# Performance\n\n{section}"
    _replace(page, text)


def read_section(name: str, page: Path) -> str:
    """Contents of a section as they stand; "" where it is empty.

    Raises
    ------
    PageError
        as `write_section`.
    """
    lines = page.read_text().splitlines()
    first, last = _place(lines, name, page)
    return "\n".join(lines[first + 1 : last]).strip()


def check_section(name: str, page: Path) -> None:
    """See that `write_section` will find its section, before work is done for it (errors as there)."""
    markers(name)
    if page.exists():
        _place(page.read_text().splitlines(), name, page)


def _place(lines: list[str], name: str, page: Path) -> tuple[int, int]:
    """Indices of a section's marker lines."""
    begin, end = markers(name)
    place = _places(lines, page).get(name)
    if place is None:
        raise PageError(f"{page} lacks the section {name!r}: give it the lines {begin} and {end}")
    return place


def _marker(line: str) -> tuple[str, str] | None:
    """(section, "begin" or "end") if the line is a marker of a known section."""
    words = line.strip()
    for name in SECTIONS:
        for kind, text in zip(("begin", "end"), markers(name), strict=True):
            if words == text:
                return name, kind
    return None


def _places(lines: list[str], page: Path) -> dict[str, tuple[int, int]]:
    """Section to the indices of its marker lines, for all that the page has."""
    found: dict[str, tuple[int, int]] = {}
    opened: tuple[str, int] | None = None
    for index, line in enumerate(lines):
        marker = _marker(line)
        if marker is None:
            continue
        name, kind = marker
        place = f"{page}, line {index + 1}: {line.strip()}"
        if kind == "begin":
            if opened is not None:
                raise PageError(f"{place} stands inside the section {opened[0]!r}, which has no end before")
            if name in found:
                raise PageError(f"{place} is there a second time")
            before = [other for other in found if SECTIONS.index(other) > SECTIONS.index(name)]
            if before:
                raise PageError(f"{place} must stand before the section {before[0]!r}")
            opened = name, index
        else:
            if opened is None or opened[0] != name:
                raise PageError(f"{place} has no begin before it")
            found[name] = opened[1], index
            opened = None
    if opened is not None:
        raise PageError(f"{page}, line {opened[1] + 1}: section {opened[0]!r} has no end")
    return found


def _replace(page: Path, text: str) -> None:
    with whole_file(page) as part:
        part.write_text(text)
        if page.exists():
            part.chmod(page.stat().st_mode)
