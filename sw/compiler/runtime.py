"""Running a compiled network on a device: buffers, one job, reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import ModelError
from sw.compiler.host_steps import compute
from sw.compiler.model import CompiledModel
from sw.compiler.plan import ALIGN
from sw.compiler.steps import HostStep, Step
from sw.driver.job import Job, JobResult, Task
from sw.layouts import pack_argb, pack_feature, unpack_argb, unpack_feature


class NpuBuffer(Protocol):
    """Memory that the device sees at `iova` (`sw.driver.Buffer`)."""

    iova: int

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        """The bytes themselves, writable."""
        ...

    def free(self) -> None:
        """Give the memory back."""
        ...


class NpuDriver(Protocol):
    """What the runtime needs of a driver (`sw.driver.Driver`)."""

    def alloc(self, size: int, name: str) -> NpuBuffer:
        """Allocate zeroed memory."""
        ...

    def submit(self, job: Job) -> JobResult:
        """Run a job to its end."""
        ...


@dataclass(frozen=True)
class TaskMeasure:
    """What a device measured of one task: cycles, DRAM bytes, cycles with the MAC array busy.

    `events` are its counters in cycles by name, `read_by` and `written_by` bytes by AXI client (command
    words among them, which `bytes_read` leaves out), `start` the cycle of its start since the device was
    opened and `core` where it ran; devices that know less leave them out.
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
"""Gives the measures of all tasks since the device was opened, oldest first."""


@dataclass(frozen=True)
class LayerReport:
    """One layer of a run.

    `cycles` (from the start of its first task to the end of its last) and `mac_busy` are None where
    the device does not measure single tasks; bytes are measured or else planned, commands left out
    in the plan; `formula_npu` is HARDWARE 9.6.
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
    """Time that the host took for it, in the simulation's own process."""
    itemsize: int = 1
    """Bytes of an output element: 1 int8, 2 fp16 (half the MACs a cycle)."""
    measures: tuple[TaskMeasure, ...] = ()
    """What the device measured of each of its tasks, if it did."""
    step: int | None = None
    """Index of the compiled step; None for what the host computes behind the network."""


@dataclass(frozen=True)
class RunReport:
    """One run of a network: cycles of its job, and its layers."""

    cycles: int
    layers: list[LayerReport]


class _Part:
    """The end of a buffer, from an offset on; whoever owns the buffer frees it."""

    def __init__(self, buffer: NpuBuffer, offset: int) -> None:
        self.iova = buffer.iova + offset
        self._buffer = buffer
        self._offset = offset

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        return self._buffer.view(self._offset + offset, size)

    def free(self) -> None:
        """Do nothing."""


class _Counted:
    """A buffer that several loaded models use; the last one frees it."""

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
        the compiled network.
    driver
        of the device; `core` is the core that runs the job.
    meter
        measures of single tasks, for the reports; may be set later.
    share
        a loaded model with the same weights: its copy of them is used and lives as long as both.
    outside
        regions that are not allocated here but given by `use_region` before the first run.

    Raises
    ------
    DriverError
        when memory runs out.
    ModelError
        when `share` holds other weights.
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
        plan = model.plan
        self._closed = False
        self._shared: _Counted | None = None
        self._outer: set[str] = set()
        self._missing = set(outside)
        self.buffers: dict[str, NpuBuffer] = {}
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
        """Keep "weights" or "activations" in memory of the caller's, which it also frees.

        Weights are written there now; contents of the activations are not taken along.

        Raises
        ------
        ModelError
            if the place is not a multiple of 64 bytes.
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
            for a wrong index, shape or type (`CompiledModel.encode_input`).
        """
        cube = self.model.encode_input(index, values)
        name = self.model.graph.inputs[index].tensor
        self.put(name, cube)

    def job(self, max_cycles: int | None = None) -> Job:
        """The whole network as one job; `max_cycles` bounds it (None: as the driver does).

        Raises
        ------
        ModelError
            if a region of `outside` was not given.
        """
        if self._missing:
            raise ModelError(f"no memory was given for the {' and the '.join(sorted(self._missing))}")
        layers = [task.layer for task in self.model.plan.tasks]
        tasks = [Task.of_entry(entry, layer) for entry, layer in zip(self.tasks.tasks, layers, strict=True)]
        names = {number: step.name for number, step in enumerate(self.model.plan.steps)}
        return Job(tasks, core_mask=1 << self.core, max_cycles=max_cycles, layers=names)

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run the whole network: one job, or several with the host's steps between them.

        Raises
        ------
        DriverError
            for a timeout or an error of the device.
        """
        before = len(self.meter()) if self.meter else 0
        job = self.job(max_cycles)
        cycles = 0
        seconds: dict[int, float] = {}
        together: dict[int, int] = {}
        for segment in self.model.plan.segments():
            if segment.host is None:
                tasks = job.tasks[segment.first : segment.first + segment.count]
                part = replace(job, tasks=tasks)
                if len(segment.parts) > 1:  # cores 0, 1 (and 2) together
                    ranges = dict(enumerate(segment.parts))
                    part = replace(part, core_mask=(1 << len(ranges)) - 1, ranges=ranges)
                result = self.driver.submit(part)
                cycles += result.cycles
                if len(segment.parts) > 1:
                    together[self.model.plan.tasks[segment.first].layer] = result.cycles
            else:
                started = time.perf_counter()
                self._host(self.model.plan.steps[segment.host])
                seconds[segment.host] = time.perf_counter() - started
        measures = list(self.meter()[before:]) if self.meter else []
        if len(measures) != len(self.tasks.tasks):
            measures = []
        return RunReport(cycles, self._layers(measures, seconds, together))

    def _host(self, step: Step) -> None:
        """Compute a step of the host's and put its result where the NPU's steps look for it."""
        assert isinstance(step, HostStep)
        self.put(step.output.name, compute(step, [self.tensor(x.name) for x in step.inputs]))

    def put(self, name: str, cube: npt.NDArray[Any]) -> None:
        """Write the cube (C, H, W) of a tensor, int8 or float16, to device memory."""
        place = self.model.plan.place(name)
        if place.argb:
            pixels = (cube.astype(np.int16) + 128).astype(np.uint8) if place.unsigned_pixels else cube
            data = pack_argb(pixels)
        else:
            data = pack_feature(cube, surface_count=place.surface_count)
        self.memory(name)[: data.size] = data

    def get_output(self, index: int, raw: bool = False) -> npt.NDArray[Any]:
        """Read an output; host operations behind the NPU are computed here.

        Parameters
        ----------
        index
            number of the output.
        raw
            give codes instead of float32 where the output is quantised.

        Raises
        ------
        ModelError
            for a wrong index.
        """
        return self.model.decode_output(index, self.tensor, raw)

    def memory(self, tensor: str) -> npt.NDArray[np.uint8]:
        """Device memory of a tensor."""
        place = self.model.plan.place(tensor)
        start = place.ref.offset
        return self.buffers[place.ref.region].view(start, place.size)

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """The int8 or float16 cube (C, H, W) of a tensor as it stands in device memory."""
        place = self.model.plan.place(name)
        if place.argb:
            dtype = np.uint8 if place.unsigned_pixels else np.int8
            pixels = unpack_argb(self.memory(name), place.cube, dtype)
            shift = 128 if place.unsigned_pixels else 0
            return (pixels.astype(np.int16) - shift).astype(np.int8)
        kind = self.model.graph.tensors[name].dtype
        return unpack_feature(self.memory(name), place.cube, kind).astype(kind)

    def close(self) -> None:
        """Give the buffers back; may be called again."""
        if not self._closed:
            self._closed = True
            for region in list(self.buffers):
                self._give_back(region)

    def _layers(
        self, measures: list[TaskMeasure], seconds: dict[int, float], together: dict[int, int]
    ) -> list[LayerReport]:
        """Reports; `together` are the cycles of layers whose tasks ran on several cores at once."""
        reports = []
        for index, step in enumerate(self.model.plan.steps):
            numbers = [n for n, task in enumerate(self.model.plan.tasks) if task.layer == index]
            tasks = [self.model.plan.tasks[n] for n in numbers]
            seen = [measures[n] for n in numbers] if measures else []
            busy = [m.mac_busy for m in seen if m.mac_busy is not None]
            reports.append(
                LayerReport(
                    step.name,
                    step.kind,
                    "host" if isinstance(step, HostStep) else "npu",
                    len(tasks),
                    together.get(index, sum(m.cycles for m in seen))
                    if seen and not isinstance(step, HostStep)
                    else None,
                    sum(task.macs for task in tasks),
                    sum(m.bytes_read for m in seen) if seen else sum(task.reads for task in tasks),
                    sum(m.bytes_written for m in seen) if seen else sum(task.writes for task in tasks),
                    sum(task.formula_npu for task in tasks),
                    step.inputs[0].shape,
                    step.output.shape,
                    sum(busy) if busy else None,
                    seconds.get(index, 0.0),
                    step.output.itemsize,
                    tuple(seen),
                    index,
                )
            )
        for op in self.model.graph.host_ops:
            if op.kind == "Softmax":
                shape = cast(tuple[int, ...], op.attributes["shape"])
                reports.append(LayerReport(op.name, op.kind, "host", 0, None, 0, 0, 0, 0, shape, shape))
        return reports
