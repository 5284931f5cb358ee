"""The performance counters of an engine's cores: switching, reading, and access by name.

The hardware counts in rtl/counters.py, in a window of the SoC outside every core's address map. The engines,
whose interconnect is C++, count in cosim/engines/harness/counters.h and get the same numbers after the same
cycles.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rkcosim.engines.system import System
from rkcosim.spec.regs import counter_registers
from rkcosim.spec.regs.counters import BASE_ADDRESS, BUSY, IDLE, WINDOW_BYTES, counts, state_blocks

CountsC = ct.c_uint64 * len(counts())
"""`BlockCounts` of counters.h: the counts in the order of their registers."""


@dataclass(frozen=True)
class BlockCounters:
    """The values of a core's counters, named as the registers of spec/regs/counters.rdl in lower case.

    Members
    -------
    cycles : number of cycles counted so far.
    states : by block and state, the number of cycles: `idle`, `busy`, and one state for each kind of wait.
        Those of a block add up to `cycles`.
    bytes : bytes by client, and the numbers of bursts, `reads` and `writes`.
    macs : `useful`, `busy`, `slots`, `pixels`.
    levels : the highest level of each queue.
    tasks : `started`, `done`, `cycles`, `last_start`, `last_end`, `longest`.
    """

    cycles: int
    states: Mapping[str, Mapping[str, int]]
    bytes: Mapping[str, int]
    macs: Mapping[str, int]
    levels: Mapping[str, int]
    tasks: Mapping[str, int]

    def waits(self, block: str) -> int:
        """Return the number of cycles in which a block waited."""
        return sum(n for state, n in self.states[block].items() if state.upper() not in (IDLE, BUSY))

    def unaccounted(self) -> dict[str, int]:
        """Return, for each block whose states do not add up to the cycles, the missing number of cycles."""
        missing = {block: self.cycles - sum(states.values()) for block, states in self.states.items()}
        return {block: cycles for block, cycles in missing.items() if cycles}

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, for JSON."""
        return asdict(self)


class Registers(Protocol):
    """An object that reads and writes words of a window."""

    def read32(self, offset: int) -> int: ...

    def write32(self, offset: int, value: int) -> None: ...


def named(values: Mapping[str, int]) -> BlockCounters:
    """Make the counters from the values of their registers by path."""

    def block(name: str) -> dict[str, int]:
        return {r.name.lower(): values[r.path] for r in counter_registers()[name] if r.path in values}

    return BlockCounters(
        values["CONTROL.CYCLES"],
        {described.name: block(described.name) for described in state_blocks()},
        *(block(name) for name in ("BYTES", "MACS", "LEVELS", "TASKS")),
    )


def read_counters(window: Registers) -> BlockCounters:
    """Latch the counters behind a window and read all of them."""
    switch = counter_registers()["CONTROL"]["SWITCH"]
    window.write32(switch.offset, switch.update(window.read32(switch.offset), LATCH=1))
    values = {}
    for register in counts():
        words = [window.read32(register.offset + 4 * word) for word in range(register.width // 32)]
        values[register.path] = sum(word << 32 * n for n, word in enumerate(words))
    return named(values)


class CounterWindow:
    """The registers of one core's counters as a host sees them.

    An access takes no simulated time: the window has a separate bus in the SoC.
    """

    def __init__(self, system: System, core: int) -> None:
        self._system, self._core = system, system.core_number(core)
        self.address = BASE_ADDRESS + WINDOW_BYTES * core
        """Address of the window in the SoC."""

    def read32(self, offset: int) -> int:
        """Read a word of the window; 0 at an offset without a register.

        Raises
        ------
        ValueError
            for an offset outside of the window, or not a multiple of 4.
        """
        self._check(offset)
        control = counter_registers()["CONTROL"]
        raw = CountsC()
        enabled = self._system.lib.rk_counts(self._system.opened(), self._core, 1, raw)
        if offset == control["IDENT"].offset:
            return control["IDENT"].reset
        if offset == control["SWITCH"].offset:
            return control["SWITCH"].encode(ENABLE=enabled)
        for place, register in enumerate(counts()):
            if 0 <= offset - register.offset < register.width // 8:
                return raw[place] >> 8 * (offset - register.offset) & 0xFFFFFFFF
        return 0

    def write32(self, offset: int, value: int) -> None:
        """Write a word; only SWITCH can be written. Raises as `read32`."""
        self._check(offset)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"write32: {value:#x} does not fit 32 bits")
        switch = counter_registers()["CONTROL"]["SWITCH"]
        if offset == switch.offset:
            said = switch.decode(value)
            self._system.lib.rk_count(
                self._system.opened(), self._core, said["ENABLE"], said["CLEAR"], said["LATCH"]
            )

    def _check(self, offset: int) -> None:
        if not 0 <= offset < WINDOW_BYTES or offset % 4:
            raise ValueError(f"offset must be a multiple of 4 below {WINDOW_BYTES:#x}, not {offset:#x}")


def read_all(system: System, core: int) -> BlockCounters:
    """Return the values of a core's performance counters.

    Raises ValueError for a core that does not exist.
    """
    raw = CountsC()
    system.lib.rk_counts(system.opened(), system.core_number(core), 0, raw)
    return named({register.path: raw[place] for place, register in enumerate(counts())})
