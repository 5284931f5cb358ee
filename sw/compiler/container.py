"""Compiled models as files (docs/container.md).

A container is a header, a JSON text, the bytes of arrays, and a SHA-256 of all before it.  The JSON
holds the compiled model's records by class name with their fields; nothing in it is executed, and
only the classes named here are made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import struct
from typing import Any

import numpy as np

from sw.compiler import graph, steps, tiling
from sw.compiler.graph import ModelError
from sw.compiler.model import CompiledModel
from sw.compiler.plan import Plan
from sw.compiler.programs import dpu
from sw.compiler.programs import task as programs_task

MAGIC = b"RKCOSIM\0"
VERSION = 3
_HEADER = struct.Struct("<8sIIQ")
"""Magic, version, zero, bytes of JSON."""
_DIGEST = 32

_CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        graph.Tensor,
        graph.Clamp,
        graph.Window,
        graph.GraphInput,
        graph.GraphOutput,
        graph.HostOp,
        steps.ConvStep,
        steps.Addend,
        steps.Activation,
        steps.Slopes,
        steps.BinaryStep,
        steps.RescaleStep,
        steps.SlopeStep,
        steps.LookupStep,
        steps.CopyStep,
        steps.HostStep,
        steps.PoolStep,
        steps.Converter,
        programs_task.Ref,
        programs_task.Setting,
        programs_task.Settings,
        programs_task.Task,
        dpu.Place,
        tiling.Tile,
    )
}
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
_GRAPH_FIELDS = ("name", "tensors", "host_ops", "inputs", "outputs", "aliases", "constants", "origin")
_PLAN_FIELDS = tuple(
    field.name for field in dataclasses.fields(Plan) if field.name not in ("graph", "weights")
)


def is_container(data: bytes) -> bool:
    """Whether bytes begin as a container does."""
    return data[: len(MAGIC)] == MAGIC


def save_model(model: CompiledModel) -> bytes:
    """The bytes of a compiled model's container."""
    blob = bytearray()
    fields = {
        "graph": {name: _encode(getattr(model.graph, name), blob) for name in _GRAPH_FIELDS},
        "plan": {name: _encode(getattr(model.plan, name), blob) for name in _PLAN_FIELDS},
        "weights": _encode(np.frombuffer(bytes(model.plan.weights), np.uint8), blob),
    }
    text = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    data = _HEADER.pack(MAGIC, VERSION, 0, len(text)) + text + bytes(blob)
    return data + hashlib.sha256(data).digest()


def load_container(data: bytes) -> CompiledModel:
    """Make the compiled model of a container again.

    Raises
    ------
    ModelError
        for a damaged or foreign file or one of another version, saying which.
    """
    if len(data) < _HEADER.size + _DIGEST or not is_container(data):
        raise ModelError(f"not a compiled model, or cut short ({len(data)} bytes)")
    _, version, reserved, length = _HEADER.unpack_from(data)
    if version != VERSION:
        raise ModelError(f"compiled model of version {version}; this program reads version {VERSION}")
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ModelError("damaged compiled model: its checksum does not fit")
    if reserved or length > len(body) - _HEADER.size:
        raise ModelError("damaged compiled model: its header makes no sense")
    text, blob = body[_HEADER.size : _HEADER.size + length], body[_HEADER.size + length :]
    try:
        return _make(json.loads(text), blob)
    except ModelError:
        raise
    except Exception as error:  # a text of the right checksum can still say anything
        raise ModelError(f"damaged compiled model: {type(error).__name__}: {error}") from error


def _make(fields: dict[str, Any], blob: bytes) -> CompiledModel:
    made = {name: _decode(fields["graph"][name], blob) for name in _GRAPH_FIELDS}
    network = graph.Graph(**made)
    parts = {name: _decode(fields["plan"][name], blob) for name in _PLAN_FIELDS}
    plan = Plan(network, weights=bytearray(_decode(fields["weights"], blob).tobytes()), **parts)
    _check(plan)
    return CompiledModel(network, plan=plan)


def _check(plan: Plan) -> None:
    """Refuse plans that would reach past their own memory."""
    sizes = {"weights": len(plan.weights), "activations": plan.activation_bytes}
    for name, place in plan.places.items():
        if name not in plan.graph.tensors:
            raise ModelError(f"damaged compiled model: place of an unknown tensor '{name}'")
        start = place.ref.offset
        if not 0 <= start <= start + place.size <= sizes[place.ref.region]:
            raise ModelError(f"damaged compiled model: tensor '{name}' lies past its memory")
    for task in plan.tasks:
        if not 0 <= task.layer < len(plan.steps):
            raise ModelError(f"damaged compiled model: a task of layer {task.layer}")
    for step in plan.steps:
        for tensor in (*step.inputs, step.output):
            if tensor.name not in plan.graph.tensors or plan.graph.root(tensor.name) not in plan.places:
                raise ModelError(f"damaged compiled model: '{step.name}' uses an unknown tensor")
    plan.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))


def _encode(value: Any, blob: bytearray) -> Any:
    """JSON for a value; arrays go to the blob."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray):
        start = len(blob)
        blob += np.ascontiguousarray(value).tobytes()
        return {"array": [str(value.dtype), list(value.shape), start]}
    if isinstance(value, list):
        return [_encode(item, blob) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, blob) for item in value]}
    if isinstance(value, set):
        return {"set": sorted(value)}
    if isinstance(value, dict):
        pairs = [[_encode(key, blob), _encode(item, blob)] for key, item in value.items()]
        return {"map": pairs}
    kind = type(value).__name__
    if _CLASSES.get(kind) is not type(value):
        raise TypeError(f"containers do not hold {kind}")
    fields = {f.name: _encode(getattr(value, f.name), blob) for f in dataclasses.fields(value)}
    return {"class": kind, "fields": fields}


def _decode(value: Any, blob: bytes) -> Any:
    if isinstance(value, list):
        return [_decode(item, blob) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        fields = {name: _decode(item, blob) for name, item in value["fields"].items()}
        return _CLASSES[value["class"]](**fields)
    ((kind, content),) = value.items()
    if kind == "array":
        dtype, shape, start = content
        if dtype not in _DTYPES or min([start, *shape], default=0) < 0:
            raise ModelError(f"damaged compiled model: an array of {dtype} {shape}")
        count = math.prod(shape)
        return (
            np.frombuffer(blob, dtype, count, start).reshape(shape).copy()
            if count
            else np.zeros(shape, dtype)
        )
    if kind == "tuple":
        return tuple(_decode(item, blob) for item in content)
    if kind == "set":
        return set(content)
    if kind == "map":
        return {_decode(key, blob): _decode(item, blob) for key, item in content}
    if kind == "float":
        return float(content)
    raise ModelError(f"damaged compiled model: a value of kind '{kind}'")
