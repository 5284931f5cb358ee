"""The graph that the provider of onnxruntime sends, and ONNX models of its parts.

`native/ort_graph.c` writes what is read here: constants, and nodes with the types of their values and with
their attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from rkcosim.apis.link.protocol import ProtocolError, Reader

TYPES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.UINT8: "uint8",
    TensorProto.INT8: "int8",
    TensorProto.UINT16: "uint16",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.BOOL: "bool",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
}
"""Types of tensors by their code in ONNX and in onnxruntime; others are not sent to the NPU."""

GRAPH, TENSOR = 7, 8
"""Types of attributes in onnxruntime's interface that are no numbers and no texts."""

_NUMBERS = {
    1: (AttributeProto.INT, "i", np.int64),
    2: (AttributeProto.INTS, "ints", np.int64),
    3: (AttributeProto.FLOAT, "f", np.float32),
    4: (AttributeProto.FLOATS, "floats", np.float32),
}
_TEXT, _TEXTS = 5, 6

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ValueInfo:
    """A value: its name (empty for an absent input), element type and sizes (-1 for an open one).

    `ranked` is false if the number of axes is not known; `shape` is then empty.
    """

    name: str
    element: int
    shape: Shape
    ranked: bool = True

    @property
    def is_open(self) -> bool:
        """Whether its sizes are known only in an inference."""
        return not self.ranked or any(size < 0 for size in self.shape)

    @property
    def dtype(self) -> str:
        """Name of the type; empty for one that is not known."""
        return TYPES.get(self.element, "")


@dataclass(frozen=True)
class OrtNode:
    """A node.

    Members
    -------
    captures : values that its subgraphs take from the graph.
    problem : why it cannot be in a part; empty if it can.
    """

    name: str
    kind: str
    domain: str
    inputs: tuple[ValueInfo, ...]
    captures: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    attributes: tuple[AttributeProto, ...]
    problem: str

    @property
    def reads(self) -> list[str]:
        """Names of the inputs that are present, and of the captured values."""
        return [value.name for value in (*self.inputs, *self.captures) if value.name]

    @property
    def makes(self) -> list[str]:
        """Names of the outputs that are present."""
        return [value.name for value in self.outputs if value.name]


@dataclass(frozen=True)
class RuntimeGraph:
    """A graph of the runtime: nodes in their order, each with a name of its own.

    Members
    -------
    path : of the model's file; empty if there is none.
    ir_version : of the model.
    opsets : version by domain.
    constants : tensors by name.
    nodes : in an order in which they can be computed.
    outputs : names of the graph's outputs.
    """

    path: str
    ir_version: int
    opsets: Mapping[str, int]
    constants: Mapping[str, TensorProto]
    nodes: list[OrtNode]
    outputs: tuple[str, ...]

    @property
    def values(self) -> dict[str, ValueInfo]:
        """All values of nodes by name."""
        return {
            value.name: value
            for node in self.nodes
            for value in (*node.captures, *node.inputs, *node.outputs)
            if value.name
        }


def read_graph(reader: Reader) -> RuntimeGraph:
    """Read a graph.

    Raises
    ------
    ProtocolError
        if it is damaged.
    """
    path, ir_version = reader.text(), reader.number()
    opsets = {}
    for _ in range(reader.count()):
        domain = reader.text()
        opsets["" if domain == "ai.onnx" else domain] = reader.number()
    constants, variable = {}, set()
    for _ in range(reader.count()):
        name = reader.text()
        if reader.number():
            constants[name] = _tensor(reader, name)
        else:
            variable.add(name)
    used: set[str] = set()
    nodes = [_node(reader, constants, used) for _ in range(reader.count())]
    return RuntimeGraph(
        path, ir_version, opsets, constants, nodes, tuple(v.name for v in read_values(reader))
    )


def read_values(reader: Reader, constants: dict[str, TensorProto] | None = None) -> list[ValueInfo]:
    """Read a list of values, and add constants of an outer graph among them to `constants`."""
    return [_value(reader, {} if constants is None else constants) for _ in range(reader.count())]


def _value(reader: Reader, constants: dict[str, TensorProto]) -> ValueInfo:
    name = reader.text()
    if reader.number():
        constants[name] = _tensor(reader, name)
    ranked, element, shape = reader.number(), reader.number(), reader.longs()
    return ValueInfo(name, element, tuple(max(size, -1) for size in shape), bool(ranked))


def _tensor(reader: Reader, name: str) -> TensorProto:
    element, shape, data = reader.number(), reader.longs(), reader.bytes()
    made = TensorProto(name=name, dims=shape, raw_data=data)
    if element in TYPES:
        expected = int(np.prod(shape, dtype=object)) * np.dtype(TYPES[element]).itemsize
        if min(shape, default=0) < 0 or expected != len(data):
            raise ProtocolError(f"constant '{name}' of shape {shape} has {len(data)} bytes")
        made.data_type = element
    return made


def _node(reader: Reader, constants: dict[str, TensorProto], used: set[str]) -> OrtNode:
    name, kind, domain, bodies = reader.text(), reader.text(), reader.text(), reader.number()
    inputs, captures = read_values(reader, constants), read_values(reader, constants)
    outputs = read_values(reader)
    attributes = [_attribute(reader) for _ in range(reader.count())]
    first = next((value.name for value in outputs if value.name), kind)
    name = first if name in used or not name else name
    while name in used:
        name += "_"
    used.add(name)
    problem = "" if not bodies else "it has a subgraph"
    if any(item is None for item in attributes):
        problem = problem or "it has an attribute that the provider does not read"
    for value in (*inputs, *outputs):
        constant = constants.get(value.name)
        if value.name and (not value.dtype or (constant is not None and not constant.data_type)):
            problem = problem or f"'{value.name}' is of a type that the provider does not read"
    if not any(value.name for value in outputs):
        problem = problem or "it has no outputs"
    domain = "" if domain == "ai.onnx" else domain
    known = tuple(item for item in attributes if item is not None)
    return OrtNode(name, kind, domain, tuple(inputs), tuple(captures), tuple(outputs), known, problem)


def _attribute(reader: Reader) -> AttributeProto | None:
    made = AttributeProto(name=reader.text())
    kind = reader.number()
    if kind == TENSOR:
        made.type = AttributeProto.TENSOR
        made.t.CopyFrom(_tensor(reader, ""))
        return made if made.t.data_type else None
    if kind == GRAPH or not kind:
        return None
    data = reader.bytes()
    if kind in _NUMBERS:
        made.type, member, dtype = _NUMBERS[kind]
        if len(data) % np.dtype(dtype).itemsize:
            raise ProtocolError(f"attribute '{made.name}' has {len(data)} bytes")
        numbers = np.frombuffer(data, dtype).tolist()
        if member.endswith("s"):
            getattr(made, member).extend(numbers)
        elif len(numbers) == 1:
            setattr(made, member, numbers[0])
        else:
            raise ProtocolError(f"attribute '{made.name}' has {len(numbers)} numbers")
    elif kind == _TEXT:
        made.type, made.s = AttributeProto.STRING, data.rstrip(b"\0")
    elif kind == _TEXTS:
        made.type = AttributeProto.STRINGS
        made.strings.extend(data.split(b"\0")[:-1])
    else:
        return None
    return made


def part_model(
    graph: RuntimeGraph, nodes: Iterable[OrtNode], inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]
) -> bytes:
    """Return an ONNX file of a part.

    Parameters
    ----------
    graph : the graph.
    nodes : the part's nodes in their order, without problems.
    inputs, outputs : values that it takes and gives; open sizes get names.
    """
    chosen = list(nodes)
    made = [
        helper.make_node(node.kind, [v.name for v in node.inputs], [v.name for v in node.outputs], node.name)
        for node in chosen
    ]
    for proto, node in zip(made, chosen, strict=True):
        proto.domain = node.domain
        proto.attribute.extend(node.attributes)
    wanted = dict.fromkeys(name for node in chosen for name in node.reads if name in graph.constants)
    whole = helper.make_graph(
        made,
        "part",
        [_declared(value) for value in inputs],
        [_declared(value) for value in outputs],
        [graph.constants[name] for name in wanted],
    )
    domains = dict.fromkeys(node.domain for node in chosen)
    opsets = [helper.make_opsetid(name, graph.opsets.get(name, 1)) for name in domains]
    if "" not in domains:
        opsets.append(helper.make_opsetid("", graph.opsets.get("", 1)))
    model = helper.make_model(whole, opset_imports=opsets)
    model.ir_version = min(graph.ir_version, onnx.IR_VERSION)
    return bytes(model.SerializeToString())


def _declared(value: ValueInfo) -> onnx.ValueInfoProto:
    if not value.ranked:
        return helper.make_tensor_value_info(value.name, value.element, None)
    shape = [size if size >= 0 else f"{value.name}@{axis}" for axis, size in enumerate(value.shape)]
    return helper.make_tensor_value_info(value.name, value.element, shape)
