"""What a task sees of DRAM, and the time of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosim.engines.library import DramConfig
from cosim.perf.estimator.features import BEAT

Coefficients = Mapping[str, float]


@dataclass(frozen=True)
class Memory:
    """DRAM and the cores' ports, in cycles of the NPU.

    Members
    -------
    beat : cycles of a beat at the peak.
    port : cycles of a beat of one direction of one core, at least.
    read, write : latencies.
    outstanding : write bursts under way.
    way : from a core's port to DRAM, which is part of both latencies (cosim/harness/port.h).
    """

    beat: float
    port: float
    read: int
    write: int
    outstanding: int
    way: int

    @classmethod
    def of(cls, dram: DramConfig) -> Memory:
        """Of a configuration."""
        peak = dram.peak_bytes_per_cycle * dram.efficiency
        return cls(
            BEAT / peak,
            max(BEAT / dram.port_bytes_per_cycle, 1.0),
            dram.read_latency,
            dram.write_latency,
            min(dram.write_outstanding, dram.client_write_outstanding),
            way_to_dram(min(dram.read_latency, dram.write_latency)),
        )

    @property
    def alone(self) -> float:
        """Cycles of a beat while nobody else wants one."""
        return max(self.beat, self.port)

    @property
    def queue(self) -> int:
        """Beats of writes between a core and DRAM at most (`depth` in cosim/harness/dram.h)."""
        return self.way + 2


def way_to_dram(latency: int) -> int:
    """The largest power of two below a latency, at most 32 (`lookahead_of` in cosim/harness/port.h)."""
    way = 32
    while way >= latency:
        way //= 2
    return way


@dataclass(frozen=True)
class Lists:
    """Beats of command lists fetched during a task: from its start, and once registers are written."""

    early: float = 0.0
    late: float = 0.0


NO_LISTS = Lists()


@dataclass
class Time:
    """Cycles of a task, and what most of them were waited for."""

    cycles: float
    bound: str
