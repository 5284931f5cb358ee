"""TFLite files as plain records, read with the package of the TFLite schema (extra `tflite`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.extras import needed, too_old
from rkcosim.compiler.graph import MAX_ELEMENTS, ModelError
from rkcosim.compiler.loaders.tflite_data import MAX_RANK, constant_data, numbers

MAGIC = b"TFL3"
"""File identifier, at byte 4 of every flatbuffer of this schema."""

ACTIVATIONS = {0: None, 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Limits of fused activations by code; the schema also has TANH (4) and SIGN_BIT (5)."""

MAX_SUBGRAPHS = 10**3

WITHOUT_OUTPUT = ("ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE_IMPORT")
"""Operators that only change a state."""

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
    "DIV": ("DivOptions", _FUSED),
    "GELU": ("GeluOptions", ("Approximate",)),
    "MIRROR_PAD": ("MirrorPadOptions", ("Mode",)),
    "BATCH_MATMUL": ("BatchMatMulOptions", ("AdjX", "AdjY")),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", *_FUSED)),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", ("AlignCorners", "HalfPixelCenters")),
    "DEPTH_TO_SPACE": ("DepthToSpaceOptions", ("BlockSize",)),
    "SPACE_TO_DEPTH": ("SpaceToDepthOptions", ("BlockSize",)),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", ("AlignCorners", "HalfPixelCenters")),
    "VAR_HANDLE": ("VarHandleOptions", ("SharedName",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"),
    ),
}
DTYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    5: "string",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float64",
    11: "complex128",
    12: "uint64",
    13: "resource",
    14: "variant",
    15: "uint32",
    16: "uint16",
    17: "int4",
    18: "bfloat16",
    19: "int2",
    20: "uint4",
    21: "float8_e4m3fn",
    22: "float8_e5m2",
}
"""Types of tensors by code.  Constants of int4 and int2 are read as int8, those of uint4 as uint8."""
NEWER = {209: "STABLEHLO_CASE"}
"""Operators of LiteRT's schema that the package `tflite` does not have yet, by number."""
CODES = {name: code for code, name in DTYPES.items()}


@dataclass(frozen=True)
class TfTensor:
    """One tensor: `data` only for constants; `scale` and `zero` are float64/int64 (n,), empty if absent."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: npt.NDArray[np.float64]
    zero: npt.NDArray[np.int64]
    axis: int
    data: npt.NDArray[Any] | None
    open_shape: bool = False
    """Whether the file leaves a dimension open; `shape` has the size that the file gives meanwhile."""
    variable: bool = False
    """Whether the tensor keeps its value between inferences."""
    part: bool = False
    """Whether it is one sample of the file's tensor `index`."""


@dataclass(frozen=True)
class TfNode:
    """One operator: `inputs` are tensor numbers, -1 for an absent optional input.

    `index` is its position in the subgraph of the file, `custom` has the options of a custom operator.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    index: int = 0
    custom: bytes = b""


@dataclass(frozen=True)
class TfModel:
    """One subgraph of a file; `file` has the bytes of the whole file and `subgraph` its number there."""

    name: str
    tensors: list[TfTensor]
    nodes: list[TfNode]
    inputs: list[int]
    outputs: list[int]
    file: bytes = b""
    subgraph: int = 0
    samples: int = 1
    """How often operators on a batch are repeated."""
    signatures: tuple[str, ...] = ()
    """Names of all signatures of the file."""

    def label(self, node: TfNode) -> str:
        """Name of a node in messages: its operator and its first output (operators have no names)."""
        name = self.tensors[node.outputs[0]].name if node.outputs else "?"
        return f"{node.op} '{name}'"


SYNTHETIC = -1
"""Index of nodes and tensors that are not in the file."""


def new_constant(name: str, values: npt.ArrayLike) -> TfTensor:
    """Return an int32 constant that is not in the file."""
    data, empty = np.array(values, np.int32), (np.zeros(0), np.zeros(0, np.int64))
    return TfTensor(SYNTHETIC, name, data.shape, "int32", *empty, 0, data)


def is_tflite(data: bytes) -> bool:
    """Whether `data` begins with the identifier of a TFLite file."""
    return data[4:8] == MAGIC


def read_tflite(data: bytes, signature: str | None = None) -> TfModel:
    """Read the subgraph of one signature of a file.

    Parameters
    ----------
    data
        The bytes of the file.
    signature
        Name of the signature; None for the first subgraph, which interpreters run by default.

    Raises
    ------
    ModelError
        If the file is damaged (also if a field's value is impossible), has no such signature, or the extra
        is not installed.
    """
    with needed("tflite", "a TFLite model", ModelError):
        import tflite
    try:
        model = tflite.Model.GetRootAsModel(data, 0)
        return _read(tflite, model, data, signature)
    except ModelError:
        raise
    except Exception as error:  # the reader does not verify: damage gives struct.error, IndexError, ...
        if (old := too_old().get("tflite")) is not None:
            raise ModelError(f"{old} to read TFLite models: pip install --upgrade tflite") from error
        raise ModelError(f"damaged TFLite model ({len(data)} bytes): {error}") from error


def _signatures(model: Any) -> dict[str, int]:
    """Return the subgraph of each signature by name."""
    found: dict[str, int] = {}
    for number in range(min(model.SignatureDefsLength(), MAX_SUBGRAPHS)):
        item = model.SignatureDefs(number)
        found[(item.SignatureKey() or b"").decode(errors="replace")] = int(item.SubgraphIndex())
    return found


def _read(tflite: Any, model: Any, data: bytes, signature: str | None) -> TfModel:
    count, signatures = model.SubgraphsLength(), _signatures(model)
    if not 0 < count <= MAX_SUBGRAPHS:
        raise ModelError(f"damaged TFLite model: {count} subgraphs")
    if signature is not None and signature not in signatures:
        known = ", ".join(f"'{name}'" for name in signatures) or "none"
        raise ModelError(f"TFLite model has no signature '{signature}'; its signatures: {known}")
    subgraph = 0 if signature is None else signatures[signature]
    if not 0 <= subgraph < count:
        raise ModelError(
            f"damaged TFLite model: signature '{signature}' names subgraph {subgraph} of {count}"
        )
    graph = model.Subgraphs(subgraph)
    if not 0 < graph.OperatorsLength() < 10**5 or not 0 < graph.TensorsLength() < 10**6:
        raise ModelError(
            f"damaged TFLite model: {graph.OperatorsLength()} operators, {graph.TensorsLength()} tensors"
        )
    tensors: list[TfTensor] = []
    seen: set[str] = set()
    for number in range(graph.TensorsLength()):
        tensors.append(_tensor(model, data, graph.Tensors(number), number, seen))
    names = NEWER | {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    nodes = []
    for number in range(graph.OperatorsLength()):
        node = replace(_node(tflite, model, graph.Operators(number), names), index=number)
        for tensor in (*node.inputs, *node.outputs):
            if not -1 <= tensor < len(tensors):
                raise ModelError(f"damaged TFLite model: operator {number} names tensor {tensor}")
        if min(node.outputs, default=-1) < 0 and (node.outputs or node.op not in WITHOUT_OUTPUT):
            raise ModelError(f"damaged TFLite model: operator {number} ({node.op}) has no output")
        nodes.append(node)
    ends = [[int(n) for n in numbers(getattr(graph, f"{end}AsNumpy")())] for end in ("Inputs", "Outputs")]
    for places in ends:
        if not places or not all(0 <= n < len(tensors) for n in places):
            raise ModelError(f"damaged TFLite model: inputs {ends[0]}, outputs {ends[1]}")
    name = (graph.Name() or model.Description() or b"model").decode(errors="replace")
    inputs, outputs = ends
    return TfModel(name, tensors, nodes, inputs, outputs, data, subgraph, signatures=tuple(signatures))


def _tensor(model: Any, file: bytes, tensor: Any, number: int, seen: set[str]) -> TfTensor:
    name = (tensor.Name() or b"").decode(errors="replace") or f"tensor{number}"
    if name in seen:
        name = f"{name}#{number}"
    seen.add(name)
    shape = tuple(int(n) for n in numbers(tensor.ShapeAsNumpy()))
    if any(n < 0 for n in shape) or math.prod(shape) > MAX_ELEMENTS or len(shape) > MAX_RANK:
        raise ModelError(f"tensor '{name}': shape {shape} is not supported")
    opened = bool((numbers(tensor.ShapeSignatureAsNumpy()) < 0).any())
    dtype = DTYPES.get(tensor.Type(), f"type {tensor.Type()}")
    quantisation = tensor.Quantization()
    scale, zero, axis = np.zeros(0), np.zeros(0, np.int64), 0
    if quantisation is not None:
        scale = numbers(quantisation.ScaleAsNumpy()).astype(np.float64)
        zero = numbers(quantisation.ZeroPointAsNumpy()).astype(np.int64)
        axis = int(quantisation.QuantizedDimension())
        if scale.size and not (np.isfinite(scale).all() and (scale > 0).all()):
            raise ModelError(f"tensor '{name}': a scale is not a positive number")
        if zero.size not in (1, scale.size) and scale.size:
            raise ModelError(f"tensor '{name}': {scale.size} scales and {zero.size} zero points")
    values = constant_data(model, file, tensor, name, shape, dtype)
    variable = bool(tensor.IsVariable())
    return TfTensor(number, name, shape, dtype, scale, zero, axis, values, opened, variable)


def _builtin_code(code: Any) -> int:
    """Return the field `builtin_code` of an operator code, 0 if it is absent.

    The package's own method returns the deprecated field for all numbers below 127, but there are files in
    which only the new field has the number (those of the AI Edge Quantizer).  LiteRT takes the larger one.
    """
    from flatbuffers import number_types

    offset = code._tab.Offset(10)
    return int(code._tab.Get(number_types.Int32Flags, offset + code._tab.Pos)) if offset else 0


_EMPTY = (bytes([4, 0, 4, 0, 4, 0, 0, 0]), 4)
"""A FlatBuffers table without fields, behind its vtable: the bytes, and the position of the table."""


def _node(tflite: Any, model: Any, operator: Any, names: dict[int, str]) -> TfNode:
    if not 0 <= operator.OpcodeIndex() < model.OperatorCodesLength():
        raise ModelError(f"damaged TFLite model: operator code {operator.OpcodeIndex()}")
    code = model.OperatorCodes(operator.OpcodeIndex())
    number = max(_builtin_code(code), code.DeprecatedBuiltinCode())
    op = names.get(number, f"operator {number}")
    if op == "CUSTOM":
        op = f"CUSTOM {(code.CustomCode() or b'').decode(errors='replace')}"
    options: dict[str, Any] = {}
    table = operator.BuiltinOptions()
    if op in _OPTIONS:
        kind, fields = _OPTIONS[op]
        reader = getattr(tflite, kind)()
        # LiteRT takes zeros for options that are absent; an empty table has the same defaults.
        reader.Init(*(_EMPTY if table is None else (table.Bytes, table.Pos)))
        options = {name: getattr(reader, name)() for name in fields}
        if not 0 <= options.get("FusedActivationFunction", 0) <= 5:
            raise ModelError(
                f"damaged TFLite model: {op} with activation {options['FusedActivationFunction']}"
            )
        if "SharedName" in options:
            options["SharedName"] = (options["SharedName"] or b"").decode(errors="replace")
        for name, value in options.items():
            if name.startswith(("Stride", "Dilation", "Filter")) and not 1 <= value <= 2**16:
                raise ModelError(f"{op}: {name} is {value}")
    inputs = tuple(int(n) for n in numbers(operator.InputsAsNumpy()))
    outputs = tuple(int(n) for n in numbers(operator.OutputsAsNumpy()))
    custom = numbers(operator.CustomOptionsAsNumpy()).astype(np.uint8).tobytes()
    return TfNode(op, inputs, outputs, options, custom=custom)
