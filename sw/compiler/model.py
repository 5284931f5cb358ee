"""A compiled network: the graph it computes, and the plan that the NPU runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.files import is_container, read_model
from rkcosim.compiler import host
from rkcosim.compiler.graph import Graph, GraphOutput, ModelError, Tensor, from_cube, to_cube
from rkcosim.compiler.host_runtimes import NotBoundedError
from rkcosim.compiler.interpreters import Source
from rkcosim.compiler.options import load_options
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.planner import make_plan, refusals, replan, rounded_in_vain
from rkcosim.compiler.steps import HostStep, Step
from rkcosim.compiler.tiling import holding
from rkcosim.hostops.quantise import dequantize, quantize

if TYPE_CHECKING:
    from rkcosim.compiler.preprocessing import Preprocessing

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model.

    `dtype` is int8 or uint8, with scale and zero point for codes of that type; float16 in a model of floats;
    or the model's type of a value that only the host keeps (with scale 1 and zero point 0 if it has none).
    `half` is set for floats that only the host keeps: programs of rknn_api see them as float16.
    `shape` is the model's.  `preprocessing` is that of an input of a `.rknn` file; without it a program's
    numbers are the network's.  `open` is set if the size depends on data: `shape` is then that of an example.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float
    zero_point: int
    preprocessing: Preprocessing | None = None
    half: bool = False
    open: bool = False

    @property
    def quantised(self) -> bool:
        """Whether values are codes that represent `(code - zero_point) * scale`."""
        return self.dtype in (np.int8, np.uint8) or (self.scale, self.zero_point) != (1.0, 0)


def _info(name: str, shape: tuple[int, ...], tensor: Tensor) -> TensorInfo:
    if tensor.host:
        half = tensor.dtype.kind == "f"
        return TensorInfo(
            name, shape, tensor.dtype, tensor.scale, tensor.zero_point, half=half, open=tensor.open
        )
    if tensor.real:
        return TensorInfo(name, shape, np.dtype(np.float16), 1.0, 0)
    shift, dtype = (128, np.uint8) if tensor.unsigned else (0, np.int8)
    return TensorInfo(name, shape, np.dtype(dtype), tensor.scale, tensor.zero_point + shift)


class CompiledModel:
    """A planned network.

    With `reuse` tensors share memory; only inputs and outputs are then available after a run.  A `plan`
    that was made earlier is used unchanged.

    Members
    -------
    graph, plan
        The network and its plan.
    inputs, outputs
        `TensorInfo` of each, in the model's order.
    """

    lists_of_a_file = False
    """Whether the command lists are those of a vendor's file, not the compiler's."""

    def __init__(
        self,
        graph: Graph,
        reuse: bool = False,
        plan: Plan | None = None,
        cores: int = 1,
        fuse: bool = True,
    ) -> None:
        self.graph = graph
        self.undivided = ""
        """Why a first dimension above 1 is not taken as a batch (`rkcosim.compiler.batch`)."""
        self.plan: Plan = plan or make_plan(graph, reuse, cores, fuse)
        self.inputs = [_info(item.name, item.shape, graph.tensors[item.tensor]) for item in graph.inputs]
        self.outputs = [self._output_info(item) for item in graph.outputs]

    def _output_info(self, item: GraphOutput) -> TensorInfo:
        if item.real:
            return TensorInfo(item.name, item.shape, np.dtype(np.float32), 1.0, 0)
        return _info(item.name, item.shape, self.graph.tensors[item.value])

    @property
    def floats_in_fp16(self) -> bool:
        """Whether the NPU computes float32 operators of the model's file in fp16."""
        return any(tensor.real for tensor in self.graph.tensors.values())

    @property
    def fp16_layers(self) -> list[str]:
        """Kinds and names of the layers that the NPU computes in fp16, if it computes others in int8."""
        steps = [step for step in self.plan.steps if not isinstance(step, HostStep)]
        names = [f"{step.kind} '{step.name}'" for step in steps if step.output.real]
        return names if len(names) < len(steps) else []

    def graph_nodes(self) -> list[Step]:
        """Return every step with its exact integers, in order (`rkcosim.compiler.steps`)."""
        return list(self.plan.steps)

    def encode_input(self, index: int, values: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """Check and quantise an input.

        Parameters
        ----------
        index
            Number of the input.
        values
            An array of the input's shape.  Its type may be the input's 8-bit type (codes) or floating
            point (quantised here).

        Returns
        -------
        The tensor's cube (C, H, W): int8, or float16 in a model of floats.

        Raises
        ------
        ModelError
            If index, shape or type are wrong; the message names the input.
        """
        if not 0 <= index < len(self.inputs):
            raise ModelError(f"input {index}: the model has {len(self.inputs)}")
        info, tensor = self.inputs[index], self.graph.tensors[self.graph.inputs[index].tensor]
        array = np.asarray(values)
        if array.dtype.name == "bfloat16":  # of the package ml_dtypes; every number is one of float32
            array = array.astype(np.float32)
        if array.shape != info.shape:
            raise ModelError(f"input '{info.name}' has shape {array.shape}, but the model needs {info.shape}")
        if tensor.host and not info.quantised:
            return self._host_input(info, array).reshape(tensor.shape)
        if tensor.real:
            if array.dtype.kind not in "fiu":
                raise ModelError(f"input '{info.name}' has type {array.dtype}, but the model needs numbers")
            with np.errstate(over="ignore"):
                return to_cube(array.astype(np.float16).reshape(tensor.shape), tensor)
        if np.issubdtype(array.dtype, np.floating):
            if not np.isfinite(array).all():
                raise ModelError(f"input '{info.name}': values are not all finite")
            codes = quantize(array, info.scale, info.zero_point, info.dtype.type)
        elif array.dtype == info.dtype:
            codes = array
        else:
            raise ModelError(
                f"input '{info.name}' has type {array.dtype}, but the model needs floats or {info.dtype}"
            )
        signed = (codes ^ np.uint8(0x80)).view(np.int8) if tensor.unsigned else codes  # - 128
        return to_cube(signed.reshape(tensor.shape), tensor)

    def _host_input(self, info: TensorInfo, array: Codes) -> Codes:
        """Convert an input that only the host reads to its type, if no number changes in kind."""
        kinds = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}.get(info.dtype.kind, info.dtype.kind)
        whole = array.dtype.kind == "f" and kinds != "biuf" and np.array_equal(array, np.rint(array))
        if array.dtype.kind not in kinds and not whole:
            raise ModelError(f"input '{info.name}' has type {array.dtype}, but the model needs {info.dtype}")
        with np.errstate(over="ignore"):
            return np.asarray(array.astype(info.dtype), order="C")

    def decode_output(
        self, index: int, codes: Callable[[str], npt.NDArray[np.int8]], raw: bool = False
    ) -> Codes:
        """Compute an output from the tensors that the NPU left in memory.

        Parameters
        ----------
        index
            Number of the output.
        codes
            Function that returns the cube of a tensor by name.
        raw
            Return codes instead of real numbers if the output is quantised.

        Returns
        -------
        Array of the output's shape: float32, or codes in the output's type.

        Raises
        ------
        ModelError
            If the index is wrong.
        """
        if not 0 <= index < len(self.outputs):
            raise ModelError(f"output {index}: the model has {len(self.outputs)}")
        item = self.graph.outputs[index]
        if item.real:
            return self._host_value(item.value, codes).reshape(item.shape)
        values = self._tensor_value(item.value, codes, raw)
        return values if self.graph.tensors[item.value].open else values.reshape(item.shape)

    def _tensor_value(self, name: str, codes: Callable[[str], Codes], raw: bool = False) -> Codes:
        """Numbers of a tensor in the model's shape; with `raw`, codes in the model's type, or float16."""
        tensor = self.graph.tensors[name]
        values, zero = from_cube(codes(name), tensor), tensor.zero_point
        if tensor.host and (tensor.scale, zero) == (1.0, 0):
            return values
        if tensor.unsigned:
            values, zero = values.view(np.uint8) ^ np.uint8(0x80), zero + 128  # + 128
        if raw:
            return values
        return values.astype(np.float32) if tensor.real else dequantize(values, tensor.scale, zero)

    def _host_value(self, name: str, codes: Callable[[str], Codes]) -> Codes:
        """Return a tensor (as real numbers) or the result of a host operation, computed on demand."""
        for op in self.graph.host_ops:
            if op.output == name:
                return host.evaluate(op, self._host_value(op.input, codes))
        return self._tensor_value(name, codes)

    def replanned(self, cores: int) -> CompiledModel:
        """The same network planned for another number of cores; raises ModelError as `make_plan`."""
        if not self.graph.ops:  # of a compiled model's file, which has only the steps
            return CompiledModel(self.graph, plan=replan(self.plan, cores))
        return CompiledModel(self.graph, reuse=self.plan.reuse, cores=cores)

    def save(self, weights: bool = True) -> bytes:
        """Return the bytes of the model's container, which `compile_model` accepts.

        Without `weights` it needs a model that has them.
        """
        from rkcosim.compiler.container import save_plan

        return save_plan(self.plan, weights=weights)


_KEEP: ContextVar[bool] = ContextVar("keep", default=False)
_CORES: ContextVar[int] = ContextVar("cores", default=1)


def asked_for() -> tuple[bool, int]:
    """Whether tensors are to keep their memory, and the cores, as `keeping_tensors` and `using_cores` say."""
    return _KEEP.get(), _CORES.get()


@contextmanager
def keeping_tensors(keep: bool = True) -> Iterator[None]:
    """Let every tensor of models compiled inside keep its memory until the end of a run, for inspection."""
    with holding(_KEEP, keep):
        yield


@contextmanager
def using_cores(cores: int) -> Iterator[None]:
    """Compile models inside for this number of cores."""
    with holding(_CORES, cores):
        yield


def compile_model(
    data: bytes,
    reuse: bool | None = None,
    cores: int | None = None,
    fuse: bool = True,
    full: Plan | None = None,
) -> CompiledModel:
    """Compile an ONNX or TFLite model, or load a compiled one from its container.

    Of a compiled model of several shapes it is the one of the shapes in the options, or the largest. The
    content decides which of the three formats it is.

    Parameters
    ----------
    data
        The bytes of the file.
    reuse
        Whether tensors share memory; by default they do, except inside `keeping_tensors`.  A container
        keeps the choice made when it was compiled.
    cores
        Number of cores, 1 to 3; by default 1, or the number given to `using_cores`.
    fuse
        Whether operations are merged into the convolution before them.
    full
        The plan of the model whose weights a container without weights uses.

    Raises
    ------
    ModelError
        If the model cannot be read or run; the message names node and tensor.
    """
    if is_container(data):
        from rkcosim.compiler.container import load_plan

        plan = load_plan(data, full)
        return CompiledModel(plan.graph, plan=plan)
    from rkcosim.compiler.loaders import open_source

    return compile_source(open_source(data), reuse, cores, fuse)


def compile_source(
    source: Source, reuse: bool | None = None, cores: int | None = None, fuse: bool = True
) -> CompiledModel:
    """Compile a model that is read already; parameters and errors are those of `compile_model`."""
    shared, refused = not _KEEP.get() if reuse is None else reuse, dict[str, str]()
    fallback = load_options().fallback
    while True:
        try:
            model = CompiledModel(source(refused), reuse=shared, cores=cores or _CORES.get(), fuse=fuse)
            model.plan.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))
        except NotBoundedError:
            raise
        except ModelError:
            more = refusals(source(refused)) if fallback else {}
            if not more.keys() - refused.keys():
                raise
        else:
            more = rounded_in_vain(model.plan) if fallback else {}
            if not more.keys() - refused.keys():
                return model
        refused |= more


@contextmanager
def naming_model(path: Path) -> Iterator[None]:
    """Context manager that adds the file's name to each ModelError raised inside."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error}", **error.place()) from error


def compile_file(path: Path, **options: Any) -> CompiledModel:
    """Compile a model's file; `options` are those of `compile_model`.

    Raises
    ------
    ModelError
        If the model cannot be read or run; the message names file, node and tensor.
    WrongKindError, GivenFileError, OSError
        If the file is not a model or cannot be read; see `rkcosim.base.files.read_model`.
    """
    data = read_model(path)
    with naming_model(path):
        return compile_model(data, **options)
