"""Where a session on the RTL stands, and what the core holds there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rkcosim.debug.base import BaseSession, Held
from rkcosim.debug.breakpoints import BreakpointError, register_named
from rkcosim.debug.deviations.against import Reference, Tolerance
from rkcosim.debug.expressions import ExpressionError
from rkcosim.debug.opening import Debugged
from rkcosim.debug.places import ListingPlace
from rkcosim.debug.rtl.blocks import BLOCKS, CoreSignals
from rkcosim.debug.rtl.held import RegisterContents, contents
from rkcosim.debug.rtl.run import CoreRun, RtlRun
from rkcosim.debug.scope import TensorScope
from rkcosim.debug.window import check_window
from rkcosim.engines.engine import open_engine
from rkcosim.engines.protocol import require
from rkcosim.golden.task.registers import View
from rkcosim.regcmd.job import interrupt_names
from rkcosim.spec.regs import counter_registers, registers
from rkcosim.waves.spec import TraceSpec, When

if TYPE_CHECKING:
    from rkcosim.engines.block_counters import BlockCounters
    from rkcosim.engines.soc import SocEngine


class RtlPosition(BaseSession):
    """The position of a session on the RTL.

    Jobs that ran at the same time run at the same time here, each on its core; one of them is shown.

    Parameters
    ----------
    work, references, tolerance : as for `BaseSession`.
    engine : name of the engine, which must be able to save its state; None: the default.
    opener : opens the engine with the keywords of `rkcosim.engines.engine.open_engine`, for another design.
    bounds : bounds of the kept states (`rkcosim.debug.rtl.states.KeptStates`).

    Raises
    ------
    ValueError
        for an engine that cannot be saved, and for a kick in slave mode.
    """

    has_cycles = True

    def __init__(
        self,
        work: Debugged,
        references: Sequence[Reference] = (),
        tolerance: Tolerance | None = None,
        *,
        engine: str | None = None,
        opener: Callable[..., Any] | None = None,
        **bounds: int,
    ) -> None:
        super().__init__(work, references, tolerance)
        require(engine, "has_snapshots", "the debugger of the RTL")
        if work.program is not None:
            raise ValueError("a running program is debugged on the golden model: leave out --engine")
        if any(job.stream.kick.slave for job in work.jobs):
            raise ValueError(
                "the stream runs in slave mode: the host writes the registers, and there is no command list "
                "to step through"
            )
        self._name, self._opener = engine, opener or open_engine
        self._bounds = bounds
        self._batches = _batches(work)
        self._batch = 0
        self._shown = self._batches[0][0]
        self._by_task = False
        self._contents: tuple[int, int, RegisterContents] | None = None
        cores = max(job.stream.core for job in work.jobs) + 1
        opened: Any = self._opener(engine, cores=cores, traced=True, on_diagnostic="go on")
        self.engine: SocEngine = opened
        try:
            self.run = self._started()
        except BaseException:
            self.engine.close()
            raise

    def _started(self) -> RtlRun:
        """Start the jobs of the batch."""
        jobs = [(number, self.work.jobs[number]) for number in self._batches[self._batch]]
        self._contents = None
        return RtlRun(self.engine, jobs, **self._bounds)

    def close(self) -> None:
        """End a run of another thread, and close the engine."""
        super().close()
        self.engine.close()

    # -- where it stands -------------------------------------------------------------------------

    @property
    def core_run(self) -> CoreRun:
        """The job that is shown."""
        return self.run.cores[self._shown]

    @property
    def running_jobs(self) -> list[int]:
        """Numbers of the jobs that run at the same time."""
        return list(self.run.cores)

    def choose(self, job: int) -> None:
        """Show another of the running jobs from now on; raises ValueError if it does not run."""
        super().choose(job)
        self._shown = job

    def position_of(self, job: int) -> ListingPlace:
        """Return the position of a running job: its task, or after a step by words the next word."""
        run, records = self.run.cores[job], self.run.tasks(job)
        fetched = run.fetched_place(len(records))
        if not self._by_task or not records:
            return ListingPlace(job, *fetched)
        task = records[-1].task
        return ListingPlace(job, task, fetched[1] if fetched[0] == task else run.enable_word(task))

    @property
    def place(self) -> ListingPlace:
        """The position of the job that is shown."""
        return self.position_of(self._shown)

    @property
    def memory(self) -> Any:
        """The memory of the device."""
        return self.engine.memory

    @property
    def finished(self) -> bool:
        """Whether nothing can run on."""
        return bool(self.run.end) and (self.run.end == "hang" or self._batch + 1 >= len(self._batches))

    @property
    def signals(self) -> CoreSignals:
        """The signals of the core that is shown."""
        return CoreSignals(self.engine, self.core_run.core)

    @property
    def contents(self) -> RegisterContents:
        """What the registers of the core hold that is shown."""
        key = self._shown, self.run.cycle
        if self._contents is None or self._contents[:2] != key:
            found = contents(self.core_run, self.run.tasks(self._shown))
            for block, fields in self.signals.pointers().items():
                state = found.blocks[block]
                state.pointer, state.executer = fields["POINTER"], fields["EXECUTER"]
                state.enabled = [bool(fields[f"STATUS_{group}"]) for group in (0, 1)]
            self._contents = *key, found
        return self._contents[2]

    def position_text(self) -> str:
        """Return the cycle, the task that runs, and the place of the PC."""
        running, records = self.run.running_task(self._shown), self.run.tasks(self._shown)
        task = "no task runs" if running is None else f"task {running} runs"
        fetched = ListingPlace(self._shown, *self.core_run.fetched_place(len(records)))
        return f"cycle {self.run.cycle}, {task}, the PC is at line {self.source.line_of(fetched)}"

    def state_lines(self) -> list[str]:
        """Return cycle, tasks, interrupts, what each block does, and for a hang, who waits for whom."""
        lines = [self.position_text()]
        records = self.run.tasks(self._shown)
        ended = sum(record.end is not None for record in records)
        lines.append(f"tasks done: {ended} of {len(self.work.jobs[self._shown].program.tasks)}")
        if self.run.end == "hang":
            return lines + self.waits()
        scope = self.scope()
        raw = interrupt_names(scope.register("PC.INTERRUPT_RAW_STATUS", None))
        status = scope.register("PC.INTERRUPT_STATUS", None)
        lines.append(f"interrupt events: {', '.join(raw) or 'none'}; status 0x{status:X}")
        lines.append(f"running blocks: {', '.join(self.signals.running()) or 'none'}")
        lines += self._inner_states()
        found = self.engine.complaints()
        lines += [f"diagnostic: {kind}" for kind in found.diagnostics]
        lines += [f"fault: {kind}" for kind in found.faults]
        return lines

    def _inner_states(self) -> Iterator[str]:
        signals = self.signals
        for block, (state, meaning) in signals.activities().items():
            yield f"{block}: {state} ({meaning})"
        for name, (level, meaning) in signals.levels().items():
            if level:
                yield f"{name}: {level} ({meaning})"
        for block, fields in signals.pointers().items():
            status = registers()[block]["S_STATUS"].fields
            told = ", ".join(
                f"group {name[-1]} {status[name].label(value) or value}"
                for name, value in fields.items()
                if name in status
            )
            yield (
                f"{block}: writes go to group {fields.get('POINTER')}, group {fields.get('EXECUTER')} runs "
                f"next; {told}"
            )

    def waits(self) -> list[str]:
        """Return what the blocks wait for, as at the end of a run that hangs; the position remains."""
        text: str = self.run.aside(lambda: self.engine.block_state(self.core_run.core))
        return text.splitlines()

    def counter_lines(self) -> list[str]:
        """Return the performance counters of the core that is shown, by block and without zeros.

        The job runs again from its start up to the present cycle, because counters that are on cost time.
        """
        here, core = self.run.cycle, self.core_run.core

        def counted() -> BlockCounters:
            self.run.go_to(self.run.first_cycle)
            if here > self.run.first_cycle:
                switch = counter_registers()["CONTROL"]["SWITCH"]
                self.engine.counter_window(core).write32(switch.offset, switch.encode(ENABLE=1, CLEAR=1))
                self.engine.run_to(here)
            found = self.engine.block_counters(core)
            self.run.go_to(self.run.first_cycle)  # where the counters were off
            return found

        found: BlockCounters = self.run.aside(counted)
        groups = {
            **found.states,
            "bytes": found.bytes,
            "MACs": found.macs,
            "highest levels": found.levels,
            "tasks": found.tasks,
        }
        lines = [f"cycles: {found.cycles:,}"]
        for group, values in groups.items():
            told = ", ".join(f"{name} {value:,}" for name, value in values.items() if value)
            lines.append(f"{group}: {told or 'all 0'}")
        return lines

    def write_waveform(self, cycles: int, path: Path) -> tuple[int, int]:
        """Write a waveform from the present cycle on, and return to it (`BaseSession.write_waveform`).

        The job runs again from its start up to there. In the cycle in which it starts the waveform begins
        with the next one.
        """
        check_window(cycles, path)
        engine, first = self.engine, max(self.run.cycle, self.run.first_cycle + 1)
        end = first + cycles

        def traced() -> None:
            self.run.go_to(self.run.first_cycle)  # the tracks of tasks count from there, while a trace waits
            engine.trace(TraceSpec(path, start=When.parse(first), stop=When.parse(end)))
            try:
                engine.run_to(end)
            finally:
                engine.tracing.end()

        self.run.aside(traced)
        return first, end

    def history_lines(self) -> list[str]:
        """Return how far back the kept states reach and what they cost, one line each."""
        cycles, kept = self.run.kept.cycles, self.run.kept
        shown = ", ".join(map(str, cycles[:8])) + (f", ... {cycles[-1]}" if len(cycles) > 8 else "")
        return [
            f"states in {len(cycles)} cycles: {shown}; the way back reaches cycle {cycles[0]}, the start of "
            "the job, and jobs before it run again",
            f"{kept.bytes:,} bytes; a step back runs {max(np.diff([*cycles, self.run.cycle])):,} cycles "
            "again at most",
        ]

    def register_blocks(self) -> list[str]:
        """Return the names of the blocks whose registers have groups."""
        return list(self.contents.blocks)

    def held_registers(self, block: str, group: int | None = None) -> Held:
        """Return the registers of a block in a group as they were written."""
        if block not in self.contents.blocks:
            return Held("", self.contents.plain)
        state = self.contents.blocks[block]
        number = state.pointer if group is None else group
        roles = ["being written"] * (number == state.pointer) + ["executing"] * state.enabled[number]
        return Held(f"group {number}" + (f" ({', '.join(roles)})" if roles else ""), state.groups[number])

    def signal_blocks(self) -> list[str]:
        """Return the names of the blocks whose signals `inside` has."""
        return list(BLOCKS)

    def inside(self, block: str) -> list[tuple[str, int]]:
        """Return the signals of a block, (name, value); raises SignalError."""
        return self.signals.inside(block)

    def scope(self, more: Mapping[str, Any] | None = None) -> RtlScope:
        """Return the names of expressions here."""
        return RtlScope(self, more)


def _batches(work: Debugged) -> list[list[int]]:
    """Return the numbers of the jobs that ran at the same time, for each time."""
    found: dict[int, list[int]] = {}
    for number, job in enumerate(work.jobs):
        found.setdefault(job.batch, []).append(number)
    return list(found.values())


class RtlScope(TensorScope):
    """Registers, tensors, the place and the cycle; see `rkcosim.debug.expressions.Scope`."""

    session: RtlPosition

    def register(self, path: str, group: int | None) -> int:
        """Return `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` of a group; None: the group in use."""
        try:
            register, one = register_named(path)
        except BreakpointError as error:
            raise ExpressionError(str(error)) from None
        if register.shadowed:
            state = self.session.contents.blocks.get(register.block)
            if state is not None:
                number = state.pointer if group is None else group
                word = View(register.block, dict(state.groups[number])).bits(register.name)
                return word if one is None else int(register.decode(word)[one.name])
        if group is not None:
            raise ExpressionError(f"{register.path} has no groups")
        known = self.session.signals.register(register.block, register.name)
        word = self.session.contents.plain.get(register.offset, register.reset) if known is None else known
        return word & register.mask if one is None else int(register.decode(word)[one.name])

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        session = self.session
        state = {
            "core": session.run.cores[session.job].core,
            "cycle": session.run.cycle,
            "raw": self.register("PC.INTERRUPT_RAW_STATUS", None),
            "status": self.register("PC.INTERRUPT_STATUS", None),
        }
        return {**state, **super().names()}
