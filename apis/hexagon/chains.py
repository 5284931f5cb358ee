"""Nodes that can become one layer of the NPU: a convolution, its bias, a requantisation and an activation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import (
    Quotient,
    Range,
    bias_sums,
    f32,
    sums_range,
    with_zero_between,
)
from rkcosim.apis.hexagon.execution import call_of
from rkcosim.apis.hexagon.geometry import Geometry, geometry, window_of
from rkcosim.apis.hexagon.graph import Graph, GraphNode
from rkcosim.apis.hexagon.host_sums import DENSE, SUPERNODE, HostArithmetic, check_bias
from rkcosim.apis.hexagon.layers import Convolution
from rkcosim.apis.hexagon.operations import OPERATIONS, NodeCall
from rkcosim.apis.hexagon.tensors import Edge, Failure, Value, quantised, range_of, single, value

Array = npt.NDArray[Any]

CONV, DEPTHWISE, MATMUL = (
    "QuantizedConv2d_8x8to32",
    "QuantizedDepthwiseConv2d_8x8to32",
    "QuantizedMatMul_8x8to32",
)
TO_SUMS = {CONV, DEPTHWISE, MATMUL}
BIAS, REQUANTISE = "QuantizedBiasAdd_32p32to32", "Requantize_32to8"
DENSE_NAME = "SuperFC_8x8p32to8"
PRODUCTS = {MATMUL, DENSE_NAME}
ACTIVATIONS = {"QuantizedRelu_8", "QuantizedReluX_8", "QuantizedClamp_8"}


def family(node: GraphNode) -> str:
    """Return the name of a node's operation without a twin's suffix, "" for those of the graph itself."""
    known = OPERATIONS.get(node.operation)
    return known.name if known else ""


@dataclass(frozen=True)
class Chain:
    """Nodes in their order: the first makes sums, and each other alone reads the one before."""

    nodes: tuple[GraphNode, ...]

    @property
    def first(self) -> GraphNode:
        """The convolution or product."""
        return self.nodes[0]

    @property
    def last(self) -> GraphNode:
        """The node with the codes."""
        return self.nodes[-1]


class Chains:
    """The chains of a prepared graph.

    Parameters
    ----------
    graph : the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers: dict[Edge, list[GraphNode]] = defaultdict(list)
        for node in graph.nodes:
            for edge in node.inputs:
                self._readers[edge].append(node)

    def from_node(self, node: GraphNode) -> Chain | None:
        """Return the longest chain from a node, or None if it does not end in bytes."""
        nodes = [node]
        if family(node) in TO_SUMS:
            if (following := self._next(nodes, {BIAS})) is not None:
                nodes.append(following)
            if (following := self._next(nodes, {REQUANTISE})) is None:
                return None
            nodes.append(following)
        if (following := self._next(nodes, ACTIVATIONS)) is not None:
            nodes.append(following)
        return Chain(tuple(nodes))

    def _next(self, nodes: list[GraphNode], wanted: set[str]) -> GraphNode | None:
        """Return the node that alone reads the last of some nodes, if it is of a wanted operation."""
        edges = [Edge(nodes[-1].number, n) for n in range(len(nodes[-1].declared))]
        readers = self._readers[edges[0]]
        if len(readers) != 1 or family(readers[0]) not in wanted or readers[0].inputs[0] != edges[0]:
            return None
        following = readers[0]
        known = {node.number for node in (*nodes, following)}
        inside = all(reader.number in known for edge in edges[1:] for reader in self._readers[edge])
        return following if inside else None


class ChainFunction:
    """What a chain computes of sums that include the bias.

    Parameters
    ----------
    graph : the graph.
    chain : the chain.
    values : tensors that are known before its first node, except constants.

    Raises
    ------
    Failure
        if a scalar is not known, or a weight or bias is not constant.
    """

    def __init__(self, graph: Graph, chain: Chain, values: Mapping[Edge, Value]) -> None:
        self._graph, self._chain, self._values = graph, chain, values
        self._read: dict[Edge, bytes] = {}
        first = chain.first
        self.name = family(first)
        self.inputs = [self._known(edge) for edge in first.inputs]
        self.given = range_of(*self.inputs[2:4])
        self.weights = range_of(*self.inputs[4:6])
        self.step = float(f32(self.given.step) * f32(self.weights.step))
        self.bias = self._bias()
        self._rest = chain.nodes[1:]
        if self._rest and family(self._rest[0]) == BIAS:
            self._rest = self._rest[1:]
        ends = self.outputs(np.zeros(1, np.int64))
        self.limits: Range = range_of(*ends[1:3])

    def _known(self, edge: Edge) -> Value:
        source = self._graph.by_number[edge.source]
        found = source.value if source.value is not None else self._values.get(edge)
        if found is None:
            raise Failure(f"output {edge.index} of {source.label} is not known yet")
        if source.value is None and edge != self._chain.first.inputs[0]:
            self._read[edge] = found.data.tobytes()
        return found

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything on which the function depends, beside constants: the input's shape and all scalars."""
        return self.inputs[0].shape, tuple(self._read.items())

    def constant(self, edge: Edge) -> Value:
        """Return a constant; raises Failure for another tensor."""
        found = self._graph.by_number[edge.source].value
        if found is None:
            raise Failure(f"node 0x{edge.source:x} is not a constant")
        return found

    @property
    def kernels(self) -> int:
        """Number of output channels."""
        w = self.constant(self._chain.first.inputs[1])
        return w.shape[2] * w.shape[3] if self.is_depthwise else w.shape[3]

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has kernels of its own."""
        return self.name.startswith(("QuantizedDepthwise", "Depthwise"))

    @property
    def _places(self) -> tuple[int, int, int]:
        """Inputs of a fused operation: the ranges of its bias and of its output, the factors of channels."""
        return DENSE if self.name == DENSE_NAME else SUPERNODE

    def _bias(self) -> npt.NDArray[np.int64]:
        """Return the bias in units of the sums."""
        first, second = self._chain.first, self._chain.nodes[min(1, len(self._chain.nodes) - 1)]
        if self.name not in TO_SUMS:
            place = self._places[0]
            bias, limits = self.constant(first.inputs[place - 1]), range_of(*self.inputs[place : place + 2])
        elif family(second) == BIAS:
            bias = self.constant(second.inputs[1])
            limits = range_of(*(self._known(edge) for edge in second.inputs[4:6]))
        else:
            return np.zeros(self.kernels, np.int64)
        check_bias(bias, self.kernels)
        numbers = bias.codes if bias.itemsize == 1 else bias.ints
        step = self.step if self.name not in TO_SUMS else sums_range(self.step).step32
        return bias_sums(numbers.reshape(-1), limits, step)

    def outputs(self, sums: Array) -> list[Value]:
        """Return the outputs of the chain's last node for sums with bias, int64 of any shape."""
        flat = np.asarray(sums).reshape(1, 1, -1, 1)
        known: dict[Edge, Value] = {}
        if self.name in TO_SUMS:
            limits = sums_range(self.step)
            found = [value(flat.astype(np.int32)), single(limits.low), single(limits.high)]
        else:
            found = self._fused(flat)
        for node in self._chain.nodes:
            if node in self._rest:
                inputs = {edge: known[edge] if edge in known else self._known(edge) for edge in node.inputs}
                found = OPERATIONS[node.operation].function(self._call(node, inputs))
            known |= {Edge(node.number, n): one for n, one in enumerate(found)}
        return found

    def _call(self, node: GraphNode, inputs: dict[Edge, Value]) -> NodeCall:
        return call_of(self._graph, node, inputs, HostArithmetic())

    def _fused(self, sums: Array) -> list[Value]:
        low, high = (self.inputs[self._places[1] + n].scalar for n in range(2))
        if not np.isfinite([low, high]).all() or len(self.inputs) > self._places[2]:
            raise Failure(
                "the range of the output depends on the data, or channels have factors of their own"
            )
        limits = with_zero_between(low, high)
        return quantised(Quotient(self.step, limits).codes(sums), limits)

    def codes(self, sums: Array) -> npt.NDArray[np.uint8]:
        """Return the codes of sums with bias, in their shape."""
        return self.outputs(sums)[0].codes.reshape(np.shape(sums))

    def convolution(self) -> Convolution:
        """Return the chain as a convolution of bytes.

        Raises
        ------
        Failure
            if the NPU has no such convolution.
        """
        x, w = self.inputs[0], self.constant(self._chain.first.inputs[1])
        shape, weights = (x.shape[1], x.shape[2], x.shape[3]), w.codes
        if self.name in PRODUCTS:
            rows = x.elements // w.shape[2]
            shape, window = (1, rows, w.shape[2]), Geometry((1, 1), (1, 1), (0, 0, 0, 0), (1, rows))
        else:
            strides = window_of(self.inputs[6], "strides")
            window = geometry(x, w.shape[:2], strides, self._chain.first.padding)
        if self.is_depthwise and w.shape[3] != 1:
            raise Failure("several kernels for each channel")
        return Convolution(
            f"0x{self._chain.first.number:x} {self._chain.first.name}",
            shape,
            weights,
            self.given.zero,
            self.weights.zero,
            window,
            self.bias,
            self.is_depthwise,
            self.codes,
            self.step,
            self.limits,
        )
