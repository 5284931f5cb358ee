"""Compiled models as files (docs/container.md).

A container consists of a header, a JSON text, the bytes of the arrays, and a SHA-256 of everything before it.
The JSON holds the compiled model's records, each with its class name and fields; nothing in it is executed,
and only the classes listed in this file are instantiated.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base import progress
from rkcosim.base.files import is_container
from rkcosim.compiler import graph, graph_products, several, shared_weights, steps, tiling
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.interpreters import MOST_SAMPLES
from rkcosim.compiler.options import load_options
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.planner import replan
from rkcosim.compiler.programs import dpu, task
from rkcosim.compiler.several import DIGEST, HEADER, MAGIC, NO_WEIGHTS, VERSION

VERSION_OF_BATCHES = 5
"""Version of files with a batch, which differ from the others only by the number of samples."""

_NAMES: dict[ModuleType, str] = {
    graph: "Tensor Clamp Window GraphInput GraphOutput HostOp HostOperator Port Program State",
    steps: "ConvStep Addend Activation Slopes BinaryStep RescaleStep SlopeStep LookupStep CopyStep "
    "FloatStage FloatStep TableStep FoldStep RepeatStep HostStep CallStep PoolStep Converter "
    "AtomsStep TilesStep ByteTilesStep PermuteStep SumsStep ProductStep",
    graph_products: "Factors",
    task: "Ref Setting Settings Task",
    dpu: "Place",
    tiling: "Tile",
}
_CLASSES: dict[str, type[Any]] = {n: getattr(module, n) for module in _NAMES for n in _NAMES[module].split()}
_DTYPES = tuple("int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bool".split())
_GRAPH_FIELDS = (
    "name",
    "tensors",
    "host_ops",
    "inputs",
    "outputs",
    "aliases",
    "constants",
    "origin",
    "states",
)
_PLAN_FIELDS = tuple(
    field.name for field in dataclasses.fields(Plan) if field.name not in ("graph", "weights", "on_one_core")
)


def is_without_weights(data: bytes) -> bool:
    """Whether `data` begins like a container whose weights are those of another model."""
    return is_container(data) and len(data) >= HEADER.size and HEADER.unpack_from(data)[2] == NO_WEIGHTS


def save_plan(plan: Plan, samples: int = 1, weights: bool = True) -> bytes:
    """Return the bytes of a compiled model's container.

    Parameters
    ----------
    plan
        The plan of the model.
    samples
        Number of samples of a batch, if the plan is that of one of them.
    weights
        Whether the weights are in it; otherwise they are those of another model.
    """
    blob = _Blob(weights)
    fields = {
        "graph": {name: _encode(getattr(plan.graph, name), blob) for name in _GRAPH_FIELDS},
        "plan": {name: _encode(getattr(plan, name), blob) for name in _PLAN_FIELDS},
        "weights": _encode(np.frombuffer(bytes(plan.weights), np.uint8), blob) if weights else None,
    }
    if samples > 1:
        fields["samples"] = samples
    if plan.graph.custom_string:
        fields["custom_string"] = plan.graph.custom_string
    text = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    version, flags = VERSION if samples == 1 else VERSION_OF_BATCHES, 0 if weights else NO_WEIGHTS
    data = HEADER.pack(MAGIC, version, flags, len(text)) + text + bytes(blob.data)
    return data + hashlib.sha256(data).digest()


def load_plan(data: bytes, full: Plan | None = None) -> Plan:
    """Read the plan of a compiled model, with its graph; see `load_batch`."""
    return load_batch(data, full)[0]


def load_batch(data: bytes, full: Plan | None = None) -> tuple[Plan, int]:
    """Read the plan of a compiled model, with its graph, and the number of samples of its batch, 1 without.

    Of a model of several shapes it is the plan of the shapes in the options, or of the largest.

    Parameters
    ----------
    data
        The container.
    full
        The plan of a model whose weights a container without weights uses; else without effect.

    Raises
    ------
    ModelError
        If the file is damaged, is not a container or has another version, or if it has no weights and `full`
        does not have them; the message says which.
    """
    if len(data) < HEADER.size + DIGEST or not is_container(data):
        raise ModelError(f"not a compiled model, or cut short ({len(data)} bytes)")
    if several.is_several(data):
        data = _of_one_shape(data)
    _, version, flags, length = HEADER.unpack_from(data)
    if version not in (VERSION, VERSION_OF_BATCHES):
        known = f"{VERSION} and {VERSION_OF_BATCHES}"
        raise ModelError(f"compiled model of version {version}; this program reads versions {known}")
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ModelError("damaged compiled model: its checksum does not fit")
    if flags not in (0, NO_WEIGHTS) or length > len(body) - HEADER.size:
        raise ModelError("damaged compiled model: its header makes no sense")
    if flags and full is None:
        raise ModelError(
            "the model was made without weights: it needs a model that has them (rknn_init with "
            "RKNN_FLAG_SHARE_WEIGHT_MEM and the context of the full model)"
        )
    text, rest = body[HEADER.size : HEADER.size + length], body[HEADER.size + length :]
    try:
        blob, fields = _Blob(data=rest), json.loads(text)
        if flags and full is not None:
            blob.find = shared_weights.finder(_values(full))
        plan, samples = _make(fields, blob), fields.get("samples", 1)
        if not isinstance(samples, int) or not 1 <= samples <= MOST_SAMPLES:
            raise ModelError(f"damaged compiled model: a batch of {samples}")
        shapes = [item.shape for item in plan.graph.inputs] + [item.shape for item in plan.graph.outputs]
        if samples > 1 and any(shape[:1] != (1,) for shape in shapes):
            raise ModelError("damaged compiled model: a batch of inputs or outputs without a sample in front")
        plan.graph.custom_string = str(fields.get("custom_string", ""))
        return plan, samples
    except ModelError:
        raise
    except Exception as error:  # a valid checksum does not make the content valid
        raise ModelError(f"damaged compiled model: {type(error).__name__}: {error}") from error


class _Blob:
    """Arrays of a container: `data` are their contents, `weights` tells whether they include the weights.

    `find` returns the weights of a container that has none.
    """

    def __init__(self, weights: bool = True, data: bytes = b"") -> None:
        self.weights, self.data = weights, bytearray() if not data else data
        self.find: shared_weights.Find | None = None

    def add(self, array: npt.NDArray[Any]) -> list[Any]:
        """Append an array; return its description."""
        start = len(self.data)
        assert isinstance(self.data, bytearray)
        self.data += np.ascontiguousarray(array).tobytes()
        return [str(array.dtype), list(array.shape), start]


def _values(plan: Plan) -> Iterator[Any]:
    """Yield all arrays and programs of a plan's records."""
    places: list[Any] = [getattr(plan.graph, name) for name in _GRAPH_FIELDS]
    places += [getattr(plan, name) for name in _PLAN_FIELDS]
    while places:
        value = places.pop()
        if isinstance(value, np.ndarray | graph.Program):
            yield value
        elif isinstance(value, list | tuple):
            places += value
        elif isinstance(value, dict):
            places += value.values()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            places += [getattr(value, field.name) for field in dataclasses.fields(value)]


def _of_one_shape(data: bytes) -> bytes:
    """Return the model of the shapes in the options, or of the largest, from a file of several shapes."""
    try:
        sets, models = several.unpack(data)
    except ValueError as error:
        raise ModelError(str(error)) from error
    wanted = load_options()
    if not wanted.shapes and not wanted.input_shapes:
        number = several.largest(sets)
        shown = ", ".join(str(list(shape)) for shape in sets[number])
        progress.say(f"the model has {len(sets)} sets of shapes: {shown} is used (--shape changes it)")
        return models[number]
    for shapes, model in zip(sets, models, strict=True):
        infos = load_plan(model).graph.inputs
        named = {info.name: shape for info, shape in zip(infos, shapes, strict=True)}
        chosen = {**named, **wanted.shapes}
        if chosen == named and wanted.input_shapes in ((), shapes):
            return model
    listed = "; ".join(", ".join(str(list(shape)) for shape in shapes) for shapes in sets)
    raise ModelError(f"the model has no such shapes, only {listed}")


def _make(fields: dict[str, Any], blob: _Blob) -> Plan:
    made = {name: _decode(fields["graph"][name], blob) for name in _GRAPH_FIELDS}
    network = graph.Graph(**made)
    parts = {name: _decode(fields["plan"][name], blob) for name in _PLAN_FIELDS}
    weights = _decode(fields["weights"], blob)
    plan = Plan(network, weights=bytearray() if weights is None else bytearray(weights.tobytes()), **parts)
    if weights is None:
        plan = replan(plan, plan.cores)
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    """Refuse a plan that accesses memory outside of its own regions, or uses names that nothing has."""
    _check_names(plan.graph)
    sizes = {"weights": len(plan.weights), "activations": plan.activation_bytes}
    for name, place in plan.places.items():
        if name not in plan.graph.tensors:
            raise ModelError(f"damaged compiled model: place of an unknown tensor '{name}'")
        start = place.ref.offset
        if not 0 <= start <= start + place.size <= sizes[place.ref.region]:
            raise ModelError(f"damaged compiled model: tensor '{name}' lies past its memory")
    for item in plan.tasks:
        if not 0 <= item.layer < len(plan.steps):
            raise ModelError(f"damaged compiled model: a task of layer {item.layer}")
        for setting in item.settings:
            if setting.register == "DCOMP_CTRL" and any(setting.fields.values()):
                name = plan.steps[item.layer].name
                raise ModelError(f"damaged compiled model: '{name}' has compressed weights, as no such file")
    for step in plan.steps:
        for tensor in (*step.inputs, *step.outputs):
            known = plan.graph.tensors.get(tensor.name)
            if known is None or known.host != tensor.host or _placeless(plan, tensor):
                raise ModelError(f"damaged compiled model: '{step.name}' uses an unknown tensor")
    plan.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))


def _check_names(network: graph.Graph) -> None:
    """Refuse inputs, outputs, aliases, states and operations of the host that use unknown names or shapes."""
    tensors = network.tensors
    for name, other in network.aliases.items():
        steps = 0
        while other in network.aliases and steps <= len(network.aliases):
            other, steps = network.aliases[other], steps + 1
        if name not in tensors or other not in tensors or other in network.aliases:
            raise ModelError(f"damaged compiled model: '{name}' is an alias of an unknown tensor")
    values = set(tensors)
    for op in network.host_ops:
        if op.input not in values:
            raise ModelError(f"damaged compiled model: '{op.name}' reads an unknown value '{op.input}'")
        values.add(op.output)
    inputs = [(item.name, item.tensor, item.shape, False) for item in network.inputs]
    outputs = [(item.name, item.value, item.shape, item.real) for item in network.outputs]
    for item, name, shape, host in inputs + outputs:
        if name not in (values if host else tensors):
            raise ModelError(f"damaged compiled model: '{item}' is an unknown tensor '{name}'")
        if not host and not tensors[name].open and math.prod(shape) != tensors[name].elements:
            raise ModelError(f"damaged compiled model: '{item}' has another shape than its tensor")
    for state in network.states:
        if state.tensor not in tensors or state.following not in tensors:
            raise ModelError(f"damaged compiled model: '{state.tensor}' is a state of an unknown tensor")


def _placeless(plan: Plan, tensor: graph.Tensor) -> bool:
    """Whether a tensor that the NPU reads or writes has no place, or one of the host an impossible size."""
    if not tensor.host:
        return plan.graph.root(tensor.name) not in plan.places
    root = plan.graph.tensors[plan.graph.root(tensor.name)]
    coding = tensor.scale, tensor.zero_point, tensor.open
    return (
        tensor.host not in _DTYPES
        or not root.host
        or tensor.elements * tensor.itemsize != root.elements * root.itemsize
        or tensor != graph.host_tensor(tensor.name, tensor.shape, tensor.host, *coding)
    )


def _encode(value: Any, blob: _Blob) -> Any:
    """Return a value as JSON; arrays are appended to the blob."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray):
        if not blob.weights and shared_weights.is_weight(value):
            return {"weight": [str(value.dtype), list(value.shape), shared_weights.digest(value)]}
        return {"array": blob.add(value)}
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
    if isinstance(value, graph.Program) and not blob.weights:
        fields["data"] = {"array": blob.add(shared_weights.without_weights(value))}
    return {"class": kind, "fields": fields}


def _decode(value: Any, blob: _Blob) -> Any:
    if isinstance(value, list):
        return [_decode(item, blob) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        fields = {name: _decode(item, blob) for name, item in value["fields"].items()}
        if value["class"] == "Program" and blob.find is not None:
            fields["data"] = shared_weights.with_weights(fields["runtime"], fields["data"], blob.find)
        return _CLASSES[value["class"]](**fields)
    ((kind, content),) = value.items()
    if kind == "array":
        dtype, shape, start = content
        if dtype not in _DTYPES or min([start, *shape], default=0) < 0:
            raise ModelError(f"damaged compiled model: an array of {dtype} {shape}")
        count = math.prod(shape)
        return (
            np.frombuffer(blob.data, dtype, count, start).reshape(shape).copy()
            if count
            else np.zeros(shape, dtype)
        )
    if kind == "weight" and blob.find is not None:
        dtype, shape, digest = content
        return blob.find(np.dtype(dtype), tuple(shape), digest)
    if kind == "tuple":
        return tuple(_decode(item, blob) for item in content)
    if kind == "set":
        return set(content)
    if kind == "map":
        return {_decode(key, blob): _decode(item, blob) for key, item in content}
    if kind == "float":
        return float(content)
    raise ModelError(f"damaged compiled model: a value of kind '{kind}'")
