"""A model's run in shards: the golden model on the client, the RTL on the workers, one report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim import rknn_api as api
from rkcosim.base import progress, version
from rkcosim.compiler import LoadedModel
from rkcosim.compiler.batch import batch_size
from rkcosim.compiler.runtime import RunReport
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import CHANGES, ENGINES, FAST, require
from rkcosim.measure.models.run import ModelRun, run_model
from rkcosim.measure.shards.cluster import Cluster, Ticket, open_cluster
from rkcosim.measure.shards.golden import GoldenDriver, Wrote
from rkcosim.measure.shards.images import Image
from rkcosim.measure.shards.join import ShardDifference, difference, join, report
from rkcosim.measure.shards.plan import Shard, cut, shards_for, units
from rkcosim.measure.shards.run import Order, Outcome, Piece, run_shard
from rkcosim.running.session import Session
from rkcosim.verify.crosscheck.model_check import Difference, first_difference, graph_tensors

AUTO = "auto"

FAULTS = "fault_read and fault_write count the bursts of a whole run, which a shard does not know"

IN_FLIGHT = 3
"""Largest number of unfinished shards per worker, so that images do not accumulate."""

NEARLY = 0.99
"""Largest progress that a running shard can show from its cycles alone."""

Values = Sequence[npt.NDArray[Any]]


@dataclass
class _Inference:
    """An inference whose golden run has ended and whose shards have been sent."""

    number: int
    results: list[npt.NDArray[np.float32]]
    report: RunReport
    levels: Difference | None
    wrote: list[Wrote]
    tickets: list[Ticket]
    wrong: list[ShardDifference | None]


@dataclass
class _Device:
    """Stands for the workers' engine in the report, with its name once known; it measures nothing."""

    name: str
    cell: str = "cpp"
    dram: Any = None
    resumed_at = 0
    has_cycles = False

    def task_log(self) -> list[Any]:
        """Return no tasks: they run on the workers."""
        return []

    def task_count(self) -> int:
        """Return 0: the tasks run on the workers."""
        return 0

    def close(self) -> None:
        """Do nothing, because nothing is open."""


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
    model, engine, exact, cores, dram : see `Session`; everything is checked, and there is no trace.
    cluster : cluster that simulates the shards.
    shards : number of shards of an inference, or "auto".

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
        super().__init__(model, checker=self._cut, cores=cores, dram=dram)

    def _connect(self, *_: Any) -> None:
        self._driver = GoldenDriver(self.cores, self.dram)
        self.device = _Device(self._engine or "verilator", "rtl" if self._exact else "cpp", self.dram)
        api.use_device(self._driver, quiet=True)

    def _cut(self, *_: Any) -> Any:
        """Cut the model's chain into shards; they are compared with the golden model as they end."""
        model = api.compiled_model(self.context)
        if batch_size(model) > 1:
            raise ValueError(
                f"a run in shards is for models of one sample; {self.path.name} has a batch of {model.batch}"
            )
        self._plan = model.plan
        chain = units(self._plan, dram=self.dram)
        count = self._wanted
        if count == AUTO:
            with progress.step("choosing the shards"):
                count = shards_for(chain, self._cluster.workers)
        self._shards = cut(chain, int(count))
        return self  # it has the methods of a `rkcosim.running.session.Checker`

    # Running

    def expect(self, batch: Sequence[Values]) -> None:
        """Announce the inferences in order; shards of later ones run while earlier ones end."""
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

    def begin(self, _inputs: Sequence[Any]) -> None:
        """Do nothing: `expect` has announced the inferences."""

    def check(self, _inputs: Sequence[Any]) -> _Found:
        """The first difference of the last inference: in a shard's memory, or between golden models."""
        last = self._over[-1]
        wrong = next((found for found in last.wrong if found is not None), None)
        return _Found(wrong or last.levels)

    def check_memory(self) -> None:
        """Do nothing more: the whole memory of each shard has been compared."""

    def levels(self) -> dict[str, Any]:
        """Return the members of a verdict without differences: the levels that were compared."""
        return {"levels": [self.device.name, "task golden", "graph golden"]}

    def taken(self) -> float:
        """Return 0: nothing is checked within a run."""
        return 0.0

    def shards(self) -> list[dict[str, Any]]:
        """Return, for each shard of each inference, its tasks, its worker, its time and its cost."""
        return [
            {
                "inference": inference.number,
                "shard": shard.number,
                "first_task": shard.first,
                "last_task": shard.end - 1,
                "worker": ticket.worker,
                "seconds": ticket.value.seconds,
                "cpu_seconds": ticket.value.cpu_seconds,
                "cycles": sum(part.cycles for part in ticket.value.counted),
                "simulated_cycles": ticket.value.simulated,
                "retries": ticket.retries,
                "match": wrong is None,
            }
            for inference in self._over
            for shard, ticket, wrong in zip(self._shards, inference.tickets, inference.wrong, strict=True)
        ]

    def close(self) -> None:
        """Cancel unfinished work, and free context and golden device."""
        self.checker = None
        super().close()

    # Inside

    def _room(self) -> bool:
        out = sum(not ticket.ended for ticket in self._tickets)
        return out < IN_FLIGHT * self._cluster.workers

    def _wait(self) -> None:
        self._tickets = [ticket for ticket in self._tickets if not ticket.ended]
        self._cluster.wait(self._tickets)
        for ticket in self._tickets:
            if ticket.ended:
                ticket.result()  # raises the error of a failed shard

    def _begin(self, values: Values) -> None:
        """Run an inference on the golden model; its shards are sent meanwhile."""
        number, sent = self._begun, len(self._shards)
        tickets: list[Ticket] = []

        def send(shard: Shard, pieces: list[Piece], base: Image) -> None:
            while not self._room():
                self._wait()
            tickets.append(self._send(number, shard, pieces, base))

        self._driver.begin(self._plan, self._shards, send)
        results = super().infer(values)
        assert len(tickets) == sent
        levels = _compare_levels(api.loaded_model(self.context), values)
        golden = super().report
        self._under_way.append(
            _Inference(number, results, golden, levels, self._driver.wrote, tickets, [None] * sent)
        )
        self._begun += 1

    def _send(self, number: int, shard: Shard, pieces: list[Piece], base: Image) -> Ticket:
        if self._base is None or self._base[0] is not base:
            self._base = base, self._cluster.keep(base)
        name = f"inference {number}, shard {shard.number} ({shard.tasks})"
        order = Order(name, pieces, version(), self._engine, self._exact, self.cores, self.dram)
        if self._first_sent is None:
            self._first_sent = time.perf_counter()
        ticket = self._cluster.send(run_shard, order, self._base[1], name=name)
        self._out[ticket.key] = shard
        self._tickets.append(ticket)
        return ticket

    def _finish(self, mine: _Inference) -> None:
        """Join the shards of an inference."""
        self._under_way.remove(mine)
        outcomes: list[Outcome] = [ticket.result() for ticket in mine.tickets]
        pairs = list(zip(self._shards, outcomes, strict=True))
        mine.wrong = [difference(shard, outcome, self._plan, mine.wrote) for shard, outcome in pairs]
        self.device.name, self.device.cell = outcomes[0].engine, outcomes[0].cell
        self._report = mine.report  # used if a shard stopped at its first wrong byte
        if all(len(outcome.counted) == len(shard.spans) for shard, outcome in pairs):
            joined = join(self._shards, [outcome.counted for outcome in outcomes])
            self._report = report(mine.report, self._plan, joined)
        if self._first_sent is not None:
            self.run_seconds = time.perf_counter() - self._first_sent
        self._over.append(mine)

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Show the progress of the shards while waiting for them."""
        total = len(self._shards) * len(self._batch)
        with progress.step("shards", total, "") as step:

            def poll() -> None:
                step.done, step.detail = self._progress()

            step.poll = poll
            yield

    def _progress(self) -> tuple[float, str]:
        """Return the number of finished shards, with fractions of running ones, and a text about these."""
        done = float(len(self._shards) * len(self._over))
        done += sum(ticket.ended for inference in list(self._under_way) for ticket in inference.tickets)
        words = []
        for ticket in list(self._tickets):
            if not ticket.ended and ticket.starts:
                shard = self._out[ticket.key]
                part = min(ticket.done / max(shard.cost, 1), NEARLY)
                done += part
                words.append(f"{shard.number}: {ticket.said or f'{part:.0%}'}")
        return done, ", ".join(words)


def _compare_levels(loaded: LoadedModel, inputs: Sequence[npt.ArrayLike]) -> Difference | None:
    """Compare the tensors that the task-level model left in memory with the graph level's.

    Parameters
    ----------
    loaded : the model on the golden driver, after a run.
    inputs : real values or codes in the model's shapes.
    """
    model = loaded.model
    graph = graph_tensors(model, [model.encode_input(n, values) for n, values in enumerate(inputs)])
    for step in model.graph_nodes():
        name = step.output.name
        if model.graph.root(name) not in model.plan.lost:
            task_level, graph_level = ("task golden", loaded.tensor(name)), ("graph golden", graph[name])
            if found := first_difference(loaded, step, task_level, graph_level):
                return found
    return None


def run_sharded(
    model: str | Path,
    batch: Sequence[Values] | None = None,
    *,
    shards: int | str = AUTO,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
    **asked: Any,
) -> ModelRun:
    """Run a model like `run_model` with `check`, with its tasks in parallel.

    Parameters
    ----------
    model, batch, asked : as for `run_model`, except `check` and `trace`.
    shards : number of shards of an inference, or "auto".
    scheduler, workers : see `open_cluster`; unused if `cluster` is given.
    cluster : an open cluster.

    Raises
    ------
    ClusterError, ShardError, RunError, EngineError, ValueError
    """
    if shards != AUTO and (not isinstance(shards, int) or shards < 1):
        raise ValueError(f"shards must be a positive number or 'auto', not {shards!r}")
    engine, exact, dram = asked.get("engine"), asked.get("exact", False), asked.get("dram")
    require(engine, "has_cycles", "a run in shards")
    if engine in (CHANGES, FAST):
        raise ValueError(f"a run in shards needs one of: {', '.join(ENGINES)}; not the engine {engine}")
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

        return run_model(model, batch, **asked, session_of=session)


def build(engine: str | None, exact: bool) -> None:
    """Build the engine in this process, with visible progress, instead of in each local worker."""
    from rkcosim.engines.engine import open_engine

    open_engine(engine, exact=exact, cores=1).close()
