"""Tables on the console."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

TABLE_WIDTH = 104
"""Width of a terminal in columns from which tables have all of their columns."""

LEAST_WIDTH = 30
"""Smallest width of a table; a narrower terminal wraps its lines."""

UNBOUND = 10_000
"""Width in columns if the output is not a terminal; nothing is cut or wrapped."""

NAME_COLUMNS = 28
"""Columns of a layer's name in a table on a terminal."""


def console(*, error: bool = False) -> Any:
    """Return a `rich.console.Console` for standard output, or for standard error.

    Its width is that of the terminal (or of the variable COLUMNS). Where that is less than `TABLE_WIDTH`, a
    table that does not fit is printed without columns at its right, and a line below it names them. In a pipe
    or a file, lines are not limited.
    """
    from rich.console import Console
    from rich.table import Table

    class Mannered(Console):
        """A console that leaves a closed pipe to the command, which ends with its own exit code."""

        def on_broken_pipe(self) -> None:
            """Pass the BrokenPipeError on, within whose handler this is called."""
            raise

        def print(self, *objects: Any, **settings: Any) -> None:
            """Print objects, of tables only the columns that the terminal has room for."""
            for one in objects:
                left_out = fitted(one, self) if isinstance(one, Table) and self.width < TABLE_WIDTH else []
                super().print(one, **settings)
                if left_out:
                    names = ", ".join(left_out)
                    super().print(f"[dim]not shown in {self.width} columns: {names}[/]", soft_wrap=True)
            if not objects:
                super().print(**settings)

    made = Mannered(highlight=False, stderr=error)
    made.width = max(made.width, LEAST_WIDTH) if made.is_terminal or os.environ.get("COLUMNS") else UNBOUND
    return made


def fitted(made: Any, on: Any) -> list[str]:
    """Remove columns of a `rich.table.Table` from the right until it fits, and return their names.

    Parameters
    ----------
    on : the console; at least one column remains.
    """
    from rich.measure import Measurement

    left_out: list[str] = []
    wide = on.options.update(width=UNBOUND)
    while len(made.columns) > 1 and Measurement.get(on, wide, made).maximum > on.width:
        left_out.insert(0, str(made.columns.pop().header))
    return [name for name in left_out if name]


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
