"""Estimates of tasks, layers and models, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosim.engines.library import DramConfig
from cosim.perf.estimator.coefficients import Coefficients, stored
from cosim.perf.estimator.features import TaskShape
from cosim.perf.estimator.memory import Memory, Time
from cosim.perf.estimator.model import shared_times, task_time
from cosim.perf.estimator.tasks import PlannedTask, product_tasks
from cosim.perf.estimator.tasks import planned_tasks as _planned
from sw.compiler import CompiledModel, compile_model
from sw.compiler.matmul import Matmul
from sw.compiler.plan import Plan
from sw.compiler.steps import HostStep


@dataclass(frozen=True)
class TaskEstimate:
    """One task: its place in the plan's list and layer, its time, and the cycles before it (`gap`)."""

    index: int
    layer: int
    name: str
    core: int
    cycles: int
    gap: int
    bound: str
    shape: TaskShape


@dataclass(frozen=True)
class LayerEstimate:
    """One layer, as `sw.compiler.LayerReport` has it: `cycles` None for what the host computes."""

    index: int
    name: str
    op: str
    target: str
    tasks: int
    cycles: int | None
    bound: str
    macs: int
    bytes_read: int
    bytes_written: int
    peak: int = 0
    """MACs of a cycle that the array gives at most for its type and kind."""


@dataclass
class Estimate:
    """Cycles of a model; `cycles` are those of all jobs, from the host's start to the interrupt.

    Attributes
    ----------
    tasks, layers, jobs
        in the order of the plan; `jobs` are cycles.
    host
        names of the layers that the host computes: their time is not in here.
    """

    cycles: int
    tasks: list[TaskEstimate]
    layers: list[LayerEstimate]
    jobs: list[int] = field(default_factory=list)
    dram: DramConfig = field(default_factory=DramConfig)
    cores: int = 1

    @property
    def host(self) -> list[str]:
        """Layers of the host."""
        return [layer.name for layer in self.layers if layer.target == "host"]


Estimated = bytes | Path | CompiledModel | Plan | Matmul


def estimate_model(
    model: Estimated,
    *,
    dram: DramConfig | None = None,
    cores: int = 1,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """Estimate a model, a compiled one, its plan, or a matrix product.

    Parameters
    ----------
    model
        bytes or path of a file that `sw.compiler.compile_model` takes, or what became of it.
    dram
        memory timing, in cycles of the NPU; default as the engine's.
    cores
        to share layers among, where `model` is not compiled yet; else it is what it was compiled for.
    coefficients
        default: the stored ones.

    Raises
    ------
    ModelError
        for a model that the compiler refuses.
    ValueError
        for a task of a kind that is not estimated.
    """
    dram, c = dram or DramConfig(), coefficients or stored()
    if isinstance(model, Matmul):
        return _estimate_product(model, dram, c)
    if isinstance(model, Path):
        model = model.read_bytes()
    if isinstance(model, bytes):
        model = compile_model(model, cores=cores)
    return _estimate_plan(model.plan if isinstance(model, CompiledModel) else model, dram, c)


def _estimate_plan(plan: Plan, dram: DramConfig, c: Coefficients) -> Estimate:
    tasks = _planned(plan)
    found: list[TaskEstimate] = []
    jobs: list[int] = []
    together: dict[int, int] = {}
    for segment in plan.segments():
        if segment.host is not None:
            continue
        parts = [tasks[segment.first + first :][:count] for first, count in segment.parts]
        cycles, estimates = _job(parts, segment.first, dram, c)
        found += estimates
        jobs.append(cycles)
        if len(parts) > 1:
            together[plan.tasks[segment.first].layer] = cycles
    found.sort(key=lambda task: task.index)
    layers = []
    for number, step in enumerate(plan.steps):
        of = [task for task in found if task.layer == number]
        moved = [task.shape.moved() for task in of]
        host = isinstance(step, HostStep)
        layers.append(
            LayerEstimate(
                number,
                step.name,
                step.kind,
                "host" if host else "npu",
                len(of),
                None if host else together.get(number, sum(task.cycles for task in of)),
                max(of, key=lambda task: task.cycles).bound if of else "",
                sum(plan.tasks[task.index].macs for task in of),
                sum(read for read, _ in moved),
                sum(written for _, written in moved),
                max((task.shape.peak_macs for task in of), default=0),
            )
        )
    for op in plan.graph.host_ops:
        if op.kind == "Softmax":
            layers.append(LayerEstimate(-1, op.name, op.kind, "host", 0, None, "", 0, 0, 0))
    return Estimate(sum(jobs), found, layers, jobs, dram, plan.cores)


def _estimate_product(product: Matmul, dram: DramConfig, c: Coefficients) -> Estimate:
    cycles, tasks = _job([product_tasks(product)], 0, dram, c)
    moved = [task.shape.moved() for task in tasks]
    layer = LayerEstimate(
        0,
        product.kind.name,
        "MatMul",
        "npu",
        len(tasks),
        sum(task.cycles + task.gap for task in tasks) - tasks[0].gap,
        max(tasks, key=lambda task: task.cycles).bound,
        product.m * product.k * product.n,
        sum(read for read, _ in moved),
        sum(written for _, written in moved),
        tasks[0].shape.peak_macs,
    )
    return Estimate(cycles, tasks, [layer], [cycles], dram, 1)


def _job(
    parts: Sequence[Sequence[PlannedTask]], first: int, dram: DramConfig, c: Coefficients
) -> tuple[int, list[TaskEstimate]]:
    """Cycles of a job whose parts run side by side, and its tasks."""
    times: list[list[Time]] = shared_times(
        [[task.shape for task in part] for part in parts], Memory.of(dram), c
    )
    found = []
    longest = 0.0
    index = first
    for core, (part, spent) in enumerate(zip(parts, times, strict=True)):
        total = 0.0
        before = None
        for task, time in zip(part, spent, strict=True):
            gap = gap_before(task.shape, before, dram, c, core)
            before = time.cycles
            total += gap + time.cycles
            found.append(
                TaskEstimate(
                    index, task.layer, task.name, core, round(time.cycles), round(gap), time.bound, task.shape
                )
            )
            index += 1
        longest = max(longest, total)
    return round(longest), found


def gap_before(
    shape: TaskShape, before: float | None, dram: DramConfig, c: Coefficients, core: int = 0
) -> float:
    """Cycles before a task's start, from the end of the one before (`before`: its cycles) or the kick.

    The next list of commands is fetched while a task runs; what follows an access to the DPU's tables
    waits until the DPU is idle.  The host starts the cores of a job one after the other.
    """
    fetch = c["kick"] + dram.read_latency + shape.words
    if before is None:
        return fetch + core * c["kick_next"]
    gap = shape.lut_words + c["lut_gap"] if shape.lut_words else c["gap"]
    return max(gap, fetch - before)


def estimate_shape(
    shape: TaskShape, dram: DramConfig | None = None, coefficients: Coefficients | None = None
) -> Time:
    """Time of one task that has the memory for itself."""
    return task_time(shape, Memory.of(dram or DramConfig()), coefficients or stored())


def as_json(estimate: Estimate) -> dict[str, Any]:
    """Plain values of an estimate."""
    return {
        "cycles": estimate.cycles,
        "cores": estimate.cores,
        "jobs": estimate.jobs,
        "layers": [layer.__dict__ for layer in estimate.layers],
        "tasks": [
            {
                "index": task.index,
                "layer": task.layer,
                "name": task.name,
                "core": task.core,
                "cycles": task.cycles,
                "gap": task.gap,
                "bound": task.bound,
            }
            for task in estimate.tasks
        ],
        "host": estimate.host,
    }
