"""One kick on any device of the driver's protocol, register by register in the order of H1.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rtl.regs import registers
from sw.driver import device as driver_device
from sw.driver.commit import arm_kick, start_kick


class Device(driver_device.Device, Protocol):
    """The driver's device, with any kind of memory: the golden model's has more to offer."""

    @property
    def memory(self) -> Any:
        """Memory with `map`, `view`, `write` and `ranges`."""
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

    arm_kick(
        write,
        core,
        base=kick.base,
        amount=kick.amount,
        tasks=kick.tasks,
        mask=kick.interrupt_mask,
        clear=pc["INTERRUPT_CLEAR"].mask,
        dma_base=kick.dma_base,
        pp_en=kick.pp_en,
    )
    start = device.cycle
    start_kick(write)
    raised = device.run_until_irq(1 << core, max_cycles)
    cycles = device.cycle - start
    status = device.read32(core, pc["INTERRUPT_STATUS"].offset)
    if not raised:
        state = device.block_state(core)
        device.reset(1 << core)
        return KickResult(False, cycles, status, state)
    write("PC", "INTERRUPT_CLEAR", pc["INTERRUPT_CLEAR"].mask)
    return KickResult(True, cycles, status)
