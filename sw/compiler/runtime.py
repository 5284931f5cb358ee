"""Execution of a compiled network on a device: buffers, jobs, reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.constraints.functions import function_reason
from rkcosim.compiler.constraints.normalisations import last_softmax_reason
from rkcosim.compiler.graph import Graph, HostOp, HostOperator, ModelError
from rkcosim.compiler.host_calls import call, following_states, initial_states
from rkcosim.compiler.host_steps import compute
from rkcosim.compiler.model import CompiledModel
from rkcosim.compiler.plan import ALIGN, Segment
from rkcosim.compiler.steps import CallStep, HostStep, Step, layer_names
from rkcosim.regcmd.job import Job, JobResult
from rkcosim.spec.octets import OctetRate


class NpuBuffer(Protocol):
    """Memory that the device sees at `iova` (`rkcosim.driver.Buffer`)."""

    iova: int

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        """Return the bytes themselves, writable."""
        ...

    def free(self) -> None:
        """Release the memory."""
        ...


class NpuDriver(Protocol):
    """The functions of a driver that the runtime needs (`rkcosim.driver.Driver`)."""

    def alloc(self, size: int, name: str) -> NpuBuffer:
        """Allocate zeroed memory."""
        ...

    def submit(self, job: Job) -> JobResult:
        """Run a job to its end."""
        ...


@dataclass(frozen=True)
class TaskMeasure:
    """Measurements of one task by the device: cycles, DRAM bytes, cycles with the MAC array busy.

    `events` has the device's counters in cycles by name, `read_by` and `written_by` have bytes by AXI client
    (including command words, which `bytes_read` excludes), `start` is the task's first cycle since the device
    was opened and `core` its core.  Devices that do not measure these leave them at their defaults.
    """

    cycles: int
    bytes_read: int
    bytes_written: int
    mac_busy: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)
    read_by: Mapping[str, int] = field(default_factory=dict)
    written_by: Mapping[str, int] = field(default_factory=dict)
    core: int = 0
    start: int | None = None


Meter = Callable[[], Sequence[TaskMeasure]]
"""Returns the measurements of all tasks since the device was opened, oldest first."""


@dataclass(frozen=True)
class LayerReport:
    """One layer of a run.

    `cycles` (from the start of its first task to the end of its last) and `mac_busy` are None if the
    device does not measure single tasks.  Bytes are measured, or else planned; the plan excludes commands.
    `formula_npu` is [HW 12.6].
    """

    name: str
    op: str
    target: str
    tasks: int
    cycles: int | None
    macs: int
    bytes_read: int
    bytes_written: int
    formula_npu: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    mac_busy: int | None = None
    host_seconds: float = 0.0
    """Seconds that the host needed to compute the layer, in the simulation's process."""
    itemsize: int = 1
    """Bytes of an output element: 1 for int8, 2 for fp16 (which has half the MACs per cycle)."""
    measures: tuple[TaskMeasure, ...] = ()
    """Measurements of each of its tasks, if the device made any."""
    step: int | None = None
    """Index of the compiled step; None for an operation that the host computes after the network."""
    hosted: tuple[HostOperator, ...] = ()
    """The operators of the model file that the host computes in this layer, with the reasons."""
    rates: tuple[OctetRate, ...] = ()
    """The DPU's rate in each of the tasks of `measures`."""

    @property
    def elements(self) -> int:
        """Elements of the layer's results."""
        return sum(item.elements for item in self.hosted) or math.prod(self.output_shape)


@dataclass(frozen=True)
class RunReport:
    """One run of a network: cycles of its jobs, and its layers."""

    cycles: int
    layers: list[LayerReport]


def _by_task(segment: Segment, measures: Sequence[TaskMeasure]) -> dict[int, TaskMeasure]:
    """Measures of a job by the task's index in the plan; none where some are missing.

    Each core ends its tasks in their order; measures of several cores come mixed.
    """
    if len(measures) != segment.count:
        return {}
    if len(segment.parts) == 1:
        return {segment.first + n: measure for n, measure in enumerate(measures)}
    found: dict[int, TaskMeasure] = {}
    for core, (first, count) in enumerate(segment.parts):
        own = [measure for measure in measures if measure.core == core]
        if len(own) != count:
            return {}
        found |= {segment.first + first + n: measure for n, measure in enumerate(own)}
    return found


def _longest(measures: Sequence[TaskMeasure]) -> int:
    """Cycles of the core that took longest."""
    cores = {measure.core for measure in measures}
    return max((sum(m.cycles for m in measures if m.core == core) for core in cores), default=0)


class _Part:
    """The part of a buffer from an offset on; the owner of the buffer frees it."""

    def __init__(self, buffer: NpuBuffer, offset: int) -> None:
        self.iova = buffer.iova + offset
        self._buffer = buffer
        self._offset = offset

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        return self._buffer.view(self._offset + offset, size)

    def free(self) -> None:
        """Do nothing."""


class _Counted:
    """A buffer that several loaded models use; it is freed when the last one releases it."""

    def __init__(self, buffer: NpuBuffer) -> None:
        self.buffer = buffer
        self.users = 1

    def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            self.buffer.free()


class LoadedModel:
    """A network in a device's memory.  Use as a context manager or call `close`.

    Parameters
    ----------
    model
        The compiled network.
    driver
        The driver of the device.
    core
        The core that runs the job.
    meter
        Measurements of single tasks, for the reports; may be set later.
    share
        A loaded model with the same weights; its copy is used and stays allocated as long as either lives.
    outside
        Regions that are not allocated here; `use_region` must provide them before the first run.

    Members
    -------
    on_host
        Makes the context in which the host computes a step, which needs the tensors of this model and not the
        device; by default it does nothing.

    Raises
    ------
    DriverError
        If memory runs out.
    ModelError
        If `share` has other weights.
    """

    def __init__(
        self,
        model: CompiledModel,
        driver: NpuDriver,
        core: int = 0,
        meter: Meter | None = None,
        *,
        share: LoadedModel | None = None,
        outside: Collection[str] = (),
    ) -> None:
        self.model = model
        self.driver = driver
        self.core = core
        self.meter = meter
        self.on_host: Callable[[], AbstractContextManager[None]] = nullcontext
        plan = model.plan
        self._closed = False
        self._shared: _Counted | None = None
        self._outer: set[str] = set()
        self._missing = set(outside)
        self.buffers: dict[str, NpuBuffer] = {}
        self._hosted: dict[str, npt.NDArray[Any]] = {}
        self._started = False
        self.states: dict[str, npt.NDArray[Any]] = {}
        """Values of the states at the start of the last run, as they are kept, by the name of the tensor."""
        sizes = {
            "weights": max(len(plan.weights), 64),
            "activations": max(plan.activation_bytes, 64),
            "regcmd": plan.regcmd_bytes(),
        }
        try:
            if share is not None:
                self._borrow(share)
            for region, size in sizes.items():
                if region not in self.buffers and region not in self._missing:
                    self.buffers[region] = driver.alloc(size, region)
        except BaseException:
            self.close()
            raise
        self.bases = {region: buffer.iova for region, buffer in self.buffers.items()}
        if share is None and "weights" in self.buffers:
            self._shared = _Counted(self.buffers["weights"])
            self._fill("weights", bytes(plan.weights))
        if not self._missing:
            self._write_tasks()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use_region(self, region: str, buffer: NpuBuffer, offset: int = 0) -> None:
        """Use the caller's memory for "weights" or "activations"; the caller also frees it.

        Weights are written there immediately; the contents of the activations are not copied.

        Raises
        ------
        ModelError
            If the address is not a multiple of 64 bytes.
        """
        if (buffer.iova + offset) % ALIGN:
            raise ModelError(f"memory for the {region} must start at a multiple of {ALIGN} bytes")
        self._give_back(region)
        self.buffers[region] = _Part(buffer, offset)
        self.bases[region] = buffer.iova + offset
        self._outer.add(region)
        self._missing.discard(region)
        if region == "weights":
            self._fill(region, bytes(self.model.plan.weights))
        if not self._missing:
            self._write_tasks()

    def _borrow(self, other: LoadedModel) -> None:
        if bytes(other.model.plan.weights) != bytes(self.model.plan.weights):
            raise ModelError("the weights of the two models are not the same")
        self.buffers["weights"] = other.buffers["weights"]
        self._shared = other._shared
        if self._shared is not None:
            self._shared.users += 1
        else:
            self._outer.add("weights")

    def _give_back(self, region: str) -> None:
        buffer = self.buffers.pop(region, None)
        if region == "weights" and self._shared is not None:
            self._shared.release()
            self._shared = None
        elif buffer is not None and region not in self._outer:
            buffer.free()

    def _fill(self, region: str, data: bytes) -> None:
        self.buffers[region].view(0, len(data))[:] = np.frombuffer(data, np.uint8)

    def _write_tasks(self) -> None:
        self.tasks = self.model.plan.task_list(self.bases)
        self._fill("regcmd", self.tasks.data)

    def set_input(self, index: int, values: npt.ArrayLike) -> None:
        """Quantise an input if it is real and write it to device memory.

        Raises
        ------
        ModelError
            If index, shape or type are wrong (`CompiledModel.encode_input`).
        """
        cube = self.model.encode_input(index, values)
        name = self.model.graph.inputs[index].tensor
        self.put(name, cube)

    def job(self, max_cycles: int | None = None) -> Job:
        """Return the whole network as one job, limited to `max_cycles` (None: the driver's limit).

        Raises
        ------
        ModelError
            If a region of `outside` was not provided.
        """
        if self._missing:
            raise ModelError(f"no memory was given for the {' and the '.join(sorted(self._missing))}")
        tasks = self.model.plan.job_tasks(self.tasks.tasks)
        names = dict(enumerate(layer_names(self.model.plan.steps)))
        return Job(tasks, core_mask=1 << self.core, max_cycles=max_cycles, layers=names)

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run the whole network: one job, or several jobs with the host's steps between them.

        Raises
        ------
        DriverError
            If the device times out or reports an error.
        """
        job = self.job(max_cycles)
        self._start_states()
        cycles = 0
        seconds: dict[int, float] = {}
        together: dict[int, int] = {}
        measures: dict[int, TaskMeasure] = {}
        for segment in self.model.plan.segments():
            if segment.host is None:
                tasks = job.tasks[segment.first : segment.first + segment.count]
                part = replace(job, tasks=tasks)
                if len(segment.parts) > 1:  # cores 0, 1 (and 2) together
                    ranges = dict(enumerate(segment.parts))
                    part = replace(part, core_mask=(1 << len(ranges)) - 1, ranges=ranges)
                before = len(self.meter()) if self.meter else 0
                result = self.driver.submit(part)
                cycles += result.cycles
                if self.meter:
                    measures |= _by_task(segment, self.meter()[before:])
                layers = {task.op_idx for task in tasks}
                if len(segment.parts) > 1 and len(layers) == 1:
                    together[layers.pop()] = result.cycles
            else:
                started = time.perf_counter()
                with self.on_host():
                    self.compute(segment.host)
                seconds[segment.host] = time.perf_counter() - started
        self._end_states()
        return self.report(cycles, measures, seconds, together)

    def report(
        self,
        cycles: int,
        measures: Mapping[int, TaskMeasure],
        seconds: Mapping[int, float] = MappingProxyType({}),
        together: Mapping[int, int] = MappingProxyType({}),
    ) -> RunReport:
        """Return the report of a run.

        Parameters
        ----------
        cycles
            Cycles of all jobs.
        measures
            Measure of each task by its number; ignored unless there is one for every task.
        seconds
            Seconds that the host needed, by step.
        together
            Cycles of layers whose tasks ran on several cores at once, by step.
        """
        if len(measures) != len(self.tasks.tasks):
            measures = {}
        return RunReport(cycles, plan_layers(self.model, measures, seconds, together))

    def _start_states(self) -> None:
        """Remember the states' values; before the first run these are the initial ones."""
        graph = self.model.graph
        for name, value in ({} if self._started else initial_states(graph)).items():
            self.put(name, value)
        self._started = True
        self.states = {state.tensor: self.tensor(state.tensor).copy() for state in graph.states}

    def _end_states(self) -> None:
        """Give the states the values of the next inference."""
        for name, value in following_states(self.model.graph, self.tensor).items():
            self.put(name, value)

    def compute(self, number: int) -> None:
        """Compute a step of the host and write its results to the places where later steps read them.

        Parameters
        ----------
        number
            Index of the step in the plan.
        """
        step = self.model.plan.steps[number]
        assert isinstance(step, HostStep)
        arrays = [self.tensor(x.name) for x in step.inputs]
        results = call(step, arrays) if isinstance(step, CallStep) else [compute(step, arrays)]
        for tensor, result in zip(step.outputs, results, strict=True):
            self.put(tensor.name, result)

    def put(self, name: str, cube: npt.NDArray[Any]) -> None:
        """Write the cube (C, H, W) of a tensor to device memory, or the array of a tensor of the host."""
        tensor = self.model.graph.tensors[name]
        if tensor.open:
            self._hosted[name] = np.array(cube, tensor.dtype)
            return
        if tensor.host:
            self._host_array(name).reshape(-1)[:] = cube.reshape(-1)
            return
        data = self.model.plan.place(name).pack(cube)
        self.memory(name)[: data.size] = data

    def get_output(self, index: int, raw: bool = False) -> npt.NDArray[Any]:
        """Read an output; host operations after the NPU's part are computed here.

        Parameters
        ----------
        index
            Number of the output.
        raw
            Return codes instead of float32 if the output is quantised.

        Returns
        -------
        An array of its own: a later run or `close` does not change it.

        Raises
        ------
        ModelError
            If the index is wrong.
        """
        result = self.model.decode_output(index, self.tensor, raw)
        ours = [*(buffer.view() for buffer in self.buffers.values()), *self._hosted.values()]
        if any(np.may_share_memory(result, memory) for memory in ours):
            return result.copy()
        return result

    def memory(self, tensor: str) -> npt.NDArray[np.uint8]:
        """Return the bytes of a tensor in device memory, or of the array of a tensor of the host."""
        if self.model.graph.tensors[tensor].host:
            return self._host_array(tensor).reshape(-1).view(np.uint8)
        place = self.model.plan.place(tensor)
        start = place.ref.offset
        return self.buffers[place.ref.region].view(start, place.size)

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """Return the int8 or float16 cube (C, H, W) of a tensor, read from device memory.

        For a tensor that only the host keeps the result is an array of its shape and type.
        """
        tensor = self.model.graph.tensors[name]
        if tensor.host:
            array = self._host_array(name)
            return array if tensor.open else array.view(tensor.dtype).reshape(tensor.shape)
        return self.model.plan.place(name).unpack(self.memory(name), self.model.graph.tensors[name].dtype)

    def _host_array(self, name: str) -> npt.NDArray[Any]:
        """Return the array of a tensor that only the host keeps; zeros before it is written."""
        tensor = self.model.graph.tensors[self.model.graph.root(name)]
        if tensor.name not in self._hosted:
            self._hosted[tensor.name] = np.zeros(tensor.shape, tensor.dtype)
        return self._hosted[tensor.name]

    def close(self) -> None:
        """Release the buffers; may be called again."""
        if not self._closed:
            self._closed = True
            for region in list(self.buffers):
                self._give_back(region)


def plan_layers(
    model: CompiledModel,
    measures: Mapping[int, TaskMeasure] = MappingProxyType({}),
    seconds: Mapping[int, float] = MappingProxyType({}),
    together: Mapping[int, int] = MappingProxyType({}),
) -> list[LayerReport]:
    """Return a report of each layer of a plan, without cycles where no task was measured.

    Parameters
    ----------
    model
        The compiled network.
    measures
        Measures of every task by its number, or empty.
    seconds
        Seconds that the host needed, by step.
    together
        Cycles of layers whose tasks ran on several cores at once, by step.  A layer that was a part of such a
        job takes as long as its slowest core.
    """
    reports = []
    of_step: list[list[int]] = [[] for _ in model.plan.steps]
    for number, task in enumerate(model.plan.tasks):
        of_step[task.layer].append(number)
    names = layer_names(model.plan.steps)
    for index, step in enumerate(model.plan.steps):
        tasks = [model.plan.tasks[n] for n in of_step[index]]
        seen = [measures[n] for n in of_step[index]] if measures else []
        busy = [m.mac_busy for m in seen if m.mac_busy is not None]
        reports.append(
            LayerReport(
                names[index],
                step.kind,
                "host" if isinstance(step, HostStep) else "npu",
                len(tasks),
                together.get(index, _longest(seen)) if seen and not isinstance(step, HostStep) else None,
                sum(task.macs for task in tasks),
                sum(m.bytes_read for m in seen) if seen else sum(task.reads for task in tasks),
                sum(m.bytes_written for m in seen) if seen else sum(task.writes for task in tasks),
                sum(task.formula_npu for task in tasks),
                step.inputs[0].shape if step.inputs else (),
                step.output.shape,
                sum(busy) if busy else None,
                seconds.get(index, 0.0),
                step.output.itemsize,
                tuple(seen),
                index,
                hosted_operators(step),
                rates=tuple(task.octet for task in tasks) if seen else (),
            )
        )
    for op in model.graph.host_ops:
        if op.kind == "Softmax":
            shape = cast(tuple[int, ...], op.attributes["shape"])
            said = (ending_softmax(model.graph, op),)
            report = LayerReport(op.name, op.kind, "host", 0, None, 0, 0, 0, 0, shape, shape, hosted=said)
            reports.append(report)
    return reports


def run_together(copies: Sequence[LoadedModel], max_cycles: int | None = None) -> RunReport:
    """Run a network once in each of its copies on a device: copy n on core n, all cores at the same time.

    The host computes its steps for one copy after the other, each from the copy's own tensors.

    Parameters
    ----------
    copies
        The same model, whose jobs are for one core, loaded several times; the model has no states.
    max_cycles
        Limit of each job; None for the driver's.

    Returns
    -------
    The cycles of all cores together, and the layers of the first copy.

    Raises
    ------
    DriverError
        If the device times out or reports an error.
    """
    first = copies[0]
    model, meter = first.model, first.meter
    jobs = [one.job(max_cycles) for one in copies]
    mask = (1 << len(copies)) - 1
    cycles, seconds, measures = 0, dict[int, float](), dict[int, TaskMeasure]()
    for segment in model.plan.segments():
        if segment.host is not None:
            for one in copies:
                started = time.perf_counter()
                with one.on_host():
                    one.compute(segment.host)
                if one is first:
                    seconds[segment.host] = time.perf_counter() - started
            continue
        part = slice(segment.first, segment.first + segment.count)
        tasks = [task for job in jobs for task in job.tasks[part]]
        ranges = {core: (core * segment.count, segment.count) for core in range(len(copies))}
        before = len(meter()) if meter else 0
        result = first.driver.submit(replace(jobs[0], tasks=tasks, core_mask=mask, ranges=ranges))
        cycles += result.cycles
        if meter:
            measures |= _by_task(segment, [m for m in meter()[before:] if m.core == 0])
    return first.report(cycles, measures, seconds)


def ending_softmax(graph: Graph, op: HostOp) -> HostOperator:
    """Return what is said of a Softmax after the NPU's part."""
    elements = math.prod(cast(Sequence[int], op.attributes.get("shape") or ()))
    return HostOperator(op.name, op.kind, last_softmax_reason(graph.tensors.get(op.input), op), elements)


def hosted_operators(step: Step) -> tuple[HostOperator, ...]:
    """Return the operators of the model file that a step computes on the host; none for steps of the NPU."""
    if isinstance(step, CallStep):
        return step.program.operators
    if isinstance(step, HostStep):
        return (HostOperator(step.name, step.kind, function_reason(step), step.output.elements),)
    return ()
