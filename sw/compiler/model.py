"""A compiled network: what it computes, and the plan that the NPU runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sw.compiler import host
from sw.compiler.graph import Graph, GraphOutput, ModelError, Tensor
from sw.compiler.plan import Plan, make_plan
from sw.compiler.shapes import from_cube, to_cube
from sw.compiler.steps import Step

if TYPE_CHECKING:
    from sw.compiler.runtime import LoadedModel, Meter, NpuDriver

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model.

    `dtype` is int8 or uint8 with scale and zero point in that type's own domain, or float32 (scale 1,
    zero point 0) for what the host computes, or float16 in a model of floats.  `shape` is the model's.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float
    zero_point: int

    @property
    def quantised(self) -> bool:
        """Whether values are codes that stand for `(code - zero_point) * scale`."""
        return self.dtype.kind in "iu"


def _info(name: str, shape: tuple[int, ...], tensor: Tensor) -> TensorInfo:
    if tensor.real:
        return TensorInfo(name, shape, np.dtype(np.float16), 1.0, 0)
    shift, dtype = (128, np.uint8) if tensor.unsigned else (0, np.int8)
    return TensorInfo(name, shape, np.dtype(dtype), tensor.scale, tensor.zero_point + shift)


class CompiledModel:
    """A planned network.

    Attributes
    ----------
    graph, plan
        the network and how it is run.
    inputs, outputs
        `TensorInfo` of each, in the model's order.

    With `reuse` tensors share memory; then only inputs and outputs are there after a run.  A `plan`
    made before is taken as it is.
    """

    def __init__(
        self,
        graph: Graph,
        reuse: bool = False,
        plan: Plan | None = None,
        cores: int = 1,
        fuse: bool = True,
    ) -> None:
        self.graph = graph
        self.plan: Plan = plan or make_plan(graph, reuse, cores, fuse)
        self.inputs = [_info(item.name, item.shape, graph.tensors[item.tensor]) for item in graph.inputs]
        self.outputs = [self._output_info(item) for item in graph.outputs]

    def _output_info(self, item: GraphOutput) -> TensorInfo:
        if item.real:
            return TensorInfo(item.name, item.shape, np.dtype(np.float32), 1.0, 0)
        return _info(item.name, item.shape, self.graph.tensors[item.value])

    def graph_nodes(self) -> list[Step]:
        """Every operation with the exact integers it uses, in order (`sw.compiler.steps`)."""
        return list(self.plan.steps)

    def encode_input(self, index: int, values: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """Check and quantise an input.

        Parameters
        ----------
        index
            number of the input.
        values
            an array of the input's shape: its own 8-bit type is taken as codes, floating point is
            quantised.

        Returns
        -------
        int8 array of the tensor's cube (C, H, W).

        Raises
        ------
        ModelError
            for a wrong index, shape or type, naming the input.
        """
        if not 0 <= index < len(self.inputs):
            raise ModelError(f"input {index}: the model has {len(self.inputs)}")
        info, tensor = self.inputs[index], self.graph.tensors[self.graph.inputs[index].tensor]
        array = np.asarray(values)
        if array.shape != info.shape:
            raise ModelError(f"input '{info.name}': shape {array.shape} given, {info.shape} wanted")
        if tensor.real:
            if array.dtype.kind not in "fiu":
                raise ModelError(f"input '{info.name}': {array.dtype} given, numbers wanted")
            with np.errstate(over="ignore"):
                return to_cube(array.astype(np.float16).reshape(tensor.shape), tensor)
        if np.issubdtype(array.dtype, np.floating):
            if not np.isfinite(array).all():
                raise ModelError(f"input '{info.name}': values are not all finite")
            codes = host.quantize(array, info.scale, info.zero_point, info.dtype.type)
        elif array.dtype == info.dtype:
            codes = array
        else:
            raise ModelError(f"input '{info.name}': {array.dtype} given, float or {info.dtype} wanted")
        signed = (codes.astype(np.int16) - (128 if tensor.unsigned else 0)).astype(np.int8)
        return to_cube(signed.reshape(tensor.shape), tensor)

    def decode_output(
        self, index: int, codes: Callable[[str], npt.NDArray[np.int8]], raw: bool = False
    ) -> Codes:
        """Compute an output from the tensors that the NPU left in memory.

        Parameters
        ----------
        index
            number of the output.
        codes
            gives the int8 cube of a tensor by name.
        raw
            give codes instead of real numbers where the output is quantised.

        Returns
        -------
        float32 array of the output's shape, or codes of its type.

        Raises
        ------
        ModelError
            for a wrong index.
        """
        if not 0 <= index < len(self.outputs):
            raise ModelError(f"output {index}: the model has {len(self.outputs)}")
        item, info = self.graph.outputs[index], self.outputs[index]
        if not item.real:
            tensor = self.graph.tensors[item.value]
            if tensor.real:
                halves = from_cube(codes(item.value), tensor).reshape(item.shape)
                return halves if raw else halves.astype(np.float32)
            values = _model_codes(codes(item.value), tensor).reshape(item.shape)
            return values if raw else host.dequantize(values, info.scale, info.zero_point)
        return self._host_value(item.value, codes).reshape(item.shape)

    def _host_value(self, name: str, codes: Callable[[str], npt.NDArray[np.int8]]) -> Codes:
        """Value of a tensor (as real numbers) or of a host operation, computed on demand."""
        for op in self.graph.host_ops:
            if op.output == name:
                return host.evaluate(op, self._host_value(op.input, codes))
        tensor = self.graph.tensors[name]
        if tensor.real:
            return from_cube(codes(name), tensor).astype(np.float32)
        values = _model_codes(codes(name), tensor).reshape(tensor.shape)
        return host.dequantize(values, tensor.scale, tensor.zero_point + (128 if tensor.unsigned else 0))

    def save(self) -> bytes:
        """The bytes of the model's container, which `compile_model` takes."""
        from sw.compiler.container import save_model

        return save_model(self)

    def load(self, driver: NpuDriver, core: int = 0, meter: Meter | None = None) -> LoadedModel:
        """Allocate buffers on a device and write weights and commands into them.

        `core` is the core to run on, `meter` as in `sw.compiler.runtime.LoadedModel`.

        Raises
        ------
        DriverError
            when memory runs out.
        """
        from sw.compiler.runtime import LoadedModel

        return LoadedModel(self, driver, core, meter)


def _model_codes(cube: npt.NDArray[np.int8], tensor: Tensor) -> Codes:
    """Codes in the model's type and shape."""
    codes = from_cube(cube, tensor)
    return (codes.astype(np.int16) + 128).astype(np.uint8) if tensor.unsigned else codes


_KEEP: ContextVar[bool] = ContextVar("keep", default=False)
_CORES: ContextVar[int] = ContextVar("cores", default=1)


@contextmanager
def keeping_tensors(keep: bool = True) -> Iterator[None]:
    """Let models compiled inside keep all tensors in memory of their own, for who wants to see them."""
    token = _KEEP.set(keep)
    try:
        yield
    finally:
        _KEEP.reset(token)


@contextmanager
def using_cores(cores: int) -> Iterator[None]:
    """Let models compiled inside run on so many cores."""
    token = _CORES.set(cores)
    try:
        yield
    finally:
        _CORES.reset(token)


def compile_model(
    data: bytes, reuse: bool | None = None, cores: int | None = None, fuse: bool = True
) -> CompiledModel:
    """Compile an ONNX or TFLite model, or take a compiled one from its container, told apart by content.

    Parameters
    ----------
    data
        the bytes of the file.
    reuse
        let tensors share memory; by default they do, except inside `keeping_tensors`.  A container
        is as it was compiled.
    cores
        1 to 3; by default 1, or what `using_cores` says.
    fuse
        let a convolution's task do the addition behind it.

    Raises
    ------
    ModelError
        for a model that cannot be read or run; the message names node and tensor.
    """
    from sw.compiler.container import is_container, load_container
    from sw.loaders import load_model

    if is_container(data):
        return load_container(data)
    shared = not _KEEP.get() if reuse is None else reuse
    return CompiledModel(load_model(data), reuse=shared, cores=cores or _CORES.get(), fuse=fuse)
