"""What a task reads from DRAM, computes and writes, stripe by stripe, and the memory that cores share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.estimator.features import BEAT, CONV

Coefficients = Mapping[str, float]
"""Fitted delays in cycles, by name."""

NONE = 1e-9
"""Tolerance: beats or cycles below this count as zero."""

FEATURES, WEIGHTS, TABLES, OPERANDS, LISTS = range(5)
"""Read clients of a core in round-robin order."""

Wishes = Sequence[tuple[int, float]]
"""(read client, beats): number of beats of a task that must have been read, or may be requested."""


@dataclass(frozen=True)
class Memory:
    """DRAM and the cores' ports, in cycles of the NPU.

    Members
    -------
    beat : cycles per beat at the peak rate, which the cores share.
    core : smallest number of cycles per beat of one core, both directions together.
    port : smallest number of cycles per beat of one direction of one core.
    read, write : latencies.
    outstanding : largest number of write bursts in flight.
    way : cycles from a core's port to DRAM; part of both latencies (cosim/engines/harness/port.h).
    config : the configuration that it was made from; None: the default one.
    """

    beat: float
    core: float
    port: float
    read: int
    write: int
    outstanding: int
    way: int
    config: DramConfig | None = None

    @classmethod
    def of(cls, dram: DramConfig) -> Memory:
        """Return the memory of a configuration."""
        peak = dram.peak_bytes_per_cycle * dram.efficiency
        return cls(
            BEAT / peak,
            BEAT / dram.core_bytes_per_cycle,
            max(BEAT / dram.port_bytes_per_cycle, 1.0),
            dram.read_latency,
            dram.write_latency,
            min(dram.write_outstanding, dram.client_write_outstanding),
            way_to_dram(min(dram.read_latency, dram.write_latency)),
            dram,
        )

    @property
    def alone(self) -> float:
        """Cycles per beat of a core if no other core uses DRAM."""
        return max(self.beat, self.core, self.port)

    @property
    def queue(self) -> int:
        """Largest number of write beats between a core and DRAM (`depth` in cosim/engines/harness/dram.h)."""
        return self.way + 2


def way_to_dram(latency: int) -> int:
    """Return the largest power of two below a latency, at most 32 (`lookahead_of` in harness/port.h)."""
    way = 32
    while way >= latency:
        way //= 2
    return way


@dataclass(frozen=True)
class Reads:
    """The reads of one client for a task.

    Members
    -------
    allow : beats that it requests at first.
    at : cycles from the task's start until the first of them arrives.
    burst : beats per burst.
    pace : largest number of beats per cycle.
    head : beats of the first burst; 0: as the others.
    tail, tail_burst : number of the last beats, and beats per burst among them.
    window : largest number of beats in flight, 0 for no limit; once these have been read, it is the largest
        number of beats per latency.
    """

    allow: float = 0.0
    at: float = 0.0
    burst: float = 16.0
    pace: float = 1.0
    head: float = 0.0
    tail: float = 0.0
    tail_burst: float = 16.0
    window: float = 0.0

    def pace_at(self, read: float, latency: float) -> float:
        """Return the largest number of beats per cycle after `read` beats."""
        return min(self.pace, self.window / latency) if 0 < self.window <= read + NONE else self.pace

    def burst_at(self, read: float) -> float:
        """Return the beats of the burst that begins after `read` beats."""
        if self.head and read < NONE:
            return self.head
        return self.tail_burst if self.tail and self.allow - read <= self.tail + NONE else self.burst


@dataclass(frozen=True)
class Step:
    """A stripe of a task on the array, or a part of a stripe.

    Members
    -------
    needs : (client, beats) that must have been read before it begins.
    allows : (client, beats) that may be requested once it has begun.
    work : cycles of the array.
    first, last : whether it begins or ends a stripe.
    land : cycles from the arrival of the last beat that it needs to its beginning.
    placed : cycles from the task's start until its input is in CBUF, without any wait.
    drain : cycles of the DPU after the last part.
    drain_needs, drain_allows : `needs` and `allows` of the DPU.
    writes, bursts : beats and bursts written after that.
    """

    needs: Wishes
    work: float
    drain: float
    writes: float
    bursts: float
    allows: Wishes = ()
    first: bool = True
    last: bool = True
    land: float = 0.0
    placed: float = 0.0
    drain_needs: Wishes = ()
    drain_allows: Wishes = ()


@dataclass(frozen=True)
class Flow:
    """The accesses and the work of a task.

    Members
    -------
    gap : cycles before its start, from the end of the previous task or the job's first cycle.
    reads : one entry per read client.
    steps : stripes of the task, or parts of them.
    drain, pipe : cycles from the array to the DPU, and from there to the bus.
    behind : cycles from the response of its last write to its end.
    give_way : number of unread beats of features at which the weights after the first group are requested.
    weights : beats of weights that are requested then.
    little : the task reads so few beats that the order in which clients are served changes its duration.
    lists : beats of commands that are fetched `REGISTER_CYCLES` after the start.
    kind : kind of the task.
    """

    gap: float
    reads: Sequence[Reads]
    steps: Sequence[Step]
    drain: float
    pipe: float
    behind: float
    give_way: float = 0.0
    weights: float = 0.0
    little: bool = False
    lists: float = 0.0
    kind: str = CONV
