"""Operators of ONNX models that are others in disguise, as operators on real numbers that the NPU has.

- Scaler of ai.onnx.ml, the first operator of scikit-learn's pipelines, is a Sub and a Mul.
- ZipMap of ai.onnx.ml at an output only names the columns of a matrix, which is the output here.
- A product behind a DynamicQuantizeLinear, whose scale follows from each input, is the product of the real
  numbers with the weights of the codes; so are DynamicQuantizeMatMul and MatMulIntegerToFloat of onnxruntime.
- A BatchNormalization of rows is a Mul and an Add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from rkcosim.base import progress
from rkcosim.compiler.loaders.onnx_fold import described, known_shapes
from rkcosim.compiler.loaders.onnx_node import reads

Numbers = npt.NDArray[np.float32]

_LEARNING = "ai.onnx.ml"
_DYNAMIC = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"}


def learned_scalers(graph: onnx.GraphProto) -> None:
    """Write Scaler as Sub and Mul, and take the matrix of a ZipMap at an output, in place.

    A Cast of the Scaler's result to float32, which it has already, is left out. A ZipMap whose result another
    node reads stays.
    """
    if not any(node.domain == _LEARNING for node in graph.node):
        return
    types = {item.name: item.type.tensor_type.elem_type for item in graph.input}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.domain == _LEARNING and node.op_type == "Scaler":
            nodes += _scaled(node, types, graph)
            types[node.output[0]] = TensorProto.FLOAT
        elif node.domain == _LEARNING and node.op_type == "ZipMap" and _is_output(node, graph):
            nodes.append(helper.make_node("Identity", node.input[:1], node.output[:1], node.name))
            item = next(item for item in graph.output if item.name == node.output[0])
            item.CopyFrom(helper.make_tensor_value_info(item.name, TensorProto.FLOAT, None))
        elif node.op_type == "Cast" and types.get(node.input[0]) == TensorProto.FLOAT == _target(node):
            nodes.append(helper.make_node("Identity", node.input[:1], node.output[:1], node.name))
            types[node.output[0]] = TensorProto.FLOAT
        else:
            nodes.append(node)
    _replace(graph, nodes)


def _is_output(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    read = any(node.output[0] in reads(other) for other in graph.node)
    return not read and any(item.name == node.output[0] for item in graph.output)


def _target(node: onnx.NodeProto) -> int:
    return next((item.i for item in node.attribute if item.name == "to"), TensorProto.UNDEFINED)


def _scaled(node: onnx.NodeProto, types: dict[str, int], graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield (x - offset) * scale."""
    values = {item.name: np.array(item.floats, np.float32) for item in node.attribute}
    source, names = node.input[0], (f"{node.name}@offset", f"{node.name}@scale")
    for name, key, neutral in zip(names, ("offset", "scale"), (0.0, 1.0), strict=True):
        numbers = values.get(key, np.array([neutral], np.float32))
        graph.initializer.append(numpy_helper.from_array(numbers, name))
    if types.get(source, TensorProto.FLOAT) != TensorProto.FLOAT:
        real = f"{node.name}@real"
        yield helper.make_node("Cast", [source], [real], real, to=TensorProto.FLOAT)
        source = real
    apart = f"{node.name}@apart"
    yield helper.make_node("Sub", [source, names[0]], [apart], apart)
    yield helper.make_node("Mul", [apart, names[1]], list(node.output), node.name)


def real_products(proto: onnx.ModelProto, say: bool = False) -> onnx.ModelProto:
    """Return a model whose dynamically quantised products are products of real numbers.

    Read are a MatMulInteger or ConvInteger of the codes of a DynamicQuantizeLinear and constant codes with a
    Cast and the scales as factors behind it, as onnxruntime's `quantize_dynamic` writes them (its older
    versions add the bias as a whole number of steps), and the operators of onnxruntime that are one node for
    these.

    Parameters
    ----------
    proto
        The model, with initializers in place of its Constant nodes; it is not changed.
    say
        Whether a line about it is shown.
    """
    if not any(node.op_type in _DYNAMIC for node in proto.graph.node):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    count = _Dynamic(made.graph).run()
    if count and say:
        progress.say(
            f"{count} products with dynamically quantised inputs are computed in floating point, "
            "from the weights of the file"
        )
    return made if count else proto


class _Dynamic:
    """The dynamically quantised products of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = {item.name: item for item in graph.initializer}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in reads(node):
                self.readers.setdefault(name, []).append(node)
        self.ends = Counter(item.name for item in graph.output)

    def run(self) -> int:
        """Replace the products, and return how many there are."""
        made: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            found = None
            if node.op_type in ("MatMulInteger", "ConvInteger"):
                found = self._integer(node)
            elif node.domain == "com.microsoft" and node.op_type == "DynamicQuantizeMatMul":
                found = self._product(node, node.input[0], self._parameters(node, (1, 2, 3, 4)), node)
            elif node.domain == "com.microsoft" and node.op_type == "MatMulIntegerToFloat":
                source = self._source(node.input[0], [node.input[2]], [*node.input[4:5]])
                found = (
                    self._product(node, source, self._parameters(node, (1, 3, 5, 6)), node)
                    if source
                    else None
                )
            if found:
                made[found[-1].output[0]] = found
        nodes: list[onnx.NodeProto] = []
        for node in self.graph.node:
            nodes += made.get(node.output[0], [node])
        _replace(self.graph, nodes)
        return len(made)

    def _source(self, codes: str, scales: list[str], zeros: list[str]) -> str | None:
        """Return the real numbers of dynamically quantised codes, if scale and zero point are theirs."""
        node = self.makers.get(codes)
        if node is None or node.op_type != "DynamicQuantizeLinear" or codes != node.output[0]:
            return None
        own = scales in ([], [node.output[1]]) and [name for name in zeros if name] == [node.output[2]]
        return node.input[0] if own else None

    def _integer(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        names = [*node.input, "", ""]
        source = self._source(names[0], [], [names[2]])
        if source is None:
            return None
        end, bias = self._only_reader(node.output[0]), ""
        if end is not None and end.op_type == "Add":
            bias = self._whole_bias(next(name for name in end.input if name != node.output[0]))
            end = self._only_reader(end.output[0]) if bias else None
        if end is None or end.op_type != "Cast" or _target(end) != TensorProto.FLOAT:
            return None
        scale, factors = self.makers[names[0]].output[1], list[str]()
        while len(factors) < 2:
            after = self._only_reader(end.output[0])
            if after is None or after.op_type != "Mul":
                return None
            factors += self._factors(next(name for name in after.input if name != end.output[0]))
            end = after
        constants = [name for name in factors if name in self.constants]
        if sorted(factors) != sorted([scale, *constants]) or len(constants) != 1:
            return None
        return self._product(node, source, (names[1], constants[0], names[3], bias), end)

    def _whole_bias(self, name: str) -> str:
        """Return the bias of which a value is the nearest whole number of steps, rounded down; "" if none."""
        for kind in ("Reshape", "Cast", "Floor", "Div"):
            node = self.makers.get(name)
            if node is None or node.op_type != kind:
                if kind == "Reshape":  # the bias of a product of matrices needs none
                    continue
                return ""
            name = node.input[0]
        return name if name in self.constants else ""

    def _factors(self, name: str) -> list[str]:
        """Return the factors of a product, or the value itself."""
        node = self.makers.get(name)
        return list(node.input) if node is not None and node.op_type == "Mul" else [name]

    def _only_reader(self, name: str) -> onnx.NodeProto | None:
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and not self.ends[name] else None

    def _product(
        self, node: onnx.NodeProto, source: str, parameters: tuple[str, str, str, str], end: onnx.NodeProto
    ) -> list[onnx.NodeProto] | None:
        """Return the product of real numbers with the result of `end`.

        `parameters` are the names of the codes, of their scale and zero point, and of the bias.
        """
        codes, scale, zero, bias = parameters
        if not {codes, scale, *filter(None, (zero, bias))} <= self.constants.keys():
            return None
        weights, factor = self._numbers(codes), self._numbers(scale)
        offset = self._numbers(zero) if zero else np.zeros(1, np.float32)
        if convolution := node.op_type == "ConvInteger":
            ones = (1,) * (weights.ndim - 1)
            if factor.size not in (1, len(weights)) or offset.size not in (1, len(weights)):
                return None
            factor, offset = factor.reshape(-1, *ones), offset.reshape(-1, *ones)
        try:
            real = ((weights - offset) * factor).astype(np.float32)
        except ValueError:  # shapes that onnxruntime refuses as well
            return None
        if real.shape != weights.shape:
            return None
        name, outputs = f"{node.name}@weights", list(end.output)
        self.graph.initializer.append(numpy_helper.from_array(real, name))
        if convolution:
            made = helper.make_node("Conv", [source, name, *filter(None, [bias])], outputs, end.name)
            made.attribute.extend(node.attribute)
            return [made]
        if not bias:
            return [helper.make_node("MatMul", [source, name], outputs, end.name)]
        product = f"{node.name}@product"
        return [
            helper.make_node("MatMul", [source, name], [product], product),
            helper.make_node("Add", [product, bias], outputs, end.name),
        ]

    def _parameters(self, node: onnx.NodeProto, places: tuple[int, ...]) -> tuple[str, str, str, str]:
        names = [*node.input, *[""] * 7]
        codes, scale, zero, bias = (names[place] for place in places)
        return codes, scale, zero, bias

    def _numbers(self, name: str) -> Numbers:
        return numpy_helper.to_array(self.constants[name]).astype(np.float32)


def row_normalisations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each BatchNormalization of rows (N, C) is a Mul and an Add.

    The parameters are constants; others stay as they are.
    """
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    found = [
        node
        for node in proto.graph.node
        if node.op_type == "BatchNormalization" and makers.get(node.input[0]) not in ("Conv", "ConvTranspose")
    ]
    if not found:
        return proto
    shapes = known_shapes(described(proto))
    constants = {item.name: item for item in proto.graph.initializer}
    rows = {
        node.output[0]
        for node in found
        if len(shapes.get(node.input[0], ())) == 2
        and all(
            name in constants and constants[name].data_type == TensorProto.FLOAT for name in node.input[1:]
        )
        and len([name for name in node.output if name]) == 1
    }
    if not rows:
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        nodes += _row_steps(node, constants, made.graph) if node.output[0] in rows else [node]
    _replace(made.graph, nodes)
    return made


def _row_steps(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], graph: onnx.GraphProto
) -> Iterator[onnx.NodeProto]:
    gamma, beta, mean, variance = (
        numpy_helper.to_array(constants[name]).astype(np.float64) for name in node.input[1:5]
    )
    epsilon = next((item.f for item in node.attribute if item.name == "epsilon"), 1e-5)
    factor = gamma / np.sqrt(variance + epsilon)
    names = f"{node.name}@factor", f"{node.name}@term"
    for name, numbers in zip(names, (factor, beta - mean * factor), strict=True):
        graph.initializer.append(numpy_helper.from_array(numbers.astype(np.float32), name))
    scaled = f"{node.name}@scaled"
    yield helper.make_node("Mul", [node.input[0], names[0]], [scaled], scaled)
    yield helper.make_node("Add", [scaled, names[1]], list(node.output), node.name)


def _replace(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Put nodes in place of those of a graph, without those whose results nobody reads any more."""
    wanted, kept = {item.name for item in graph.output}, []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(reads(node))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept[::-1])
