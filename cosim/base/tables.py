"""Tables on the console."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

TABLE_WIDTH = 104
"""Minimum width of a table on a terminal, in columns; a narrower terminal wraps its lines."""

UNBOUND = 10_000
"""Width in columns if the output is not a terminal; nothing is cut or wrapped."""

NAME_COLUMNS = 28
"""Columns of a layer's name in a table on a terminal."""


def console(*, error: bool = False) -> Any:
    """Return a `rich.console.Console` for standard output, or for standard error.

    Its width is that of the terminal (or of the variable COLUMNS), at least `TABLE_WIDTH`. In a pipe or a
    file, lines are not limited.
    """
    from rich.console import Console

    class Mannered(Console):
        """A console that leaves a closed pipe to the command, which ends with its own exit code."""

        def on_broken_pipe(self) -> None:
            """Pass the BrokenPipeError on, within whose handler this is called."""
            raise

    made = Mannered(highlight=False, stderr=error)
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
