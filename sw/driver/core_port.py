"""One core's registers: start a kick, answer its interrupt (H 1.9); for driver and kernel model alike."""

from __future__ import annotations

from dataclasses import dataclass

from rtl.regs import registers
from sw.driver.commit import arm_kick, start_kick
from sw.driver.device import Device


@dataclass(frozen=True)
class Kick:
    """What starts a chain of tasks; see `sw.driver.commit.arm_kick`."""

    base: int
    amount: int
    tasks: int
    mask: int
    clear: int
    dma_base: int = 0
    pp_en: int = 1


class CorePort:
    """Named access to the registers of one core.

    Parameters
    ----------
    device
        see `sw.driver.device.Device`.
    core
        its number.
    """

    def __init__(self, device: Device, core: int) -> None:
        self.device, self.core = device, core

    def read(self, block: str, register: str) -> int:
        """Read a register."""
        return self.device.read32(self.core, registers()[block][register].offset)

    def write(self, block: str, register: str, value: int) -> None:
        """Write a register."""
        self.device.write32(self.core, registers()[block][register].offset, value)

    def arm(self, kick: Kick) -> None:
        """Everything of a kick but its start; ValueError for a number that its field cannot hold."""
        arm_kick(
            self.write,
            self.core,
            base=kick.base,
            amount=kick.amount,
            tasks=kick.tasks,
            mask=kick.mask,
            clear=kick.clear,
            dma_base=kick.dma_base,
            pp_en=kick.pp_en,
        )

    def start(self, kick: Kick) -> None:
        """Start a kick as the vendor's driver does."""
        self.arm(kick)
        start_kick(self.write)

    def interrupt(self) -> tuple[int, int]:
        """INTERRUPT_STATUS and INTERRUPT_RAW_STATUS."""
        return self.read("PC", "INTERRUPT_STATUS"), self.read("PC", "INTERRUPT_RAW_STATUS")

    def acknowledge(self) -> None:
        """Clear every event."""
        self.write("PC", "INTERRUPT_CLEAR", registers()["PC"]["INTERRUPT_CLEAR"].mask)

    def task_counter(self) -> int:
        """Tasks of the kick that have ended."""
        register = registers()["PC"]["TASK_STATUS"]
        return register.decode(self.read("PC", "TASK_STATUS"))["TASK_COUNTER"]

    def version(self) -> int:
        """Hardware version as the vendor's driver computes it (H 2.1)."""
        low = self.read("PC", "VERSION_NUM") & 0xFFFF
        return (self.read("PC", "VERSION") + low) & 0xFFFFFFFF
