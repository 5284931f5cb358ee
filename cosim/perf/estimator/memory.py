"""What a task sees of DRAM, and the time of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosim.engines.library import DramConfig
from cosim.perf.estimator.features import BEAT

READ_AHEAD = 256
"""Beats that a loader may have under way (rtl/config.py)."""
RING_ATOMS = 1024
"""Atoms that a reader of the DPU fetches ahead (rtl/npu/dpu_rdma_stripes.py)."""
BOUNDS = ("array", "output", "features", "weights", "operands", "memory", "pooling", "start and end")

Coefficients = Mapping[str, float]


@dataclass(frozen=True)
class Memory:
    """What a task sees of DRAM, in cycles of the NPU.

    Members
    -------
    beat : cycles of a beat at the peak that this core gets on average.
    port : cycles of a beat of one direction, at least.
    read, write : latencies.
    outstanding : write bursts under way.
    """

    beat: float
    port: float
    read: int
    write: int
    outstanding: int

    @classmethod
    def of(cls, dram: DramConfig, turns: float = 1.0) -> Memory:
        """Of a configuration, of which this core has one turn in so many."""
        peak = dram.peak_bytes_per_cycle * dram.efficiency
        return cls(
            turns * BEAT / peak,
            max(BEAT / dram.port_bytes_per_cycle, 1.0),
            dram.read_latency,
            dram.write_latency,
            min(dram.write_outstanding, dram.client_write_outstanding),
        )

    def together(self, reads: float, writes: float) -> float:
        """Cycles in which so many beats are moved, when reads and writes come together and take turns."""
        both = 2 * min(reads, writes) * max(self.beat, self.port / 2)
        return both + abs(reads - writes) * self.alone

    @property
    def alone(self) -> float:
        """Cycles of a beat while the other direction wants nothing."""
        return max(self.beat, self.port)


@dataclass(frozen=True)
class Lists:
    """Beats of command lists fetched during a task: from its start, and once registers are written."""

    early: float = 0.0
    late: float = 0.0


NO_LISTS = Lists()
REGISTER_CYCLES = 130
"""Cycles in which the registers of a task are written, one a cycle, before the next list is asked for."""


@dataclass
class Time:
    """Cycles of a task, and what most of them were waited for."""

    cycles: float
    bound: str


def repeats(states: list[tuple[float, ...]]) -> float:
    """Cycles by which all of the last states are later than those two stripes before; 0: they are not."""
    if len(states) < 6:
        return 0.0
    by = states[-1][0] - states[-3][0]
    for late, early in ((-1, -3), (-2, -4), (-3, -5), (-4, -6)):
        if any(abs(a - b - by) > 1e-6 for a, b in zip(states[late], states[early], strict=True)):
            return 0.0
    return by
