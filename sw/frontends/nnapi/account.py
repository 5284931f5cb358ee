"""What a prepared model did: where its operations ran, and what their jobs took."""

from __future__ import annotations

from dataclasses import dataclass, field


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
