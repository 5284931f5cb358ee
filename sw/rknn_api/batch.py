"""Models of batches: an ONNX or TFLite model whose inputs have a first dimension above one.

The compiler's networks have a batch of one, so such a model is compiled for one sample and run once for each;
so is a `.rknn` file with a batch, whose lists are those of one sample.
Samples go to several cores at a time, as in the vendor's library, each with its own memory and the same
copy of the weights: as many as the device has, or as `rknn_set_batch_core_num` says.  Sample i lies at
i * size / batch of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import ModelError, RunReport, TensorInfo
from rkcosim.compiler.loaders.tflite_file import is_tflite, read_tflite
from rkcosim.regcmd.job import Job
from rkcosim.rknn_api.custom_graph import TailLoaded

Array = npt.NDArray[Any]

MOST = 1024
"""Largest batch."""


def single(data: bytes) -> tuple[bytes, int] | None:
    """A model for one sample, and the size of the batch.

    Returns
    -------
    None for a model without a batch that all inputs have, and for data that are no ONNX or TFLite model (the
    compiler then reports the error).

    Raises
    ------
    ModelError
        for a batch above `MOST`.
    """
    if is_tflite(data):
        return _single_tflite(data)
    if data[:1] not in (b"\x08", b"\x0a", b"\x12", b"\x3a", b"\x42"):
        return None
    import onnx
    from onnx import numpy_helper

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # the compiler's loader gives the message
        return None
    graph = proto.graph
    constants = {item.name: item for item in graph.initializer}
    inputs = [info for info in graph.input if info.name not in constants]
    batch = _batch_of([tuple(int(d.dim_value) for d in info.type.tensor_type.shape.dim) for info in inputs])
    if batch is None:
        return None
    for info in (*inputs, *graph.output):
        if _first(info) == batch:
            info.type.tensor_type.shape.dim[0].dim_value = 1
    del graph.value_info[:]
    for node in graph.node:
        item = constants.get(node.input[1]) if node.op_type == "Reshape" else None
        if item is not None:
            shape = numpy_helper.to_array(item).copy()
            if shape.size and shape[0] == batch:
                shape[0] = 1
                item.CopyFrom(numpy_helper.from_array(shape, item.name))
    return proto.SerializeToString(), batch


def _batch_of(shapes: Sequence[tuple[int, ...]]) -> int | None:
    """Return the batch that all inputs have, or None; raises ModelError for one above `MOST`."""
    sizes = {shape[0] if shape else 0 for shape in shapes}
    if not any(shape[0] > 1 for shape in shapes if len(shape) > 2):  # rows of a matrix are no batch
        return None
    batch = max(sizes)
    if sizes != {batch}:
        return None
    if batch > MOST:
        raise ModelError(f"the inputs have a batch of {batch}; the largest is {MOST}")
    return batch


_SHAPE, _SIGNATURE, _BUFFER_DATA = 4, 18, 4
"""Offsets in the vtables of TFLite's tables: shape and shape_signature of a Tensor, data of a Buffer."""

_SIZES_OF = {"TRANSPOSE_CONV": 0, "SLICE": 2, "STRIDED_SLICE": 2}
"""Number of the input of an operator that is a constant with sizes, of which the first is the batch."""


def _single_tflite(data: bytes) -> tuple[bytes, int] | None:
    """As `single` for a TFLite model: its shapes are changed in place."""
    try:
        model = read_tflite(data)
    except ModelError:  # the compiler's loader gives the message
        return None
    batch = _batch_of([model.tensors[n].shape for n in model.inputs])
    if batch is None:
        return None
    import tflite

    changed = bytearray(data)
    file = tflite.Model.GetRootAsModel(changed, 0)
    graph = file.Subgraphs(0)
    for tensor in model.tensors:
        if tensor.data is None and tensor.shape[:1] == (batch,):
            table = graph.Tensors(tensor.index)._tab
            for slot in (_SHAPE, _SIGNATURE):
                _set_first(changed, table, slot, batch)
    for node in model.nodes:
        place = _SIZES_OF.get(node.op, -1)
        if 0 <= place < len(node.inputs) and node.inputs[place] >= 0:
            sizes = model.tensors[node.inputs[place]]
            if sizes.data is not None and sizes.dtype == "int32" and len(sizes.shape) == 1:
                buffer = file.Buffers(graph.Tensors(sizes.index).Buffer())
                _set_first(changed, buffer._tab, _BUFFER_DATA, batch)
    return bytes(changed), batch


def _set_first(changed: bytearray, table: Any, slot: int, batch: int) -> None:
    """Replace the first 32-bit number of a vector of a table by 1 if it is the batch."""
    offset = table.Offset(slot)
    if offset and table.VectorLen(offset):
        at = table.Vector(offset)
        if int.from_bytes(changed[at : at + 4], "little") == batch:
            changed[at : at + 4] = (1).to_bytes(4, "little")


def _first(info: Any) -> int:
    dims = info.type.tensor_type.shape.dim
    return int(dims[0].dim_value) if len(dims) else 0


class BatchModel:
    """A model compiled for one sample; it looks like `CompiledModel` with larger inputs and outputs.

    Members
    -------
    one : the compiled model.
    batch : its number of samples.

    Raises
    ------
    ModelError
        for an input or output whose first dimension is no batch.
    """

    def __init__(self, one: Any, batch: int) -> None:
        self.one, self.batch = one, batch
        self.inputs = [self._wide(info) for info in one.inputs]
        self.outputs = [self._wide(info) for info in one.outputs]

    def _wide(self, info: TensorInfo) -> TensorInfo:
        if not info.shape or info.shape[0] != 1:
            raise ModelError(f"'{info.name}' of shape {list(info.shape)} has no batch in front")
        return replace(info, shape=(self.batch, *info.shape[1:]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.one, name)


class BatchLoaded:
    """A model of batches on the device; it looks like `LoadedModel` to the rest of this package.

    Parameters
    ----------
    model : the model.
    first : its single sample on the device.
    copy : puts the model there again, with the same weights, for another core; None: never.
    cores : of the device.
    size : bytes of one sample of a tensor, by its name.

    Members
    -------
    core : the core that runs all samples, where `pinned`.
    limit : most cores at a time, 0 for all.
    """

    def __init__(
        self,
        model: BatchModel,
        first: Any,
        copy: Callable[[Any], Any] | None,
        cores: int,
        size: dict[str, int],
    ) -> None:
        self.whole, self.core, self.limit, self.pinned = model, 0, 0, False
        self._copies, self._copy, self._cores = [first], copy, cores
        self._pages = {name: np.zeros(model.batch * count, np.uint8) for name, count in size.items()}
        self._outputs: list[list[tuple[Array, Array]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copies[0], name)

    @property
    def first(self) -> Any:
        """The copy whose weights the others use."""
        return self._copies[0]

    @property
    def meter(self) -> Any:
        """As of `LoadedModel`."""
        return self._copies[0].meter

    @meter.setter
    def meter(self, meter: Any) -> None:
        self._copies[0].meter = meter

    def memory(self, tensor: str) -> npt.NDArray[np.uint8]:
        """Native bytes of all samples of an input or output."""
        return self._pages[tensor]

    def _sample(self, tensor: str, number: int) -> npt.NDArray[np.uint8]:
        pages = self._pages[tensor]
        size = pages.size // self.whole.batch
        return pages[number * size : (number + 1) * size]

    def set_input(self, index: int, values: npt.ArrayLike) -> None:
        """Quantise the samples of an input; raises as `LoadedModel.set_input`."""
        one, tensor = self._copies[0], self.whole.one.graph.inputs[index].tensor
        for number, value in enumerate(np.asarray(values)):
            one.set_input(index, value[None])
            sample = self._sample(tensor, number)
            sample[:] = one.memory(tensor)[: sample.size]

    def get_output(self, index: int, raw: bool = False) -> Array:
        """Samples of an output after a run."""
        return np.concatenate([sample[index][1 if raw else 0] for sample in self._outputs])

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run all samples; the cycles are those of the whole batch, the layers those of one sample."""
        batch, width = self.whole.batch, self._width()
        while len(self._copies) < width:
            assert self._copy is not None
            self._copies.append(self._copy(self._copies[0]))
        self._outputs, reports = [], []
        for first in range(0, batch, width):
            group = range(first, min(first + width, batch))
            for one, number in zip(self._copies, group, strict=False):
                self._move(one, number, self.whole.one.graph.inputs)
            reports.append(self._run(len(group), max_cycles))
            for one, number in zip(self._copies, group, strict=False):
                count = range(len(self.whole.outputs))
                self._outputs.append([(one.get_output(n), one.get_output(n, True)) for n in count])
                self._keep(one, number)
        return RunReport(sum(report.cycles for report in reports), reports[0].layers)

    def _width(self) -> int:
        """Samples that run at a time: one for each core, where a sample is one job on one core."""
        plan = self.whole.one.plan
        if self.pinned or self._copy is None or plan.jobs != 1 or getattr(plan, "cores", 1) != 1:
            return 1
        if isinstance(self.first, TailLoaded) or any(part.host is not None for part in plan.segments()):
            return 1  # the host computes a part of each sample
        return max(min(self.whole.batch, self._cores, self.limit or self._cores), 1)

    def _move(self, one: Any, number: int, inputs: Any) -> None:
        for item in inputs:
            sample = self._sample(item.tensor, number)
            one.memory(item.tensor)[: sample.size] = sample

    def _keep(self, one: Any, number: int) -> None:
        for item in self.whole.one.graph.outputs:
            if not item.real:
                sample = self._sample(item.value, number)
                sample[:] = one.memory(item.value)[: sample.size]

    def _run(self, count: int, max_cycles: int | None) -> RunReport:
        """Run the first `count` copies, each on a separate core."""
        first = self._copies[0]
        if count == 1:
            first.core = self.core if self.pinned else 0
            report: RunReport = first.run(max_cycles)
            return report
        jobs: list[Job] = [one.job(max_cycles) for one in self._copies[:count]]
        tasks = [task for job in jobs for task in job.tasks]
        size = len(jobs[0].tasks)
        ranges = {core: (core * size, size) for core in range(count)}
        before = len(first.meter()) if first.meter else 0
        result = first.driver.submit(replace(jobs[0], tasks=tasks, core_mask=(1 << count) - 1, ranges=ranges))
        measures = [m for m in first.meter()[before:] if m.core == 0] if first.meter else []
        return first.report(result.cycles, dict(enumerate(measures)))

    def close(self) -> None:
        """Free every copy; may be called again."""
        for one in reversed(self._copies):
            one.close()
