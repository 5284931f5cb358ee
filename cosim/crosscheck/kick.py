"""One kick on any device of the driver's protocol, register by register in the order of H1.9."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    @property
    def options(self) -> frozenset[str]:
        """Readings of the hardware that differ from the default (rtl/regs/options.py)."""
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
    slave
        not PC mode: the host's further writes set up the blocks and start them.
    """

    base: int
    amount: int
    tasks: int
    interrupt_mask: int
    dma_base: int = 0
    pp_en: int = 1
    slave: int = 0


@dataclass(frozen=True)
class KickResult:
    """End of a kick: cycles from the start to the interrupt, status; `done` False on a time-out."""

    done: bool
    cycles: int
    status: int
    state: str = ""


Writes = list[tuple[int, int]]
"""(offset, value) in order."""


def kick_writes(kick: Kick, core: int = 0, writes: Iterable[tuple[int, int]] = ()) -> tuple[Writes, Writes]:
    """What the host writes before the start of a kick, and to start it, in the vendor driver's order.

    `writes` are (offset, value) before the start, or in slave mode all of it.
    """
    regs = registers()
    pc = regs["PC"]
    before: Writes = []
    starting: Writes = []

    def into(target: Writes) -> Callable[[str, str, int], None]:
        return lambda block, register, value: target.append((regs[block][register].offset, value))

    arm_kick(
        into(before),
        core,
        base=kick.base,
        amount=kick.amount,
        tasks=kick.tasks,
        mask=kick.interrupt_mask,
        clear=pc["INTERRUPT_CLEAR"].mask,
        dma_base=kick.dma_base,
        pp_en=kick.pp_en,
    )
    if kick.slave:
        into(before)("PC", "BASE_ADDRESS", pc["BASE_ADDRESS"].encode(PC_SEL="SLAVE_MODE"))
    else:
        start_kick(into(starting))
    return before + list(writes), starting


def start(device: Device, kick: Kick, core: int = 0, writes: Iterable[tuple[int, int]] = ()) -> int:
    """Write what starts a kick (`kick_writes`).

    Returns
    -------
    The cycle of the start.
    """
    before, starting = kick_writes(kick, core, writes)
    for offset, value in before:
        device.write32(core, offset, value)
    begun = device.cycle
    for offset, value in starting:
        device.write32(core, offset, value)
    return begun


def run_kick(
    device: Device,
    kick: Kick,
    core: int = 0,
    max_cycles: int = 5_000_000,
    writes: Iterable[tuple[int, int]] = (),
) -> KickResult:
    """Start a kick (see `start`), wait for its interrupt and clear it.

    Returns
    -------
    The result; after a time-out the core is reset.
    """
    pc = registers()["PC"]
    begun = start(device, kick, core, writes)
    raised = device.run_until_irq(1 << core, max_cycles)
    cycles = device.cycle - begun
    status = device.read32(core, pc["INTERRUPT_STATUS"].offset)
    if not raised:
        state = device.block_state(core)
        device.reset(1 << core)
        return KickResult(False, cycles, status, state)
    device.write32(core, pc["INTERRUPT_CLEAR"].offset, pc["INTERRUPT_CLEAR"].mask)
    return KickResult(True, cycles, status)
