"""Checks the layers and tasks named for a waveform or a snapshot before an engine is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rkcosim.waves.spec import TraceSpec, When

SHOWN = 12
"""Maximum number of names listed in a message."""


@dataclass(frozen=True)
class Work:
    """What a run is going to do.

    Parameters
    ----------
    layers : names of the layers that have tasks; None if the device does not know the layers.
    hosted : names of the layers that the host computes.
    kicks : number of tasks of each kick, in order; None if it is known only during the run.
    rounds : how many times the kicks are repeated.
    cores : cores of the simulated NPU.
    """

    layers: Sequence[str] | None
    hosted: Sequence[str] = ()
    kicks: Sequence[int] | None = None
    rounds: int = 1
    cores: int = 1


def check_trace(trace: TraceSpec | None, work: Work) -> None:
    """Check that a waveform's scopes, layers and tasks exist, then make the folder of its file.

    Raises
    ------
    SpecError
        names what does not exist, and similar names.
    """
    if trace is None:
        return
    from rkcosim.engines.traces.writing import check_scopes

    check_scopes(trace.scopes, work.cores)
    for when in (trace.start, trace.stop):
        if when is None:
            continue
        if when.kind == "layer":
            check_layer(when.text, when.layer, work)
        elif when.kind == "task" and work.kicks is not None:
            _check_task(when, work.kicks, work)
    trace.path.parent.mkdir(parents=True, exist_ok=True)


def check_layer(text: str, layer: str, work: Work) -> None:
    """Check that there is a layer of this name; `text` is the option's text.

    Raises
    ------
    SpecError
        lists the existing names.
    """
    from rkcosim.waves.spec import SpecError

    if work.layers is None:
        raise SpecError(
            f"'{text}': the device does not know the layers in this run; use task:N or task:N@JOB"
        )
    if layer in work.layers:
        return
    if layer in work.hosted:
        raise SpecError(f"'{text}': the host computes this layer, so it has no task on the device")
    names = list(dict.fromkeys(work.layers))
    near = get_close_matches(layer, names, n=3, cutoff=0.5)
    some = ", ".join(names[:SHOWN]) + (f", ... ({len(names)} in all)" if len(names) > SHOWN else "")
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {some}"
    raise SpecError(f"'{text}': no layer has this name; {hint}")


def _check_task(when: When, kicks: Sequence[int], work: Work) -> None:
    from rkcosim.waves.spec import SpecError

    count = len(kicks) * work.rounds
    if when.job is not None and when.job >= count:
        jobs = "is one job, number 0" if count == 1 else f"are {count} jobs, from 0 to {count - 1}"
        raise SpecError(f"'{when.text}': there {jobs}")
    # with several cores, the order of the kicks is not known
    alone = when.job is not None and work.cores == 1
    tasks = kicks[when.job % len(kicks)] if alone and when.job is not None else max(kicks, default=0)
    if when.task >= tasks:
        job = f"job {when.job}" if alone else "a job"
        raise SpecError(
            f"'{when.text}': {job} has at most {tasks} tasks, so the last one is task:{tasks - 1}"
        )


def work_of_model(model: Path, cores: int, keep: bool, rounds: int) -> Work:
    """Return what `rounds` inferences of a model do, if it is compiled as for a run.

    Parameters
    ----------
    cores : cores that share large layers.
    keep : True if every tensor keeps its memory.

    Raises
    ------
    ModelError, WrongKindError, GivenFileError, OSError
        see `rkcosim.rknn_file.opening.open_file`.
    """
    from rkcosim.compiler import keeping_tensors, using_cores
    from rkcosim.compiler.steps import layer_names
    from rkcosim.regcmd.job import kicks
    from rkcosim.rknn_file.opening import open_file

    with keeping_tensors(keep), using_cores(cores):
        plan = open_file(model).plan
    used = {task.layer for task in plan.tasks}
    names = layer_names(plan.steps)
    layers = [name for number, name in enumerate(names) if number in used]
    hosted = [name for number, name in enumerate(names) if number not in used]
    parts = [part for segment in plan.segments() if segment.host is None for part in segment.parts]
    found = [number for first, count in parts if count for _, number in kicks(first, count)]
    return Work(layers, hosted, found, rounds, max(cores, plan.cores))
