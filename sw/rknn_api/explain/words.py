"""Registers by name or number, command words, and dumps of both."""

from __future__ import annotations

import re

from rkcosim.regcmd import disassemble, format_command
from rkcosim.regcmd.word import LOGGED
from rkcosim.rknn_api.explain.explanation import Explanation, Rules, integer
from rkcosim.spec.regs import Register, registers

DRIVER_REGISTERS = {
    "PC_OP_EN": "PC.OPERATION_ENABLE",
    "PC_DATA_ADDR": "PC.BASE_ADDRESS",
    "PC_DATA_AMOUNT": "PC.REGISTER_AMOUNTS",
    "INT_MASK": "PC.INTERRUPT_MASK",
    "INT_CLEAR": "PC.INTERRUPT_CLEAR",
    "INT_STATUS": "PC.INTERRUPT_STATUS",
    "INT_RAW_STATUS": "PC.INTERRUPT_RAW_STATUS",
    "PC_TASK_CONTROL": "PC.TASK_CON",
    "PC_DMA_BASE_ADDR": "PC.TASK_DMA_BASE_ADDR",
    "PC_TASK_STATUS": "PC.TASK_STATUS",
}
"""Names of the kernel driver's header rknpu_ioctl.h (RKNPU_OFFSET_...) for registers of the TRM."""


def find_register(name: str) -> Register | None:
    """Return the register of a name (`CNA.CONV_CON1`, or the kernel driver's) or of a number (`0x100C`)."""
    if name.lower().startswith("0x"):
        try:
            return registers().at(int(name, 0))
        except KeyError:
            return None
    name = name.upper().removeprefix("RKNPU_OFFSET_")
    block, _, register = DRIVER_REGISTERS.get(name, name).partition(".")
    try:
        return registers()[block][register]
    except KeyError:
        return None


def register_lines(described: Register, value: int) -> list[str]:
    """Return the fields of a register's value, one line each."""
    lines = []
    for name, content in described.decode(value).items():
        label = described.fields[name].label(content)
        lines.append(f"{name} = {content}" + (f" ({label})" if label else ""))
    return lines


def register_title(described: Register) -> str:
    """Return name, address and meaning of a register."""
    return f"{described.path} at 0x{described.offset:04X}: {described.desc}"


def _register(match: re.Match[str]) -> Explanation:
    described = find_register(match["register"])
    if described is None:
        return Explanation(match[0], f"there is no register {match['register']}")
    return Explanation(
        match[0], register_title(described), register_lines(described, integer(match["value"]))
    )


def _dump(match: re.Match[str]) -> Explanation | None:
    """Explain all registers of a line of a dump; None if the line has none."""
    lines = []
    for name, value in re.findall(_PAIR, match[0]):
        described = find_register(name)
        if described is not None:
            lines.append(f"{described.path} = {value}")
            lines += [f"  {line}" for line in register_lines(described, integer(value))]
    return Explanation(match[0].strip(), "registers", lines) if lines else None


def _word(match: re.Match[str]) -> Explanation:
    word = int(match[1], 16)
    return Explanation(
        f"0x{match[1]}", "a command word", [format_command(one) for one in disassemble([word])]
    )


_PAIR = r"\b([A-Z][A-Z_]{3,}|0x[0-9a-fA-F]{4})\]?\s*[:=]\s*(0x[0-9a-fA-F]+)\b"

RULES: Rules = {
    r"^(?P<register>[A-Za-z_]+\.\w+|0x[0-9a-fA-F]{4})\s*[:=]?\s+(?P<value>0x[0-9a-fA-F]+|\d+)$": _register,
    LOGGED.pattern: _word,
    rf"^.*{_PAIR}.*$": _dump,
}
