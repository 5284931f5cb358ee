"""Environment of one task: memory with its traffic log, base address, diagnostics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.errors import GoldenError, GoldenHang, MemoryFault
from rkcosim.golden.task.memory import Bytes, Memory, atom_ranges
from rkcosim.golden.task.registers import View
from rkcosim.spec.types import ATOM


@dataclass(frozen=True)
class Traffic:
    """Bytes moved by one client of a task: `ranges` of (first byte, number of bytes)."""

    client: str
    ranges: tuple[tuple[int, int], ...]
    bytes: int
    """Number of bytes moved; an address counts as often as it was accessed."""


@dataclass(frozen=True)
class Finding:
    """A diagnostic of a task, with the contents of the RTL's diagnostic port."""

    task: int
    code: str
    block: str
    register: str
    value: int
    message: str

    def __str__(self) -> str:
        where = self.register if self.register.startswith(self.block) else f"{self.block}.{self.register}"
        return f"task {self.task}: {where}: {self.message} ({self.code}, {self.value:#x})"


MOST_FINDINGS = 1 << 16
"""Number of findings that a core keeps, the oldest ones."""


class FindingLog(list[Finding]):
    """Findings of a core, the oldest `MOST_FINDINGS`."""

    def append(self, found: Finding) -> None:
        """Append a finding, unless the log is full."""
        if len(self) < MOST_FINDINGS:
            super().append(found)


def label_of(register: str, name: str | None) -> str:
    """Name of a field in messages: `REGISTER.FIELD`, or `REGISTER` if both have the same name."""
    return register if name in (None, "", register) else f"{register}.{name}"


@dataclass
class TaskReport:
    """Activity of a task: its registers, traffic and useful work."""

    index: int
    kind: str = ""
    mask: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    registers: dict[str, dict[str, int]] = field(default_factory=dict)
    """Block -> register name -> value, for everything that was written to the active group."""
    reads: list[Traffic] = field(default_factory=list)
    writes: list[Traffic] = field(default_factory=list)
    macs: int = 0
    """Useful multiply-accumulates: output pixels x taps x real channels (x kernels)."""

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory by all clients of the task."""
        return sum(t.bytes for t in self.reads)

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory by the task."""
        return sum(t.bytes for t in self.writes)


class Context:
    """Memory access and diagnostics of one task.

    Parameters
    ----------
    memory
        DRAM.
    base
        TASK_DMA_BASE, which is added to every address of a DMA but not to command fetches.
    report
        Filled in while the task runs.
    findings
        Diagnostics are appended here; with `strict` the first one is raised.
    options
        Non-default interpretations of the hardware (spec/regs/options.py).
    """

    def __init__(
        self,
        memory: Memory,
        base: int,
        report: TaskReport,
        findings: list[Finding],
        strict: bool,
        options: frozenset[str] = frozenset(),
    ) -> None:
        self.memory, self.base, self.report = memory, base, report
        self.findings, self.strict, self.options = findings, strict, options

    def diagnose(self, code: str, block: str, register: str, value: int, message: str) -> None:
        """Record a diagnostic; raise it as GoldenError when strict."""
        self.findings.append(Finding(self.report.index, code, block, register, value, message))
        if self.strict:
            raise self.error(message, block, register, value, code)

    def error(
        self, message: str, block: str, register: str = "", value: int | None = None, code: str = ""
    ) -> GoldenError:
        """Build a GoldenError of this task."""
        return GoldenError(
            message, task=self.report.index, block=block, register=register, value=value, code=code
        )

    def require(self, ok: bool, code: str, view: View, register: str, name: str | None, message: str) -> None:
        """Report a diagnostic for a field of a `View` unless `ok`."""
        if not ok:
            self.diagnose(code, view.block, label_of(register, name), view(register, name), message)

    def stop(self, code: str, view: View, register: str, name: str | None, message: str) -> GoldenHang:
        """Record a diagnostic of a field and build the error of a task that never ends because of it."""
        hang = self.hang(view, register, name, message, code)
        self.findings.append(
            Finding(self.report.index, code, view.block, hang.name, view(register, name), message)
        )
        return hang

    def hang(self, view: View, register: str, name: str | None, message: str, code: str = "") -> GoldenHang:
        """Build the error of a task that never ends because of a field."""
        label, value = label_of(register, name), view(register, name)
        index = self.report.index
        return GoldenHang(message, task=index, block=view.block, register=label, value=value, code=code)

    def place(self, view: View, register: str) -> int:
        """Return a block's base address plus TASK_DMA_BASE, modulo 2^32."""
        return (view.bits(register) + self.base) % (1 << 32)

    def read(self, client: str, block: str, register: str, addresses: NDArray[np.int64]) -> Bytes:
        """Read atoms: int64 [n] addresses -> uint8 [n, 16]."""
        addresses = addresses.ravel() % (1 << 32)
        try:
            atoms = self.memory.gather(addresses)
        except MemoryFault as fault:
            raise self.error(f"{client} {fault}", block, register, fault.address, "READ_ERROR") from None
        self.report.reads.append(Traffic(client, tuple(atom_ranges(addresses)), addresses.size * ATOM))
        return atoms

    def read_run(self, client: str, block: str, register: str, start: int, size: int) -> Bytes:
        """Read consecutive bytes: uint8 [size]. The traffic is that of the atoms that contain them."""
        atoms = -(-size // ATOM)
        data = self.read(client, block, register, start + ATOM * np.arange(atoms, dtype=np.int64))
        return data.ravel()[:size]

    def write(
        self, client: str, block: str, register: str, addresses: NDArray[np.int64], atoms: Bytes
    ) -> None:
        """Write atoms: int64 [n], uint8 [n, 16]."""
        addresses = addresses.ravel() % (1 << 32)
        try:
            self.memory.scatter(addresses, atoms)
        except MemoryFault as fault:
            raise self.error(f"{client} {fault}", block, register, fault.address, "WRITE_ERROR") from None
        ranges = atom_ranges(addresses)
        if self.strict and sum(size for _, size in ranges) != addresses.size * ATOM:
            raise self.error(
                "two outputs are written to the same address", block, register, int(addresses[0])
            )
        self.report.writes.append(Traffic(client, tuple(ranges), addresses.size * ATOM))
