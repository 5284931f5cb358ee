"""Einsum of two factors, written as transposed matrices and a MatMul, which the NPU computes."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class _Product:
    """The indices of an equation by their role, each as a text of letters.

    Members
    -------
    first, second, result
        Indices of both factors and of the result.
    batch
        Indices of all three.
    rows, columns
        Indices of the first factor and the result, and of the second factor and the result.
    summed
        Indices of both factors alone.
    """

    first: str
    second: str
    result: str
    batch: str
    rows: str
    columns: str
    summed: str

    @classmethod
    def of(cls, equation: str) -> _Product | None:
        """Read an equation with a letter for each index; None if it is not a product of two factors."""
        left, _, result = equation.partition("->")
        factors = left.split(",")
        if len(factors) != 2 or not all(part.isalpha() for part in (*factors, result)):
            return None
        first, second = factors
        if any(len(set(part)) != len(part) for part in (first, second, result)):
            return None
        batch = "".join(c for c in result if c in first and c in second)
        rows = "".join(c for c in result if c in first and c not in second)
        columns = "".join(c for c in result if c in second and c not in first)
        summed = "".join(c for c in first if c in second and c not in result)
        whole = set(first) | set(second) == set(batch + rows + columns + summed)
        if not whole or set(result) != set(batch + rows + columns) or not summed:
            return None
        return cls(first, second, result, batch, rows, columns, summed)


def as_product(
    node: onnx.NodeProto, shapes: Mapping[str, list[int]], graph: onnx.GraphProto
) -> list[onnx.NodeProto] | None:
    """Return the nodes that compute an Einsum of two factors; None for a node that stays as it is.

    Parameters
    ----------
    node
        Any node.
    shapes
        The known shapes of values.
    graph
        The graph, which gets constants.
    """
    if node.op_type != "Einsum" or node.domain not in ("", "ai.onnx") or len(node.input) != 2:
        return None
    equation = next((item.s.decode() for item in node.attribute if item.name == "equation"), "")
    known = [shapes.get(name) for name in node.input]
    ranks = [len(shape) for shape in known if shape is not None]
    if len(ranks) != 2 or (product := _Product.of(explicit(equation, ranks))) is None:
        return None
    sizes: dict[str, int] = {}
    for indices, shape in zip((product.first, product.second), known, strict=True):
        if shape is None or len(shape) != len(indices):
            return None
        for index, size in zip(indices, shape, strict=True):
            if sizes.setdefault(index, size) != size:  # a dimension of 1 that is repeated
                return None
    maker = _Maker(node.name or node.output[0], sizes, graph)
    p, result = product, node.output[0]
    a = maker.arranged(node.input[0], p.first, (p.batch, p.rows, p.summed), "a")
    b = maker.arranged(node.input[1], p.second, (p.batch, p.summed, p.columns), "b")
    order = p.batch + p.rows + p.columns
    plain = order == p.result and len(p.rows) == len(p.columns) == 1
    multiplied = result if plain else f"{result}_product"
    maker.add("MatMul", [a, b], multiplied)
    if not plain:
        split = multiplied
        if (len(p.rows), len(p.columns)) != (1, 1):
            split = result if order == p.result else f"{result}_split"
            maker.reshape(multiplied, [sizes[index] for index in order], split)
        if order != p.result:
            maker.add("Transpose", [split], result, perm=[order.index(index) for index in p.result])
    maker.nodes[-1].name = maker.name
    return maker.nodes


def explicit(equation: str, ranks: Sequence[int]) -> str:
    """Return an equation with its result, and with letters instead of dots.

    Without a result it has the indices that occur once, in alphabetic order, behind those of the dots
    (ONNX, operator Einsum).

    Parameters
    ----------
    equation
        The equation of an Einsum.
    ranks
        Dimensions of its factors.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    factors = left.split(",")
    if not arrow:
        letters = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        result = ("..." if "..." in left else "") + "".join(letters)
    free = [c for c in string.ascii_letters if c not in equation]
    counts = [
        rank - len(part.replace("...", "")) if "..." in part else 0
        for part, rank in zip(factors, ranks, strict=False)
    ]
    most = max(counts, default=0)
    if min(counts, default=0) < 0 or most > len(free):
        return equation
    dots = "".join(free[:most])
    parts = [part.replace("...", dots[most - count :]) for part, count in zip(factors, counts, strict=False)]
    return f"{','.join(parts)}->{result.replace('...', dots)}"


class _Maker:
    """Makes the nodes of one Einsum."""

    def __init__(self, name: str, sizes: dict[str, int], graph: onnx.GraphProto) -> None:
        self.name, self._sizes, self._graph = name, sizes, graph
        self.nodes: list[onnx.NodeProto] = []

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node and return its output."""
        name = f"{self.name}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def reshape(self, source: str, shape: Sequence[int], output: str) -> str:
        """Add a Reshape and return its output."""
        return self.add("Reshape", [source, shape_constant(self._graph, output, shape)], output)

    def arranged(self, source: str, indices: str, groups: tuple[str, str, str], name: str) -> str:
        """Return a factor with its indices in the order of the groups; each of the last two is one index."""
        order = "".join(groups)
        value, stem = source, f"{self.name}_{name}"
        if order != indices:
            value = self.add("Transpose", [value], stem, perm=[indices.index(index) for index in order])
        if any(len(group) != 1 for group in groups[1:]):
            batch, *matrix = groups
            shape = [self._sizes[index] for index in batch]
            shape += [math.prod(self._sizes[index] for index in group) for group in matrix]
            value = self.reshape(value, shape, f"{stem}_matrix")
        return value


def shape_constant(graph: onnx.GraphProto, output: str, shape: Sequence[int]) -> str:
    """Add the constant with the shape of a Reshape that makes `output`, and return its name."""
    name = f"{output}_shape"
    graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), name))
    return name
