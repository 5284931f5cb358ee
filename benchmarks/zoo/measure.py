"""One network measured: a checked run on the default engine, and a comparison with the reference."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.zoo.networks import Entry
from benchmarks.zoo.record import Agreement, Measured
from benchmarks.zoo.sources import digest_of
from rkcosim.base import version
from rkcosim.compiler.batch import one_of
from rkcosim.compiler.options import using_options
from rkcosim.compiler.steps import HostStep
from rkcosim.measure.models.compare import Comparison, compare
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.hosted import host_work
from rkcosim.measure.models.references import ReferenceProblem
from rkcosim.measure.models.run import ModelRun, run_model
from rkcosim.measure.perf.boards.expected import board_milliseconds
from rkcosim.measure.perf.estimator.files import estimate_file
from rkcosim.rknn_file.opening import open_model

SHOWN = 3
"""Reasons of a difference that are kept."""
SEED = 0
SAME_SHARE = 1e-4
"""Difference of the NPU's shares up to which an earlier run still stands for a network."""
GRACE = 10
"""Seconds for which the process may take to end."""


@dataclass(frozen=True)
class Job:
    """What to measure, in a form for another process.

    Members
    -------
    name : of the entry.
    path : its model file.
    shapes, values, outputs : see `Entry`.
    """

    name: str
    path: Path
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, float | tuple[int, int]]
    outputs: tuple[str, ...] = ()


def job_of(entry: Entry, folders: Sequence[Path]) -> Job:
    """Return the job of an entry, whose file is made if necessary; raises SourceError."""
    path, shapes = entry.source.path(folders), dict(entry.shapes)
    return Job(entry.name, path, shapes, dict(entry.values), entry.outputs)


def measure(job: Job) -> Measured:
    """Run and compare a network in this process.

    Raises
    ------
    RunError, EngineError, ValueError
        If it cannot be run.
    """
    with using_options(shapes=job.shapes, outputs=job.outputs):
        model, load_seconds = _loaded(job)
        before = _processor_seconds()
        found = run_model(job.path, [inputs_of(job, model.inputs)], check=True)
        run_seconds = _processor_seconds() - before
        return replace(
            _compared(job, model, of_run(job, found, model)),
            host_seconds=round(run_seconds, 1),
            load_seconds=load_seconds,
        )


def measure_without_run(job: Job) -> Measured:
    """Load, estimate and compare a network in this process; nothing is simulated.

    Raises
    ------
    ValueError
        If it cannot be loaded or compared.
    """
    with using_options(shapes=job.shapes, outputs=job.outputs):
        model, load_seconds = _loaded(job)
        found = estimate_file(job.name, job.path.read_bytes(), plans=("ours",)).plans["ours"]
        cycles = round(found.estimate.cycles)
        host, steps = host_work(model), one_of(model).plan.steps
        made = Measured(
            job.name,
            digest_of(job.path),
            version(),
            form=_form(model),
            layers=sum(not isinstance(step, HostStep) for step in steps),
            macs=round(sum(task.macs for task in one_of(model).plan.tasks) / 1e6, 3),
            mac_share=round(1 - host.mac_share, 6),
            element_share=round(1 - host.element_share, 6),
            cycles=cycles,
            submits=found.submits,
            milliseconds=round(board_milliseconds(cycles, found.submits), 4),
            load_seconds=load_seconds,
            estimated=True,
        )
        return _compared(job, model, made)


def _loaded(job: Job) -> tuple[Any, float]:
    """Return the compiled model, and the processor seconds that it took."""
    begun = _processor_seconds()
    model = open_model(job.path.read_bytes())
    return model, round(_processor_seconds() - begun, 2)


def _compared(job: Job, model: Any, found: Measured) -> Measured:
    """Return the figures with those of the comparison, if there is a reference."""
    begun = _processor_seconds()
    try:
        compared = agreement_of(compare(job.path, [inputs_of(job, model.inputs)]))
    except ReferenceProblem:
        return found
    return replace(found, agreement=compared, compare_seconds=round(_processor_seconds() - begun, 1))


def joined(before: Measured | None, found: Measured) -> Measured:
    """Return what a network has that was not run again: the run of the same file that the record has.

    Without such a run, or if the NPU has another part of the work since, `found` is returned.
    """
    if before is None or before.failed or before.estimated or before.model != found.model:
        return found
    moved = abs(before.mac_share - found.mac_share), abs(before.element_share - found.element_share)
    if max(moved) > SAME_SHARE:
        return found
    return replace(
        before,
        load_seconds=found.load_seconds,
        compare_seconds=found.compare_seconds,
        agreement=found.agreement,
        compared=found.version,
    )


def _form(model: Any) -> str:
    """Return the types in which the NPU computes."""
    tensors = getattr(getattr(model, "graph", None), "tensors", {})
    kinds = {"fp16" if tensor.real else "int8" for tensor in tensors.values() if not tensor.host}
    return " and ".join(sorted(kinds))


def inputs_of(job: Job, infos: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    """Return an array for each input: random values, or what the entry says about the input."""
    rng, reals = np.random.default_rng(SEED), random_reals(infos, SEED)
    for number, info in enumerate(infos):
        value = job.values.get(info.name)
        if isinstance(value, tuple):
            low, high = value
            reals[number] = rng.integers(low, high + 1, info.shape).astype(np.float32)
        elif value is not None:
            reals[number] = np.full(info.shape, value, np.float32)
    return reals


def of_run(job: Job, found: ModelRun, model: Any) -> Measured:
    """Return the figures of a checked run."""
    verdict = found.verdict
    npu = [row for row in found.layers if row.target != "host"]
    return Measured(
        job.name,
        digest_of(job.path),
        version(),
        form=_form(model),
        match=verdict["match"] is True,
        layers=len(npu),
        first_difference=str(verdict.get("first_difference", "")),
        macs=round(sum(row.macs for row in npu) / 1e6, 3),
        mac_share=round(1 - found.host.mac_share, 6),
        element_share=round(1 - found.host.element_share, 6),
        cycles=found.cycles_each,
        submits=found.submits,
        milliseconds=round(board_milliseconds(found.cycles_each, found.submits), 4)
        if found.measured
        else 0.0,
    )


def agreement_of(found: Comparison) -> Agreement:
    """Return the figures of a comparison."""
    units = {output.unit is None for output in found.outputs}
    worst = max(output.worst for output in found.outputs)
    bounds = [output.bound for output in found.outputs if output.bound is not None]
    classes = [output.same_class for output in found.outputs if output.classes]
    return Agreement(
        found.reference,
        sum(layer.elements for layer in found.layers),
        sum(layer.differing for layer in found.layers),
        len(found.layers),
        sum(not layer.good for layer in found.layers),
        float(worst) if np.isfinite(worst) else None,
        "relative" if units == {True} else "steps" if units == {False} else "mixed",
        max(bounds, default=None),
        all(classes) if classes else None,
        tuple(found.reasons())[:SHOWN],
    )


def measure_apart(job: Job, limit: float, *, run: bool = True) -> Measured:
    """Measure in a process of its own, which is ended after `limit` seconds; without `run` nothing is
    simulated.

    Whatever goes wrong becomes the member `failed` of the result.
    """
    return apart(job, limit, measure if run else measure_without_run)


def apart(job: Job, limit: float, work: Callable[[Job], Measured]) -> Measured:
    """Call a function of a job in a process of its own; see `measure_apart`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, work, theirs))
    failed = Measured(job.name, digest_of(job.path), version())
    process.start()
    theirs.close()
    try:
        in_time = ours.poll(limit)
        result: Measured | str = ours.recv() if in_time else f"did not end within {limit:g} s"
    except EOFError:
        process.join(GRACE)
        result = f"its process ended with code {process.exitcode}"
        in_time = False
    finally:
        ours.close()
    if not in_time:
        process.terminate()
    process.join(GRACE)
    if process.is_alive():
        process.kill()
        process.join()
    return replace(failed, failed=result) if isinstance(result, str) else result


def _work(job: Job, work: Callable[[Job], Measured], pipe: Connection) -> None:
    try:
        pipe.send(work(job))
    except Exception as error:  # the message is the result: the zoo goes on with the next network
        text = str(error) or type(error).__name__
        pipe.send(text.replace(f"{job.path.parent}{os.sep}", ""))


def _processor_seconds() -> float:
    """Processor time of this process and of those that it waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system
