"""Element types of ONNX files that the loader reads as wider ones: bfloat16, codes of four and two bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.loaders.onnx_fold import inferred

Type = onnx.TensorProto

NARROW: dict[int, int] = {Type.INT4: Type.INT8, Type.UINT4: Type.UINT8}
for _name, _wide in (("INT2", Type.INT8), ("UINT2", Type.UINT8)):
    if hasattr(Type, _name):  # of onnx 1.20 and newer
        NARROW[getattr(Type, _name)] = _wide
CASTS = ("to", "dtype", "output_dtype")
"""Attributes that are element types."""


def has_bfloat16(proto: onnx.ModelProto) -> bool:
    """Whether a model has inputs, outputs, constants or conversions of bfloat16."""
    return any(
        any(item.data_type == Type.BFLOAT16 for item in _tensors(graph))
        or any(_kind(item) == Type.BFLOAT16 for item in (*graph.input, *graph.output))
        or any(a.name in CASTS and a.i == Type.BFLOAT16 for node in graph.node for a in node.attribute)
        for graph in _graphs(proto.graph)
    )


def write_bfloat16(proto: onnx.ModelProto) -> None:
    """Write all values of bfloat16 as float32, in place: every number of bfloat16 is one of float32.

    Results are not rounded to bfloat16 then; the NPU computes them in fp16, operators of the host in float32.
    """
    for graph in _graphs(proto.graph):
        _write_casts(graph, inferred(proto) if graph is proto.graph else None)
        for tensor in _tensors(graph):
            if tensor.data_type == Type.BFLOAT16:
                array = numpy_helper.to_array(tensor).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        for item in (*graph.input, *graph.output, *graph.value_info):
            if _kind(item) == Type.BFLOAT16:
                item.type.tensor_type.elem_type = Type.FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in CASTS and attribute.i == Type.BFLOAT16:
                    attribute.i = Type.FLOAT


def _write_casts(graph: onnx.GraphProto, typed: onnx.ModelProto | None) -> None:
    """Write conversions between float32 and bfloat16 as Identity; `typed` has the types of the values."""
    if typed is None:
        return
    known = {
        item.name: _kind(item) for item in (*typed.graph.input, *typed.graph.value_info, *typed.graph.output)
    }
    known |= {item.name: item.data_type for item in graph.initializer}
    ends = {Type.FLOAT, Type.BFLOAT16}
    for node in graph.node:
        if node.op_type == "Cast" and _attribute(node, "to") in ends and known.get(node.input[0]) in ends:
            node.op_type = "Identity"
            del node.attribute[:]


def write_narrow_codes(graph: onnx.GraphProto) -> None:
    """Write constant codes of four and two bits as the same codes of eight bits, in place.

    Constants with a scale for each block (`block_size`) become the real numbers that they stand for, in the
    type of the scales, since a tensor of the NPU has a scale for each kernel.
    """
    known = {item.name: item for item in graph.initializer}
    users: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            users[name] = users.get(name, 0) + 1
    nodes, wide = [], dict[str, str]()
    for node in graph.node:
        given = [known.get(name) if name else None for name in node.input]
        whole = node.op_type == "DequantizeLinear" and len(given) > 1
        if whole and given[0] is not None and given[1] is not None and _attribute(node, "block_size"):
            made = _reals(node, [None if item is None else numpy_helper.to_array(item) for item in given])
            if made is not None:
                graph.initializer.append(numpy_helper.from_array(made, node.output[0]))
                continue
        if whole and given[0] is not None and given[0].data_type in NARROW:
            for place in (0, 2):
                tensor = given[place] if place < len(given) else None
                if tensor is not None and tensor.data_type in NARROW:
                    node.input[place] = _widened(graph, tensor, wide)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in _inner_nodes(graph) for name in node.input} | {
        item.name for item in graph.output
    }
    kept = [item for item in graph.initializer if item.data_type not in NARROW or item.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _widened(graph: onnx.GraphProto, tensor: onnx.TensorProto, wide: dict[str, str]) -> str:
    """Return the name of a constant with the same codes of eight bits."""
    if tensor.name not in wide:
        name = f"{tensor.name}@int8"
        array = numpy_helper.to_array(tensor).astype(
            helper.tensor_dtype_to_np_dtype(NARROW[tensor.data_type])
        )
        graph.initializer.append(numpy_helper.from_array(array, name))
        wide[tensor.name] = name
    return wide[tensor.name]


def _reals(node: onnx.NodeProto, given: list[np.ndarray | None]) -> np.ndarray | None:
    """Return the numbers of a DequantizeLinear with blocks; None if the shapes do not fit."""
    codes, scale = given[0], given[1]
    assert codes is not None and scale is not None
    zero = given[2] if len(given) > 2 else None
    size, axis = _attribute(node, "block_size"), _attribute(node, "axis", 1)
    if not -codes.ndim <= axis < codes.ndim or scale.ndim != codes.ndim or scale.dtype.kind != "f":
        return None
    axis %= codes.ndim
    blocks = -(-codes.shape[axis] // size) if size > 0 else 0
    if scale.shape != (*codes.shape[:axis], blocks, *codes.shape[axis + 1 :]):
        return None
    spread = [
        np.repeat(item, size, axis).take(range(codes.shape[axis]), axis)
        for item in (scale.astype(np.float32), np.zeros_like(scale) if zero is None else zero)
    ]
    numbers = (codes.astype(np.float32) - spread[1].astype(np.float32)) * spread[0]
    return np.asarray(numbers.astype(scale.dtype))


def _attribute(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _kind(item: onnx.ValueInfoProto) -> int:
    return item.type.tensor_type.elem_type if item.type.WhichOneof("value") == "tensor_type" else 0


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for item in node.attribute:
            for body in (*([item.g] if item.HasField("g") else []), *item.graphs):
                yield from _graphs(body)


def _inner_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for inner in _graphs(graph):
        yield from inner.node


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the constants of a graph without those of bodies."""
    yield from graph.initializer
    for node in graph.node:
        for item in node.attribute:
            if item.HasField("t"):
                yield item.t
