"""Small tables in HTML, for objects that notebooks show (`_repr_html_`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 200
"""Maximum number of rows of a table in a notebook."""


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], most: int = MOST_ROWS) -> str:
    """Return a table; every text is escaped, and rows after the first `most` are only counted."""
    listed = list(rows)
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>" for row in listed[:most]
    )
    left = len(listed) - most
    more = f'<tr><td colspan="{len(head)}">{left:,} more rows</td></tr>' if left > 0 else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{body}{more}</tbody></table>"
    )
