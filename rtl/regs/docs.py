"""Markdown page of all registers: `python -m rtl.regs.docs [FILE]` (standard output without FILE)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rtl.regs.table import Block, Field, Register, registers


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
    yield "| Bits | Field | Access | Meaning |"
    yield "| --- | --- | --- | --- |"
    for field in register.fields.values():
        access = field.sw + (", signed" if field.signed else "")
        yield f"| {_bits(field)} | {field.name} | {access} | {field.desc}{_codes(field)} |"
    yield ""


def _block(block: Block) -> Iterator[str]:
    yield f"## {block.name} (0x{block.base:04X})\n"
    target = f" Words reach it with target 0x{block.target:04X}." if block.target else ""
    yield f"{block.desc}.{target}\n"
    for register in block:
        yield from _register(register)


def markdown() -> str:
    """The whole page."""
    lines = [
        "# Registers of one NPU core\n",
        "Made from `rtl/regs/*.rdl`. Marks such as [T] name the source of a fact, see `docs/hardware.md`.\n",
        "## Register command\n",
        *_register(registers().word),
    ]
    for block in registers():
        lines += _block(block)
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments: list[str]) -> int:
    """Write the page to the file named, or to standard output."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(f"usage: python -m rtl.regs.docs [FILE]\n\n{__doc__}", file=sys.stderr)
        return 2
    if arguments:
        path = Path(arguments[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown(), "utf-8")
    else:
        print(markdown(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
