"""What one task sees while it runs: memory with its traffic log, base address, diagnostics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.errors import GoldenError, MemoryFault
from cosim.golden.task.memory import ATOM, Bytes, Memory, atom_ranges
from cosim.golden.task.registers import View


@dataclass(frozen=True)
class Traffic:
    """Bytes moved by one client of a task: `ranges` of (first byte, number of bytes)."""

    client: str
    ranges: tuple[tuple[int, int], ...]
    bytes: int
    """Bytes moved, counting an address as often as it was accessed."""


@dataclass(frozen=True)
class Finding:
    """A diagnostic of a task, as the RTL's diagnostic port carries it."""

    task: int
    code: str
    block: str
    register: str
    value: int
    message: str


@dataclass
class TaskReport:
    """What a task did: registers in force, traffic and useful work."""

    index: int
    kind: str = ""
    mask: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    registers: dict[str, dict[str, int]] = field(default_factory=dict)
    """Block -> register name -> value, everything written to the group in force."""
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
        TASK_DMA_BASE, added to every address of a DMA but not to command fetches.
    report
        filled in while the task runs.
    findings
        diagnostics are appended here; with `strict` the first one raises.
    options
        readings of the hardware that differ from the default (rtl/regs/options.py).
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
        """Diagnose a field of a `View` unless `ok`."""
        if not ok:
            label = register if name in (None, register) else f"{register}.{name}"
            self.diagnose(code, view.block, label, view.get(register, name), message)

    def check_address(self, view: View, register: str) -> None:
        """Diagnose a base address that is no multiple of 16 bytes."""
        value = view.bits(register)
        if value % ATOM:
            self.diagnose(
                "UNALIGNED_ADDRESS", view.block, register, value, f"address is no multiple of {ATOM} bytes"
            )

    def place(self, view: View, register: str) -> int:
        """Return a block's base address plus TASK_DMA_BASE, modulo 2^32."""
        return (view.bits(register) + self.base) % (1 << 32)

    def address(self, view: View, register: str) -> int:
        """Return what `place` does, checked by `check_address`."""
        self.check_address(view, register)
        return self.place(view, register)

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
        """Read consecutive bytes (the atoms they touch): uint8 [size]."""
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

    def write_elements(
        self, client: str, block: str, register: str, addresses: NDArray[np.int64], elements: Bytes
    ) -> None:
        """Write elements smaller than an atom: int64 [n] multiples of their size, uint8 [n, size].

        The traffic counts every atom once; of two elements at one address the later one stays.
        """
        addresses = addresses.ravel() % (1 << 32)
        atoms, which = np.unique(addresses // ATOM * ATOM, return_inverse=True)
        try:
            data = self.memory.gather(atoms)
            offset = addresses % ATOM
            for byte in range(elements.shape[1]):
                data[which, offset + byte] = elements[:, byte]
            self.memory.scatter(atoms, data)
        except MemoryFault as fault:
            message = f"{client} write of an element at {fault.address:#010x} is outside every mapped range"
            raise self.error(message, block, register, fault.address, "WRITE_ERROR") from None
        if self.strict and np.unique(addresses).size != addresses.size:
            raise self.error(
                "two outputs are written to the same address", block, register, int(addresses[0])
            )
        self.report.writes.append(Traffic(client, tuple(atom_ranges(atoms)), atoms.size * ATOM))
