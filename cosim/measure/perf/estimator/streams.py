"""Estimates of command streams: tasks whose sizes come from the registers that their words set.

A task takes the values that the register groups hold when it starts (`rkcosim.regcmd.machine`), so registers
that an earlier task or the host has written count too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rkcosim.engines.library import DramConfig
from rkcosim.golden.task.shapes import ConvShape
from rkcosim.measure.perf.estimator.accesses import Coefficients
from rkcosim.measure.perf.estimator.coefficients import stored
from rkcosim.measure.perf.estimator.estimate import Estimate, LayerEstimate, TaskEstimate, job_times
from rkcosim.measure.perf.estimator.features import TaskShape, task_shape
from rkcosim.regcmd.lint import ERROR, lint
from rkcosim.regcmd.machine import HOST, Start, starts_of
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.regcmd.tasks import words_of_amount

KICK = 10
"""Cycles from the write that starts a kick to its first task, besides the latency and the words.

The coefficient of the same name (`rkcosim.measure.perf.estimator.coefficients`) includes the driver's writes
before; here the kick is that write, as `rkcosim regcmd run` counts.
"""

AFTER_RESET = 222
"""The same without latency, in a kick that follows a reset at once: the register groups are still cleared.

A core clears them for 256 cycles (rtl/regfile.py); the writes that prepare a kick take 37 of these.
"""

INTERRUPT = -2
"""Cycles from the end of the last task, as events show it, to the interrupt line."""

_TAIL = ("PC", "GLOBAL")
"""Blocks whose words are in the tail of a list, not in the settings of a task."""


@dataclass(frozen=True)
class StreamTask:
    """One task of a stream.

    Members
    -------
    program, index : numbers of its chain and of the task in it; `HOST` for blocks that the host starts.
    name : name for users.
    blocks : blocks that it starts.
    shape : its sizes; None if there is no estimate.
    macs : multiply-accumulates without padding.
    why : why there is no estimate.
    """

    program: int
    index: int
    name: str
    blocks: tuple[str, ...]
    shape: TaskShape | None
    macs: int = 0
    why: str = ""


@dataclass
class StreamEstimate:
    """Cycles of a stream.

    Members
    -------
    estimate : one layer for each task that is estimated; `cycles` are those from the kick of each chain to
        its interrupt, or from the start of blocks by the host.
    after_reset : cycles that the first kick takes longer directly after a reset, as `rkcosim regcmd run` does
        it.
    missing : tasks without an estimate.
    warnings : what makes the cycles of the RTL differ: tasks with errors, chains that stop.
    """

    estimate: Estimate
    after_reset: int = 0
    missing: list[StreamTask] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def stream_tasks(program: Program, number: int = 0, several: bool = False) -> list[StreamTask]:
    """Return the tasks of a program in the order of their starts, with their sizes.

    Parameters
    ----------
    number : number of the program among several.
    several : True if names tell the program.
    """
    found = []
    for index, starts in starts_of(program):
        for start in starts:
            task = None if index == HOST else program.tasks[index]
            title = "started by the host" if task is None else task.title or f"task {index}"
            name = f"{program.name}: {title}" if several else title
            found.append(_task(number, index, name, start, task))
    return found


def _task(program: int, index: int, name: str, start: Start, task: ListedTask | None) -> StreamTask:
    values = {
        block: {register: value for register, value, _ in view.items()} for block, view in start.views.items()
    }
    words = lut_words = 0
    if task is not None:
        words = len(task.words) if task.amount is None else words_of_amount(task.amount)
        settings = [c for c in task.commands if c.register is not None and c.register.block not in _TAIL]
        tables = [
            n for n, c in enumerate(settings) if c.register and c.register.name.startswith("LUT_ACCESS")
        ]
        lut_words = len(settings) - tables[0] if tables else 0
    try:
        shape = task_shape(values, start.blocks, words, lut_words)
    except ValueError as error:
        return StreamTask(program, index, name, start.blocks, None, why=str(error))
    cna = start.view("CNA")
    macs = 0 if cna is None else ConvShape(cna, start.view("CORE")).macs
    return StreamTask(program, index, name, start.blocks, shape, macs)


def estimate_programs(
    programs: Sequence[Program], *, dram: DramConfig | None = None, coefficients: Coefficients | None = None
) -> StreamEstimate:
    """Estimate programs that run one after the other on one core.

    Parameters
    ----------
    programs : chains of command lists, or what the host starts itself.
    dram : memory timing in cycles of the NPU; default: that of the engine.
    coefficients : default: the stored ones.

    Raises
    ------
    ValueError
        If no task can be estimated; the message has the reasons.
    """
    memory, c = dram or DramConfig(), {**(coefficients or stored()), "kick": float(KICK)}
    late = 0
    layers: list[LayerEstimate] = []
    tasks: list[TaskEstimate] = []
    jobs: list[int] = []
    missing: list[StreamTask] = []
    warnings: list[str] = []
    for number, program in enumerate(programs):
        of = stream_tasks(program, number, several=len(programs) > 1)
        missing += [task for task in of if task.shape is None]
        warnings += _warnings(program)
        known = [(task, task.shape) for task in of if task.shape is not None]
        if not known:
            continue
        cycles, (times,) = job_times([[shape for _, shape in known]], memory, c)
        if known[0][0].index == HOST:  # no list is fetched, and no gap belongs to the first task
            cycles -= times[0][0]
        elif not jobs:
            late = max(AFTER_RESET - KICK - memory.read_latency, 0)
        jobs.append(round(cycles) + INTERRUPT)
        for (task, shape), (gap, time) in zip(known, times, strict=True):
            read, written = shape.moved()
            index, taken = len(layers), round(time.cycles)
            tasks.append(TaskEstimate(index, index, task.name, 0, taken, round(gap), time.of, shape))
            layers.append(
                LayerEstimate(
                    *(index, task.name, " ".join(task.blocks), "npu", 1, taken, time.of.bound),
                    *(task.macs, read, written, shape.peak_macs if task.macs else 0, time.of.as_json()),
                )
            )
    if not layers:
        raise ValueError(
            "; ".join(f"{task.name}: {task.why}" for task in missing)
            or "; ".join(warnings)
            or "no command list starts a task"
        )
    return StreamEstimate(Estimate(sum(jobs), tasks, layers, jobs, memory, 1), late, missing, warnings)


def _warnings(program: Program) -> list[str]:
    """Return why the RTL may not run a program as estimated."""
    found = [f"{program.name}: {program.stopped}"] if program.stopped else []
    return found + list(dict.fromkeys(_finding_texts(program)))


def _finding_texts(program: Program) -> Iterable[str]:
    for finding in lint(program):
        if finding.severity == ERROR:
            yield f"{program.name}: {finding}"
