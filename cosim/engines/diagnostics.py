"""Diagnostics and faults of a run as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from rkcosim.spec.port_codes import client_name, diagnostic_name
from rkcosim.spec.regs import registers

TEXTS = {
    "UNKNOWN_WRITE": "write to an offset without a register",
    "BANK_SUM": "feature banks and weight banks together exceed the number of banks",
    "FEATURE_FOOTPRINT": "the features do not fit the feature banks",
    "WEIGHT_FOOTPRINT": "a kernel group does not fit the weight banks",
    "RESERVED_MODE": "reserved or unsupported mode",
    "UNALIGNED_ADDRESS": "address is not aligned as required",
    "SIZE_MISMATCH": "two sizes that must be equal differ",
    "WRONG_CORE": "the core number in S_POINTER is not this core's",
    "READ_ERROR": "a DMA read ended in an error",
    "WRITE_ERROR": "a DMA write ended in an error",
    "UNDECODED_ACCESS": "access to an offset that no block decodes",
    "BAD_COMMAND": "register command list is not well formed",
    "EMPTY_SIZE": "a size of zero",
    "REUSE_FOOTPRINT": "data to be reused are not in the buffer",
    "CORE_MISSING": "continued without a co-working core for which it had waited",
    "NOT_BUILT": "a floating-point type, but this core was built without floating-point arithmetic",
    "WEIGHT_CODE": "compressed weights use an unknown code",
}
"""Text for each `rkcosim.rtl.layouts.DiagnosticCode`."""

FAULT_TEXTS = (
    "read outside every mapped range",
    "write outside every mapped range",
    "read error injected",
    "write error injected",
    "burst that AXI4 or this bus does not allow",
)
"""Text by `FaultKind` of cosim/engines/harness/pins.h."""

WRITE_FAULTS = (1, 3)
"""Fault kinds of writes."""

DMA_ERRORS = {"READ_ERROR": False, "WRITE_ERROR": True}
"""Codes whose value is the id of an AXI client, and True if the client writes."""


@cache
def register_name(offset: int) -> str:
    """Return `BLOCK.REGISTER` of an offset inside a core, or the offset itself."""
    register = registers().at(offset)
    return register.path if register is not None else f"offset {offset:#06x}"


LAG = 3
"""Minimum number of cycles from what a block sees to its diagnostic on the core's pins."""

_WORDS = {
    *("BAD_COMMAND", "UNKNOWN_WRITE", "UNDECODED_ACCESS", "READ_ERROR", "WRITE_ERROR"),
    *("WEIGHT_CODE", "CORE_MISSING"),
}
"""Codes whose value is not the contents of the register."""


@dataclass(frozen=True)
class Diagnostic:
    """One irregularity reported by a core.

    Members
    -------
    cycle : when it was raised.
    core : number of the core.
    code : name of a `DiagnosticCode`.
    text : explanation of the code.
    block, register : where it was found; `register` is `BLOCK.REGISTER`.
    offset : offset of the register.
    value : value found there.
    task : index in its kick of the task that was running, None without one.
    client, address : of a DMA error: the AXI client, and the first refused address of the burst.
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
        """Return the non-zero fields of the register, highest bit first.

        Empty if `value` is not a register's.
        """
        register = registers().at(self.offset)
        if register is None or self.code in _WORDS:
            return {}
        return {name: value for name, value in register.decode(self.value).items() if value}

    def __str__(self) -> str:
        task = "" if self.task is None else f", task {self.task}"
        text = self.text
        if self.client:
            text += f": {self.client}"
        if self.code == "CORE_MISSING":
            missing = " and ".join(str(n) for n in range(3) if self.value >> n & 1)
            text += f": core {missing}, from co-working task {self.value >> 8} on"
        if self.code == "WEIGHT_CODE":
            text += f": byte {self.value >> 8} of its segment's header is {self.value & 255:#04x}"
        if self.address is not None:
            text += f" at {self.address:#x}"
        fields = "".join(f", {name} {value:#x}" for name, value in self.fields.items())
        where = f"core {self.core}{task}, cycle {self.cycle}: {self.register}"
        return f"{where}: {text} ({self.code}, {self.value:#x}{fields})"


@dataclass(frozen=True)
class Fault:
    """One access that the memory refused.

    Members
    -------
    cycle, core : when, and by which core.
    client : name of the AXI client.
    address : the refused address.
    text : the reason.
    task : as in `Diagnostic`.
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
    """Return the index in its kick of the task that a core ran in a cycle; `log` is in order of starts."""
    for record in reversed(log):
        if record.core == core and record.start <= cycle:
            return record.task if record.end is None or cycle <= record.end else None
    return None


def refused_at(faults: Sequence[Fault], core: int, client: int, write: bool, cycle: int) -> int | None:
    """Return the last address refused to a client (an AXI id) of a core up to a cycle.

    `faults` oldest first.
    """
    name = client_name(client, write=write)
    for fault in reversed(faults):
        if (fault.core, fault.client, fault.write) == (core, name, write) and fault.cycle <= cycle:
            return fault.address
    return None


@cache
def _block_names() -> dict[int, str]:
    return {block.base >> 12: block.name for block in registers().blocks.values()}


def make_diagnostic(
    cycle: int,
    core: int,
    code: int,
    block: int,
    offset: int,
    value: int,
    task: int | None = None,
    address: int | None = None,
) -> Diagnostic:
    """Decode one record of the harness.

    Parameters
    ----------
    block : the high digit of the block's offsets.
    task : index in its kick of the task that ran `LAG` cycles earlier.
    address : for a DMA error, the last address refused to its client (`value`).
    """
    name = diagnostic_name(code)
    text = TEXTS.get(name, "unknown diagnostic")
    write = DMA_ERRORS.get(name)
    client = "" if write is None else client_name(value, write=write)
    where = _block_names().get(block, f"block {block}")
    known = None if write is None else address
    return Diagnostic(
        cycle, core, name, text, where, register_name(offset), offset, value, task, client, known
    )


def make_fault(cycle: int, core: int, client: int, address: int, kind: int, task: int | None = None) -> Fault:
    """Decode one record of the harness; `task` as in `Fault`."""
    text = FAULT_TEXTS[kind] if kind < len(FAULT_TEXTS) else f"fault {kind}"
    write = kind in WRITE_FAULTS
    return Fault(cycle, core, client_name(client, write=write), address, text, write, task)
