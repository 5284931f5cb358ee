"""Running a compiled network on a device: buffers, one job, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from sw.compiler.model import CompiledModel
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
    """What a device measured of one task: cycles, DRAM bytes, cycles with the MAC array busy."""

    cycles: int
    bytes_read: int
    bytes_written: int
    mac_busy: int | None = None


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


@dataclass(frozen=True)
class RunReport:
    """One run of a network: cycles of its job, and its layers."""

    cycles: int
    layers: list[LayerReport]


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
    """

    def __init__(
        self, model: CompiledModel, driver: NpuDriver, core: int = 0, meter: Meter | None = None
    ) -> None:
        self.model = model
        self.driver = driver
        self.core = core
        self.meter = meter
        plan = model.plan
        self._closed = False
        self.buffers: dict[str, NpuBuffer] = {}
        sizes = {
            "weights": max(len(plan.weights), 64),
            "activations": max(plan.activation_bytes, 64),
            "regcmd": plan.regcmd_bytes(),
        }
        try:
            for region, size in sizes.items():
                self.buffers[region] = driver.alloc(size, region)
        except BaseException:
            self.close()
            raise
        self.bases = {region: buffer.iova for region, buffer in self.buffers.items()}
        self.tasks = plan.task_list(self.bases)
        for region, data in (("weights", bytes(plan.weights)), ("regcmd", self.tasks.data)):
            self.buffers[region].view(0, len(data))[:] = np.frombuffer(data, np.uint8)

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_input(self, index: int, values: npt.ArrayLike) -> None:
        """Quantise an input if it is real and write it to device memory.

        Raises
        ------
        ModelError
            for a wrong index, shape or type (`CompiledModel.encode_input`).
        """
        cube = self.model.encode_input(index, values)
        name = self.model.graph.root(self.model.graph.inputs[index].tensor)
        place = self.model.plan.places[name]
        if place.argb:
            pixels = (cube.astype(np.int16) + 128).astype(np.uint8) if place.unsigned_pixels else cube
            data = pack_argb(pixels)
        else:
            data = pack_feature(cube, surface_count=place.surface_count)
        self.memory(name)[: data.size] = data

    def job(self) -> Job:
        """The whole network as one job."""
        layers = [task.layer for task in self.model.plan.tasks]
        tasks = [Task.of_entry(entry, layer) for entry, layer in zip(self.tasks.tasks, layers, strict=True)]
        return Job(tasks, core_mask=1 << self.core)

    def run(self) -> RunReport:
        """Run the whole network as one job.

        Raises
        ------
        DriverError
            for a timeout or an error of the device.
        """
        before = len(self.meter()) if self.meter else 0
        result = self.driver.submit(self.job())
        measures = list(self.meter()[before:]) if self.meter else []
        if len(measures) != len(self.tasks.tasks):
            measures = []
        return RunReport(result.cycles, self._layers(measures))

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

    def tensor(self, name: str) -> npt.NDArray[np.int8]:
        """The int8 cube (C, H, W) of a tensor as it stands in device memory."""
        place = self.model.plan.place(name)
        if place.argb:
            dtype = np.uint8 if place.unsigned_pixels else np.int8
            pixels = unpack_argb(self.memory(name), place.cube, dtype)
            shift = 128 if place.unsigned_pixels else 0
            return (pixels.astype(np.int16) - shift).astype(np.int8)
        return unpack_feature(self.memory(name), place.cube).astype(np.int8)

    def close(self) -> None:
        """Give the buffers back; may be called again."""
        if not self._closed:
            self._closed = True
            for buffer in self.buffers.values():
                buffer.free()

    def _layers(self, measures: list[TaskMeasure]) -> list[LayerReport]:
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
                    "npu",
                    len(tasks),
                    sum(m.cycles for m in seen) if seen else None,
                    sum(task.macs for task in tasks),
                    sum(m.bytes_read for m in seen) if seen else sum(task.reads for task in tasks),
                    sum(m.bytes_written for m in seen) if seen else sum(task.writes for task in tasks),
                    sum(task.formula_npu for task in tasks),
                    step.inputs[0].shape,
                    step.output.shape,
                    sum(busy) if busy else None,
                )
            )
        for op in self.model.graph.host_ops:
            if op.kind == "Softmax":
                shape = cast(tuple[int, ...], op.attributes["shape"])
                reports.append(LayerReport(op.name, op.kind, "host", 0, None, 0, 0, 0, 0, shape, shape))
        return reports
