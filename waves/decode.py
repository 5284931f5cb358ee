"""A waveform of the NPU: tasks, register writes, bursts and other meanings of its pins, as objects.

All cycles are the waveform's. A core's event pins, its watch port and its diagnostics come from registers:
they show what happened in the cycle before.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from rkcosim.spec.port_codes import diagnostic_name
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.events import EVENTS, STALLS
from rkcosim.waves.accesses import Access, core_accesses, value_text
from rkcosim.waves.backends import Backend, open_backend
from rkcosim.waves.bursts import BURST_PINS, Burst, Region, core_bursts, regions
from rkcosim.waves.clocking import Edges, Regular, parse_time, periods, time_text
from rkcosim.waves.files import WaveError, inspect
from rkcosim.waves.jobs import Job, core_jobs
from rkcosim.waves.pins import event_place, event_stretches, has_group, high_stretches, pin_names, spelled
from rkcosim.waves.portmap import PortMap, mapped
from rkcosim.waves.ports import AXI_READ, CLOCK, LITE_WRITE, WATCH
from rkcosim.waves.reader import Reader, Repeats
from rkcosim.waves.spec import When

CYCLE = Fraction(1, 10**9)
"""Duration of a cycle in seconds in the waveforms of the engines: 1 GHz."""

MOST_WINDOWS = 1 << 20
"""Largest number of windows of `Wave.mac_activity`; the last time is only a number in the file."""

JOBS = "npu.jobs"
"""Counter of the kicks of all cores, if the waveform has one."""

DECODED_PINS = (
    *("irq", "task_index"),
    *("watch_valid", "watch_fetched", "watch_offset", "watch_value"),
    *("diag_valid", "diag_code", "diag_register", "diag_value"),
)
"""Pins of a core that this module reads, except those for bursts."""


@dataclass(frozen=True)
class WaveTask:
    """One task of a core.

    Members
    -------
    index : index in its job.
    start, end : first cycle, and the cycle of its end (None: it does not end within the waveform).
    job : number of its kick, counted from 0 over all cores (from the first one that the waveform shows, if it
        contains no counters of the harness).
    layer : name of the layer to which it belongs, if known.
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

    Members
    -------
    block, register : names; "" for an offset without a register.
    fields : field values by name.
    text : the write in readable form, with codes by name.
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
        """The write in one line; fields that are 0 are left out unless 0 has a name."""
        return value_text(self.path, registers().at(self.offset), self.value)


@dataclass(frozen=True)
class Stall:
    """A block waited from cycle `start` until before `end`.

    `reason` is the event's name, `text` explains it.
    """

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
    """The interrupt line of a core was high from `start` until before `end` (None: to the file's end)."""

    core: int
    start: int
    end: int | None


@dataclass(frozen=True)
class DiagnosticSeen:
    """A diagnostic of a core: name of the code, register (`BLOCK.REGISTER`) and its value."""

    cycle: int
    core: int
    code: str
    register: str
    value: int


@dataclass(frozen=True)
class MacActivity:
    """Use of a core's MAC array.

    Members
    -------
    intervals : stretches (first cycle, cycle after the last) in which it works without a pause.
    slots : number of cycles in which it was given work.
    real : number of cycles in which a pixel was not padding of the loop nest.
    windows : (first cycle, slots / cycles of the window) for each window.
    """

    core: int
    intervals: list[tuple[int, int]]
    slots: int
    real: int
    windows: list[tuple[int, float]]


class Wave(Reader):
    """A waveform of one or several cores, opened by `open_wave`."""

    def load_pins(self) -> None:
        """Read at once the pins that `tasks`, `register_writes`, `bursts` and the other methods use."""
        names: list[str | None] = [JOBS] if self.has(JOBS) else []
        for core in self.cores:
            names += [spelled(self, core, pin) for pin in (*DECODED_PINS, *BURST_PINS)]
            names += [place[0] for event in EVENTS if (place := event_place(self, core, event))]
            names += [*self.counters(core).values(), f"npu.core{core}.layer_name"]
        self.load(*dict.fromkeys(name for name in names if name and self.has(name)))

    def counters(self, core: int) -> dict[str, str]:
        """Return the full names of the counters that an engine traces for a core, by what they count."""
        parts = ("job", "task", "tasks_started", "tasks_done")
        names = {part: f"npu.core{core}.{part}" for part in parts}
        return {part: name for part, name in names.items() if self.has(name)}

    def tasks(self) -> list[WaveTask]:
        """Return the tasks of all cores in the order of their start."""
        found: list[WaveTask] = []
        for core in self.cores:
            known = self.counters(core)
            if event_place(self, core, "task_start") is None and len(known) == 4:
                starts = self._steps_up(known["tasks_started"])
                ends = self._steps_up(known["tasks_done"])
            else:
                starts = [begin for begin, _ in event_stretches(self, core, "task_start")]
                ends = [begin for begin, _ in event_stretches(self, core, "task_done")]
            index_name = known["task"] if "task" in known else pin_names(self, core, ("task_index",))[0]
            kicks = self._kicks(core)
            job, before = -1, None
            opened: list[WaveTask] = []
            for cycle, is_start in sorted([(c, True) for c in starts] + [(c, False) for c in ends]):
                if not is_start:  # if tasks overlap, the earlier one ends first
                    if opened:
                        found.append(replace(opened.pop(0), end=cycle))
                    continue
                index = _number(self.value(index_name, cycle))
                if before is None or index <= before:
                    job += 1
                before = index
                place = bisect_right(kicks, cycle, key=itemgetter(0))
                number = kicks[place - 1][1] if place else job
                opened.append(WaveTask(core, number, index, cycle, None, self._layer(core, cycle)))
            found += opened
        return sorted(found, key=lambda task: (task.start, task.core))

    def register_writes(self, core: int | None = None) -> list[RegisterWrite]:
        """Return the register writes of one core or of all, in order.

        Without the watch port they are those of the bus pins: the host's writes in the cycle in which both
        halves have been accepted, and the words of command lists in the cycle in which they arrive, which is
        before the core executes them.
        """
        found: list[RegisterWrite] = []
        for number in self._chosen(core):
            if has_group(self, number, WATCH) or not self._has_bus(number):
                marked = self._marked(number, "watch_valid", "watch_fetched", "watch_offset", "watch_value")
                found += [_written(cycle, number, *write) for cycle, write in marked]
            else:
                found += self._bus_writes(number)
        return sorted(found, key=lambda write: (write.cycle, write.core))

    def _has_bus(self, core: int) -> bool:
        return has_group(self, core, LITE_WRITE) or has_group(self, core, AXI_READ)

    def _bus_writes(self, core: int) -> Iterator[RegisterWrite]:
        """Yield the register writes of a core's bus pins."""
        if has_group(self, core, LITE_WRITE):
            for access in self.accesses(core):
                if access.direction == "write" and access.whole and access.value is not None:
                    yield _written(access.accepted, core, 0, access.offset, access.value)
        for job in self.jobs(core):
            for task in job.tasks:
                for command, cycle in zip(task.commands, task.cycles, strict=True):
                    if command.kind == "register" and cycle is not None:
                        yield _written(cycle, core, 1, command.offset, command.value)

    def accesses(self, core: int | None = None) -> list[Access]:
        """Return the host's register accesses of one core or of all, in the order of their start.

        Raises
        ------
        WaveError
            if the waveform has neither the write nor the read channels of the AXI-Lite port.
        """
        found = [access for number in self._chosen(core) for access in core_accesses(self, number)]
        return sorted(found, key=lambda access: (access.start, access.accepted, access.core))

    def jobs(self, core: int | None = None) -> list[Job]:
        """Return the jobs of one core or of all, in the order of their kicks.

        They are numbered over all cores of the waveform. The AXI-Lite write channels are needed; the read
        channels, the AXI read channels, the interrupt line and the events add what they show.
        """
        chosen = self._chosen(core)
        found = []
        for number in self.cores:
            rises = [irq.start for irq in self.irqs(number)] if self._shows_irq(number) else []
            events: list[tuple[int, int, int | None]] = []
            with contextlib.suppress(WaveError):
                events = [(t.index, t.start, t.end) for t in self.tasks() if t.core == number]
            found += core_jobs(self, number, core_accesses(self, number), rises, events)
        found.sort(key=lambda job: (job.start, job.core))
        return [replace(job, number=n) for n, job in enumerate(found) if job.core in chosen]

    def _shows_irq(self, core: int) -> bool:
        return spelled(self, core, "irq") is not None or self.has("npu.irq")

    def bursts(self, core: int | None = None) -> list[Burst]:
        """Return the AXI bursts of one core or of all, in the order of their start.

        Bursts requested before the waveform begins are left out.
        """
        found = [burst for number in self._chosen(core) for burst in core_bursts(self, number)]
        return sorted(found, key=lambda burst: (burst.start, burst.core, burst.direction))

    def regions(self, core: int | None = None) -> list[Region]:
        """Return the ranges of memory that the bursts of each client cover, with their bytes."""
        return regions(self.bursts(core))

    def mac_activity(self, core: int | None = None, window: int = 1000) -> list[MacActivity]:
        """Return the activity of each core's MAC array, with its use in windows of `window` cycles.

        Raises
        ------
        ValueError
            if `window` is not positive, or the waveform has more than `MOST_WINDOWS` windows of that size.
        """
        if window < 1:
            raise ValueError(f"a window of {window} cycles; it must be at least 1")
        found = []
        edges = range(self.first, self.last + 1, window)
        if (count := (self.last - self.first) // window + 1) > MOST_WINDOWS:
            raise ValueError(
                f"{count:,} windows of {window} cycles; there may be {MOST_WINDOWS:,}: choose larger ones"
            )
        for number in self._chosen(core):
            busy = event_stretches(self, number, "mac_slot")
            real = event_stretches(self, number, "mac_real")
            filled = [0] * len(edges)
            for begin, end in busy:
                for n in range((begin - self.first) // window, (end - 1 - self.first) // window + 1):
                    filled[n] += min(end, edges[n] + window) - max(begin, edges[n])
            windows = [
                (low, count / (min(low + window, self.last + 1) - low))
                for low, count in zip(edges, filled, strict=True)
            ]
            found.append(MacActivity(number, busy, _total(busy), _total(real), windows))
        return found

    def stalls(self, core: int | None = None) -> list[Stall]:
        """Return the stretches in which a block waited, with the reason."""
        found = [
            Stall(number, begin, end, reason)
            for number in self._chosen(core)
            for reason in STALLS
            for begin, end in event_stretches(self, number, reason)
        ]
        return sorted(found, key=lambda stall: (stall.start, stall.core, EVENTS.index(stall.reason)))

    def irqs(self, core: int | None = None) -> list[Irq]:
        """Return the stretches in which an interrupt line was high."""
        found: list[Irq] = []
        for number in self._chosen(core):
            if spelled(self, number, "irq") is None and self.has("npu.irq"):
                stretches = high_stretches(self, "npu.irq", number)
            else:
                stretches = self.when(pin_names(self, number, ("irq",))[0], 1)
            found += [Irq(number, begin, end if end <= self.last else None) for begin, end in stretches]
        return sorted(found, key=lambda irq: (irq.start, irq.core))

    def diagnostics(self, core: int | None = None) -> list[DiagnosticSeen]:
        """Return the diagnostics of the cores."""
        found: list[DiagnosticSeen] = []
        for number in self._chosen(core):
            for cycle, (code, offset, value) in self._marked(
                number, "diag_valid", "diag_code", "diag_register", "diag_value"
            ):
                known = registers().at(offset)
                place = known.path if known else f"offset {offset:#06x}"
                found.append(DiagnosticSeen(cycle, number, diagnostic_name(code), place, value))
        return sorted(found, key=lambda seen: (seen.cycle, seen.core))

    def _chosen(self, core: int | None) -> list[int]:
        if core is not None and core not in self.cores:
            there = ", ".join(map(str, self.cores)) or "none"
            raise WaveError(f"{self.file}: no core {core} in this waveform (there are: {there})")
        return self.cores if core is None else [core]

    def _marked(self, core: int, valid: str, *pins: str) -> Iterator[tuple[int, list[int]]]:
        """Yield each cycle in which a pin is high, with the values of other pins.

        Equal values in two consecutive cycles are not a change in the waveform.
        """
        repeats = Repeats(self)
        for begin, end, (high, *values) in self.steps(pin_names(self, core, (valid, *pins))):
            if high == 1:
                for cycle in repeats(begin, end):
                    yield cycle, [_number(value) for value in values]

    def _layer(self, core: int, cycle: int) -> str:
        """Return the name of the layer that is running, "" for none or an unknown one."""
        name = f"npu.core{core}.layer_name"
        value = self.value(name, cycle) if self.has(name) else None
        return value if isinstance(value, str) and value != "-" else ""

    def _kicks(self, core: int) -> list[tuple[int, int]]:
        """Return (cycle, number) of each kick of a core, from the harness's counters or the host's writes."""
        own = self.counters(core).get("job")
        if own is not None and self.has(JOBS):
            ups = [cycle for (_, before), (cycle, now) in pairwise(self.changes(own)) if before != now]
            if _number(self.value(own, self.first)):
                ups.insert(0, self.first)
            return [(cycle, _number(self.value(JOBS, cycle)) - 1) for cycle in ups]
        if any(spelled(self, other, "watch_valid") is None for other in self.cores):
            return []
        enable = registers()["PC"]["OPERATION_ENABLE"].offset
        writes = [w for w in self.register_writes() if w.offset == enable and not w.fetched]
        kicks = enumerate(write for write in writes if write.fields["OP_EN"])
        return [(write.cycle, number) for number, write in kicks if write.core == core]

    def _steps_up(self, name: str) -> list[int]:
        """Return the cycles in which a counter goes up; a non-zero initial value does not count."""
        return [
            cycle
            for (_, before), (cycle, now) in pairwise(self.changes(name))
            for _ in range(_number(now) - _number(before))
        ]


def open_wave(
    file: Path | str,
    *,
    reader: str = "auto",
    cycle: Fraction | float | str | None = None,
    first_edge: Fraction | float | str | None = None,
    clock: str | None = None,
    ports: PortMap | Path | str | None = None,
    prefix: str | None = None,
    partial: bool = False,
) -> Wave:
    """Open a VCD or FST file.

    Only names are read at first; a signal's changes are read when they are first requested (a clock's at
    once). Without `cycle`, `first_edge` and `clock`, the cycles are those of the map's clock or of the port
    `clk` of a core whose clock has another period than the engines'; else cycle n is at n ns.

    Parameters
    ----------
    file : the waveform.
    reader : "pywellen", "vcdvcd", or "auto": pywellen for FST and large files if it is installed.
    cycle : length of a clock cycle in seconds, or a text with a unit ("10ns"); default 1e-9.
    first_edge : time of the first rising edge in the same forms; cycle 0 ends there.
    clock : name of the clock, whose rising edges are the cycles.
    ports : names of the core's ports, if they are not those of the export (`rkcosim.waves.portmap`): a map,
        or its file.
    prefix : beginning of the names of core 0's ports, as "top.dut.".
    partial : True to read a truncated VCD file as far as possible.

    Raises
    ------
    WaveError
        if the file does not exist, is not a waveform, or is truncated, if a name does not exist, or a clock
        has no edges.
    """
    path = Path(file)
    facts = inspect(path)
    if facts.cut and not partial:
        raise WaveError(f"{path}: cut off: {facts.cut} (partial=True reads what is there)")
    if clock is not None and (cycle is not None or first_edge is not None):
        raise WaveError("a clock gives the length of each cycle: leave out cycle and first_edge")
    backend = open_backend(path, facts, reader)
    map_of = PortMap.of(ports, prefix)
    given = {"cycle": cycle, "first_edge": first_edge}
    known = {} if clock is not None or map_of is None else dict(map_of.times)
    known |= {name: _seconds(value) for name, value in given.items() if value is not None}
    regular = _regular(backend, known)
    times = facts.first, facts.end
    wave = Wave(path, facts.format, backend, regular, times)
    if map_of is not None and map_of.cores:
        source, scopes = mapped(path, backend, map_of, wave)
        wave = Wave(path, facts.format, source, regular, times, scopes or None)
    if clock is None and not known:
        clock = _own_clock(wave, asked=map_of is not None)
    if clock is not None:
        wave.count(_edges(wave, clock))
    elif regular.length < 1:
        length = regular.length * backend.unit
        raise WaveError(f"{path}: a cycle of {float(length)} s is shorter than the file's unit of time")
    return wave


def _seconds(value: Fraction | float | str) -> Fraction:
    try:
        return parse_time(value) if isinstance(value, str) else Fraction(value).limit_denominator(10**15)
    except ValueError as error:
        raise WaveError(str(error)) from error


def _regular(backend: Backend, known: Mapping[str, Fraction]) -> Regular:
    """Return cycles of equal length."""
    length = known.get("cycle", CYCLE)
    units = length / backend.unit
    edge = known.get("first_edge")
    text = f"cycles of {time_text(length)}" if known else ""
    if edge is None:
        return Regular(units, None, text)
    return Regular(units, edge / backend.unit, f"{text} from {time_text(edge)} on")


def _own_clock(wave: Wave, *, asked: bool) -> str | None:
    """Return the name of the clock of a waveform from elsewhere; None: cycle n is at n ns.

    Parameters
    ----------
    asked : True if a map or a prefix was given; the clock is then used whatever its period is.
    """
    scopes = wave.core_scopes.values()
    names = [
        name for name in (f"{CLOCK}.{CLOCK}", *(f"{scope}.{CLOCK}" for scope in scopes)) if wave.has(name)
    ]
    if not names or (not asked and wave.within("npu")):
        return None
    if not asked:
        found = periods(_rises(wave, names[0]))
        if not found or found[0][0] * wave.unit == CYCLE:
            return None
    return names[0]


def _rises(wave: Wave, name: str) -> list[int]:
    """Return the times of the rising edges of a clock."""
    pairs = wave.moments(name)
    return [when for (_, before), (when, now) in pairwise(pairs) if (before, now) == (0, 1)]


def _edges(wave: Wave, clock: str) -> Edges:
    """Return the cycles of a clock."""
    signal = wave.find(clock)
    name = signal.parts[0].name if signal.parts else signal.name
    if signal.width != 1:
        raise WaveError(f"{wave.file}: the clock {name} has {signal.width} bits")
    found = _rises(wave, signal.name)
    if not found:
        raise WaveError(f"{wave.file}: the clock {name} has no rising edge")
    text = f"clock {name}"
    if lengths := [length for length, _ in periods(found)]:
        least, most = (time_text(edge(lengths) * wave.unit) for edge in (min, max))
        text += f", period {least}"
        if most != least:
            mean = Fraction(found[-1] - found[0], len(found) - 1) * wave.unit
            text += f" to {most}, on average {time_text(mean)}"
    return Edges(found, text)


def cycle_of(wave: Wave, when: When, *, end: bool = False) -> int:
    """Return the cycle of a moment of a run; with `end` the end of a task or layer instead of its start.

    Raises
    ------
    WaveError
        if the waveform does not show it.
    """
    if when.kind == "cycle":
        return when.cycle
    if when.kind in ("task", "layer"):
        return _cycle_of_task(wave, when, end)
    if when.kind == "write":
        for write in wave.register_writes():
            if write.offset == when.offset and write.value & when.mask == when.value & when.mask:
                return write.cycle
    elif when.kind == "error":
        if seen := wave.diagnostics():
            return seen[0].cycle
    else:
        raise WaveError(f"'{when.text}': a waveform does not show this moment; give a cycle, task or layer")
    raise WaveError(f"{wave.file}: '{when.text}' does not happen in this waveform")


def _cycle_of_task(wave: Wave, when: When, end: bool) -> int:
    """Return the start of the first matching task; with `end`, its end or that of the layer's last task."""
    tasks = wave.tasks()
    if when.kind == "layer":
        found = [task for task in tasks if task.layer == when.layer]
        names = list(dict.fromkeys(task.layer for task in tasks if task.layer))
    else:
        found = [t for t in tasks if t.index == when.task and when.job in (None, t.job)][:1]
        names = [f"{task.index}@{task.job}" for task in tasks]
        names[8:] = ["..."] if len(names) > 8 else []
    if not found:
        there = ", ".join(names) or "none"
        raise WaveError(f"{wave.file}: '{when.text}': no such {when.kind} (there are: {there})")
    if not end:
        return found[0].start
    return max(wave.last if task.end is None else task.end for task in found)


def _total(stretches: list[tuple[int, int]]) -> int:
    """Return the total number of cycles of some stretches."""
    return sum(end - begin for begin, end in stretches)


def _written(cycle: int, core: int, fetched: int, offset: int, value: int) -> RegisterWrite:
    """Return a register write with its names."""
    known = registers().at(offset)
    names = (known.block, known.name, known.decode(value)) if known else ()
    return RegisterWrite(cycle, core, offset, value, fetched == 1, *names)


def _number(value: object) -> int:
    """Return an integer; 0 for an unknown value."""
    return value if isinstance(value, int) else 0
