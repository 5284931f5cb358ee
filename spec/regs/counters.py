"""States, levels and counts of the performance counters, in the order of their bits on a core's ports.

Everything is derived from the registers of the window (counters.rdl), which define names and meanings.
"""

from __future__ import annotations

from functools import lru_cache

from rkcosim.spec.regs.table import Block, Register, counter_registers

_NOT_STATES = ("CONTROL", "BYTES", "MACS", "LEVELS", "TASKS")

LEVEL_BITS = 16
"""Width of each level on the port `levels`."""

BASE_ADDRESS = 0xFDAE0000
"""Address of core 0's window in the SoC: unused space after the windows of the cores (docs/counters.md)."""

WINDOW_BYTES = 0x1000
"""Bytes from the window of one core to that of the next."""

IDLE, BUSY = "IDLE", "BUSY"
"""States that every block has; in each of its other states a block waits for something."""


@lru_cache(maxsize=1)
def state_blocks() -> tuple[Block, ...]:
    """Blocks whose cycles are counted by state. Their registers are the states; each cycle counts for one."""
    return tuple(block for block in counter_registers() if block.name not in _NOT_STATES)


@lru_cache(maxsize=1)
def states() -> tuple[Register, ...]:
    """The states of all blocks, by bit of the port `activity`."""
    return tuple(state for block in state_blocks() for state in block)


@lru_cache(maxsize=1)
def levels() -> tuple[Register, ...]:
    """Levels whose high-water mark is kept, by their place in the port `levels`."""
    return tuple(counter_registers()["LEVELS"])


@lru_cache(maxsize=1)
def counts() -> tuple[Register, ...]:
    """All registers that count, by offset: all registers but IDENT and SWITCH."""
    return tuple(
        register
        for block in counter_registers()
        for register in block
        if register.path not in ("CONTROL.IDENT", "CONTROL.SWITCH")
    )
