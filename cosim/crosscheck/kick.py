"""One kick on any device of the driver's protocol, register by register in the order of H1.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rtl.regs import registers


class Device(Protocol):
    """What a kick needs of a device: the register half of `sw.driver.device.Device`, and some memory."""

    @property
    def cores(self) -> int:
        """Number of cores."""
        ...

    @property
    def cycle(self) -> int:
        """Clock cycles since the device was opened."""
        ...

    @property
    def memory(self) -> Any:
        """Memory with `map`, `view`, `write` and `ranges`."""
        ...

    def read32(self, core: int, offset: int) -> int:
        """Read a register."""
        ...

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register."""
        ...

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until a line of `core_mask` is up; the mask of those that are, 0 at the bound."""
        ...

    def reset(self, core_mask: int) -> None:
        """Reset cores."""
        ...

    def block_state(self, core: int) -> str:
        """What each block of a core waits for."""
        ...


@dataclass(frozen=True)
class Kick:
    """What the host writes to start a chain of tasks.

    Parameters
    ----------
    base, amount
        address and amount code of the first task.
    tasks
        number of tasks.
    interrupt_mask
        events that end it.
    dma_base
        TASK_DMA_BASE.
    pp_en
        fetch the next task's registers while one runs.
    """

    base: int
    amount: int
    tasks: int
    interrupt_mask: int
    dma_base: int = 0
    pp_en: int = 1


@dataclass(frozen=True)
class KickResult:
    """End of a kick: cycles from the start to the interrupt, status; `done` False on a time-out."""

    done: bool
    cycles: int
    status: int
    state: str = ""


def run_kick(device: Device, kick: Kick, core: int = 0, max_cycles: int = 5_000_000) -> KickResult:
    """Start a kick, wait for its interrupt and clear it.

    Returns
    -------
    The result; after a time-out the core is reset.
    """
    pc = registers()["PC"]

    def write(block: str, register: str, value: int) -> None:
        device.write32(core, registers()[block][register].offset, value)

    write("PC", "BASE_ADDRESS", pc["BASE_ADDRESS"].encode(PC_SEL=1))
    for block in ("CNA", "CORE"):
        pointer = registers()[block]["S_POINTER"]
        flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        write(block, "S_POINTER", pointer.encode(CORE_INDEX=core, **flags))
    write("PC", "BASE_ADDRESS", kick.base)
    write("PC", "REGISTER_AMOUNTS", kick.amount)
    write("PC", "INTERRUPT_MASK", kick.interrupt_mask)
    write("PC", "INTERRUPT_CLEAR", pc["INTERRUPT_CLEAR"].mask)
    control = {"RESERVED_14": 1, "TASK_COUNT_CLEAR": 1, "TASK_PP_EN": kick.pp_en, "TASK_NUMBER": kick.tasks}
    write("PC", "TASK_CON", pc["TASK_CON"].encode(**control))
    write("PC", "TASK_DMA_BASE_ADDR", kick.dma_base)
    start = device.cycle
    write("PC", "OPERATION_ENABLE", pc["OPERATION_ENABLE"].encode(OP_EN=1))
    write("PC", "OPERATION_ENABLE", 0)
    raised = device.run_until_irq(1 << core, max_cycles)
    cycles = device.cycle - start
    status = device.read32(core, pc["INTERRUPT_STATUS"].offset)
    if not raised:
        state = device.block_state(core)
        device.reset(1 << core)
        return KickResult(False, cycles, status, state)
    write("PC", "INTERRUPT_CLEAR", pc["INTERRUPT_CLEAR"].mask)
    return KickResult(True, cycles, status)
