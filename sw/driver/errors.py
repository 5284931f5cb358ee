"""What the driver raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class DriverError(Exception):
    """A request was refused or went wrong; the message says which and why."""


@dataclass(frozen=True)
class CoreReport:
    """State of one core when a job was given up.

    `task` is the index in the job's task list of the task that did not end, `registers` the PC's
    registers by name, `blocks` the S_STATUS of each block in words, `waits` the device's own account.
    """

    core: int
    task: int
    task_name: str
    registers: Mapping[str, int]
    blocks: Mapping[str, str]
    waits: str

    def __str__(self) -> str:
        registers = ", ".join(f"{name} 0x{value:X}" for name, value in self.registers.items())
        blocks = ", ".join(f"{name} {state}" for name, state in self.blocks.items())
        waits = self.waits.replace("\n", "\n  ")
        return (
            f"core {self.core}: task {self.task} ({self.task_name}) did not end\n"
            f"  registers: {registers}\n"
            f"  S_STATUS: {blocks}\n"
            f"  {waits}"
        )


class DriverTimeout(DriverError):
    """A job did not end within its cycles; the cores it ran on have been reset.

    Parameters
    ----------
    cycles
        the bound.
    cores
        one report for each core that had not finished.
    """

    def __init__(self, cycles: int, cores: list[CoreReport]) -> None:
        self.cycles = cycles
        self.cores = cores
        super().__init__(f"no completion interrupt within {cycles} cycles\n" + "\n".join(map(str, cores)))


class DriverDmaError(DriverError):
    """A job ended, but a DMA read or write of it got an error response: its results are suspect."""
