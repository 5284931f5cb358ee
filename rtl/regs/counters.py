"""What the performance counters count, in the order of their bits on a core's ports.

Everything comes from the registers of the window (counters.rdl), the one home of names and meanings.
"""

from __future__ import annotations

from functools import lru_cache

from rtl.regs.table import Block, Register, counter_registers

_NOT_STATES = ("CONTROL", "BYTES", "MACS", "LEVELS", "TASKS")

LEVEL_BITS = 16
"""Bits of each level on the port `levels`."""

BASE_ADDRESS = 0xFDAE0000
"""Address of core 0's window in the SoC: free room behind the three cores' windows (docs/counters.md)."""

WINDOW_BYTES = 0x1000
"""Bytes from one core's window to the next one's."""

IDLE, BUSY = "IDLE", "BUSY"
"""States of every block; whatever else a block may be doing is waiting for something."""


@lru_cache(maxsize=1)
def state_blocks() -> tuple[Block, ...]:
    """Blocks whose cycles are told apart; their registers are their states, of which one holds a cycle."""
    return tuple(block for block in counter_registers() if block.name not in _NOT_STATES)


@lru_cache(maxsize=1)
def states() -> tuple[Register, ...]:
    """The states of all blocks, by bit of the port `activity`."""
    return tuple(state for block in state_blocks() for state in block)


@lru_cache(maxsize=1)
def levels() -> tuple[Register, ...]:
    """What high-water marks are kept of, by their place in the port `levels`."""
    return tuple(counter_registers()["LEVELS"])


@lru_cache(maxsize=1)
def counts() -> tuple[Register, ...]:
    """Everything that is counted, by offset: all registers but IDENT and SWITCH."""
    return tuple(
        register
        for block in counter_registers()
        for register in block
        if register.path not in ("CONTROL.IDENT", "CONTROL.SWITCH")
    )
