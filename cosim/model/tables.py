"""Tables of a report: for the terminal, for notebooks, and as data frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rkcosim.base import Error, html
from rkcosim.base.extras import needed
from rkcosim.model.by_name import NamedItems

if TYPE_CHECKING:
    import pandas
    import pyarrow

Row = TypeVar("Row")


class MissingExtraError(Error):
    """A function needs a package that is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Members
    -------
    name
        Its heading.
    value
        Returns a row's value: a number, a text, or None if it is unknown.
    form
        Format of its numbers, as ",".
    """

    name: str
    value: Callable[[Row], Any]
    form: str = ""

    def text(self, row: Row) -> str:
        """Return a row's cell as text, "-" for None."""
        value = self.value(row)
        return "-" if value is None else value if isinstance(value, str) else format(value, self.form)


class Table(NamedItems[Row]):
    """Rows of a report.  They are taken by number, or by name; notebooks show them as a table.

    Parameters
    ----------
    title
        Heading of the table.
    rows
        The rows; their member `name` is what they are taken by.
    columns
        What is shown of them.
    records
        Returns everything about a row as plain values by name, for data frames.
    numbered
        Whether text and HTML show the rows' numbers, from 0; drawings refer to them.
    """

    _what = "row"

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        columns: Sequence[Column[Row]],
        records: Callable[[Row], dict[str, Any]],
        *,
        numbered: bool = False,
    ) -> None:
        super().__init__(rows)
        self.title, self._numbered = title, numbered
        self._columns, self._record = tuple(columns), records

    def names(self) -> list[str]:
        """Return the names of the rows, in order."""
        return list(self._names())

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return everything about each row as plain values by name."""
        return [self._record(row) for row in self._items]

    def _shown(self) -> list[dict[str, Any]]:
        """Return the values of the shown columns by their headings."""
        return [{column.name: column.value(row) for column in self._columns} for row in self._items]

    def to_pandas(self, *, everything: bool = False) -> pandas.DataFrame:
        """Return a `pandas.DataFrame` with a row for each row.

        Parameters
        ----------
        everything
            Whether the columns are the members of `to_dicts`, or (the default) those that the table shows,
            with numbers instead of texts: shares are from 0 to 1.

        Raises
        ------
        MissingExtraError
            if pandas is not installed.
        """
        with needed("pandas", "a data frame", MissingExtraError):
            import pandas
        return pandas.DataFrame(self.to_dicts() if everything else self._shown())

    def to_arrow(self, *, everything: bool = True) -> pyarrow.Table:
        """Return a `pyarrow.Table` with a row for each row.

        Parameters
        ----------
        everything
            Whether the columns are the members of `to_dicts`, or those that the table shows.

        Raises
        ------
        MissingExtraError
            if pyarrow is not installed.
        """
        with needed("pyarrow", "an Arrow table", MissingExtraError):
            import pyarrow
        return pyarrow.Table.from_pylist(self.to_dicts() if everything else self._shown())

    def _cells(self) -> tuple[list[list[str]], list[bool]]:
        """Return heading and rows as texts, and for each column whether it has numbers."""
        cells = [[column.name for column in self._columns]]
        cells += [[column.text(row) for column in self._columns] for row in self._items]
        right = [
            any(isinstance(column.value(row), int | float) for row in self._items) for column in self._columns
        ]
        if not self._numbered:
            return cells, right
        numbers = ["#", *map(str, range(len(self._items)))]
        return [[number, *row] for number, row in zip(numbers, cells, strict=True)], [True, *right]

    def __repr__(self) -> str:
        """Return the table as text with aligned columns."""
        cells, right = self._cells()
        widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                text.rjust(width) if number else text.ljust(width)
                for text, width, number in zip(texts, widths, right, strict=True)
            ).rstrip()
            for texts in cells
        ]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        (head, *rows), right = self._cells()
        return html.table(self.title, head, rows, most=None, right=right)
