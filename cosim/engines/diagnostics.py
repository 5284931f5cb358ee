"""Diagnostics and faults of a run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rtl.regs import registers

TEXTS = {
    "UNKNOWN_WRITE": "write to an offset without a register",
    "BANK_SUM": "feature banks and weight banks add up to more than there are",
    "FEATURE_FOOTPRINT": "the features need more than their banks",
    "WEIGHT_FOOTPRINT": "a kernel group needs more than the weight banks",
    "RESERVED_MODE": "reserved or unsupported mode",
    "UNALIGNED_ADDRESS": "address is not aligned as required",
    "SIZE_MISMATCH": "a size differs from what it must equal",
    "WRONG_CORE": "the core number in S_POINTER is not this core's",
    "READ_ERROR": "a DMA read ended in an error",
    "WRITE_ERROR": "a DMA write ended in an error",
    "UNDECODED_ACCESS": "access to an offset that nothing decodes",
    "BAD_COMMAND": "register command list is not well formed",
    "EMPTY_SIZE": "a size of zero",
    "REUSE_FOOTPRINT": "data to be used again is not in the buffer",
}
"""What each `rtl.layouts.DiagnosticCode` says to a person."""

FAULT_TEXTS = (
    "read outside every mapped range",
    "write outside every mapped range",
    "read error injected",
    "write error injected",
    "burst that AXI4 or this bus does not allow",
)
"""By `FaultKind` of cosim/harness/pins.h."""


def code_name(code: int) -> str:
    """Name of a diagnostic code, `CODE_n` for one that is not known."""
    from rtl.layouts import DiagnosticCode  # imports Amaranth: only when something was said

    try:
        return DiagnosticCode(code).name
    except ValueError:
        return f"CODE_{code}"


def client_name(client: int, *, write: bool) -> str:
    """Name of the AXI client with an id."""
    from rtl.layouts import ReadClient, WriteClient

    try:
        return (WriteClient if write else ReadClient)(client).name
    except ValueError:
        return f"id {client}"


def register_name(offset: int) -> str:
    """`BLOCK.REGISTER` of an offset inside a core, or the offset itself."""
    register = registers().at(offset)
    return register.path if register is not None else f"offset {offset:#06x}"


LAG = 3
"""Cycles from what a block sees to its diagnostic on the core's pins, at least."""

_WORDS = {"BAD_COMMAND", "UNKNOWN_WRITE", "UNDECODED_ACCESS", "READ_ERROR", "WRITE_ERROR"}
"""Codes whose value is not what the register holds."""


@dataclass(frozen=True)
class Diagnostic:
    """One suspicious thing a core saw.

    `cycle` when it was raised, `code` the name of a `DiagnosticCode`, `text` what it says, `block`
    and `register` (`BLOCK.REGISTER`) where, `offset` of the register, `value` found there, `task` the
    index in its kick of the task at work (None: none was).  Of a DMA error also `client` and `address`
    (the first one refused of the burst).
    """

    cycle: int
    core: int
    code: str
    text: str
    block: str
    register: str
    offset: int
    value: int
    task: int | None = None
    client: str = ""
    address: int | None = None

    @property
    def fields(self) -> dict[str, int]:
        """Fields of the register that are not 0, highest bit first; empty where `value` is something else."""
        register = registers().at(self.offset)
        if register is None or self.code in _WORDS:
            return {}
        return {name: value for name, value in register.decode(self.value).items() if value}

    def __str__(self) -> str:
        task = "" if self.task is None else f", task {self.task}"
        text = self.text
        if self.client:
            text += f": {self.client}"
        if self.address is not None:
            text += f" at {self.address:#x}"
        fields = "".join(f", {name} {value:#x}" for name, value in self.fields.items())
        where = f"core {self.core}{task}, cycle {self.cycle}: {self.register}"
        return f"{where}: {text} ({self.code}, {self.value:#x}{fields})"


@dataclass(frozen=True)
class Fault:
    """One access that memory refused: `client` (name of the AXI client), `address`, `text`.

    `task` as of `Diagnostic`.
    """

    cycle: int
    core: int
    client: str
    address: int
    text: str
    write: bool = False
    task: int | None = None

    def __str__(self) -> str:
        task = "" if self.task is None else f", task {self.task}"
        return f"core {self.core}{task}, cycle {self.cycle}: {self.client} at {self.address:#x}: {self.text}"


class TaskSpan(Protocol):
    """What `task_at` needs of a record of a task."""

    @property
    def core(self) -> int: ...
    @property
    def task(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int | None: ...


def task_at(log: Sequence[TaskSpan], core: int, cycle: int) -> int | None:
    """Index in its kick of the task that a core ran in a cycle; `log` in order of starts."""
    for record in reversed(log):
        if record.core == core and record.start <= cycle:
            return record.task if record.end is None or cycle <= record.end else None
    return None


def make_diagnostic(
    cycle: int,
    core: int,
    code: int,
    block: int,
    offset: int,
    value: int,
    log: Sequence[TaskSpan] = (),
    faults: Sequence[Fault] = (),
) -> Diagnostic:
    """Decode one record of the harness.

    Parameters
    ----------
    block
        the high digit of the block's offsets.
    log, faults
        tasks of the cores and accesses that memory refused, oldest first.
    """
    name = code_name(code)
    names = {b.base >> 12: b.name for b in registers().blocks.values()}
    text = TEXTS.get(name, "unknown diagnostic")
    client, address = "", None
    if name in ("READ_ERROR", "WRITE_ERROR"):
        write = name == "WRITE_ERROR"
        client = client_name(value, write=write)
        mine = [
            f for f in faults if (f.core, f.client, f.write) == (core, client, write) and f.cycle <= cycle
        ]
        address = mine[-1].address if mine else None
    return Diagnostic(
        cycle,
        core,
        name,
        text,
        names.get(block, f"block {block}"),
        register_name(offset),
        offset,
        value,
        task_at(log, core, cycle - LAG),
        client,
        address,
    )


def make_fault(
    cycle: int, core: int, client: int, address: int, kind: int, log: Sequence[TaskSpan] = ()
) -> Fault:
    """Decode one record of the harness; `log` as of `make_diagnostic`."""
    text = FAULT_TEXTS[kind] if kind < len(FAULT_TEXTS) else f"fault {kind}"
    write = kind in (1, 3)
    name = client_name(client, write=write)
    return Fault(cycle, core, name, address, text, write, task_at(log, core, cycle))
