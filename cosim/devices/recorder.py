"""Kicks of programs on the simulated device, recorded as self-contained streams."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.regcmd.lint.rule import Check
from rkcosim.regcmd.lint.traffic import accesses
from rkcosim.regcmd.machine import BLOCKS, HOST, Machine, Origin, starts_of
from rkcosim.regcmd.program import Program
from rkcosim.spec.regs import registers
from rkcosim.verify.streams.capture import Expected, save
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Region, Stream

SPACE = 1 << 32
_BEFORE = -2
"""Origin of register contents that earlier kicks left."""


@dataclass
class Captured:
    """One kick of a program.

    Members
    -------
    stream : its words with the memory at its start, ready to run.
    expected : what the run wrote (nothing, if it did not end).
    job, kick, core : number of the job in the order of starts, number of the kick in it (both from 1), its
        core.
    driver : "rknpu" or "rocket".
    cycles : number of cycles to its interrupt, None if it was given up.
    state : what the core was waiting for then.
    batch : kicks with the same number ran at the same time, each on a core of its own.
    measured : True if `cycles` are hardware cycles; those of the engine golden have no meaning.
    """

    stream: Stream
    expected: Expected = field(default_factory=Expected)
    job: int = 0
    kick: int = 1
    core: int = 0
    driver: str = ""
    cycles: int | None = None
    state: str = ""
    batch: int = 0
    measured: bool = True

    def save(self, path: Path) -> None:
        """Write the stream file, with the expected result."""
        save(self.stream, self.expected, path)

    def text(self) -> str:
        """Describe the kick in one line."""
        size = sum(region.data.size for region in self.stream.regions)
        end = (
            f"{self.cycles if self.measured else '-'} cycles"
            if self.cycles is not None
            else f"given up: {self.state or 'no interrupt'}"
        )
        return (
            f"job {self.job}, kick {self.kick}, core {self.core} ({self.driver}): "
            f"{self.stream.kick.tasks} tasks, {len(self.stream.regions)} regions with {size} bytes, "
            f"{len(self.expected.outputs)} outputs, {end}"
        )


Sink = Callable[[Captured], None]

KEPT_JOBS = 256
"""Number of jobs, the newest ones, of which a recorder knows how many kicks they had."""


class Recorder:
    """A device that reports every kick; everything is passed on to the device behind it.

    Parameters
    ----------
    device : a device of the driver's protocol.
    sink : called with each kick when it has ended, in the thread that runs the device.
    begun : called with each kick before it starts, in the same thread, which may wait there.
    """

    def __init__(self, device: Any, sink: Sink, begun: Sink | None = None) -> None:
        self._device, self._sink, self._begun = device, sink, begun
        self.scheduler: Any = None
        """The kernel, which gives the numbers of jobs; set after it is made."""
        cores = range(device.cores)
        self._pc: list[dict[int, int]] = [{} for _ in cores]
        self._others: list[list[tuple[int, int]]] = [[] for _ in cores]
        self._open: dict[int, tuple[Captured, int]] = {}
        self._kicks: dict[tuple[int, int], int] = {}
        self._jobs: dict[int, int] = {}
        self._count = self._batches = 0
        self._machines = [Machine() for _ in cores]
        self._tables: list[dict[tuple[int, int], int]] = [{} for _ in cores]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def write32(self, core: int, offset: int, value: int) -> None:
        """See the device's method."""
        pc = registers()["PC"]
        register = registers().at(offset)
        if offset == pc["OPERATION_ENABLE"].offset:
            if pc["OPERATION_ENABLE"].decode(value)["OP_EN"]:
                self._begin(core)
        elif register is not None and register.block == "PC":
            self._pc[core][offset] = value
        elif register is None or register.name != "S_POINTER":
            self._others[core].append((offset, value))
        self._device.write32(core, offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """See the device's method."""
        raised: int = self._device.run_until_irq(core_mask, max_cycles)
        for core in [core for core in self._open if raised >> core & 1]:
            self._end(core, True)
        return raised

    def reset(self, core_mask: int) -> None:
        """See the device's method."""
        for core in range(self._device.cores):
            if core_mask >> core & 1:
                if core in self._open:
                    self._end(core, False)
                self._machines[core] = Machine()
                self._pc[core], self._others[core] = {}, []
        self._device.reset(core_mask)

    # -- one kick --------------------------------------------------------------------------------

    def _begin(self, core: int) -> None:
        pc = registers()["PC"]

        def written(name: str) -> dict[str, int]:
            return pc[name].decode(self._pc[core].get(pc[name].offset, pc[name].reset))

        control = written("TASK_CON")
        raw = {
            name: self._pc[core].get(pc[name].offset, 0) for name in ("BASE_ADDRESS", "TASK_DMA_BASE_ADDR")
        }
        kick = Kick(
            raw["BASE_ADDRESS"] & pc["BASE_ADDRESS"].fields["PC_SOURCE_ADDR"].mask,
            written("REGISTER_AMOUNTS")["PC_DATA_AMOUNT"],
            control["TASK_NUMBER"],
            written("INTERRUPT_MASK")["int_mask"],
            raw["TASK_DMA_BASE_ADDR"],
            control["TASK_PP_EN"],
        )
        stream = Stream(kick, list(_snapshot(self._device.memory)), core, self._others[core])
        self._others[core] = []
        job = self.scheduler.busy.get(core) if self.scheduler is not None else None
        number = 0 if job is None else self._number(job.number)
        place = number, core
        self._kicks[place] = self._kicks.get(place, 0) + 1
        driver = "" if job is None else type(job).__name__.removesuffix("Job").lower()
        captured = Captured(stream, job=number, kick=self._kicks[place], core=core, driver=driver)
        captured.measured = self._device.has_cycles
        if not self._open:
            self._batches += 1
        captured.batch = self._batches
        self._inherit(core, stream)
        self._open[core] = captured, self._device.cycle
        if self._begun is not None:
            self._begun(captured)

    def _number(self, job: int) -> int:
        """Return the number of a job from 1 on, and forget those of jobs long ago."""
        if job not in self._jobs:
            self._count += 1
            self._jobs[job] = self._count
            while len(self._jobs) > KEPT_JOBS:
                gone = self._jobs.pop(next(iter(self._jobs)))
                for core in range(self._device.cores):
                    self._kicks.pop((gone, core), None)
        return self._jobs[job]

    def _end(self, core: int, done: bool) -> None:
        captured, begun = self._open.pop(core)
        if done:
            captured.cycles = self._device.cycle - begun
            captured.expected = Expected(list(_outputs(captured.stream, self._device.memory)))
        else:
            captured.state = self._device.block_state(core)
        self._sink(captured)

    def _inherit(self, core: int, stream: Stream) -> None:
        """Put register contents left by earlier kicks before the kick's own writes, as far as they are used.

        The recorded kick starts in group 0 on a reset core. If the program was in group 1, the groups are
        exchanged.
        """
        machine = self._machines[core]
        turned = {name: state.pointer for name, state in machine.blocks.items()}
        before = copy.deepcopy(machine)
        for state in before.blocks.values():
            state.control_origin = state.control_origin and Origin(_BEFORE, -1)
            for group in state.held:
                for name, (value, _) in list(group.items()):
                    group[name] = value, Origin(_BEFORE, -1)
        program = program_of_stream(stream)
        used = set(_used(before, program, core))
        writes = self._restore(machine, used, turned)
        tables = self._uploads(core, program)
        stream.writes = [*writes, *tables, *stream.writes]
        machine.arm(core)
        for index, task in enumerate(program.tasks):
            machine.task(index, task)

    @staticmethod
    def _restore(
        machine: Machine, used: set[tuple[str, int, str]], turned: dict[str, int]
    ) -> list[tuple[int, int]]:
        writes: list[tuple[int, int]] = []
        for block in BLOCKS:
            state, pointer = machine.blocks[block], registers()[block]["S_POINTER"]
            values = [(g ^ turned[block], name) for b, g, name in used if b == block and g >= 0]
            for group in (0, 1):
                names = [name for at, name in values if at == group]
                if names:
                    writes.append((pointer.offset, pointer.encode(POINTER=group)))
                held = state.held[group ^ turned[block]]
                writes += [(registers()[block][name].offset, held[name][0]) for name in sorted(names)]
            if values or (block, -1, "S_POINTER") in used:
                fields = pointer.decode(state.control)
                fields |= {"POINTER": 0, "POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1, "EXECUTER": 0}
                writes.append((pointer.offset, pointer.encode(**fields)))
        return writes

    def _uploads(self, core: int, program: Program) -> list[tuple[int, int]]:
        """Return entries of the tables that earlier kicks wrote, if this one uses a table."""
        kept = self._tables[core]
        writes: list[tuple[int, int]] = []
        dpu = registers()["DPU"]
        access, data = dpu["LUT_ACCESS_CFG"], dpu["LUT_ACCESS_DATA"]
        looks = any(
            start.view("DPU") is not None
            and not start.views["DPU"]("EW_CFG", "EW_BYPASS")
            and not start.views["DPU"]("EW_CFG", "EW_LUT_BYPASS")
            for _, begun in starts_of(program)
            for start in begun
        )
        if looks:
            last: tuple[int, int] | None = None
            for (table, entry), value in sorted(kept.items()):
                if last != (table, entry - 1):
                    place = access.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table, LUT_ADDR=entry)
                    writes.append((access.offset, place))
                writes.append((data.offset, value))
                last = table, entry
        table = entry = writing = 0
        for task in program.tasks:
            for command in task.commands:
                if command.register is access:
                    fields = command.fields
                    table, entry = fields["LUT_TABLE_ID"], fields["LUT_ADDR"]
                    writing = fields["LUT_ACCESS_TYPE"]
                elif command.register is data and writing:
                    kept[table, entry] = command.value
                    entry += 1
        return writes


def _used(machine: Machine, program: Program, core: int) -> Iterator[tuple[str, int, str]]:
    """Yield (block, group, register) of what a kick inherits from earlier ones.

    Group -1 for ungrouped registers.
    """
    machine.arm(core)
    for index, task in enumerate(program.tasks):
        for start in machine.task(index, task):
            for block, view in start.views.items():
                control = start.controls[block][1]
                if control is not None and control.task == _BEFORE:
                    yield block, -1, "S_POINTER"
                for name, _, origin in view.items():
                    if origin.task == _BEFORE:
                        yield block, view.group, name


def _snapshot(memory: Any) -> Iterator[Region]:
    """Yield copies of all mapped memory."""
    for address, size in sorted(memory.ranges.items()):
        if address + size <= SPACE:
            yield Region(f"buffer 0x{address:X}", address, memory.view(address, size).copy())


def _outputs(stream: Stream, memory: Any) -> Iterator[Region]:
    """Yield what the tasks of a kick wrote: named by task and block, with the present bytes."""
    program = program_of_stream(stream)
    seen: set[tuple[int, int]] = set()
    for index, begun in starts_of(program):
        for start in begun:
            for access in accesses(Check(program, start)):
                for address, size in _joined(access.pieces) if access.write else ():
                    if (address, size) in seen:
                        continue
                    seen.add((address, size))
                    try:
                        data = np.array(memory.view(address, size))
                    except (ValueError, LookupError, RuntimeError):
                        continue  # not mapped: the run has reported it
                    owner = "host" if index == HOST else f"task {index}"
                    yield Region(f"{owner} {access.block} {access.client}", address, data)


def _joined(pieces: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return pieces in the order of their address, joined if they touch, without those that wrap."""
    out: list[tuple[int, int]] = []
    for address, size in sorted((start % SPACE, size) for start, size in pieces):
        if address + size > SPACE:
            continue
        if out and address <= sum(out[-1]):
            end = max(sum(out[-1]), address + size)
            out[-1] = out[-1][0], end - out[-1][0]
        else:
            out.append((address, size))
    return out
