"""The performance counters of the cores in an engine: switches, registers, and what they say by name.

The hardware counts in rtl/counters.py, in a window of the SoC outside every core's address map; the engines,
whose interconnect is C++, count in cosim/harness/counters.h, the same numbers after the same cycles.
"""

from __future__ import annotations

import ctypes as ct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rtl.regs import counter_registers
from rtl.regs.counters import BASE_ADDRESS, BUSY, IDLE, WINDOW_BYTES, counts, state_blocks

CountsC = ct.c_uint64 * len(counts())
"""`BlockCounts` of counters.h: the counts in the order of their registers."""


@dataclass(frozen=True)
class BlockCounters:
    """What a core's counters hold; names as the registers of rtl/regs/counters.rdl, in lower case.

    Members
    -------
    cycles : counted so far.
    states : block to state to cycles: `idle`, `busy`, and what it waits for.  Those of a block add up to
        `cycles`.
    bytes : by client, and the numbers of bursts, `reads` and `writes`.
    macs : `useful`, `busy`, `slots`, `pixels`.
    levels : the most that each queue held.
    tasks : `started`, `done`, `cycles`, `last_start`, `last_end`, `longest`.
    """

    cycles: int
    states: Mapping[str, Mapping[str, int]]
    bytes: Mapping[str, int]
    macs: Mapping[str, int]
    levels: Mapping[str, int]
    tasks: Mapping[str, int]

    def waits(self, block: str) -> int:
        """Cycles in which a block waited for something."""
        return sum(n for state, n in self.states[block].items() if state.upper() not in (IDLE, BUSY))

    def unaccounted(self) -> dict[str, int]:
        """Blocks whose states do not add up to the cycles, with what is missing (negative: too many)."""
        missing = {block: self.cycles - sum(states.values()) for block, states in self.states.items()}
        return {block: cycles for block, cycles in missing.items() if cycles}

    def as_dict(self) -> dict[str, Any]:
        """Plain dicts, for JSON."""
        return asdict(self)


class Registers(Protocol):
    """Whoever reads and writes words of a window."""

    def read32(self, offset: int) -> int: ...

    def write32(self, offset: int, value: int) -> None: ...


def named(values: Mapping[str, int]) -> BlockCounters:
    """Counters from the values of their registers, by path."""

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
    """The registers of one core's counters as a host reaches them.

    An access takes no simulated time: the window has a bus of its own in the SoC.
    """

    def __init__(self, library: Callable[[], Any], handle: Callable[[], int], core: int) -> None:
        self._library, self._handle, self._core = library, handle, core
        self.address = BASE_ADDRESS + WINDOW_BYTES * core
        """Where it lies in the SoC."""

    def read32(self, offset: int) -> int:
        """A word of the window; 0 where there is no register.

        Raises
        ------
        ValueError
            for an offset that is not in the window, or no multiple of 4.
        """
        self._check(offset)
        control = counter_registers()["CONTROL"]
        raw = CountsC()
        enabled = self._library().rk_counts(self._handle(), self._core, 1, raw)
        if offset == control["IDENT"].offset:
            return control["IDENT"].reset
        if offset == control["SWITCH"].offset:
            return control["SWITCH"].encode(ENABLE=enabled)
        for place, register in enumerate(counts()):
            if 0 <= offset - register.offset < register.width // 8:
                return raw[place] >> 8 * (offset - register.offset) & 0xFFFFFFFF
        return 0

    def write32(self, offset: int, value: int) -> None:
        """Write a word; only SWITCH takes it.  Raises as `read32`."""
        self._check(offset)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"write32: {value:#x} does not fit 32 bits")
        switch = counter_registers()["CONTROL"]["SWITCH"]
        if offset == switch.offset:
            said = switch.decode(value)
            self._library().rk_count(self._handle(), self._core, said["ENABLE"], said["CLEAR"], said["LATCH"])

    def _check(self, offset: int) -> None:
        if not 0 <= offset < WINDOW_BYTES or offset % 4:
            raise ValueError(f"offset must be a multiple of 4 below {WINDOW_BYTES:#x}, not {offset:#x}")


class CountingEngine(ABC):
    """The counters' part of `cosim.engines.soc.SocEngine`."""

    cores: int
    _lib: Any
    _counting: bool = False

    @abstractmethod
    def _opened(self) -> int: ...
    @abstractmethod
    def _core(self, core: int) -> int: ...

    def counter_window(self, core: int) -> CounterWindow:
        """The registers of a core's performance counters (docs/counters.md)."""
        return CounterWindow(lambda: self._lib, self._opened, self._core(core))

    def count_blocks(self, on: bool = True) -> None:
        """Switch the performance counters of all cores on, from 0, or off."""
        self._counting = on
        for core in range(self.cores):
            self._lib.rk_count(self._opened(), core, int(on), int(on), 0)

    def block_counters(self, core: int) -> BlockCounters:
        """What a core's performance counters hold now.

        Raises
        ------
        ValueError
            for a core that is not there.
        """
        raw = CountsC()
        self._lib.rk_counts(self._opened(), self._core(core), 0, raw)
        return named({register.path: raw[place] for place, register in enumerate(counts())})
