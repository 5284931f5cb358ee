"""What a viewer shows of a waveform: groups of signals, texts for values, colours, marks in time.

GTKWave, Surfer and the SVG picture share this description; it contains only signals of the waveform.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from rkcosim.spec.regs import Field, Register, registers
from rkcosim.spec.regs.events import EVENTS
from rkcosim.waves import translate
from rkcosim.waves.backends import Signal
from rkcosim.waves.decode import Irq, Wave, WaveTask
from rkcosim.waves.files import WaveError
from rkcosim.waves.pins import event_place, spelled
from rkcosim.waves.translate import Translation

MOST_WORDS = 4096
"""Maximum number of different command words that get a text."""

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Blocks with a register file, in the order of the data flow."""

COLOURS = {
    "task": "green",
    "write": "orange",
    "irq": "red",
    "axi": "blue",
    "block": "violet",
    "field": "yellow",
}
"""Colour of each kind of row, by names that GTKWave and Surfer both have."""

_COUNTERS = ("job", "task", "layer_name", "tasks_done", "reads_open", "writes_open")
_READS = ("arvalid", "arready", "araddr", "arid", "arlen", "rvalid", "rready", "rid", "rlast", "rresp")
_WRITES = (
    *("awvalid", "awready", "awaddr", "awid", "awlen"),
    *("wvalid", "wready", "wlast", "bvalid", "bid", "bresp"),
)
_LITE = (
    *("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "wstrb", "bvalid", "bready", "bresp"),
    *("arvalid", "arready", "araddr", "rvalid", "rready", "rdata", "rresp"),
)
# Names of a block in an engine's waveform and in the core's Verilog.
_CONTROL = ("control.start", "control.done", "control.group", "registers.running")
_CONTROL_PORTS = ("control__start", "control__done", "control__group", "running")


@dataclass(frozen=True)
class ViewerLine:
    """One line of a viewer: a signal or one `bit` of it.

    Values are shown as `texts`, or in `base`: "hex", "dec", "bin", or "text" for text values.
    """

    signal: Signal
    label: str
    kind: str
    base: str = "hex"
    texts: Translation | None = None
    bit: int | None = None

    @property
    def width(self) -> int:
        """Width of the line's value in bits."""
        return 1 if self.bit is not None else self.signal.width

    def value(self, value: object) -> int | str | None:
        """Return what the line shows of its signal's value."""
        if isinstance(value, str) and self.base == "text":
            return value
        if not isinstance(value, int):
            return None
        return value if self.bit is None else value >> self.bit & 1

    def text(self, value: int | str | None) -> str:
        """Format a value as in the line."""
        if value is None:
            return "x"
        if isinstance(value, str):
            return value
        if self.texts is not None and value in self.texts.texts:
            return self.texts.texts[value]
        return str(value) if self.base == "dec" else f"{value:x}"


@dataclass
class Group:
    """Rows and groups under one heading; a `closed` one is initially folded."""

    name: str
    items: list[ViewerLine | Group] = field(default_factory=list)
    closed: bool = False

    def rows(self) -> Iterator[ViewerLine]:
        """Yield all rows, including those of inner groups."""
        for item in self.items:
            if isinstance(item, ViewerLine):
                yield item
            else:
                yield from item.rows()


@dataclass(frozen=True)
class Mark:
    """A moment to be marked: `kind` is "task" or "irq"."""

    cycle: int
    name: str
    kind: str


_MOVING = ("busy", "events")
"""Groups whose rows, like those outside of groups, show that a core is active."""


def layout(wave: Wave) -> list[Group]:
    """Return groups for a viewer: counters, then for each core its pins and the blocks that were used."""
    groups: list[Group] = []
    written = _written(wave)
    for core in wave.cores:
        group = Group(f"core {core}")
        group.items += _control(wave, core)
        made = [_block(wave, core, block, written.get((core, block), set())) for block in BLOCKS]
        group.items += [block for block in made if block.items]
        group.items += _buses(wave, core)
        if group.items:
            groups.append(group)
    return groups or _scopes(wave)


def _scopes(wave: Wave) -> list[Group]:
    """Return the outermost scopes of a waveform without cores (for example one block in a testbench)."""
    groups: list[Group] = []
    scopes = ["", *wave.scopes()]
    while scopes and not groups:
        groups = [
            Group(scope or "top", [_row(signal, signal.leaf, "block") for signal in signals if signal.width])
            for scope in scopes
            if (signals := wave.within(scope))
        ]
        scopes = [inside for scope in scopes if scope for inside in wave.scopes(scope)]
    return groups


def chosen(wave: Wave, patterns: Sequence[str]) -> list[Group]:
    """Return groups of the signals that match patterns, by scope, with texts as in `layout`.

    A pattern matches a full name, or a name inside a core or the scope `npu`, or else the end of any name. Of
    several names of one signal, the one in `layout` is used.

    Raises
    ------
    WaveError
        if a pattern matches no signal.
    """
    known = {row.signal.reference: row for group in layout(wave) for row in group.rows() if row.bit is None}
    groups: dict[str, Group] = {}
    seen: set[str] = set()
    for pattern in patterns:
        for signal in _fitting(wave, pattern):
            row = known.get(signal.reference)
            if signal.reference in seen or not (signal.width or row):
                continue
            seen.add(signal.reference)
            if row is None:
                row = _row(signal, signal.leaf, "block")
            elif row.kind != "field":
                row = replace(row, label=row.signal.leaf)
            scope, registers_scope, _ = row.signal.scope.partition(".registers")
            groups.setdefault(scope + registers_scope, Group(scope + registers_scope)).items.append(row)
    return list(groups.values())


def _fitting(wave: Wave, pattern: str) -> list[Signal]:
    near = [f"{scope}.{pattern}" for scope in ("npu", *wave.core_scopes.values())]
    found = [s for s in wave.glob(pattern) if fnmatch.fnmatchcase(s.name, pattern)]
    found = found or [s for s in wave.glob(*near) if any(fnmatch.fnmatchcase(s.name, n) for n in near)]
    return found or wave.glob(pattern) or [wave.find(pattern)]


def marks(wave: Wave, first: int | None = None, last: int | None = None) -> list[Mark]:
    """Return starts of tasks and rising interrupt lines from one cycle to another, in order."""
    tasks, irqs = tasks_and_irqs(wave)
    jobs, cores = len({task.job for task in tasks}) > 1, len({task.core for task in tasks}) > 1
    found = []
    for task in tasks:
        name = f"job {task.job} task {task.index}" if jobs else f"task {task.index}"
        name += f" {task.layer}" if task.layer else ""
        found.append(Mark(task.start, f"{name} core {task.core}" if cores else name, "task"))
    found += [] if tasks else _job_marks(wave)
    found += [Mark(irq.start, f"irq core {irq.core}" if cores else "irq", "irq") for irq in irqs]
    return sorted(
        (m for m in found if (first is None or m.cycle >= first) and (last is None or m.cycle <= last)),
        key=lambda mark: (mark.cycle, mark.kind),
    )


def _job_marks(wave: Wave) -> list[Mark]:
    """Return the starts of jobs, for a waveform without events of tasks."""
    try:
        jobs = wave.jobs()
    except WaveError:
        return []
    several = len(wave.cores) > 1
    return [
        Mark(job.start, f"job {job.number} core {job.core}" if several else f"job {job.number}", "task")
        for job in jobs
    ]


def in_file(row: ViewerLine) -> list[ViewerLine]:
    """Return the rows that a viewer can show of a row: the same, or the signals that a port consists of."""
    signal = row.signal
    if not signal.parts:
        return [row]
    sources = list(dict.fromkeys(signal.parts))
    if len(sources) == 1:
        same = sources[0].reference == signal.reference
        return [replace(row, signal=sources[0], texts=row.texts if same else None)]
    return [replace(row, signal=one, label=f"{row.label} {one.leaf}", texts=None) for one in sources]


QUIET_SHARE = 0.5
"""Share of a waveform without activity from which a viewer does not initially show the whole waveform."""

_MARGIN = 0.05
"""Length of the quiet part that a viewer shows, relative to the active part."""


def opening(wave: Wave, groups: Sequence[Group]) -> tuple[int, int]:
    """Return the first and last cycle that a viewer of these groups (`layout`) initially shows.

    This is the whole waveform, unless the cores are inactive in one stretch of more than `QUIET_SHARE` of it,
    as in a job that hangs until its time-out. Then it is the side of the stretch with more activity.
    """
    inner = [item for group in groups if wave.cores for item in group.items if isinstance(item, Group)]
    telling = [
        item for item in inner if item.name in _MOVING
    ] or inner  # the bus, where nothing else is there
    rows = [row for item in telling for row in item.rows()]
    rows += [row for group in groups if wave.cores for row in group.items if isinstance(row, ViewerLine)]
    names = {row.signal.name for row in rows}
    wave.load(*sorted(names))
    moves = sorted({cycle for name in names for cycle, _ in wave.changes(name)})
    inside = [cycle for cycle in moves if wave.first < cycle < wave.last]
    edges = [wave.first, *inside, wave.last]
    begin, end = max(pairwise(edges), key=lambda pair: pair[1] - pair[0])
    if not inside or end - begin <= QUIET_SHARE * (wave.last - wave.first):
        return wave.first, wave.last
    before, after = bisect_right(moves, begin), len(moves) - bisect_left(moves, end)
    if before >= after:
        return wave.first, min(begin + max(int(_MARGIN * (begin - wave.first)), 20), wave.last)
    return max(end - max(int(_MARGIN * (wave.last - end)), 20), wave.first), wave.last


def tasks_and_irqs(wave: Wave) -> tuple[list[WaveTask], list[Irq]]:
    """Return both, as far as the waveform contains them."""
    tasks: list[WaveTask] = []
    irqs: list[Irq] = []
    with contextlib.suppress(WaveError):
        tasks = wave.tasks()
    with contextlib.suppress(WaveError):
        irqs = wave.irqs()
    return tasks, irqs


def translations(groups: Iterable[Group]) -> list[Translation]:
    """Return every translation that some groups use, once."""
    found = {row.texts.name: row.texts for group in groups for row in group.rows() if row.texts is not None}
    return list(found.values())


def _control(wave: Wave, core: int) -> list[ViewerLine | Group]:
    """Rows about the activity of a core."""
    items: list[ViewerLine | Group] = []
    items += _rows(wave, [("irq", spelled(wave, core, "irq"))], "irq")
    counted = [(part, f"npu.core{core}.{part}") for part in _COUNTERS]
    items += [
        replace(row, base="text" if row.label == "layer_name" else "dec")
        for row in _rows(wave, counted, "task")
    ]
    if not any(isinstance(item, ViewerLine) and item.label == "task" for item in items):
        items += _rows(wave, [("task", spelled(wave, core, "task_index"))], "task", base="dec")
    blocks = spelled(wave, core, "busy_blocks")
    busy = [(block, f"{wave.core_scopes[core]}.busy.{block}") for block in BLOCKS]
    writes = _pins(wave, core, ("watch_valid", "watch_fetched"), "write")
    writes += _pins(wave, core, ("watch_offset",), "write", texts=translate.of_offsets())
    writes += _pins(wave, core, ("watch_value",), "write")
    whole = _rows(wave, [("busy", blocks)], "task", texts=translate.of_blocks())
    parts = [
        ("busy", whole or _rows(wave, busy, "task")),
        ("register writes", writes),
        ("command words", _words(wave, core)),
        ("events", _events(wave, core)),
    ]
    return items + [Group(name, list(rows)) for name, rows in parts if rows]


def _buses(wave: Wave, core: int) -> list[ViewerLine | Group]:
    """Rows about the inputs and outputs of a core."""
    diagnostics = _pins(wave, core, ("diag_valid",), "irq")
    diagnostics += _pins(wave, core, ("diag_code",), "irq", texts=translate.of_diagnostics())
    diagnostics += _pins(wave, core, ("diag_register",), "irq", texts=translate.of_offsets())
    diagnostics += _pins(wave, core, ("diag_value",), "irq")
    parts = [
        ("AXI read", _axi(wave, core, _READS, write=False), False),
        ("AXI write", _axi(wave, core, _WRITES, write=True), False),
        ("diagnostics", diagnostics, True),
        ("host bus", _host(wave, core), spelled(wave, core, "watch_valid") is not None),
    ]
    return [Group(name, list(rows), closed) for name, rows, closed in parts if rows]


def _host(wave: Wave, core: int) -> list[ViewerLine]:
    rows = _pins(wave, core, [f"s_axil_{pin}" for pin in _LITE], "axi")
    return [
        replace(row, texts=translate.of_offsets(row.signal.width))
        if row.label in ("awaddr", "araddr")
        else row
        for row in rows
    ]


def _events(wave: Wave, core: int) -> list[ViewerLine]:
    places = [(event, event_place(wave, core, event)) for event in EVENTS]
    return [ViewerLine(wave.find(at[0]), event, "task", "bin", bit=at[1]) for event, at in places if at]


def _words(wave: Wave, core: int) -> list[ViewerLine]:
    """Rows of the word that the PC executes, with the texts of all words that occur."""
    scope = wave.core_scopes[core]
    for word, valid in (("PC.words.payload.word", "PC.words.valid"), ("pc.word", "pc.word_valid")):
        if wave.has(f"{scope}.{word}"):
            signal = wave.find(f"{scope}.{word}")
            values = {value for _, value in wave.changes(signal.name) if isinstance(value, int)}
            texts = translate.of_words(sorted(values)[:MOST_WORDS], signal.width)
            rows = _rows(wave, [("valid", f"{scope}.{valid}")], "write")
            return [
                *rows,
                ViewerLine(signal, "word", "write", texts=replace(texts, name=f"{texts.name}_{core}")),
            ]
    return []


def _axi(wave: Wave, core: int, pins: Sequence[str], *, write: bool) -> list[ViewerLine]:
    rows = []
    for pin in pins:
        for row in _pins(wave, core, (f"m_axi_{pin}",), "axi", base="dec" if pin.endswith("len") else "hex"):
            texts = translate.of_clients(write=write, width=row.signal.width) if pin.endswith("id") else None
            rows.append(ViewerLine(row.signal, pin, "axi", row.base, texts if row.signal.width > 1 else None))
    return rows


def _block(wave: Wave, core: int, block: str, written: set[str]) -> Group:
    """Group with the control of a block, and the fields of its registers that were written."""
    group = Group(block)
    if not written:
        return group
    scope = wave.core_scopes[core]
    inside = f"{scope}.{block.lower()}_registers"
    for name, port in zip(_CONTROL, _CONTROL_PORTS, strict=True):
        label = name.partition(".")[2]
        names = [(label, f"{scope}.{block}.{name}"), (label, f"{inside}.{port}")]
        group.items += _rows(wave, names, "block", base="dec")[:1]
    order = [(register.name, field) for register in registers()[block] for field in register.fields]
    rows_by_field: dict[tuple[str, str], ViewerLine] = {}
    for signal in wave.signals:
        if "registers." not in signal.name or not signal.name.startswith(scope + "."):
            continue
        known = translate.register_field(signal.name)
        if known is None or known[0].block != block or known[0].name not in written:
            continue
        register, part = known
        base = "hex" if register.name.endswith("ADDR") or part.width > 16 else "dec"
        row = ViewerLine(
            signal, _field_label(register, part), "field", base, translate.of_field(register, part)
        )
        rows_by_field.setdefault((register.name, part.name), row)
    if rows_by_field:
        rows = [rows_by_field[key] for key in order if key in rows_by_field]
        group.items.append(Group(f"{block} registers", list(rows)))
    return group


def _written(wave: Wave) -> dict[tuple[int, str], set[str]]:
    """Return the registers that were written, by core and block."""
    found: dict[tuple[int, str], set[str]] = {}
    try:
        writes = wave.register_writes()
    except WaveError:  # traced without that port: every register may have been written
        return {(core, block): set(registers()[block].registers) for core in wave.cores for block in BLOCKS}
    for write in writes:
        if write.register and write.register != "S_POINTER":  # the driver writes those of all blocks
            found.setdefault((write.core, write.block), set()).add(write.register)
    return found


def _pins(wave: Wave, core: int, pins: Iterable[str], kind: str, **shown: Any) -> list[ViewerLine]:
    """Return rows of those pins of a core that exist."""
    names = [(re.sub(r"^(?:watch|diag|s_axil)_", "", pin), spelled(wave, core, pin)) for pin in pins]
    return _rows(wave, names, kind, **shown)


def _rows(
    wave: Wave,
    names: Iterable[tuple[str, str | None]],
    kind: str,
    *,
    base: str = "hex",
    texts: Translation | None = None,
) -> list[ViewerLine]:
    """Return rows of those signals that exist, from labels and full names."""
    return [
        ViewerLine(wave.find(name), label, kind, base, texts)
        for label, name in names
        if name is not None and wave.has(name)
    ]


def _row(signal: Signal, label: str, kind: str) -> ViewerLine:
    """Return a row of a signal outside of `layout`: a register's field, or plain bits."""
    known = translate.register_field(signal.name)
    if known is None:
        return ViewerLine(signal, label, kind)
    register, part = known
    return ViewerLine(
        signal, _field_label(register, part), "field", "hex", translate.of_field(register, part)
    )


def _field_label(register: Register, part: Field) -> str:
    return register.name if len(register.fields) == 1 else f"{register.name}.{part.name}"
