"""What the blocks of a core hold in a cycle: their states, levels, pointers and signals, with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base import Error
from rkcosim.engines.traces.names import SCOPES
from rkcosim.engines.traces.writing import op_enable_bits
from rkcosim.spec.regs import counter_registers, registers
from rkcosim.spec.regs.counters import IDLE, state_blocks

if TYPE_CHECKING:
    from rkcosim.engines.soc import SocEngine

ACTIVITIES = {
    "CNA_FEATURE": "CNA.feature_activity",
    "CNA_WEIGHT": "CNA.weight_activity",
    "CSC": "CNA.csc_activity",
}
"""Scope of the signals of a block's states, if it is not `BLOCK.activity` (rtl/core.py)."""

WRITE_BUFFERS = {"DPU_WRITE_BUFFER": "DPU.write_buffer.level", "PPU_WRITE_BUFFER": "PPU.write_buffer.level"}
"""Signals of the levels that are not in `BLOCK.levels` (rtl/core.py)."""

BLOCKS = tuple(dict.fromkeys(scope.partition(".")[0] for scope in SCOPES.values()))
"""Blocks of a core that have signals."""


class SignalError(Error, ValueError):
    """A signal does not exist."""


class CoreSignals:
    """The signals of one core of an engine in its present cycle.

    Parameters
    ----------
    engine : the engine, opened with `traced=True`.
    core : number of the core.
    """

    def __init__(self, engine: SocEngine, core: int) -> None:
        self._engine, self._core, self._prefix = engine, core, f"core{core}."

    def read(self, *scopes: str) -> dict[str, int]:
        """Return signals by name without the core, of scopes or signals (globs) below the core.

        Raises
        ------
        SignalError
            for a scope that does not exist.
        """
        try:
            found = self._engine.tracing.values([self._prefix + scope for scope in scopes])
        except ValueError as error:
            raise SignalError(str(error)) from None
        return {name.removeprefix(self._prefix): value for name, value in found.items()}

    def activities(self) -> dict[str, tuple[str, str]]:
        """Return what each block does in this cycle, as (state, meaning) of spec/regs/counters.rdl."""
        signals = self.read("*.activity", *ACTIVITIES.values())
        found = {}
        for block in state_blocks():
            scope = ACTIVITIES.get(block.name, f"{block.name}.activity")
            for state in sorted(block, key=lambda one: one.name != IDLE):
                if signals.get(f"{scope}.{state.name}"):
                    found[block.name] = state.name, state.desc
                    break
        return found

    def levels(self) -> dict[str, tuple[int, str]]:
        """Return the levels of the queues, as (level, meaning) of spec/regs/counters.rdl."""
        signals = self.read("*.levels", *WRITE_BUFFERS.values())
        by_name = {path.rpartition(".")[2]: value for path, value in signals.items() if ".levels." in path}
        by_name |= {name: signals[path] for name, path in WRITE_BUFFERS.items() if path in signals}
        return {
            level.name: (by_name[level.name], level.desc)
            for level in counter_registers()["LEVELS"]
            if level.name in by_name
        }

    def pointers(self) -> dict[str, dict[str, int]]:
        """Return the fields of S_POINTER and S_STATUS of each block with register groups."""
        signals = self.read("*.registers.S_POINTER", "*.registers.S_STATUS")
        found: dict[str, dict[str, int]] = {}
        for path, value in signals.items():
            block, _, _, name = path.split(".")
            found.setdefault(block, {})[name] = value
        return found

    def register(self, block: str, name: str) -> int | None:
        """Return the word of a register as the block uses it, None if the core keeps no signal of it."""
        register = registers()[block][name]
        prefix = f"{block}.registers.{name}."
        try:
            signals = self.read(prefix[:-1])
        except SignalError:
            return None
        fields = {path.removeprefix(prefix): value for path, value in signals.items()}
        known = {field: value for field, value in fields.items() if field in register.fields}
        return register.encode(**known) if known else None

    def used_registers(self, block: str) -> dict[int, int]:
        """Return the registers that a block has taken for the task that it executes, offset -> word."""
        signals = self.read(f"{block}.registers")
        words: dict[int, int] = {}
        for register in registers()[block]:
            prefix = f"{block}.registers.{register.name}."
            fields = {name: signals[prefix + name] for name in register.fields if prefix + name in signals}
            if fields and register.shadowed:
                words[register.offset] = register.encode(**fields)
        return words

    def running(self) -> list[str]:
        """Return the blocks that run, as the pins of the core tell."""
        busy = self._engine.outputs(self._core).busy_blocks
        return [name for name, bit in op_enable_bits().items() if busy >> bit & 1]

    def inside(self, block: str) -> list[tuple[str, int]]:
        """Return all signals of a block without its registers, (name, value)."""
        if block not in BLOCKS:
            raise SignalError(f"no block {block!r} has signals; there are {', '.join(BLOCKS)}")
        return [
            (name.removeprefix(f"{block}."), value)
            for name, value in self.read(block).items()
            if ".registers." not in name
        ]
