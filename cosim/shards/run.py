"""One shard in a worker: an engine from its image, its tasks, its cycles, its memory compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cosim.engines.engine import open_engine
from cosim.engines.library import DramConfig
from cosim.engines.records import TaskRecord
from cosim.perf.measure import measure
from cosim.shards.errors import ClusterError, ShardError
from cosim.shards.images import Expected, Image, Pages, Wrong
from cosim.shards.plan import Span
from cosim.shards.version import version
from sw.compiler.runtime import TaskMeasure
from sw.driver.core_port import CorePort, Kick
from sw.driver.errors import DriverError
from sw.driver.job import Job, Task, fold_interrupts, interrupt_bits

STEP = 1 << 17
"""Cycles between two looks at how far a shard is, at most."""

FINE = 64
"""Cycles between two looks at a task that may end at any moment, unless the memory is so fast that a read
takes fewer: not more than that, so that the next task cannot have written anything."""

MAX_CYCLES = 1 << 32
"""Bound of a job or chain."""

Told = Callable[[str, int], None]
"""Takes what happens ("building ...") and the cycles simulated so far."""


@dataclass(frozen=True)
class Piece:
    """One span with all that simulating it needs.

    Members
    -------
    span : what it is.
    job : tasks from the span's lead to its end, of each core, and where the chain goes on those behind it
        whose words the core fetches meanwhile.
    least : cycles that each of them takes at least.
    before, after : pages that change ahead of it, and by its tasks.
    warm : jobs of a task each that its cores run before all that, for what a core that has worked does
        otherwise than one that has been reset; what they write is put back.
    """

    span: Span
    job: Job
    least: Sequence[int]
    before: Pages
    after: Pages
    warm: Sequence[Job] = ()


@dataclass(frozen=True)
class Order:
    """A shard to simulate; `name` is for messages, `version` that of who asks."""

    name: str
    pieces: Sequence[Piece]
    version: str
    engine: str | None = None
    exact: bool = False
    cores: int = 1
    dram: DramConfig | None = None


@dataclass(frozen=True)
class Counted:
    """What a piece cost: its cycles and its tasks' measures, whose starts count from the piece's border."""

    cycles: int
    measures: tuple[TaskMeasure, ...]


@dataclass(frozen=True)
class Outcome:
    """A shard that ended.

    Members
    -------
    counted : of each piece; only of those before and with the one that went wrong.
    wrong : the first byte that is not as the golden model has it, None where all are.
    engine, cell : what simulated it.
    simulated : cycles, the lead included.
    seconds, cpu_seconds : that it took.
    """

    counted: tuple[Counted, ...]
    wrong: Wrong | None
    engine: str
    cell: str
    simulated: int
    seconds: float
    cpu_seconds: float


def _untold(_what: str, _cycles: int) -> None:
    """Tell nobody."""


def check_version(wanted: str) -> None:
    """Refuse to work for another version of the project.

    Raises
    ------
    ClusterError
        naming both.
    """
    if version() != wanted:
        raise ClusterError(f"the worker has rkcosim {version()}, the program that asks has {wanted}")


def run_shard(order: Order, base: Image, told: Told = _untold) -> Outcome:
    """Simulate a shard.

    Parameters
    ----------
    order : what to do.
    base : memory that the pages of the order's pieces differ from.
    told : hears what happens, about once a second.

    Raises
    ------
    ShardError
        with the cause, for what the engine raised.
    ClusterError
        if this process has another version of the project.
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
        threads=1,  # a worker is one of many
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
    _last: float = field(default_factory=time.monotonic)

    def run(self, piece: Piece) -> Counted:
        """Simulate a piece; raises what engine and driver raise."""
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
        """Kick the cores of a job."""
        for core in job.cores:
            first, count = job.range_of(core)
            tasks = job.tasks[first : first + count]
            CorePort(self.engine, core).start(_kick(job, tasks))

    def finish(self, job: Job) -> None:
        """Run to the end of a job and answer its interrupts, with the accesses of `sw.driver.Driver`."""
        errors = interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        left = list(job.cores)
        limit = self.engine.cycle + MAX_CYCLES
        while left:
            if self.engine.cycle >= limit:
                raise DriverError(
                    f"no interrupt within {MAX_CYCLES} cycles: {self.engine.block_state(left[0])}"
                )
            raised = self.engine.run_until_irq(sum(1 << core for core in left), STEP)
            self._tell()
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
        """Run until the span's last task has ended, and hardly longer; gives the cycle of its end."""
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
            self._tell()
        faults = self.engine.faults()
        if faults:
            raise DriverError(f"DMA error: {faults[0]}")
        behind = records[last + 1 :]
        if any(record.counters.bytes_written for record in behind):
            raise DriverError(f"task {span.end} has written before the engine could be stopped")
        return _ended(records[last])

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._last >= 1:
            self._last = now
            self.told("", self.engine.cycle)


def _left(least: Sequence[int], records: Sequence[TaskRecord], last: int, cycle: int) -> int:
    """Cycles that will pass at least before task `last` of a chain ends."""
    begun = len(records)
    left = sum(least[begun : last + 1])
    if begun and records[-1].end is None:
        left += max(0, least[begun - 1] - (cycle - records[-1].start))
    return left


def _ended(record: TaskRecord) -> int:
    assert record.end is not None
    return record.end


def _kick(job: Job, tasks: Sequence[Task]) -> Kick:
    """The kick of some tasks as `sw.driver.Driver` writes it."""
    return Kick(
        base=tasks[0].regcmd_addr,
        amount=tasks[0].amount,
        tasks=len(tasks),
        mask=tasks[-1].int_mask,
        clear=tasks[0].int_mask,
        dma_base=job.task_base_addr,
        pp_en=int(job.pingpong),
    )
