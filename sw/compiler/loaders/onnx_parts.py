"""Nodes of an ONNX model that the host computes: types of their values, and programs for onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import HostOperator, HostPart, ModelError, Port, Program
from rkcosim.compiler.host_calls import COPY
from rkcosim.compiler.host_runtimes import (
    Function,
    NotBoundedError,
    has_loop,
    limited,
    load_program,
)
from rkcosim.compiler.loaders.onnx_file import inferred
from rkcosim.compiler.loaders.onnx_fold import NUMPY, open_session, probe_values, without_weights

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ValueType:
    """Shape (None if it is not known) and element type (numpy's name) of a value."""

    shape: tuple[int, ...] | None
    dtype: str
    fixed: bool = True
    """Whether the shape is certain; otherwise it is that of one run, and may depend on the data."""


@dataclass(frozen=True)
class OnnxPart:
    """A node for the host: its constants, and the types of the other values that it reads and makes.

    `node` is None for a copy, which only converts a value to another tensor.
    """

    node: onnx.NodeProto | None
    constants: Mapping[str, Array]
    types: Mapping[str, ValueType]


class ValueTypes:
    """Types of the values of a model, found when the first one is asked for.

    onnxruntime infers them; what it leaves open comes from a run.  Without onnxruntime, or if it
    refuses the model, they come from onnx' inference.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._known: dict[str, ValueType] | None = None

    def of(self, name: str) -> ValueType | None:
        """Return the type of a value; None if it is not known."""
        if self._known is None:
            self._known = {}
            self._infer()
            self._declare()
            try:
                self._measure(self._known)
            except NotBoundedError:
                raise
            except Exception:  # onnxruntime is not installed, or refuses the model
                pass
        return self._known.get(name)

    def _infer(self) -> None:
        assert self._known is not None
        graph = inferred(_without_outputs(self._proto)).graph
        self._add(graph.input)
        self._add(graph.value_info)
        for item in graph.initializer:
            if dtype := type_name(item.data_type):
                self._known[item.name] = ValueType(tuple(item.dims), dtype)

    def _declare(self) -> None:
        """Use the declared types of outputs whose types are not inferred."""
        self._add(item for item in self._proto.graph.output if item.type.tensor_type.shape.dim)

    def _add(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        assert self._known is not None
        for info in infos:
            if info.name in self._known:
                continue
            kind = info.type.tensor_type
            sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
            if kind.HasField("shape") and min(sizes, default=0) >= 0 and (dtype := type_name(kind.elem_type)):
                self._known[info.name] = ValueType(tuple(sizes), dtype)

    def _measure(self, known: dict[str, ValueType]) -> None:
        """Ask onnxruntime for the types of all values; run the model for those that it does not know."""
        made = _without_outputs(self._proto)
        names = [name for node in made.graph.node for name in node.output if name]
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        try:
            session = open_session(without_weights(made))
        except Exception:  # an operator that asks for constants
            session = open_session(made)
        unknown = []
        for item in session.get_outputs():
            dtype = NUMPY.get(item.type)
            if item.shape and all(isinstance(size, int) for size in item.shape):  # [] may be unknown as well
                if dtype is not None:
                    known[item.name] = ValueType(tuple(item.shape), np.dtype(dtype).name)
            elif item.name not in known:
                unknown.append(item.name)
        if not unknown:
            return
        session = open_session(made)
        results = limited(session, unknown, probe_values(session), loops=has_loop(made))
        for name, result in zip(unknown, results, strict=True):
            if isinstance(result, np.ndarray) and result.dtype.kind in "biuf":
                known[name] = ValueType(result.shape, result.dtype.name, fixed=False)


def _without_outputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the outputs, whose declared types need not be those that are computed."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.output[:]
    return made


def type_name(code: int) -> str | None:
    """Return numpy's name of ONNX's element type; None for types without one (strings, small floats)."""
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, TypeError):
        return None
    return dtype.name if dtype.kind in "biuf" and dtype.itemsize <= 8 else None


def describe(node: onnx.NodeProto, reason: str, types: ValueTypes) -> HostOperator:
    """Return the description of a node for reports."""
    known = [types.of(name) for name in node.output if name]
    elements = sum(math.prod(item.shape) for item in known if item is not None and item.shape is not None)
    reason = reason.removeprefix(f"{node.op_type} '{node.name}': ")
    return HostOperator(node.name, node.op_type, reason, elements, _macs(node, types))


def _macs(node: onnx.NodeProto, types: ValueTypes) -> int:
    """Multiply-accumulates of products, convolutions and recurrent cells."""
    shapes = [
        item.shape if (item := types.of(name)) else None for name in (*node.input[:3], *node.output[:1])
    ]
    kind = node.op_type
    if kind in ("LSTM", "GRU", "RNN") and len(node.input) > 2 and None not in shapes[:3]:
        steps, batch, _ = shapes[0] or (0, 0, 0)
        return steps * batch * sum(math.prod(shape or ()) for shape in shapes[1:3])
    if kind == "Einsum":
        return _macs_of_sum(node, [types.of(name) for name in node.input])
    if len(node.input) < 2 or shapes[0] is None or shapes[1] is None or shapes[-1] is None:
        return 0
    if kind in ("Conv", "ConvInteger"):
        return math.prod(shapes[-1]) * math.prod(shapes[1][1:])
    if kind == "ConvTranspose":
        return math.prod(shapes[0]) * math.prod(shapes[1][1:])
    if kind in ("MatMul", "MatMulInteger", "Gemm"):
        across = next((a.i for a in node.attribute if a.name == "transA"), 0)
        depth = shapes[0][0 if across else -1] if shapes[0] else 1
        return math.prod(shapes[-1]) * depth
    return 0


def _macs_of_sum(node: onnx.NodeProto, kinds: Sequence[ValueType | None]) -> int:
    """Multiply-accumulates of an Einsum: all combinations of its indices, for each factor after the first."""
    equation = next((a.s.decode() for a in node.attribute if a.name == "equation"), "")
    factors = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for indices, kind in zip(factors, kinds, strict=False):
        if kind is None or kind.shape is None:
            return 0
        before, dots, behind = indices.partition("...")
        free = len(kind.shape) - len(before) - len(behind)
        names = [*before, *(f".{free - n}" for n in range(free if dots else 0)), *behind]
        for name, size in zip(names, kind.shape, strict=False):
            sizes[name] = max(sizes.get(name, 1), size)
    return math.prod(sizes.values()) * max(len(factors) - 1, 0)


class ProgramBuilder:
    """Makes the programs of joined nodes.

    Parameters
    ----------
    proto
        The model; operator sets and functions are taken from it.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto

    def __call__(self, parts: Sequence[HostPart], takes: Sequence[str], gives: Sequence[str]) -> Program:
        """Return the program of parts in order; see `rkcosim.compiler.partition.Build`.

        Raises
        ------
        ModelError
            If no runtime that is installed accepts it; the message names the operators, the reasons why the
            NPU does not compute them, and the extra to install.
        """
        types: dict[str, ValueType] = {}
        for part in parts:
            types |= part.part.types
        if all(part.part.node is None for part in parts) and not any(name in _made(parts) for name in takes):
            sources = {part.output: part.inputs[0] for part in parts}
            taken = [Port(name, types[name].dtype) for name in (sources[name] for name in gives)]
            if [port.name for port in taken] == list(takes):
                return Program(COPY, np.zeros(0, np.uint8), tuple(taken), tuple(taken))
        runtime, data = self._accepted(parts, takes, gives, types)
        before, after = (tuple(Port(n, types[n].dtype) for n in names) for names in (takes, gives))
        return Program(runtime, np.frombuffer(data, np.uint8), before, after)

    def _model(
        self,
        parts: Sequence[HostPart],
        takes: Sequence[str],
        gives: Sequence[str],
        types: Mapping[str, ValueType],
        shapes: bool,
    ) -> bytes:
        constants: dict[str, Array] = {}
        nodes = []
        for part in parts:
            constants |= part.part.constants
            copy = helper.make_node("Identity", list(part.inputs), [part.output])
            nodes.append(part.part.node or copy)
        ends = []
        for names, shaped in ((takes, shapes), (gives, False)):
            kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(types[name].dtype)) for name in names]
            sizes = [types[name].shape if shaped else None for name in names]
            items = zip(names, kinds, sizes, strict=True)
            ends.append([helper.make_tensor_value_info(*item) for item in items])
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "host", ends[0], ends[1], tensors)
        made = helper.make_model(
            graph, opset_imports=self._proto.opset_import, functions=list(self._proto.functions)
        )
        made.ir_version = max(self._proto.ir_version, 4)
        return made.SerializeToString()

    def _accepted(
        self,
        parts: Sequence[HostPart],
        takes: Sequence[str],
        gives: Sequence[str],
        types: Mapping[str, ValueType],
    ) -> tuple[str, bytes]:
        """Return a runtime and the program that it accepts.

        onnxruntime finds some errors only when it runs, so a program of real numbers, which select nothing,
        has to run on zeros or ones.  onnxruntime also refuses some models whose shapes are known, because one
        of the branches of an If does not fit them.  Such a program gets no shapes, but it has to run.
        """
        problem: ModelError | None = None
        if any(part.part.node is not None and _differs(part.part.node, types) for part in parts):
            data = self._model(parts, takes, gives, types, False)
            with suppress(ModelError):  # it lacks old versions of some operators
                load_program("onnx-reference", data, takes, gives)
                return "onnx-reference", data
        known = all(types[name].shape is not None for name in takes)
        reals = known and all(np.dtype(types[name].dtype).kind == "f" for name in takes)
        for runtime, shapes in (("onnxruntime", True), ("onnxruntime", False), ("onnx-reference", False)):
            data = self._model(parts, takes, gives, types, shapes)
            try:
                function = load_program(runtime, data, takes, gives)
                if runtime == "onnxruntime" and (reals or (known and not shapes)):
                    _try(function, [types[name] for name in takes])
                return runtime, data
            except NotBoundedError:
                raise
            except ModelError as error:
                problem = problem or error
                if isinstance(error.__cause__, ImportError):
                    break
        said = "; ".join(f"{p.operator.kind} '{p.operator.name}': {p.operator.reason}" for p in parts[:8])
        more = f"; and {len(parts) - 8} more" if len(parts) > 8 else ""
        raise ModelError(f"{said}{more}; on the host: {problem}")


def _try(function: Function, types: Sequence[ValueType]) -> None:
    """Run a program on zeros, or else on ones; raises ModelError if it fails on both."""
    try:
        function([np.zeros(item.shape or (), item.dtype) for item in types])
    except NotBoundedError:
        raise
    except ModelError:
        function([np.ones(item.shape or (), item.dtype) for item in types])


def _differs(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> bool:
    """Whether onnxruntime computes a node less exactly than ONNX' definition, or in another way.

    Its DFT has errors of 1e-4 where the result is 0, its Attention in fp16 rounds in between, its Resize with
    aligned corners rounds the size that the scales give, and its MaxUnpool with a given output shape takes
    the indices as those of that shape.
    """
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    aligned = values.get("coordinate_transformation_mode", b"") == b"align_corners"
    by_scales = len(node.input) < 4 or not node.input[3]
    halves = any(name in types and types[name].dtype == "float16" for name in node.input)
    return (
        node.op_type in ("DFT", "STFT")
        or (node.op_type == "MaxUnpool" and len(node.input) > 2)
        or (node.op_type == "Attention" and halves)
        or (node.op_type == "Resize" and aligned and by_scales)
    )


def _made(parts: Sequence[HostPart]) -> Iterator[str]:
    return (name for part in parts for name in part.outputs)
