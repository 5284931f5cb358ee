"""Models with custom operators: the part from the first of them on is cut off and computed on the host.

A custom operator is a node of a domain that neither ONNX nor onnxruntime has.  The values that feed the
cut-off part become outputs of the model that the compiler gets; the nodes of the part run in order after each
job, custom ones with the program's functions and others with ONNX's reference evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import ModelError, RunReport, TensorInfo
from rkcosim.compiler.host_runtimes import refuse_external
from rkcosim.compiler.tiling import holding

if TYPE_CHECKING:
    from rkcosim.rknn_file.model import FileModel

Array = npt.NDArray[Any]
Compute = Callable[["TailNode", list[Array], list[Array]], None]
"""Computes a custom node: fills the output arrays from the input arrays."""

OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Domains of ONNX and onnxruntime; operators of all others, except functions of the model, are custom."""


@dataclass
class TailNode:
    """A node after the cut; `shapes` and `dtypes` of its outputs are known for custom nodes."""

    name: str
    op_type: str
    custom: bool
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    dtypes: list[np.dtype[Any]] = field(default_factory=list)
    evaluator: Any = None


@dataclass
class Tail:
    """The part after the cut: nodes in order, constants, and the values that feed it."""

    nodes: list[TailNode]
    constants: dict[str, Array]
    feeds: list[str]

    @property
    def custom_nodes(self) -> list[TailNode]:
        """The custom operators."""
        return [node for node in self.nodes if node.custom]

    def run(self, values: dict[str, Array], compute: Compute) -> dict[str, Array]:
        """All values after the cut, computed from those that feed it."""
        known = {**self.constants, **values}
        for node in self.nodes:
            inputs = [known[name] for name in node.inputs if name]
            if node.custom:
                outputs = [np.zeros(s, d) for s, d in zip(node.shapes, node.dtypes, strict=True)]
                compute(node, [np.ascontiguousarray(value) for value in inputs], outputs)
            else:
                feeds = {name: known[name] for name in node.inputs if name}
                outputs = node.evaluator.run(None, feeds)
            known.update(zip(node.outputs, outputs, strict=True))
        return known


def split(data: bytes) -> tuple[bytes, Tail, list[TensorInfo]] | None:
    """Cut a model before its first custom operators.

    Returns
    -------
    (model for the compiler, the part that is cut off, outputs of the whole model), or None for a model
    without custom operators and for data that are not an ONNX model (the compiler then reports the error).

    Raises
    ------
    ModelError
        For a custom operator whose output has no known shape; the message names it.
    """
    if not data or data[:1] not in (b"\x08", b"\x0a", b"\x12", b"\x3a", b"\x42"):
        return None
    import onnx
    from onnx import numpy_helper

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # the compiler's loader reports the error
        return None
    graph = proto.graph
    domains = {*OWN_DOMAINS, *(function.domain for function in proto.functions)}
    custom = [node for node in graph.node if node.domain not in domains]
    if not custom:
        return None
    refuse_external(data)
    behind: set[str] = set()
    nodes = []
    for node in graph.node:
        if node.domain not in domains or behind.intersection(node.input):
            behind.update(node.output)
            nodes.append(node)
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    _fold_constants(graph, nodes, constants)
    feeds = []
    for node in nodes:
        for name in node.input:
            if name and name not in behind and name not in constants and name not in feeds:
                feeds.append(name)
    known: dict[str, Any] = {info.name: info for info in (*graph.value_info, *graph.output)}
    tail = Tail([_tail_node(node, known, proto) for node in nodes], constants, feeds)
    outputs = []
    for info in graph.output:
        if info.name in behind:
            shape, dtype = _shape_of(info.name, known, f"output '{info.name}'")
            outputs.append(TensorInfo(info.name, shape, dtype, 1.0, 0))
        else:
            outputs.append(TensorInfo(info.name, (), np.dtype(np.float32), 1.0, 0))
    head = onnx.ModelProto()
    head.CopyFrom(proto)
    del head.graph.node[:]
    kept = {id(node) for node in nodes}
    head.graph.node.extend(node for node in graph.node if id(node) not in kept)
    names = [info.name for info in graph.output if info.name not in behind]
    names += [name for name in feeds if name not in names]
    del head.graph.output[:]
    for name in names:
        unknown = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ())
        head.graph.output.append(known.get(name) or unknown)  # loaders do not need the shape
    del head.graph.value_info[:]
    used = {name for node in head.graph.node for name in node.input}
    kept_constants = [item for item in graph.initializer if item.name in used]
    del head.graph.initializer[:]
    head.graph.initializer.extend(kept_constants)
    own = [item for item in proto.opset_import if item.domain in OWN_DOMAINS]
    del head.opset_import[:]
    head.opset_import.extend(own)
    return head.SerializeToString(), tail, outputs


_LEFT_OUT: ContextVar[bool] = ContextVar("custom operators of files are left out", default=False)


def leaving_out_custom() -> AbstractContextManager[None]:
    """Load `.rknn` files without their custom operators in this context; their inputs are outputs then."""
    return holding(_LEFT_OUT, True)


def _as_onnx(value: Any) -> Any:
    """Return an attribute of a `.rknn` file in the types of the package onnx."""
    if isinstance(value, str):
        return value.encode()
    return [_as_onnx(item) for item in value] if isinstance(value, tuple) else value


def tail_of_file(model: FileModel) -> tuple[Tail, list[TensorInfo]] | None:
    """Return the custom operators of a `.rknn` file and the outputs of the whole model; None without them.

    Their tensors are float32 for the program, or int64, as in other models with custom operators.
    """
    plan, file = model.file_plan, model.file
    if not plan.custom or _LEFT_OUT.get():
        return None
    tensors = file.tensors
    behind = {n for node in plan.custom for n in node.outputs}
    names = {n: plan.names[n] for node in plan.custom for n in node.inputs if n in plan.names}
    for n in sorted(behind):
        taken = {*names.values(), *plan.names.values()}
        names[n] = tensors[n].name if tensors[n].name not in ("", *taken) else f"{tensors[n].name} #{n}"
    constants: dict[str, Array] = {}
    nodes = []
    for node in plan.custom:
        for n in node.inputs:
            if n not in names:
                names[n] = f"constant {n}"
                kind = tensors[n].dtype
                assert kind is not None
                data = tensors[n].data[: tensors[n].elements * kind.itemsize]
                if len(data) < tensors[n].elements * kind.itemsize:
                    raise ModelError(f"{node.type} '{node.name}': constant '{tensors[n].name}' is too short")
                constants[names[n]] = np.frombuffer(data, kind).reshape(tensors[n].shape)
        attributes = {key: _as_onnx(value) for key, value in node.attributes.items()}
        made = TailNode(node.name, node.type, True, [names[n] for n in node.inputs], [], attributes)
        for n in node.outputs:
            made.outputs.append(names[n])
            made.shapes.append(tensors[n].shape)
            made.dtypes.append(np.dtype(np.int64 if tensors[n].dtype == np.int64 else np.float32))
        nodes.append(made)
    kinds = {name: kind for node in nodes for name, kind in zip(node.outputs, node.dtypes, strict=True)}
    outputs = []
    for n in file.outputs:
        known = n in behind
        name = names[n] if known else tensors[n].name
        outputs.append(
            TensorInfo(name, tensors[n].shape, kinds[name] if known else np.dtype(np.float32), 1.0, 0)
        )
    feeds = [names[n] for node in plan.custom for n in node.inputs if n in plan.names and n not in behind]
    return Tail(nodes, constants, list(dict.fromkeys(feeds))), outputs


def _fold_constants(graph: Any, nodes: list[Any], constants: dict[str, Array]) -> None:
    """Constants of the part that DequantizeLinear computes from initializers, as quantisers write them."""
    from onnx.reference import ReferenceEvaluator

    wanted = {name for node in nodes for name in node.input}
    for node in graph.node:
        if (
            node.output
            and node.output[0] in wanted
            and all(str(name) in constants for name in node.input if name)
        ):
            if node.op_type in ("DequantizeLinear", "Constant"):
                feeds = {str(name): constants[str(name)] for name in node.input if name}
                results: Any = ReferenceEvaluator(node).run(None, feeds)
                constants[str(node.output[0])] = np.asarray(results[0])


def _shape_of(name: str, known: dict[str, Any], what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    from onnx import helper

    info: Any = known.get(name)
    dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim] if info is not None else []
    if info is None or not dims or min(dims) <= 0 or math.prod(dims) >= 1 << 31:
        raise ModelError(
            f"{what}: the model does not specify the shape of '{name}', which a custom operator needs"
        )
    return tuple(dims), np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))


def _tail_node(node: Any, known: dict[str, Any], proto: Any) -> TailNode:
    import onnx
    from onnx.reference import ReferenceEvaluator

    custom = node.domain not in OWN_DOMAINS
    label = node.name or node.output[0]
    made = TailNode(label, node.op_type, custom, list(node.input), list(node.output), {})
    made.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if custom:
        for name in node.output:
            shape, dtype = _shape_of(name, known, f"{node.op_type} '{label}'")
            made.shapes.append(shape)
            made.dtypes.append(dtype)
    else:
        try:
            inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.input if name]
            outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
            one = onnx.helper.make_graph([node], "node", inputs, outputs)
            opsets = [item for item in proto.opset_import if item.domain in OWN_DOMAINS]
            made.evaluator = ReferenceEvaluator(onnx.helper.make_model(one, opset_imports=opsets))
        except Exception as error:  # any exception of the evaluator
            raise ModelError(f"{node.op_type} '{label}' after a custom operator: {error}") from error
    return made


@dataclass(frozen=True)
class _Item:
    """An output of a graph; `real` outputs are computed on the host."""

    value: str
    real: bool


class _Graph:
    """A compiled graph with the outputs of the whole model."""

    def __init__(self, graph: Any, outputs: list[Any]) -> None:
        self._graph = graph
        self.outputs = outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)


class TailModel:
    """A compiled model with a part for the host; the interface is that of `CompiledModel`."""

    def __init__(self, head: Any, tail: Tail, outputs: list[TensorInfo]) -> None:
        self.head = head
        self.tail = tail
        self.inputs = head.inputs
        self.plan = head.plan
        self._numbers = {info.name: n for n, info in enumerate(head.outputs)}
        behind = {name for node in tail.nodes for name in node.outputs}
        self.outputs = [
            info if info.name in behind else head.outputs[self._numbers[info.name]] for info in outputs
        ]
        items = [
            _Item(info.name, True) if info.name in behind else head.graph.outputs[self._numbers[info.name]]
            for info in outputs
        ]
        self.graph = _Graph(head.graph, items)
        self.behind = behind

    def feed(self, loaded: Any) -> dict[str, Array]:
        """Values before the cut after a run."""
        return {name: loaded.get_output(self._numbers[name]) for name in self.tail.feeds}

    def head_output(self, name: str) -> int:
        """Index of an output of the model before the cut."""
        return self._numbers[name]


class TailLoaded:
    """A loaded model with a part for the host; the interface is that of `LoadedModel`."""

    def __init__(self, model: TailModel, loaded: Any) -> None:
        self.whole = model
        self.inner = loaded
        self.compute: Compute | None = None
        self.values: dict[str, Array] = {}

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run the job, then the part on the host."""
        report: RunReport = self.inner.run(max_cycles)
        assert self.compute is not None
        self.values = self.whole.tail.run(self.whole.feed(self.inner), self.compute)
        return report

    def get_output(self, index: int, raw: bool = False) -> Array:
        """An output of the whole model."""
        info = self.whole.outputs[index]
        if info.name in self.whole.behind:
            return np.asarray(self.values[info.name]).astype(info.dtype, copy=False).reshape(info.shape)
        result: Array = self.inner.get_output(self.whole.head_output(info.name), raw)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("core", "meter"):
            setattr(self.inner, name, value)
        else:
            super().__setattr__(name, value)
