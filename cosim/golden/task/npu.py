"""The golden model behind the driver's device protocol: up to three cores, one memory, nominal time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cosim.golden.task.context import Finding, TaskReport
from cosim.golden.task.device import EVENT_BITS, GoldenDevice
from cosim.golden.task.errors import GoldenError, GoldenHang
from cosim.golden.task.memory import Memory
from rtl.regs import registers
from rtl.regs.options import chosen_options

ACCESS_CYCLES = 10
"""Nominal cycles of a register access."""

TASK_CYCLES = 500
"""Nominal cycles of a task besides its MACs and bytes."""


class GoldenNpu:
    """A functional device for `sw.driver` and everything else that takes an engine.

    Writing PC.OPERATION_ENABLE runs the whole kick at once; `cycle` then moves on by a nominal cost
    without meaning.  A kick that hangs raises nothing: it never interrupts, as on the hardware, and
    `hang` and `block_state` say why.

    Parameters
    ----------
    cores
        1 to 3.
    strict
        raise GoldenError on diagnostics (see `GoldenDevice`).
    memory
        shared by host and cores; a new, empty one by default.
    options
        names of readings of the hardware (rtl/regs/options.py); None: those of the environment.
    """

    name = "golden"
    cell = "numpy"

    def __init__(
        self,
        cores: int = 3,
        *,
        strict: bool = True,
        memory: Memory | None = None,
        options: Iterable[str] | None = None,
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
        self.reports: list[list[TaskReport]] = [[] for _ in range(cores)]
        """Every task of each core since the device was opened."""
        self.cycle = 0
        self._line = [False] * cores
        self._map = registers()

    @property
    def irq(self) -> int:
        """Interrupt lines, a bit for each core."""
        return sum(1 << core for core in range(self.cores) if self._raised(core))

    def _status(self, core: int) -> int:
        device = self.devices[core]
        return device.raw & device.space.value("PC", "INTERRUPT_MASK")

    def _raised(self, core: int) -> bool:
        """The line stays up until STATUS is 0 (docs/hardware.md 7.4)."""
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
        """Write a register; op-enables run to their end at once.

        Raises
        ------
        GoldenError
            when strict, for what the hardware raises a diagnostic for.
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
                self._run(core, device.kick)
        elif r.name == "OPERATION_ENABLE":
            device.reports = []
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
        self.reports[core] += device.reports
        for report in device.reports:
            moved = report.bytes_read + report.bytes_written
            self.cycle += TASK_CYCLES + report.macs // 1024 + moved // 16
            if not slave and report.index != device.last_task:
                continue  # only the last task of a kick may raise the line
            for block, group in report.groups.items():
                for bit in EVENT_BITS.get(block, ()):
                    self._line[core] |= bool(1 << (bit + group) & self._status(core))

    def run(self, cycles: int) -> None:
        """Let time pass."""
        self.cycle += max(0, cycles)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Return the raised lines of `core_mask`; 0 after `max_cycles` when none is."""
        raised = self.irq & core_mask
        if not raised:
            self.cycle += max(0, max_cycles)
        return raised

    def reset(self, core_mask: int) -> None:
        """Reset cores; memory keeps its contents."""
        for core in range(self.cores):
            if core_mask >> core & 1:
                self.devices[core].reset()
                self.hang[core], self._line[core] = None, False

    def block_state(self, core: int) -> str:
        """Say what a core waits for."""
        if self.hang[core] is not None:
            return str(self.hang[core])
        return "; ".join(self.devices[core].waits()) or "idle"

    def task_log(self) -> list[TaskReport]:
        """Tasks of all cores, core by core."""
        return [report for core in self.reports for report in core]

    def diagnostics(self) -> list[Finding]:
        """Findings of all cores."""
        return [finding for device in self.devices for finding in device.findings]

    def close(self) -> None:
        """Do nothing; engines have it."""
