"""Values of registers, results of runs, streams of bare words; errors of the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.crosscheck.kick import Kick
from cosim.engines.diagnostics import Diagnostic, register_name
from cosim.streams.stream import Region, Stream
from rtl.regs import registers
from sw.driver.job import interrupt_bits, interrupt_names
from sw.regcmd import amount_code, blocks_of_mask, decode_word, words_to_bytes

COMMANDS = 0x0F00_0000
"""Where `run_stream` puts bare words."""


class InterruptTimeout(AssertionError):
    """No interrupt came within the bound; the text says what was waited for and what the blocks do."""


class DiagnosticFound(AssertionError):
    """The core raised a diagnostic (with `on_diagnostic` "stop"); `diagnostics` has all so far."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = list(diagnostics)
        more = f" (and {len(self.diagnostics) - 1} more)" if len(self.diagnostics) > 1 else ""
        super().__init__(f"{self.diagnostics[0]}{more}")


class RegisterValue(int):
    """A register's value: an int that knows its fields.

    Members
    -------
    name : `BLOCK.REGISTER`.
    fields : value of each field by name.
    """

    name: str
    fields: dict[str, int]

    def __new__(cls, offset: int, value: int) -> RegisterValue:
        self = super().__new__(cls, value)
        register = registers().at(offset)
        self.name = register_name(offset)
        self.fields = register.decode(value) if register is not None else {}
        return self

    def __getitem__(self, name: str) -> int:
        if name not in self.fields:
            raise KeyError(f"{self.name} has no field {name}; it has {', '.join(self.fields)}")
        return self.fields[name]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:#x}" for name, value in self.fields.items() if value)
        return f"{self.name} {int(self):#010x}" + (f" ({shown})" if shown else "")


@dataclass(frozen=True)
class TaskSpan:
    """A task that ran: its index in the kick, first cycle, and cycle of its end (None: still at work)."""

    core: int
    task: int
    start: int
    end: int | None = None

    @property
    def cycles(self) -> int | None:
        """Cycles from start to end."""
        return None if self.end is None else self.end - self.start


@dataclass(frozen=True)
class RunResult:
    """A kick that ended.

    Members
    -------
    status : interrupt events that ended it.
    start, irq : cycles of the start (before the op-enable) and of the interrupt.
    tasks : the tasks that ran.
    """

    status: int
    start: int
    irq: int
    tasks: tuple[TaskSpan, ...] = ()

    @property
    def cycles(self) -> int:
        """Cycles from the start to the interrupt, the register writes that start it included."""
        return self.irq - self.start

    @property
    def events(self) -> list[str]:
        """Names of the interrupt events."""
        return interrupt_names(self.status)


@dataclass
class Log:
    """What the agent has seen on the core's pins since it was made."""

    tasks: list[TaskSpan] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def words_stream(words: Iterable[int], core: int = 0, address: int = COMMANDS) -> Stream:
    """A stream of one task from its words, ended by the last block that it starts.

    Raises
    ------
    ValueError
        for words without an op-enable.
    """
    items = list(words)
    masks = [c.value for c in map(decode_word, items) if c.kind == "op_enable"]
    if not masks or not masks[-1]:
        raise ValueError("the words have no op-enable that starts a block")
    last = "PPU" if "PPU" in blocks_of_mask(masks[-1]) else "DPU"
    kick = Kick(address, amount_code(len(items)), 1, interrupt_bits(f"{last}_0", f"{last}_1"))
    return Stream(kick, [Region("words", address, np.frombuffer(words_to_bytes(items), np.uint8))], core)


def find_register(register: str | int) -> tuple[int, Any]:
    """(offset, register or None) of a name or an offset."""
    if isinstance(register, int):
        return register, registers().at(register)
    block, _, name = register.partition(".")
    blocks = registers().blocks
    if block not in blocks:
        raise KeyError(f"no block {block!r}; there are {', '.join(blocks)}")
    if name not in blocks[block]:
        known = ", ".join(r.name for r in blocks[block])
        raise KeyError(f"{block} has no register {name!r}; it has {known}")
    item = blocks[block][name]
    return item.offset, item


def event_names(mask: int) -> str:
    return "|".join(interrupt_names(mask)) or "none"
