"""What a prepared model did: where its operations ran, and what their jobs took."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class OperationAccount:
    """Where an operation ran, and what it took since the preparation.

    Members
    -------
    index : index in the main subgraph.
    kind : name of the operation.
    place : "npu", "host" or "" before the first execution.
    reason : why it did not run on the NPU; "" if it did.
    executions : how often it ran.
    cycles : cycles of the jobs, of the whole segment at its first operation.
    bytes_read, bytes_written : bytes of the jobs in DRAM, as the cycles.
    """

    index: int
    kind: str
    place: str = ""
    reason: str = ""
    executions: int = 0
    cycles: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass
class Account:
    """What a prepared model did.

    Members
    -------
    operations : of each operation of the main subgraph.
    executions : number of executions.
    bytes_converted : bytes that the host packed into the native layout or unpacked from it.
    bytes_unconverted : bytes of native tensors that were taken and given as they are.
    """

    operations: list[OperationAccount] = field(default_factory=list)
    executions: int = 0
    bytes_converted: int = 0
    bytes_unconverted: int = 0

    @property
    def cycles(self) -> int:
        """Cycles of all jobs."""
        return sum(item.cycles for item in self.operations)

    def as_json(self) -> dict[str, Any]:
        """Return the members of a JSON document."""
        return {**asdict(self), "cycles": self.cycles}

    def lines(self) -> list[str]:
        """Return lines for people: what the NPU did, and what the host did with the reasons."""
        times = f"{self.executions} execution{'s' * (self.executions != 1)}"
        found = [f"{times}, {self.cycles:,} cycles, {self.bytes_converted:,} bytes converted"]
        found[0] += f", {self.bytes_unconverted:,} not converted"
        for record in self.operations:
            name = f"  {record.index} {record.kind}"
            if record.place == "npu":
                read, written = f"{record.bytes_read:,}", f"{record.bytes_written:,}"
                found.append(f"{name}: NPU, {record.cycles:,} cycles, {read} bytes read, {written} written")
            elif record.place:
                found.append(f"{name}: host, {record.reason}")
        return found
