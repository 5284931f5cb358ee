"""Tables of a report: for the terminal, for notebooks, and as data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from rkcosim.base import Error, html
from rkcosim.base.extras import needed

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


class Table(Sequence[Row]):
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

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        columns: Sequence[Column[Row]],
        records: Callable[[Row], dict[str, Any]],
        *,
        numbered: bool = False,
    ) -> None:
        self.title, self._numbered = title, numbered
        self._rows, self._columns, self._record = tuple(rows), tuple(columns), records

    @overload
    def __getitem__(self, key: int | str) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Row]: ...
    def __getitem__(self, key: int | str | slice) -> Row | Sequence[Row]:
        """Return the row of a number or of a name, or the rows of a slice.

        Raises
        ------
        KeyError
            for an unknown name; the message has the names.
        IndexError
            for an unknown number.
        """
        if isinstance(key, str):
            for row in self._rows:
                if getattr(row, "name", None) == key:
                    return row
            raise KeyError(f"no row '{key}': the names are {', '.join(self.names())}")
        return self._rows[key]

    def __contains__(self, item: object) -> bool:
        """Return whether a row, or one of this name, is in the table."""
        return item in self.names() if isinstance(item, str) else item in self._rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in order."""
        return iter(self._rows)

    def names(self) -> list[str]:
        """Return the names of the rows, in order."""
        return [str(getattr(row, "name", number)) for number, row in enumerate(self._rows)]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return everything about each row as plain values by name."""
        return [self._record(row) for row in self._rows]

    def _shown(self) -> list[dict[str, Any]]:
        """Return the values of the shown columns by their headings."""
        return [{column.name: column.value(row) for column in self._columns} for row in self._rows]

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
        cells += [[column.text(row) for column in self._columns] for row in self._rows]
        right = [
            any(isinstance(column.value(row), int | float) for row in self._rows) for column in self._columns
        ]
        if not self._numbered:
            return cells, right
        numbers = ["#", *map(str, range(len(self._rows)))]
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
