"""TFLite files as plain records, read with the format's own schema package (extra `tflite`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import MAX_ELEMENTS, ModelError

MAGIC = b"TFL3"
"""File identifier, at byte 4 of every flatbuffer of this schema."""

ACTIVATIONS = {0: None, 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Limits of fused activations by code."""

_CONV = ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FusedActivationFunction")
_POOL = ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth", "FusedActivationFunction")
_FUSED = ("FusedActivationFunction",)
_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": ("Conv2DOptions", _CONV),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", _CONV),
    "TRANSPOSE_CONV": ("TransposeConvOptions", ("Padding", "StrideH", "StrideW", *_FUSED)),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("KeepNumDims", "WeightsFormat", *_FUSED)),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _POOL),
    "MAX_POOL_2D": ("Pool2DOptions", _POOL),
    "ADD": ("AddOptions", _FUSED),
    "SUB": ("SubOptions", _FUSED),
    "MUL": ("MulOptions", _FUSED),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", *_FUSED)),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", ("AlignCorners", "HalfPixelCenters")),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"),
    ),
}
_DTYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 7: "int16", 9: "int8"}


@dataclass(frozen=True)
class TfTensor:
    """One tensor: `data` only for constants; `scale` and `zero` float64/int64 (n,), empty without."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: npt.NDArray[np.float64]
    zero: npt.NDArray[np.int64]
    axis: int
    data: npt.NDArray[Any] | None


@dataclass(frozen=True)
class TfNode:
    """One operator: `inputs` are tensor numbers, -1 for one left out."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TfModel:
    """The main subgraph of a file."""

    name: str
    tensors: list[TfTensor]
    nodes: list[TfNode]
    inputs: list[int]
    outputs: list[int]

    def label(self, node: TfNode) -> str:
        """How messages name a node: operators have no names, their outputs have."""
        name = self.tensors[node.outputs[0]].name if node.outputs else "?"
        return f"{node.op} '{name}'"


def is_tflite(data: bytes) -> bool:
    """Whether bytes begin as a TFLite file does."""
    return data[4:8] == MAGIC


def read_tflite(data: bytes) -> TfModel:
    """Read a file.

    Raises
    ------
    ModelError
        for a damaged file (also where a field's contents make no sense), or without the extra.
    """
    try:
        import tflite
    except ImportError as error:
        raise ModelError("TFLite models need the package tflite: pip install 'rkcosim[tflite]'") from error
    try:
        model = tflite.Model.GetRootAsModel(data, 0)
        return _read(tflite, model)
    except ModelError:
        raise
    except Exception as error:  # the reader does not verify: damage shows as struct.error, IndexError, ...
        raise ModelError(f"damaged TFLite model ({len(data)} bytes): {error}") from error


def _read(tflite: Any, model: Any) -> TfModel:
    if model.SubgraphsLength() != 1:
        raise ModelError(f"TFLite model has {model.SubgraphsLength()} subgraphs; one is supported")
    graph = model.Subgraphs(0)
    if not 0 < graph.OperatorsLength() < 10**5 or not 0 < graph.TensorsLength() < 10**6:
        raise ModelError(
            f"damaged TFLite model: {graph.OperatorsLength()} operators, {graph.TensorsLength()} tensors"
        )
    tensors: list[TfTensor] = []
    seen: set[str] = set()
    for number in range(graph.TensorsLength()):
        tensors.append(_tensor(model, graph.Tensors(number), number, seen))
    names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    nodes = []
    for number in range(graph.OperatorsLength()):
        node = _node(tflite, model, graph.Operators(number), names)
        for tensor in (*node.inputs, *node.outputs):
            if not -1 <= tensor < len(tensors):
                raise ModelError(f"damaged TFLite model: operator {number} names tensor {tensor}")
        if not node.outputs or min(node.outputs) < 0:
            raise ModelError(f"damaged TFLite model: operator {number} ({node.op}) has no output")
        nodes.append(node)
    ends = [[int(n) for n in _numbers(getattr(graph, f"{end}AsNumpy")())] for end in ("Inputs", "Outputs")]
    for numbers in ends:
        if not numbers or not all(0 <= n < len(tensors) for n in numbers):
            raise ModelError(f"damaged TFLite model: inputs {ends[0]}, outputs {ends[1]}")
    name = (graph.Name() or model.Description() or b"model").decode(errors="replace")
    return TfModel(name, tensors, nodes, *ends)


def _numbers(values: Any) -> npt.NDArray[Any]:
    """A vector that may be left out: flatbuffers gives 0 then."""
    return np.asarray(values).reshape(-1) if isinstance(values, np.ndarray) else np.zeros(0, np.int64)


def _tensor(model: Any, tensor: Any, number: int, seen: set[str]) -> TfTensor:
    name = (tensor.Name() or b"").decode(errors="replace") or f"tensor{number}"
    if name in seen:
        name = f"{name}#{number}"
    seen.add(name)
    shape = tuple(int(n) for n in _numbers(tensor.ShapeAsNumpy()))
    if any(n < 1 for n in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise ModelError(f"tensor '{name}': shape {shape} is not supported")
    dtype = _DTYPES.get(tensor.Type(), f"type {tensor.Type()}")
    quantisation = tensor.Quantization()
    scale, zero, axis = np.zeros(0), np.zeros(0, np.int64), 0
    if quantisation is not None:
        scale = _numbers(quantisation.ScaleAsNumpy()).astype(np.float64)
        zero = _numbers(quantisation.ZeroPointAsNumpy()).astype(np.int64)
        axis = int(quantisation.QuantizedDimension())
        if scale.size and not (np.isfinite(scale).all() and (scale > 0).all()):
            raise ModelError(f"tensor '{name}': a scale is not a positive number")
        if zero.size not in (1, scale.size) and scale.size:
            raise ModelError(f"tensor '{name}': {scale.size} scales and {zero.size} zero points")
    return TfTensor(number, name, shape, dtype, scale, zero, axis, _data(model, tensor, name, shape, dtype))


def _data(model: Any, tensor: Any, name: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any] | None:
    if not 0 <= tensor.Buffer() < model.BuffersLength():
        raise ModelError(f"tensor '{name}': buffer {tensor.Buffer()} of {model.BuffersLength()}")
    buffer = model.Buffers(tensor.Buffer())
    if not buffer.DataLength():
        return None
    raw = _numbers(buffer.DataAsNumpy()).astype(np.uint8, copy=False)
    if dtype.startswith("type"):
        raise ModelError(f"tensor '{name}': {dtype} is not supported")
    wanted = math.prod(shape) * np.dtype(dtype).itemsize
    if raw.size != wanted:
        raise ModelError(f"tensor '{name}': {raw.size} bytes of data for {dtype} {shape}")
    return np.frombuffer(raw.tobytes(), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _node(tflite: Any, model: Any, operator: Any, names: dict[int, str]) -> TfNode:
    if not 0 <= operator.OpcodeIndex() < model.OperatorCodesLength():
        raise ModelError(f"damaged TFLite model: operator code {operator.OpcodeIndex()}")
    code = model.OperatorCodes(operator.OpcodeIndex())
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    op = names.get(number, f"operator {number}")
    if op == "CUSTOM":
        op = f"CUSTOM {(code.CustomCode() or b'').decode(errors='replace')}"
    options: dict[str, Any] = {}
    table = operator.BuiltinOptions()
    if op in _OPTIONS:
        if table is None:
            raise ModelError(f"damaged TFLite model: {op} without its options")
        kind, fields = _OPTIONS[op]
        reader = getattr(tflite, kind)()
        reader.Init(table.Bytes, table.Pos)
        options = {name: getattr(reader, name)() for name in fields}
        if options.get("FusedActivationFunction", 0) not in ACTIVATIONS:
            raise ModelError(f"{op}: fused activation {options['FusedActivationFunction']} is not supported")
        for name in (
            "StrideH",
            "StrideW",
            "DilationHFactor",
            "DilationWFactor",
            "FilterHeight",
            "FilterWidth",
        ):
            if not 1 <= options.get(name, 1) <= 2**16:
                raise ModelError(f"{op}: {name} is {options[name]}")
    inputs = tuple(int(n) for n in _numbers(operator.InputsAsNumpy()))
    outputs = tuple(int(n) for n in _numbers(operator.OutputsAsNumpy()))
    return TfNode(op, inputs, outputs, options)
