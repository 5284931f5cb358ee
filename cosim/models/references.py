"""Other runtimes on the same model: LiteRT for TFLite, onnxruntime for ONNX, with every tensor between."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sw.compiler import CompiledModel
from sw.compiler.container import is_container
from sw.compiler.graph import Tensor
from sw.compiler.shapes import to_cube
from sw.compiler.steps import ConvStep
from sw.loaders import is_tflite

ReferenceName = Literal["litert", "onnxruntime"]
Cube = npt.NDArray[np.int8]


class ReferenceProblem(Exception):
    """A reference cannot be used: it is not installed, or does not take the model."""


class Reference(Protocol):
    """A runtime that has run a model once."""

    name: str

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run on real values in the compiled model's shapes; return real outputs, likewise."""
        ...

    def cube(self, tensor: Tensor) -> Cube | None:
        """Signed codes (C, H, W) of a tensor of the compiled graph after the run, if it has it."""
        ...


def default_reference(data: bytes) -> ReferenceName:
    """The runtime of a model's own format.

    Raises
    ------
    ReferenceProblem
        for a compiled model, which no other runtime reads.
    """
    if is_container(data):
        raise ReferenceProblem("a compiled model runs nowhere else; compare the model it was made from")
    return "litert" if is_tflite(data) else "onnxruntime"


def open_reference(name: ReferenceName, path: Path, model: CompiledModel) -> Reference:
    """Open a reference on a model file.

    Raises
    ------
    ReferenceProblem
        if it is not installed or refuses the model; the text says what to do.
    """
    data = path.read_bytes()
    if name != default_reference(data):
        raise ReferenceProblem(f"{path}: {name} does not read this format, {default_reference(data)} does")
    try:
        return LiteRt(path, model) if name == "litert" else OnnxRuntime(data, model)
    except ImportError as error:
        package = {"litert": "ai-edge-litert", "onnxruntime": "onnxruntime"}[name]
        extra = {"litert": "litert", "onnxruntime": "onnx"}[name]
        raise ReferenceProblem(f"{package} is not installed: pip install 'rkcosim[{extra}]'") from error
    except (ValueError, RuntimeError) as error:
        raise ReferenceProblem(f"{path}: {name} refuses the model: {error}") from error


class LiteRt:
    """LiteRT's reference kernels (BUILTIN_REF), keeping all tensors."""

    def __init__(self, path: Path, model: CompiledModel) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ai_edge_litert import interpreter

            self._run = interpreter.Interpreter(
                model_path=str(path),
                experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=True,
            )
        self._run.allocate_tensors()
        self._model = model
        self.name = f"LiteRT {_version('ai-edge-litert')} (reference kernels)"

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run once; see `Reference`."""
        for number, (values, detail) in enumerate(zip(inputs, self._run.get_input_details(), strict=True)):
            if detail["dtype"] != np.float32:
                info = self._model.inputs[number]
                values = np.clip(
                    np.rint(np.asarray(values, np.float32) / np.float32(info.scale)) + info.zero_point,
                    *_range(info.dtype),
                )
            values = _last(np.asarray(values)).astype(detail["dtype"]).reshape(detail["shape"])
            self._run.set_tensor(detail["index"], values)
        self._run.invoke()
        results = []
        for detail in self._run.get_output_details():
            values = self._run.get_tensor(detail["index"])
            scale, zero = detail["quantization"]
            if values.dtype != np.float32:
                values = (values.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)
            results.append(values.transpose(0, 3, 1, 2) if values.ndim == 4 else values)
        return results

    def cube(self, tensor: Tensor) -> Cube | None:
        """Codes of a tensor; see `Reference`."""
        index = self._model.graph.origin.get(tensor.name)
        if index is None:
            return None
        codes = _signed(self._run.get_tensor(index))
        channels, height, width = tensor.cube
        return np.ascontiguousarray(codes.reshape(height, width, channels).transpose(2, 0, 1))


class OnnxRuntime:
    """onnxruntime without its graph optimiser, every quantised tensor an output."""

    def __init__(self, data: bytes, model: CompiledModel) -> None:
        import onnx
        import onnxruntime

        proto = onnx.load_model_from_string(data)
        wanted = dict(model.graph.tensors)
        for step in model.graph_nodes():
            if isinstance(step, ConvStep):  # what stands between a convolution and its addition
                wanted[step.alone.output.name] = step.alone.output
        self._outputs = [item.name for item in proto.graph.output]
        if any(tensor.real for tensor in model.graph.tensors.values()):
            wanted = {}  # fp16 and binary32 have no steps to count in: only outputs are compared
        makers = [node for node in proto.graph.node if node.op_type == "QuantizeLinear"]
        made = [name for node in makers for name in node.output]
        self._extra = [name for name in made if name in wanted and name not in self._outputs]
        for name in self._extra:
            kind = onnx.TensorProto.UINT8 if wanted[name].unsigned else onnx.TensorProto.INT8
            proto.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own exception classes share no public base
            raise RuntimeError(str(error)) from error
        self._tensors: dict[str, npt.NDArray[Any]] = {}
        self.name = f"onnxruntime {onnxruntime.__version__}"

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run once; see `Reference`."""
        feed = {}
        for item, values in zip(self._session.get_inputs(), inputs, strict=True):
            dtype = {"tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
            feed[item.name] = np.asarray(values).astype(dtype.get(item.type, np.float32))
        results = self._session.run([*self._outputs, *self._extra], feed)
        self._tensors = dict(zip([*self._outputs, *self._extra], results, strict=True))
        return [np.asarray(r) for r in results[: len(self._outputs)]]

    def cube(self, tensor: Tensor) -> Cube | None:
        """Codes of a tensor; see `Reference`."""
        codes = self._tensors.get(tensor.name)
        if codes is None or codes.dtype not in (np.int8, np.uint8) or codes.size != tensor.elements:
            return None
        return to_cube(_signed(codes).reshape(tensor.shape), tensor)


def _signed(codes: npt.NDArray[Any]) -> Cube:
    if codes.dtype == np.uint8:
        return (codes.astype(np.int16) - 128).astype(np.int8)
    return codes.astype(np.int8)


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 255) if dtype == np.uint8 else (-128, 127)


def _last(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.transpose(0, 2, 3, 1) if values.ndim == 4 else values


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
