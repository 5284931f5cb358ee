"""The protocol of every engine: its members, its capabilities, and the errors it raises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Protocol

from rkcosim.base import BAD_INPUT, DEVICE_ERROR, Error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rkcosim.engines.diagnostics import Diagnostic
    from rkcosim.golden.task.context import Finding


class EngineError(Error):
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
        first = self.diagnostics[0]
        super().__init__(text, core=first.core, task=first.task, register=first.register)


class JobError(EngineError):
    """A job of `engine.submit`, `Stream.run` or `TaskList.run` failed; `__cause__` is the first error.

    Members
    -------
    core, task, register : the place (`rkcosim.Error`): the core, the task that was running, and the register
        that the device complains about; None if unknown.
    cycle : cycle of the engine at which it was noticed; None if the engine counts none.
    value : value of that register, None for none.
    code : name of the diagnostic code, "" for none.
    diagnostics : all diagnostics of the job, oldest first.
    state : what each block of the core waited for, as text.
    result : what the job did up to then, as the result of a job that ends; None if it did not start.
    """

    def __init__(
        self,
        message: str,
        *,
        core: int,
        cycle: int | None = None,
        task: int | None = None,
        register: str | None = None,
        value: int | None = None,
        code: str = "",
        diagnostics: Iterable[Any] = (),
        state: str = "",
        result: Any = None,
    ) -> None:
        super().__init__(message, core=core, task=task, register=register)
        self.cycle, self.value, self.code = cycle, value, code
        self.diagnostics, self.state, self.result = list(diagnostics), state, result


class JobTimeout(JobError, TimeoutError):
    """A job raised no interrupt within its bound of cycles; `state` tells what the core waits for."""


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


GOLDEN: Final = "golden"
"""Name of the task-level golden model (`rkcosim.engines.golden.GoldenEngine`) among the engines."""

FAST: Final = "fast"
"""Name of the timing model with the golden model's bytes (`rkcosim.engines.fast`) among the engines."""

CHANGES: Final = "changes"
"""Name of the whole RTL as C++ that follows changes (`rkcosim.engines.changes`) among the engines."""

_COMPILED = {
    "verilator": Capabilities(has_snapshots=True, has_probes=True),
    "cxxrtl": Capabilities(),
    "amaranth": Capabilities(),
}

ENGINES = tuple(_COMPILED)
"""Engines that are built from the RTL by its own tools, the fastest first."""

ALL_ENGINES = (*ENGINES, CHANGES, FAST, GOLDEN)
"""Every name that `rkcosim.open_engine` accepts."""

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
        able = ", ".join(one for one in ALL_ENGINES if getattr(capabilities(one), capability))
        raise error(f"the engine {name} {_LACKS[capability]}; {wanted} needs one of: {able}")


def require_rtl_cell(name: str | None) -> None:
    """Raise ValueError if an engine has no form that simulates the array cell as RTL."""
    if name in (CHANGES, FAST):
        cell = "no array cell" if name == FAST else "its array cell in C++"
        raise ValueError(f"the engine {name} has {cell}, and cannot simulate it as RTL (--exact)")


def described(engine: Engine, closed: bool = False) -> str:
    """Return the representation of an engine: its name, its cores and its cycle."""
    cores = f"{engine.cores} core{'' if engine.cores == 1 else 's'}"
    time = f"cycle {engine.cycle:,}" if not closed and engine.has_cycles else "counts no cycles"
    return f"<engine {engine.name}, {cores}, {'closed' if closed else time}>"


class EngineMemory(Protocol):
    """Memory of an engine, which host and cores share; only mapped ranges may be accessed."""

    @property
    def ranges(self) -> dict[int, int]:
        """Mapped ranges, from first address to size in bytes."""
        ...

    def map(self, iova: int, size: int, /) -> object:
        """Map `size` bytes from `iova` on; they read as zero."""
        ...

    def unmap(self, iova: int, /) -> None:
        """Remove the range that starts at `iova`; its contents are lost."""
        ...

    def view(self, iova: int, size: int, /) -> npt.NDArray[np.uint8]:
        """Return the bytes themselves, uint8 of shape (size,), shared with the cores."""
        ...

    def read(self, iova: int, size: int, /) -> bytes:
        """Return a copy of `size` bytes."""
        ...

    def write(self, iova: int, data: bytes, /) -> None:
        """Write bytes."""
        ...


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
    has_cycles, can_trace, has_events, has_counters, has_snapshots, has_probes : what the engine can do, as in
        `Capabilities`.
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
    def memory(self) -> EngineMemory: ...
    @property
    def dram(self) -> Any: ...
    @property
    def cycle(self) -> int: ...
    @property
    def irq(self) -> int: ...
    @property
    def resumed_at(self) -> int: ...
    def read32(self, core: int, offset: int) -> int:
        """Read a register of a core at a byte offset of its window."""
        ...

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register of a core at a byte offset of its window."""
        ...

    def run(self, cycles: int) -> None:
        """Run for a number of cycles."""
        ...

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until the interrupt of a core in the mask is high, return the lines, 0 after `max_cycles`."""
        ...

    def reset(self, core_mask: int) -> None:
        """Reset the cores of a mask; memory keeps its contents."""
        ...

    def block_state(self, core: int) -> str:
        """Return what the blocks of a core wait for, as text."""
        ...

    def task_log(self) -> Sequence[Any]:
        """Return the records of the tasks in the order of their starts; the latest ones are kept."""
        ...

    def task_count(self) -> int:
        """Return the number of tasks that have started."""
        ...

    def diagnostics(self) -> Sequence[Diagnostic] | Sequence[Finding]:
        """Return the diagnostics of the cores, oldest first."""
        ...

    def complaints(self) -> Any:
        """Return each kind of diagnostics and faults once, with its count."""
        ...

    def close(self) -> None:
        """End the simulation and free its memory; may be called again."""
        ...
