"""Values of registers, results of runs, streams of plain words; errors of the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.engines.diagnostics import Diagnostic, register_name
from rkcosim.regcmd import amount_code, blocks_of_mask, decode_word, words_to_bytes
from rkcosim.regcmd.job import interrupt_bits
from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers
from rkcosim.verify.streams.stream import Region, Stream

COMMANDS = 0x0F00_0000
"""Address at which `run_stream` places plain words."""


class InterruptTimeout(AssertionError):
    """No interrupt occurred within the bound; the message says what was expected and what the blocks do."""


class DiagnosticFound(AssertionError):
    """The core raised a diagnostic (with `on_diagnostic` "stop"); `diagnostics` has all so far."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = list(diagnostics)
        more = f" (and {len(self.diagnostics) - 1} more)" if len(self.diagnostics) > 1 else ""
        super().__init__(f"{self.diagnostics[0]}{more}")


def event_names(mask: int) -> str:
    """Return the names of the interrupt events in a mask."""
    return "|".join(interrupt_names(mask)) or "none"


class RegisterValue(int):
    """A register's value: an int with access to its fields.

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
    """A task that ran: its index in the kick, first cycle, and cycle of its end (None: still running)."""

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
        """Cycles from the start to the interrupt, including the register writes that start it."""
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
    """Make a stream of one task from its words; it ends with the last block that it starts.

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
