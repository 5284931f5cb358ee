"""A debugging session on the golden model: positions, steps forwards and backwards, breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rkcosim.debug.base import BaseSession, Held, Stop, Unit, short_number
from rkcosim.debug.breakpoints import Breakpoint, BreakpointError, overlaps, register_named
from rkcosim.debug.deviations.against import Deviation, Reference, Tolerance, deviation
from rkcosim.debug.deviations.causes import MOST_TRIALS, Inquiry, inquire, worded_operands
from rkcosim.debug.deviations.patterns import patterns
from rkcosim.debug.expressions import ExpressionError
from rkcosim.debug.golden.stepped import Executed, LoggedMemory, SteppedKick
from rkcosim.debug.opening import Debugged
from rkcosim.debug.places import ListingPlace
from rkcosim.debug.scope import TensorScope
from rkcosim.debug.window import write_window
from rkcosim.golden.task.errors import MemoryFault
from rkcosim.golden.task.registers import View
from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers


class Session(BaseSession):
    """A session on the task-level golden model.

    Parameters
    ----------
    work : the kicks.
    references : tensors with their right elements; the run stops at the first task that deviates.
    tolerance : how far elements may be from them.
    """

    def __init__(
        self, work: Debugged, references: Sequence[Reference] = (), tolerance: Tolerance | None = None
    ) -> None:
        super().__init__(work, references, tolerance)
        self._job = 0
        self._kicks: dict[int, SteppedKick] = {}
        self.kick  # noqa: B018 - raises for a stream that cannot be stepped through
        self.stop = Stop("entry", "at the first word", self.place)
        if references:
            self.set_breakpoint("deviation")

    # -- where it stands -------------------------------------------------------------------------

    @property
    def job(self) -> int:
        """Number of the job."""
        return self._job

    @property
    def kick(self) -> SteppedKick:
        """The job's kick."""
        if self._job not in self._kicks:
            self._kicks[self._job] = SteppedKick(self.work.jobs[self._job].stream)
        return self._kicks[self._job]

    @property
    def place(self) -> ListingPlace:
        """The position; for a job that hangs, its op-enable word."""
        task, word = self.kick.place
        if self.kick.end in ("hang", "error"):
            word = max(word - 1, 0)
        return ListingPlace(self._job, task, word)

    @property
    def finished(self) -> bool:
        """Whether nothing can run on."""
        return bool(self.kick.end) and (self.kick.end != "done" or self._job + 1 >= len(self.work.jobs))

    @property
    def memory(self) -> LoggedMemory:
        """The memory of the job's core."""
        return self.kick.memory

    def history_lines(self) -> list[str]:
        """Return how far back the kept states reach and what they cost, one line each."""
        reach = self.kick.reach
        tasks = ", ".join(map(str, reach.tasks))
        return [
            f"states at the starts of tasks {tasks}; the start of the job is always reached, by running "
            "again",
            f"{reach.states:,} bytes of states, {reach.overwritten:,} bytes of overwritten memory",
        ]

    def register_blocks(self) -> list[str]:
        """Return the names of the blocks whose registers have groups."""
        return list(self.kick.device.space.blocks)

    def held_registers(self, block: str, group: int | None = None) -> Held:
        """Return the registers of a block that were written; None: of the group that is being written."""
        space = self.kick.device.space
        if block not in space.blocks:
            return Held("", space.plain)
        state = space.blocks[block]
        number = state.pointer if group is None else group
        return Held(
            f"group {number}{' (being written)' if number == state.pointer else ''}", state.groups[number]
        )

    def state_lines(self) -> list[str]:
        """Return what the blocks of the core do or wait for, and the interrupt state, one line each."""
        kick, lines = self.kick, []
        device = kick.device
        if kick.end in ("hang", "error"):
            lines.append(kick.reason)
        lines += device.waits()
        raw = interrupt_names(device.raw)
        lines.append(f"interrupt events: {', '.join(raw) or 'none'}; status 0x{kick.interrupt:X}")
        lines.append(f"tasks done: {device.tasks_done} of {device.last_task + 1}")
        for name, state in device.space.blocks.items():
            enabled = " and ".join(str(group) for group in (0, 1) if state.enabled[group]) or "none"
            lines.append(
                f"{name}: writes go to group {state.pointer}, group {state.executer} runs next, "
                f"enabled: {enabled}"
            )
        return lines

    def write_waveform(self, cycles: int, path: Path) -> tuple[int, int]:
        """Write a waveform of the RTL from the start of the task on (`BaseSession.write_waveform`)."""
        return write_window(self.work.jobs[self.job].stream, self.place.task, cycles, path)

    # -- forwards --------------------------------------------------------------------------------

    def proceed(self) -> Stop:
        """Run to the next breakpoint or to the end."""
        return self._forward(lambda place: "", fine=False)

    def _step(self, unit: Unit, count: int) -> Stop:
        for _ in range(count):
            before, node = self.place, self.node

            def arrived(place: ListingPlace, before: ListingPlace = before, node: str = node) -> str:
                if unit == "word":
                    return "step" if place != before else ""
                if (place.job, place.task) == (before.job, before.task):
                    return ""
                if unit == "task":
                    return "step"
                return "step" if unit == "node" and (self.node != node or not node) else ""

            if unit == "interrupt":
                stop = self._forward(lambda place: "", fine=False, interrupt=True)
            else:
                stop = self._forward(arrived, fine=unit == "word")
            if stop.reason != "step":
                break
        return self.stop

    def run_to(self, place: ListingPlace) -> Stop:
        """Run to a position, or go back to it, without regard to breakpoints."""
        self._go(place)
        return self._stopped("step", str(place))

    def _forward(self, arrived: Callable[[ListingPlace], str], fine: bool, interrupt: bool = False) -> Stop:
        """Run until something stops the run."""
        self.asked_to_pause.clear()
        known = bool(self.kick.end)  # why it stands has been told; a program goes on after it
        while True:
            if self.kick.end == "done" and not self.kick.interrupt and not known and self.work.program:
                text = f"all tasks of job {self._job} have ended without an interrupt{self._masked()}"
                return self._stopped("hang", text)
            if (self.kick.end == "done" or known) and self._next_job():
                known = False
                stop = self._job_hit() or self._position_hit() or self._arrived(arrived)
                if stop is not None:
                    return stop
            if self.finished:
                return self._at_end()
            stop = self._one(fine, interrupt) or self._position_hit() or self._arrived(arrived)
            if stop is not None:
                return stop
            if self.asked_to_pause.is_set():
                return self._stopped("pause", "paused")

    def _next_job(self) -> bool:
        """Go to the next job, which a program may have to start first; False if there is none."""
        program = self.work.program
        if self._job + 1 == len(self.work.jobs) and program is not None:
            if program.wait(self.work, self.asked_to_pause):
                self.source.add_job(self.work, len(self.work.jobs) - 1)
        if self._job + 1 == len(self.work.jobs) or (self.kick.end != "done" and program is None):
            return False
        self._job += 1
        return True

    def _job_hit(self) -> Stop | None:
        hits = [one for one in self._active() if one.kind == "job" and self._holds(one, {})]
        return self._stopped("breakpoint", f"job {self._job} begins, {self.title}", hits) if hits else None

    def _arrived(self, arrived: Callable[[ListingPlace], str]) -> Stop | None:
        return self._stopped("step", self.title) if not self.kick.end and arrived(self.place) else None

    def _one(self, fine: bool, interrupt: bool = False) -> Stop | None:
        """Execute one word or one task; returns why the run stops after it, None if it goes on."""
        active = self._active()
        fine = fine or any(one.fine for one in active)
        kick, olds = self.kick, {}
        registers_watched = [one for one in active if one.kind == "register"]
        if registers_watched:
            olds = {one.number: self._value_of(one) for one in registers_watched}
        done = kick.step(whole=not fine)
        hits: list[tuple[Breakpoint, str]] = []
        for one in active:
            text = self._hit(one, done, olds)
            if text:
                hits.append((one, text))
        found = None
        if done.reports and any(one.kind == "deviation" for one in active):
            found = self._deviation(done)
        if found is not None:
            return self._stopped(
                "deviation", f"task {done.task} deviates from the reference: {found}", found=found
            )
        if hits:
            reasons = {one.kind for one, _ in hits}
            reason = reasons.pop() if reasons in ({"interrupt"}, {"diagnostic"}) else "breakpoint"
            return self._stopped(reason, "; ".join(text for _, text in hits), [one for one, _ in hits])
        if interrupt and kick.end == "done" and kick.interrupt:
            return self._stopped("interrupt", self._interrupt_text())
        return None

    def _interrupt_text(self) -> str:
        return f"the interrupt line rises: {', '.join(interrupt_names(self.kick.interrupt))}"

    def _hit(self, one: Breakpoint, done: Executed, olds: Mapping[int, int]) -> str:
        """Return why a breakpoint stops the run after a step, "" if it does not."""
        kick = self.kick
        if one.kind == "interrupt":
            return self._interrupt_text() if kick.end == "done" and kick.interrupt and done.events else ""
        if one.kind == "diagnostic":
            return "; ".join(map(str, done.findings)) if done.findings and self._holds(one, {}) else ""
        if one.kind == "memory":
            for report in done.reports:
                for what, moved in (("write", report.writes), ("read", report.reads)):
                    for traffic in moved if one.access in (what, "access") else ():
                        touched = overlaps(one.ranges, traffic.ranges)
                        if touched and self._holds(one, {}):
                            past = "wrote" if what == "write" else "read"
                            return (
                                f"task {done.task}: {traffic.client} {past} 0x{touched[0]:08X} to "
                                f"0x{sum(touched) - 1:08X}"
                            )
            return ""
        if one.kind == "register" and one.register is not None:
            for command in done.commands:
                if command.register is not None and command.register.path == one.register.path:
                    value = command.value if one.part is None else one.part.get(command.value)
                    old = olds.get(one.number, 0)
                    if self._holds(one, {"value": value, "old": old}):
                        name = one.text.removeprefix("write of ")
                        return f"{name} = {short_number(value)} (before: {short_number(old)})"
        return ""

    def _value_of(self, one: Breakpoint) -> int:
        assert one.register is not None
        scope = self.scope()
        path = one.register.path if one.part is None else f"{one.register.path}.{one.part.name}"
        try:
            return scope.register(path, None)
        except ExpressionError:
            return 0

    def _position_hit(self) -> Stop | None:
        if self.kick.end:
            return None
        hits = [one for one in self._active() if one.place == self.place and self._holds(one, {})]
        return self._stopped("breakpoint", self.title, hits) if hits else None

    def _masked(self) -> str:
        """Return why a job that has ended raised no interrupt, "" if it raised one."""
        if self.kick.interrupt:
            return ""
        came = ", ".join(interrupt_names(self.kick.device.raw))
        return f": the mask lets none of {came} through" if came else ": there was no event"

    def _at_end(self) -> Stop:
        kick, program = self.kick, self.work.program
        if program is not None and not program.ended and self.asked_to_pause.is_set():
            return self._stopped("pause", "the program runs, and has started no further job")
        if kick.end in ("hang", "error"):
            return self._stopped(kick.end, kick.reason)
        count = sum(len(job.program.tasks) for job in self.work.jobs)
        status = f"interrupt status 0x{kick.interrupt:X}{self._masked()}"
        ended = "" if program is None else f"; {program.ended}"
        return self._stopped("end", f"all {count} tasks have run, {status}{ended}")

    # -- backwards -------------------------------------------------------------------------------

    def _step_back(self, unit: Unit, count: int) -> Stop:
        for _ in range(count):
            target = self._before(unit)
            if target is None:
                self._go(ListingPlace(0, 0, 0))
                return self._stopped("start", "at the first word; nothing ran before it")
            self._go(target)
        return self._stopped("step", self.title)

    def _before(self, unit: Unit) -> ListingPlace | None:
        place = self.place
        if self.kick.end in ("hang", "error"):
            place = ListingPlace(place.job, place.task, place.word + 1)
        if unit == "word" and place.word:
            return ListingPlace(place.job, place.task, place.word - 1)
        if unit != "word" and place.word and unit == "task":
            return ListingPlace(place.job, place.task, 0)
        if unit == "node" and (place.word or self._first_of_node(place) != place):
            return self._first_of_node(place)
        before = self._task_before(place)
        if before is None:
            return None
        if unit == "word":
            words = len(self.work.jobs[before.job].program.tasks[before.task].words)
            return ListingPlace(before.job, before.task, words - 1)
        return before if unit == "task" else self._first_of_node(before)

    def _task_before(self, place: ListingPlace) -> ListingPlace | None:
        if place.task:
            return ListingPlace(place.job, place.task - 1, 0)
        if not place.job:
            return None
        return ListingPlace(place.job - 1, len(self.work.jobs[place.job - 1].program.tasks) - 1, 0)

    def _first_of_node(self, place: ListingPlace) -> ListingPlace:
        nodes, task = self.work.jobs[place.job].nodes, place.task
        while task and task < len(nodes) and nodes[task] and nodes[task - 1] == nodes[task]:
            task -= 1
        return ListingPlace(place.job, task, 0)

    def proceed_back(self) -> Stop:
        """Go back to the last breakpoint before the present position, or to the start."""
        limit, last, here = self.place, True, self.place
        if self.kick.end:
            limit = ListingPlace(limit.job, limit.task, limit.word + 1)
        begin: ListingPlace | None = ListingPlace(limit.job, limit.task, 0)
        while begin is not None:
            found = list(self._hits(begin, limit, at_limit=not last and limit != here))
            if found:
                place, stop = found[-1]
                self._go(place)
                return self._stopped(stop.reason, stop.text, found=stop.deviation)
            limit, begin, last = begin, self._task_before(begin), False
        self._go(ListingPlace(0, 0, 0))
        return self._stopped("start", "at the first word; no breakpoint lies before it")

    def _hits(
        self, begin: ListingPlace, limit: ListingPlace, at_limit: bool
    ) -> Iterator[tuple[ListingPlace, Stop]]:
        """Yield the positions from one on, before another, at which the run would have stopped.

        Parameters
        ----------
        at_limit : also what the last step before `limit` did, after which the run stands there.
        """
        counted = {one.number: one.hits for one in self.breakpoints.values()}
        self._go(begin)
        stop = self._position_hit()
        if stop is not None and begin < limit:
            yield begin, stop
        while not self.kick.end:
            stop = self._one(fine=limit.task == begin.task and limit.word > 0)
            place = self.place
            if place >= limit:
                if stop is not None and at_limit and place == limit:
                    yield place, stop
                break
            stop = stop or self._position_hit()
            if stop is not None:
                yield place, stop
        for number, hits in counted.items():
            if number in self.breakpoints:
                self.breakpoints[number].hits = hits

    def _go(self, place: ListingPlace) -> None:
        self._job = place.job
        self.kick.go_to(place.task, place.word)

    # -- deviations ------------------------------------------------------------------------------

    def _deviation(self, done: Executed) -> Deviation | None:
        ranges = [piece for report in done.reports for one in report.writes for piece in one.ranges]
        try:
            return deviation(
                self.kick.memory, list(self.references.values()), self._job, done.task, ranges, self.tolerance
            )
        except MemoryFault:
            return None

    def examine(self, found: Deviation, most_trials: int = MOST_TRIALS) -> Inquiry:
        """Describe a deviation, and try which fields of its task could be the cause; the position remains.

        Parameters
        ----------
        most_trials : maximum number of values that are tried.
        """
        here = self.place
        ended = bool(self.kick.end)
        self._go(ListingPlace(found.job, found.task, 0))
        place = found.reference.place
        found.before = place.read(self.kick.memory)
        found.patterns = patterns(
            found.got,
            found.reference.want,
            found.compared,
            found.wrong,
            found.before,
            max(1, 16 // place.dtype.itemsize),
        )
        result = inquire(self.kick, self.work.jobs[found.job], found, self.tolerance, most_trials=most_trials)
        count = len(self.kick.device.reports)
        self.kick.step(whole=True)
        result.operands = worded_operands(self.kick.device.reports[count:], self.named_address)
        if ended or here != self.place:
            self._job = here.job
            self.kick.go_to(here.task, here.word + (1 if ended else 0))
        return result

    # -- values ----------------------------------------------------------------------------------

    def scope(self, more: Mapping[str, Any] | None = None) -> SessionScope:
        """Return the names of expressions here."""
        return SessionScope(self, more)

    def view(self, block: str, group: int | None = None) -> View:
        """Return the registers of a block with groups; None: the group that is being written."""
        state = self.kick.device.space.blocks[block]
        return View(block, dict(state.groups[state.pointer if group is None else group]))


class SessionScope(TensorScope):
    """The names of expressions in a session on the golden model; see `rkcosim.debug.expressions.Scope`."""

    session: Session

    def register(self, path: str, group: int | None) -> int:
        """Return `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` of a group; None: the group in use."""
        try:
            register, one = register_named(path)
        except BreakpointError as error:
            raise ExpressionError(str(error)) from None
        device = self.session.kick.device
        if register.shadowed and register.block in device.space.blocks:
            view = self.session.view(register.block, group)
            return (
                view.bits(register.name)
                if one is None
                else int(register.decode(view.raw(register.name))[one.name])
            )
        if group is not None:
            raise ExpressionError(f"{register.path} has no groups")
        word = self._plain(register.path, register.block, register.name, register.offset)
        return word & register.mask if one is None else int(register.decode(word)[one.name])

    def _plain(self, path: str, block: str, name: str, offset: int) -> int:
        device = self.session.kick.device
        if path == "PC.INTERRUPT_RAW_STATUS":
            return device.raw
        if path == "PC.INTERRUPT_STATUS":
            return self.session.kick.interrupt
        if path == "PC.TASK_STATUS":
            return registers()["PC"]["TASK_STATUS"].encode(TASK_COUNTER=device.tasks_done)
        state = device.space.blocks.get(block)
        if state is not None and name == "S_POINTER":
            return state.read_pointer()
        if state is not None and name == "S_STATUS":
            return registers()[block][name].encode(**state.status(device.core_fits(block)))
        return device.space.value(block, name)

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        device = self.session.kick.device
        state = {"core": device.core_index, "raw": device.raw, "status": self.session.kick.interrupt}
        return {**state, **super().names()}
