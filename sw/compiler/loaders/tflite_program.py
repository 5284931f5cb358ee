"""Small TFLite files with operators of a larger one, for LiteRT on the host.

The operators are copied with all their attributes by the schema's objects of the package ai-edge-litert,
which the runtime needs anyway.  Control flow keeps the subgraphs that it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import missing, runtime_of
from rkcosim.compiler.loaders.tflite_file import CODES, TfModel, TfNode, TfTensor

NEW: dict[str, tuple[str, int, dict[str, str]]] = {
    "SPLIT": ("SplitOptions", 2, {"numSplits": "NumSplits"}),
    "CONCATENATION": ("ConcatenationOptions", 2, {"axis": "Axis"}),
    "TRANSPOSE_CONV": (
        "TransposeConvOptions",
        3,
        {"padding": "Padding", "strideW": "StrideW", "strideH": "StrideH"},
    ),
}
"""Operators that a program may have though the file does not: name of the options, version, members."""

ABSENT = -1
"""Number of an optional input that an operator does not have."""


def schema() -> Any:
    """Return the module with the schema's objects.

    Raises
    ------
    ModelError
        If the package is not installed; the message names the extra.
    """
    try:
        import ai_edge_litert.schema_py_generated as objects
    except ImportError as error:
        raise missing(runtime_of("litert").name, runtime_of("litert").extra) from error
    return objects


class _Copy:
    """A file that grows by tensors and operators of another one.

    Parameters
    ----------
    model
        The model whose operators are copied.
    """

    def __init__(self, model: TfModel) -> None:
        self.model, self.objects = model, schema()
        self.root = self.objects.Model.GetRootAsModel(model.file, 0)
        self.made = self.objects.ModelT()
        self.made.version = 3
        self.made.operatorCodes, self.made.buffers, self.made.subgraphs = [], [self.objects.BufferT()], []
        self.codes: dict[int, int] = {}

    def code(self, number: int) -> int:
        """Return the new number of an operator code."""
        if number not in self.codes:
            self.codes[number] = len(self.made.operatorCodes)
            self.made.operatorCodes.append(
                self.objects.OperatorCodeT.InitFromObj(self.root.OperatorCodes(number))
            )
        return self.codes[number]

    def new_tensor(self, item: TfTensor) -> Any:
        """Return a constant that is not in the file."""
        made = self.objects.TensorT()
        made.name, made.shape, made.type = (
            item.name.encode(),
            np.asarray(item.shape, np.int32),
            CODES[item.dtype],
        )
        assert item.data is not None
        made.buffer = self._buffer(np.frombuffer(item.data.tobytes(), np.uint8))
        return made

    def tensor(self, source: Any, values: npt.NDArray[Any] | None, shape: Sequence[int] | None) -> Any:
        """Return a copy of a tensor, with other values or another shape if they are given."""
        item = self.objects.TensorT.InitFromObj(source)
        number, item.buffer = item.buffer, 0
        if shape is not None:
            item.shape, item.shapeSignature = np.asarray(shape, np.int32), None
        if values is not None:
            item.type, item.sparsity = self._type(values, item.type), None
            item.buffer = self._buffer(np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8))
        elif number and (data := self._data(number)) is not None:
            item.buffer = self._buffer(data)
        return item

    def _type(self, values: npt.NDArray[Any], given: int) -> int:
        """Return the type of constant values; int4 ones have been unpacked."""
        return int(self.objects.TensorType.INT8) if values.dtype == np.int8 else given

    def _data(self, number: int) -> npt.NDArray[np.uint8] | None:
        buffer = self.root.Buffers(number)
        if buffer.DataLength():
            return np.asarray(buffer.DataAsNumpy()).astype(np.uint8, copy=False)
        if buffer.Offset() > 1:
            return np.frombuffer(self.model.file, np.uint8, buffer.Size(), buffer.Offset())
        return None

    def _buffer(self, data: npt.NDArray[np.uint8]) -> int:
        buffer = self.objects.BufferT()
        buffer.data = data
        self.made.buffers.append(buffer)
        return len(self.made.buffers) - 1

    def new_operator(self, node: TfNode, numbers: dict[int, int]) -> Any:
        """Return an operator that is not in the file; its kind is in `NEW`."""
        name, version, members = NEW[node.op]
        code, item = self.objects.OperatorCodeT(), self.objects.OperatorT()
        code.builtinCode = getattr(self.objects.BuiltinOperator, node.op)
        code.deprecatedBuiltinCode, code.version = code.builtinCode, version
        self.made.operatorCodes.append(code)
        item.opcodeIndex = len(self.made.operatorCodes) - 1
        item.inputs, item.outputs = (
            np.asarray([numbers[n] for n in side], np.int32) for side in (node.inputs, node.outputs)
        )
        item.builtinOptionsType = getattr(self.objects.BuiltinOptions, name)
        item.builtinOptions = getattr(self.objects, f"{name}T")()
        for member, option in members.items():
            setattr(item.builtinOptions, member, node.options[option])
        return item

    def operator(self, source: Any, numbers: dict[int, int], first: int) -> Any:
        """Return a copy of an operator.

        Parameters
        ----------
        source
            The operator's table.
        numbers
            New number of each tensor.
        first
            New number of the file's first subgraph.
        """
        item = self.objects.OperatorT.InitFromObj(source)
        item.opcodeIndex = self.code(item.opcodeIndex)
        for name in ("inputs", "outputs", "intermediates"):
            given = getattr(item, name)
            if given is not None:
                moved = [numbers[int(n)] if n >= 0 else ABSENT for n in given]
                setattr(item, name, np.asarray(moved, np.int32))
        for options, name in _subgraph_fields(item):
            setattr(options, name, getattr(options, name) + first)
        return item

    def whole(self, number: int, first: int) -> None:
        """Copy a subgraph with all of its tensors and operators."""
        graph = self.root.Subgraphs(number)
        made = self.objects.SubGraphT.InitFromObj(graph)
        made.tensors = [self.tensor(graph.Tensors(n), None, None) for n in range(graph.TensorsLength())]
        same = {n: n for n in range(graph.TensorsLength())}
        made.operators = [
            self.operator(graph.Operators(n), same, first) for n in range(graph.OperatorsLength())
        ]
        self.made.subgraphs.append(made)


def _subgraph_fields(operator: Any) -> Iterator[tuple[Any, str]]:
    """Yield the options of an operator and the name of a member that is the number of a subgraph."""
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name, value in vars(options).items() if options is not None else ():
            named = name.lower().endswith("subgraphindex") or type(options).__name__ == "CallOptionsT"
            if named and isinstance(value, int | np.integer) and value >= 0:
                yield options, name


def program(
    model: TfModel, nodes: Sequence[TfNode], takes: Sequence[int], gives: Sequence[int]
) -> npt.NDArray[np.uint8]:
    """Return a TFLite file with some operators of a model.

    Parameters
    ----------
    model
        The model; shapes and constant values of its tensors are used, also those that differ from the file.
    nodes
        The operators in order.
    takes, gives
        Numbers of the tensors that are the new file's inputs and outputs.

    Raises
    ------
    ModelError
        If the package ai-edge-litert is not installed or cannot copy an operator.
    """
    return numbered_program(model, nodes, takes, gives)[0]


def numbered_program(
    model: TfModel, nodes: Sequence[TfNode], takes: Sequence[int], gives: Sequence[int]
) -> tuple[npt.NDArray[np.uint8], dict[int, int]]:
    """Return the file of `program`, and the number in it of each tensor of the model that it has."""
    try:
        return _program(model, nodes, takes, gives)
    except ModelError:
        raise
    except Exception as error:  # the schema's objects do not verify: damage gives struct.error, KeyError, ...
        names = ", ".join(model.label(node) for node in nodes[:3])
        raise ModelError(f"damaged TFLite model: {names}: {type(error).__name__}: {error}") from error


def _program(
    model: TfModel, nodes: Sequence[TfNode], takes: Sequence[int], gives: Sequence[int]
) -> tuple[npt.NDArray[np.uint8], dict[int, int]]:
    copy = _Copy(model)
    graph = copy.root.Subgraphs(model.subgraph)
    sources = [graph.Operators(node.index) if node.index >= 0 else None for node in nodes]
    used = dict.fromkeys([*takes, *gives])
    for node, source in zip(nodes, sources, strict=True):
        used |= dict.fromkeys(n for n in (*node.inputs, *node.outputs, *_intermediates(source)) if n >= 0)
    numbers = {number: at for at, number in enumerate(used)}
    main = copy.objects.SubGraphT()
    copy.made.subgraphs.append(main)
    main.tensors, main.operators = [], []
    made = set(takes) | {n for node in nodes for n in node.outputs}
    shapes = {  # those that operators outside of the program compute
        node.inputs[1]: np.asarray(model.tensors[node.outputs[0]].shape, np.int32)
        for node in nodes
        if node.op == "RESHAPE" and len(node.inputs) > 1 and node.inputs[1] not in made
    }
    for number in used:
        item = model.tensors[number]
        if item.index < 0:
            main.tensors.append(copy.new_tensor(item))
            continue
        values = None if number in made else item.data
        if values is None and number in shapes:
            values = shapes[number]
        main.tensors.append(copy.tensor(graph.Tensors(item.index), values, item.shape))
    for node, source in zip(nodes, sources, strict=True):
        if source is None:
            main.operators.append(copy.new_operator(node, numbers))
            continue
        moved = numbers
        if any(model.tensors[n].part for n in node.outputs):  # the file's operator has the numbers of batches
            given = zip(_places(source), (*node.inputs, *node.outputs), strict=True)
            moved = numbers | {old: numbers[new] for old, new in given if new >= 0}
        made_operator = copy.operator(source, moved, 1)
        if type(made_operator.builtinOptions).__name__ == "ReshapeOptionsT":
            made_operator.builtinOptions.newShape = np.asarray(model.tensors[node.outputs[0]].shape, np.int32)
        main.operators.append(made_operator)
    main.inputs = np.asarray([numbers[n] for n in takes], np.int32)
    main.outputs = np.asarray([numbers[n] for n in gives], np.int32)
    if any(True for item in main.operators for _ in _subgraph_fields(item)):
        for number in range(copy.root.SubgraphsLength()):
            copy.whole(number, 1)
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(copy.made.Pack(builder), b"TFL3")
    return np.frombuffer(bytes(builder.Output()), np.uint8), numbers


def _places(operator: Any) -> list[int]:
    """Return the numbers of an operator's inputs and outputs in the file."""
    return [int(n) for n in (*operator.InputsAsNumpy(), *operator.OutputsAsNumpy())]


def _intermediates(operator: Any) -> list[int]:
    """Return the numbers of an operator's intermediate tensors, which have only scales (LSTM)."""
    if operator is None:
        return []
    return [] if operator.IntermediatesIsNone() else [int(n) for n in operator.IntermediatesAsNumpy()]


def multiplications(model: TfModel, node: TfNode) -> int:
    """Return the multiply-accumulates of an operator with constant weights; 0 for all others."""
    weights = model.tensors[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] >= 0 else None
    if weights is None or weights.data is None or not node.outputs:
        return 0
    results = math.prod(model.tensors[node.outputs[0]].shape)
    if node.op in ("CONV_2D", "FULLY_CONNECTED", "CONV_3D"):
        return results * math.prod(weights.shape[1:])
    if node.op == "DEPTHWISE_CONV_2D":
        return results * math.prod(weights.shape[1:3])
    if node.op == "TRANSPOSE_CONV":
        return math.prod(model.tensors[node.inputs[2]].shape) * math.prod(weights.shape[:3])
    return 0
