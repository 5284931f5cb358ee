"""Sweeps over models, numbers of cores, memory settings and geometries; each point is a separate run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rkcosim.base import progress, version
from rkcosim.base.files import is_container
from rkcosim.compiler import ModelError
from rkcosim.compiler.batch import batch_size, load
from rkcosim.compiler.tiling import BANKS, fixed_weight_banks
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.engines.settings import Number
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.perf.boards.expected import board_milliseconds
from rkcosim.measure.shards.cluster import Cluster, ClusterError, WorkersLost
from rkcosim.measure.shards.run import STEP, Reporter, Told, check_version
from rkcosim.rknn_file import is_rknn
from rkcosim.rknn_file.opening import open_model
from rkcosim.running.meter import meter
from rkcosim.spec.config import RK3588, NpuConfig

GEOMETRY = {"read_fifo_beats": range(32, RK3588.read_fifo_beats + 1)}
"""Parameters of `NpuConfig` that programs do not depend on, with values; the compiler plans for 12 banks
of 32 KiB, and the size of the array is fixed."""


@dataclass(frozen=True)
class Point:
    """A model with settings.

    Members
    -------
    model : name of the model.
    cores : number of cores that share its large layers.
    dram, geometry : settings that differ from `DramConfig()` and `RK3588`, by name.
    weight_banks : banks of CBUF for weights in layers that fit; None for the compiler's choice.
    """

    model: str
    cores: int = 1
    dram: Mapping[str, Number] = field(default_factory=dict)
    geometry: Mapping[str, int] = field(default_factory=dict)
    weight_banks: int | None = None

    @property
    def config(self) -> NpuConfig:
        """Geometry of the cores."""
        if not self.differs:
            return RK3588
        name = "-".join(["rk3588", *(f"{key}-{value}" for key, value in self.differs.items())])
        changes: dict[str, Any] = {"name": name, **self.differs}
        return replace(RK3588, **changes)

    @property
    def differs(self) -> dict[str, int]:
        """Parameters of the geometry that differ from the RK3588's."""
        return {key: value for key, value in self.geometry.items() if value != getattr(RK3588, key)}

    def __str__(self) -> str:
        settings = [f"{key}={value}" for key, value in {**self.dram, **self.geometry}.items()]
        if self.weight_banks:
            settings.append(f"weight_banks={self.weight_banks}")
        return ", ".join([self.model, f"cores={self.cores}", *settings])


@dataclass
class SweepRow:
    """Result of a point; `match` is None if it was not checked, `error` is empty if it ran."""

    point: Point
    cycles: int = 0
    submits: int = 0
    tasks: int = 0
    macs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    array_busy: float = 0.0
    """Share of the core cycles of all tasks in which the array works."""
    match: bool | None = None
    first_difference: str = ""
    error: str = ""
    engine: str = ""
    cell: str = ""
    seconds: float = 0.0
    worker: str = ""
    retries: int = 0

    def as_json(self, clock_mhz: float) -> dict[str, Any]:
        """Return plain columns; `ms` at a clock, `geometry` tells if it is not the RK3588's."""
        differs = self.point.differs
        geometry = ", ".join(f"{key}={value}" for key, value in differs.items())
        row = asdict(self)
        for name in ("point", "cycles", "submits"):
            del row[name]
        return {
            "model": self.point.model,
            "cores": self.point.cores,
            **{f"dram.{key}": value for key, value in self.point.dram.items()},
            **{f"geometry.{key}": value for key, value in self.point.geometry.items()},
            "weight_banks": self.point.weight_banks or "auto",
            "geometry": f"not the RK3588: {geometry}" if differs else RK3588.name,
            "cycles": self.cycles,
            "ms": round(self.cycles / clock_mhz / 1000, 6),
            "submits": self.submits,
            "ms_with_driver": round(board_milliseconds(self.cycles, self.submits, clock_mhz), 6),
            **row,
            "array_busy": round(self.array_busy, 4),
        }


def geometry_settings() -> dict[str, type]:
    """Return the parameters of the geometry that a sweep can change."""
    return dict.fromkeys(GEOMETRY, int)


def points(
    models: Sequence[str],
    cores: Sequence[int] = (1,),
    dram: Mapping[str, Sequence[Number]] | None = None,
    geometry: Mapping[str, Sequence[int]] | None = None,
    weight_banks: Sequence[int | None] = (None,),
) -> list[Point]:
    """Return all combinations, models outermost, each checked.

    Raises
    ------
    ValueError
        If a value is out of range; the message names it.
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
        DramConfig(**point.dram)  # type: ignore[arg-type]  # the class checks its values
        for key, value in point.geometry.items():
            if value not in GEOMETRY[key]:
                raise ValueError(f"{key} must be {GEOMETRY[key][0]} to {GEOMETRY[key][-1]}, not {value}")
    return result


def _combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class _Watched:
    """An engine that reports its progress while a driver waits for interrupts."""

    def __init__(self, engine: Any, told: Told) -> None:
        self._engine, self._tell = engine, Reporter(told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        end = self._engine.cycle + max_cycles
        while True:
            raised = self._engine.run_until_irq(core_mask, min(STEP, end - self._engine.cycle))
            if raised or self._engine.cycle >= end:
                return int(raised)
            self._tell(self._engine.cycle)


@dataclass(frozen=True)
class Settings:
    """Settings that all points of a sweep share."""

    version: str
    engine: str | None = None
    exact: bool = False
    check: bool = True
    seed: int = 0


def run_point(point: Point, settings: Settings, data: bytes, told: Told) -> SweepRow:
    """Run a point in a worker; an error of the model or the device becomes part of the row.

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
    except Exception as error:  # it concerns only this point; the others continue
        text = str(error).partition("\n")[0] or type(error).__name__
        row = SweepRow(
            point, error=text if isinstance(error, ModelError) else f"{type(error).__name__}: {text}"
        )
    row.seconds = round(time.perf_counter() - begun, 3)
    return row


def _run_point(point: Point, settings: Settings, data: bytes, told: Told) -> SweepRow:
    split = fixed_weight_banks(point.weight_banks) if point.weight_banks else nullcontext()
    with split:
        model = open_model(data, reuse=False if settings.check else None, cores=point.cores)
    if point.weight_banks and (is_container(data) or is_rknn(data)):
        raise ModelError("weight_banks cannot change the tiles of a compiled file")
    if model.plan.cores != point.cores:
        raise ModelError(f"the file was compiled for {model.plan.cores} cores")
    inputs = random_reals(model.inputs, settings.seed)
    # One thread each: there are many workers.
    common: dict[str, Any] = {"exact": settings.exact, "cores": point.cores, "threads": 1}
    common |= {"dram": DramConfig(**point.dram), "progress": lambda text: told(text, 0)}  # type: ignore[arg-type]
    config = point.config if point.differs else None
    with open_engine(settings.engine, config=config, **common) as engine:
        loaded = load(model, Driver(_Watched(engine, told)), meter(engine))
        for number, values in enumerate(inputs):
            loaded.set_input(number, values)
        checker = None
        if settings.check:
            from rkcosim.verify.crosscheck.checks import checker_for

            checker = checker_for(loaded, engine.name)
        report = loaded.run()
        measures = [m for layer in report.layers for m in layer.measures]
        core_cycles = sum(m.cycles for m in measures)
        row = SweepRow(
            point,
            cycles=report.cycles,
            submits=model.plan.jobs * batch_size(model),
            tasks=len(measures),
            macs=sum(layer.macs for layer in report.layers),
            bytes_read=sum(m.bytes_read for m in measures),
            bytes_written=sum(m.bytes_written for m in measures),
            array_busy=sum(m.mac_busy or 0 for m in measures) / max(core_cycles, 1),
            engine=engine.name,
            cell=engine.cell,
        )
        if checker is not None:
            told("checking", engine.cycle)
            row.match, row.first_difference = _checked(checker, inputs)
        loaded.close()
    return row


def _checked(checker: Any, inputs: list[Any]) -> tuple[bool, str]:
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
    each: Callable[[SweepRow], None] | None = None,
) -> list[SweepRow]:
    """Run all points on a cluster.

    Parameters
    ----------
    every : the points, in the order of the result.
    models : file of each model, by the names in the points.
    check : compare every tensor with both golden models.
    each : called with each row as soon as it is available, in any order.

    Raises
    ------
    ClusterError, OSError
    """
    settings = Settings(version(), engine, exact, check, seed)
    kept = {name: cluster.keep(path.read_bytes()) for name, path in models.items()}
    tickets = [cluster.send(run_point, p, settings, kept[p.model], name=str(p)) for p in every]
    rows: dict[int, SweepRow] = {}
    with progress.step("points", len(every), "done") as step:
        while len(rows) < len(every):
            cluster.wait(tickets)
            for number, ticket in enumerate(tickets):
                if ticket.ended and number not in rows:
                    try:
                        row = ticket.result()
                    except WorkersLost as error:
                        row = SweepRow(every[number], error=str(error))
                    row.worker, row.retries = ticket.worker, ticket.retries
                    rows[number] = row
                    if each:
                        each(row)
            step.done = len(rows)
            busy = [t for t in tickets if not t.ended and t.starts]
            step.detail = "; ".join(f"{t.name}: {t.said or f'{t.done:,} cycles'}" for t in busy)
    return [rows[number] for number in range(len(every))]
