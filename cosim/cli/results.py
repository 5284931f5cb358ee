"""Output of results: tables on the console (`rkcosim.base.tables`), and files that are written atomically."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rkcosim.base import versioned
from rkcosim.base.tables import console as console
from rkcosim.base.tables import shortened as shortened
from rkcosim.base.tables import table as table

STDOUT = Path("-")
"""The value of `--json` for standard output."""

printed = 0
"""JSON documents that were written to standard output."""

_result: TextIO | None = None
"""Destination of JSON for standard output while all other output goes to standard error."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 core", "3 cores", "2 accesses"."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


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
            _result = open(saved, "w", encoding="utf-8", closefd=True)
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


def check_output(path: Path, folder: bool = False) -> None:
    """Check that a file can be written, before a long run produces its contents.

    Parameters
    ----------
    folder : True if the path is one of a folder, which may exist.

    Raises
    ------
    ValueError
        if it cannot be written; the message gives the reason.
    """
    if path.is_dir() != folder and path.exists():
        raise ValueError(
            f"{path}: is a file, not a folder"
            if folder
            else f"{path}: is a folder; give the path of a file in it"
        )
    above = next(above for above in path.absolute().parents if above.exists())
    if not above.is_dir():
        raise ValueError(f"{path}: {above} is a file, not a folder")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise ValueError(f"{path}: cannot be written")


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
    """Write a file atomically in UTF-8, with its folder; errors name the file.

    Bytes of a file's name that are no text, which Python has as surrogates, are written as `\\udc..`.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


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
