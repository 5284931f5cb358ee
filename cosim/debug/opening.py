"""What is debugged: the kicks of a stream, a capture or one inference of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rkcosim.base.files import MODELS, identify, read_given, read_model, with_weights
from rkcosim.debug.tensors import TensorPlace, output_of
from rkcosim.regcmd.machine import HOST, starts_of
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.verify.streams.contents import Region, StreamContents
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.sources import MODEL_SUFFIXES, SourceError, open_source

if TYPE_CHECKING:
    from rkcosim.compiler.model import CompiledModel


@dataclass
class DebuggedJob:
    """One kick.

    Members
    -------
    stream : its words, the memory before it, and the host's writes.
    program : its tasks, with titles.
    nodes : for each task the name of the node that it belongs to, "" for a stream.
    batch : jobs with the same number ran at the same time, each on a core of its own.
    """

    stream: StreamContents
    program: Program
    nodes: list[str]
    batch: int = 0


@dataclass
class Debugged:
    """What is debugged.

    Members
    -------
    name : name of the file.
    jobs : the kicks in the order of their starts.
    tensors : tensors by name.
    regions : regions of memory by name, which are shown as bytes.
    notes : what the user should know, one line each.
    golden : returns every tensor that the graph-level golden model computes, by name; None for a stream.
    program : the program whose jobs these are, which starts more; None for anything else.
    """

    name: str
    jobs: list[DebuggedJob]
    tensors: dict[str, TensorPlace]
    regions: dict[str, Region] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    golden: Callable[[], dict[str, NDArray[Any]]] | None = None
    program: RunningProgram | None = None


class RunningProgram(Protocol):
    """A program that starts jobs while they are debugged."""

    @property
    def ended(self) -> str:
        """How the program ended, "" if it runs."""

    def wait(self, work: Debugged, paused: threading.Event) -> bool:
        """Let the last job go on, wait for the program's next one and add it; False if it starts none.

        The wait also ends, with False, when `paused` is set.
        """

    def close(self) -> None:
        """End the program and everything that serves it."""


def open_debugged(path: Path, *, inputs: Sequence[Path] = (), seed: int = 0, cores: int = 1) -> Debugged:
    """Open a stream, a capture, a listing with memory, or a model.

    A model runs once on the golden model, which records its kicks with the memory before each.

    Parameters
    ----------
    inputs : files with the inputs of a model, as for `rkcosim run`; random numbers without them.
    seed : of the random numbers.
    cores : cores among which large layers are divided.

    Raises
    ------
    SourceError
        for a file without memory, which cannot run.
    ModelError, StreamError, CaptureError, GivenFileError, OSError
        if it cannot be read.
    """
    kind = identify(read_given(path))
    if path.suffix in MODEL_SUFFIXES or kind in MODELS:
        return _model(path, inputs, seed, cores)
    if inputs:
        raise SourceError(f"{path.name} is no model: a stream has its inputs in its memory")
    source = open_source([str(path)])
    if source.stream is None:
        raise SourceError(
            f"{path.name}: words without the memory on which they work cannot run; `rkcosim regcmd dump "
            "--with-memory` writes a listing with it"
        )
    stream = source.stream
    if source.kind == "text" and all(region.name.startswith("commands ") for region in stream.regions):
        raise SourceError(
            f"{path.name}: the listing has only the words, without the memory on which they work; `rkcosim "
            "regcmd dump --with-memory` writes it as well"
        )
    job = DebuggedJob(stream, source.programs[0], [task.title for task in source.programs[0].tasks])
    regions = {region.name: region for region in stream.regions}
    return Debugged(path.name, [job], outputs_of([job]), regions, list(source.notes))


def outputs_of(jobs: Sequence[DebuggedJob], first: int = 0) -> dict[str, TensorPlace]:
    """Return the output of each task as `outN`, of a later job as `outN_J`; `first` numbers the first job."""
    found = {}
    for number, job in enumerate(jobs, first):
        for index, starts in starts_of(job.program):
            if index == HOST:
                continue
            name = f"out{index}" + (f"_{number}" if number else "")
            for start in starts:
                place = output_of(job.program, start, name, number, index)
                if place is not None:
                    found[name] = place
    return found


def _model(path: Path, inputs: Sequence[Path], seed: int, cores: int) -> Debugged:
    from rkcosim.compiler import LoadedModel, keeping_tensors, using_cores
    from rkcosim.compiler.batch import one_of
    from rkcosim.compiler.model import naming_model
    from rkcosim.devices.recorder import Captured, Recorder
    from rkcosim.driver import Driver
    from rkcosim.golden.task import GoldenNpu
    from rkcosim.measure.models.draw import random_reals
    from rkcosim.measure.models.input_files import load_batch
    from rkcosim.rknn_file.opening import open_model

    with keeping_tensors(), using_cores(cores), naming_model(path):
        compiled = one_of(open_model(with_weights(path, read_model(path)), cores=cores))
    if inputs:
        values = list(load_batch(list(inputs), list(compiled.inputs), 1).items[0])
    else:
        values = list(random_reals(compiled.inputs, seed))
    found: list[Captured] = []
    driver = Driver(Recorder(GoldenNpu(max(cores, 1)), found.append))
    loaded = LoadedModel(compiled, driver)
    try:
        for number, array in enumerate(values):
            loaded.set_input(number, array)
        loaded.run()
        bases = dict(loaded.bases)
        places = {entry.address: number for number, entry in enumerate(loaded.tasks.tasks)}
    finally:
        loaded.close()
    if not found:
        raise SourceError(f"{path.name}: no layer runs on the NPU, so there is no command stream")
    plan = compiled.plan
    named = NamedJobs(compiled, bases, places)
    jobs = [named.add(one.stream, number, f"{path.name}, job {number}") for number, one in enumerate(found)]
    for job, one in zip(jobs, found, strict=True):
        job.batch = one.batch
    tensors = named.tensors()
    regions = {region.name: region for region in found[0].stream.regions}
    notes = [
        *plan.notes,
        *(f"on the host: {plan.steps[s.host].name}" for s in plan.segments() if s.host is not None),
    ]
    if len(jobs) > 1:
        notes.append(
            f"{len(jobs)} jobs; each begins with the memory that the golden model had there, so a "
            "change in one job does not reach the next"
        )

    def golden() -> dict[str, NDArray[Any]]:
        from rkcosim.verify.crosscheck.model_check import graph_tensors

        return graph_tensors(compiled, [compiled.encode_input(n, array) for n, array in enumerate(values)])

    return Debugged(path.name, jobs, tensors, regions, notes, golden)


class NamedJobs:
    """Jobs of a compiled model, with the names of its nodes and tensors.

    Parameters
    ----------
    compiled : the model.
    bases : address of each region of memory.
    places : number of the planned task by the address of its words.
    """

    def __init__(self, compiled: CompiledModel, bases: Mapping[str, int], places: Mapping[int, int]) -> None:
        self.compiled, self.bases, self.places = compiled, bases, places
        self._last: dict[int, tuple[int, int]] = {}
        self._makers: dict[int, set[tuple[int, int]]] = {}

    def add(self, stream: StreamContents, number: int, name: str) -> DebuggedJob:
        """Return a job with the names of its nodes."""
        program, nodes, plan = program_of_stream(stream, name), [], self.compiled.plan
        tasks: list[ListedTask] = []
        for index, task in enumerate(program.tasks):
            at = None if task.address is None else self.places.get(task.address)
            planned = None if at is None else plan.tasks[at]
            step = None if planned is None else plan.steps[planned.layer]
            nodes.append("" if step is None else step.name)
            title = "" if step is None or planned is None else f"{step.name}{planned.note}"
            tasks.append(replace(task, title=title))
            if planned is not None:
                self._last[planned.layer] = number, index
                self._makers.setdefault(planned.layer, set()).add((number, index))
        program.tasks = tasks
        return DebuggedJob(stream, program, nodes)

    def tensors(self) -> dict[str, TensorPlace]:
        """Return the tensors by name, each with the task of the jobs so far that completes it."""
        compiled, plan = self.compiled, self.compiled.plan
        layers = {tensor.name: layer for layer, step in enumerate(plan.steps) for tensor in step.outputs}
        tensors = {}
        for name, tensor in compiled.graph.tensors.items():
            if tensor.host or compiled.graph.root(name) not in plan.places:
                continue
            place = plan.place(name)
            layer = layers.get(name, layers.get(compiled.graph.root(name), -1))
            made_in = self._last.get(layer)
            tensors[name] = TensorPlace(
                name,
                tensor.dtype.newbyteorder("<"),
                _addresses(place, place.ref.address(self.bases)),
                None if made_in is None else made_in[0],
                None if made_in is None else made_in[1],
                tuple(tensor.shape),
                tensor.scale,
                tensor.zero_point,
                0x80 if place.argb and place.unsigned_pixels else 0,
                frozenset(self._makers.get(layer, ())),
            )
        return tensors


def _addresses(place: Any, base: int) -> NDArray[np.int64]:
    """Return the address of each element of a place, int64 (channels, rows, columns)."""
    channels, rows, columns = place.cube
    channel, row, column = np.meshgrid(
        np.arange(channels), np.arange(rows), np.arange(columns), indexing="ij"
    )
    if place.argb:
        return base + ((row * place.pitch + column) * place.argb + channel) * place.itemsize
    # Elements are numbered from 1 on, and the digits of their numbers packed as the place packs values.
    kind = np.dtype(f"<u{place.itemsize}")
    digit = 8 * min(place.itemsize, 2)
    numbers = 1 + np.arange(channels * rows * columns, dtype=np.int64).reshape(channels, rows, columns)
    found: NDArray[np.int64] | None = None
    for shift in range(0, max(int(numbers.size).bit_length(), 1), digit):
        part = (numbers >> shift & (1 << digit) - 1).astype(kind)
        packed = np.ascontiguousarray(place.pack(part)).reshape(-1).view(kind).astype(np.int64)
        found = packed if found is None else found | packed << shift
    assert found is not None
    held = np.flatnonzero(found)
    addresses = np.zeros(numbers.size, np.int64)
    addresses[found[held] - 1] = base + held * place.itemsize
    return addresses.reshape(channels, rows, columns)
