"""What a viewer shows of a waveform: groups of signals, texts of values, colours, marks in time.

One description for GTKWave, Surfer and the SVG picture; it names only what the waveform holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rtl.regs import registers
from waves import translate
from waves.backends import Signal
from waves.pins import EVENTS
from waves.translate import Translation

if TYPE_CHECKING:
    from waves.reader import Wave

MOST_WORDS = 4096
"""Different command words that get a text."""

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Blocks with a register file, in the order of the data."""

COLOURS = {
    "task": "green",
    "write": "orange",
    "irq": "red",
    "axi": "blue",
    "block": "violet",
    "field": "yellow",
}
"""Colour of each kind of row, by names that GTKWave and Surfer both have."""

_COUNTERS = ("npu.job", "npu.task", "npu.layer")
_READS = ("arvalid", "arready", "araddr", "arid", "arlen", "rvalid", "rready", "rid", "rlast", "rresp")
_WRITES = (
    "awvalid",
    "awready",
    "awaddr",
    "awid",
    "awlen",
    "wvalid",
    "wready",
    "wlast",
    "bvalid",
    "bid",
    "bresp",
)
_LITE = ("awvalid", "awaddr", "wdata", "arvalid", "araddr", "rdata")


@dataclass(frozen=True)
class Row:
    """One line of a viewer: a signal or one `bit` of it, as `base` ("hex", "dec" or "bin") or by `texts`."""

    signal: Signal
    label: str
    kind: str
    base: str = "hex"
    texts: Translation | None = None
    bit: int | None = None

    @property
    def width(self) -> int:
        """Bits that the line shows."""
        return 1 if self.bit is not None else self.signal.width

    def value(self, value: object) -> int | None:
        """What the line shows of its signal's value."""
        if not isinstance(value, int):
            return None
        return value if self.bit is None else value >> self.bit & 1

    def text(self, value: int | None) -> str:
        """A value as the line writes it."""
        if value is None:
            return "x"
        if self.texts is not None and value in self.texts.texts:
            return self.texts.texts[value]
        return str(value) if self.base == "dec" else f"{value:x}"


@dataclass
class Group:
    """Rows and groups under one heading; a `closed` one is folded at first."""

    name: str
    items: list[Row | Group] = field(default_factory=list)
    closed: bool = False

    def rows(self) -> Iterator[Row]:
        """All rows, those of groups inside included."""
        for item in self.items:
            if isinstance(item, Row):
                yield item
            else:
                yield from item.rows()


@dataclass(frozen=True)
class Mark:
    """A moment worth a mark: `kind` is "task" or "irq"."""

    cycle: int
    name: str
    kind: str


def layout(wave: Wave) -> list[Group]:
    """Groups for a viewer: counters, then of each core its pins and its blocks that were used."""
    groups: list[Group] = []
    counters = _rows(wave, "", _COUNTERS, "task", base="dec")
    if counters:
        groups.append(Group("NPU", list(counters)))
    written = _written(wave)
    for core in wave.cores:
        group = Group(f"core {core}")
        group.items += _control(wave, core)
        made = [_block(wave, core, block, written.get((core, block), set())) for block in BLOCKS]
        group.items += [block for block in made if block.items]
        group.items += _buses(wave, core)
        if group.items:
            groups.append(group)
    return groups


def chosen(wave: Wave, patterns: Sequence[str]) -> list[Group]:
    """Groups of the signals that fit some patterns, by scope; texts as in `layout`.

    Raises
    ------
    WaveError
        if a pattern fits no signal.
    """
    known = {row.signal.name: row for group in layout(wave) for row in group.rows() if row.bit is None}
    groups: dict[str, Group] = {}
    for pattern in patterns:
        found = wave.glob(pattern) or [wave.find(pattern)]
        seen: set[str] = set()
        for signal in found:
            if signal.reference in seen or not signal.width:
                continue
            seen.add(signal.reference)
            group = groups.setdefault(signal.scope, Group(signal.scope))
            row = known.get(signal.name) or _row(signal, signal.leaf, "block")
            group.items.append(row if row.kind == "field" else replace(row, label=signal.leaf))
    return list(groups.values())


def marks(wave: Wave, first: int | None = None, last: int | None = None) -> list[Mark]:
    """Starts of tasks and rises of interrupt lines from one cycle to another, in order."""
    tasks, irqs = wave.tasks(), wave.irqs()
    jobs, cores = len({task.job for task in tasks}) > 1, len(wave.cores) > 1
    found = []
    for task in tasks:
        name = f"job {task.job} task {task.index}" if jobs else f"task {task.index}"
        found.append(Mark(task.start, f"{name} core {task.core}" if cores else name, "task"))
    found += [Mark(irq.start, f"irq core {irq.core}" if cores else "irq", "irq") for irq in irqs]
    return sorted(
        (m for m in found if (first is None or m.cycle >= first) and (last is None or m.cycle <= last)),
        key=lambda mark: (mark.cycle, mark.kind),
    )


def translations(groups: Iterable[Group]) -> list[Translation]:
    """Every table of texts that some groups use, once."""
    found = {row.texts.name: row.texts for group in groups for row in group.rows() if row.texts is not None}
    return list(found.values())


def _control(wave: Wave, core: int) -> list[Row | Group]:
    """What a core is doing."""
    scope = f"core{core}."
    items: list[Row | Group] = []
    items += _rows(wave, scope, ("irq",), "irq")
    items += _rows(wave, scope, ("task_index",), "task", base="dec")
    items += _rows(wave, scope, ("busy_blocks",), "task", texts=translate.of_blocks())
    writes = _rows(wave, scope, ("watch_valid", "watch_fetched"), "write")
    writes += _rows(wave, scope, ("watch_offset",), "write", texts=translate.of_offsets())
    writes += _rows(wave, scope, ("watch_value",), "write")
    parts = [
        ("register writes", writes),
        ("command words", _words(wave, core)),
        ("events", _events(wave, core)),
    ]
    return items + [Group(name, list(rows)) for name, rows in parts if rows]


def _buses(wave: Wave, core: int) -> list[Row | Group]:
    """What goes in and out of a core."""
    scope = f"core{core}."
    parts = [
        ("AXI read", _axi(wave, scope, _READS, write=False), False),
        ("AXI write", _axi(wave, scope, _WRITES, write=True), False),
        ("diagnostics", _diagnostics(wave, scope), True),
        ("host bus", _rows(wave, scope, [f"s_axil_{pin}" for pin in _LITE], "axi"), True),
    ]
    return [Group(name, list(rows), closed) for name, rows, closed in parts if rows]


def _events(wave: Wave, core: int) -> list[Row]:
    found = _rows(wave, f"core{core}.", ("events",), "task")
    if not found:
        return []
    return [Row(found[0].signal, name, "task", "bin", bit=bit) for bit, name in enumerate(EVENTS)]


def _words(wave: Wave, core: int) -> list[Row]:
    """The word that the PC carries out, with the texts of all that come by."""
    rows: list[Row] = []
    for scope in (f"core{core}.PC", f"core{core}.core_top.core.pc"):
        if f"{scope}.word" in wave:
            signal = wave.find(f"{scope}.word")
            values = {value for _, value in wave.changes(signal.name) if isinstance(value, int)}
            texts = translate.of_words(sorted(values)[:MOST_WORDS], signal.width)
            rows += _rows(wave, scope + ".", ("word_valid",), "write")
            rows.append(Row(signal, "word", "write", texts=texts))
            break
    return rows


def _axi(wave: Wave, scope: str, pins: Sequence[str], *, write: bool) -> list[Row]:
    rows = []
    for pin in pins:
        for row in _rows(wave, scope, (f"m_axi_{pin}",), "axi", base="dec" if pin.endswith("len") else "hex"):
            texts = translate.of_clients(write=write, width=row.signal.width) if pin.endswith("id") else None
            rows.append(Row(row.signal, pin, "axi", row.base, texts if row.signal.width > 1 else None))
    return rows


def _diagnostics(wave: Wave, scope: str) -> list[Row]:
    rows = _rows(wave, scope, ("diag_valid",), "irq")
    rows += _rows(wave, scope, ("diag_code",), "irq", texts=translate.of_diagnostics())
    rows += _rows(wave, scope, ("diag_register",), "irq", texts=translate.of_offsets())
    return rows + _rows(wave, scope, ("diag_value",), "irq")


def _block(wave: Wave, core: int, block: str, written: set[str]) -> Group:
    """Control of a block, and the fields of its registers that were written."""
    group = Group(block)
    low = block.lower()
    if not written:
        return group
    for scope in (f"core{core}.{block}", f"core{core}.core_top.core.{low}_registers"):
        for pin in ("control__start", "control__done", "running", "control__group", "start", "done", "group"):
            group.items += [
                Row(row.signal, pin.removeprefix("control__"), "block", row.base)
                for row in _rows(wave, scope + ".", (pin,), "block", base="dec")
            ]
    rows: dict[tuple[str, str], Row] = {}
    for signal in _fields(wave, core):
        known = translate.register_field(signal.name)
        if known is None or known[0].block != block or known[0].name not in written:
            continue
        register, part = known
        label = register.name if len(register.fields) == 1 else f"{register.name}.{part.name}"
        base = "dec" if not (register.name.endswith("ADDR") or part.width > 16) else "hex"
        row = Row(signal, label, "field", base, translate.of_field(register, part))
        rows.setdefault((register.name, part.name), row)
    if rows:
        order = {
            (r.name, f): n for n, (r, f) in enumerate((r, f) for r in registers()[block] for f in r.fields)
        }
        group.items.append(
            Group(f"{block} registers", [rows[key] for key in sorted(rows, key=order.__getitem__)], False)
        )
    return group


def _fields(wave: Wave, core: int) -> list[Signal]:
    return [
        signal
        for signal in wave.signals
        if signal.name.startswith(f"core{core}.") and "registers." in signal.name
    ]


def _written(wave: Wave) -> dict[tuple[int, str], set[str]]:
    """Registers that were written, by core and block."""
    found: dict[tuple[int, str], set[str]] = {}
    for write in wave.register_writes():
        if write.register and write.register != "S_POINTER":  # the driver sets those of all blocks
            found.setdefault((write.core, write.block), set()).add(write.register)
    return found


def _rows(
    wave: Wave,
    scope: str,
    names: Iterable[str],
    kind: str,
    *,
    base: str = "hex",
    texts: Translation | None = None,
) -> list[Row]:
    """Rows of those signals of a scope that there are."""
    found = []
    for name in names:
        if scope + name in wave:
            signal = wave.find(scope + name)
            if signal.width:
                found.append(Row(signal, name, kind, base, texts))
    return found


def _row(signal: Signal, label: str, kind: str) -> Row:
    """A row of a signal that `layout` does not have: a register's field, or just bits."""
    known = translate.register_field(signal.name)
    if known is not None:
        return Row(signal, label, "field", "hex", translate.of_field(*known))
    return Row(signal, label, kind)
