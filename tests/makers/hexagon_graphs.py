"""Graphs of Hexagon NN for tests, built without the C library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rkcosim.apis.hexagon.execution import Accelerator, Execution, HostOnly, Outcome
from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.graph import INPUT, OUTPUT, Graph, GraphNode
from rkcosim.apis.hexagon.names import NUMBERS
from rkcosim.apis.hexagon.rewriting import rewrite
from rkcosim.apis.hexagon.tensors import Declared, Edge, Value, value

ROOM = 1 << 22
"""Bytes of each declared output, unless a test says otherwise."""


class Builder:
    """A graph under construction; nodes get numbers from 1 on."""

    def __init__(self) -> None:
        self.graph = Graph(1)
        self._last = 0

    def number(self) -> int:
        """Return a new number of a node."""
        self._last += 1
        return self._last

    def node(
        self,
        name: str,
        inputs: Sequence[Edge] = (),
        outputs: int = 1,
        padding: Padding = Padding.NA,
        room: int = ROOM,
    ) -> list[Edge]:
        """Append a node and return its outputs."""
        number = self.number()
        declared = tuple(Declared((), room) for _ in range(outputs))
        self.graph.append(GraphNode(number, NUMBERS[name], padding, tuple(inputs), declared))
        return [Edge(number, n) for n in range(outputs)]

    def constant(self, array: object, dtype: type = np.float32) -> Edge:
        """Append a constant of up to four dimensions."""
        found = value(np.atleast_1d(np.asarray(array, dtype)))
        number = self.number()
        self.graph.append_constant(number, found.shape, found.data)
        return Edge(number, 0)

    def shape(self, *sizes: int) -> Edge:
        """Append a constant of which only the shape counts."""
        number = self.number()
        self.graph.append_constant(number, (sizes[0], sizes[1], sizes[2], sizes[3]), np.zeros(0, np.uint8))
        return Edge(number, 0)

    def range(self, low: float, high: float) -> list[Edge]:
        """Append two scalars."""
        return [self.constant(low), self.constant(high)]

    def input(self, count: int = 1) -> list[Edge]:
        """Append the node INPUT."""
        number = self.number()
        declared = tuple(Declared((), ROOM) for _ in range(count))
        self.graph.append(GraphNode(number, INPUT, declared=declared))
        return [Edge(number, n) for n in range(count)]

    def output(self, edges: Sequence[Edge]) -> None:
        """Append the node OUTPUT."""
        self.graph.append(GraphNode(self.number(), OUTPUT, inputs=tuple(edges)))

    def prepared(self) -> Graph:
        """Prepare the graph and return it."""
        self.graph.prepare()
        rewrite(self.graph)
        return self.graph


def execute(
    graph: Graph, inputs: Sequence[np.ndarray] = (), accelerator: Accelerator | None = None
) -> Outcome:
    """Execute a prepared graph with memory for every output."""
    outputs = sum(len(node.inputs) for node in graph.nodes if node.operation == OUTPUT)
    given = [value(one) for one in inputs]
    return Execution(graph, accelerator or HostOnly(), given, [ROOM] * outputs).run()


def run_node(
    name: str, inputs: Sequence[np.ndarray | Value], outputs: int = 1, padding: Padding = Padding.NA
) -> list[Value]:
    """Execute one node on the host on constants and return its outputs.

    Raises
    ------
    AssertionError
        if the node fails; the message is the graph's log.
    """
    b = Builder()
    edges = []
    for one in inputs:
        found = one if isinstance(one, Value) else value(one)
        number = b.number()
        b.graph.append_constant(number, found.shape, found.data)
        edges.append(Edge(number, 0))
    b.output(b.node(name, edges, outputs, padding))
    outcome = execute(b.prepared())
    assert outcome.result == 0, b.graph.take_log()
    return outcome.outputs


def shape_only(*sizes: int) -> Value:
    """Return a tensor of which only the shape counts."""
    return Value((sizes[0], sizes[1], sizes[2], sizes[3]), np.zeros(0, np.uint8))


def scalar(number: float) -> np.ndarray:
    """Return a float scalar."""
    return np.array([number], np.float32)


def whole(*numbers: int) -> np.ndarray:
    """Return a list of int32."""
    return np.array(numbers, np.int32)
