"""Values, registers and deviations as lines of text."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkcosim.debug.base import BaseSession
from rkcosim.debug.deviations.against import Deviation
from rkcosim.debug.places import task_title
from rkcosim.spec.regs import registers

SHOWN = 400
"""Elements of an array that are printed; the others are left out."""


def shown(value: Any, form: str = "") -> str:
    """Return a value as text: numbers (hexadecimal for "x"), arrays with at most `SHOWN` elements."""
    if isinstance(value, np.ndarray):
        with np.printoptions(threshold=SHOWN, linewidth=110, edgeitems=4):
            return f"{'x'.join(map(str, value.shape))} {value.dtype}\n{value}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"0x{value:X}" if form == "x" else f"{value} (0x{value:X})" if value > 9 else str(value)
    return str(value)


def register_lines(session: BaseSession, block: str, group: int | None = None) -> list[str]:
    """Return the registers of a block that were written, with their fields and codes, one line each."""
    held = session.held_registers(block, group)
    lines = [f"{block}, {held.title}:" if held.title else f"{block}:"]
    for register in registers()[block]:
        if register.offset in held.words:
            lines.append(f"  {register.path} {field_text(register, held.words[register.offset])}")
    return lines


def field_text(register: Any, word: int) -> str:
    """Return the fields of a register word as `NAME=VALUE`, with names of codes."""
    parts = []
    for name, value in register.decode(word).items():
        codes = {code: known for known, code in (register.fields[name].enum or {}).items()}
        parts.append(f"{name}={codes.get(value, f'0x{value:X}' if value > 255 else value)}")
    return " ".join(parts)


def deviation_lines(session: BaseSession, found: Deviation, most: int = 8) -> list[str]:
    """Return how a task deviates, what it reads, and which fields could be the cause, one line each."""
    result = session.examine(found)
    lines = [f"{task_title(session.work, found.job, found.task)} deviates: {found}", "how:"]
    lines += [f"  {pattern.text}" for pattern in found.patterns]
    if result.operands:
        lines += ["what the task reads:", *(f"  {line}" for line in result.operands)]
    untried = f", {result.untried} less likely ones were not" if result.untried else ""
    lines.append(
        f"fields that could be the cause ({result.tried} values were tried on the golden model{untried}):"
    )
    for number, cause in enumerate(result.causes[:most], 1):
        lines.append(f"  {number}. {cause}")
    if not result.causes:
        lines.append("  none: no single field makes the result better; compare the contents of the operands")
    elif not result.causes[0].explains:
        lines.append(
            "  no single field makes every element right: compare the contents of the operands as well"
        )
    return lines
