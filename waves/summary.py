"""What an event log says of tasks and layers: cycles, bytes, stalls."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from waves.events import EventLog


@dataclass(frozen=True)
class TaskSpan:
    """One task: `start` to `end` (the cycle after its last, as in `Engine.task_log`).

    `ended` is False where it still ran when the log was taken; `layer` is "" where the log knows none.
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
        """From start to end."""
        return self.end - self.start


@dataclass
class Summary:
    """What one task or one layer did; cycles of a layer are the sum of its tasks'.

    Members
    -------
    layer : its name, or "".
    core, job, task : of a single task, None of a layer.
    tasks : how many.
    cycles, mac_busy : of the tasks, and of them with the array at work.
    stripes : blocks of 16 pixels handed to CORE.
    bytes_read, bytes_written : by AXI client; bursts that began within the tasks.
    stalls : cycles by reason; reasons of different blocks may hold at once.
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
        """Plain values."""
        return asdict(self)

    def add(self, other: Summary) -> None:
        """Count another task in."""
        self.tasks += other.tasks
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.cycles += other.cycles
        self.mac_busy += other.mac_busy
        self.stripes += other.stripes
        for name in ("bytes_read", "bytes_written", "stalls", "busy", "packets"):
            mine = getattr(self, name)
            for key, value in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + value


def tasks(log: EventLog) -> list[TaskSpan]:
    """The tasks of a log, in the order in which they began, with the names of their layers."""
    names = _layer_names(log)
    return [
        TaskSpan(
            e.core,
            e.job,
            e.task,
            e.cycle,
            e.end,
            names.get((e.core, e.job, e.task), ""),
            e.reason != "running",
        )
        for e in log.where(kind="task")
    ]


def _layer_names(log: EventLog) -> dict[tuple[int, int, int], str]:
    """(core, job, task) to layer: `value` of a layer's event is how many tasks it has from `task` on."""
    found: dict[tuple[int, int, int], str] = {}
    for e in log.where(kind="layer"):
        for task in range(e.task, e.task + max(e.value, 1)):
            found[e.core, e.job, task] = e.reason
    return found


def summary(log: EventLog) -> list[Summary]:
    """One `Summary` a task, in the order in which they began.

    Sums are those of the engine's counters as long as nothing was dropped and the kinds were recorded.
    """
    spans = tasks(log)
    result = [Summary(s.layer, s.core, s.job, s.task, 1, s.start, s.end, s.cycles) for s in spans]
    if not spans:
        return result
    place = _places(log, spans)
    for (row, _), total in _totals(log, place, "mac", "reason", "value").items():
        result[row].mac_busy += total
    for (row, _), total in _totals(log, place, "stripe", "reason", None).items():
        result[row].stripes += total
    for attribute, kind, key, column, direction in (
        ("bytes_read", "burst", "client", "bytes", "read"),
        ("bytes_written", "burst", "client", "bytes", "write"),
        ("stalls", "stall", "reason", "value", None),
        ("busy", "busy", "block", "value", None),
        ("packets", "packet", "block", "value", None),
    ):
        for (row, name), total in _totals(log, place, kind, key, column, direction).items():
            getattr(result[row], attribute)[name] = total
    return result


def layers(log: EventLog) -> list[Summary]:
    """One `Summary` a layer, over all its tasks (of every core and job), in order of their first tasks."""
    found: dict[str, Summary] = {}
    for one in summary(log):
        if one.layer not in found:
            found[one.layer] = Summary(one.layer, tasks=0, start=one.start, end=one.end)
        found[one.layer].add(one)
    return list(found.values())


def _places(log: EventLog, spans: list[TaskSpan]) -> npt.NDArray[np.int64]:
    """For each event the number of its task in `spans`, -1 outside them, shape (n,)."""
    keys = _key(
        np.array([s.core for s in spans]),
        np.array([s.job for s in spans]),
        np.array([s.task for s in spans]),
    )
    order = np.argsort(keys, kind="stable")
    mine = _key(log["core"], log["job"], log["task"])
    at = np.minimum(np.searchsorted(keys[order], mine), len(keys) - 1)
    return np.where(keys[order][at] == mine, order[at], -1)


def _key(core: npt.ArrayLike, job: npt.ArrayLike, task: npt.ArrayLike) -> npt.NDArray[np.int64]:
    # A task index has 12 bits; -1 becomes 0.
    return (
        (np.asarray(job, np.int64) * 4 + np.asarray(core, np.int64)) * 8192 + np.asarray(task, np.int64) + 1
    )


def _totals(
    log: EventLog,
    place: npt.NDArray[np.int64],
    kind: str,
    key: str,
    column: str | None,
    direction: str | None = None,
) -> dict[tuple[int, str], int]:
    """Sum of a column (None: number) of the events of a kind by (task number, text of `key`)."""
    mask = log.text("kind").equals(kind) & (place >= 0)
    if direction is not None:
        mask &= log.text("direction").equals(direction)
    text = log.text(key)
    pairs = place[mask] * len(text.names) + text.codes[mask]
    chosen, inverse = np.unique(pairs, return_inverse=True)
    sums = np.zeros(len(chosen), np.int64)
    np.add.at(sums, inverse, 1 if column is None else log[column][mask])
    return {
        (int(pair) // len(text.names), text.names[int(pair) % len(text.names)]): int(total)
        for pair, total in zip(chosen, sums, strict=True)
    }
