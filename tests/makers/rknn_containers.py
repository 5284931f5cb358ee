"""`.rknn` files of container version 6 from the records of a file, as another compiler would write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

from rkcosim.rknn_file import schema
from rkcosim.rknn_file.container import FileNode, FileTensor, RknnFile
from rkcosim.rknn_file.schema import GraphSlot, Kind, NodeSlot, RelocationSlot, Root, Sizes, TensorSlot


class _Writer:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 16)
        self.sections: list[bytes] = [b""]

    def numbers(self, values: Sequence[float], kind: Any = np.int32) -> int:
        return int(self.builder.CreateNumpyVector(np.array(values, kind)))

    def pairs(self, values: Sequence[tuple[int, int]]) -> int:
        self.builder.StartVector(8, len(values), 4)
        for first, second in reversed(values):
            self.builder.PrependUint32(second)
            self.builder.PrependUint32(first)
        return int(self.builder.EndVector())

    def tables(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def table(self, offsets: Mapping[int, int], numbers: Mapping[int, tuple[int, int]] | None = None) -> int:
        """A table of offsets, and of (value, bytes)."""
        numbers = numbers or {}
        self.builder.StartObject(max([*offsets, *numbers], default=-1) + 1)
        for slot, (value, size) in sorted(numbers.items(), key=lambda item: -item[1][1]):
            write = {
                1: self.builder.PrependUint8Slot,
                4: self.builder.PrependUint32Slot,
                8: self.builder.PrependUint64Slot,
            }[size]
            write(slot, value, 0)
        for slot, offset in offsets.items():
            self.builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        return int(self.builder.EndObject())

    def tensor(self, tensor: FileTensor) -> int:
        codes = {kind: code for code, kind in schema.DTYPES.items()}
        section = 0
        if tensor.data:
            section = len(self.sections)
            self.sections.append(tensor.data)
        offsets = {
            TensorSlot.NATIVE: self.numbers(tensor.native),
            TensorSlot.SHAPE: self.numbers(tensor.shape),
            TensorSlot.NAME: self.builder.CreateString(tensor.name),
            TensorSlot.SCALE: self.numbers([tensor.scale], np.float32),
            TensorSlot.ZERO_POINT: self.numbers([tensor.zero_point]),
        }
        numbers = {
            TensorSlot.DTYPE: (codes.get(tensor.dtype, schema.RAW) if tensor.dtype else schema.RAW, 1),
            TensorSlot.LAYOUT: (int(tensor.layout), 1),
            TensorSlot.KIND: (int(tensor.kind), 1),
            TensorSlot.BYTES: (tensor.size, 4),
            TensorSlot.OFFSET: (tensor.offset, 4),
            TensorSlot.SECTION: (section, 4),
        }
        return self.table(offsets, numbers)

    def node(self, node: FileNode) -> int:
        offsets = {
            NodeSlot.TYPE: self.builder.CreateString(node.type),
            NodeSlot.NAME: self.builder.CreateString(node.name),
            NodeSlot.INPUTS: self.numbers(node.inputs),
            NodeSlot.OUTPUTS: self.numbers(node.outputs),
            NodeSlot.TASKS: self.numbers(node.tasks),
            NodeSlot.TABLE_TASKS: self.numbers(node.table_tasks),
        }
        numbers = {NodeSlot.TARGET: (schema.ON_NPU if node.on_npu else 0, 1)}
        if node.attributes and not node.on_npu and node.type != "ReduceMean":
            offsets[NodeSlot.MODEL_ATTRIBUTES] = self.builder.CreateByteVector(bson(node.attributes))
        elif node.attributes:  # as container version 2, which has no other form
            code = schema.CODES.get(node.type, schema.CODES["Conv"])
            names = schema.ATTRIBUTES[code]
            inner, small = dict[int, int](), dict[int, tuple[int, int]]()
            for name, value in node.attributes.items():
                if name in schema.NUMBERS:
                    small[names.index(name)] = (int(value), schema.NUMBERS[name])
                elif name not in schema.TEXTS:
                    inner[names.index(name)] = self.numbers(value)
            offsets[NodeSlot.ATTRIBUTES] = self.table(inner, small)
            numbers[NodeSlot.CODE] = (code, 1)
        return self.table(offsets, numbers)


def bson(attributes: Mapping[str, Any]) -> bytes:
    """Attributes of a node: a document (bsonspec.org) with `dtype` and `value` for each name."""

    def element(name: str, value: Any) -> bytes:
        key = name.encode() + b"\0"
        if isinstance(value, dict):
            return b"\3" + key + document(value)
        if isinstance(value, (list, tuple)):
            return b"\4" + key + document({str(n): item for n, item in enumerate(value)})
        if isinstance(value, str):
            text = value.encode() + b"\0"
            return b"\2" + key + struct.pack("<i", len(text)) + text
        if isinstance(value, float):
            return b"\1" + key + struct.pack("<d", value)
        return b"\x10" + key + struct.pack("<i", value)

    def document(members: Mapping[str, Any]) -> bytes:
        body = b"".join(element(name, value) for name, value in members.items()) + b"\0"
        return struct.pack("<i", len(body) + 4) + body

    def described(value: Any) -> dict[str, Any]:
        items = value if isinstance(value, (list, tuple)) else (value,)
        kind = {int: "i", float: "f", str: "s"}[type(items[0])] if items else "i"
        return {"dtype": kind + "s" * isinstance(value, (list, tuple)), "value": value}

    return document({name: described(value) for name, value in attributes.items()})


def as_version_6(
    file: RknnFile, *, compiler: str = "2.3.2", attributes: str = "", batch: str = "0", target: str = ""
) -> bytes:
    """Bytes of a file with the records of another one.

    Parameters
    ----------
    file
        Its tensors (REGCMD and TASKS included), nodes, words and relocations are written.
    compiler, attributes, batch
        Texts of the root table.
    """
    made = _Writer()
    tensors = [made.tensor(tensor) for tensor in file.tensors]
    nodes = [made.node(node) for node in file.nodes]
    by_tensor: dict[int, list[tuple[int, int]]] = {}
    for word, target_of in file.relocations.items():
        by_tensor.setdefault(target_of.tensor, []).append((target_of.offset, word))
    relocations = [
        made.table(
            {
                RelocationSlot.TENSOR: made.builder.CreateString(file.tensors[index].name),
                RelocationSlot.WORDS: made.pairs(words),
            }
        )
        for index, words in by_tensor.items()
    ]
    starts = [0] * 3 + [min(file.plans[n][0]) if n in file.plans and n > 1 else 0 for n in (2, 3)]
    graph = made.table(
        {
            GraphSlot.TENSORS: made.tables(tensors),
            GraphSlot.NODES: made.tables(nodes),
            GraphSlot.INPUTS: made.numbers(file.inputs),
            GraphSlot.OUTPUTS: made.numbers(file.outputs),
            GraphSlot.RELOCATIONS: made.tables(relocations),
            GraphSlot.PLANS: made.numbers(starts),
        }
    )
    text, blob = made.builder.CreateString, made.builder.CreateByteVector
    sections = [made.table({0: blob(data)} if data else {}) for data in made.sections]
    kept = (t for t in file.tensors if t.kind in (Kind.CONSTANT, Kind.HOST_CONSTANT))
    weights = sum(-(-t.size // schema.WEIGHT_ALIGN) * schema.WEIGHT_ALIGN for t in kept)
    ends = [t.offset + t.size for t in file.tensors if t.activation]
    sizes = made.table({}, {Sizes.WEIGHTS: (weights, 8), Sizes.INTERNAL: (max(ends), 8)})
    root = made.table(
        {
            Root.GRAPHS: made.tables([graph]),
            Root.ATTRIBUTES: text(attributes),
            Root.COMPILER: text(compiler),
            Root.TARGET: text(target or schema.TARGET),
            Root.FRAMEWORK: text("ONNX"),
            Root.BATCH: text(batch),
            Root.SHAPES: text("static_shape"),
            Root.SIZES: sizes,
            Root.SECTIONS: made.tables(sections),
        },
        {Root.VERSION: (int(schema.Version.TOOLKIT_2), 4)},
    )
    made.builder.Finish(root, file_identifier=schema.IDENTIFIER)
    body = bytes(made.builder.Output())
    header = schema.HEADER.pack(schema.MAGIC, schema.Version.TOOLKIT_2, len(body))
    return header.ljust(schema.FLATBUFFER_AT, b"\0") + body
