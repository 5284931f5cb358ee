"""Conversion of the nodes of a `.rknn` file that the host computes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rkcosim.compiler.graph import HostOp, Tensor, Window
from rkcosim.compiler.host_steps import FUNCTIONS
from rkcosim.compiler.steps import HostStep
from rkcosim.rknn_file.container import FileNode, RknnFile
from rkcosim.rknn_file.host_operators import host_program, is_operator
from rkcosim.rknn_file.schema import Kind
from rkcosim.rknn_file.tables import RknnFileError

FUNCTION = "_function"
"""Suffix of the name of the constant that describes the computation of a host node in files that
`rkcosim compile` has written: JSON with `function`, a key of `rkcosim.compiler.host_steps.FUNCTIONS`,
`attributes`, and `shapes` of what it reads, if the file has other ones (a tensor of three dimensions has four
there) and the attributes count axes."""

HOST_OP = "host_op"
"""Member of that JSON which replaces `function` for computations on real numbers after the network: the kind
of a `rkcosim.compiler.graph.HostOp`; `output` is the name of its value."""

_HOST_OPS = ("Softmax", "Quantize", "Dequantize", "Reshape")

HOST_TYPES = ("ArgMax", "Reshape")
"""Types of host nodes of the vendor's files that are operations on real numbers after the network."""


def computed(node: FileNode) -> bool:
    """Return whether the host computes a node of the vendor's compiler; others are custom operators.

    Raises
    ------
    ModelError
        see `rkcosim.rknn_file.host_operators.is_operator`.
    """
    return node.type in HOST_TYPES or is_operator(node.type)


def host_step(
    file: RknnFile,
    node: FileNode,
    read: Sequence[int],
    before: Sequence[int],
    sources: tuple[Tensor, ...],
    outputs: Sequence[Tensor],
    others: Sequence[int],
) -> HostStep:
    """Return the host step of a node.

    Parameters
    ----------
    file
        The file of the node.
    node
        The node.
    read
        Indices of the activations that it reads.
    before
        Indices of nodes without tasks between the producer of its input and the node.
    sources, outputs
        Tensors of the graph that are read and written.
    others
        Indices of its other inputs, which are constants.

    Raises
    ------
    RknnFileError
        if the host cannot compute the node; the message names it.
    """
    label, output = f"{node.type} '{node.name}'", outputs[0]
    own = [file.tensors[n] for n in others if file.tensors[n].name.endswith(FUNCTION)]
    if file.ours and own and own[0].kind == Kind.HOST_CONSTANT:
        function, given, shapes = _own_function(own[0].data, label)
        sources = _seen(sources, shapes, label)
        return HostStep(node.name, node.type, sources, output, function, given)
    if file.ours:
        raise RknnFileError(f"damaged .rknn file: {label} on the host has no description of its function")
    steps = [file.nodes[n] for n in before]
    moved = node.type == "Reshape" and len(read) == len(outputs) == 1
    moved = moved and not sources[0].host and sources[0].dtype == output.dtype
    if steps and not moved:
        names = ", ".join(f"{step.type} '{step.name}'" for step in steps)
        raise RknnFileError(f"{label} follows {names} without tasks; only a Reshape is supported there")
    if not moved:
        return host_program(file, node, read, sources, outputs)
    if any(step.type != "Transpose" for step in steps) or len(steps) > 1:
        names = ", ".join(f"{step.type} '{step.name}'" for step in steps)
        raise RknnFileError(f"{label} follows {names} without tasks; only one Transpose is supported there")
    source = file.tensors[read[0]]
    if source.elements != output.elements:
        raise RknnFileError(f"{label} has {source.elements} input and {output.elements} output elements")
    attributes: dict[str, Any] = {"shape": output.shape}
    if steps:
        attributes["before"] = permutation(steps[0], sources[0])
    return HostStep(node.name, node.type, sources, output, "Rearrange", attributes)


def permutation(node: FileNode, tensor: Tensor) -> tuple[int, ...]:
    """Return the order of a Transpose's axes.

    Raises
    ------
    RknnFileError
        if the attribute is not a permutation of the tensor's axes.
    """
    order = tuple(node.attributes.get("perm", ())) or tuple(reversed(range(len(tensor.shape))))
    if sorted(order) != list(range(len(tensor.shape))):
        raise RknnFileError(f"damaged .rknn file: Transpose '{node.name}' of {tensor.shape} by {order[:8]}")
    return order


def host_op(file: RknnFile, node: FileNode, source: str) -> HostOp | None:
    """Return the operation on real numbers that a node computes after the network.

    Parameters
    ----------
    file, node
        The file and the node.
    source
        Name of the value that the node reads.

    Returns
    -------
    The operation, or None if the node is of another kind.

    Raises
    ------
    RknnFileError
        if the constant that describes the operation is invalid.
    """
    if not file.ours:
        return _after_network(file, node, source)
    constants = [file.tensors[n] for n in node.inputs if file.tensors[n].name.endswith(FUNCTION)]
    if len(constants) != 1 or constants[0].kind != Kind.HOST_CONSTANT:
        return None
    label = f"{node.type} '{node.name}'"
    said = _json(constants[0].data, label)
    if HOST_OP not in said:
        return None
    kind, attributes = said[HOST_OP], said["attributes"]
    if kind not in _HOST_OPS:
        raise RknnFileError(f"damaged .rknn file: {label}: the host does not compute '{str(kind)[:40]}'")
    return HostOp(node.name, kind, source, f"{node.name} {node.index}", attributes)


def _after_network(file: RknnFile, node: FileNode, source: str) -> HostOp | None:
    """Return an ArgMax, or the Reshape of its result, in a file of the vendor's compiler."""
    label = f"{node.type} '{node.name}'"
    given, taken = file.tensors[node.inputs[0]], file.tensors[node.outputs[0]]
    if node.type == "Reshape" and given.dtype == np.int64:
        if given.elements != taken.elements:
            raise RknnFileError(f"{label} has {given.elements} input and {taken.elements} output elements")
        return HostOp(node.name, "Reshape", source, f"{node.name} {node.index}", {"shape": taken.shape})
    if node.type != "ArgMax":
        return None
    axes = [n for n, (a, b) in enumerate(zip(given.shape, taken.shape, strict=False)) if a != b]
    kept = len(given.shape) == len(taken.shape) and len(axes) == 1 and taken.shape[axes[0]] == 1
    if not kept:
        raise RknnFileError(
            f"{label} from {list(given.shape)} to {list(taken.shape)}: one axis must become 1"
        )
    axis = node.attributes.get("axis", axes[0])
    if axis not in (axes[0], axes[0] - len(given.shape)):
        raise RknnFileError(f"{label} has the axis {axis}, but axis {axes[0]} of its result is 1")
    if node.attributes.get("select_last_index"):
        raise RknnFileError(
            f"{label} selects the last of equal values (select_last_index); it is not supported"
        )
    attributes: dict[str, Any] = {"shape": given.shape, "axis": axes[0]}
    return HostOp(node.name, "ArgMax", source, f"{node.name} {node.index}", attributes)


def _seen(sources: tuple[Tensor, ...], shapes: Any, label: str) -> tuple[Tensor, ...]:
    """Return tensors with the shapes that our writer gives for them, whose axes the attributes count."""
    if shapes is None:
        return sources
    known = isinstance(shapes, list) and len(shapes) == len(sources)
    for tensor, shape in zip(sources, shapes if known else (), strict=False):
        numbers = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
        known = known and numbers and math.prod(shape) == tensor.elements
    if not known:
        raise RknnFileError(f"damaged .rknn file: {label}: shapes {str(shapes)[:80]}")
    return tuple(replace(tensor, shape=tuple(to)) for tensor, to in zip(sources, shapes, strict=True))


def _own_function(data: bytes, label: str) -> tuple[str, dict[str, Any], Any]:
    """Return function, attributes and the shapes of what it reads (None: those of the tensors)."""
    said = _json(data, label)
    function = said.get("function")
    if not isinstance(function, str) or function not in FUNCTIONS:
        raise RknnFileError(f"damaged .rknn file: {label}: no function '{str(function)[:40]}'")
    return function, said["attributes"], said.get("shapes")


def _json(data: bytes, label: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
        attributes = {key: _value(value) for key, value in said["attributes"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RknnFileError(f"damaged .rknn file: {label}: {type(error).__name__}: {error}") from error
    return {**said, "attributes": attributes}


def _value(value: Any) -> Any:
    """Convert an attribute to the compiler's types: lists to tuples, members of a window to a `Window`."""
    if isinstance(value, dict):
        members = value["window"]
        return Window(*(tuple(members[m]) for m in ("kernel", "strides", "pads", "dilations")))
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
