"""TFLite models to a `Graph`: 8-bit tensors as they are, floats as fp16.

The file has the channels last, the graph has them first: tensors of four dimensions get the shape
(1, C, H, W).  Unsigned bytes are converted to signed ones.  Where a model has QUANTIZE and DEQUANTIZE between
its operators, both kinds of tensors are in one graph.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rkcosim.compiler import custom_operators
from rkcosim.compiler.constraints.placement import known_operator, reads_the_npu
from rkcosim.compiler.graph import (
    Clamp,
    Graph,
    GraphInput,
    GraphOutput,
    HostOperator,
    HostPart,
    ModelError,
    Port,
    Program,
    Rescale,
    Tensor,
    host_tensor,
)
from rkcosim.compiler.host_runtimes import CUSTOM, load_program
from rkcosim.compiler.interpreters import Divided, batch_of
from rkcosim.compiler.limits import CONV_KERNEL
from rkcosim.compiler.litert import LiteRtProgram
from rkcosim.compiler.loaders.node import Pending
from rkcosim.compiler.loaders.operators import OPERATORS
from rkcosim.compiler.loaders.products import ProductBuilder
from rkcosim.compiler.loaders.tflite_batch import sample_of, unbatched
from rkcosim.compiler.loaders.tflite_data import PACKED
from rkcosim.compiler.loaders.tflite_file import TfModel, TfNode, TfTensor, read_tflite
from rkcosim.compiler.loaders.tflite_fold import simplified
from rkcosim.compiler.loaders.tflite_node import FLOATS, TO_LAST, TfliteNode, define, first
from rkcosim.compiler.loaders.tflite_program import multiplications, program
from rkcosim.compiler.loaders.tflite_settle import settled
from rkcosim.compiler.loaders.tflite_variables import KINDS, Variables
from rkcosim.compiler.loaders.views import view_of
from rkcosim.compiler.options import load_options
from rkcosim.compiler.partition import join_parts
from rkcosim.compiler.trial import check_operations, undone_on_error

NAMES = {
    "CONV_2D": "Conv",
    "DEPTHWISE_CONV_2D": "Conv",
    "TRANSPOSE_CONV": "ConvTranspose",
    "FULLY_CONNECTED": "FullyConnected",
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "MAX_POOL_2D": "MaxPool",
    "AVERAGE_POOL_2D": "AveragePool",
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "PAD": "Pad",
    "PADV2": "Pad",
    "MIRROR_PAD": "Pad",
    "CONCATENATION": "Concat",
    "SPLIT": "Split",
    "SPLIT_V": "Split",
    "SLICE": "Slice",
    "STRIDED_SLICE": "Slice",
    "TRANSPOSE": "Transpose",
    "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "RESIZE_BILINEAR": "Resize",
    "DEPTH_TO_SPACE": "DepthToSpace",
    "SPACE_TO_DEPTH": "SpaceToDepth",
    "LEAKY_RELU": "LeakyRelu",
    "PRELU": "PRelu",
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "HARD_SWISH": "HardSwish",
    "DIV": "Div",
    "ABS": "Abs",
    "NEG": "Neg",
    "FLOOR": "Floor",
    "CEIL": "Ceil",
    "ELU": "Elu",
    "EXP": "Exp",
    "GELU": "Gelu",
}
"""Operators that ONNX has too, with their ONNX names in `rkcosim.compiler.loaders.operators`."""
CLAMPS = {
    "RELU": ("Relu", Clamp(0.0)),
    "RELU6": ("Relu6", Clamp(0.0, 6.0)),
    "RELU_N1_TO_1": ("Clip", Clamp(-1.0, 1.0)),
}
RESHAPES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
SUPPORTED = {*NAMES, *CLAMPS, *RESHAPES, "BATCH_MATMUL", "SOFTMAX", "QUANTIZE", "DEQUANTIZE"}
"""Operators that the NPU or the host's own functions can do; LiteRT does the others."""

LIGHT = {
    *(
        "ADD",
        "SUB",
        "MUL",
        "MAXIMUM",
        "MINIMUM",
        "PAD",
        "PADV2",
        "MIRROR_PAD",
        "CONCATENATION",
        "SPLIT",
        "SPLIT_V",
        "SLICE",
    ),
    *(
        "STRIDED_SLICE",
        "TRANSPOSE",
        "RESIZE_NEAREST_NEIGHBOR",
        "RESIZE_BILINEAR",
        "LEAKY_RELU",
        "PRELU",
        "LOGISTIC",
        "TANH",
    ),
    *("HARD_SWISH", "SOFTMAX", "QUANTIZE", "DEQUANTIZE", *CLAMPS, *RESHAPES),
}
"""Operators that stay on the host if all of their inputs are there: moving these would cost more."""

DATA_SHAPED = ("WHERE", "UNIQUE", "SEGMENT_SUM", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "RANGE")
"""Operators whose results may have a shape that depends on the values of their inputs."""

UNKEPT = ("string", "variant", "complex64", "complex128", *PACKED)
"""Types of tensors that the host does not keep between operators."""


class TfliteSource:
    """A TFLite file, read once, of which graphs are made.

    Parameters
    ----------
    data
        The bytes of the file.

    Raises
    ------
    ModelError
        If the file is damaged, or an option names what the model does not have.
    """

    def __init__(self, data: bytes) -> None:
        options = load_options()
        model = read_tflite(data, options.signature)
        self._read = simplified(settled(with_outputs(model, options.outputs)))
        self._model = unbatched(self._read) if options.fallback else self._read

    def graph(self, refused: Mapping[str, str] = MappingProxyType({})) -> Graph:
        """Return a new graph.

        Parameters
        ----------
        refused
            Nodes (by the name of their first output) that the NPU cannot compute, with the reasons; the host
            computes them.

        Raises
        ------
        ModelError
            If quantisation is missing, shapes are wrong, or neither the NPU nor LiteRT has an operator, or,
            without fallback, if the NPU cannot compute one; the message names all such nodes.
        """
        return Loader(self._model, refused).run()

    def divided(self) -> Divided:
        """Return the file with the model of one sample, if its inputs are proven to be a batch."""
        tensors = self._read.tensors
        samples, reason = batch_of([tensors[number].shape for number in self._read.inputs])
        if samples == 1:
            return Divided(self.graph, reason=reason)
        found = sample_of(self._read, samples)
        if found is None:
            return Divided(self.graph, reason="an operator or a constant may join the samples")
        one, batched = found
        axes = {tensors[number].name: (0, 1) for number in batched}
        return Divided(self.graph, lambda refused: Loader(one, refused).run(), samples, axes)


def load_tflite(data: bytes) -> Graph:
    """Read a TFLite model, as `rkcosim.compiler.options` says; raises ModelError as `TfliteSource`."""
    return TfliteSource(data).graph()


def with_outputs(model: TfModel, names: Sequence[str]) -> TfModel:
    """Return the model with other outputs, named in `names`; the model itself if there are none.

    Raises
    ------
    ModelError
        If no operator computes a tensor of that name.
    """
    made = {model.tensors[number].name: number for node in model.nodes for number in node.outputs}
    for name in names:
        if name not in made:
            raise ModelError(f"no operator of the model computes '{name}'")
    return replace(model, outputs=[made[name] for name in names]) if names else model


class Loader:
    """State while the nodes are visited; `known` are the tensors that have a value so far."""

    def __init__(self, model: TfModel, refused: Mapping[str, str]) -> None:
        self.model, self.refused = model, refused
        self.graph = Graph(model.name, samples=model.samples)
        self.options = load_options()
        self.known: set[int] = set()
        self.floats: dict[int, str] = {}
        """Real-valued outputs of DEQUANTIZE, and the tensor that each is computed from."""
        self.numbers: dict[str, int] = {}
        """Number in the file of each tensor that programs of the host take or give."""
        self.unsized: set[int] = set()
        """Tensors whose shape depends on values, or of complex numbers: only operators in the same program
        can read them."""
        self.variables = Variables(model)

    def run(self) -> Graph:
        """Visit all nodes and return the graph."""
        if any(self.model.tensors[number].dtype in FLOATS for number in self._computed()):
            self.options.check_floats("this model has operators on floats")
        wrong = [self.model.label(n) for n in self.model.nodes if n.op not in (*SUPPORTED, *KINDS)]
        if wrong and not self.options.fallback:
            raise ModelError(f"unsupported operators: {', '.join(wrong)}")
        for number in self.model.inputs:
            self._input(number)
        bad: list[str] = []
        broken: set[int] = set()
        for node in self.model.nodes:
            if broken.intersection(node.inputs):
                broken.update(node.outputs)  # an error here may only be a consequence of the first one
                continue
            try:
                self._place(node)
            except ModelError as error:
                bad.append(str(error))
                broken.update(node.outputs)
            self.known.update(node.outputs)
        if bad:
            raise ModelError("; ".join(bad))
        for number in self.model.outputs:
            self._output(number)
        self.graph.states = self.variables.states(self)
        self._host_inputs()
        join_parts(self.graph, self._build)
        if not self.graph.ops:
            raise ModelError(f"model '{self.graph.name}' has no operation for the NPU")
        return self.graph

    def _computed(self) -> set[int]:
        """Outputs of all operators except DEQUANTIZE, which makes real numbers of the model's outputs."""
        nodes = self.model.nodes
        return {number for node in nodes if node.op != "DEQUANTIZE" for number in node.outputs}

    def _output(self, number: int) -> None:
        item = self.model.tensors[number]
        value = self.floats.get(number, item.name)
        if number in self.unsized:
            raise ModelError(f"output '{item.name}' has a shape that depends on the values of the inputs")
        if value not in self.graph.tensors or number not in self.known:
            raise ModelError(f"output '{item.name}' is {item.dtype} and not computed by any node")
        tensor = self.graph.tensors[value]
        shape = tensor.shape if tensor.host else first(item.shape)
        self.graph.outputs.append(GraphOutput(item.name, shape, value, False))

    def _input(self, number: int) -> None:
        item = self.model.tensors[number]
        self.known.add(number)
        if item.dtype in FLOATS and all(user.op == "QUANTIZE" for user in self._users(number)):
            return  # the input is quantised when it is set
        try:
            if item.dtype in FLOATS and self.options.floats == "host":
                raise ModelError("--float host")
            define(self.graph, item, "input")
        except ModelError:
            if not self.options.fallback:
                raise
            self.keep_on_host(number, "input")
        self.graph.inputs.append(GraphInput(item.name, item.name, first(item.shape)))

    def _host_inputs(self) -> None:
        """Keep inputs that only the host reads on the host, in the type of the file."""
        for entry in self.graph.inputs:
            tensor = self.graph.tensors[entry.tensor]
            number = self.graph.origin.get(entry.tensor, -1)
            readers = [op for op in self.graph.ops if entry.tensor in op.inputs]
            hosted = bool(readers) and all(isinstance(op, HostPart) for op in readers)
            alone = entry.tensor not in self.graph.aliases.values() and entry.tensor not in self.graph.ends()
            if not tensor.host and hosted and alone and self.model.tensors[number].name == entry.name:
                self.keep_on_host(number, "input")

    def keep_on_host(self, number: int, label: str) -> Tensor:
        """Add a tensor of the file to the graph as an array of the host."""
        item = self.model.tensors[number]
        if item.dtype in (*UNKEPT, "resource") or item.dtype.startswith("type"):
            raise ModelError(f"{label}: tensor '{item.name}' is {item.dtype}, which is not supported")
        scale, zero = 1.0, 0
        if item.scale.size == 1:
            scale, zero = float(item.scale[0]), int(item.zero[0]) if item.zero.size else 0
        tensor = host_tensor(item.name, first(item.shape), item.dtype, scale, zero)
        self.graph.tensors[item.name] = tensor
        if not item.part:
            self.graph.origin[item.name] = item.index
        self.numbers[item.name] = number
        return tensor

    def _users(self, number: int) -> list[TfNode]:
        """Nodes that read a tensor."""
        return [node for node in self.model.nodes if number in node.inputs]

    def _place(self, record: TfNode) -> None:
        """Let the NPU compute a node, or the host if the NPU cannot."""
        label = self.model.label(record)
        if self.variables.visit(self, record):
            return
        needed = record.inputs[:1] if record.op == "RESHAPE" else record.inputs
        for number in needed:
            item = self.model.tensors[number] if number >= 0 else None
            if item is not None and number not in self.known and item.data is None and not item.variable:
                raise ModelError(f"{label}: input '{item.name}' has no value")
        try:
            with undone_on_error(self.graph):
                self._stay(record, label)
                if record.op not in SUPPORTED:
                    raise known_operator.error(label, record.op, False)
                before = len(self.graph.ops)
                self._node(record)
                for op in self.graph.ops[before:]:
                    self.graph.makers[op.output] = self.model.tensors[record.outputs[0]].name
                check_operations(self.graph, self.graph.ops[before:])
        except ModelError as error:
            if not self.options.fallback:
                raise
            for number in record.outputs:
                self.floats.pop(number, None)
            reason = str(error).removeprefix(f"{label}: ")
            self._on_host(record, label, reason)

    def _stay(self, record: TfNode, label: str) -> None:
        """Raise ModelError for a node that is to stay on the host though the NPU may be able to do it."""
        if not record.outputs:
            raise ModelError(f"{label}: it has no result")
        if record.index < 0 and record.op == "SPLIT":
            raise ModelError(f"{label}: the NPU computes one sample at a time")
        if (why := self.refused.get(self.model.tensors[record.outputs[0]].name)) is not None:
            raise ModelError(why)
        if self.options.floats == "host" and record.op not in ("QUANTIZE", "DEQUANTIZE"):
            if any(self.model.tensors[number].dtype in FLOATS for number in record.outputs):
                raise ModelError(f"{label}: --float host")
        sources = [self.model.tensors[n].name for n in record.inputs if n >= 0 and n in self.known]
        tensors = [self.graph.tensors[name] for name in sources if name in self.graph.tensors]
        if record.op in LIGHT and tensors and all(tensor.host for tensor in tensors):
            raise reads_the_npu.error(label, True, tuple(sources))

    def _on_host(self, record: TfNode, label: str, reason: str) -> None:
        """Let LiteRT compute a node; now if its inputs are constants."""
        sources = [n for n in dict.fromkeys(record.inputs) if n >= 0 and n in self.known]
        sources = [n for n in sources if self.model.tensors[n].data is None]
        names = [self.model.tensors[number].name for number in sources]
        for number, name in zip(sources, names, strict=True):
            if name not in self.graph.tensors and number not in self.unsized:
                raise ModelError(f"{label}: '{name}' is {self.model.tensors[number].dtype} and is not kept")
        if not record.outputs:
            raise ModelError(f"{label}: it has no result and is not supported")
        runtime = "litert"
        custom = record.op.removeprefix("CUSTOM ") if record.op.startswith("CUSTOM ") else ""
        if custom and sources and custom_operators.is_known(custom):
            runtime = CUSTOM
            self._custom_shapes(record, label, sources)
        elif record.op.startswith("CUSTOM "):
            self._check_custom(record, label, sources)
        if not sources:
            self._fold(record)
            return
        unsized = record.op in DATA_SHAPED or not self.unsized.isdisjoint(sources)
        if not unsized and runtime == "litert":
            self._find_shapes(record, sources)
        made = [self.model.tensors[number].name for number in record.outputs]
        for number, name in zip(record.outputs, made, strict=True):
            self.numbers[name] = number
            complex_numbers = self.model.tensors[number].dtype.startswith("complex")
            if complex_numbers or (unsized and self._without_size(number)):
                self.unsized.add(number)
            else:
                self.keep_on_host(number, label)
        self.numbers |= dict(zip(names, sources, strict=True))
        elements = sum(math.prod(self.model.tensors[number].shape) for number in record.outputs)
        said = HostOperator(made[0], record.op, reason, elements, multiplications(self.model, record))
        node = HostPart(made[0], tuple(names), made[0], part=record, runtime=runtime, operator=said)
        self.graph.ops.append(replace(node, more=tuple(made[1:])))

    def _custom_shapes(self, record: TfNode, label: str, sources: Sequence[int]) -> None:
        """Compute a custom operator once on zeros: the file need not have the shapes of its results."""
        data, names = self._custom_program([record]), [self.model.tensors[n].name for n in sources]
        items = [self.model.tensors[number] for number in sources]
        made = [self.model.tensors[number].name for number in record.outputs]
        try:
            results = load_program(CUSTOM, data, names, made)(
                [np.zeros(item.shape, item.dtype) for item in items]
            )
        except ModelError as error:
            raise ModelError(f"{label}: {error}") from error
        for number, values in zip(record.outputs, results, strict=True):
            item = self.model.tensors[number]
            self.model.tensors[number] = replace(item, shape=values.shape)

    def _custom_program(self, records: Sequence[TfNode]) -> bytes:
        """Return the program of custom operators."""
        tensors, operators, scales = self.model.tensors, [], {}
        for record in records:
            takes, gives = ([tensors[n].name for n in side] for side in (record.inputs, record.outputs))
            operators.append((record.op.removeprefix("CUSTOM "), record.custom, takes, gives))
            for number in record.inputs:
                item = tensors[number]
                if item.scale.size:
                    scales[item.name] = float(item.scale[0]), int(item.zero[0]) if item.zero.size else 0
        return custom_operators.custom_program(operators, scales)

    def _check_custom(self, record: TfNode, label: str, sources: Sequence[int]) -> None:
        """Raise ModelError if LiteRT does not have a custom operator."""
        data = program(self.model, [record], sources, record.outputs).tobytes()
        try:
            load_program("litert", data, (), ())
        except ModelError as error:
            if "unresolved custom op" not in str(error).lower():
                raise
            raise ModelError(
                f"{label}: neither the NPU nor LiteRT has this custom operator; with --outputs NAME,... the "
                "model ends before it"
            ) from error

    def _without_size(self, number: int) -> bool:
        """Whether the file does not have the shape of a tensor, or leaves a dimension open."""
        item = self.model.tensors[number]
        return item.open_shape or not item.shape or min(item.shape) == 0

    def _fold(self, record: TfNode) -> None:
        """Compute a node of constants and make its results constants."""
        data = program(self.model, [record], [], record.outputs).tobytes()
        for number, values in zip(record.outputs, load_program("litert", data, (), ())([]), strict=True):
            item = self.model.tensors[number]
            self.model.tensors[number] = replace(item, data=values, shape=values.shape)

    def _find_shapes(self, record: TfNode, sources: Sequence[int]) -> None:
        """Compute a node once on zeros if the file does not have the shapes of its results."""
        shapes = [self.model.tensors[number].shape for number in record.outputs]
        if all(shape and min(shape) > 0 for shape in shapes) and not self._opened(record):
            return
        data = program(self.model, [record], sources, record.outputs).tobytes()
        items = [self.model.tensors[number] for number in sources]
        results = self._tried(load_program("litert", data, (), ()), items)
        for number, values in zip(record.outputs, results, strict=True):
            item = self.model.tensors[number]
            self.model.tensors[number] = replace(item, shape=values.shape)

    def _tried(self, run: Callable[..., Sequence[Any]], items: Sequence[TfTensor]) -> Sequence[Any]:
        """Compute a node from zeros, or from other numbers if it does not accept these (a sampling rate)."""
        for number in (0, 1):
            with contextlib.suppress(ModelError):
                return run([np.full(item.shape, number, item.dtype) for item in items])
        return run(
            [np.full(item.shape, 16000 if item.dtype.startswith("int") else 1, item.dtype) for item in items]
        )

    def _opened(self, record: TfNode) -> bool:
        """Whether a result has an open dimension though no input has one."""
        opened = [self.model.tensors[n].open_shape for n in record.inputs if n >= 0]
        return not any(opened) and any(self.model.tensors[n].open_shape for n in record.outputs)

    def on_npu(self, number: int, label: str) -> Tensor:
        """Return a tensor of the host as one of the NPU; the part that computes it gives it in both forms."""
        item = self.model.tensors[number]
        if number in self.unsized:
            raise ModelError(f"{label}: the shape of '{item.name}' depends on the values of the inputs")
        tensor = self.graph.tensors[item.name]
        if not tensor.host:
            return tensor
        name = f"{item.name}@npu"
        if name in self.graph.tensors:
            return self.graph.tensors[name]
        for at, op in enumerate(self.graph.ops):
            if isinstance(op, HostPart) and item.name in op.outputs:
                made = define(self.graph, replace(item, name=name), label)
                self.graph.ops[at] = replace(op, more=(*op.more, name))
                self.numbers[name] = number
                return made
        raise ModelError(f"{label}: '{item.name}' {item.dtype} {item.shape} is kept on the host")

    def _build(self, parts: Sequence[HostPart], takes: Sequence[str], gives: Sequence[str]) -> Program:
        """Make the program of several nodes."""
        if parts[0].runtime == CUSTOM:
            custom = np.frombuffer(self._custom_program([part.part for part in parts]), np.uint8)
            return Program(CUSTOM, custom, tuple(map(self._port, takes)), tuple(map(self._port, gives)))
        ends = [[self.numbers[name] for name in names] for names in (takes, gives)]
        data = program(self.model, [part.part for part in parts], *ends)
        given, made = (tuple(self._port(name) for name in names) for names in (takes, gives))
        names = [tuple(port.name for port in side) for side in (given, made)]
        loaded = load_program(parts[0].runtime, data.tobytes(), *names)  # LiteRT's own checks
        assert isinstance(loaded, LiteRtProgram)
        for number, shape in zip(ends[1], loaded.shapes, strict=True):
            item = self.model.tensors[number]
            if shape != item.shape:
                text = f"'{item.name}' is {item.shape} in the file, but LiteRT computes {shape}"
                raise ModelError(f"{', '.join(self.model.label(part.part) for part in parts[:3])}: {text}")
        return Program(parts[0].runtime, data, given, made)

    def _port(self, name: str) -> Port:
        item = self.model.tensors[self.numbers[name]]
        return Port(item.name, item.dtype, TO_LAST if len(item.shape) == 4 else ())

    def _node(self, record: TfNode) -> None:
        node = TfliteNode(self.model, record, self.graph, self.on_npu)
        if node.kind in NAMES:
            made = OPERATORS[NAMES[node.kind]](node)
            if isinstance(made, Pending):
                node.finish(made)
        elif node.kind in CLAMPS:
            x, (kind, clamp) = node.input(), CLAMPS[node.kind]
            node.finish(Pending(Rescale(node.name, (x.name,), "", kind), x.shape, x.cube, clamp))
        elif node.kind in RESHAPES:
            self._reshape(node, record.outputs[0])
        elif node.kind == "BATCH_MATMUL":
            self._product(node)
        elif node.kind == "SOFTMAX":  # along the last axis
            x, y = node.input(), node.output()
            axis, beta = 1 if len(x.shape) == 4 else -1, float(node.attributes["Beta"])
            if node.floats and beta != 1.0:
                raise node.wrong(f"beta {beta:g} is not supported for floats")
            node.on_host("Softmax", x.name, y, axis=axis, beta=beta)
        elif node.kind == "QUANTIZE":
            self._quantize(node)
        else:
            self._dequantize(node, record)

    def _product(self, node: TfliteNode) -> None:
        """BATCH_MATMUL: the product of two activations."""
        views = []
        for index, turned in enumerate(("AdjX", "AdjY")):
            x = node.input(index)
            view = view_of(x)
            if view is None or len(x.shape) < 2:
                raise node.wrong(f"'{x.name}' {x.shape} has no matrices")
            view = view.transposed(TO_LAST) if len(x.shape) == 4 else view
            count = len(x.shape)
            swapped = (*range(count - 2), count - 1, count - 2)
            views.append(view.transposed(swapped) if node.attributes[turned] else view)
        y, item = node.output(), node.made_items[0]
        builder = ProductBuilder(self.graph, node.label, node.name, y.name, y.itemsize)
        made = builder.product(views[0], views[1], y.cube)
        if made.shape != item.shape:
            raise node.wrong(f"output '{y.name}' {item.shape} should be {made.shape}")
        node.finish(made)

    def _alias(self, node: TfliteNode, y: Tensor, x: Tensor) -> None:
        """Make y an alias of x, or rescale x if y has another quantisation."""
        if y.same_values(x):
            self.graph.aliases[y.name] = x.name
        else:
            self.graph.ops.append(Rescale(node.name, (x.name,), y.name))

    def _reshape(self, node: TfliteNode, number: int) -> None:
        """RESHAPE, SQUEEZE or EXPAND_DIMS; the output's shape has all that is needed."""
        x, item = node.input(), self.model.tensors[number]
        if math.prod(item.shape) != x.elements:
            raise node.wrong(f"'{x.name}' of {x.elements} elements to {item.shape}")
        if item.shape[-1:] == (x.cube[0],) and not x.channels_last:
            self._alias(node, node.output(), x)
            return
        if self._only_multiplied(number) and max(x.cube[1:]) <= CONV_KERNEL:
            y = define(self.graph, item, node.label, x.cube)
            if y.same_values(x) and number not in self.model.outputs:
                self.graph.aliases[y.name] = x.name
                return
        node.rearrange(x, node.output(), item.shape)

    def _only_multiplied(self, number: int) -> bool:
        """Whether a tensor is flat and only matrix products read it."""
        item, users = self.model.tensors[number], self._users(number)
        flat = item.shape[-1:] == (math.prod(item.shape),)
        products = all(u.op == "FULLY_CONNECTED" and u.inputs[0] == number for u in users)
        return flat and bool(users) and products

    def _dequantize(self, node: TfliteNode, record: TfNode) -> None:
        """DEQUANTIZE in front of an output: the caller gets codes or real numbers, as it likes."""
        name = node.item(0).name
        if self._users(record.outputs[0]):
            raise node.wrong("something else than an output of the model reads the result")
        if name not in self.graph.tensors or self.graph.tensors[name].host:
            raise node.wrong(f"'{name}' is {node.item(0).dtype} and kept on the host")
        self.floats[record.outputs[0]] = name

    def _quantize(self, node: TfliteNode) -> None:
        """QUANTIZE of a real input, or of codes into codes of another quantisation."""
        item, y = node.item(0), node.output()
        if item.name in self.graph.tensors and item.dtype not in FLOATS:
            self._alias(node, y, self.on_npu(node.numbers[0], node.label))
        elif node.numbers[0] in self.model.inputs and item.dtype == "float32":
            self.graph.inputs.append(GraphInput(item.name, y.name, first(item.shape)))
        else:
            raise node.wrong(f"'{item.name}' is {item.dtype} and no input of the model")
