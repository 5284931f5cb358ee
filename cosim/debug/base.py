"""What every debugging session has: breakpoints, references, expressions, and why it stands where it is."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rkcosim.debug.breakpoints import Breakpoint, BreakpointError, parse_breakpoint, watched
from rkcosim.debug.deviations.against import Deviation, Reference, Tolerance
from rkcosim.debug.deviations.causes import MOST_TRIALS, Inquiry
from rkcosim.debug.expressions import ExpressionError, Scope, evaluate
from rkcosim.debug.opening import Debugged
from rkcosim.debug.places import ListingPlace, SourceText, task_title

Unit = Literal["word", "task", "node", "interrupt", "cycle"]

END_REASONS = ("end", "hang", "error")
"""Reasons of a stop after which nothing can run on."""


@dataclass
class Stop:
    """Why the run stands where it is.

    Members
    -------
    reason : "entry", "step", "breakpoint", "deviation", "difference", "interrupt", "diagnostic", "pause",
        "start", "end", "hang" or "error".
    text : the reason for people.
    place : the position.
    breakpoints : numbers of the breakpoints.
    deviation : the deviation from the reference, if it is the reason.
    """

    reason: str
    text: str
    place: ListingPlace
    breakpoints: list[int] = field(default_factory=list)
    deviation: Deviation | None = None


@dataclass(frozen=True)
class Held:
    """Registers of a block as a session knows them.

    Members
    -------
    title : which of them these are, as "group 1 (being written)"; "" for a block without groups.
    words : offset -> value of those that were written, or whose value is known.
    """

    title: str
    words: Mapping[int, int]


class BaseSession(ABC):
    """What is debugged, and where it stands, whatever runs it.

    Parameters
    ----------
    work : the kicks.
    references : tensors with their right elements; the run stops at the first task that deviates.
    tolerance : how far elements may be from them.

    Members
    -------
    stop : why the run stands where it is.
    asked_to_pause : set by another thread to end a run.
    """

    has_cycles = False
    """Whether positions have cycles."""

    stop: Stop

    def __init__(
        self, work: Debugged, references: Sequence[Reference] = (), tolerance: Tolerance | None = None
    ) -> None:
        self.work, self.source = work, SourceText.of(work)
        self.references = {one.place.name: one for one in references}
        self.tolerance = tolerance or Tolerance()
        self.breakpoints: dict[int, Breakpoint] = {}
        self._numbers = 0
        self._golden: dict[str, NDArray[Any]] | None = None
        self.asked_to_pause = threading.Event()

    # -- where it stands -------------------------------------------------------------------------

    @property
    @abstractmethod
    def place(self) -> ListingPlace:
        """The position in the listing."""

    @property
    @abstractmethod
    def memory(self) -> Any:
        """The memory at this moment, with `read(address, size)` and `view(address, size)`."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing can run on."""

    @property
    def job(self) -> int:
        """Number of the job."""
        return self.place.job

    @property
    def line(self) -> int:
        """Line of the listing, from 1."""
        return self.source.line_of(self.place)

    @property
    def title(self) -> str:
        """The task for people."""
        return task_title(self.work, self.place.job, self.place.task)

    @property
    def node(self) -> str:
        """The node of the task, "" if it has none."""
        return self.node_of(self.place)

    def node_of(self, place: ListingPlace) -> str:
        """Return the node of a position's task, "" if it has none."""
        nodes = self.work.jobs[place.job].nodes
        return nodes[place.task] if place.task < len(nodes) else ""

    @property
    def running_jobs(self) -> list[int]:
        """Numbers of the jobs that run at this moment, each on a core of its own."""
        return [self.job]

    def position_of(self, job: int) -> ListingPlace:
        """Return the position of a running job."""
        return self.place

    def choose(self, job: int) -> None:
        """Show another of the running jobs from now on; raises ValueError if it does not run."""
        if job not in self.running_jobs:
            raise ValueError(f"job {job} does not run here: {', '.join(map(str, self.running_jobs))} does")

    @abstractmethod
    def state_lines(self) -> list[str]:
        """Return what the blocks of the core do or wait for, and the interrupt state, one line each."""

    @abstractmethod
    def history_lines(self) -> list[str]:
        """Return how far back the kept states reach and what they cost, one line each."""

    @abstractmethod
    def register_blocks(self) -> list[str]:
        """Return the names of the blocks whose registers have groups."""

    @abstractmethod
    def held_registers(self, block: str, group: int | None = None) -> Held:
        """Return registers of a block; None: those of the group that is being written."""

    def signal_blocks(self) -> list[str]:
        """Return the names of the blocks whose signals `inside` has; none for a model without."""
        return []

    def inside(self, block: str) -> list[tuple[str, int]]:
        """Return the signals of a block, (name, value)."""
        raise ValueError("the golden model has no signals: debug on the RTL with --engine verilator")

    def position_text(self) -> str:
        """Return what the position has beside the line, "" for nothing."""
        return ""

    def counter_lines(self) -> list[str]:
        """Return the performance counters of the core that is shown, by block and without zeros."""
        raise ValueError("the golden model has no cycles: debug on the RTL with --engine verilator")

    def first_wrong_lines(self) -> list[str]:
        """Go to the first wrong write of a result; return it and the stage that made it, one line each."""
        raise ValueError("the golden model has no cycles: debug on the RTL with --engine verilator")

    @abstractmethod
    def write_waveform(self, cycles: int, path: Path) -> tuple[int, int]:
        """Write a waveform of a number of cycles of the RTL; the position remains.

        Returns
        -------
        The first cycle, and the one after the last.

        Raises
        ------
        WindowError
            for a number of cycles that is out of range, or a place that the RTL does not reach.
        SpecError, WaveformError
            for a file that cannot be written.
        """

    # -- running ---------------------------------------------------------------------------------

    @abstractmethod
    def proceed(self) -> Stop:
        """Run to the next breakpoint or to the end."""

    def step(self, unit: Unit = "word", count: int = 1) -> Stop:
        """Run on by words, tasks, nodes or cycles, or to the job's interrupt; breakpoints on the way count.

        Raises
        ------
        ValueError
            for a count below 1, or a unit that there is not.
        """
        self._check_steps(unit, count)
        return self._step(unit, count)

    def step_back(self, unit: Unit = "word", count: int = 1) -> Stop:
        """Go back by words, tasks, nodes or cycles; at the first word nothing changes; raises as `step`."""
        self._check_steps(unit, count)
        return self._step_back(unit, count)

    def _check_steps(self, unit: Unit, count: int) -> None:
        if count < 1:
            raise ValueError(f"steps are counted from 1 on, not {count}")
        if unit == "cycle" and not self.has_cycles:
            raise ValueError("the golden model counts no cycles: debug on the RTL with --engine verilator")

    @abstractmethod
    def _step(self, unit: Unit, count: int) -> Stop:
        """Carry out `step` with a count and a unit that are possible."""

    @abstractmethod
    def _step_back(self, unit: Unit, count: int) -> Stop:
        """Carry out `step_back` with a count and a unit that are possible."""

    @abstractmethod
    def proceed_back(self) -> Stop:
        """Go back to the last breakpoint before the present position, or to the start."""

    @abstractmethod
    def run_to(self, place: ListingPlace) -> Stop:
        """Run to a position, or go back to it, without regard to breakpoints."""

    def close(self) -> None:
        """End a run of another thread, and free what the session holds."""
        self.asked_to_pause.set()
        if self.work.program is not None:
            self.work.program.close()

    # -- breakpoints -----------------------------------------------------------------------------

    def set_breakpoint(self, text: str, temporary: bool = False) -> Breakpoint:
        """Set the breakpoint that a text describes (`parse_breakpoint`); raises BreakpointError."""
        made = parse_breakpoint(
            self._numbers + 1, text, self.work, self.source, here=self.place, cycles=self.has_cycles
        )
        return self._set(made, temporary)

    def watch(self, text: str, access: str = "write") -> Breakpoint:
        """Stop at accesses to memory, or at writes of a register; raises BreakpointError."""
        try:
            return self._set(watched(self._numbers + 1, text, access, self.work))
        except BreakpointError:
            if access != "write" or "." not in text.split(" if ")[0]:
                raise
        return self.set_breakpoint(text)

    def _set(self, made: Breakpoint, temporary: bool = False) -> Breakpoint:
        if made.condition:
            try:
                evaluate(made.condition, self.scope({"value": 0, "old": 0}))
            except ExpressionError as error:
                raise BreakpointError(f"the condition has no value: {error}") from None
        if made.kind == "deviation" and not self.references:
            raise BreakpointError("there is no reference: `against FILE.npz` reads one")
        made.temporary = temporary
        self._numbers += 1
        self.breakpoints[made.number] = made
        return made

    def delete(self, number: int) -> None:
        """Delete a breakpoint; raises BreakpointError if there is none with the number."""
        if self.breakpoints.pop(number, None) is None:
            known = ", ".join(map(str, self.breakpoints)) or "none"
            raise BreakpointError(f"there is no breakpoint {number}; there are {known}")

    def compare_with(self, references: Sequence[Reference], tolerance: Tolerance | None = None) -> None:
        """Compare with references from now on, and stop where a task deviates."""
        self.references = {one.place.name: one for one in references}
        self.tolerance = tolerance or self.tolerance
        if not any(one.kind == "deviation" for one in self.breakpoints.values()):
            self.set_breakpoint("deviation")

    def _active(self) -> list[Breakpoint]:
        return [one for one in self.breakpoints.values() if one.enabled]

    def _holds(self, one: Breakpoint, names: Mapping[str, Any]) -> bool:
        """Whether the condition of a breakpoint is true; one without a value counts as true."""
        if not one.condition:
            return True
        try:
            return bool(np.all(evaluate(one.condition, self.scope(names))))
        except ExpressionError:
            return True

    def _stopped(
        self, reason: str, text: str, hits: Sequence[Breakpoint] = (), found: Deviation | None = None
    ) -> Stop:
        for one in hits:
            one.hits += 1
            if one.temporary:
                self.breakpoints.pop(one.number, None)
        self.stop = Stop(reason, text, self.place, [one.number for one in hits], found)
        return self.stop

    # -- values ----------------------------------------------------------------------------------

    @abstractmethod
    def scope(self, more: Mapping[str, Any] | None = None) -> Scope:
        """Return the names of expressions here; `more` are further ones."""

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression; raises ExpressionError."""
        return evaluate(text, self.scope())

    @abstractmethod
    def examine(self, found: Deviation, most_trials: int = MOST_TRIALS) -> Inquiry:
        """Describe a deviation, and try which fields of its task could be the cause; the position remains.

        Parameters
        ----------
        most_trials : maximum number of values that are tried.
        """

    def named_address(self, address: int) -> str:
        """Return what is at an address, as ", tensor y + 0x40"; "" if nothing is known."""
        here = self.place.job, self.place.task
        held = [  # of those that share memory, the one that was written last
            ((-1, -1) if place.task is None else (place.job or 0, place.task), name)
            for name, place in self.work.tensors.items()
            if place.span[0] <= address < place.span[1]
        ]
        written = [one for one in held if one[0] < here]
        if held:
            name = max(written)[1] if written else min(held)[1]
            place, right = self.work.tensors[name], ""
            if name in self.references:
                wrong = self.tolerance.wrong(place.read(self.memory), self.references[name].want)
                right = ", as the reference" if not wrong.any() else ", not as the reference"
            return f", {name} + 0x{address - place.span[0]:X}{right}"
        for name, region in self.work.regions.items():
            if region.address <= address < region.address + region.data.size:
                return f", {name} + 0x{address - region.address:X}"
        return ""

    def golden(self) -> dict[str, NDArray[Any]]:
        """Return every tensor of the graph-level golden model; raises ExpressionError for a stream."""
        if self.work.golden is None:
            raise ExpressionError(
                f"{self.work.name} is no model: there is no network that the golden model could "
                "compute; `against FILE.npz` reads tensors for `reference` and `diff`"
            )
        if self._golden is None:
            self._golden = self.work.golden()
        return self._golden


def short_number(value: int) -> str:
    """Return a register's value for a line of text, hexadecimal if it is long."""
    return f"0x{value:X}" if abs(value) > 4095 else str(value)
