"""Other runtimes on the same model, with all inner tensors: LiteRT for TFLite, onnxruntime for ONNX.

Interfaces and other packages add others by entry points (`rkcosim.base.extensions.REFERENCES`), as the one of
TNN's NAIVE device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.base import BAD_INPUT, Error, extras
from rkcosim.base.extensions import REFERENCES, extensions
from rkcosim.base.files import identify, is_container, read_model
from rkcosim.compiler import CompiledModel
from rkcosim.compiler.batch import BatchModel
from rkcosim.compiler.graph import Tensor, to_cube
from rkcosim.compiler.options import load_options
from rkcosim.compiler.steps import ConvStep
from rkcosim.rknn_file import is_rknn

if TYPE_CHECKING:
    from rkcosim.compiler.loaders.tflite_file import TfModel

AnyModel = CompiledModel | BatchModel
ReferenceName = Literal["litert", "onnxruntime", "naive"]
Cube = npt.NDArray[np.int8]


class ReferenceProblem(Error):
    """A reference cannot be used: it is not installed, or does not accept the model."""

    exit_code = BAD_INPUT


class Reference(Protocol):
    """A runtime that can run a model and return its tensors.

    Members
    -------
    name
        Name and version in messages.
    keeps_floats
        Whether `cube` has tensors of floats too.
    rounded
        Tensors of floats that the runtime computes from quantised inputs, in a coarser way than in fp16.
    grids
        For outputs of floats that are dequantised codes: the difference of neighbouring codes.
    """

    name: str
    keeps_floats: bool
    rounded: frozenset[str]
    grids: Mapping[str, float]

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run on real values in the compiled model's shapes; return real outputs in these shapes.

        Raises
        ------
        ReferenceProblem
            If the runtime fails.
        """
        ...

    def choose(self, number: int, axes: Mapping[str, tuple[int, int]]) -> None:
        """Let `cube` return one sample of each tensor; see `Sampled`."""
        ...

    def cube(self, tensor: Tensor) -> Cube | None:
        """Signed codes or floats (C, H, W) of a tensor of the compiled graph after the run.

        For a tensor that only the host keeps, its array; None for a tensor that is not available.
        """
        ...


Opener = Callable[[bytes, AnyModel], Reference]
"""What an entry point names: makes a reference from the bytes of a model file and the compiled model."""


def default_reference(data: bytes) -> ReferenceName:
    """Return the runtime for a model's format.

    Raises
    ------
    ReferenceProblem
        If it is a compiled model, which no other runtime reads.
    """
    if is_container(data) or is_rknn(data):
        raise ReferenceProblem("no other runtime reads a compiled model; compare the original model")
    other: dict[str, ReferenceName] = {"TNN network": "naive", "TFLite model": "litert"}
    return other.get(identify(data), "onnxruntime")


def source_beside(path: Path) -> Path:
    """The ONNX file beside a `.rknn` file, of the same name, if there is one; else the path itself."""
    twin = path.with_suffix(".onnx")
    with path.open("rb") as file:
        return twin if is_rknn(file.read(8)) and twin.is_file() else path


def open_reference(name: ReferenceName, path: Path, model: AnyModel) -> Reference:
    """Open a reference on a model file.

    Raises
    ------
    ReferenceProblem
        If it is not installed or refuses the model; the text says what to do.
    """
    data = read_model(path)
    if name != default_reference(data):
        raise ReferenceProblem(f"{path}: {name} does not read this format, {default_reference(data)} does")
    if name in extensions(REFERENCES):
        opener: Opener = extensions(REFERENCES)[name].load()
        return opener(data, model)
    try:
        return LiteRt(path, model) if name == "litert" else OnnxRuntime(data, model)
    except ImportError as error:
        module = {"litert": "ai_edge_litert", "onnxruntime": "onnxruntime"}[name]
        raise ReferenceProblem(extras.missing(module)) from error
    except (ValueError, RuntimeError) as error:
        raise ReferenceProblem(f"{path}: {name} refuses the model: {error}") from error


class Sampled:
    """Tensors of one sample, for references that run a model of batches as a whole."""

    grids: Mapping[str, float] = MappingProxyType({})
    _sample: int | None = None
    _axes: Mapping[str, tuple[int, int]] = MappingProxyType({})

    def choose(self, number: int, axes: Mapping[str, tuple[int, int]]) -> None:
        """Let `cube` return one sample of each tensor.

        Parameters
        ----------
        number
            Number of the sample.
        axes
            `rkcosim.compiler.batch.BatchModel.axes`.
        """
        self._sample, self._axes = number, axes

    def _of_sample(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the chosen sample of a tensor; the tensor itself without a choice, or without samples."""
        if self._sample is None or name not in self._axes:
            return values
        axis, per = self._axes[name]
        return values.take(range(self._sample * per, (self._sample + 1) * per), axis)


class LiteRt(Sampled):
    """LiteRT with its reference kernels (BUILTIN_REF), keeping all tensors.

    If the options of loading select other outputs or another subgraph, LiteRT gets a file of that part.
    """

    keeps_floats = True

    def __init__(self, path: Path, model: AnyModel) -> None:
        from rkcosim.compiler.loaders.tflite_file import read_tflite
        from rkcosim.compiler.loaders.tflite_fold import standardised, without_unused
        from rkcosim.compiler.loaders.tflite_graph import with_outputs
        from rkcosim.compiler.loaders.tflite_program import numbered_program

        options, data = load_options(), path.read_bytes()
        file = read_tflite(data, options.signature)
        self.rounded = frozenset(_of_dynamic_range(file))
        self._numbers: dict[int, int] | None = None
        part = standardised(without_unused(with_outputs(file, options.outputs)))
        if file.subgraph or options.outputs or len(part.tensors) != len(file.tensors):
            made, self._numbers = numbered_program(part, part.nodes, part.inputs, part.outputs)
            data = made.tobytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ai_edge_litert import interpreter

            self._run = interpreter.Interpreter(
                model_content=data,
                experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=True,
            )
        self._run.allocate_tensors()
        self._model = model
        self.name = f"LiteRT {_version('ai-edge-litert')} (reference kernels)"

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run once; see `Reference`."""
        for number, (values, detail) in enumerate(zip(inputs, self._run.get_input_details(), strict=True)):
            info = self._model.inputs[number]
            if detail["dtype"] != np.float32 and info.quantised:
                values = np.clip(
                    np.rint(np.asarray(values, np.float32) / np.float32(info.scale)) + info.zero_point,
                    *_range(info.dtype),
                )
            values = _last(np.asarray(values)).astype(detail["dtype"]).reshape(detail["shape"])
            self._run.set_tensor(detail["index"], values)
        self._run.reset_all_variables()  # inner state of operators, not resource variables
        try:
            self._run.invoke()
        except RuntimeError as error:
            raise ReferenceProblem(f"LiteRT fails on the model: {error}") from error
        results = []
        for detail in self._run.get_output_details():
            values = self._run.get_tensor(detail["index"])
            scale, zero = detail["quantization"]
            if values.dtype != np.float32 and scale:
                values = (values.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)
            results.append(values.transpose(0, 3, 1, 2) if values.ndim == 4 else values)
        return results

    def cube(self, tensor: Tensor) -> Cube | None:
        """Codes of a tensor; see `Reference`."""
        index = self._model.graph.origin.get(tensor.name)
        if index is not None and self._numbers is not None:
            index = self._numbers.get(index)
        if index is None:
            return None
        values = self._of_sample(tensor.name, self._run.get_tensor(index))
        if tensor.host:
            values = values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
            return values.reshape(tensor.shape) if values.size == tensor.elements else None
        if values.size != tensor.elements or (values.dtype.kind == "f") != tensor.real:
            return None
        codes = values if tensor.real else _signed(values)
        channels, height, width = tensor.cube
        return np.ascontiguousarray(codes.reshape(height, width, channels).transpose(2, 0, 1))


class OnnxRuntime(Sampled):
    """onnxruntime without graph optimisation, with every quantised tensor as an output."""

    keeps_floats = True
    rounded: frozenset[str] = frozenset()

    def __init__(self, data: bytes, model: AnyModel) -> None:
        import onnx

        from rkcosim.compiler.host_runtimes import exact_options, import_onnxruntime
        from rkcosim.compiler.loaders.onnx_file import read_onnx

        proto = read_onnx(data, replace(load_options(), fold=False))
        wanted = {name: tensor for name, tensor in model.graph.tensors.items() if not tensor.host}
        for step in model.graph_nodes():
            if isinstance(step, ConvStep):  # the tensor between a convolution and its addition
                wanted[step.alone.output.name] = step.alone.output
        self._outputs = [item.name for item in proto.graph.output]
        self.grids = _grids(proto.graph)
        reals = {name: tensor for name, tensor in model.graph.tensors.items() if tensor.real or tensor.host}
        floats = any(tensor.real for tensor in model.graph.tensors.values())
        makers = [node for node in proto.graph.node if node.op_type == "QuantizeLinear"]
        made = [name for node in makers for name in node.output]
        self._extra = [name for name in made if name in wanted and name not in self._outputs]
        for name in self._extra:
            kind = onnx.TensorProto.UINT8 if wanted[name].unsigned else onnx.TensorProto.INT8
            proto.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        if floats:
            given = {*self._outputs, *self._extra}
            every = [name for node in proto.graph.node for name in node.output]
            more = [name for name in every if name in reals and name not in given]
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
            self._extra += more
        onnxruntime = import_onnxruntime()
        options = exact_options(onnxruntime)
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exception classes have no public base class
            raise RuntimeError(str(error)) from error
        self._tensors: dict[str, npt.NDArray[Any]] = {}
        self.name = f"onnxruntime {onnxruntime.__version__}"

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run once; see `Reference`."""
        from rkcosim.compiler.loaders.onnx_fold import NUMPY

        feed = {}
        for item, values in zip(self._session.get_inputs(), inputs, strict=True):
            feed[item.name] = np.asarray(values).astype(NUMPY.get(item.type, np.float32))
        try:
            results = self._session.run([*self._outputs, *self._extra], feed)
        except Exception as error:  # see above: no public base class
            raise ReferenceProblem(f"onnxruntime fails on the model: {error}") from error
        self._tensors = feed | dict(zip([*self._outputs, *self._extra], results, strict=True))
        return [np.asarray(r) for r in results[: len(self._outputs)]]

    def cube(self, tensor: Tensor) -> Cube | None:
        """Codes of a tensor; see `Reference`."""
        codes = self._tensors.get(tensor.name)
        codes = None if codes is None else self._of_sample(tensor.name, np.asarray(codes))
        if codes is None or codes.size != tensor.elements:
            return None
        if tensor.host:
            return codes.reshape(tensor.shape)
        if tensor.real:
            return to_cube(codes.reshape(tensor.shape), tensor) if codes.dtype.kind == "f" else None
        if codes.dtype not in (np.int8, np.uint8):
            return None
        return to_cube(_signed(codes).reshape(tensor.shape), tensor)


VIEWS = ("Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice")
"""Operators of ONNX whose result has only numbers of their first input."""


def _grids(graph: Any) -> dict[str, float]:
    """Return the scale of each output of an ONNX graph that a DequantizeLinear with one scale makes."""
    from onnx import numpy_helper

    makers = {name: node for node in graph.node for name in node.output}
    scales = {item.name: item for item in graph.initializer}
    found = {}
    for item in graph.output:
        node = makers.get(item.name)
        while node is not None and node.op_type in VIEWS:
            node = makers.get(node.input[0])
        if node is not None and node.op_type == "DequantizeLinear" and node.input[1] in scales:
            scale = numpy_helper.to_array(scales[node.input[1]])
            if scale.size == 1:
                found[item.name] = float(scale.reshape(())[()])
    return found


def _of_dynamic_range(model: TfModel) -> Iterator[str]:
    """Yield the results of operators of floats with weights of 8 or 4 bits, whose inputs LiteRT quantises."""
    for node in model.nodes:
        if len(node.inputs) > 1 and min(node.inputs[:2]) >= 0:
            types = [model.tensors[number].dtype for number in node.inputs[:2]]
            if types in (["float32", "int8"], ["float32", "uint8"], ["float32", "int4"]):
                yield model.tensors[node.outputs[0]].name


def _signed(codes: npt.NDArray[Any]) -> Cube:
    if codes.dtype == np.uint8:
        return (codes.astype(np.int16) - 128).astype(np.int8)
    return codes.astype(np.int8)


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _last(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.transpose(0, 2, 3, 1) if values.ndim == 4 else values


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
