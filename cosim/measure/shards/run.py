"""Simulation of one shard in a worker: an engine from its image, its tasks, cycles, and memory comparison."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rkcosim.base import DEVICE_ERROR, version
from rkcosim.compiler.runtime import TaskMeasure
from rkcosim.driver import DriverError
from rkcosim.driver.core_port import CorePort, Kick
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.engines.records import TaskRecord
from rkcosim.measure.shards.cluster import ClusterError
from rkcosim.measure.shards.images import Expected, Image, Pages, Wrong
from rkcosim.measure.shards.plan import Span
from rkcosim.regcmd.job import Job, fold_interrupts, interrupt_bits
from rkcosim.running.meter import measure

STEP = 1 << 17
"""Largest number of cycles between two reports of progress."""

FINE = 64
"""Cycles between two checks of a task that may end at any moment; fewer if a read from memory takes fewer
cycles.  It must not be more, so that the next task cannot have written anything before the check."""

MAX_CYCLES = 1 << 32
"""Limit of a job or chain."""


class ShardError(Exception):
    """A shard failed; `cause` is the exception of the simulation, if there is one."""

    exit_code = DEVICE_ERROR

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(message)

    def __reduce__(self) -> tuple[type[ShardError], tuple[str, BaseException | None]]:
        """Pickle without a cause that cannot be pickled."""
        try:
            pickle.loads(pickle.dumps(self.cause))
        except Exception:
            return ShardError, (str(self), None)
        return ShardError, (str(self), self.cause)


Told = Callable[[str, int], None]
"""Receives the current activity ("building ...") and the number of cycles simulated so far."""


@dataclass(frozen=True)
class Piece:
    """One span with everything needed to simulate it.

    Members
    -------
    span : the span.
    job : tasks from the span's lead to its end, of each core; if the chain continues, also the following ones
        whose words the core fetches ahead.
    least : smallest number of cycles of each of them.
    before, after : pages that change before it, and by its tasks.
    warm : jobs of one task each that its cores run first, because a core that has worked behaves differently
        from one after reset; the memory that they write is restored.
    """

    span: Span
    job: Job
    least: Sequence[int]
    before: Pages
    after: Pages
    warm: Sequence[Job] = ()


@dataclass(frozen=True)
class Order:
    """A shard to be simulated; `name` is for messages, `version` is that of the client."""

    name: str
    pieces: Sequence[Piece]
    version: str
    engine: str | None = None
    exact: bool = False
    cores: int = 1
    dram: DramConfig | None = None


@dataclass(frozen=True)
class Counted:
    """Cycles of a piece, and the measurements of its tasks; starts are relative to the piece's start."""

    cycles: int
    measures: tuple[TaskMeasure, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a shard.

    Members
    -------
    counted : results of the pieces; after a wrong byte, only up to the piece that wrote it.
    wrong : the first byte that differs from the golden model; None if there is none.
    engine, cell : the engine that simulated it.
    simulated : cycles, including the lead.
    seconds, cpu_seconds : time that it took.
    """

    counted: tuple[Counted, ...]
    wrong: Wrong | None
    engine: str
    cell: str
    simulated: int
    seconds: float
    cpu_seconds: float


class Reporter:
    """Passes the cycle of an engine to `told`, at most once per second."""

    def __init__(self, told: Told) -> None:
        self._told, self._last = told, time.monotonic()

    def __call__(self, cycle: int) -> None:
        if time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            self._told("", cycle)


def _untold(_what: str, _cycles: int) -> None:
    """Ignore a report."""


def check_version(wanted: str) -> None:
    """Refuse to work for another version of the project.

    Raises
    ------
    ClusterError
        If the versions differ; the message names both.
    """
    if version() != wanted:
        raise ClusterError(f"the worker has rkcosim {version()}, but the client has {wanted}")


def run_shard(order: Order, base: Image, told: Told = _untold) -> Outcome:
    """Simulate a shard.

    Parameters
    ----------
    order : the shard and its settings.
    base : memory that the pages of the order's pieces are relative to.
    told : receives progress about once per second.

    Raises
    ------
    ShardError
        If the engine raises an exception, with that exception as cause.
    ClusterError
        If this process has another version of the project.
    """
    check_version(order.version)
    begun, cpu = time.perf_counter(), time.thread_time()
    expected = Expected(base)
    counted: list[Counted] = []
    wrong = None
    told("opening an engine", 0)
    engine = open_engine(
        order.engine,
        exact=order.exact,
        cores=order.cores,
        dram=order.dram,
        threads=1,  # there are many workers
        progress=lambda text: told(text, 0),
    )
    with engine:
        expected.map_into(engine.memory)
        runner = _Runner(engine, told)
        first = engine.cycle
        for piece in order.pieces:
            expected.apply(piece.before)
            for address, data in piece.before.items():
                engine.memory.write(address, data)
            try:
                for job in piece.warm:
                    runner.start(job)
                    runner.finish(job)
                if piece.warm:
                    expected.fill(engine.memory)
                counted.append(runner.run(piece))
            except Exception as error:
                raise ShardError(f"{order.name}: {error}", error) from error
            expected.apply(piece.after)
            wrong = expected.difference(engine.memory)
            if wrong is not None:
                break
        simulated = engine.cycle - first
        names = engine.name, engine.cell
    return Outcome(
        tuple(counted),
        wrong,
        *names,
        simulated,
        round(time.perf_counter() - begun, 3),
        round(time.thread_time() - cpu, 3),
    )


@dataclass
class _Runner:
    """Runs pieces on an engine."""

    engine: Any
    told: Told

    def __post_init__(self) -> None:
        self._tell = Reporter(self.told)

    def run(self, piece: Piece) -> Counted:
        """Simulate a piece; raises the exceptions of engine and driver."""
        known = len(self.engine.task_log())
        begin = self.engine.cycle
        self.start(piece.job)
        span = piece.span
        if span.ends:
            self.finish(piece.job)
            end = self.engine.cycle
        else:
            end = self._until_end_of(piece, known)
        records = self.engine.task_log()[known:]
        if span.lead:
            begin = _ended(records[span.lead - 1])
        counts = records[span.lead : span.lead + span.count]
        measures = [measure(record, _ended(record) - record.start) for record in counts]
        return Counted(
            end - begin,
            tuple(replace(m, start=r.start - begin) for m, r in zip(measures, counts, strict=True)),
        )

    def start(self, job: Job) -> None:
        """Start the cores of a job."""
        for core in job.cores:
            first, count = job.range_of(core)
            tasks = job.tasks[first : first + count]
            kick = Kick.of(tasks[0], tasks[-1], count, job.task_base_addr, job.pingpong)
            CorePort(self.engine, core).start(kick)

    def finish(self, job: Job) -> None:
        """Run until a job ends and clear its interrupts, with the accesses of `rkcosim.driver.Driver`."""
        errors = interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        left = list(job.cores)
        limit = self.engine.cycle + MAX_CYCLES
        while left:
            if self.engine.cycle >= limit:
                raise DriverError(
                    f"no interrupt within {MAX_CYCLES} cycles: {self.engine.block_state(left[0])}"
                )
            raised = self.engine.run_until_irq(sum(1 << core for core in left), STEP)
            self._tell(self.engine.cycle)
            for core in [core for core in left if raised >> core & 1]:
                first, count = job.range_of(core)
                port = CorePort(self.engine, core)
                status, raw = port.interrupt()
                if raw & errors:
                    raise DriverError(f"core {core}: DMA errors\n{self.engine.block_state(core)}")
                port.acknowledge()
                if fold_interrupts(status) == fold_interrupts(job.tasks[first + count - 1].int_mask):
                    left.remove(core)

    def _until_end_of(self, piece: Piece, known: int) -> int:
        """Run until the span's last task has ended, and only slightly longer; return the cycle of its end."""
        span = piece.span
        last = span.lead + span.count - 1
        fine = min(FINE, self.engine.dram.read_latency)
        limit = self.engine.cycle + MAX_CYCLES
        while True:
            records = self.engine.task_log()[known:]
            if len(records) > last and records[last].end is not None:
                break
            if self.engine.cycle >= limit:
                raise DriverError(f"task {span.end - 1} has not ended within {MAX_CYCLES} cycles")
            self.engine.run(max(fine, min(STEP, _left(piece.least, records, last, self.engine.cycle))))
            self._tell(self.engine.cycle)
        faults = self.engine.faults()
        if faults:
            raise DriverError(f"DMA error: {faults[0]}")
        behind = records[last + 1 :]
        if any(record.counters.bytes_written for record in behind):
            raise DriverError(f"task {span.end} has written before the engine could be stopped")
        return _ended(records[last])


def _left(least: Sequence[int], records: Sequence[TaskRecord], last: int, cycle: int) -> int:
    """Return the smallest number of cycles until task `last` of a chain ends."""
    begun = len(records)
    left = sum(least[begun : last + 1])
    if begun and records[-1].end is None:
        left += max(0, least[begun - 1] - (cycle - records[-1].start))
    return left


def _ended(record: TaskRecord) -> int:
    assert record.end is not None
    return record.end
