"""Estimates of tasks, jobs, layers and models without simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from rkcosim.base.files import read_model
from rkcosim.compiler import CompiledModel
from rkcosim.compiler.batch import BatchModel
from rkcosim.compiler.matmul import Matmul
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.steps import HostStep, layer_names
from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.hosted import HostWork, host_work_of_plan
from rkcosim.measure.perf.attribution import HOST, Attribution, Ran, attribute, together
from rkcosim.measure.perf.estimator.accesses import Coefficients, Memory
from rkcosim.measure.perf.estimator.coefficients import stored
from rkcosim.measure.perf.estimator.features import BEAT, POOL, LoadedFirst, TaskShape
from rkcosim.measure.perf.estimator.flows import NO_LISTS, Lists, flow
from rkcosim.measure.perf.estimator.hardware import RK3588_RATES, Hardware
from rkcosim.measure.perf.estimator.tasks import jobs_of
from rkcosim.measure.perf.estimator.turns import Span, spans
from rkcosim.rknn_file.opening import open_model
from rkcosim.spec.octets import OctetRate

WORD_BYTES = 8


@dataclass
class Time:
    """Cycles of a task, also by cause."""

    cycles: float
    of: Attribution


@dataclass(frozen=True)
class TaskEstimate:
    """One task: its index in the plan's list, its layer, its time, and the cycles before it (`gap`)."""

    index: int
    layer: int
    name: str
    core: int
    cycles: int
    gap: int
    of: Attribution
    shape: TaskShape

    @property
    def bound(self) -> str:
        """The cause of most cycles, in words."""
        return self.of.bound


@dataclass(frozen=True)
class LayerEstimate:
    """One layer, as in `rkcosim.compiler.LayerReport`; `cycles` is None for a layer of the host."""

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
    """Largest number of MACs per cycle of the array for its type and kind."""
    spent: dict[str, int] = field(default_factory=dict)
    """Cycles of all cores that run it by cause (`rkcosim.measure.perf.attribution.Cause`)."""
    slots: int = 0
    """Operand slots of the arrays, also empty ones of incomplete stripes."""
    loaded: int = 0
    """Bytes of features and weights that are loaded into CBUF."""
    itemsize: int = 1
    """Bytes of an element that the DPU writes."""


@dataclass
class Estimate:
    """Cycles of a model; `cycles` are those of all jobs, from the host's start to the interrupt.

    Attributes
    ----------
    tasks, layers, jobs
        In the order of the plan; `jobs` are cycles.
    host
        What the host computes of a model, whose time is not included.
    """

    cycles: int
    tasks: list[TaskEstimate]
    layers: list[LayerEstimate]
    jobs: list[int] = field(default_factory=list)
    dram: DramConfig = field(default_factory=DramConfig)
    cores: int = 1
    samples: int = 1
    """Samples of a model of batches; `cycles` and `jobs` are those of all, `tasks` and `layers` of one."""
    host: HostWork | None = None
    on_one_core: str = ""
    """Why no layer is divided among several cores; empty if one is, or if there is one core."""


# Tasks and jobs.


def task_time(shape: TaskShape, memory: Memory, c: Coefficients, lists: Lists = NO_LISTS) -> Time:
    """Estimate the cycles from a task's start to its end, including the command lists fetched meanwhile.

    No other core uses the memory.
    """
    return _time_alone(shape, memory, tuple(c.items()), lists)


@lru_cache(maxsize=4096)
def _time_alone(shape: TaskShape, memory: Memory, c: tuple[tuple[str, float], ...], lists: Lists) -> Time:
    """Many tasks of a network are equal, and most of the tasks of one plan are those of another one."""
    coefficients = dict(c)
    span = spans([[flow(shape, memory, coefficients, lists)]], memory, coefficients)[0][0]
    return _time(shape, span, memory)


def shared_times(parts: Sequence[Sequence[TaskShape]], memory: Memory, c: Coefficients) -> list[list[Time]]:
    """Estimate the tasks of cores that start one after the other and share DRAM."""
    if len(parts) == 1:
        alone = zip(parts[0], lists_of(parts[0]), strict=True)
        return [[task_time(shape, memory, c, lists) for shape, lists in alone]]
    flows = [
        [
            flow(shape, memory, c, lists, c["gap"] + shape.lut_words if number else core * c["kick_next"])
            for number, (shape, lists) in enumerate(zip(part, lists_of(part), strict=True))
        ]
        for core, part in enumerate(parts)
    ]
    return [
        [_time(shape, span, memory, len(parts)) for shape, span in zip(part, found, strict=True)]
        for part, found in zip(parts, spans(flows, memory, c), strict=True)
    ]


def _time(shape: TaskShape, span: Span, memory: Memory, cores: int = 1) -> Time:
    """Return the time of a task; `cores` use the memory."""
    octet = OctetRate(shape.octet_cycles, shape.octet_stage)
    of = attribute(
        span.ends,
        span.cycles,
        shape.moved_by(),
        octet=octet,
        pooling=shape.kind == POOL,
        dram=memory.config,
        cores=cores,
    )
    return Time(span.cycles, of)


def lists_of(shapes: Sequence[TaskShape]) -> list[Lists]:
    """Return the lists that are fetched during each of consecutive tasks.

    The registers of a task are written while the previous task runs, which frees space for the next list;
    during the first task this happens twice.
    """
    beats = [shape.words * WORD_BYTES / BEAT for shape in shapes]
    return [
        Lists(beats[1] if number == 0 and len(beats) > 1 else 0.0, sum(beats[number + 2 : number + 3]))
        for number in range(len(beats))
    ]


def gap_before(
    shape: TaskShape, before: float | None, dram: DramConfig, c: Coefficients, core: int = 0
) -> float:
    """Return the cycles before a task's start, from the end of the previous task or from the kick.

    `before` is the number of cycles of the previous task, or None.  The next command list is fetched while a
    task runs; register writes after an access to the DPU's tables wait for an idle DPU.  The host starts
    the cores of a job one after the other.
    """
    fetch = c["kick"] + dram.read_latency + shape.words
    if before is None:
        return fetch + core * c["kick_next"]
    gap = shape.lut_words + c["lut_gap"] if shape.lut_words else c["gap"]
    return max(gap, fetch - before)


def job_times(
    parts: Sequence[Sequence[TaskShape]], dram: DramConfig, c: Coefficients, lock_step: bool = False
) -> tuple[float, list[list[tuple[float, Time]]]]:
    """Cycles of a job whose parts run in parallel, and (gap before it, time) of each part's tasks.

    With `lock_step`, each task of a core begins when the tasks before it have ended on all cores.
    """
    longest, found = 0.0, list[list[tuple[float, Time]]]()
    for core, (part, times) in enumerate(zip(parts, shared_times(parts, Memory.of(dram), c), strict=True)):
        before = [None, *(time.cycles for time in times)]
        gaps = [gap_before(shape, before[n], dram, c, core) for n, shape in enumerate(part)]
        found.append(list(zip(gaps, times, strict=True)))
        longest = max(longest, sum(gap + time.cycles for gap, time in found[-1]))
    if lock_step:
        turns = zip_longest(*([gap + time.cycles for gap, time in part] for part in found), fillvalue=0.0)
        longest = sum(map(max, turns))
    return longest, found


# Models.

Estimated = bytes | Path | CompiledModel | BatchModel | Plan | Matmul


def estimate_model(
    model: Estimated,
    *,
    dram: DramConfig | None = None,
    cores: int = 1,
    coefficients: Coefficients | None = None,
    as_boards: bool = False,
    copies: int = 1,
    hardware: Hardware = RK3588_RATES,
) -> Estimate:
    """Estimate a model file, a compiled model, its plan, or a matrix product.

    Parameters
    ----------
    model
        Bytes or path of a file that `rkcosim.rknn_file.opening.open_model` reads, or an object made from it.
    dram
        Memory timing in cycles of the NPU; default: that of the engine.
    cores
        Number of cores among which layers are divided, if `model` is not compiled yet.
    coefficients
        Default: the stored ones.
    as_boards
        Whether convolutions load their rows and weights first (`LoadedFirst`), and cores that share a layer
        work in lock step; otherwise as the RTL does.
    copies
        Number of cores that each run all of a plan for one core at the same time.
    hardware
        Rates of the parts of a core.

    Raises
    ------
    ModelError
        If the compiler refuses the model.
    ValueError
        If it has a task of a kind that cannot be estimated.
    """
    dram, c = dram or DramConfig(), coefficients or stored()
    if isinstance(model, Path):
        model = read_model(model)
    if isinstance(model, bytes):
        model = open_model(model, cores=cores)
    if isinstance(model, BatchModel):
        one = estimate_model(
            model.one, dram=dram, coefficients=c, as_boards=as_boards, copies=copies, hardware=hardware
        )
        samples = model.batch
        return replace(one, cycles=one.cycles * samples, jobs=one.jobs * samples, samples=samples)
    work = model.plan if isinstance(model, CompiledModel) else model
    tasks: list[TaskEstimate] = []
    jobs: list[int] = []
    starts: dict[int, int] = {}  # by task, from the start of its job
    shared_by: dict[int, int] = {}  # layer that cores share -> cycles
    for first, known in jobs_of(work):
        parts = [[replace(task, shape=hardware.of(task.shape)) for task in part] for part in known]
        shapes = [[task.shape for task in part] for part in parts] * copies
        if as_boards:
            shapes = [[LoadedFirst.of(shape) for shape in part] for part in shapes]
        cycles, times = job_times(shapes, dram, c, lock_step=as_boards)
        jobs.append(round(cycles))
        shared = {task.layer for part in parts for task in part}
        times = times[: len(parts)]
        if len(parts) > 1 and len(shared) == 1:
            shared_by[shared.pop()] = jobs[-1]
        elif len(parts) > 1:  # a chain of several layers: each as long as the core that takes longest
            for number in shared:
                taken_by = [
                    sum(t.cycles for task, (_, t) in zip(part, of, strict=True) if task.layer == number)
                    for part, of in zip(parts, times, strict=True)
                ]
                shared_by[number] = round(max(taken_by))
        index = first
        for core, (part, of) in enumerate(zip(parts, times, strict=True)):
            at = 0.0
            for task, (gap, time) in zip(part, of, strict=True):
                figures = round(time.cycles), round(gap), time.of
                tasks.append(TaskEstimate(index, task.layer, task.name, core, *figures, task.shape))
                at += gap
                starts[index] = round(at)
                at += time.cycles
                index += 1
    tasks.sort(key=lambda task: task.index)
    if isinstance(work, Matmul):
        cycles = sum(task.cycles + task.gap for task in tasks) - tasks[0].gap
        layer = _layer(0, work.kind.name, "MatMul", tasks, starts, cycles, work.m * work.k * work.n)
        return Estimate(jobs[0], tasks, [layer], jobs, dram, 1)
    layers = []
    names = layer_names(work.steps)
    for number, step in enumerate(work.steps):
        of_layer = [task for task in tasks if task.layer == number]
        cycles = shared_by.get(number, sum(task.cycles for task in of_layer))
        macs = sum(work.tasks[task.index].macs for task in of_layer)
        taken = None if isinstance(step, HostStep) else cycles
        layers.append(_layer(number, names[number], step.kind, of_layer, starts, taken, macs))
    layers += [
        _layer(-1, op.name, op.kind, [], {}, None, 0) for op in work.graph.host_ops if op.kind == "Softmax"
    ]
    return Estimate(
        sum(jobs),
        tasks,
        layers,
        jobs,
        dram,
        work.cores,
        host=host_work_of_plan(work),
        on_one_core=work.on_one_core,
    )


def _layer(
    index: int,
    name: str,
    op: str,
    tasks: Sequence[TaskEstimate],
    starts: Mapping[int, int],
    cycles: int | None,
    macs: int,
) -> LayerEstimate:
    """Return a layer with these tasks, whose starts are known; without `cycles` it is a layer of the host."""
    moved = [task.shape.moved() for task in tasks]
    of = together([Ran(task.of, task.core, starts[task.index]) for task in tasks], cycles)
    return LayerEstimate(
        index,
        name,
        op,
        "host" if cycles is None else "npu",
        len(tasks),
        cycles,
        HOST if cycles is None else of.bound,
        macs,
        sum(read for read, _ in moved),
        sum(written for _, written in moved),
        max((task.shape.peak_macs for task in tasks), default=0),
        of.as_json() if cycles is not None else {},
        sum(task.shape.slots for task in tasks),
        sum(task.shape.loaded for task in tasks),
        max((task.shape.itemsize for task in tasks), default=1),
    )
