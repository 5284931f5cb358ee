"""Models with custom operators: the part behind the first of them is cut off and computed on the host.

A custom operator is a node of another domain than ONNX's own.  What feeds the cut becomes an output
of the model that the compiler gets; the nodes behind it run in order after each job, custom ones by
the program's functions and others by ONNX's reference evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler import ModelError, RunReport, TensorInfo

Array = npt.NDArray[Any]
Compute = Callable[["TailNode", list[Array], list[Array]], None]
"""Computes a custom node: fills the output arrays from the input arrays."""

OWN_DOMAINS = ("", "ai.onnx")


@dataclass
class TailNode:
    """A node behind the cut; `shapes` and `dtypes` of its outputs are known for custom ones."""

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
    """Everything behind the cut: nodes in order, constants, and the values that feed it."""

    nodes: list[TailNode]
    constants: dict[str, Array]
    feeds: list[str]

    @property
    def custom_nodes(self) -> list[TailNode]:
        """The custom operators."""
        return [node for node in self.nodes if node.custom]

    def run(self, values: dict[str, Array], compute: Compute) -> dict[str, Array]:
        """Every value behind the cut, from those that feed it."""
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
    """Cut a model in front of its first custom operators.

    Returns
    -------
    (model for the compiler, what is cut off, the outputs of the whole model), or None for a model
    without custom operators or one that is no ONNX model (the compiler then says what is wrong).

    Raises
    ------
    ModelError
        for a custom operator whose output has no known shape, naming it.
    """
    if not data or data[:1] not in (b"\x08", b"\x0a", b"\x12", b"\x3a", b"\x42"):
        return None
    import onnx
    from onnx import numpy_helper

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # the compiler's loader gives the message
        return None
    graph = proto.graph
    custom = [node for node in graph.node if node.domain not in OWN_DOMAINS]
    if not custom:
        return None
    behind: set[str] = set()
    nodes = []
    for node in graph.node:
        if node.domain not in OWN_DOMAINS or behind.intersection(node.input):
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
        head.graph.output.append(known.get(name) or unknown)  # loaders do not rely on the shape
    del head.graph.value_info[:]
    used = {name for node in head.graph.node for name in node.input}
    kept_constants = [item for item in graph.initializer if item.name in used]
    del head.graph.initializer[:]
    head.graph.initializer.extend(kept_constants)
    own = [item for item in proto.opset_import if item.domain in OWN_DOMAINS]
    del head.opset_import[:]
    head.opset_import.extend(own)
    return head.SerializeToString(), tail, outputs


def _fold_constants(graph: Any, nodes: list[Any], constants: dict[str, Array]) -> None:
    """Constants of the tail that DequantizeLinear makes out of initializers, as quantisers leave them."""
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
            f"{what}: the model does not tell the shape of '{name}', which a custom operator needs"
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
        except Exception as error:  # whatever the evaluator does not know
            raise ModelError(f"{node.op_type} '{label}' behind a custom operator: {error}") from error
    return made


@dataclass(frozen=True)
class _Item:
    """Output of a graph: `real` ones are computed on the host."""

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
    """A compiled model with a tail; it looks like `CompiledModel` to the rest of this package."""

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
        """Values in front of the cut after a run."""
        return {name: loaded.get_output(self._numbers[name]) for name in self.tail.feeds}

    def head_output(self, name: str) -> int:
        """Number that an output of the head has there."""
        return self._numbers[name]


class TailLoaded:
    """A loaded model with a tail; it looks like `LoadedModel` to the rest of this package."""

    def __init__(self, model: TailModel, loaded: Any) -> None:
        self.whole = model
        self.inner = loaded
        self.compute: Compute | None = None
        self.values: dict[str, Array] = {}

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run the job, then the tail."""
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
