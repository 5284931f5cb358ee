"""Values of signals as text: codes of fields, offsets as register names, command words, AXI clients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rkcosim.regcmd import decode_word, format_command
from rkcosim.spec.port_codes import DIAGNOSTICS, READ_CLIENTS, WRITE_CLIENTS
from rkcosim.spec.regs import Field, Register, registers

_FIELD = re.compile(
    r"(?:^|\.)(?:(?P<block>[A-Z][A-Z0-9_]*)\.registers|(?P<file>[a-z0-9_]+)_registers)"
    r"\.(?:cfg__)?(?P<register>[A-Z][A-Z0-9_]*)(?:\.(?P<field>\w+))?$"
)


@dataclass(frozen=True)
class Translation:
    """Texts for values of a signal of `width` bits; `name` is unique and valid as a file name."""

    name: str
    width: int
    texts: dict[int, str]


def plain(name: str) -> str:
    """Convert a name to a part of a file name."""
    return re.sub(r"[^\w.]+", "_", name)


def register_field(name: str) -> tuple[Register, Field] | None:
    """Return register and field for a signal of a block's register file, or None.

    Accepts `core0.PPU.registers.REGISTER.FIELD`, `ppu_registers.cfg__REGISTER.FIELD` of the core's Verilog,
    and both without the field for registers with only one.
    """
    found = _FIELD.search(name)
    if found is None:
        return None
    block = found["block"] or found["file"].upper()
    if block not in registers().blocks or found["register"] not in registers()[block]:
        return None
    register = registers()[block][found["register"]]
    if found["field"] is None and len(register.fields) == 1:
        return register, next(iter(register.fields.values()))
    if found["field"] in register.fields:
        return register, register.fields[found["field"]]
    return None


def of_field(register: Register, field: Field) -> Translation | None:
    """Return the codes of a field by name, None if it has none."""
    if not field.enum:
        return None
    name = f"{register.block}.{register.name}.{field.name}"
    texts = {code & ((1 << field.width) - 1): text for text, code in field.enum.items()}
    return Translation(name, field.width, texts)


def of_offsets(width: int = 16) -> Translation:
    """Return register offsets inside a core as BLOCK.REGISTER."""
    texts = {register.offset: register.path for block in registers() for register in block}
    return Translation("register", width, texts)


def of_words(values: Iterable[int], width: int = 64) -> Translation:
    """Return words of a command stream in the form of the assembler."""
    texts = {value: format_command(decode_word(value)) for value in values}
    return Translation("command_word", width, texts)


def of_clients(*, write: bool, width: int) -> Translation:
    """Return names of clients by AXI id."""
    names = WRITE_CLIENTS if write else READ_CLIENTS
    return Translation("write_client" if write else "read_client", width, dict(enumerate(names)))


def of_diagnostics(width: int = 8) -> Translation:
    """Return names of diagnostics by code."""
    return Translation("diagnostic", width, dict(enumerate(DIAGNOSTICS)))


def of_blocks(width: int = 7) -> Translation:
    """Return names of blocks for masks of blocks (bits of the op-enable word)."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"].fields.values()
    parts = [
        (field, field.name.upper().removesuffix("_OP_EN")) for field in sorted(fields, key=lambda f: f.lsb)
    ]
    known = sum(field.mask for field, _ in parts)
    texts = {
        mask: " ".join(name for field, name in parts if field.get(mask)) or "-"
        for mask in range(1 << width)
        if not mask & ~known
    }
    return Translation("blocks", width, texts)
