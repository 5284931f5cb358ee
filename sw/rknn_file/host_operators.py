"""Operators of ONNX that the host computes in a `.rknn` file, as programs of one node for onnxruntime.

A quantised tensor is dequantised to float32 before the operator, and its result is quantised again, with the
scales of the file; a float16 tensor is converted likewise. Tensors of other types stay with the host.
The file does not say of which version of ONNX its operators are. The versions are tried in `VERSIONS`, until
one has the node's attributes and inputs, onnxruntime takes it, and its results have the shapes of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import HostOperator, ModelError, Port, Program, Tensor
from rkcosim.compiler.host_runtimes import load_program, missing
from rkcosim.compiler.steps import CallStep
from rkcosim.rknn_file.constants import weights
from rkcosim.rknn_file.container import FileNode, FileTensor, RknnFile
from rkcosim.rknn_file.schema import Kind, Layout
from rkcosim.rknn_file.tables import RknnFileError

VERSIONS = (13, 12, 11, 9, 15, 16, 17, 18, 19, 20, 21, 22)
"""Versions of ONNX's operators in the order in which they are tried; the toolkit reads 12 to 19."""

REASON = "the file leaves it to the host"
"""Why a node of a file runs on the host, in reports."""

SECONDARY = "_exSecondary"
"""End of the name of a node's scratch memory, which the file lists as its last input."""

_PARTS = {"exSwish": (("Sigmoid", "x"), ("Mul", "both"))}
"""Operators of the vendor's compiler: operators of ONNX in a row, on the result before ("x") or on the node's
input and that result ("both")."""

Array = npt.NDArray[Any]


def is_operator(kind: str) -> bool:
    """Return whether a node's type is an operator of ONNX, one with a ReLU behind, or one of `_PARTS`.

    Raises
    ------
    ModelError
        if the package onnx is not installed and the type may be one of its operators.
    """
    if kind in _PARTS:
        return True
    if not kind[:1].isupper():
        return False
    try:
        import onnx.defs
    except ImportError as error:
        raise missing("onnxruntime", "onnx") from error
    base = kind.removesuffix("Relu")
    return bool(onnx.defs.has(kind) or (base and onnx.defs.has(base)))


def host_program(
    file: RknnFile,
    node: FileNode,
    read: Sequence[int],
    sources: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> CallStep:
    """Return the step of a node.

    Parameters
    ----------
    file, node
        The file and its node, whose type is an operator (`is_operator`).
    read
        Indices of the node's inputs that earlier nodes compute.
    sources, outputs
        Tensors of the graph for these inputs, and for all outputs.

    Raises
    ------
    RknnFileError
        if an input or attribute has an unknown form, or no version of ONNX has such an operator; the message
        names the node and what is wrong.
    """
    label = f"{node.type} '{node.name}'"
    if node.unknown_attributes:
        raise RknnFileError(
            f"{label} runs on the host and has attributes in slot 8 in an order that is not known; the names "
            "in slot 9 are needed"
        )
    inputs, constants = _inputs(file, node, read, label)
    takes = [
        Port(name, tensor.host or "float32")
        for name, tensor in zip([name for name in inputs if name.startswith("x")], sources, strict=True)
    ]
    problems: list[str] = []
    for version, scalars in _attempts(constants):
        try:
            data, gives = _model(file, node, inputs, takes, sources, scalars, outputs, version)
            load_program("onnxruntime", data, [p.name for p in takes], [p.name for p in gives])
        except _NotThis as error:
            problems.append(str(error))
            continue
        except ModelError as error:
            problems.append(str(error).removeprefix("onnxruntime refuses a part of the model: "))
            continue
        elements = sum(tensor.elements for tensor in outputs)
        said = (HostOperator(node.name, node.type, REASON, elements),)
        program = Program("onnxruntime", np.frombuffer(data, np.uint8), tuple(takes), tuple(gives), said)
        return CallStep(
            node.name, node.type, tuple(sources), outputs[0], program=program, more=tuple(outputs[1:])
        )
    raise RknnFileError(f"{label} runs on the host and cannot be computed in onnxruntime: {problems[0]}")


class _NotThis(ValueError):
    """A version of an operator does not fit the node; the message has the reason."""


def _attempts(constants: Mapping[str, Array]) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield versions with the constants; the file stores scalars as vectors of one element."""
    vectors = dict(constants)
    single = {name: array.reshape(()) if array.shape == (1,) else array for name, array in vectors.items()}
    for version in VERSIONS:
        yield version, vectors
        if any(array.shape == (1,) for array in vectors.values()):
            yield version, single


def _inputs(
    file: RknnFile, node: FileNode, read: Sequence[int], label: str
) -> tuple[list[str], dict[str, Array]]:
    """Return the names of the operator's inputs ("" for one that is left out), and the constants."""
    names, constants, left = list[str](), dict[str, Array](), list(read)
    for place, index in enumerate(node.inputs):
        tensor = file.tensors[index]
        if left and index == left[0]:
            left.pop(0)
            names.append(f"x{place}")
        elif tensor.name.endswith(SECONDARY):
            continue
        elif tensor.activation:
            raise RknnFileError(f"{label} reads '{tensor.name}', which no earlier node computes")
        elif tensor.kind == Kind.NONE or not (tensor.data or tensor.shape):
            names.append("")
        else:
            names.append(f"c{place}")
            constants[names[-1]] = _constant(tensor, node, label)
    while names and not names[-1]:
        names.pop()
    return names, constants


def _constant(tensor: FileTensor, node: FileNode, label: str) -> Array:
    """Return a constant as the operator reads it: floats as float32."""
    kind = tensor.dtype
    if kind is None:
        raise RknnFileError(f"{label}: the elements of its constant '{tensor.name}' have an unknown type")
    if tensor.layout == Layout.WEIGHTS:
        if kind != np.float16:
            raise RknnFileError(
                f"{label} runs on the host with weights '{tensor.name}' of {kind}, whose scales are not known"
            )
        groups = int(node.attributes.get("group", 1) or 1)
        return np.ascontiguousarray(weights(tensor, groups).reshape(tensor.shape).astype(np.float32))
    if tensor.layout == Layout.NATIVE and len(tensor.native) == 5 and len(tensor.shape) == 4:
        n, blocks, height, width, step = tensor.native
        values = _elements(tensor, kind, (n, blocks, height, width, step), label)
        values = values.transpose(0, 1, 4, 2, 3).reshape(n, blocks * step, height, width)
        values = values[:, : tensor.shape[1]].reshape(tensor.shape)
    else:
        values = _elements(tensor, kind, tensor.shape, label)
    if kind.itemsize == 1 and kind != np.bool_:
        if (tensor.scale, tensor.zero_point) == (1.0, 0):
            raise RknnFileError(f"{label}: its constant '{tensor.name}' of {kind} has no scale")
        return ((values.astype(np.float32) - tensor.zero_point) * np.float32(tensor.scale)).astype(np.float32)
    return np.ascontiguousarray(values.astype(np.float32) if kind == np.float16 else values)


def _elements(tensor: FileTensor, kind: np.dtype[Any], shape: tuple[int, ...], label: str) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if len(tensor.data) < count * kind.itemsize:
        raise RknnFileError(
            f"damaged .rknn file: {label}: constant '{tensor.name}' of {list(shape)} has "
            f"{len(tensor.data)} bytes"
        )
    return np.frombuffer(tensor.data, kind, count).reshape(shape)


def _parts(kind: str) -> list[tuple[str, str]]:
    """Return the operators of a node in a row."""
    import onnx.defs

    if kind in _PARTS:
        return list(_PARTS[kind])
    return [(kind, "all")] if onnx.defs.has(kind) else [(kind.removesuffix("Relu"), "all"), ("Relu", "x")]


def _model(
    file: RknnFile,
    node: FileNode,
    inputs: Sequence[str],
    takes: Sequence[Port],
    sources: Sequence[Tensor],
    constants: Mapping[str, Array],
    outputs: Sequence[Tensor],
    version: int,
) -> tuple[bytes, list[Port]]:
    """Return an ONNX model of the node, and its outputs; raises `_NotThis` if the version does not fit."""
    from onnx import TensorProto, helper, numpy_helper

    made = [f"y{number}" for number in range(len(outputs))]
    nodes, last = [], list[str]()
    for number, (kind, reads) in enumerate(_parts(node.type)):
        schema = _schema(kind, version)
        given = {"all": list(inputs), "x": last or list(inputs[:1]), "both": [inputs[0], *last]}[reads]
        last = made if number == 0 else [f"p{number}"]
        if reads == "all":
            _check_inputs(schema, kind, given, len(outputs))
        attributes = _attributes(schema, node.attributes) if reads == "all" else {}
        nodes.append(helper.make_node(kind, given, last, name=f"{node.name} {number}", **attributes))
    value = helper.make_tensor_value_info
    graph_inputs = [
        value(port.name, helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype)), tensor.shape)
        for port, tensor in zip(takes, sources, strict=True)
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    results = last if len(last) == len(outputs) else [*last, *made[1:]]
    opset = helper.make_opsetid("", version)
    types = _inferred(helper.make_graph(nodes, "node", graph_inputs, [], stored), results, opset)
    gives = []
    for result, tensor, (code, shape) in zip(results, outputs, types, strict=True):
        wanted = np.dtype(tensor.host or np.float32)
        name, given_type = result, np.dtype(helper.tensor_dtype_to_np_dtype(code))
        if given_type != wanted:
            if given_type.kind == "f" and wanted.kind != "f" and tensor.host != "":
                raise _NotThis(f"its result is {given_type}, and the file has {wanted}")
            target = helper.np_dtype_to_tensor_dtype(wanted)
            nodes.append(helper.make_node("Cast", [name], [f"{result}t"], to=target))
            name = f"{result}t"
        if shape != tensor.shape:
            if [n for n in shape if n != 1] != [n for n in tensor.shape if n != 1]:
                raise _NotThis(f"its result has the shape {list(shape)}, and the file {list(tensor.shape)}")
            stored.append(numpy_helper.from_array(np.array(tensor.shape, np.int64), f"{result}s"))
            nodes.append(helper.make_node("Reshape", [name, f"{result}s"], [f"{result}r"]))
            name = f"{result}r"
        gives.append(Port(name, wanted.name))
    graph_outputs = [value(port.name, TensorProto.UNDEFINED, None) for port in gives]
    for item, port, tensor in zip(graph_outputs, gives, outputs, strict=True):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
        item.CopyFrom(value(port.name, code, tensor.shape))
    graph = helper.make_graph(nodes, "node", graph_inputs, graph_outputs, stored)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return model.SerializeToString(), gives


def _schema(kind: str, version: int) -> Any:
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(kind, version, "")
    except onnx.defs.SchemaError as error:
        raise _NotThis(f"ONNX {version} has no operator {kind}") from error
    if schema.deprecated:
        raise _NotThis(f"{kind} is deprecated in ONNX {version}")
    return schema


def _check_inputs(schema: Any, kind: str, inputs: Sequence[str], outputs: int) -> None:
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise _NotThis(f"{kind} has {len(inputs)} inputs")
    if not outputs <= schema.max_output:
        raise _NotThis(f"{kind} has {outputs} outputs")


def _attributes(schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes in the types of the operator."""
    kinds = type(next(iter(schema.attributes.values())).type) if schema.attributes else None
    made: dict[str, Any] = {}
    for name, value in given.items():
        known = schema.attributes.get(name)
        if known is None or kinds is None:
            raise _NotThis(f"{schema.name} has no attribute '{name}'")
        several = known.type in (kinds.INTS, kinds.FLOATS, kinds.STRINGS)
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        if known.type in (kinds.FLOAT, kinds.FLOATS):
            values = [float(one) for one in values]
        if not several and len(values) != 1:
            raise _NotThis(f"the attribute '{name}' has {len(values)} values")
        if several and not values:
            continue
        made[name] = values if several else values[0]
    for name, known in schema.attributes.items():
        if known.required and name not in made:
            raise _NotThis(f"{schema.name} needs the attribute '{name}'")
    return made


def _inferred(graph: Any, results: Sequence[str], opset: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Return element type and shape of the results."""
    from onnx import helper, shape_inference

    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    try:
        inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:  # its class is not part of onnx' interface
        raise _NotThis(" ".join(str(error).split())[:200]) from error
    known = {info.name: info.type.tensor_type for info in inferred.graph.value_info}
    found = []
    for name in results:
        if name not in known:
            raise _NotThis("the shape of its result is not known")
        dims = known[name].shape.dim
        if not known[name].HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
            raise _NotThis("the shape of its result depends on data")
        found.append((known[name].elem_type, tuple(int(dim.dim_value) for dim in dims)))
    return found
