"""The graph that the delegate of LiteRT sends, and TFLite files of its parts.

`native/litert_delegate.c` writes what is read here: tensors with shapes, quantisation and constants, and
operators with the C structures of their parameters (`rkcosim.apis.litert.parameters`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt

from rkcosim.apis.link.protocol import ProtocolError, Reader
from rkcosim.apis.litert.parameters import FUSED_TRANSPOSED, TABLE
from rkcosim.compiler.loaders.tflite_file import CODES
from rkcosim.compiler.loaders.tflite_program import schema

TYPES = {
    **{1: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"},
    **{10: "float16", 11: "float64", 13: "uint64", 16: "uint32", 17: "uint16", 18: "int4"},
}
"""Types of the runtime's tensors by their code in the C interface; others are not sent to the NPU."""

OPERATORS = 512
"""Operators whose parameters the greeting describes."""

UNKNOWN = 0xFFFFFFFF
"""Size of the parameters of an operator that is not known."""

ALLOWS_DYNAMIC = 1
"""Flag of a delegate that LiteRT also applies to graphs with tensors whose size depends on data."""

RESHAPES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True)
class Tensor:
    """A tensor of the runtime.

    Members
    -------
    number : in the runtime's list.
    name : unique in the graph.
    dtype : name of its type; empty for one that is not known.
    shape : sizes, with the channels last.
    constant : whether it is a constant of the model file; `data` are its bytes.
    plain : False for variables and sparse tensors.
    scales, zeros, axis : its quantisation; empty for none.
    size : bytes of its contents.
    address : of a constant in the runtime's process.
    """

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool
    plain: bool
    scales: npt.NDArray[np.float32]
    zeros: tuple[int, ...]
    axis: int
    size: int
    address: int
    data: bytes


@dataclass(frozen=True)
class LiteRtNode:
    """An operator of the runtime.

    Members
    -------
    number : in the runtime's list.
    kind : name of the operator.
    op : the same, if its parameters are known; else empty.
    version : of the operator.
    inputs, outputs : numbers of tensors; -1 for an absent input.
    parameters : the members of its C structure that are read.
    """

    number: int
    kind: str
    op: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parameters: bytes


@dataclass(frozen=True)
class RuntimeGraph:
    """A graph of the runtime: nodes by number, in their order."""

    tensors: list[Tensor]
    nodes: dict[int, LiteRtNode]

    def label(self, number: int) -> tuple[str, str]:
        """Return the name of a node (that of its first output) and its operator."""
        node = self.nodes[number]
        name = self.tensors[node.outputs[0]].name if node.outputs else f"node {number}"
        return name, node.kind

    def is_usable(self, number: int) -> bool:
        """Whether a file can have the node."""
        node = self.nodes[number]
        if not node.op or not node.outputs:
            return False
        used = [self.tensors[n] for n in (*node.inputs, *node.outputs) if n >= 0]
        return all(t.plain and t.dtype and (not t.constant or len(t.data) == t.size) for t in used)


@functools.cache
def operators() -> dict[int, str]:
    """Return the names of all operators by their code."""
    return {code: name for name, code in vars(schema().BuiltinOperator).items() if isinstance(code, int)}


def greeting(milliseconds: int, dynamic: bool) -> bytes:
    """Return what the delegate must know: the limit of a call, its flags, sizes of parameters by operator."""
    known = operators()
    sizes = [TABLE[known[n]].size if known.get(n) in TABLE else UNKNOWN for n in range(OPERATORS)]
    return struct.pack(f"<Qq{OPERATORS}I", milliseconds, ALLOWS_DYNAMIC if dynamic else 0, *sizes)


def read_graph(reader: Reader) -> RuntimeGraph:
    """Read a graph.

    Raises
    ------
    ProtocolError
        if it is damaged.
    """
    names: set[str] = set()
    tensors = [_tensor(reader, number, names) for number in range(reader.count())]
    known, nodes = operators(), {}
    for _ in range(reader.count()):
        number, code, version, usable = (reader.number() for _ in range(4))
        inputs, outputs = reader.ints(), reader.ints()
        parameters, custom = reader.bytes(), reader.text()
        kind = custom or known.get(code, f"operator {code}")
        op = kind if usable and kind in TABLE and not custom else ""
        for n in (*inputs, *outputs):
            if not -1 <= n < len(tensors):
                raise ProtocolError(f"node {number} names tensor {n}")
        if min(outputs, default=0) < 0 or (op and len(parameters) != TABLE[op].size):
            raise ProtocolError(f"node {number} ({kind}) is damaged")
        nodes[number] = LiteRtNode(number, kind, op, version, inputs, outputs, parameters)
    return RuntimeGraph(tensors, nodes)


def _tensor(reader: Reader, number: int, names: set[str]) -> Tensor:
    code, constant, odd = (reader.number() for _ in range(3))
    name = reader.text() or f"tensor {number}"
    if name in names:
        name = f"{name}#{number}"
    names.add(name)
    shape, _ = reader.ints(), reader.ints()
    axis, scales, zeros = reader.number(), reader.floats(), reader.ints()
    size, address, data = reader.number(), reader.number(), reader.bytes()
    if min(shape, default=0) < 0:
        raise ProtocolError(f"tensor '{name}' has the shape {shape}")
    dtype = TYPES.get(code, "")
    return Tensor(
        number, name, dtype, shape, bool(constant), not odd, scales, zeros, axis, size, address, data
    )


def part_file(
    graph: RuntimeGraph, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """Return a TFLite file of a part.

    Parameters
    ----------
    graph : the graph.
    nodes : numbers of the part's nodes in their order; all are usable.
    inputs, outputs : numbers of the tensors that it takes and gives; constants among them are ignored.

    Raises
    ------
    ModelError
        if the package of the schema is not installed.
    """
    objects = schema()
    copy = _File(objects, graph)
    copy.main.inputs = np.asarray([copy.tensor(n) for n in inputs], np.int32)
    copy.main.outputs = np.asarray([copy.tensor(n) for n in outputs], np.int32)
    for number in nodes:
        copy.add(graph.nodes[number])
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(copy.made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def constant_nodes(graph: RuntimeGraph, tensors: Iterable[int]) -> list[int]:
    """Return the nodes that make some tensors from constants alone, as DEQUANTIZE does of fp16 weights.

    LiteRT may put such a node into another part; it is then in the files of both.
    """
    wanted = set(tensors)
    return [
        node.number
        for node in graph.nodes.values()
        if wanted.intersection(node.outputs)
        and graph.is_usable(node.number)
        and all(graph.tensors[n].constant for n in node.inputs if n >= 0)
    ]


class _File:
    """A TFLite file that grows by tensors and operators."""

    def __init__(self, objects: Any, graph: RuntimeGraph) -> None:
        self.objects, self.graph = objects, graph
        self.made, self.main = objects.ModelT(), objects.SubGraphT()
        self.made.version = 3
        self.made.operatorCodes, self.made.buffers = [], [objects.BufferT()]
        self.made.subgraphs = [self.main]
        self.main.tensors, self.main.operators = [], []
        self._numbers: dict[int, int] = {}
        self._codes: dict[tuple[str, int], int] = {}

    def tensor(self, number: int) -> int:
        """Return the number of a tensor in the file."""
        if number < 0:
            return -1
        if number in self._numbers:
            return self._numbers[number]
        item, made = self.graph.tensors[number], self.objects.TensorT()
        made.name, made.type = item.name.encode(), CODES[item.dtype]
        made.shape, made.buffer = np.asarray(item.shape, np.int32), 0
        if item.scales.size:
            made.quantization = self.objects.QuantizationParametersT()
            made.quantization.scale = item.scales
            made.quantization.zeroPoint = np.asarray(item.zeros, np.int64)
            made.quantization.quantizedDimension = item.axis
        if item.constant:
            buffer = self.objects.BufferT()
            buffer.data = np.frombuffer(item.data, np.uint8)
            made.buffer = len(self.made.buffers)
            self.made.buffers.append(buffer)
        self._numbers[number] = len(self.main.tensors)
        self.main.tensors.append(made)
        return self._numbers[number]

    def add(self, node: LiteRtNode) -> None:
        """Add an operator."""
        parameters, made = TABLE[node.op], self.objects.OperatorT()
        reshape = node.op in RESHAPES
        op = "RESHAPE" if reshape else node.op
        made.opcodeIndex = self._code(op, node.version)
        inputs = node.inputs[:1] if reshape else node.inputs
        made.inputs = np.asarray([self.tensor(n) for n in inputs], np.int32)
        made.outputs = np.asarray([self.tensor(n) for n in node.outputs], np.int32)
        if parameters.options:
            name = f"{parameters.options}Options"
            made.builtinOptionsType = getattr(self.objects.BuiltinOptions, name)
            made.builtinOptions = getattr(self.objects, f"{name}T")()
            for member, value in parameters.values(node.parameters).items():
                setattr(made.builtinOptions, member, value)
            if reshape:
                shape = self.graph.tensors[node.outputs[0]].shape
                made.builtinOptions.newShape = np.asarray(shape, np.int32)
            if op == "TRANSPOSE_CONV" and node.version < FUSED_TRANSPOSED:
                made.builtinOptions.fusedActivationFunction = 0
        self.main.operators.append(made)

    def _code(self, op: str, version: int) -> int:
        if (op, version) not in self._codes:
            code = self.objects.OperatorCodeT()
            code.builtinCode = getattr(self.objects.BuiltinOperator, op)
            code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
            self._codes[op, version] = len(self.made.operatorCodes)
            self.made.operatorCodes.append(code)
        return self._codes[op, version]
