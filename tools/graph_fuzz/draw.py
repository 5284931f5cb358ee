"""Random ONNX graphs of a few nodes, of ranks 1 to 6, that onnxruntime can judge."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler.host_runtimes import exact_options, import_onnxruntime

Array = npt.NDArray[np.generic]

OPSET = 17
LATER = (18, 19, 20, 21, 22)
"""Operator sets to which graphs of `OPSET` are converted."""
SMALL, LARGE = 6000, 80_000
"""Elements of the largest tensor of a graph; a few graphs are large, since larger layers are divided."""
GREATEST = 200.0
"""Magnitude above which a graph is drawn again: fp16 has eleven bits, whatever the magnitude."""


class NoFit(Exception):
    """An operator does not fit the tensor that was drawn for it."""


@dataclass
class Value:
    """A tensor of the graph: its name, its value for the drawn inputs, and what computes it."""

    name: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass
class Graph:
    """A model with an input for each of its inputs, in the model's order."""

    model: onnx.ModelProto
    feeds: dict[str, Array] = field(default_factory=dict)
    seed: int = 0

    def text(self) -> str:
        """Return inputs, outputs, nodes and the shapes of constants as lines."""

        def listed(items: Iterable[onnx.ValueInfoProto]) -> str:
            sizes = {item.name: [n.dim_value for n in item.type.tensor_type.shape.dim] for item in items}
            return ", ".join(f"{name}{shape}" for name, shape in sizes.items())

        graph = self.model.graph
        lines = [f"{listed(graph.input)} => {listed(graph.output)}"]
        constants = {}
        for item in graph.initializer:
            array = numpy_helper.to_array(item)
            few = array.size <= 8
            constants[item.name] = (
                (array.round(4) if array.dtype.kind == "f" else array).tolist()
                if few
                else f"{array.dtype}{list(array.shape)}"
            )
        for node in graph.node:
            given = ", ".join(f"{constants.get(name, name)}" for name in node.input)
            how = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            said = ", ".join(f"{k}={v.decode() if isinstance(v, bytes) else v}" for k, v in how.items())
            lines.append(f"{', '.join(node.output)} = {node.op_type}({given}) {said}".rstrip())
        return "\n".join(lines)


class Draw:
    """Draws one graph; `graph` returns it.

    Parameters
    ----------
    seed
        Of everything that is drawn.
    nodes
        Greatest number of operators.
    """

    def __init__(self, seed: int, nodes: int = 8) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.seed = seed
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self.read: set[str] = set()
        self.count = 0
        self.large = self._chance(0.08)
        self.indices: list[Value] = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            self.inputs.append(self._input())
        self.values = list(self.inputs)
        for _ in range(self.rng.randint(1, nodes)):
            self._grow()
        self.places = self._places() if self._chance(0.1) else None

    # What is drawn

    def _pick(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _input(self) -> Value:
        kind = self.rng.random()
        first = self.rng.choice((1, 1, 2, 3, 4, 5))
        if self.inputs and self._chance(0.5):
            shape = self.rng.choice(self.inputs).shape  # two of a kind can be added
        elif self.large:
            sizes: tuple[int, ...] = (self._pick(40, 300), 64)
            if self._chance(0.6):
                sizes = (self._pick(1, 64), self._pick(8, 40), self._pick(8, 40))
            shape = (1 if self._chance(0.7) else first, *sizes)
            if math.prod(shape) > LARGE // 2:
                shape = (1, 16, 32, 32)
        elif kind < 0.5:
            shape = (
                first,
                self.rng.choice((1, 2, 3, 4, 8, 16, 20, 33)),
                self._pick(1, 12),
                self._pick(1, 12),
            )
        else:
            rank = self.rng.choice((1, 2, 2, 3, 3, 3, 5, 6))
            top = {1: 64, 2: 40, 3: 16, 5: 5, 6: 4}[rank]
            shape = (first, *(self._pick(1, top) for _ in range(rank - 1)))
            if rank == 1:
                shape = (self._pick(1, top),)
        drawn = self.numbers.integers(-64, 65, shape).astype(np.float32) / 32  # exact in fp16
        return Value(f"in{len(self.inputs)}", drawn)

    def _name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def _constant(self, array: npt.ArrayLike) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def _weights(self, *shape: int, fan: int | None = None) -> str:
        fan = fan or int(np.prod(shape[1:])) or 1
        return self._constant((self.numbers.standard_normal(shape) / math.sqrt(fan)).astype(np.float32))

    def _ints(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _around(self, *shape: int) -> str:
        """Return a constant of numbers between 0.25 and 2 of both signs."""
        drawn = self.numbers.uniform(0.25, 2, shape) * self.numbers.choice((-1.0, 1.0), shape)
        return self._constant(drawn.astype(np.float32))

    def _emit(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self._name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}_{op}", **attributes))
        return names

    # Growth

    def _grow(self) -> None:
        """Add one operator to the graph, after one of the last tensors."""
        for _ in range(20):
            x = self.rng.choice(self.values[-3:] if self._chance(0.8) else self.values)
            before = len(self.nodes), len(self.constants), self.count
            try:
                self._operator(x)(x)
                values = self._evaluate(before[0])
            except NoFit:
                values = None
            if values is not None:
                for node in self.nodes[before[0] :]:
                    self.read.update(node.input)
                self.values += values
                return
            del self.nodes[before[0] :], self.constants[before[1] :]
            self.count = before[2]

    def _operator(self, x: Value) -> Callable[[Value], None]:
        rank = len(x.shape)
        kinds: list[Callable[[Value], None]] = [
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.binary,
            self.constant_operand,
            self.constant_operand,
            self.reshape,
            self.transpose,
            self.slice,
            self.concat,
            self.reduce,
            self.softmax,
            self.matmul,
            self.pad,
            self.gather,
            self.split,
            self.less_common,
        ]
        if rank == 4:
            maps = [self.conv, self.conv, self.conv, self.pool, self.pool, self.depthwise, self.up, self.maps]
            kinds += maps * 2
        if rank == 3:
            kinds += [self.conv, self.recurrent, self.attention, self.attention]
        if rank == 2:
            kinds += [self.gemm, self.gemm, self.gemm]
        if rank == 5:
            kinds += [self.conv]
        return self.rng.choice(kinds)

    def _evaluate(self, first: int) -> list[Value] | None:
        """Return the results of the nodes from `first` on; None if they cannot be judged."""
        nodes = self.nodes[first:]
        made = [name for node in nodes for name in node.output if name]
        needed = {name for node in nodes for name in node.input if name} - set(made)
        feeds = {value.name: value.array for value in (*self.values, *self.indices) if value.name in needed}
        graph = helper.make_graph(
            nodes,
            "part",
            [described(name, array) for name, array in feeds.items()],
            [helper.make_empty_tensor_value_info(name) for name in made],
            [item for item in self.constants if item.name in needed],
        )
        try:
            results = session(_model(graph)).run(None, feeds)
        except Exception as error:  # onnxruntime's own classes have no common base
            raise NoFit(str(error)) from error
        for array in results:
            most = LARGE if self.large else SMALL
            if not isinstance(array, np.ndarray) or not 0 < array.size <= most or array.ndim > 6:
                return None
            if not np.isfinite(array).all() or np.abs(array.astype(np.float64)).max() > GREATEST:
                return None
        last = {name for name in made if not any(name in node.input for node in nodes)}
        return [
            Value(name, array)
            for name, array in zip(made, results, strict=True)
            if name in last and array.dtype == np.float32
        ] or None

    # Operators of any rank

    def unary(self, x: Value) -> None:
        op = self.rng.choice(
            [
                *("Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Elu", "Selu"),
                *("Softplus", "Softsign", "Abs", "Neg", "Erf", "Clip", "Sin", "Cos", "Identity", "PRelu"),
                *(
                    "Swish",
                    "Square",
                    "Sqrt",
                    "Reciprocal",
                    "Exp",
                    "Celu",
                    "Relu6",
                    "Dropout",
                    "NegRelu",
                ),
            ]
        )
        name = x.name
        if op == "Clip":
            bounds = [
                self._constant(np.float32(self.rng.choice((-1.0, -0.5, 0.0)))) if self._chance(0.8) else ""
            ]
            if self._chance(0.8):
                bounds.append(self._constant(np.float32(self.rng.choice((0.5, 1.0, 6.0)))))
            self._emit("Clip", [name, *bounds])
        elif op == "Relu6":
            self._emit("Clip", [name, self._constant(np.float32(0)), self._constant(np.float32(6))])
        elif op == "PRelu":
            slope = (
                (x.shape[1], *[1] * (len(x.shape) - 2)) if len(x.shape) > 1 and self._chance(0.7) else (1,)
            )
            self._emit(
                "PRelu", [name, self._constant(self.numbers.uniform(0, 0.5, slope).astype(np.float32))]
            )
        elif op == "LeakyRelu":
            self._emit(op, [name], alpha=self.rng.choice((0.01, 0.1, 0.25)))
        elif op == "Swish":
            (gate,) = self._emit("Sigmoid", [name])
            self._emit("Mul", self.rng.sample([name, gate], 2))
        elif op == "Square":
            self._emit(
                *self.rng.choice((("Mul", [name, name]), ("Pow", [name, self._constant(np.float32(2))])))
            )
        elif op == "Sqrt":
            (positive,) = self._emit("Abs", [name])
            (more,) = self._emit("Add", [positive, self._constant(np.float32(0.5))])
            self._emit("Sqrt", [more])
        elif op == "Reciprocal":
            (positive,) = self._emit("Abs", [name])
            (more,) = self._emit("Add", [positive, self._constant(np.float32(0.5))])
            self._emit("Reciprocal", [more])
        elif op == "Exp":
            (limited,) = self._emit("Tanh", [name])
            self._emit("Exp", [limited])
        elif op == "NegRelu":
            (shifted,) = self._emit("Relu", [name])
            self._emit("Neg", [shifted])
        else:
            self._emit(op, [name])

    def _partner(self, x: Value) -> Value:
        fits = [v for v in self.values if v.name != x.name and _broadcasts(v.shape, x.shape)]
        if not fits:
            raise NoFit("no partner")
        return self.rng.choice(fits)

    def binary(self, x: Value) -> None:
        other = x if self._chance(0.05) else self._partner(x)
        pair = [x.name, other.name]
        self.rng.shuffle(pair)
        self._emit(self.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min")), pair)

    def constant_operand(self, x: Value) -> None:
        shape = [n if self._chance(0.5) else 1 for n in x.shape]
        kind = self._pick(0, 5)
        if kind == 0:
            shape = []
        elif kind == 1 and len(x.shape) > 1:
            shape = [1, x.shape[1], *[1] * (len(x.shape) - 2)]
        elif kind == 2:
            shape = [x.shape[-1]]
        elif kind == 3:
            shape = list(x.shape)
        elif kind == 4:
            shape = [x.shape[0], *[1] * (len(x.shape) - 1)]
        elif len(x.shape) < 6 and self._chance(0.2):
            shape = [self._pick(1, 3), *shape]
        op = self.rng.choice(("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul", "Where"))
        pair = [x.name, self._around(*shape)]
        if op == "Where":
            self._emit(op, [self._constant(self.numbers.random(shape) < 0.5), *pair])
            return
        if op != "Div":
            self.rng.shuffle(pair)
        self._emit(op, pair)

    def reshape(self, x: Value) -> None:
        rank, left = self._pick(1, 5), x.array.size
        kind = self._pick(0, 5)
        if kind == 0:
            self._emit("Flatten", [x.name], axis=self._pick(0, len(x.shape)))
            return
        if kind == 1 and len(x.shape) < 6:
            self._emit("Unsqueeze", [x.name, self._ints(self._pick(0, len(x.shape)))])
            return
        if kind == 2:
            axes = [n for n, size in enumerate(x.shape) if size == 1]
            if not axes or len(x.shape) < 2:
                raise NoFit("nothing to squeeze")
            self._emit("Squeeze", [x.name, self._ints(self.rng.choice(axes))])
            return
        shape: list[int] = []
        if kind == 3:  # the first dimension stays
            shape, left = [x.shape[0]], left // x.shape[0]
        for _ in range(rank - 1):
            factors = [n for n in range(1, left + 1) if left % n == 0 and n <= 64]
            shape.append(self.rng.choice(factors))
            left //= shape[-1]
        shape.append(left)
        if self._chance(0.3):
            shape[self._pick(0, len(shape) - 1)] = -1
        self._emit("Reshape", [x.name, self._ints(*shape)])

    def transpose(self, x: Value) -> None:
        order = list(range(len(x.shape)))
        if self._chance(0.5) and len(order) > 2:
            tail = order[1:]
            self.rng.shuffle(tail)
            order = [0, *tail]
        else:
            self.rng.shuffle(order)
        self._emit("Transpose", [x.name], perm=order)

    def _axis(self, x: Value) -> int:
        axis = self._pick(0, len(x.shape) - 1)
        return axis - len(x.shape) if self._chance(0.3) else axis

    def slice(self, x: Value) -> None:
        axis = self._axis(x)
        size = x.shape[axis]
        begin = self._pick(0, size - 1)
        end = self._pick(begin + 1, size)
        step = self.rng.choice((1, 1, 1, 2, 3))
        if self._chance(0.15):
            begin, end, step = size - 1, -size - 1, -1
        self._emit("Slice", [x.name, *(self._ints(n) for n in (begin, end, axis, step))])

    def concat(self, x: Value) -> None:
        axis = self._axis(x)
        place = axis % len(x.shape)
        fits = [
            v
            for v in self.values
            if len(v.shape) == len(x.shape)
            and all(a == b for n, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if n != place)
        ]
        parts = [x.name]
        for _ in range(self._pick(1, 2)):
            if self._chance(0.25):
                shape = list(x.shape)
                shape[place] = self._pick(1, 3)
                parts.append(self._around(*shape))
            else:
                parts.append(self.rng.choice(fits).name)
        self.rng.shuffle(parts)
        self._emit("Concat", parts, axis=axis)

    def reduce(self, x: Value) -> None:
        axes = sorted(self.rng.sample(range(len(x.shape)), self._pick(1, min(2, len(x.shape)))))
        keep = self._pick(0, 1)
        if len(axes) == len(x.shape):
            keep = 1
        op = self.rng.choice(("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"))
        if op == "ReduceSum":
            self._emit(op, [x.name, self._ints(*axes)], keepdims=keep)
        else:
            self._emit(op, [x.name], axes=axes, keepdims=keep)

    def softmax(self, x: Value) -> None:
        self._emit(self.rng.choice(("Softmax", "Softmax", "LogSoftmax")), [x.name], axis=self._axis(x))

    def matmul(self, x: Value) -> None:
        if len(x.shape) < 2:
            raise NoFit("a vector")
        depth, to = x.shape[-1], self._pick(1, 40)
        kind = self._pick(0, 4)
        if kind <= 1:
            self._emit("MatMul", [x.name, self._weights(depth, to, fan=depth)])
        elif kind == 2:
            self._emit("MatMul", [x.name, self._weights(*x.shape[:-2], depth, to, fan=depth)])
        elif kind == 3:
            rows = x.shape[-2]
            self._emit("MatMul", [self._weights(self._pick(1, 12), rows, fan=rows), x.name])
        else:
            fits = [v for v in self.values if len(v.shape) > 1 and v.shape[-2] == depth]
            if not fits:
                raise NoFit("no factor")
            self._emit("MatMul", [x.name, self.rng.choice(fits).name])

    def pad(self, x: Value) -> None:
        rank = len(x.shape)
        edges = [0] * (2 * rank)
        for axis in self.rng.sample(range(rank), self._pick(1, min(2, rank))):
            edges[axis], edges[rank + axis] = self._pick(0, 2), self._pick(0, 2)
        mode = self.rng.choice(("constant", "constant", "constant", "reflect", "edge"))
        value = (
            [self._constant(np.float32(self.rng.choice((0.0, 0.0, 1.5, -2.0))))] if mode == "constant" else []
        )
        self._emit("Pad", [x.name, self._ints(*edges), *value], mode=mode)

    def gather(self, x: Value) -> None:
        axis = self._axis(x)
        size = x.shape[axis]
        if self._chance(0.4):
            index: Array = np.array(self._pick(-size, size - 1), np.int64)
            if len(x.shape) == 1:
                raise NoFit("would be a scalar")
        else:
            index = self.numbers.integers(-size, size, self._pick(1, 4)).astype(np.int64)
            if len(self.inputs) < 4 and self._chance(0.3):  # the places are an input of the model
                kind = self.rng.choice((np.int64, np.int32))
                given = Value(f"in{len(self.inputs)}", index.astype(kind))
                self.inputs.append(given)
                self.indices.append(given)
                self._emit("Gather", [x.name, given.name], axis=axis)
                return
        self._emit("Gather", [x.name, self._constant(index)], axis=axis)

    def _places(self) -> Value | None:
        """Add the place of the largest number of an input, which is an output of integers."""
        reals = [value for value in self.inputs if value.array.dtype == np.float32]
        x = self.rng.choice(reals)
        op = self.rng.choice(("ArgMax", "ArgMin"))
        axis, keep = self._axis(x), self._pick(0, 1) if len(x.shape) > 1 else 1
        (name,) = self._emit(op, [x.name], axis=axis, keepdims=keep)
        found = (np.argmax if op == "ArgMax" else np.argmin)(x.array, axis=axis, keepdims=bool(keep))
        return Value(name, np.asarray(found, np.int64))

    def split(self, x: Value) -> None:
        axis = self._axis(x)
        size = x.shape[axis]
        if size < 2:
            raise NoFit("nothing to split")
        cut = self._pick(1, size - 1)
        self._emit("Split", [x.name, self._ints(cut, size - cut)], 2, axis=axis)

    def less_common(self, x: Value) -> None:
        kind = self._pick(0, 7)
        if kind == 0:
            self._emit("CumSum", [x.name, self._constant(np.array(self._axis(x), np.int64))])
        elif kind == 1:
            self._emit("Tile", [x.name, self._ints(*(self.rng.choice((1, 1, 2)) for _ in x.shape))])
        elif kind == 2:
            self._emit(
                "LayerNormalization", [x.name, self._around(x.shape[-1]), self._around(x.shape[-1])], axis=-1
            )
        elif kind == 3:
            size = x.shape[-1]
            values, _ = self._emit("TopK", [x.name, self._ints(self._pick(1, size))], 2, axis=-1)
            self._emit("Identity", [values])
        elif kind == 4:
            grown = [self._pick(2, 3) if n == 1 else n for n in x.shape]
            self._emit("Expand", [x.name, self._ints(*grown)])
        elif kind == 5:
            (shape,) = self._emit("Shape", [x.name])
            (first,) = self._emit("Slice", [shape, self._ints(0), self._ints(1), self._ints(0)])
            (to,) = self._emit("Concat", [first, self._ints(-1)], axis=0)
            self._emit("Reshape", [x.name, to])
        elif kind == 6:
            (mean,) = self._emit("ReduceMean", [x.name], axes=[self._axis(x)], keepdims=1)
            self._emit("Sub", [x.name, mean])
        else:
            (half,) = self._emit("Cast", [x.name], to=TensorProto.DOUBLE)
            (more,) = self._emit("Add", [half, half])
            self._emit("Cast", [more], to=TensorProto.FLOAT)

    # Maps, sequences, rows

    def conv(self, x: Value) -> None:
        channels, places = x.shape[1], x.shape[2:]
        kernel = [self._pick(1, min(4, n + 1)) for n in places]
        attributes: dict[str, Any] = {"kernel_shape": kernel}
        if self._chance(0.5):
            attributes["strides"] = [self._pick(1, 3) for _ in places]
        if self._chance(0.3):
            attributes["auto_pad"] = self.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        elif self._chance(0.6):
            attributes["pads"] = [self._pick(0, n // 2) for n in (*kernel, *kernel)]
        if "auto_pad" not in attributes and self._chance(0.2):
            attributes["dilations"] = [self._pick(1, 2) for _ in places]
        group = self.rng.choice([n for n in range(1, min(channels, 8) + 1) if channels % n == 0])
        group = group if self._chance(0.3) else 1
        to = group * self._pick(1, 40 // group)
        inputs = [x.name, self._weights(to, channels // group, *kernel)]
        if self._chance(0.6):
            inputs.append(self._around(to))
        self._emit("Conv", inputs, group=group, **attributes)

    def depthwise(self, x: Value) -> None:
        channels, places = x.shape[1], x.shape[2:]
        kernel = [self._pick(1, min(3, n)) for n in places]
        times = self.rng.choice((1, 1, 2))
        inputs = [x.name, self._weights(channels * times, 1, *kernel)]
        pads = [n // 2 for n in (*kernel, *kernel)]
        self._emit(
            "Conv", inputs, group=channels, kernel_shape=kernel, pads=pads, strides=[self._pick(1, 2)] * 2
        )

    def pool(self, x: Value) -> None:
        op = self.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
        if op.startswith("Global"):
            self._emit(op, [x.name])
            return
        kernel = [self._pick(1, min(4, n)) for n in x.shape[2:]]
        attributes: dict[str, Any] = {"strides": [self._pick(1, 3) for _ in kernel]}
        if self._chance(0.4):
            attributes["pads"] = [self._pick(0, n // 2) for n in (*kernel, *kernel)]
        if self._chance(0.2):
            attributes["ceil_mode"] = 1
        if op == "AveragePool" and self._chance(0.4):
            attributes["count_include_pad"] = 1
        self._emit(op, [x.name], kernel_shape=kernel, **attributes)

    def up(self, x: Value) -> None:
        kind = self._pick(0, 3)
        channels = x.shape[1]
        if kind == 0:
            kernel, to = self._pick(1, 4), self._pick(1, 20)
            stride = self._pick(1, kernel)
            self._emit(
                "ConvTranspose",
                [x.name, self._weights(channels, to, kernel, kernel, fan=channels * kernel)],
                strides=[stride, stride],
                pads=[self._pick(0, kernel // 2)] * 4,
            )
            return
        if kind == 1:
            block = 2
            if channels % 4 == 0 and self._chance(0.5):
                self._emit("DepthToSpace", [x.name], blocksize=block, mode=self.rng.choice(("DCR", "CRD")))
            elif x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
                self._emit("SpaceToDepth", [x.name], blocksize=block)
            else:
                raise NoFit("no blocks")
            return
        scales = self._constant(np.array([1, 1, self._pick(1, 3), self._pick(1, 3)], np.float32))
        mode = self.rng.choice(("nearest", "nearest", "linear"))
        how = self.rng.choice(("asymmetric", "half_pixel", "align_corners"))
        more: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
        self._emit("Resize", [x.name, "", scales], mode=mode, coordinate_transformation_mode=how, **more)

    def maps(self, x: Value) -> None:
        channels = x.shape[1]
        kind = self._pick(0, 2)
        if kind == 0:
            variance = self._constant(self.numbers.uniform(0.5, 2, channels).astype(np.float32))
            three = [self._around(channels) for _ in range(3)]
            self._emit("BatchNormalization", [x.name, *three, variance])
        elif kind == 1:
            self._emit("InstanceNormalization", [x.name, self._around(channels), self._around(channels)])
        else:
            (pooled,) = self._emit("GlobalAveragePool", [x.name])
            (scores,) = self._emit("Conv", [pooled, self._weights(channels, channels, 1, 1)])
            (gate,) = self._emit("Sigmoid", [scores])
            self._emit("Mul", [x.name, gate])

    def recurrent(self, x: Value) -> None:
        op, gates = self.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        hidden, size = self._pick(1, 10), x.shape[2]
        both = self._pick(1, 2)
        inputs = [
            x.name,
            self._weights(both, gates * hidden, size),
            self._weights(both, gates * hidden, hidden),
        ]
        direction = "bidirectional" if both == 2 else self.rng.choice(("forward", "reverse"))
        all_steps, last = self._emit(op, inputs, 2, hidden_size=hidden, direction=direction)
        self._emit("Identity", [last if self._chance(0.3) else all_steps])

    def attention(self, x: Value) -> None:
        (turned,) = self._emit("Transpose", [x.name], perm=[0, 2, 1])
        (scores,) = self._emit("MatMul", [x.name, turned])
        scale = self._constant(np.float32(1 / math.sqrt(x.shape[2])))
        (scaled,) = self._emit("Mul", [scores, scale])
        if self._chance(0.5):
            (weights,) = self._emit("Softmax", [scaled], axis=-1)
            self._emit("MatMul", [weights, x.name])

    def gemm(self, x: Value) -> None:
        depth, to = x.shape[1], self._pick(1, 40)
        turned = self._pick(0, 1)
        shape = (to, depth) if turned else (depth, to)
        inputs = [x.name, self._weights(*shape, fan=depth)]
        if self._chance(0.6):
            inputs.append(self._around(*self.rng.choice(((to,), (1, to), (x.shape[0], to), ()))))
        self._emit("Gemm", inputs, transB=turned, alpha=self.rng.choice((1.0, 1.0, 0.5)))

    # Result

    def graph(self) -> Graph | None:
        """Return the model; None if nothing could be drawn."""
        made = [value for value in self.values if value not in self.inputs]
        if not made:
            return None
        ends = [value for value in made if value.name not in self.read][-3:] or made[-1:]
        if len(ends) < 3 and self._chance(0.2):
            more = self.rng.choice(made)
            ends += [more] if more.name not in {value.name for value in ends} else []
        if self.places is not None:
            ends.append(self.places)
        used = _needed(self.nodes, {value.name for value in ends})
        nodes = [node for n, node in enumerate(self.nodes) if n in used]
        names = {name for node in nodes for name in node.input}
        inputs = [value for value in self.inputs if value.name in names]
        graph = helper.make_graph(
            nodes,
            f"drawn_{self.seed}",
            [described(value.name, value.array) for value in inputs],
            [described(value.name, value.array) for value in ends],
            [item for item in self.constants if item.name in names],
        )
        if not inputs:
            return None
        model = _model(graph)
        if self._chance(0.3):
            model = _converted(model, self.rng.choice(LATER))
        return Graph(model, {value.name: value.array for value in inputs}, self.seed)


def drawn(seed: int, nodes: int = 8) -> Graph:
    """Return the graph of a seed; the same for each call."""
    for step in range(100):
        graph = Draw(seed + step * (1 << 40), nodes).graph()
        if graph is not None and _runs(graph):
            graph.seed = seed
            return graph
    raise RuntimeError(f"seed {seed}: no graph in 100 draws")


def _runs(graph: Graph) -> bool:
    """Whether onnxruntime takes the whole graph: its shape inference is wrong for some windows."""
    try:
        session(graph.model).run(None, graph.feeds)
    except Exception:  # its classes have no public base
        return False
    return True


def described(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the description of an input or output with the type and shape of an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def session(model: onnx.ModelProto) -> Any:
    """Return an onnxruntime session on one thread, without warnings and without optimisation."""
    ort = import_onnxruntime()
    options = exact_options(ort)
    options.log_severity_level = 4
    ort.set_default_logger_severity(4)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a model with the operators of another version; the model itself if onnx has no conversion."""
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception:  # onnx raises several classes
        return model


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, other)
    except ValueError:
        return False
    return True


def _needed(nodes: list[onnx.NodeProto], names: set[str]) -> set[int]:
    """Return the numbers of the nodes from which the named tensors follow."""
    needed: set[int] = set()
    names = set(names)
    for number in reversed(range(len(nodes))):
        if names & set(nodes[number].output):
            needed.add(number)
            names |= set(nodes[number].input)
    return needed
