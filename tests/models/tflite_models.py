"""Small TFLite models written with the schema package, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {"int8": 9, "uint8": 3, "int32": 2, "float32": 0}
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
    "SOFTMAX": "SoftmaxOptions",
    "MEAN": "ReducerOptions",
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


@dataclass
class Tf:
    """A model under construction: tensors by number, operators in order."""

    seed: int = 0
    dtype: str = "int8"
    items: list[Item] = field(default_factory=list)
    nodes: list[tuple[str, list[int], list[int], dict[str, Any]]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def tensor(self, shape: tuple[int, ...], scale: Any = 0.05, zero: Any = None, **more: Any) -> int:
        """Add a tensor; the zero point is -3 or 125 unless given."""
        if zero is None:
            zero = -3 if self.dtype == "int8" else 125
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
        low, high = (-128, 128) if self.dtype == "int8" else (0, 256)
        self.items[number].data = self.rng.integers(low, high, shape).astype(self.dtype)
        return number

    def weights(self, shape: tuple[int, ...], axis: int, per_channel: bool = True) -> tuple[int, Any]:
        """Add random weights; return number and scales.  Unsigned ones have one scale."""
        if self.dtype == "uint8":
            number = self.tensor(shape, 0.01, 131)
            self.items[number].data = self.rng.integers(0, 256, shape).astype(np.uint8)
            return number, 0.01
        scale = self.rng.uniform(0.002, 0.012, shape[axis]).astype(np.float32) if per_channel else 0.01
        zero = np.zeros(np.size(scale), int) if per_channel else 0
        number = self.tensor(shape, scale, zero, axis=axis)
        self.items[number].data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return number, scale

    def bias(self, count: int, scale: Any) -> int:
        """Add a bias of `count` numbers."""
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
        _, height, width, channels = self.items[x].shape
        groups = more.pop("groups", 1)
        w, scale = self.weights((count, kh, kw, channels // groups), 0)
        b = self.bias(count, np.asarray(scale) * self.items[x].scale)
        size = self._size(height, width, kh, kw, stride, more)
        more.setdefault("scale", 0.03 * np.sqrt(kh * kw * channels / groups))
        return self.add("CONV_2D", [x, w, b], (1, *size, count), StrideH=stride, StrideW=stride, **more)

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, multiplier: int = 1, **more: Any) -> int:
        """DEPTHWISE_CONV_2D with random weights."""
        _, height, width, channels = self.items[x].shape
        w, scale = self.weights((1, kernel, kernel, channels * multiplier), 3)
        b = self.bias(channels * multiplier, np.asarray(scale) * self.items[x].scale)
        size = self._size(height, width, kernel, kernel, stride, more)
        more.setdefault("scale", 0.03 * kernel)
        shape = (1, *size, channels * multiplier)
        more["DepthMultiplier"] = multiplier
        return self.add("DEPTHWISE_CONV_2D", [x, w, b], shape, StrideH=stride, StrideW=stride, **more)

    def transpose_conv(self, x: int, count: int, kernel: int, stride: int, same: bool, **more: Any) -> int:
        """TRANSPOSE_CONV with random weights."""
        _, height, width, channels = self.items[x].shape
        w, scale = self.weights((count, kernel, kernel, channels), 0)
        b = self.bias(count, np.asarray(scale) * self.items[x].scale)
        size = [n * stride if same else (n - 1) * stride + kernel for n in (height, width)]
        shape = (1, *size, count)
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
        """The file, with these outputs."""
        b = flatbuffers.Builder(1 << 16)
        self.outputs = list(outputs)
        buffers = [self._buffer(b, None)]
        tensors = []
        for item in self.items:
            number = 0
            if item.data is not None:
                number = len(buffers)
                buffers.append(self._buffer(b, item.data))
            tensors.append(self._tensor(b, item, number))
        codes = sorted({node[0] for node in self.nodes})
        operators = [self._operator(b, node, codes) for node in self.nodes]
        code_offsets = [self._code(b, code) for code in codes]
        name = b.CreateString("small")
        vectors = [self._offsets(b, tensors), self._ints(b, self.inputs), self._ints(b, self.outputs)]
        vectors.append(self._offsets(b, operators))
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, vectors[0])
        tflite.SubGraphAddInputs(b, vectors[1])
        tflite.SubGraphAddOutputs(b, vectors[2])
        tflite.SubGraphAddOperators(b, vectors[3])
        tflite.SubGraphAddName(b, name)
        graph = self._offsets(b, [tflite.SubGraphEnd(b)])
        all_codes, all_buffers = self._offsets(b, code_offsets), self._offsets(b, buffers)
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, all_codes)
        tflite.ModelAddSubgraphs(b, graph)
        tflite.ModelAddBuffers(b, all_buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

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
        number = getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(b, number)
        tflite.OperatorCodeAddVersion(b, 1)
        return tflite.OperatorCodeEnd(b)

    def _tensor(self, b: Any, item: Item, buffer: int) -> int:
        name, shape = b.CreateString(item.name), self._ints(b, list(item.shape))
        quantisation = None
        if item.scale is not None:
            scale = b.CreateNumpyVector(np.atleast_1d(np.asarray(item.scale, np.float32)))
            zero = b.CreateNumpyVector(np.atleast_1d(np.asarray(item.zero, np.int64)))
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, scale)
            tflite.QuantizationParametersAddZeroPoint(b, zero)
            tflite.QuantizationParametersAddQuantizedDimension(b, item.axis)
            quantisation = tflite.QuantizationParametersEnd(b)
        tflite.TensorStart(b)
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
        ends = self._ints(b, inputs), self._ints(b, outputs)
        table = None
        if op in OPTIONS:
            kind = OPTIONS[op]
            getattr(tflite, f"{kind}Start")(b)
            for name, value in options.items():
                getattr(tflite, f"{kind}Add{name}")(b, value)
            table = getattr(tflite, f"{kind}End")(b)
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, codes.index(op))
        tflite.OperatorAddInputs(b, ends[0])
        tflite.OperatorAddOutputs(b, ends[1])
        if table is not None:
            tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, OPTIONS[op]))
            tflite.OperatorAddBuiltinOptions(b, table)
        return tflite.OperatorEnd(b)
