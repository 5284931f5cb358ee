"""The event log: what a run did and when, as a table that a notebook can load.

A row is one event.  `cycle` is the first cycle in which it was seen on the core's pins, `end` the cycle
after its last (`cycle` + 1 for events without a length).  What the columns hold for each kind is in
docs/events.md; `cosim.engines.events` makes the log of an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from waves.whole_file import whole_file

if TYPE_CHECKING:
    from waves.summary import Summary, TaskSpan

SCHEMA_VERSION = 1

KINDS = (
    "task",
    "write",
    "burst",
    "stripe",
    "mac",
    "packet",
    "irq",
    "stall",
    "busy",
    "diagnostic",
    "fault",
    "layer",
)
"""What an event may be; `busy` is a block between its start and its end (bit of the op-enable mask)."""

NONE = -1
"""Value of `task` or `job` where an event belongs to none."""

METADATA_KEY = b"rkcosim"
"""Key of the log's metadata (JSON) in the schema of the file."""

MISSING = "pyarrow is not here: pip install 'rkcosim[waves]'"
"""What is said where there is no pyarrow."""


class EventsError(ValueError):
    """An event log cannot be read, written or made; the text names the file and what is wrong."""


class Event(NamedTuple):
    """One row.

    Members
    -------
    kind : one of `KINDS`.
    cycle, end : first cycle, and the cycle after the last.
    core : 0..2.
    task : index in its job, -1 outside every task.
    job : number of the kick, from 0, counted over all cores; -1 before the core's first.
    block : name of the block (TRM), or "".
    client : name of the AXI client, or "".
    address : of a burst or a fault; of a register write or a diagnostic the register's offset.
    value : what was written or found; beats of a burst; cycles in which a merged level was high.
    bytes : that a burst carried.
    direction : "read", "write" or "".
    reason : text: name of a stall's counter, "host" or "fetched", a diagnostic in words, a layer's name.
    latency : of a burst, cycles from the request to the first beat of data.
    """

    kind: str
    cycle: int
    end: int
    core: int = 0
    task: int = NONE
    job: int = NONE
    block: str = ""
    client: str = ""
    address: int = 0
    value: int = 0
    bytes: int = 0
    direction: str = ""
    reason: str = ""
    latency: int = 0


COLUMNS = Event._fields

NUMBERS: dict[str, type[np.signedinteger[Any]]] = {
    "cycle": np.int64,
    "end": np.int64,
    "core": np.int8,
    "task": np.int32,
    "job": np.int32,
    "address": np.int64,
    "value": np.int64,
    "bytes": np.int64,
    "latency": np.int64,
}
"""Columns of numbers with their types; the other columns are texts."""

TEXTS = tuple(name for name in COLUMNS if name not in NUMBERS)


class Text:
    """A column of texts: `codes`, int32 of shape (n,), number `names`.

    Equal texts have one code, so a log of a million events holds each name once.
    """

    def __init__(self, codes: npt.ArrayLike, names: Iterable[str]) -> None:
        self.codes = np.asarray(codes, np.int32)
        self.names = list(names)

    @classmethod
    def of(cls, values: Iterable[str]) -> Text:
        """A column of these texts, in order."""
        known: dict[str, int] = {}
        codes = [known.setdefault(value, len(known)) for value in values]
        return cls(codes, known)

    def values(self) -> npt.NDArray[Any]:
        """The texts, an object array of shape (n,)."""
        return np.array([*self.names, ""], object)[self.codes]

    def equals(self, value: str) -> npt.NDArray[np.bool_]:
        """Where the column holds `value`."""
        if value not in self.names:
            return np.zeros(self.codes.size, bool)
        return self.codes == self.names.index(value)

    def take(self, rows: npt.NDArray[Any]) -> Text:
        """The rows of an index or mask."""
        return Text(self.codes[rows], self.names)


class EventLog:
    """Events in order of `cycle`, and what is known of the run.

    Parameters
    ----------
    columns : for each of `COLUMNS` an array of shape (n,), of texts a `Text`; what is missing is filled
        with the default of `Event`.
    meta : see `meta`.

    Members
    -------
    meta : `schema_version`, `engine`, `cores`, `cycles`, `geometry`, `kinds`, `first`, `last`,
        `dropped` (events by kind that found no room), `layers` and what else the maker knew.
    """

    def __init__(self, columns: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> None:
        unknown = sorted(set(columns) - set(COLUMNS))
        if unknown:
            raise EventsError(f"an event log has no column {', '.join(unknown)}")
        self.meta: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **(meta or {})}
        size = len(columns["cycle"]) if "cycle" in columns else 0
        self._numbers: dict[str, npt.NDArray[Any]] = {}
        self._texts: dict[str, Text] = {}
        defaults = Event._field_defaults
        for name, dtype in NUMBERS.items():
            given = columns.get(name)
            filled = np.full(size, defaults.get(name, 0), dtype) if given is None else given
            self._numbers[name] = np.asarray(filled, dtype)
        for name in TEXTS:
            given = columns.get(name)
            if given is None:
                given = Text(np.zeros(size, np.int32), [""])
            self._texts[name] = given if isinstance(given, Text) else Text.of(given)
        lengths = {n: len(a) for n, a in self._numbers.items()}
        lengths |= {n: t.codes.size for n, t in self._texts.items()}
        if len(set(lengths.values())) > 1:
            raise EventsError(f"columns of different lengths: {lengths}")

    @classmethod
    def of(cls, events: Iterable[Event], meta: Mapping[str, Any] | None = None) -> EventLog:
        """A log of single events, put in order."""
        rows = list(events)
        columns = {name: [row[n] for row in rows] for n, name in enumerate(COLUMNS)}
        return cls(columns, meta).sorted()

    def __len__(self) -> int:
        return len(self._numbers["cycle"])

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """A column, shape (n,): numbers, or an object array of texts."""
        if column in self._numbers:
            return self._numbers[column]
        return self.text(column).values()

    def __iter__(self) -> Iterator[Event]:
        columns = [self[name].tolist() for name in COLUMNS]
        return (Event(*row) for row in zip(*columns, strict=True))

    def __repr__(self) -> str:
        return f"<EventLog of {len(self)} events: {', '.join(f'{k} {n}' for k, n in self.count().items())}>"

    def text(self, column: str) -> Text:
        """A column of texts in its compact form; raises EventsError for other names."""
        if column not in self._texts:
            raise EventsError(f"no column '{column}' in an event log; there are: {', '.join(COLUMNS)}")
        return self._texts[column]

    def count(self) -> dict[str, int]:
        """Events by kind, kinds without any left out."""
        text = self._texts["kind"]
        totals = np.bincount(text.codes, minlength=len(text.names))
        return {name: int(n) for name, n in zip(text.names, totals, strict=True) if n}

    def rows(self, index: npt.NDArray[Any]) -> EventLog:
        """The events of an index or a mask."""
        columns: dict[str, Any] = {name: array[index] for name, array in self._numbers.items()}
        columns |= {name: text.take(index) for name, text in self._texts.items()}
        return EventLog(columns, self.meta)

    def sorted(self) -> EventLog:
        """The same events in order of `cycle`, equal ones as they stand."""
        cycle = self._numbers["cycle"]
        if len(cycle) < 2 or bool(np.all(cycle[:-1] <= cycle[1:])):
            return self
        return self.rows(np.argsort(cycle, kind="stable"))

    def where(self, **wanted: Any) -> EventLog:
        """The events whose columns have these values, e.g. `where(kind="burst", core=0)`.

        A value may be a set or a list: any of them.
        """
        mask = np.ones(len(self), bool)
        for column, value in wanted.items():
            values = value if isinstance(value, set | frozenset | list | tuple) else [value]
            if column in self._numbers:
                mask &= np.isin(self._numbers[column], list(values))
            else:
                text = self.text(column)
                mask &= np.any([text.equals(item) for item in values], axis=0)
        return self.rows(mask)

    def between(self, first: int, last: int) -> EventLog:
        """The events that touch the cycles `first` to `last`, both included."""
        return self.rows((self._numbers["cycle"] <= last) & (self._numbers["end"] > first))

    @property
    def dropped(self) -> dict[str, int]:
        """Events by kind that were not kept because there was no room."""
        return dict(self.meta.get("dropped", {}))

    def joined(self, other: EventLog) -> EventLog:
        """The events of both, in order, with this log's metadata."""
        columns: dict[str, Any] = {
            name: np.concatenate([self._numbers[name], other._numbers[name]]) for name in NUMBERS
        }
        for name in TEXTS:
            mine, theirs = self._texts[name], other._texts[name]
            place = {text: code for code, text in reversed(list(enumerate(mine.names)))}
            names = list(mine.names)
            moved = np.zeros(max(len(theirs.names), 1), np.int32)
            for code, text in enumerate(theirs.names):
                if text not in place:
                    place[text] = len(names)
                    names.append(text)
                moved[code] = place[text]
            columns[name] = Text(np.concatenate([mine.codes, moved[theirs.codes]]), names)
        return EventLog(columns, self.meta).sorted()

    def tasks(self) -> list[TaskSpan]:
        """The tasks, in the order in which they began (`waves.summary.tasks`)."""
        from waves import summary

        return summary.tasks(self)

    def summary(self) -> list[Summary]:
        """One `waves.summary.Summary` a task: cycles, bytes, stalls."""
        from waves import summary

        return summary.summary(self)

    def layers(self) -> list[Summary]:
        """One `waves.summary.Summary` a layer."""
        from waves import summary

        return summary.layers(self)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`; texts are dictionary columns, the metadata is in its schema."""
        arrow = _pyarrow()
        arrays = []
        for name in COLUMNS:
            if name in self._numbers:
                arrays.append(arrow.array(self._numbers[name]))
            else:
                text = self._texts[name]
                codes, names = arrow.array(text.codes), arrow.array(text.names, arrow.string())
                arrays.append(arrow.DictionaryArray.from_arrays(codes, names))
        table = arrow.table(arrays, names=list(COLUMNS))
        return table.replace_schema_metadata({METADATA_KEY: json.dumps(self.meta).encode()})

    @classmethod
    def from_arrow(cls, table: Any) -> EventLog:
        """The log of a `pyarrow.Table` that `to_arrow` made.

        Raises
        ------
        EventsError
            if it is no event log or one of another schema version.
        """
        raw = (table.schema.metadata or {}).get(METADATA_KEY)
        if raw is None:
            raise EventsError("not an event log of rkcosim (no metadata in its schema)")
        meta = json.loads(raw)
        version = meta.get("schema_version")
        if version != SCHEMA_VERSION:
            raise EventsError(f"event log of schema version {version}, this is version {SCHEMA_VERSION}")
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            if name not in table.column_names:
                raise EventsError(f"the event log has no column '{name}'")
            column = table.column(name).combine_chunks()
            if name in NUMBERS:
                columns[name] = column.to_numpy(zero_copy_only=False)
            else:
                if not hasattr(column, "dictionary"):
                    column = column.dictionary_encode()
                codes = column.indices.to_numpy(zero_copy_only=False)
                columns[name] = Text(codes, column.dictionary.to_pylist())
        return cls(columns, meta)

    def to_pandas(self) -> Any:
        """A pandas data frame (pandas must be there)."""
        return self.to_arrow().to_pandas()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise EventsError(f"an event log needs pyarrow, {MISSING}") from error
    return pyarrow


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise ValueError for a kind that there is none of."""
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"no events of kind '{kind}'; there are {', '.join(KINDS)}")


def check_path(path: Path) -> None:
    """Raise EventsError where `save` would."""
    _is_arrow(path)
    _pyarrow()


def can_save() -> bool:
    """Whether pyarrow is here, so that `save` and `load` work."""
    try:
        _pyarrow()
    except EventsError:
        return False
    return True


def _is_arrow(path: Path) -> bool:
    if path.suffix in (".arrow", ".feather", ".ipc"):
        return True
    if path.suffix == ".parquet":
        return False
    raise EventsError(f"{path}: an event log is a .parquet or an .arrow file")


def save(log: EventLog, path: str | Path) -> None:
    """Write a log: Parquet, or Arrow IPC for `.arrow`; a reader never sees half of it.

    Raises
    ------
    EventsError
        for another suffix, or where pyarrow is missing.
    """
    path = Path(path)
    arrow_file, table = _is_arrow(path), log.to_arrow()
    with whole_file(path) as part:
        if arrow_file:
            from pyarrow import feather

            feather.write_feather(table, str(part), compression="lz4")
        else:
            from pyarrow import parquet

            parquet.write_table(table, str(part), compression="zstd")


def load(path: str | Path) -> EventLog:
    """Read a log that `save` wrote.

    Raises
    ------
    EventsError
        if it is no such file, or pyarrow is missing; names the file.
    FileNotFoundError
    """
    path = Path(path)
    arrow_file = _is_arrow(path)
    arrow = _pyarrow()
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    try:
        if arrow_file:
            from pyarrow import feather

            table = feather.read_table(str(path))
        else:
            from pyarrow import parquet

            table = parquet.read_table(str(path), read_dictionary=list(TEXTS))
        return EventLog.from_arrow(table)
    except (arrow.ArrowException, EventsError, OSError) as error:
        raise EventsError(f"{path}: not a readable event log: {error}") from error
