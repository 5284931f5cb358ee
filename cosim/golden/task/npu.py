"""The golden model with the driver's device protocol: up to three cores, one memory, nominal time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rkcosim.golden.task.co_work import Groups
from rkcosim.golden.task.context import Finding, TaskReport
from rkcosim.golden.task.device import EVENT_BITS, GoldenDevice
from rkcosim.golden.task.errors import GoldenError, GoldenHang
from rkcosim.golden.task.memory import Memory
from rkcosim.spec.interrupts import masked
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.options import chosen_options

ACCESS_CYCLES = 10
"""Nominal cycles of a register access."""

TASK_CYCLES = 500
"""Nominal cycles of a task in addition to those for its MACs and bytes."""

KEPT_REPORTS = 256
"""Reports of earlier kicks that each core keeps; the tasks of its last kick are all kept."""


@dataclass(frozen=True)
class FindingKind:
    """Findings of one kind: their common properties, their number, and the text of the first one."""

    kind: tuple[int, str, str]
    count: int
    first: str


class FindingKinds(NamedTuple):
    """Kinds in the order of their first finding, and the position (findings of each core) after them."""

    diagnostics: list[FindingKind]
    place: tuple[int, ...]


class TaskHistory(list[TaskReport]):
    """The latest reports of a core, oldest first.

    Members
    -------
    dropped : number of older reports that were removed.
    """

    dropped = 0

    @property
    def total(self) -> int:
        """Number of all reports so far, including removed ones."""
        return self.dropped + len(self)

    def since(self, total: int) -> list[TaskReport]:
        """Return the reports after the first `total` ones, as far as they are kept."""
        return self[max(0, total - self.dropped) :]

    def trim(self, kept: int) -> None:
        """Remove the oldest reports until `kept` are left."""
        surplus = max(0, len(self) - kept)
        del self[:surplus]
        self.dropped += surplus


class GoldenNpu:
    """A functional device for `rkcosim.driver` and everything else that accepts an engine.

    Writing PC.OPERATION_ENABLE runs the whole kick at once; `cycle` then advances by a nominal cost
    without meaning. A kick of a core that co-works with others [HW 1.9] runs until it must wait for them. It
    continues when they have reached the same step, or when the host lets time pass and no other core can
    continue. A kick that hangs raises no error: as on the hardware it never raises an interrupt, and `hang`
    and `block_state` give the reason.

    Parameters
    ----------
    cores
        Number of cores, 1 to 3.
    strict
        Raise GoldenError on diagnostics (see `GoldenDevice`).
    memory
        Memory shared by host and cores; None: a new, empty one.
    options
        Names of interpretations of the hardware (spec/regs/options.py); None: those of the environment.
    kept
        Number of task reports of earlier kicks that each core keeps; None: all of them.

    Raises
    ------
    ValueError
        If `cores` is another number.
    """

    name = "golden"
    cell = "numpy"
    dram = None
    resumed_at = 0
    has_cycles = can_trace = has_events = has_counters = has_snapshots = has_probes = False
    """The golden model has none of the `rkcosim.engines.protocol.Capabilities`."""

    def __init__(
        self,
        cores: int = 3,
        *,
        strict: bool = True,
        memory: Memory | None = None,
        options: Iterable[str] | None = None,
        kept: int | None = KEPT_REPORTS,
    ) -> None:
        if not 1 <= cores <= 3:
            raise ValueError(f"cores must be 1..3, not {cores}")
        self.cores = cores
        self.memory = Memory() if memory is None else memory
        self.options = chosen_options(options)
        self.devices = [
            GoldenDevice(self.memory, core_index=i, strict=strict, options=self.options) for i in range(cores)
        ]
        self.hang: list[GoldenError | None] = [None] * cores
        self.reports = [TaskHistory() for _ in range(cores)]
        """The tasks of each core's last kick, and at most `kept` earlier ones."""
        self._kept = kept
        self.cycle = 0
        self._groups = Groups([device.steps for device in self.devices])
        self._kicks: dict[int, Iterator[None]] = {}
        """Kicks that wait for other cores, by core."""
        self._counted = [0] * cores
        """Reports of the last kick or start that are in `reports`."""
        self._line = [False] * cores
        self._map = registers()

    @property
    def irq(self) -> int:
        """Interrupt lines, one bit for each core."""
        return sum(1 << core for core in range(self.cores) if self._raised(core))

    def _status(self, core: int) -> int:
        device = self.devices[core]
        return device.raw & device.space.value("PC", "INTERRUPT_MASK")

    def _raised(self, core: int) -> bool:
        """Whether the line of a core is high; it remains high until STATUS is 0 [HW 10.2]."""
        self._line[core] &= self._status(core) != 0
        return self._line[core]

    def read32(self, core: int, offset: int) -> int:
        """Read a register."""
        self.cycle += ACCESS_CYCLES
        device, pc = self.devices[core], self._map["PC"]
        if offset == pc["INTERRUPT_RAW_STATUS"].offset:
            return device.raw
        if offset == pc["INTERRUPT_STATUS"].offset:
            return self._status(core)
        if offset == pc["TASK_STATUS"].offset:
            return pc["TASK_STATUS"].encode(TASK_COUNTER=device.tasks_done)
        r = self._map.at(offset)
        if r is not None and r.name == "S_STATUS":
            return r.encode(**device.space.blocks[r.block].status(device.core_fits(r.block)))
        if r is not None and (r.name == "OPERATION_ENABLE" or not r.readable):
            return 0
        return device.space.read(offset)

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register; an op-enable runs its blocks to their end at once.

        Raises
        ------
        GoldenError
            If strict, for everything for which the hardware raises a diagnostic.
        """
        self.cycle += ACCESS_CYCLES
        device, pc = self.devices[core], self._map["PC"]
        r = self._map.at(offset)
        if r is None:
            device.space.write(offset, value)
        elif offset == pc["INTERRUPT_CLEAR"].offset:
            device.raw &= ~value
        elif offset == pc["OPERATION_ENABLE"].offset:
            if r.decode(value)["OP_EN"]:
                self._kick(core)
        elif r.name == "OPERATION_ENABLE":
            device.reports, self._counted[core] = [], 0
            self._trim(core)
            if r.block == "GLOBAL":
                self._run(core, lambda: device.enable(value), slave=True)
            elif r.decode(value)["OP_EN"]:
                self._run(core, lambda: device.enable_blocks([r.block]), slave=True)
        else:
            if r.path == "PC.TASK_CON" and r.decode(value)["TASK_COUNT_CLEAR"]:
                device.tasks_done = 0
            device.space.write(offset, value)

    def _run(self, core: int, work: Callable[[], object], slave: bool = False) -> None:
        device = self.devices[core]
        if not device.stuck:
            self.hang[core] = None
        try:
            work()
        except GoldenHang as hang:
            self.hang[core] = hang
        self._count(core, slave)

    def _kick(self, core: int) -> None:
        """Begin a kick and run all kicks as far as possible."""
        device = self.devices[core]
        if not device.stuck and not device.steps.runs:
            self.hang[core], self._counted[core] = None, 0
            self._trim(core)
            self._groups.forget(core)
            self._kicks[core] = device.begin_kick()
            self._resume(core)
        else:
            device.kick()  # reports that no kick begins
        self._go_on()

    def _trim(self, core: int) -> None:
        if self._kept is not None:
            self.reports[core].trim(self._kept)

    def _resume(self, core: int) -> None:
        """Run a kick until it ends or must wait for other cores."""
        try:
            next(self._kicks[core])
        except StopIteration:
            del self._kicks[core]
            self._groups.forget(core)
        except GoldenHang as hang:
            del self._kicks[core]
            self.hang[core] = hang
        except GoldenError:
            del self._kicks[core]
            self._groups.forget(core)
            raise
        finally:
            self._count(core, slave=False)

    def _go_on(self, cycles: int | None = None) -> None:
        """Run kicks whose cores no longer wait for others.

        Parameters
        ----------
        cycles
            Time that the host lets pass; None: no time passes, and the host may start more kicks.
        """
        while self._kicks:
            self._groups.form(cycles is not None)
            free = [core for core in self._kicks if self._groups.waits_for(core) == set()]
            for core in free:
                self._resume(core)
            if free:
                continue
            late = [(core, self._groups.leave_out(core, cycles or 0)) for core in self._kicks]
            for core, others in late:
                for other in sorted(others):
                    self._give_up(core, other)
            if not any(others for _, others in late):
                return

    def _give_up(self, core: int, other: int) -> None:
        """Record that a core continues without another one."""
        device = self.devices[core]
        task = (device.steps.step + 1) // 2
        message = f"continues without core {other}, for which it has waited at co-working task {task}"
        value = 1 << other | task << 8
        device.findings.append(Finding(0, "CORE_MISSING", "CNA", "CONV_CON2", value, message))

    def _count(self, core: int, slave: bool) -> None:
        """Account for the tasks that have run since the last call: reports, nominal time, interrupts."""
        device = self.devices[core]
        fresh = device.reports[self._counted[core] :]
        self._counted[core] = len(device.reports)
        self.reports[core] += fresh
        for report in fresh:
            moved = report.bytes_read + report.bytes_written
            self.cycle += TASK_CYCLES + report.macs // 1024 + moved // 16
            if not slave and report.index != device.last_task:
                continue  # only the last task of a kick may raise the interrupt line
            for block, group in report.groups.items():
                for bit in EVENT_BITS.get(block, ()):
                    self._line[core] |= bool(1 << (bit + group) & self._status(core))

    def run(self, cycles: int) -> None:
        """Advance time by `cycles`."""
        self._go_on(cycles)
        self.cycle += max(0, cycles)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Return the raised lines of `core_mask`; 0 after `max_cycles` if none is raised."""
        self._go_on(max_cycles)
        raised = self.irq & core_mask
        if not raised:
            self.cycle += max(0, max_cycles)
        return raised

    def reset(self, core_mask: int) -> None:
        """Reset cores; memory keeps its contents."""
        for core in range(self.cores):
            if core_mask >> core & 1:
                self._kicks.pop(core, None)
                self._groups.forget(core)
                self.devices[core].reset()
                self.hang[core], self._line[core], self._counted[core] = None, False, 0
        self._groups.steps = [device.steps for device in self.devices]

    def block_state(self, core: int) -> str:
        """Return what a core waits for, as text."""
        if self.hang[core] is not None:
            return str(self.hang[core])
        device = self.devices[core]
        if core in self._kicks:
            others = self._groups.waits_for(core)
            missing = (
                " and ".join(f"core {n}" for n in sorted(others)) if others else "the others of its group"
            )
            task = (device.steps.step + 1) // 2
            return f"PC waits at co-working task {task} for {missing}: NN_MODE synchronises the cores"
        if waiting := device.waits():
            return "; ".join(waiting)
        mask = device.space.value("PC", "INTERRUPT_MASK")
        control = self._map["PC"]["TASK_CON"].decode(device.space.value("PC", "TASK_CON"))
        lines = masked(device.raw, mask, device.tasks_done, control["TASK_NUMBER"])
        return "\n".join(["idle", *lines])

    def task_log(self) -> list[TaskReport]:
        """Tasks of all cores that are kept (see `reports`), core by core."""
        return [report for core in self.reports for report in core]

    def task_count(self) -> int:
        """Number of all tasks since the device was opened."""
        return sum(core.total for core in self.reports)

    def diagnostics(self) -> list[Finding]:
        """Findings of all cores."""
        return [finding for device in self.devices for finding in device.findings]

    def core_diagnostics(self, core: int) -> list[Finding]:
        """Findings of one core."""
        return list(self.devices[core].findings)

    def complaints(self, since: tuple[int, ...] = ()) -> FindingKinds:
        """Findings after the position `since` (by default all), each kind of a core once."""
        counts: dict[tuple[int, str, str], int] = {}
        texts: dict[tuple[int, str, str], str] = {}
        places = []
        for core, device in enumerate(self.devices):
            findings = list(device.findings)
            places.append(len(findings))
            for found in findings[since[core] if since else 0 :]:
                key = core, found.code, found.register
                counts[key] = counts.get(key, 0) + 1
                texts.setdefault(key, f"core {core}, {found}")
        kinds = [FindingKind(key, count, texts[key]) for key, count in counts.items()]
        return FindingKinds(kinds, tuple(places))

    def close(self) -> None:
        """Do nothing; the method exists because engines have it."""
