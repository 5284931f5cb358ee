"""One kick on any device of the driver's protocol, register by register in the order of [HW 10.3]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rkcosim.driver.core_port import Kick, arm_kick, start_kick
from rkcosim.driver.device import Device
from rkcosim.spec.regs import registers


@dataclass(frozen=True)
class KickResult:
    """End of a kick: cycles from the start to the interrupt, and status; `done` is False after a time-out."""

    done: bool
    cycles: int
    status: int
    state: str = ""


Writes = list[tuple[int, int]]
"""(offset, value) in order."""


def kick_writes(kick: Kick, core: int = 0, writes: Iterable[tuple[int, int]] = ()) -> tuple[Writes, Writes]:
    """Return the host writes before a kick and those that start it, in the vendor driver's order.

    `writes` are (offset, value) before the start, or in slave mode all of them.
    """
    regs = registers()
    pc = regs["PC"]
    before: Writes = []
    starting: Writes = []

    def into(target: Writes) -> Callable[[str, str, int], None]:
        return lambda block, register, value: target.append((regs[block][register].offset, value))

    arm_kick(into(before), core, kick)
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
