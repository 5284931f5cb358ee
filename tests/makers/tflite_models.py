"""Small TFLite models written with the schema package, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {
    **{"int8": 9, "uint8": 3, "int32": 2, "float32": 0, "float16": 1, "int4": 17, "int64": 4, "int16": 7},
    **{"bool": 6, "resource": 13, "int2": 19, "uint4": 20, "float8_e5m2": 22},
}
OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "SOFTMAX": "SoftmaxOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "CONCATENATION": "ConcatenationOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SPLIT": "SplitOptions",
    "RESHAPE": "ReshapeOptions",
    "PAD": "PadOptions",
    "TRANSPOSE": "TransposeOptions",
    "SLICE": "SliceOptions",
    "HARD_SWISH": "HardSwishOptions",
    "QUANTIZE": "QuantizeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "ARG_MAX": "ArgMaxOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "CAST": "CastOptions",
    "SHAPE": "ShapeOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "PACK": "PackOptions",
    "GATHER": "GatherOptions",
    "VAR_HANDLE": "VarHandleOptions",
    "CALL_ONCE": "CallOnceOptions",
    "IF": "IfOptions",
    "WHILE": "WhileOptions",
}


@dataclass
class Item:
    """One tensor of the model; `data` for constants."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: Any = None
    zero: Any = None
    axis: int = 0
    data: np.ndarray | None = None
    sparse: bool = False
    """Whether the file has only the elements that are not zero, as a list for each position before."""
    signature: tuple[int, ...] | None = None
    """Shape with -1 for open dimensions."""


@dataclass
class Tf:
    """A model under construction: tensors by number, operators in order."""

    seed: int = 0
    dtype: str = "int8"
    form: str = ""
    """Form of the weights: float16, int8 (dynamic range) or sparse for floats, int4 for int8, or plain."""
    items: list[Item] = field(default_factory=list)
    nodes: list[tuple[str, list[int], list[int], dict[str, Any]]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    others: list[Tf] = field(default_factory=list)
    """Further subgraphs."""
    signatures: dict[str, int] = field(default_factory=dict)
    """Subgraphs of signatures by name."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    @property
    def real(self) -> bool:
        """Whether activations are floats."""
        return self.dtype.startswith("float")

    def tensor(self, shape: tuple[int, ...], scale: Any = 0.05, zero: Any = None, **more: Any) -> int:
        """Add a tensor; the zero point is -3 or 125 unless given."""
        if zero is None:
            zero = {"int8": -3, "uint8": 125}.get(self.dtype, 0)
        dtype = more.pop("dtype", self.dtype)
        name = more.pop("name", f"t{len(self.items)}")
        self.items.append(Item(name, tuple(shape), dtype, scale, zero, **more))
        return len(self.items) - 1

    def ints(self, values: Any) -> int:
        """Add an int32 constant without quantisation."""
        data = np.asarray(values, np.int32)
        return self.tensor(data.shape, None, None, dtype="int32", data=data)

    def input(self, shape: tuple[int, ...], scale: float = 0.05, zero: int | None = None) -> int:
        """Add a model input."""
        number = self.tensor(shape, scale, zero, name="x")
        self.inputs.append(number)
        return number

    def constant(self, shape: tuple[int, ...], scale: float = 0.05, zero: int | None = None) -> int:
        """Add random bytes."""
        number = self.tensor(shape, scale, zero)
        if self.real:
            self.items[number].data = self.rng.normal(size=shape).astype(self.dtype)
            return number
        low, high = (-128, 128) if self.dtype == "int8" else (0, 256)
        self.items[number].data = self.rng.integers(low, high, shape).astype(self.dtype)
        return number

    def weights(self, shape: tuple[int, ...], axis: int, per_channel: bool = True) -> tuple[int, Any]:
        """Add random weights; return number and scales.  Unsigned ones have one scale."""
        if self.real:
            return self._real_weights(shape, axis), 1.0
        if self.dtype == "uint8":
            number = self.tensor(shape, 0.01, 131)
            self.items[number].data = self.rng.integers(0, 256, shape).astype(np.uint8)
            return number, 0.01
        scale = self.rng.uniform(0.002, 0.012, shape[axis]).astype(np.float32) if per_channel else 0.01
        zero = np.zeros(np.size(scale), int) if per_channel else 0
        if self.form in ("int4", "int2"):
            factor, most = (np.float32(16), 8) if self.form == "int4" else (np.float32(64), 2)
            number = self.tensor(shape, scale * factor, zero, axis=axis, dtype=self.form)
            self.items[number].data = self.rng.integers(1 - most, most, shape).astype(np.int8)
            return number, scale * factor
        number = self.tensor(shape, scale, zero, axis=axis)
        self.items[number].data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return number, scale

    def _real_weights(self, shape: tuple[int, ...], axis: int) -> int:
        """Add float weights in the form that `form` names."""
        values = (self.rng.normal(size=shape) * 0.2).astype(np.float32)
        if self.form == "int8":
            scale = (np.abs(values).max(axis=tuple(n for n in range(len(shape)) if n != axis)) / 127).astype(
                np.float32
            )
            number = self.tensor(shape, scale, np.zeros(scale.size, int), axis=axis, dtype="int8")
            spread = scale.reshape([-1 if n == axis else 1 for n in range(len(shape))])
            self.items[number].data = np.rint(values / spread).astype(np.int8)
            return number
        if not self.form:
            number = self.tensor(shape)
            self.items[number].data = values
            return number
        number = self.tensor(shape, dtype="float16")
        if self.form == "sparse":
            values *= self.rng.random(shape) < 0.3
        self.items[number].data = values.astype(np.float16)
        if self.form == "sparse":
            self.items[number].sparse = True
            dense = self.tensor(shape, dtype="float16")
            self.nodes.append(("DENSIFY", [number], [dense], {}))
            number = dense
        result = self.tensor(shape)
        self.nodes.append(("DEQUANTIZE", [number], [result], {}))
        return result

    def bias(self, count: int, scale: Any) -> int:
        """Add a bias of `count` numbers."""
        if self.real:
            number = self.tensor((count,))
            self.items[number].data = self.rng.normal(size=count).astype(np.float32)
            return number
        data = self.rng.integers(-3000, 3000, count).astype(np.int32)
        return self.tensor((count,), scale, np.zeros(np.size(scale), int), dtype="int32", data=data)

    def add(self, op: str, inputs: list[int], shape: tuple[int, ...], **more: Any) -> int:
        """Add an operator with one output; `scale` and `zero` are the output's, the rest options."""
        output = self.tensor(shape, more.pop("scale", 0.05), more.pop("zero", None))
        self.nodes.append((op, inputs, [output], more))
        return output

    def conv(self, x: int, count: int, kernel: Any = 3, stride: int = 1, **more: Any) -> int:
        """CONV_2D with random weights."""
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        batch, height, width, channels = self.items[x].shape
        groups = more.pop("groups", 1)
        w, scale = self.weights((count, kh, kw, channels // groups), 0)
        b = self.bias(count, np.asarray(scale) * self.items[x].scale)
        size = self._size(height, width, kh, kw, stride, more)
        more.setdefault("scale", 0.03 * np.sqrt(kh * kw * channels / groups))
        return self.add("CONV_2D", [x, w, b], (batch, *size, count), StrideH=stride, StrideW=stride, **more)

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, multiplier: int = 1, **more: Any) -> int:
        """DEPTHWISE_CONV_2D with random weights."""
        batch, height, width, channels = self.items[x].shape
        w, scale = self.weights((1, kernel, kernel, channels * multiplier), 3)
        b = self.bias(channels * multiplier, np.asarray(scale) * self.items[x].scale)
        size = self._size(height, width, kernel, kernel, stride, more)
        more.setdefault("scale", 0.03 * kernel)
        shape = (batch, *size, channels * multiplier)
        more["DepthMultiplier"] = multiplier
        return self.add("DEPTHWISE_CONV_2D", [x, w, b], shape, StrideH=stride, StrideW=stride, **more)

    def transpose_conv(self, x: int, count: int, kernel: int, stride: int, same: bool, **more: Any) -> int:
        """TRANSPOSE_CONV with random weights."""
        batch, height, width, channels = self.items[x].shape
        w, scale = self.weights((count, kernel, kernel, channels), 0)
        b = self.bias(count, np.asarray(scale) * self.items[x].scale)
        size = [n * stride if same else (n - 1) * stride + kernel for n in (height, width)]
        shape = (batch, *size, count)
        more.setdefault("scale", 0.03 * kernel * np.sqrt(channels))
        return self.add(
            "TRANSPOSE_CONV",
            [self.ints(shape), w, x, b],
            shape,
            Padding=int(not same),
            StrideH=stride,
            StrideW=stride,
            **more,
        )

    def dense(self, x: int, count: int, **more: Any) -> int:
        """FULLY_CONNECTED with random weights."""
        shape = self.items[x].shape
        depth = int(np.prod(shape[1:])) if len(shape) != 2 else shape[1]
        rows = int(np.prod(shape)) // depth
        w, scale = self.weights((count, depth), 0, per_channel=False)
        b = self.bias(count, np.asarray(scale) * self.items[x].scale)
        more.setdefault("scale", 0.03 * np.sqrt(depth))
        return self.add("FULLY_CONNECTED", [x, w, b], (rows, count), **more)

    @staticmethod
    def _size(
        height: int, width: int, kh: int, kw: int, stride: int, more: dict[str, Any]
    ) -> tuple[int, int]:
        if more.setdefault("Padding", 0) == 0:
            return -(-height // stride), -(-width // stride)
        dy, dx = more.get("DilationHFactor", 1), more.get("DilationWFactor", 1)
        return (height - (kh - 1) * dy - 1) // stride + 1, (width - (kw - 1) * dx - 1) // stride + 1

    def bytes(self, *outputs: int) -> bytes:
        """Return the file with these outputs."""
        b = flatbuffers.Builder(1 << 16)
        self.outputs = list(outputs)
        graphs = [self, *self.others]
        codes = sorted({node[0] for graph in graphs for node in graph.nodes})
        buffers = [self._buffer(b, None)]
        subgraphs = [graph._subgraph(b, buffers, codes) for graph in graphs]
        code_offsets = [self._code(b, code) for code in codes]
        signatures = self._offsets(b, [self._signature(b, *item) for item in self.signatures.items()])
        subgraph_vector = self._offsets(b, subgraphs)
        all_codes, all_buffers = self._offsets(b, code_offsets), self._offsets(b, buffers)
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, all_codes)
        tflite.ModelAddSubgraphs(b, subgraph_vector)
        tflite.ModelAddBuffers(b, all_buffers)
        if self.signatures:
            tflite.ModelAddSignatureDefs(b, signatures)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    def _subgraph(self, b: Any, buffers: list[int], codes: list[str]) -> int:
        """Add the tables of this subgraph; constants are appended to `buffers`."""
        tensors = []
        for item in self.items:
            number = 0
            if item.data is not None:
                number = len(buffers)
                buffers.append(self._buffer(b, _stored(item)))
            tensors.append(self._tensor(b, item, number))
        operators = [self._operator(b, node, codes) for node in self.nodes]
        name = b.CreateString("small")
        vectors = [self._offsets(b, tensors), self._ints(b, self.inputs), self._ints(b, self.outputs)]
        vectors.append(self._offsets(b, operators))
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, vectors[0])
        tflite.SubGraphAddInputs(b, vectors[1])
        tflite.SubGraphAddOutputs(b, vectors[2])
        tflite.SubGraphAddOperators(b, vectors[3])
        tflite.SubGraphAddName(b, name)
        return tflite.SubGraphEnd(b)

    @staticmethod
    def _signature(b: Any, name: str, subgraph: int) -> int:
        text = b.CreateString(name)
        tflite.SignatureDefStart(b)
        tflite.SignatureDefAddSignatureKey(b, text)
        tflite.SignatureDefAddSubgraphIndex(b, subgraph)
        return tflite.SignatureDefEnd(b)

    @staticmethod
    def _offsets(b: Any, offsets: list[int]) -> int:
        b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            b.PrependUOffsetTRelative(offset)
        return b.EndVector()

    @staticmethod
    def _ints(b: Any, values: list[int]) -> int:
        return b.CreateNumpyVector(np.asarray(values, np.int32))

    @staticmethod
    def _buffer(b: Any, data: np.ndarray | None) -> int:
        vector = None if data is None else b.CreateNumpyVector(np.frombuffer(data.tobytes(), np.uint8))
        tflite.BufferStart(b)
        if vector is not None:
            tflite.BufferAddData(b, vector)
        return tflite.BufferEnd(b)

    @staticmethod
    def _code(b: Any, name: str) -> int:
        number = getattr(tflite.BuiltinOperator, name.split()[0])
        custom = b.CreateString(name.removeprefix("CUSTOM ")) if name.startswith("CUSTOM ") else None
        tflite.OperatorCodeStart(b)
        if custom is not None:
            tflite.OperatorCodeAddCustomCode(b, custom)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(b, number)
        tflite.OperatorCodeAddVersion(b, 1)
        return tflite.OperatorCodeEnd(b)

    def _tensor(self, b: Any, item: Item, buffer: int) -> int:
        name, shape = b.CreateString(item.name), self._ints(b, list(item.shape))
        quantisation = None
        if item.scale is not None and not item.dtype.startswith("float"):
            scale = b.CreateNumpyVector(np.atleast_1d(np.asarray(item.scale, np.float32)))
            zero = b.CreateNumpyVector(np.atleast_1d(np.asarray(item.zero, np.int64)))
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, scale)
            tflite.QuantizationParametersAddZeroPoint(b, zero)
            tflite.QuantizationParametersAddQuantizedDimension(b, item.axis)
            quantisation = tflite.QuantizationParametersEnd(b)
        sparsity = _sparsity(b, item) if item.sparse else None
        opened = None if item.signature is None else self._ints(b, list(item.signature))
        tflite.TensorStart(b)
        if sparsity is not None:
            tflite.TensorAddSparsity(b, sparsity)
        if opened is not None:
            tflite.TensorAddShapeSignature(b, opened)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddType(b, TYPES[item.dtype])
        tflite.TensorAddBuffer(b, buffer)
        tflite.TensorAddName(b, name)
        if quantisation is not None:
            tflite.TensorAddQuantization(b, quantisation)
        return tflite.TensorEnd(b)

    def _operator(
        self, b: Any, node: tuple[str, list[int], list[int], dict[str, Any]], codes: list[str]
    ) -> int:
        op, inputs, outputs, options = node
        custom = options.get("custom") if op.startswith("CUSTOM ") else None
        given = None if custom is None else b.CreateNumpyVector(np.frombuffer(custom, np.uint8))
        ends = self._ints(b, inputs), self._ints(b, outputs)
        table = None
        if op in OPTIONS:
            kind = OPTIONS[op]
            options = {k: b.CreateString(v) if isinstance(v, str) else v for k, v in options.items()}
            getattr(tflite, f"{kind}Start")(b)
            for name, value in options.items():
                getattr(tflite, f"{kind}Add{name}")(b, value)
            table = getattr(tflite, f"{kind}End")(b)
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, codes.index(op))
        tflite.OperatorAddInputs(b, ends[0])
        tflite.OperatorAddOutputs(b, ends[1])
        if given is not None:
            tflite.OperatorAddCustomOptions(b, given)
        if table is not None:
            tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, OPTIONS[op]))
            tflite.OperatorAddBuiltinOptions(b, table)
        return tflite.OperatorEnd(b)


def _stored(item: Item) -> np.ndarray:
    """Values as the file has them: two int4 or four int2 to a byte, or only those that are not zero."""
    assert item.data is not None
    if item.dtype in ("int4", "int2"):
        bits = int(item.dtype[-1])
        codes = item.data.reshape(-1).astype(np.uint8) & (2**bits - 1)
        codes = np.append(codes, np.zeros(-codes.size % (8 // bits), np.uint8))
        return sum(codes[place :: 8 // bits] << place * bits for place in range(8 // bits)).astype(np.uint8)
    if item.sparse:
        return item.data[item.data != 0]
    return item.data


def _sparsity(b: Any, item: Item) -> int:
    """A tree whose last level is compressed; the levels before it are dense."""
    assert item.data is not None
    rows = item.data.reshape(-1, item.shape[-1])
    segments = np.cumsum([0, *(np.count_nonzero(row) for row in rows)]).astype(np.int32)
    indices = np.concatenate([np.flatnonzero(row) for row in rows]).astype(np.uint16)
    levels = []
    for size in item.shape[:-1]:
        tflite.DimensionMetadataStart(b)
        tflite.DimensionMetadataAddFormat(b, 0)
        tflite.DimensionMetadataAddDenseSize(b, size)
        levels.append(tflite.DimensionMetadataEnd(b))
    vectors = []
    for kind, values in (("Int32Vector", segments), ("Uint16Vector", indices)):
        offset = b.CreateNumpyVector(values)
        getattr(tflite, f"{kind}Start")(b)
        getattr(tflite, f"{kind}AddValues")(b, offset)
        vectors.append(getattr(tflite, f"{kind}End")(b))
    tflite.DimensionMetadataStart(b)
    tflite.DimensionMetadataAddFormat(b, 1)
    tflite.DimensionMetadataAddArraySegmentsType(b, 1)
    tflite.DimensionMetadataAddArraySegments(b, vectors[0])
    tflite.DimensionMetadataAddArrayIndicesType(b, 2)
    tflite.DimensionMetadataAddArrayIndices(b, vectors[1])
    levels.append(tflite.DimensionMetadataEnd(b))
    order = b.CreateNumpyVector(np.arange(len(item.shape), dtype=np.int32))
    b.StartVector(4, len(levels), 4)
    for level in reversed(levels):
        b.PrependUOffsetTRelative(level)
    metadata = b.EndVector()
    tflite.SparsityParametersStart(b)
    tflite.SparsityParametersAddTraversalOrder(b, order)
    tflite.SparsityParametersAddDimMetadata(b, metadata)
    return tflite.SparsityParametersEnd(b)
