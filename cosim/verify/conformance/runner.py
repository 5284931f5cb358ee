"""Runs one case on the device under test and on the golden model, and compares everything visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rkcosim.golden.task import GoldenError, GoldenNpu, Memory, TaskReport
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.arena import COMMAND_BYTES, SIZE
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.crosscheck.compare import compare_images
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.crosscheck.program import BLOCKS

MAX_CYCLES = 3_000_000
"""Cycle bound of any kick that should end."""

SLOWEST = 60
"""Maximum number of device cycles per nominal cycle of the golden model (memory latencies, division)."""

SPARE_CYCLES = 20_000
"""Additional cycles for each kick."""

HANG_CYCLES = 30_000
"""Cycle bound of a kick that should not end."""

SETTLE_CYCLES = 200_000
"""Cycle bound of the wait for blocks that still work after the interrupt."""

BEAT_BYTES = 32
"""Bytes per beat of the bus: an atom at an odd address takes a separate beat."""


@dataclass
class Side:
    """What one side shows after a case."""

    done: bool
    cycles: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    """Register path -> value, of status and pointers, and of the registers that the case reads back."""
    peeked: list[tuple[str, int]] = field(default_factory=list)
    """Register path and value, of status read while the kick ran."""
    probed: list[tuple[int, int]] = field(default_factory=list)
    """Offset and value, of what the case reads while the kick runs."""
    diagnostics: list[tuple[str, str]] = field(default_factory=list)
    """(code, BLOCK.REGISTER), each pair once, in order of names."""
    state: str = ""
    error: str = ""


@dataclass
class Outcome:
    """Verdict on one case."""

    case: Case
    problem: str = ""
    """Kind of the difference; empty: none."""
    detail: str = ""
    golden: Side | None = None
    device: Side | None = None
    reports: Sequence[TaskReport] = ()

    @property
    def ok(self) -> bool:
        """Whether both sides agree."""
        return not self.problem

    def text(self) -> str:
        """Describe the verdict in several lines."""
        return f"{self.problem or 'match'}: {self.detail}\n{self.case.text()}"


class Runner:
    """Runs cases on a device and on a golden model that process the same kicks.

    Parameters
    ----------
    device : device under test: an engine opened with `on_diagnostic="go on"`, or another golden model.
    golden : model to compare with, not strict; a new one by default.
    """

    def __init__(self, device: Any, golden: GoldenNpu | None = None) -> None:
        self.device = device
        self.golden = golden or GoldenNpu(1, strict=False, options=device.options)
        self._mapped: list[int] = []
        self._said = {id(side): self._count(side) for side in (self.device, self.golden)}
        names = [("PC", n) for n in ("INTERRUPT_STATUS", "INTERRUPT_RAW_STATUS", "TASK_STATUS")]
        names += [(b, n) for b in BLOCKS for n in ("S_STATUS", "S_POINTER")]
        self._watched = [registers()[block][name] for block, name in names]

    def observe(self, device: Any, case: Case, bound: int = MAX_CYCLES) -> Side:
        """Run one case on one side only and return what it shows; its memory is left unchanged."""
        self.load(case)
        return self._side(device, case, bound)

    def run(self, case: Case) -> Outcome:
        """Run one case on both sides and compare."""
        self.load(case)
        golden = self._side(self.golden, case, MAX_CYCLES)
        reports = list(self.golden.devices[0].reports)
        for log in self.golden.reports:  # it would grow without bound
            log.clear()
        nominal = 5_000 if case.plan.slave else golden.cycles  # a slave's task ends before it counts
        bound = min(MAX_CYCLES, SPARE_CYCLES + SLOWEST * nominal)
        before = self._bytes_read()
        device = self._side(self.device, case, HANG_CYCLES if not golden.done else bound)
        problem, detail = self._judge(case, golden, device)
        if not problem and golden.done and not (case.plan.slave or case.plan.fault):
            problem, detail = self._judge_traffic(reports, before)
        if problem or case.plan.reset or not (golden.done and device.done):
            self.reset()
        return Outcome(case, problem, detail, golden, device, reports)

    def reset(self) -> None:
        """Reset the core on both sides."""
        self.device.reset(1)
        self.golden.reset(1)
        self._said = {id(side): self._count(side) for side in (self.device, self.golden)}

    def load(self, case: Case) -> None:
        """Map the memory of a case on both sides, and fill it."""
        memory = Memory()
        bases = [case.arena.base, case.arena.commands]
        if self._mapped != bases:
            self.close()
            for start_, size in zip(bases, (SIZE, COMMAND_BYTES), strict=True):
                self.device.memory.map(start_, size)
            self._mapped = bases
        for address, data in case.mapped:
            memory.map(address, data.size)[:] = data
            self.device.memory.write(address, data)
        self.golden.memory = memory
        for device in self.golden.devices:
            device.memory = memory

    def close(self) -> None:
        """Remove the mappings (the device may be used further)."""
        for base in self._mapped:
            self.device.memory.unmap(base)
        self._mapped = []

    def _side(self, device: Any, case: Case, bound: int) -> Side:
        side = Side(False)
        try:
            begun = start(device, case.kick, 0, case.plan.writes)
            if case.plan.peek and device is not self.golden:
                self._peek(device, side)
            for offset, value in case.plan.probes:
                if value is None:
                    side.probed.append((offset, device.read32(0, offset)))
                else:
                    device.write32(0, offset, value)
            side.done = bool(device.run_until_irq(1, bound))
            side.cycles = device.cycle - begun
            if side.done:
                self._settle(device, side)
                side.registers = {r.path: device.read32(0, r.offset) for r in self._watched}
                for offset in case.plan.reads:
                    register = registers().at(offset)
                    name = register.path if register is not None else f"{offset:#06x}"
                    while name in side.registers:
                        name += "'"  # read once more
                    side.registers[name] = device.read32(0, offset)
                clear = registers()["PC"]["INTERRUPT_CLEAR"]
                device.write32(0, clear.offset, clear.mask)
            else:
                side.registers = {
                    r.path: device.read32(0, r.offset) for r in self._watched if r.name == "S_STATUS"
                }
                side.state = device.block_state(0)
        except GoldenError as error:
            side.error = str(error)
        except Exception as error:  # an exception of an engine or a broken model belongs in the verdict
            side.error = f"{type(error).__name__}: {error}"
        side.diagnostics = self._diagnostics(device)
        return side

    def _peek(self, device: Any, side: Side) -> None:
        """Read status a few times while the kick runs."""
        for cycles in (0, 100, 400):
            if cycles and device.run_until_irq(1, cycles):
                return
            for register in self._watched:
                if register.name in ("TASK_STATUS", "S_STATUS"):
                    side.peeked.append((register.path, device.read32(0, register.offset)))

    def _settle(self, device: Any, side: Side) -> None:
        """Wait until all blocks are idle: CNA may still fetch rows that nothing needs, and masks differ."""
        end = device.cycle + SETTLE_CYCLES
        status = [registers()[block]["S_STATUS"] for block in BLOCKS]
        while any(device.read32(0, r.offset) for r in status):
            if device.cycle > end:
                side.done, side.state = False, f"not idle after the interrupt: {device.block_state(0)}"
                return
            device.run(100)

    @staticmethod
    def _count(device: Any) -> int:
        return len(device.diagnostics())

    def _diagnostics(self, device: Any) -> list[tuple[str, str]]:
        first = self._said[id(device)]
        if not device.has_cycles:  # a golden model
            findings = [f for d in device.devices for f in d.findings]
            if len(findings) < first:  # a reset has dropped them
                first = 0
            found = {(f.code, _path(f.block, f.register)) for f in findings[first:]}
            count = len(findings)
        else:
            fresh = device.diagnostics(first)
            found = {(d.code, d.register) for d in fresh}
            count = first + len(fresh)
        self._said[id(device)] = count
        return sorted(found)

    def _bytes_read(self) -> dict[str, int]:
        """Return the bytes that each client has read so far, if the device counts them."""
        return dict(self.device.counters(0).bytes_read) if self.device.has_counters else {}

    def _judge_traffic(self, reports: Sequence[TaskReport], before: dict[str, int]) -> tuple[str, str]:
        """Check that features and weights are read once: at most two bus atoms for each golden atom."""
        after = self._bytes_read()
        for client in ("FEATURE", "WEIGHT") if after else ():
            moved = after.get(client, 0) - before.get(client, 0)
            wanted = sum(t.bytes for r in reports for t in r.reads if t.client == client.lower())
            if not wanted <= moved <= 2 * wanted + BEAT_BYTES:
                return "traffic", f"{client}: {moved} bytes are read for {wanted}"
        return "", ""

    def _judge(self, case: Case, golden: Side, device: Side) -> tuple[str, str]:
        plan = case.plan
        if plan.fault:
            return self._judge_fault(golden, device)
        if golden.error:
            return "golden error", golden.error
        if device.error:
            return "device error", device.error
        if golden.done != device.done:
            if golden.done:
                return "device hangs", f"no interrupt within {device.cycles} cycles: {device.state}"
            return "golden hangs", golden.state
        if plan.hang == golden.done:
            return ("both end", "expected a hang") if plan.hang else ("both hang", golden.state)
        if golden.diagnostics != device.diagnostics:
            return "diagnostics", f"golden {golden.diagnostics}, device {device.diagnostics}"
        if golden.diagnostics and not plan.diagnostics:
            return "refused", f"a legal task raises {golden.diagnostics}"
        difference = compare_images(self.device.memory, self.golden.memory, case.ranges)
        if difference is not None and (plan.written or not plan.hang):
            place = case.arena.find(difference.address)
            return "memory", (
                f"{place} ({difference.address:#010x}): device {difference.rtl:#04x}, "
                f"golden {difference.golden:#04x}, {difference.count} bytes differ"
            )
        if not golden.done:
            return "", ""  # how far each block gets before it waits depends on cycles
        for (offset, mine), (_, theirs) in zip(golden.probed, device.probed, strict=True):
            if mine != theirs:
                return "registers", f"{offset:#06x} in the run: device {theirs:#x}, golden {mine:#x}"
        for name, value in golden.registers.items():
            if device.registers.get(name) != value:
                return "registers", f"{name}: device {device.registers.get(name):#x}, golden {value:#x}"
        return "", ""

    @staticmethod
    def _judge_fault(golden: Side, device: Side) -> tuple[str, str]:
        """Check an access that memory refuses: the bytes are undefined, but it must be reported."""
        code = next((c for c in ("READ_ERROR", "WRITE_ERROR") if c in golden.error), "")
        code = code or next((c for c, _ in golden.diagnostics if c in ("READ_ERROR", "WRITE_ERROR")), "")
        if device.error:
            if code and code in device.error:  # the golden model as the device: it ends at the access
                return "", ""
            return "device error", device.error
        if not code:
            return "no fault", f"the golden model sees none: {golden.error or golden.diagnostics}"
        if code not in [c for c, _ in device.diagnostics]:
            return "fault", f"golden: {code}; device: {device.diagnostics}"
        if not device.done:
            return "device hangs", device.state
        raw = registers()["PC"]["INTERRUPT_RAW_STATUS"]
        bits = device.registers[raw.path]
        bit = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
        wanted = bit.get("DMA_READ_ERROR" if code == "READ_ERROR" else "DMA_WRITE_ERROR", 0)
        if not bits & wanted:
            return "fault", f"{code}, but RAW is {bits:#x}"
        return "", ""


def _path(block: str, register: str) -> str:
    """Return `BLOCK.REGISTER` of a finding, whose register may include a field's name."""
    name = register.split(".")[0]
    if name.startswith("0x"):
        return f"offset {int(name, 16):#06x}"
    return f"{block}.{name}"
