"""Events of each layer, counted from the figures of a run or of an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rkcosim.base import Error
from rkcosim.measure.energy.table import registers
from rkcosim.measure.perf.attribution import Cause
from rkcosim.measure.report.data import ReportedRun, ReportRow

ENTRY_BYTES = 64
"""Bytes that a slot reads of CBUF: an entry of features; and of weights on average, 1 KB for 16 slots."""

BLOCK_BYTES = 4
"""Bytes of weights that a slot of a depthwise layer reads on average, 64 for 16 slots."""

DEPTHWISE_MACS = 64
"""Largest number of MACs per cycle of a depthwise layer."""

MACS = {2048: ("mac_int4", 1), 1024: ("mac_int8", 1), 512: ("mac_16", 2), 256: ("mac_tf32", 4)}
"""Largest number of MACs per cycle of a core -> event, and bytes of an element."""

KERNELS = {2048: 64, 1024: 32, 512: 16, 256: 16}
"""Largest number of MACs per cycle of a core -> accumulators that a slot updates."""

LOADERS = ("FEATURE", "WEIGHT")
OPERANDS = ("MRDMA", "BRDMA", "NRDMA", "ERDMA")

Counts = dict[tuple[str, str], float]
"""(event, block) -> number of events."""


class NotCountedError(Error, ValueError):
    """The events of a run were not counted; the text says why."""


@dataclass
class LayerCounts:
    """Events of a layer of the NPU.

    Members
    -------
    name, op : of the layer.
    cycles : from the start of its first task to the end of its last.
    counts : (event, block) -> number of events.
    """

    name: str
    op: str
    cycles: int
    counts: Counts = field(default_factory=dict)

    def add(self, event: str, block: str, number: float) -> None:
        """Count more events."""
        if number:
            self.counts[event, block] = self.counts.get((event, block), 0.0) + number


def counts_of(run: ReportedRun) -> list[LayerCounts]:
    """Return the events of each layer (or task of a stream) that the NPU computes, of one inference.

    Raises
    ------
    NotCountedError
        If no engine counted cycles, the run's file has no causes of cycles, or the NPU computes nothing.
    """
    if run.rows and all(row.target == "host" for row in run.rows):
        raise NotCountedError(f"{run.title}: the host computes every layer, so that the NPU needs no energy")
    if not run.measured:
        raise NotCountedError(
            f"{run.title}: no engine counted cycles, so that there is no energy: run it on another engine "
            "than golden, or use rkcosim estimate --energy"
        )
    rows = [row for row in run.rows if row.target != "host" and row.cycles]
    if missing := next((row.name for row in rows if not row.spent), None):
        raise NotCountedError(f"{run.title}: layer {missing!r} has no causes of cycles; make the file again")
    return [_counts(row) for row in rows]


def _sum(moved: Mapping[str, int], clients: Iterable[str]) -> int:
    return sum(moved.get(client, 0) for client in clients)


def _counts(row: ReportRow) -> LayerCounts:
    cycles = row.cycles or 0
    found = LayerCounts(row.name, row.op, cycles)
    work = sum(row.spent.values()) - row.spent.get(Cause.CORES, 0)  # cycles of cores with a task
    slots = row.counters.get("mac_slots", 0) if row.slots is None else row.slots
    depthwise = row.peak == DEPTHWISE_MACS
    event, itemsize = MACS.get(row.peak, ("mac_int8", 1))
    if depthwise and row.itemsize == 2:
        event, itemsize = "mac_16", 2
    floats = event in ("mac_16", "mac_tf32")
    pools = "PPU" in row.read_by or bool(row.spent.get(Cause.PPU))
    read, written = row.bytes_read, row.bytes_written
    if row.macs:
        found.add(event, "array", row.macs)
        found.add("accumulate", "array", slots * (DEPTHWISE_MACS if depthwise else KERNELS.get(row.peak, 32)))
        entry = ENTRY_BYTES * itemsize + BLOCK_BYTES * itemsize if depthwise else 2 * ENTRY_BYTES
        found.add("cbuf_read", "CBUF", slots * entry)
        loaded = _sum(row.read_by, LOADERS) if row.loaded is None else row.loaded
        found.add("cbuf_write", "CBUF", loaded)
        kind = "array of floats" if floats else "array of integers"
        found.add("clock", "array", slots * registers()[kind])
        found.add("clock", "CNA", work * registers()["CNA"])
    if pools:
        found.add("window", "PPU", read)
        found.add("clock", "PPU", work * (registers()["PPU"] + registers()["PPU_RDMA"]))
    else:
        size = max(row.itemsize, itemsize)
        elements = written / size
        found.add("element_float" if size > 1 else "element", "DPU", elements)
        if row.spent.get(Cause.LUT):
            found.add("lookup", "DPU", elements)
        found.add("clock", "DPU", work * registers()["DPU"])
        reads = read - row.loaded if row.loaded is not None else _sum(row.read_by, OPERANDS)
        if reads or not row.macs:
            found.add("clock", "DPU_RDMA", work * registers()["DPU_RDMA"])
    commands = row.read_by.get("PC", 0)
    found.add("dma", "DMA", read + written + commands)
    found.add("clock", "DMA", work * (registers()["DMA"] + registers()["PC"]))
    found.add("dram", "DRAM", read + written + commands)
    return found
