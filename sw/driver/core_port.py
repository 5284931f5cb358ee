"""Registers of one core: start of a kick and handling of its interrupt, as in the vendor's driver [HW 10]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rkcosim.driver.device import Device
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.regcmd.word import FETCH_WORDS
from rkcosim.spec.regs import registers

WriteRegister = Callable[[str, str, int], None]
"""Function that writes a value to a register, given by block and register name."""


WORD32 = 0xFFFF_FFFF


class TaskRecord(Protocol):
    """Members of a task's record that the driver uses (`rkcosim.regcmd.job.Task`)."""

    @property
    def regcmd_addr(self) -> int: ...

    @property
    def regcfg_amount(self) -> int: ...

    @property
    def int_mask(self) -> int: ...


@dataclass(frozen=True)
class Kick:
    """Values that the host writes to start a chain of tasks.

    Members
    -------
    base, amount : address of the first task's words, and its amount code.
    tasks : number of tasks.
    interrupt_mask : interrupt events that end the kick.
    dma_base : TASK_DMA_BASE in bytes.
    pp_en : 1 to fetch the registers of the next task while a task runs.
    slave : 1 for slave mode instead of PC mode: further writes of the host set up the blocks and start them.
    clear : interrupt events that are cleared before the kick; None: all.
    """

    base: int
    amount: int
    tasks: int
    interrupt_mask: int
    dma_base: int = 0
    pp_en: int = 1
    slave: int = 0
    clear: int | None = None

    @property
    def settings(self) -> dict[str, int]:
        """The settings in stream files and listings: all members except `clear`."""
        return {name: value for name, value in self.__dict__.items() if name != "clear"}

    @classmethod
    def of(cls, first: TaskRecord, last: TaskRecord, tasks: int, dma_base: int, pp_en: bool) -> Kick:
        """The kick of a chain, from the records of its ends; values are cut to the widths of fields."""
        amount = (first.regcfg_amount + TAIL_WORDS + FETCH_WORDS - 1 & WORD32) // FETCH_WORDS - 1
        return cls(
            first.regcmd_addr & WORD32,
            clip("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT", amount),
            tasks,
            clip("PC", "INTERRUPT_MASK", "int_mask", last.int_mask),
            dma_base,
            int(pp_en),
            clear=clip("PC", "INTERRUPT_CLEAR", "int_clr", first.int_mask),
        )


def clip(block: str, register: str, field: str, value: int) -> int:
    """The bits of a number that its field can hold."""
    return value & (1 << registers()[block][register].fields[field].width) - 1


def arm_kick(write: WriteRegister, core: int, kick: Kick) -> None:
    """Write all registers of a kick except OPERATION_ENABLE.

    Parameters
    ----------
    write
        Access to the core's registers.
    core
        Number of the core, for the routing bits of CNA and CORE.

    Raises
    ------
    ValueError
        For a number that does not fit its field.
    """
    pc = registers()["PC"]
    write("PC", "BASE_ADDRESS", pc["BASE_ADDRESS"].encode(PC_SEL="SLAVE_MODE"))
    for block in ("CNA", "CORE"):
        pointer = registers()[block]["S_POINTER"]
        toggles = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        write(block, "S_POINTER", pointer.encode(CORE_INDEX=core, **toggles))
    write("PC", "BASE_ADDRESS", kick.base)
    write("PC", "REGISTER_AMOUNTS", pc["REGISTER_AMOUNTS"].encode(PC_DATA_AMOUNT=kick.amount))
    write("PC", "INTERRUPT_MASK", pc["INTERRUPT_MASK"].encode(int_mask=kick.interrupt_mask))
    clear = pc["INTERRUPT_CLEAR"]
    write("PC", "INTERRUPT_CLEAR", clear.mask if kick.clear is None else clear.encode(int_clr=kick.clear))
    control = {
        "RESERVED_14": 1,
        "TASK_COUNT_CLEAR": 1,
        "TASK_PP_EN": kick.pp_en,
        "TASK_NUMBER": kick.tasks,
    }
    write("PC", "TASK_CON", pc["TASK_CON"].encode(**control))
    write("PC", "TASK_DMA_BASE_ADDR", kick.dma_base)


def start_kick(write: WriteRegister) -> None:
    """Start the PC: OP_EN 1, then 0, which does not stop it."""
    write("PC", "OPERATION_ENABLE", registers()["PC"]["OPERATION_ENABLE"].encode(OP_EN=1))
    write("PC", "OPERATION_ENABLE", 0)


class CorePort:
    """Named access to the registers of one core.

    Parameters
    ----------
    device
        See `rkcosim.driver.device.Device`.
    core
        Number of the core.
    """

    def __init__(self, device: Device, core: int) -> None:
        self.device, self.core = device, core

    def read(self, block: str, register: str) -> int:
        """Read a register."""
        return self.device.read32(self.core, registers()[block][register].offset)

    def write(self, block: str, register: str, value: int) -> None:
        """Write a register."""
        self.device.write32(self.core, registers()[block][register].offset, value)

    def start(self, kick: Kick) -> None:
        """Start a kick; raises ValueError for a number that does not fit its field."""
        arm_kick(self.write, self.core, kick)
        start_kick(self.write)

    def interrupt(self) -> tuple[int, int]:
        """INTERRUPT_STATUS and INTERRUPT_RAW_STATUS."""
        return self.read("PC", "INTERRUPT_STATUS"), self.read("PC", "INTERRUPT_RAW_STATUS")

    def acknowledge(self) -> None:
        """Clear every event."""
        self.write("PC", "INTERRUPT_CLEAR", registers()["PC"]["INTERRUPT_CLEAR"].mask)

    def task_counter(self) -> int:
        """Number of tasks of the kick that have ended."""
        register = registers()["PC"]["TASK_STATUS"]
        return register.decode(self.read("PC", "TASK_STATUS"))["TASK_COUNTER"]

    def version(self) -> int:
        """Hardware version as the vendor's driver computes it [HW 2.1]."""
        low = self.read("PC", "VERSION_NUM") & 0xFFFF
        return (self.read("PC", "VERSION") + low) & 0xFFFFFFFF
