"""Diagnostics and faults of a run, in words."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Diagnostic:
    """One suspicious thing a core saw.

    `cycle` when it was raised, `code` the name of a `DiagnosticCode`, `text` what it says, `block`
    and `register` (`BLOCK.REGISTER`) where, `offset` of the register, `value` found there.
    """

    cycle: int
    core: int
    code: str
    text: str
    block: str
    register: str
    offset: int
    value: int

    def __str__(self) -> str:
        where = f"core {self.core}, cycle {self.cycle}: {self.register}"
        return f"{where}: {self.text} ({self.code}, {self.value:#x})"


@dataclass(frozen=True)
class Fault:
    """One access that memory refused: `client` (name of the AXI client), `address`, `text`."""

    cycle: int
    core: int
    client: str
    address: int
    text: str

    def __str__(self) -> str:
        return f"core {self.core}, cycle {self.cycle}: {self.client} at {self.address:#x}: {self.text}"


def make_diagnostic(cycle: int, core: int, code: int, block: int, offset: int, value: int) -> Diagnostic:
    """Decode one record of the harness.  `block` is the high digit of the block's offsets."""
    name = code_name(code)
    names = {b.base >> 12: b.name for b in registers().blocks.values()}
    text = TEXTS.get(name, "unknown diagnostic")
    return Diagnostic(
        cycle, core, name, text, names.get(block, f"block {block}"), register_name(offset), offset, value
    )


def make_fault(cycle: int, core: int, client: int, address: int, kind: int) -> Fault:
    """Decode one record of the harness."""
    text = FAULT_TEXTS[kind] if kind < len(FAULT_TEXTS) else f"fault {kind}"
    return Fault(cycle, core, client_name(client, write=kind in (1, 3)), address, text)
