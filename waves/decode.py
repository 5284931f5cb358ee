"""What the pins of a core in a waveform mean, as objects.

All cycles are the waveform's own.  A core's event pins, its watch port and its diagnostics come from
registers: they show what happened in the cycle before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from rtl.regs import Register, registers
from rtl.regs.events import EVENTS, STALLS
from waves.pins import (
    diagnostic_name,
    event_place,
    event_stretches,
    joined,
    pin_names,
    spelled,
)

if TYPE_CHECKING:
    from waves.reader import Wave

JOBS = "npu.jobs"
"""Counter of the kicks of all cores, where the waveform has one."""

DECODED_PINS = (
    *("irq", "task_index"),
    *("watch_valid", "watch_fetched", "watch_offset", "watch_value"),
    *("diag_valid", "diag_code", "diag_register", "diag_value"),
)
"""Pins of a core that this module looks at."""


@dataclass(frozen=True)
class WaveTask:
    """One task of a core: `index` in its job, from cycle `start` to `end` (None: it did not end here).

    `job` is the number of its kick, from 0, over all cores (from the first that the waveform shows, where it
    holds no counters of the harness), `layer` the name of the layer that it belongs to, where known.
    """

    core: int
    job: int
    index: int
    start: int
    end: int | None
    layer: str = ""

    @property
    def cycles(self) -> int | None:
        """Cycles from start to end."""
        return None if self.end is None else self.end - self.start


@dataclass(frozen=True)
class RegisterWrite:
    """One write to a register, by the command stream (`fetched`) or by the host.

    `block` and `register` are "" for an offset that no register has; `fields` maps names to values and
    `text` is the same as people write it, codes by name.
    """

    cycle: int
    core: int
    offset: int
    value: int
    fetched: bool
    block: str = ""
    register: str = ""
    fields: dict[str, int] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """`BLOCK.REGISTER`, or the offset."""
        return f"{self.block}.{self.register}" if self.register else f"offset {self.offset:#06x}"

    @property
    def text(self) -> str:
        """The write in one line, fields that are 0 left out unless 0 has a name."""
        known = _register(self.offset)
        if known is None:
            return f"{self.path} = {self.value:#x}"
        parts = []
        for name, value in self.fields.items():
            label = known.fields[name].label(value)
            if label is not None or value:
                parts.append(f"{name}={label if label is not None else value}")
        return " ".join([self.path, *parts])


@dataclass(frozen=True)
class Stall:
    """Something waited from cycle `start` to before `end`; `reason` is the event's name, `text` says it."""

    core: int
    start: int
    end: int
    reason: str

    @property
    def text(self) -> str:
        """The reason in words."""
        return STALLS[self.reason]


@dataclass(frozen=True)
class Irq:
    """The interrupt line of a core was high from `start` to before `end` (None: to the end of the file)."""

    core: int
    start: int
    end: int | None


@dataclass(frozen=True)
class DiagnosticSeen:
    """Something a core found fault with: name of the code, register (`BLOCK.REGISTER`) and its value."""

    cycle: int
    core: int
    code: str
    register: str
    value: int


@dataclass(frozen=True)
class MacActivity:
    """Use of a core's MAC array.

    `intervals` are stretches (first cycle, cycle after the last) in which it works without a pause;
    `slots` counts the cycles in which it was given work, `real` those in which a pixel was no padding of
    the loop nest; `windows` holds (first cycle, slots / cycles of the window) for each window.
    """

    core: int
    intervals: list[tuple[int, int]]
    slots: int
    real: int
    windows: list[tuple[int, float]]


def counters(wave: Wave, core: int) -> dict[str, str]:
    """Counters that an engine traces beside a core: what they count to their full names."""
    parts = ("job", "task", "tasks_started", "tasks_done")
    names = {part: f"npu.core{core}.{part}" for part in parts}
    return {part: name for part, name in names.items() if wave.has(name)}


def tasks(wave: Wave) -> list[WaveTask]:
    """Tasks of all cores in order of their start."""
    found: list[WaveTask] = []
    for core in wave.cores:
        known = counters(wave, core)
        if event_place(wave, core, "task_start") is None and len(known) == 4:
            starts = _steps_up(wave, known["tasks_started"])
            ends = _steps_up(wave, known["tasks_done"])
        else:
            starts = [begin for begin, _ in event_stretches(wave, core, "task_start")]
            ends = [begin for begin, _ in event_stretches(wave, core, "task_done")]
        index_name = known["task"] if "task" in known else pin_names(wave, core, ("task_index",))[0]
        kicks = _kicks(wave, core)
        job, before = -1, None
        opened: list[WaveTask] = []
        for cycle, is_start in sorted([(c, True) for c in starts] + [(c, False) for c in ends]):
            if not is_start:  # a task that overlaps the next one ends first
                if opened:
                    task = opened.pop(0)
                    found.append(replace(task, end=cycle))
                continue
            index = _number(wave.value(index_name, cycle))
            if before is None or index <= before:
                job += 1
            before = index
            place = bisect_right(kicks, cycle, key=itemgetter(0))
            number = kicks[place - 1][1] if place else job
            opened.append(WaveTask(core, number, index, cycle, None, _layer(wave, core, cycle)))
        found += opened
    return sorted(found, key=lambda task: (task.start, task.core))


def _layer(wave: Wave, core: int, cycle: int) -> str:
    """Name of the layer at work, "" for none or an unknown one."""
    name = f"npu.core{core}.layer_name"
    value = wave.value(name, cycle) if wave.has(name) else None
    return value if isinstance(value, str) and value != "-" else ""


def _kicks(wave: Wave, core: int) -> list[tuple[int, int]]:
    """(cycle, number) of each kick of a core, from the harness' counters or from the host's writes."""
    own = counters(wave, core).get("job")
    if own is not None and wave.has(JOBS):
        ups = [cycle for (_, before), (cycle, now) in pairwise(wave.changes(own)) if before != now]
        if _number(wave.value(own, wave.first)):
            ups.insert(0, wave.first)
        return [(cycle, _number(wave.value(JOBS, cycle)) - 1) for cycle in ups]
    if any(spelled(wave, other, "watch_valid") is None for other in wave.cores):
        return []
    enable = registers()["PC"]["OPERATION_ENABLE"]
    writes = [
        write
        for write in register_writes(wave, wave.cores)
        if write.offset == enable.offset and not write.fetched and write.fields["OP_EN"]
    ]
    return [(write.cycle, number) for number, write in enumerate(writes) if write.core == core]


def register_writes(wave: Wave, cores: Iterable[int]) -> list[RegisterWrite]:
    """Register writes, in order."""
    found: list[RegisterWrite] = []
    for core in cores:
        names = pin_names(wave, core, ("watch_valid", "watch_fetched", "watch_offset", "watch_value"))
        for begin, end, (valid, fetched, offset, value) in wave.steps(names):
            if valid == 1:
                # The same write in two cycles running does not show as a change.
                found += [
                    _write(cycle, core, _number(offset), _number(value), fetched == 1)
                    for cycle in range(begin, end)
                ]
    return sorted(found, key=lambda write: (write.cycle, write.core))


def stalls(wave: Wave, cores: Iterable[int]) -> list[Stall]:
    """Stretches in which something waited."""
    found = [
        Stall(core, begin, end, reason)
        for core in cores
        for reason in STALLS
        for begin, end in event_stretches(wave, core, reason)
    ]
    return sorted(found, key=lambda stall: (stall.start, stall.core, EVENTS.index(stall.reason)))


def irqs(wave: Wave, cores: Iterable[int]) -> list[Irq]:
    """Stretches in which an interrupt line was high."""
    found: list[Irq] = []
    for core in cores:
        if spelled(wave, core, "irq") is None and wave.has("npu.irq"):
            high = [
                (begin, end)
                for begin, end, (lines,) in wave.steps(["npu.irq"])
                if isinstance(lines, int) and lines >> core & 1
            ]
            stretches = list(joined(high))
        else:
            stretches = wave.when(pin_names(wave, core, ("irq",))[0], 1)
        found += [Irq(core, begin, end if end <= wave.last else None) for begin, end in stretches]
    return sorted(found, key=lambda irq: (irq.start, irq.core))


def diagnostics(wave: Wave, cores: Iterable[int]) -> list[DiagnosticSeen]:
    """What the cores found fault with."""
    found: list[DiagnosticSeen] = []
    for core in cores:
        names = pin_names(wave, core, ("diag_valid", "diag_code", "diag_register", "diag_value"))
        for begin, end, (valid, code, offset, value) in wave.steps(names):
            if valid == 1:
                known = _register(_number(offset))
                place = known.path if known else f"offset {_number(offset):#06x}"
                found += [
                    DiagnosticSeen(cycle, core, diagnostic_name(_number(code)), place, _number(value))
                    for cycle in range(begin, end)
                ]
    return sorted(found, key=lambda seen: (seen.cycle, seen.core))


def mac_activity(wave: Wave, cores: Iterable[int], window: int) -> list[MacActivity]:
    """Use of the MAC arrays.

    Raises
    ------
    ValueError
        if `window` is not positive.
    """
    if window < 1:
        raise ValueError(f"a window of {window} cycles; it must be at least 1")
    found = []
    for core in cores:
        busy = event_stretches(wave, core, "mac_slot")
        real = sum(end - begin for begin, end in event_stretches(wave, core, "mac_real"))
        edges = range(wave.first, wave.last + 1, window)
        filled = [0] * len(edges)
        for begin, end in busy:
            for n in range((begin - wave.first) // window, (end - 1 - wave.first) // window + 1):
                low = wave.first + n * window
                filled[n] += min(end, low + window) - max(begin, low)
        windows = [
            (low, count / (min(low + window, wave.last + 1) - low))
            for low, count in zip(edges, filled, strict=True)
        ]
        slots = sum(end - begin for begin, end in busy)
        found.append(MacActivity(core, busy, slots, real, windows))
    return found


def _steps_up(wave: Wave, name: str) -> list[int]:
    """Cycles in which a counter goes up; one that is not 0 at first has not gone up there."""
    return [
        cycle
        for (_, before), (cycle, now) in pairwise(wave.changes(name))
        for _ in range(_number(now) - _number(before))
    ]


def _write(cycle: int, core: int, offset: int, value: int, fetched: bool) -> RegisterWrite:
    known = _register(offset)
    if known is None:
        return RegisterWrite(cycle, core, offset, value, fetched)
    return RegisterWrite(cycle, core, offset, value, fetched, known.block, known.name, known.decode(value))


def _register(offset: int) -> Register | None:
    return registers().at(offset)


def _number(value: object) -> int:
    """An integer; 0 for what is unknown."""
    return value if isinstance(value, int) else 0
