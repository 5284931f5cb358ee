"""Execution of a prepared graph: its nodes in their order, on the NPU where that is exact, or on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rkcosim.apis.hexagon import (
    host_blocks,
    host_bytes,
    host_checks,
    host_floats,
    host_moves,
    host_pools,
    host_sums,
    host_variants,
)
from rkcosim.apis.hexagon.graph import ASSIGN, CONST, INPUT, OUTPUT, VARIABLE, Graph, GraphNode, State
from rkcosim.apis.hexagon.operations import OPERATIONS, Arithmetic, NodeCall
from rkcosim.apis.hexagon.tensors import Edge, Failure, Value

MODULES = (
    host_blocks,
    host_bytes,
    host_checks,
    host_floats,
    host_moves,
    host_pools,
    host_sums,
    host_variants,
)
"""The modules that register operations."""

UNUSABLE = (Failure, ArithmeticError, IndexError, MemoryError, TypeError, ValueError)
"""Errors that tensors cause which an operation cannot take; the node fails, and the graph remains usable."""

SUCCESS, ERROR, BUFFER_SIZE, NOT_FOUND, NOT_PREPARED = 0, 1, 2, 4, 5
"""Results of an execution in `execute_info`."""


@dataclass
class Usage:
    """What the NPU did for one node.

    Members
    -------
    cycles, bytes, busy : cycles of its jobs, bytes that they moved, and their cycles with a busy array.
    jobs : number of jobs.
    """

    cycles: int = 0
    bytes: int = 0
    busy: int = 0
    jobs: int = 0


class Accelerator(Protocol):
    """Computes sums of products and whole layers, and counts what that takes."""

    arithmetic: Arithmetic

    def take_usage(self) -> Usage:
        """Return what was used since the last call."""
        ...

    def run_layer(self, graph: Graph, node: GraphNode, values: dict[Edge, Value]) -> bool:
        """Compute a node, with the nodes that follow it if possible, in one layer.

        Returns
        -------
        Whether that was possible; then the outputs of all these nodes are in `values`.
        """
        ...

    def forget(self, graph: Graph) -> None:
        """Free what is kept for a graph."""
        ...


class HostOnly:
    """An accelerator that does nothing: numpy computes all sums."""

    def __init__(self) -> None:
        self.arithmetic: Arithmetic = host_sums.HostArithmetic()

    def take_usage(self) -> Usage:
        """Return zeros."""
        return Usage()

    def run_layer(self, graph: Graph, node: GraphNode, values: dict[Edge, Value]) -> bool:
        """Return that no layer can be computed."""
        return False

    def forget(self, graph: Graph) -> None:
        """Do nothing."""


@dataclass
class Outcome:
    """The result of an execution.

    Members
    -------
    result : one of the constants of this module.
    outputs : the tensors of the nodes OUTPUT, also of those that do not fit the program's memory.
    node, operation : the node that failed.
    """

    result: int = SUCCESS
    outputs: list[Value] = field(default_factory=list)
    node: int = 0
    operation: int = 0


def call_of(graph: Graph, node: GraphNode, values: dict[Edge, Value], arithmetic: Arithmetic) -> NodeCall:
    """Return the execution of a node on its inputs."""
    inputs = [values[edge] for edge in node.inputs]
    return NodeCall(node.name, node.number, node.padding, inputs, node.declared, arithmetic, graph.say)


def check_room(node: GraphNode, outputs: Sequence[Value]) -> None:
    """Raise Failure if an output is larger than it was declared."""
    for number, (declared, found) in enumerate(zip(node.declared, outputs, strict=False)):
        if declared.room < found.data.size:
            raise Failure(f"output {number} is too small: {declared.room} of {found.data.size} bytes")
    if len(outputs) < len(node.declared):
        raise Failure(f"{len(node.declared)} outputs are declared, but there are {len(outputs)}")


class Execution:
    """One execution of a graph.

    Parameters
    ----------
    graph : the graph.
    accelerator : what computes sums and layers.
    inputs : tensors for the nodes INPUT.
    rooms : bytes of the program's memory for each output.
    """

    def __init__(
        self, graph: Graph, accelerator: Accelerator, inputs: Sequence[Value], rooms: Sequence[int]
    ) -> None:
        self._graph, self._accelerator = graph, accelerator
        self._inputs, self._rooms = inputs, rooms
        self._values: dict[Edge, Value] = {}
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Execute all nodes; errors are in the log of the graph."""
        graph = self._graph
        if graph.state != State.PREPARED:
            graph.say("execute: the graph is not prepared")
            return Outcome(NOT_PREPARED)
        graph.last_cycles = 0
        for node in graph.nodes:
            if node.operation != CONST and not self._run(node):
                break
        graph.total_cycles += graph.last_cycles
        return self._outcome

    def _run(self, node: GraphNode) -> bool:
        """Execute a node; return whether that succeeded."""
        try:
            if node.operation == OUTPUT:
                self._output(node)
            else:
                with np.errstate(all="ignore"):  # infinities and NaN of the program's numbers
                    self._compute(node)
        except UNUSABLE as error:
            self._graph.say(f"execute: {node.label}: {error}")
            code = error.code if isinstance(error, Failure) else ERROR
            self._outcome.result = code if code > 0 else ERROR
            self._outcome.node, self._outcome.operation = node.number, node.operation
            return False
        finally:
            self._count(node)
        return True

    def _count(self, node: GraphNode) -> None:
        used = self._accelerator.take_usage()
        node.executions += 1
        for event, amount in enumerate((used.cycles, used.bytes, used.busy)):
            node.counts[event] += amount
            node.totals[event] += amount
        self._graph.last_cycles += used.cycles
        if used.jobs:
            node.place = "npu"
        elif not node.place or node.place == "host":
            node.place = "host"
        if self._graph.debug_level >= 2:
            self._graph.say(f"execute: {node.label}: {used.cycles} cycles, {used.bytes} bytes", 2)

    def _compute(self, node: GraphNode) -> None:
        values = self._values
        self._constants(node)
        outputs = [Edge(node.number, n) for n in range(len(node.declared))]
        if outputs and all(edge in values for edge in outputs):  # a layer of the NPU made them
            check_room(node, [values[edge] for edge in outputs])
            return
        if node.operation == INPUT:
            found = self._take_inputs(node)
        elif node.operation == VARIABLE:
            found = self._variable(node)
        elif node.operation == ASSIGN:
            found = self._assign(node)
        else:
            operation = OPERATIONS[node.operation]
            if operation.place == "layer" and self._accelerator.run_layer(self._graph, node, values):
                check_room(node, [values[edge] for edge in outputs])
                return
            found = operation.function(call_of(self._graph, node, values, self._accelerator.arithmetic))
        check_room(node, found)
        values.update(zip(outputs, found, strict=False))

    def _constants(self, node: GraphNode) -> None:
        """Put the constants among a node's inputs into the values."""
        for edge in node.inputs:
            source = self._graph.by_number[edge.source]
            if source.value is not None:
                self._values[edge] = source.value

    def _take_inputs(self, node: GraphNode) -> list[Value]:
        if len(self._inputs) != len(node.declared):
            raise Failure(f"{len(node.declared)} inputs are declared, but {len(self._inputs)} were given")
        return list(self._inputs)

    def _output(self, node: GraphNode) -> None:
        self._constants(node)
        if len(self._rooms) != len(node.inputs):
            raise Failure(
                f"the graph has {len(node.inputs)} outputs, but memory for {len(self._rooms)} was given"
            )
        self._outcome.outputs = [self._values[edge] for edge in node.inputs]
        for number, (found, room) in enumerate(zip(self._outcome.outputs, self._rooms, strict=True)):
            if found.data.size > room:
                raise Failure(f"output {number} is too small: {room} of {found.data.size} bytes", BUFFER_SIZE)

    def _variable(self, node: GraphNode) -> list[Value]:
        """Return the variable's values; before an assignment they are those of the node's inputs."""
        found = []
        for number in range(len(node.declared)):
            key = node.number, number
            if key not in self._graph.variables:
                if number >= len(node.inputs):
                    raise Failure(f"variable {number} has no value")
                self._graph.variables[key] = self._values[node.inputs[number]]
            found.append(self._graph.variables[key])
        return found

    def _assign(self, node: GraphNode) -> list[Value]:
        copies = []
        for target, source in zip(node.inputs[::2], node.inputs[1::2], strict=False):
            if self._graph.by_number[target.source].operation != VARIABLE:
                raise Failure(f"0x{target.source:x} is not a variable")
            new = self._values[source]
            self._graph.variables[target.source, target.index] = self._values[target] = new
            copies.append(new)
        return copies[: len(node.declared)]
