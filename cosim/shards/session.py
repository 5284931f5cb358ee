"""A model's run in shards: the golden model on the client, the RTL on the workers, one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim import progress
from cosim.crosscheck.model_check import Difference
from cosim.engines.library import DramConfig
from cosim.models.run import ModelRun, Session, run_model
from cosim.shards.check import compare_levels
from cosim.shards.cluster import Cluster, Ticket, open_cluster
from cosim.shards.golden import GoldenDriver, Wrote
from cosim.shards.images import Image
from cosim.shards.join import ShardDifference, difference, join, report
from cosim.shards.plan import Shard, cut, shards_for, units
from cosim.shards.run import Order, Outcome, Piece, run_shard
from cosim.shards.version import version
from sw import rknn_api as api
from sw.compiler.runtime import RunReport

AUTO = "auto"

GOLDEN = "shards simulate the RTL; the engine golden has no cycles to put together"

FAULTS = "fault_read and fault_write count the bursts of a whole run, which no shard knows"

LOOK = 0.2
"""Seconds between two looks at what the workers do."""

IN_FLIGHT = 3
"""Shards for each worker that are out at a time, so that images do not pile up."""

NEARLY = 0.99
"""How far a shard that runs can be by its cycles alone."""

Values = Sequence[npt.NDArray[Any]]


@dataclass
class _Inference:
    """An inference whose golden run is over and whose shards are out."""

    number: int
    results: list[npt.NDArray[np.float32]]
    report: RunReport
    levels: Difference | None
    wrote: list[Wrote]
    tickets: list[Ticket]
    wrong: list[ShardDifference | None]


@dataclass
class _Device:
    """What stands for the device in the report: the workers' engine, once one has told its name."""

    name: str
    cell: str = "cpp"
    dram: Any = None
    reports: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Found:
    """Result of a check: `first` is the first difference."""

    first: Any

    @property
    def match(self) -> bool:
        return self.first is None


class ShardSession(Session):
    """A model whose inferences are simulated in shards.

    Parameters
    ----------
    model, engine, exact, cores, dram : see `Session`; `check` is always on and nothing is traced.
    cluster : where shards run.
    shards : how many an inference is cut into, or "auto".

    Raises
    ------
    RunError, ValueError
    """

    def __init__(
        self,
        model: str | Path,
        *,
        cluster: Cluster,
        shards: int | str = AUTO,
        engine: str | None = None,
        exact: bool = False,
        cores: int = 1,
        dram: DramConfig | None = None,
    ) -> None:
        if engine == "golden":
            raise ValueError(GOLDEN)
        self._cluster, self._wanted = cluster, shards
        self._engine, self._exact = engine, exact
        self._batch: list[Values] = []
        self._begun = 0
        self._under_way: list[_Inference] = []
        self._over: list[_Inference] = []
        self._tickets: list[Ticket] = []
        self._out: dict[str, Shard] = {}
        self._base: tuple[Image, Any] | None = None
        self._first_sent: float | None = None
        self._report: RunReport | None = None
        super().__init__(model, check=True, cores=cores, dram=dram)

    def _connect(self, *_: Any) -> None:
        self._driver = GoldenDriver(self.cores, self.dram)
        self.device = _Device(self._engine or "verilator", "rtl" if self._exact else "cpp", self.dram)
        api.use_device(self._driver, quiet=True)

    def _checker(self) -> Any:
        self._plan = api.compiled_model(self.context).plan
        chain = units(self._plan, dram=self.dram)
        count = self._wanted
        if count == AUTO:
            with progress.step("choosing the shards"):
                count = shards_for(chain, self._cluster.workers)
        self._shards = cut(chain, int(count))
        return self  # `check`, `check_memory` and `close` are its own

    # Running

    def expect(self, batch: Sequence[Values]) -> None:
        """Hear which inferences will be asked for; shards of later ones run while earlier ones end."""
        self._batch = list(batch)

    def infer(self, values: Values) -> list[npt.NDArray[np.float32]]:
        """Run the next inference."""
        number = len(self._over)
        if number >= len(self._batch):
            self._batch.append(values)
        with self._showing():
            while True:
                mine = self._under_way[0] if self._under_way else None
                if mine is not None and all(ticket.ended for ticket in mine.tickets):
                    break
                if self._begun < len(self._batch) and self._room():
                    self._begin(self._batch[self._begun])
                else:
                    self._wait()
        assert mine is not None
        self._finish(mine)
        return mine.results

    @property
    def report(self) -> RunReport | None:
        """`RunReport` of the last inference."""
        return self._report

    def check(self, _inputs: Sequence[Any]) -> _Found:
        """The first difference of the last inference: in a shard's memory, or of the golden levels."""
        last = self._over[-1]
        wrong = next((found for found in last.wrong if found is not None), None)
        return _Found(wrong or last.levels)

    def check_memory(self) -> None:
        """Nothing more: each shard's whole memory has been compared."""

    def shards(self) -> list[dict[str, Any]]:
        """Each shard of each inference: its tasks, who simulated it, how long, what it cost."""
        rows = []
        for inference in self._over:
            for shard, ticket, wrong in zip(self._shards, inference.tickets, inference.wrong, strict=True):
                outcome: Outcome = ticket.value
                rows.append(
                    {
                        "inference": inference.number,
                        "shard": shard.number,
                        "first_task": shard.first,
                        "last_task": shard.end - 1,
                        "worker": ticket.worker,
                        "seconds": outcome.seconds,
                        "cpu_seconds": outcome.cpu_seconds,
                        "cycles": sum(part.cycles for part in outcome.counted),
                        "simulated_cycles": outcome.simulated,
                        "retries": ticket.retries,
                        "match": wrong is None,
                    }
                )
        return rows

    def close(self) -> None:
        """Give up what is under way, free context and golden device."""
        self.checker = None
        super().close()

    # Inside

    def _room(self) -> bool:
        out = sum(not ticket.ended for ticket in self._tickets)
        return out < IN_FLIGHT * self._cluster.workers

    def _wait(self) -> None:
        self._tickets = [ticket for ticket in self._tickets if not ticket.ended]
        self._cluster.wait(self._tickets, LOOK)
        for ticket in self._tickets:
            if ticket.ended:
                ticket.result()  # raises what went wrong

    def _begin(self, values: Values) -> None:
        """Run an inference on the golden model; its shards go out meanwhile."""
        number, sent = self._begun, len(self._shards)
        tickets: list[Ticket] = []

        def send(shard: Shard, pieces: list[Piece], base: Image) -> None:
            while not self._room():
                self._wait()
            tickets.append(self._send(number, shard, pieces, base))

        self._driver.begin(self._plan, self._shards, send)
        results = super().infer(values)
        assert len(tickets) == sent
        levels = compare_levels(api.loaded_model(self.context), values)
        golden = super().report
        self._under_way.append(
            _Inference(number, results, golden, levels, self._driver.wrote, tickets, [None] * sent)
        )
        self._begun += 1

    def _send(self, number: int, shard: Shard, pieces: list[Piece], base: Image) -> Ticket:
        if self._base is None or self._base[0] is not base:
            self._base = base, self._cluster.keep(base, "image")
        name = f"inference {number}, shard {shard.number} ({shard.tasks})"
        order = Order(name, pieces, version(), self._engine, self._exact, self.cores, self.dram)
        if self._first_sent is None:
            self._first_sent = time.perf_counter()
        ticket = self._cluster.send(run_shard, order, self._base[1], name=name)
        self._out[ticket.key] = shard
        self._tickets.append(ticket)
        return ticket

    def _finish(self, mine: _Inference) -> None:
        """Put an inference's shards together."""
        self._under_way.remove(mine)
        outcomes: list[Outcome] = [ticket.result() for ticket in mine.tickets]
        mine.wrong = [
            difference(shard, outcome, self._plan, mine.wrote)
            for shard, outcome in zip(self._shards, outcomes, strict=True)
        ]
        self.device.name, self.device.cell = outcomes[0].engine, outcomes[0].cell
        whole = all(
            len(outcome.counted) == len(shard.spans)
            for shard, outcome in zip(self._shards, outcomes, strict=True)
        )
        if whole:
            joined = join(self._shards, [outcome.counted for outcome in outcomes])
            self._report = report(mine.report, self._plan, joined)
        else:  # a shard stopped at its first wrong byte
            self._report = mine.report
        if self._first_sent is not None:
            self.run_seconds = time.perf_counter() - self._first_sent
        self._over.append(mine)

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Show how far the shards are while waiting for them."""
        total = len(self._shards) * len(self._batch)
        with progress.step("shards", total, "") as step:

            def poll() -> None:
                step.done, step.detail = self._progress()

            step.poll = poll
            yield

    def _progress(self) -> tuple[float, str]:
        """Shards that have ended, with parts of those under way, and words for each of these."""
        done = float(len(self._shards) * len(self._over))
        words = []
        for inference in list(self._under_way):
            done += sum(ticket.ended for ticket in inference.tickets)
        for ticket in list(self._tickets):
            if not ticket.ended and ticket.starts:
                shard = self._out[ticket.key]
                part = min(ticket.done / max(shard.cost, 1), NEARLY)
                done += part
                words.append(f"{shard.number}: {ticket.said or f'{part:.0%}'}")
        return done, ", ".join(words)


def run_sharded(
    model: str | Path,
    batch: Sequence[Values] | None = None,
    *,
    shards: int | str = AUTO,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
    engine: str | None = None,
    exact: bool = False,
    labels: Sequence[int] | None = None,
    reference: bool = False,
    seed: int = 0,
    cores: int = 1,
    dram: DramConfig | None = None,
    each: Callable[[int, list[npt.NDArray[np.float32]], bool | None], None] | None = None,
) -> ModelRun:
    """Run a model as `run_model` does with `check`, its tasks in parallel.

    Parameters
    ----------
    model, batch, engine, exact, labels, reference, seed, cores, dram, each : see `run_model`.
    shards : how many an inference is cut into, or "auto".
    scheduler, workers : see `open_cluster`; not used if `cluster` is given.
    cluster : an open one.

    Raises
    ------
    ClusterError, ShardError, RunError, EngineError, ValueError
    """
    if shards != AUTO and (not isinstance(shards, int) or shards < 1):
        raise ValueError(f"shards must be a positive number or 'auto', not {shards!r}")
    if engine == "golden":
        raise ValueError(GOLDEN)
    if dram is not None and (dram.fault_read or dram.fault_write):
        raise ValueError(FAULTS)
    with ExitStack() as stack:
        if cluster is None:
            if scheduler is None:
                build(engine, exact)
            with progress.step("starting the cluster" if scheduler is None else "connecting to the cluster"):
                cluster = stack.enter_context(open_cluster(scheduler, workers))
        there = cluster

        def session(path: str | Path, **options: Any) -> ShardSession:
            kept = {name: options[name] for name in ("engine", "exact", "cores", "dram")}
            return ShardSession(path, cluster=there, shards=shards, **kept)

        return run_model(
            model,
            batch,
            engine=engine,
            exact=exact,
            labels=labels,
            reference=reference,
            seed=seed,
            cores=cores,
            dram=dram,
            each=each,
            session_of=session,
        )


def build(engine: str | None, exact: bool) -> None:
    """Build the engine in this process, which shows it, rather than in each worker of this machine."""
    from cosim.engines.engine import open_engine

    open_engine(engine, exact=exact, cores=1).close()
