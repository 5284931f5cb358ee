"""The event log: what happened in a run and when, as a table that a notebook can load.

A row is one event. `cycle` is the first cycle in which it was seen on the core's pins, `end` the cycle after
its last one (`cycle` + 1 for events without a duration). docs/events.md describes the columns for each kind;
`rkcosim.engines.events` makes the log of an engine.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error
from rkcosim.base.extras import missing, needed
from rkcosim.waves.whole_file import whole_file

__all__ = ["Event", "EventLog", "EventsError", "Summary", "TaskSpan", "Text", "load", "save"]

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
"""Kinds of events; `busy` is a block between its start and its end (bit of the op-enable mask)."""

NONE = -1
"""Value of `task` or `job` for an event that belongs to none."""

MOST_CORES = 3
"""Cores of the NPU."""

METADATA_KEY = b"rkcosim"
"""Key of the log's metadata (JSON) in the schema of the file."""

MISSING = missing("pyarrow")
"""Message if pyarrow is not installed."""


class EventsError(Error, ValueError):
    """An event log cannot be read, written or made; the message names the file and the problem."""


class Event(NamedTuple):
    """One row.

    Members
    -------
    kind : one of `KINDS`.
    cycle, end : first cycle, and the cycle after the last one.
    core : 0..2.
    task : index in its job, -1 outside every task.
    job : number of the kick, counted from 0 over all cores; -1 before the core's first one.
    block : name of the block (TRM), or "".
    client : name of the AXI client, or "".
    address : address of a burst or a fault; for a register write or a diagnostic, the register's offset.
    value : value written or found; beats of a burst; cycles in which a merged level was high.
    bytes : bytes that a burst carried.
    direction : "read", "write" or "".
    reason : text: name of a stall's counter, "host" or "fetched", the text of a diagnostic, a layer's name.
    latency : for a burst, cycles from the request to the first beat of data.
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
    """A column of texts: `codes`, int32 of shape (n,), index `names`.

    Equal texts share a code, so a log of a million events stores each name once.
    """

    def __init__(self, codes: npt.ArrayLike, names: Iterable[str]) -> None:
        self.codes = np.asarray(codes, np.int32)
        self.names = list(names)

    @classmethod
    def of(cls, values: Iterable[str]) -> Text:
        """Make a column of these texts, in order."""
        known: dict[str, int] = {}
        codes = [known.setdefault(value, len(known)) for value in values]
        return cls(codes, known)

    def values(self) -> npt.NDArray[Any]:
        """The texts, an object array of shape (n,)."""
        return np.array([*self.names, ""], object)[self.codes]

    def equals(self, value: str) -> npt.NDArray[np.bool_]:
        """Return where the column holds `value`."""
        if value not in self.names:
            return np.zeros(self.codes.size, bool)
        return self.codes == self.names.index(value)

    def take(self, rows: npt.NDArray[Any]) -> Text:
        """Return the rows of an index or mask."""
        return Text(self.codes[rows], self.names)


@dataclass(frozen=True)
class TaskSpan:
    """One task from `start` to `end` (the cycle after its last one, as in `Engine.task_log`).

    Members
    -------
    ended : False if it was still running when the log was taken.
    layer : name of the layer, "" if the log does not contain it.
    """

    core: int
    job: int
    task: int
    start: int
    end: int
    layer: str = ""
    ended: bool = True

    @property
    def cycles(self) -> int:
        """Cycles from start to end."""
        return self.end - self.start


@dataclass
class Summary:
    """Sums of one task or one layer; the cycles of a layer are the sum of its tasks'.

    Members
    -------
    layer : its name, or "".
    core, job, task : of a single task; None for a layer.
    tasks : number of tasks.
    cycles, mac_busy : cycles of the tasks, and cycles in which the array was working.
    stripes : blocks of 16 pixels passed to CORE.
    bytes_read, bytes_written : bytes by AXI client, of bursts that began within the tasks.
    stalls : cycles by reason; reasons of different blocks may hold at the same time.
    busy : cycles by block.
    packets : octets of the DPU and atoms of the PPU, by block.
    """

    layer: str
    core: int | None = None
    job: int | None = None
    task: int | None = None
    tasks: int = 1
    start: int = 0
    end: int = 0
    cycles: int = 0
    mac_busy: int = 0
    stripes: int = 0
    bytes_read: dict[str, int] = field(default_factory=dict)
    bytes_written: dict[str, int] = field(default_factory=dict)
    stalls: dict[str, int] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    packets: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def add(self, other: Summary) -> None:
        """Add another task."""
        self.tasks += other.tasks
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.cycles += other.cycles
        self.mac_busy += other.mac_busy
        self.stripes += other.stripes
        for name in ("bytes_read", "bytes_written", "stalls", "busy", "packets"):
            mine = getattr(self, name)
            for key, value in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + value


def _job(event: Event) -> tuple[int, int]:
    return event.core, event.job


class EventLog:
    """Events in order of `cycle`, with facts about the run.

    Parameters
    ----------
    columns : for each of `COLUMNS` an array of shape (n,), or a `Text`; missing columns are filled with the
        default of `Event`.
    meta : see `meta`.

    Members
    -------
    meta : `schema_version`, `engine`, `cores`, `cycles`, `geometry`, `kinds`, `first`, `last`, `dropped` (by
        kind, events that found no room), `layers` and further facts of the producer.
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
            filled = columns[name] if name in columns else np.full(size, defaults.get(name, 0), dtype)
            self._numbers[name] = np.asarray(filled, dtype)
        for name in TEXTS:
            given = columns.get(name, Text(np.zeros(size, np.int32), [""]))
            self._texts[name] = given if isinstance(given, Text) else Text.of(given)
        lengths = {n: len(a) for n, a in self._numbers.items()}
        lengths |= {n: t.codes.size for n, t in self._texts.items()}
        if len(set(lengths.values())) > 1:
            raise EventsError(f"columns of different lengths: {lengths}")

    @classmethod
    def of(cls, events: Iterable[Event], meta: Mapping[str, Any] | None = None) -> EventLog:
        """Make a log of single events, which are sorted."""
        rows = list(events)
        columns = {name: [row[n] for row in rows] for n, name in enumerate(COLUMNS)}
        return cls(columns, meta).sorted()

    def __len__(self) -> int:
        return len(self._numbers["cycle"])

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a column, shape (n,): numbers, or an object array of texts."""
        if column in self._numbers:
            return self._numbers[column]
        return self.text(column).values()

    def __iter__(self) -> Iterator[Event]:
        columns = [self[name].tolist() for name in COLUMNS]
        return (Event(*row) for row in zip(*columns, strict=True))

    def __repr__(self) -> str:
        return f"<EventLog of {len(self)} events: {', '.join(f'{k} {n}' for k, n in self.count().items())}>"

    def text(self, column: str) -> Text:
        """Return a column of texts in its compact form; raises EventsError for other names."""
        if column not in self._texts:
            raise EventsError(f"no column '{column}' in an event log; there are: {', '.join(COLUMNS)}")
        return self._texts[column]

    def count(self) -> dict[str, int]:
        """Return the number of events by kind, without kinds that do not occur."""
        text = self._texts["kind"]
        totals = np.bincount(text.codes, minlength=len(text.names))
        return {name: int(n) for name, n in zip(text.names, totals, strict=True) if n}

    def rows(self, index: npt.NDArray[Any]) -> EventLog:
        """Return the events of an index or a mask."""
        columns: dict[str, Any] = {name: array[index] for name, array in self._numbers.items()}
        columns |= {name: text.take(index) for name, text in self._texts.items()}
        return EventLog(columns, self.meta)

    def sorted(self) -> EventLog:
        """Return the same events in order of `cycle`; the sort is stable."""
        cycle = self._numbers["cycle"]
        if len(cycle) < 2 or bool(np.all(cycle[:-1] <= cycle[1:])):
            return self
        return self.rows(np.argsort(cycle, kind="stable"))

    def where(self, **wanted: Any) -> EventLog:
        """Return the events whose columns have these values, e.g. `where(kind="burst", core=0)`.

        A set or a list selects any of its values.
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
        """Return the events that overlap the cycles `first` to `last`, both included."""
        return self.rows((self._numbers["cycle"] <= last) & (self._numbers["end"] > first))

    @property
    def dropped(self) -> dict[str, int]:
        """Number of events by kind that were dropped for lack of room."""
        return dict(self.meta.get("dropped", {}))

    def joined(self, other: EventLog) -> EventLog:
        """Return the events of both logs, in order, with this log's metadata."""
        columns: dict[str, Any] = {
            name: np.concatenate([self._numbers[name], other._numbers[name]]) for name in NUMBERS
        }
        for name in TEXTS:
            texts = self._texts[name], other._texts[name]
            place = {name: code for code, name in enumerate(dict.fromkeys(n for t in texts for n in t.names))}
            codes = [np.array([place[n] for n in t.names] or [0], np.int32)[t.codes] for t in texts]
            columns[name] = Text(np.concatenate(codes), place)
        return EventLog(columns, self.meta).sorted()

    def tasks(self) -> list[TaskSpan]:
        """Return the tasks in the order of their start, with the names of their layers."""
        tasks = list(self.where(kind="task"))
        numbers = {
            key: sorted({e.task for e in same})
            for key, same in itertools.groupby(sorted(tasks, key=_job), key=_job)
        }
        names = {key: np.full(len(same), "", object) for key, same in numbers.items()}
        for e in self.where(kind="layer"):  # its `value` is the number of its tasks from `task` on
            if (same := numbers.get(_job(e))) is not None:
                first, last = (bisect_left(same, n) for n in (e.task, e.task + max(e.value, 1)))
                names[_job(e)][first:last] = e.reason
        return [
            TaskSpan(e.core, e.job, e.task, e.cycle, e.end, layer, e.reason != "running")
            for e in tasks
            for layer in [names[_job(e)][bisect_left(numbers[_job(e)], e.task)]]
        ]

    def summary(self) -> list[Summary]:
        """Return one `Summary` per task, in the order of their start: cycles, bytes, stalls.

        The sums equal the engine's counters if nothing was dropped and the kinds were recorded.
        """
        spans = self.tasks()
        result = [Summary(s.layer, s.core, s.job, s.task, 1, s.start, s.end, s.cycles) for s in spans]
        if not spans:
            return result
        # For each event the index of its task in `spans`, -1 outside of tasks.
        keys = _task_key([s.core for s in spans], [s.job for s in spans], [s.task for s in spans])
        order = np.argsort(keys, kind="stable")
        mine = _task_key(self["core"], self["job"], self["task"])
        at = np.minimum(np.searchsorted(keys[order], mine), len(keys) - 1)
        place = np.where(keys[order][at] == mine, order[at], NONE)
        for attribute, kind, key, column, direction in (
            ("mac_busy", "mac", "", "value", ""),
            ("stripes", "stripe", "", "", ""),
            ("bytes_read", "burst", "client", "bytes", "read"),
            ("bytes_written", "burst", "client", "bytes", "write"),
            ("stalls", "stall", "reason", "value", ""),
            ("busy", "busy", "block", "value", ""),
            ("packets", "packet", "block", "value", ""),
        ):
            mask = self.text("kind").equals(kind) & (place >= 0)
            if direction:
                mask &= self.text("direction").equals(direction)
            names = self.text(key).names if key else [""]
            codes = self.text(key).codes[mask] if key else 0
            pairs, inverse = np.unique(place[mask] * len(names) + codes, return_inverse=True)
            sums = np.zeros(len(pairs), np.int64)
            np.add.at(sums, inverse, self[column][mask] if column else 1)
            for pair, total in zip(pairs.tolist(), sums.tolist(), strict=True):
                row, code = divmod(pair, len(names))
                if key:
                    getattr(result[row], attribute)[names[code]] = total
                else:
                    setattr(result[row], attribute, total)
        return result

    def layers(self) -> list[Summary]:
        """Return one `Summary` per layer, over all cores and jobs, in the order of their first tasks."""
        found: dict[str, Summary] = {}
        for one in self.summary():
            if one.layer not in found:
                found[one.layer] = Summary(one.layer, tasks=0, start=one.start, end=one.end)
            found[one.layer].add(one)
        return list(found.values())

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`; texts are dictionary columns, the metadata is in its schema."""
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
        """Return the log of a `pyarrow.Table` that `to_arrow` made.

        Raises
        ------
        EventsError
            if it is not an event log or has another schema version.
        """
        raw = (table.schema.metadata or {}).get(METADATA_KEY)
        if raw is None:
            raise EventsError("not an event log of rkcosim (no metadata in its schema)")
        meta = json.loads(raw)
        if not isinstance(meta, dict) or not _is_counts(meta.get("dropped", {})):
            raise EventsError("its metadata are not those of an event log")
        version = meta.get("schema_version")
        if version != SCHEMA_VERSION:
            raise EventsError(f"event log of schema version {version}, this is version {SCHEMA_VERSION}")
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            if name not in table.column_names:
                raise EventsError(f"the event log has no column '{name}'")
            column = table.column(name).combine_chunks()
            if column.null_count:
                raise EventsError(f"the column '{name}' has {column.null_count} rows without a value")
            if name in NUMBERS:
                columns[name] = _numbers(name, column.to_numpy(zero_copy_only=False))
            else:
                if not hasattr(column, "dictionary"):
                    column = column.dictionary_encode()
                codes = column.indices.to_numpy(zero_copy_only=False)
                columns[name] = _text(name, codes, column.dictionary.to_pylist())
        return cls(columns, meta).checked()

    def checked(self) -> EventLog:
        """Return this log; raises EventsError for events that no engine records."""
        if unknown := sorted(set(self.count()) - set(KINDS)):
            raise EventsError(f"there are no events of the kind '{unknown[0]}'")
        number = self._numbers
        for wrong, what in (
            ((number["core"] < 0) | (number["core"] >= MOST_CORES), "a core that does not exist"),
            ((number["cycle"] < 0) | (number["cycle"] > number["end"]), "no span of cycles"),
            ((number["task"] < NONE) | (number["job"] < NONE), "no task or job"),
            ((number["bytes"] < 0) | (number["latency"] < 0), "a negative amount"),
        ):
            if wrong.any():
                raise EventsError(f"event {int(np.argmax(wrong))} has {what}")
        return self

    def to_pandas(self) -> Any:
        """Return a pandas data frame with one row per event.

        Raises
        ------
        EventsError
            without pandas or pyarrow; names the package to install.
        """
        try:
            import pandas  # noqa: F401  # pyarrow imports it and raises another error if it is missing
        except ImportError as error:
            raise EventsError(
                "a data frame needs pandas, which is not installed: pip install pandas"
            ) from error
        return self.to_arrow().to_pandas()


def _is_counts(value: Any) -> bool:
    """Return whether a member of the metadata is a number for each of some names."""
    return isinstance(value, dict) and all(type(number) is int for number in value.values())


def _numbers(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of numbers in its type; raises EventsError if it has others."""
    dtype = np.dtype(NUMBERS[name])
    if values.dtype.kind not in "iu":
        raise EventsError(f"the column '{name}' has no whole numbers")
    if (
        values.size
        and not np.iinfo(dtype).min <= int(values.min()) <= int(values.max()) <= np.iinfo(dtype).max
    ):
        raise EventsError(f"the column '{name}' has numbers that do not fit into {dtype}")
    return values


def _text(name: str, codes: npt.NDArray[Any], names: list[Any]) -> Text:
    """Return a column of texts; raises EventsError if it has something else."""
    known = all(isinstance(one, str) for one in names) and len(set(names)) == len(names)
    if not known or codes.dtype.kind not in "iu":
        raise EventsError(f"the column '{name}' has no texts")
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(names):
        raise EventsError(f"the column '{name}' has a row outside of its texts")
    return Text(codes, names)


def _task_key(core: npt.ArrayLike, job: npt.ArrayLike, task: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return one number per task; an index of a task has 12 bits, and -1 becomes 0."""
    number = np.asarray(job, np.int64) * 4 + np.asarray(core, np.int64)
    return number * 8192 + np.asarray(task, np.int64) + 1


def spread(
    starts: npt.ArrayLike, ends: npt.ArrayLike, amounts: npt.ArrayLike, edges: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Distribute amounts evenly from `starts` to `ends` and sum them in the bins between `edges`.

    Parameters
    ----------
    starts, ends, amounts : shape (n,), in cycles and any unit; an empty span counts as one cycle.
    edges : ascending, shape (m + 1,).

    Returns
    -------
    float64, shape (m,).
    """
    first = np.asarray(starts, float)
    if first.size == 0:
        return np.zeros(len(edges) - 1)
    last = np.maximum(np.asarray(ends, float), first + 1)
    rate = np.asarray(amounts, float) / (last - first)
    times = np.concatenate([first, last])
    order = np.argsort(times, kind="stable")
    times = times[order]
    slope = np.cumsum(np.concatenate([rate, -rate])[order])
    passed = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    return np.diff(np.interp(edges, times, passed))


def _pyarrow() -> Any:
    with needed("pyarrow", "an event log", EventsError):
        import pyarrow
    return pyarrow


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise ValueError for an unknown kind."""
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"no events of kind '{kind}'; there are {', '.join(KINDS)}")


def check_path(path: Path) -> None:
    """Raise EventsError if `save` would."""
    _is_arrow(path)
    _pyarrow()


def can_save() -> bool:
    """Return whether pyarrow is installed, which `save` and `load` need."""
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
    """Write a log atomically: Parquet, or Arrow IPC for `.arrow`.

    Raises
    ------
    EventsError
        for another suffix, or if pyarrow is missing.
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
        if it is not such a file, or pyarrow is missing; names the file.
    FileNotFoundError
        if it does not exist.
    """
    path = Path(path)
    arrow_file = _is_arrow(path)
    arrow = _pyarrow()
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    try:
        if arrow_file:
            table = _few_rows(arrow.ipc.open_file(str(path)))
        else:
            from pyarrow import parquet

            _check_rows(parquet.read_metadata(str(path)).num_rows)
            table = parquet.read_table(str(path), read_dictionary=list(TEXTS))
        table.validate(full=True)  # pyarrow trusts offsets and codes, and ends the process
        return EventLog.from_arrow(table)
    except (arrow.ArrowException, *_DAMAGED) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise EventsError(f"{path}: not a readable event log: {text}") from error


MOST_ROWS = 16_000_000
"""Rows of a log that are read: four times as many as a run records by default. A row takes 200 bytes."""


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise ValueError(f"{rows:,} rows; at most {MOST_ROWS:,} are read")


def _few_rows(reader: Any) -> Any:
    """Return the table of a reader of an Arrow file, which is read in parts: nothing tells all its rows."""
    parts, rows = [], 0
    for number in range(reader.num_record_batches):
        parts.append(reader.get_batch(number))
        rows += parts[-1].num_rows
        _check_rows(rows)
    return _pyarrow().Table.from_batches(parts, reader.schema)


_DAMAGED = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError)
"""Exceptions for damaged files, of pyarrow and of what is made of its tables; EventsError is a ValueError."""
