"""What an explanation is, and what several kinds of lines have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers

HEX = r"(?:0x)?[0-9a-fA-F]+"
"""Pattern of a hexadecimal number, with or without its prefix."""


@dataclass
class Explanation:
    """A recognised piece of text, its kind, and its meaning line by line."""

    text: str
    title: str
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.text}", f"  {self.title}", *(f"    {line}" for line in self.lines)])


Rules = dict[str, Callable[[re.Match[str]], Explanation | None]]
"""Patterns in the order in which they are tried, and functions that explain a match or return None."""


def known(title: str, *lines: str) -> Callable[[re.Match[str]], Explanation]:
    r"""Return a function that explains a match by fixed sentences, in which \1 is the first group."""
    return lambda match: Explanation(match[0], match.expand(title), [match.expand(line) for line in lines])


def integer(text: str) -> int:
    """Return the number that a log has in decimal or, with a prefix, in hexadecimal form."""
    return int(text, 0)


def events(status: int) -> list[str]:
    """Events of an interrupt status, one line each, from the register description."""
    names = interrupt_names(status)
    lines = [_event(name) for name in names]
    rest = status
    for name in names:
        rest &= ~_bits()[name]
    if rest:
        lines.append(f"0x{rest:X}: bits without a known event")
    return lines or ["no event"]


def status_lines(value: int, what: str = "int status") -> list[str]:
    """Return a line with a status and one for each of its events."""
    return [f"{what} 0x{value:X}:", *(f"  {line}" for line in events(value))]


def _bits() -> dict[str, int]:
    return dict(registers()["PC"]["INTERRUPT_RAW_STATUS"].fields["int_raw_st"].enum or {})


def _event(name: str) -> str:
    bit = _bits()[name].bit_length() - 1
    block, _, group = name.rpartition("_")
    if group in ("0", "1"):
        what = {"CNA_FEATURE": "CNA has read its features", "CNA_WEIGHT": "CNA has read its weights"}
        text = (
            what.get(block, f"{block.removeprefix('CNA_')} has done its task") + f" (register group {group})"
        )
    else:
        text = f"a DMA {'read' if 'READ' in name else 'write'} returned an error: a wrong address in the task"
    return f"bit {bit} {name}: {text}"


def verdict(status: int) -> str:
    """Return what an interrupt status says about the task that set it."""
    names = interrupt_names(status)
    if any(name.startswith("DMA") for name in names):
        return "the results may be wrong: a buffer is missing, freed or too small for the task's sizes"
    if not status:
        return "nothing has ended: a block waits for data, or the command list is wrong"
    if any(name.startswith(("DPU", "PPU")) for name in names):
        return "the output stage has ended: the required mask contains other events"
    return "the task has not got beyond these blocks: the blocks after them wait"
