"""Running a compiled network on a device: buffers, one job, reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sw.compiler.model import CompiledModel
from sw.layouts import pack_argb, pack_feature, unpack_argb, unpack_feature
from sw.regcmd import TaskList


@dataclass(frozen=True)
class ChainResult:
    """What a job took: all its cycles, and those of each task where the device can tell."""

    cycles: int
    task_cycles: list[int] | None = None
    task_bytes: list[tuple[int, int]] | None = None


class NpuBuffer(Protocol):
    """Memory that the device sees at `iova`; `view` is a writable uint8 array of it."""

    iova: int
    view: Any


class NpuDriver(Protocol):
    """What the runtime needs of a driver."""

    def alloc(self, size: int, name: str) -> NpuBuffer:
        """Allocate zeroed memory."""
        ...

    def free(self, buffer: Any) -> None:
        """Give memory back."""
        ...

    def run_chain(self, tasks: TaskList, name: str) -> ChainResult:
        """Run a chain of tasks that lies in memory and wait for its end."""
        ...


@dataclass(frozen=True)
class LayerReport:
    """One layer of a run.

    `cycles` is None where the device does not tell cycles of single tasks; bytes count what the
    layer's tasks move between DRAM and NPU, `formula_npu` is HARDWARE 9.6.
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


@dataclass(frozen=True)
class RunReport:
    """One run of a network: cycles of its job, and its layers."""

    cycles: int
    layers: list[LayerReport]


class LoadedModel:
    """A network in a device's memory.  Use as a context manager or call `close`."""

    def __init__(self, model: CompiledModel, driver: NpuDriver) -> None:
        self.model = model
        self.driver = driver
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
        _bytes(self.buffers["weights"])[: len(plan.weights)] = np.frombuffer(bytes(plan.weights), np.uint8)
        _bytes(self.buffers["regcmd"])[: len(self.tasks.data)] = np.frombuffer(self.tasks.data, np.uint8)

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

    def run(self) -> RunReport:
        """Run the whole network as one job.

        Raises
        ------
        Exception
            what the driver raises for a timeout or an error of the device.
        """
        result = self.driver.run_chain(self.tasks, self.model.graph.name)
        return RunReport(result.cycles, self._layers(result))

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
        return _bytes(self.buffers[place.ref.region])[start : start + place.size]

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
                self.driver.free(buffer)

    def _layers(self, result: ChainResult) -> list[LayerReport]:
        reports = []
        for index, step in enumerate(self.model.plan.steps):
            numbers = [n for n, task in enumerate(self.model.plan.tasks) if task.layer == index]
            tasks = [self.model.plan.tasks[n] for n in numbers]
            moved = [(task.reads, task.writes) for task in tasks]
            if result.task_bytes is not None:
                moved = [result.task_bytes[n] for n in numbers]
            cycles = None
            if result.task_cycles is not None:
                cycles = sum(result.task_cycles[n] for n in numbers)
            reports.append(
                LayerReport(
                    step.name,
                    step.kind,
                    "npu",
                    len(tasks),
                    cycles,
                    sum(task.macs for task in tasks),
                    sum(read for read, _ in moved),
                    sum(written for _, written in moved),
                    sum(task.formula_npu for task in tasks),
                    step.inputs[0].shape,
                    step.output.shape,
                )
            )
        for op in self.model.graph.host_ops:
            if op.kind == "Softmax":
                shape = tuple(op.attributes["shape"])  # type: ignore[arg-type]
                reports.append(LayerReport(op.name, op.kind, "host", 0, None, 0, 0, 0, 0, shape, shape))
        return reports


def _bytes(buffer: NpuBuffer) -> npt.NDArray[np.uint8]:
    """The buffer's memory as a writable uint8 array."""
    view = buffer.view
    return view if isinstance(view, np.ndarray) else np.frombuffer(view, dtype=np.uint8)
