"""Small tables in HTML, for objects that notebooks show (`_repr_html_`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 200
"""Maximum number of rows of a table in a notebook."""


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    most: int | None = MOST_ROWS,
    right: Sequence[bool] = (),
) -> str:
    """Return a table; every text is escaped.

    Parameters
    ----------
    caption, head, rows : heading of the table, of each column, and the cells.
    most : number of rows after which others are only counted; None: all are shown.
    right : for each column whether it has numbers, which are right-aligned; empty: none has.
    """
    listed = list(rows)
    sides = ["right" if number else "left" for number in right or [False] * len(head)]

    def line(kind: str, cells: Sequence[object]) -> str:
        parts = (
            f'<{kind} style="text-align: {side}">{escape(str(value))}</{kind}>'
            for side, value in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>\n"

    body = "".join(line("td", row) for row in listed[:most])
    left = 0 if most is None else len(listed) - most
    more = f'<tr><td colspan="{len(head)}">{left:,} more rows</td></tr>' if left > 0 else ""
    title = f'<caption style="text-align: left">{escape(caption)}</caption>'
    return f"<table>{title}\n<thead>{line('th', head)}</thead>\n<tbody>{body}{more}</tbody></table>"
