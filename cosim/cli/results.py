"""Output of results: tables on the console, and files that are written atomically."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

TABLE_WIDTH = 104
"""Minimum width of a table on a terminal, in columns; a narrower terminal wraps its lines."""

UNBOUND = 10_000
"""Width in columns if the output is not a terminal; nothing is cut or wrapped."""

NAME_COLUMNS = 28
"""Columns of a layer's name in a table on a terminal."""

STDOUT = Path("-")
"""The value of `--json` for standard output."""

printed = 0
"""JSON documents that were written to standard output."""

_result: TextIO | None = None
"""Destination of JSON for standard output while all other output goes to standard error."""


def console() -> Any:
    """Return a `rich.console.Console` for standard output.

    Its width is that of the terminal (or of the variable COLUMNS), at least `TABLE_WIDTH`. In a pipe or a
    file, lines are not limited.
    """
    from rich.console import Console

    made = Console(highlight=False)
    made.width = max(made.width, TABLE_WIDTH) if made.is_terminal or os.environ.get("COLUMNS") else UNBOUND
    return made


def shortened(name: str, on: Any, columns: int = NAME_COLUMNS) -> str:
    """Shorten a name to its last `columns` characters on a terminal; elsewhere it stays whole."""
    return name if on.width == UNBOUND or len(name) <= columns else f"…{name[1 - columns :]}"


def table(
    title: str | None, headings: Iterable[str], rows: Iterable[Sequence[object]], **settings: Any
) -> Any:
    """Return a `rich.table.Table` of texts and numbers.

    Parameters
    ----------
    headings : name of each column. A column of numbers, which is right-aligned, has "|" and the format of its
        numbers after its name, as "cycles|,".
    rows : cells as texts or numbers; None is shown as "-".
    settings : passed to `rich.table.Table`.
    """
    from rich.table import Table

    made = Table(title=title, **{"title_justify": "left", "box": None, **settings})
    columns = [heading.partition("|") for heading in headings]
    for name, number, _ in columns:
        made.add_column(name, justify="right" if number else "left")
    for row in rows:
        cells = zip(row, columns, strict=True)
        made.add_row(*("-" if v is None else v if isinstance(v, str) else format(v, c[2]) for v, c in cells))
    return made


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 core", "3 cores"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextmanager
def json_alone(wanted: bool) -> Iterator[None]:
    """Send all output to standard error, also that of programs started here, except the JSON document."""
    global _result
    if not wanted:
        yield
        return
    sys.stdout.flush()
    _result = sys.stdout
    saved: int | None = None
    with contextlib.suppress(OSError, ValueError):  # standard output may have no descriptor
        if sys.stdout.fileno() == 1:
            saved = os.dup(1)
            _result = open(saved, "w", closefd=True)
            os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            with contextlib.suppress(OSError):
                _result.close()
        _result = None


def check_output(path: Path) -> None:
    """Check that a file can be written, before a long run produces its contents.

    Raises
    ------
    ValueError
        if it cannot be written; the message gives the reason.
    """
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give the path of a file in it")
    folder = next(folder for folder in path.parents if folder.exists())
    if not folder.is_dir():
        raise ValueError(f"{path}: {folder} is a file, not a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{path}: cannot be written")


def versioned(data: dict[str, Any]) -> dict[str, Any]:
    """Add the versions of this program and of the document's form (1 by default) in front of a document."""
    from rkcosim.base import version

    return {"rkcosim_version": version(), "schema_version": 1, **data}


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write JSON with the version of this program, atomically; to standard output for "-"."""
    from rkcosim.waves.whole_file import named

    global printed
    text = json.dumps(versioned(data), indent=2) + "\n"
    if path != STDOUT:
        write_text(path, text)
        return
    with named("standard output"):
        print(text, end="", file=_result or sys.stdout, flush=True)
    printed += 1


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, with its folder; errors name the file."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically, with its folder; errors name the file."""
    from rkcosim.waves.whole_file import whole_file

    with whole_file(path) as part:
        part.write_bytes(data)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], end: str = "\r\n") -> None:
    """Write a table atomically, with a column for each name in any row; a cell missing in a row is 0.

    Parameters
    ----------
    end : end of each line.
    """
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, restval=0, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
