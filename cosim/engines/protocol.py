"""The protocol of every engine: its members, its capabilities, and the errors it raises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Protocol

from rkcosim.base import BAD_INPUT, DEVICE_ERROR


class EngineError(Exception):
    """Base of all errors that an engine raises deliberately."""

    exit_code = DEVICE_ERROR


class BuildError(EngineError):
    """A compiled model could not be made; the message says what to install or change."""


class AssertionFailed(EngineError):
    """An assertion of the RTL does not hold; the message names cycle, core, block, signal and assertion."""


class WaveformError(EngineError, ValueError):
    """A waveform cannot be written by this engine, in this format, to this file, or so late in the run."""

    exit_code = BAD_INPUT


class SnapshotError(EngineError, ValueError):
    """A snapshot cannot be saved, read or resumed; the message says what differs."""

    exit_code = BAD_INPUT


class BusError(EngineError):
    """A register access ended in an error response or not at all; the message names the register."""


class MemoryAccessError(EngineError):
    """The host accessed memory outside of the mapped ranges, or mapped an invalid range."""


class DiagnosticError(EngineError):
    """The core raised a diagnostic, and the engine was configured to stop at it.

    Parameters
    ----------
    diagnostics : the diagnostics not yet reported, oldest first; at least one.
    faults : accesses that the memory refused, oldest first; the message names the first one of the core.
    """

    def __init__(self, diagnostics: list, faults: Iterable = ()) -> None:
        self.diagnostics = list(diagnostics)
        text = str(self.diagnostics[0])
        refused = [fault for fault in faults if fault.core == self.diagnostics[0].core]
        if refused:
            text += f"; {refused[0].client} at {refused[0].address:#x}: {refused[0].text}"
        if len(self.diagnostics) > 1:
            text += f" (and {len(self.diagnostics) - 1} more)"
        super().__init__(text)


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do beyond running jobs; an engine has the same members.

    Members
    -------
    has_cycles : `cycle` counts clock cycles of the hardware, so tasks take time and memory has a timing.
    can_trace : writes waveforms (`trace`, `watch_memory`).
    has_events : records events (`record`, `events`).
    has_counters : counts what cores do (`counters`, `block_counters`).
    has_snapshots : can be saved and resumed (`save`, `restore`).
    has_probes : can record the values that a lockstep run compares (`probes`).
    """

    has_cycles: bool = True
    can_trace: bool = True
    has_events: bool = True
    has_counters: bool = True
    has_snapshots: bool = False
    has_probes: bool = False


GOLDEN = "golden"
"""Name of the task-level golden model (`rkcosim.golden.task.GoldenNpu`) among the engines."""

FAST = "fast"
"""Name of the timing model with the golden model's bytes (`rkcosim.engines.fast`) among the engines."""

CHANGES = "changes"
"""Name of the whole RTL as C++ that follows changes (`rkcosim.engines.changes`) among the engines."""

_COMPILED = {
    "verilator": Capabilities(has_snapshots=True, has_probes=True),
    "cxxrtl": Capabilities(),
    "amaranth": Capabilities(),
}

ENGINES = tuple(_COMPILED)
"""Engines that simulate the RTL, the fastest first."""

_LACKS = {
    "has_cycles": "counts no cycles",
    "can_trace": "writes no waveforms",
    "has_events": "records no events",
    "has_counters": "has no performance counters",
    "has_snapshots": "cannot be saved",
    "has_probes": "cannot be probed",
}


def capabilities(name: str) -> Capabilities:
    """Return what an engine can do; an unknown name is taken for a simulation of the RTL."""
    if name == GOLDEN:
        from rkcosim.golden.task import GoldenNpu

        return Capabilities(*(getattr(GoldenNpu, field.name) for field in fields(Capabilities)))
    if name in (FAST, CHANGES):
        return Capabilities(can_trace=False)
    return _COMPILED.get(name, Capabilities())


def require(name: str | None, capability: str, wanted: str, error: type[ValueError] = ValueError) -> None:
    """Check that an engine has a capability.

    Parameters
    ----------
    name : the engine; None for the default, which has every capability.
    capability : a member of `Capabilities`.
    wanted : the feature that needs it, for the message.

    Raises
    ------
    ValueError
        or `error`; names the engines that have it.
    """
    if name is not None and not getattr(capabilities(name), capability):
        able = ", ".join(one for one in ENGINES if getattr(capabilities(one), capability))
        raise error(f"the engine {name} {_LACKS[capability]}; {wanted} needs one of: {able}")


def require_rtl_cell(name: str | None) -> None:
    """Raise ValueError if an engine has no form that simulates the array cell as RTL."""
    if name in (CHANGES, FAST):
        cell = "no array cell" if name == FAST else "its array cell in C++"
        raise ValueError(f"the engine {name} has {cell}, and cannot simulate it as RTL (--exact)")


class Engine(Protocol):
    """A simulated device: the members of every engine, including the golden model.

    The driver's device protocol is a part of it. `Capabilities` declares what else an engine has.

    Members
    -------
    name : "verilator", "cxxrtl", "amaranth", "changes", "fast" or "golden".
    cell : "cpp", "rtl", "timing" or "numpy".
    cores : number of cores.
    options : interpretations of the hardware that differ from the default (spec/regs/options.py).
    memory : device memory, shared by host and cores: `map`, `unmap`, `view`, `read`, `write`, `ranges`.
    dram : timing of the memory (`DramConfig`), None if the engine has no timing.
    cycle : cycles since the engine was opened.
    irq : interrupt lines, one bit per core.
    resumed_at : cycle of the snapshot from which the engine was resumed, 0 for none.
    """

    name: str
    cell: str
    cores: int

    @property
    def has_cycles(self) -> bool: ...
    @property
    def can_trace(self) -> bool: ...
    @property
    def has_events(self) -> bool: ...
    @property
    def has_counters(self) -> bool: ...
    @property
    def has_snapshots(self) -> bool: ...
    @property
    def has_probes(self) -> bool: ...
    @property
    def options(self) -> frozenset[str]: ...
    @property
    def memory(self) -> Any: ...
    @property
    def dram(self) -> Any: ...
    @property
    def cycle(self) -> int: ...
    @property
    def irq(self) -> int: ...
    @property
    def resumed_at(self) -> int: ...
    def read32(self, core: int, offset: int) -> int: ...
    def write32(self, core: int, offset: int, value: int) -> None: ...
    def run(self, cycles: int) -> None: ...
    def run_until_irq(self, core_mask: int, max_cycles: int) -> int: ...
    def reset(self, core_mask: int) -> None: ...
    def block_state(self, core: int) -> str: ...
    def task_log(self) -> Any: ...

    def task_count(self) -> int: ...
    def diagnostics(self) -> list[Any]: ...
    def complaints(self) -> Any: ...
    def close(self) -> None: ...
