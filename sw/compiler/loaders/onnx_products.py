"""Products of ONNX in the forms that the loader knows: two matrices, rows times a matrix, or a Conv."""

from __future__ import annotations

import math

import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.loaders.onnx_einsum import as_product, shape_constant
from rkcosim.compiler.loaders.onnx_fold import described, known_shapes


def products(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose products are in the forms that the loader knows, as far as possible.

    - An Einsum of two factors becomes a MatMul between transposed values (`onnx_einsum`).
    - A constant (1, ..., 1, K, N) of a MatMul becomes a matrix.
    - Rows of several dimensions (..., M, K), of which the loader takes at most three dimensions, become one
      list of rows.
    - A constant (M, K) on the left of (1, K, N) becomes a Conv of one tap over N places of K channels.

    Nodes of another form, or of unknown shapes, stay as they are.
    """
    if not any(node.op_type in ("Einsum", "MatMul") for node in proto.graph.node):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    constants = {item.name: item for item in made.graph.initializer}
    shapes = known_shapes(described(made)) | {name: list(item.dims) for name, item in constants.items()}
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        if node.op_type == "MatMul":
            nodes += _rewritten(node, shapes, constants, made.graph)
        else:
            nodes += as_product(node, shapes, made.graph) or [node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _rewritten(
    node: onnx.NodeProto,
    shapes: dict[str, list[int]],
    constants: dict[str, onnx.TensorProto],
    graph: onnx.GraphProto,
) -> list[onnx.NodeProto]:
    """Return the nodes that compute a MatMul; the node itself if it stays as it is."""
    left, right = node.input
    if right in constants and left not in constants and left in shapes:
        return _rows(node, shapes[left], list(constants[right].dims), graph)
    if left in constants and right not in constants and right in shapes:
        return _channels(node, shapes[right], constants[left], graph)
    return [node]


def _rows(
    node: onnx.NodeProto, shape: list[int], matrix: list[int], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Multiply rows by a constant matrix."""
    if len(matrix) < 2 or math.prod(matrix[:-2]) != 1 or len(shape) < max(2, len(matrix)):
        return [node]
    made = onnx.NodeProto()
    made.CopyFrom(node)
    nodes = [made]
    if len(matrix) > 2:
        made.input[1] = _reshaped(graph, node.input[1], matrix[-2:], node.output[0])
    if len(shape) > 3:
        rows, result = f"{node.output[0]}_rows", f"{node.output[0]}_products"
        count = math.prod(shape[:-1])
        first = _reshape(graph, node.input[0], [1, count, shape[-1]], rows)
        last = _reshape(graph, result, [*shape[:-1], matrix[-1]], node.output[0])
        made.input[0], made.output[0] = rows, result
        nodes = [first, made, last]
    return nodes


def _channels(
    node: onnx.NodeProto, shape: list[int], matrix: onnx.TensorProto, graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Multiply a constant matrix by columns, which are the places of a Conv."""
    dims = list(matrix.dims)
    if len(shape) != 3 or shape[0] != 1 or len(dims) not in (2, 3) or math.prod(dims[:-2]) != 1:
        return [node]
    kernels = _reshaped(graph, node.input[0], [*dims[-2:], 1], node.output[0])
    return [helper.make_node("Conv", [node.input[1], kernels], node.output, name=node.name, kernel_shape=[1])]


def _reshape(graph: onnx.GraphProto, source: str, shape: list[int], output: str) -> onnx.NodeProto:
    return helper.make_node("Reshape", [source, shape_constant(graph, output, shape)], [output], name=output)


def _reshaped(graph: onnx.GraphProto, name: str, shape: list[int], output: str) -> str:
    """Add a constant with other dimensions, and return its name."""
    found = next(item for item in graph.initializer if item.name == name)
    made = f"{output}_matrix"
    graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(found).reshape(shape), made))
    return made
