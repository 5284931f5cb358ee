"""Sweeps: many models, core counts, memory settings and geometries, each point a run of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim import progress
from cosim.engines.engine import open_engine
from cosim.engines.library import DramConfig
from cosim.engines.settings import Number
from cosim.perf.measure import meter
from cosim.shards.cluster import Cluster, Ticket
from cosim.shards.errors import ClusterError, WorkersLost
from cosim.shards.run import STEP, Told, check_version
from cosim.shards.version import version
from rtl.config import RK3588, NpuConfig
from sw.compiler import CompiledModel, ModelError, compile_model
from sw.compiler.container import is_container
from sw.compiler.tiling import BANKS, fixed_weight_banks
from sw.driver import Driver

GEOMETRY = {"read_fifo_beats": range(32, RK3588.read_fifo_beats + 1)}
"""Choices of `NpuConfig` that programs do not depend on, with their values: the compiler plans for 12 banks
of 32 KiB, and the array has one size."""

LOOK = 0.2
"""Seconds between two looks at what the workers do."""


@dataclass(frozen=True)
class Point:
    """A model under settings.

    Members
    -------
    model : its name.
    cores : that share its large layers.
    dram, geometry : settings that differ from `DramConfig()` and `RK3588`, by name.
    weight_banks : banks of CBUF that the compiler gives weights where a layer's fit, None for its own choice.
    """

    model: str
    cores: int = 1
    dram: Mapping[str, Number] = field(default_factory=dict)
    geometry: Mapping[str, int] = field(default_factory=dict)
    weight_banks: int | None = None

    @property
    def config(self) -> NpuConfig:
        """The cores' geometry."""
        if not self.differs:
            return RK3588
        name = "-".join(["rk3588", *(f"{key}-{value}" for key, value in self.differs.items())])
        return replace(RK3588, name=name, **self.differs)

    @property
    def differs(self) -> dict[str, int]:
        """Choices of the geometry that are not the RK3588's."""
        return {key: value for key, value in self.geometry.items() if value != getattr(RK3588, key)}

    def __str__(self) -> str:
        settings = [f"{key}={value}" for key, value in {**self.dram, **self.geometry}.items()]
        if self.weight_banks:
            settings.append(f"weight_banks={self.weight_banks}")
        return ", ".join([self.model, f"cores={self.cores}", *settings])


@dataclass
class Row:
    """What a point gave; `match` is None where it was not checked, `error` empty where it ran."""

    point: Point
    cycles: int = 0
    tasks: int = 0
    macs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    array_busy: float = 0.0
    """Part of the core cycles of all tasks in which the array works."""
    match: bool | None = None
    first_difference: str = ""
    error: str = ""
    engine: str = ""
    cell: str = ""
    seconds: float = 0.0
    worker: str = ""
    retries: int = 0

    def as_json(self, clock_mhz: float) -> dict[str, Any]:
        """Plain columns; `ms` at a clock, `geometry` says when it is not the RK3588."""
        differs = self.point.differs
        geometry = ", ".join(f"{key}={value}" for key, value in differs.items())
        return {
            "model": self.point.model,
            "cores": self.point.cores,
            **{f"dram.{key}": value for key, value in self.point.dram.items()},
            **{f"geometry.{key}": value for key, value in self.point.geometry.items()},
            "weight_banks": self.point.weight_banks or "auto",
            "geometry": f"not the RK3588: {geometry}" if differs else RK3588.name,
            "cycles": self.cycles,
            "ms": round(self.cycles / clock_mhz / 1000, 6),
            "tasks": self.tasks,
            "macs": self.macs,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "array_busy": round(self.array_busy, 4),
            "match": self.match,
            "first_difference": self.first_difference,
            "error": self.error,
            "engine": self.engine,
            "cell": self.cell,
            "seconds": self.seconds,
            "worker": self.worker,
            "retries": self.retries,
        }


def geometry_settings() -> dict[str, type]:
    """Choices of the geometry that a sweep can change."""
    return dict.fromkeys(GEOMETRY, int)


def points(
    models: Sequence[str],
    cores: Sequence[int] = (1,),
    dram: Mapping[str, Sequence[Number]] | None = None,
    geometry: Mapping[str, Sequence[int]] | None = None,
    weight_banks: Sequence[int | None] = (None,),
) -> list[Point]:
    """All combinations, models outermost, each checked.

    Raises
    ------
    ValueError
        for a value out of range; names it.
    """
    result = [
        Point(model, count, memory, shape, banks)
        for model in models
        for count in cores
        for banks in weight_banks
        for memory in _combinations(dram or {})
        for shape in _combinations(geometry or {})
    ]
    for point in result:
        if point.cores not in (1, 2, 3):
            raise ValueError(f"cores must be 1 to 3, not {point.cores}")
        if point.weight_banks is not None and not 1 <= point.weight_banks < BANKS:
            raise ValueError(f"weights take 1 to {BANKS - 1} banks, not {point.weight_banks}")
        DramConfig(**point.dram)  # type: ignore[arg-type]  # checked by the class itself
        for key, value in point.geometry.items():
            if value not in GEOMETRY[key]:
                raise ValueError(f"{key} must be {GEOMETRY[key][0]} to {GEOMETRY[key][-1]}, not {value}")
    return result


def _combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class _Watched:
    """An engine that tells how far it is while a driver waits for interrupts."""

    def __init__(self, engine: Any, told: Told) -> None:
        self._engine, self._told = engine, told
        self._last = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        end = self._engine.cycle + max_cycles
        while True:
            raised = self._engine.run_until_irq(core_mask, min(STEP, end - self._engine.cycle))
            if raised or self._engine.cycle >= end:
                return int(raised)
            if time.monotonic() - self._last >= 1:
                self._last = time.monotonic()
                self._told("", self._engine.cycle)


def draw_inputs(model: CompiledModel, seed: int) -> list[npt.NDArray[np.float32]]:
    """Random real values that cover the codes of each input; of floats, normal ones."""
    rng = np.random.default_rng(seed)
    drawn = []
    for info in model.inputs:
        if info.dtype.kind == "f":
            drawn.append(rng.normal(size=info.shape).astype(np.float32))
            continue
        limits = np.iinfo(info.dtype)
        codes = rng.integers(limits.min, int(limits.max) + 1, info.shape)
        drawn.append(((codes - info.zero_point) * info.scale).astype(np.float32))
    return drawn


@dataclass(frozen=True)
class Settings:
    """What all points of a sweep have in common."""

    version: str
    engine: str | None = None
    exact: bool = False
    check: bool = True
    seed: int = 0


def run_point(point: Point, settings: Settings, data: bytes, told: Told) -> Row:
    """Run a point in a worker; what goes wrong with the model or the device is in the row.

    Parameters
    ----------
    data : the model file's bytes.
    """
    check_version(settings.version)
    begun = time.perf_counter()
    try:
        row = _run_point(point, settings, data, told)
    except (ClusterError, MemoryError):
        raise
    except Exception as error:  # of this point alone: the others go on
        text = str(error).partition("\n")[0] or type(error).__name__
        row = Row(point, error=text if isinstance(error, ModelError) else f"{type(error).__name__}: {text}")
    row.seconds = round(time.perf_counter() - begun, 3)
    return row


def _run_point(point: Point, settings: Settings, data: bytes, told: Told) -> Row:
    split = fixed_weight_banks(point.weight_banks) if point.weight_banks else nullcontext()
    with split:
        model = compile_model(data, reuse=False if settings.check else None, cores=point.cores)
    if point.weight_banks and is_container(data):
        raise ModelError("a compiled file has its tiles already, weight_banks cannot change them")
    if model.plan.cores != point.cores:
        raise ModelError(f"the file was compiled for {model.plan.cores} cores")
    inputs = draw_inputs(model, settings.seed)
    with open_engine(
        settings.engine,
        exact=settings.exact,
        cores=point.cores,
        config=point.config,
        dram=DramConfig(**point.dram),  # type: ignore[arg-type]
        threads=1,  # a worker is one of many
        progress=lambda text: told(text, 0),
    ) as engine:
        loaded = model.load(Driver(_Watched(engine, told)), meter=meter(engine))
        for number, values in enumerate(inputs):
            loaded.set_input(number, values)
        report = loaded.run()
        measures = [m for layer in report.layers for m in layer.measures]
        core_cycles = sum(m.cycles for m in measures)
        row = Row(
            point,
            cycles=report.cycles,
            tasks=len(measures),
            macs=sum(layer.macs for layer in report.layers),
            bytes_read=sum(m.bytes_read for m in measures),
            bytes_written=sum(m.bytes_written for m in measures),
            array_busy=sum(m.mac_busy or 0 for m in measures) / max(core_cycles, 1),
            engine=engine.name,
            cell=engine.cell,
        )
        if settings.check:
            told("checking", engine.cycle)
            row.match, row.first_difference = _checked(loaded, inputs, engine.name)
        loaded.close()
    return row


def _checked(loaded: Any, inputs: list[Any], engine: str) -> tuple[bool, str]:
    from cosim.crosscheck.model_check import ModelChecker

    checker = ModelChecker(loaded, device=engine)
    try:
        verdict = checker.check(inputs)
        address = checker.check_memory()
    finally:
        checker.close()
    if not verdict.match:
        return False, str(verdict.first)
    return address is None, "" if address is None else f"padding at 0x{address:08X}"


def run_sweep(
    cluster: Cluster,
    every: Sequence[Point],
    models: Mapping[str, Path],
    *,
    engine: str | None = None,
    exact: bool = False,
    check: bool = True,
    seed: int = 0,
    each: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Run all points on a cluster.

    Parameters
    ----------
    every : points, in the order of the result.
    models : file of each model by the points' names.
    check : compare every tensor with both golden models.
    each : called with each row as it comes, in any order.

    Raises
    ------
    ClusterError, OSError
    """
    settings = Settings(version(), engine, exact, check, seed)
    kept = {name: cluster.keep(path.read_bytes(), "model") for name, path in models.items()}
    tickets: dict[str, Point] = {}
    out: list[Ticket] = []
    for point in every:
        ticket = cluster.send(run_point, point, settings, kept[point.model], name=str(point))
        tickets[ticket.key] = point
        out.append(ticket)
    rows: dict[str, Row] = {}
    with progress.step("points", len(every), "done") as step:
        while len(rows) < len(out):
            cluster.wait(out, LOOK)
            for ticket in out:
                if ticket.ended and ticket.key not in rows:
                    row = _row(ticket, tickets[ticket.key])
                    rows[ticket.key] = row
                    if each:
                        each(row)
            step.done = len(rows)
            busy = [t for t in out if not t.ended and t.starts]
            step.detail = "; ".join(f"{t.name}: {t.said or f'{t.done:,} cycles'}" for t in busy)
    return [rows[ticket.key] for ticket in out]


def _row(ticket: Ticket, point: Point) -> Row:
    try:
        row: Row = ticket.result()
    except WorkersLost as error:
        row = Row(point, error=str(error))
    row.worker, row.retries = ticket.worker, ticket.retries
    return row
