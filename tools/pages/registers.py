"""The page of all registers (`make registers`, and a page of the site), and the table of the counters."""

from __future__ import annotations

from collections.abc import Iterator

from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.perf.page import table
from rkcosim.spec.regs.counters import BASE_ADDRESS, WINDOW_BYTES
from rkcosim.spec.regs.table import Block, Field, Register, counter_registers, registers


def _bits(field: Field) -> str:
    return f"{field.msb}:{field.lsb}" if field.width > 1 else str(field.lsb)


def _codes(field: Field) -> str:
    if not field.enum:
        return ""
    wide = field.width > 8
    return " " + ", ".join(f"`{n}` {f'0x{c:X}' if wide else c}" for n, c in field.enum.items())


def _register(register: Register) -> Iterator[str]:
    notes = ["two groups" if register.shadowed else "one group"]
    if register.reset:
        notes.append(f"reset 0x{register.reset:X}")
    yield f"### 0x{register.offset:04X} {register.path}\n"
    yield f"{register.desc} ({', '.join(notes)}).\n"
    rows = []
    for field in register.fields.values():
        access = field.sw + (", signed" if field.signed else "")
        rows.append((_bits(field), field.name, access, f"{field.desc}{_codes(field)}"))
    yield from table(("Bits", "Field", "Access", "Meaning"), rows)
    yield ""


def _block(block: Block) -> Iterator[str]:
    yield f"## {block.name} (0x{block.base:04X})\n"
    target = f" Words reach it with target 0x{block.target:04X}." if block.target else ""
    yield f"{block.desc}.{target}\n"
    for register in block:
        yield from _register(register)


def markdown() -> str:
    """Return the text of the page."""
    lines = [
        "# Registers of one NPU core\n",
        "Made from `spec/regs/*.rdl`. `[HW 3.6]` is a section of `docs/reference`; chapter 2 of it says what "
        "marks such as [T] mean.\n",
        "## Register command\n",
        *_register(registers().word),
    ]
    for block in registers():
        lines += _block(block)
    return "\n".join(lines).rstrip("\n") + "\n"


def causes_markdown() -> str:
    """Return the table of the causes of cycles."""
    rows = [(c.label, f"`{c}`", c.meaning, c.counted) for c in CAUSES]
    return "\n".join(table(("Word", "In JSON", "Meaning", "From"), rows))


def counters_markdown() -> str:
    """Return the table of the registers in the window of the performance counters."""
    lines = [
        f"Core 0's window is at 0x{BASE_ADDRESS:08X}, the others follow every 0x{WINDOW_BYTES:X} bytes.",
        "",
        "| Offset | Register | Bits | Meaning |",
        "| --- | --- | --- | --- |",
    ]
    for block in counter_registers():
        lines.append(f"| | **{block.name}** | | {block.desc} |")
        for register in block:
            for field in register.fields.values():
                named = register.name if len(register.fields) == 1 else f"{register.name}.{field.name}"
                meaning = register.desc if len(register.fields) == 1 else field.desc
                reset = f" (0x{field.reset:X})" if field.reset else ""
                lines.append(
                    f"| 0x{register.offset:03X} | {named} | {_bits(field)} {field.sw} | {meaning}{reset} |"
                )
    return "\n".join(lines)
