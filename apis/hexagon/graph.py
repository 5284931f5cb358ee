"""Graphs under construction and prepared: nodes, their numbers, and the rules of nnlib."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.names import NAMES, NUMBERS
from rkcosim.apis.hexagon.operations import OPERATIONS
from rkcosim.apis.hexagon.tensors import Declared, Edge, Failure, Shape, Value

INPUT, OUTPUT, CONST = NUMBERS["INPUT"], NUMBERS["OUTPUT"], NUMBERS["Const"]
VARIABLE, ASSIGN = NUMBERS["Variable"], NUMBERS["Assign"]

RESERVED = 0xF000_0000
"""The first of the numbers of nodes that nnlib uses itself."""

LARGEST = 1 << 28
"""Elements that a constant must be below."""

LOG_BYTES = 1 << 20
"""Bytes of the log that are kept; later lines are dropped until it is read."""

OWN = {INPUT: ((0, 0), (0, None)), OUTPUT: ((0, None), (0, 0))} | {
    VARIABLE: ((0, None), (1, None)),
    ASSIGN: ((2, None), (0, None)),
}
"""Operations of the graph itself: least and most inputs and outputs."""


class State(enum.Enum):
    """What may be done with a graph."""

    CONSTRUCTION = "under construction"
    PREPARED = "prepared"


@dataclass
class GraphNode:
    """A node of a graph.

    Members
    -------
    number : its number, chosen by the program.
    operation : number of its operation.
    padding : its padding.
    inputs, declared : its inputs, and its declared outputs.
    value : the constant, for a node Const.
    executions : how often it was executed since the counters were reset.
    counts : cycles, bytes moved, and cycles with a busy array since then.
    totals : the same since the node was appended.
    place : where it ran last ("npu", "host", or "" if it has not run).
    """

    number: int
    operation: int
    padding: Padding = Padding.NA
    inputs: tuple[Edge, ...] = ()
    declared: tuple[Declared, ...] = ()
    value: Value | None = None
    executions: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    totals: list[int] = field(default_factory=lambda: [0, 0, 0])
    place: str = ""

    @property
    def name(self) -> str:
        """Name of its operation."""
        return NAMES[self.operation]

    @property
    def label(self) -> str:
        """Number and operation, for messages."""
        return f"node 0x{self.number:x} ({self.name})"


def _within(count: int, limits: tuple[int, int | None]) -> bool:
    return limits[0] <= count and (limits[1] is None or count <= limits[1])


class Graph:
    """A graph.

    Parameters
    ----------
    number : its number.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = State.CONSTRUCTION
        self.nodes: list[GraphNode] = []
        self.by_number: dict[int, GraphNode] = {}
        self.variables: dict[tuple[int, int], Value] = {}
        self.debug_level = 0
        self.event = 0
        self.last_cycles = 0
        self.total_cycles = 0
        self._log: list[str] = []
        self._size = 0

    # -- the log ------------------------------------------------------------------------------------------

    def say(self, text: str, level: int = 0) -> None:
        """Write a line to the log if the debug level is at least `level`."""
        if level <= self.debug_level and self._size + len(text) < LOG_BYTES:
            self._log.append(text)
            self._size += len(text) + 1

    def take_log(self) -> str:
        """Return the log, and empty it."""
        text = "".join(f"{line}\n" for line in self._log)
        self._log, self._size = [], 0
        return text

    # -- construction -------------------------------------------------------------------------------------

    def check_construction(self) -> None:
        """Raise Failure unless nodes may be appended."""
        if self.state != State.CONSTRUCTION:
            raise Failure("append: the graph is not under construction")

    def _check_number(self, number: int) -> None:
        if number == 0 or number >= RESERVED:
            raise Failure(f"append: the number 0x{number:x} is reserved")

    def append(self, node: GraphNode) -> None:
        """Append a node.

        Raises
        ------
        Failure
            if the graph is prepared, the number is reserved, the operation does not exist here, or it has
            another number of inputs or outputs.
        """
        self.check_construction()
        self._check_number(node.number)
        if node.operation >= len(NAMES):
            raise Failure(f"append: node 0x{node.number:x}: there is no operation {node.operation}")
        if node.operation == CONST:
            raise Failure(f"append: {node.label}: constants have a call of their own")
        known = OPERATIONS.get(node.operation)
        limits = OWN.get(node.operation) or ((known.inputs, known.outputs) if known else None)
        if limits is None:
            raise Failure(f"append: {node.label}: the operation {node.operation} is not implemented")
        for what, count, allowed in zip(
            ("inputs", "outputs"), (len(node.inputs), len(node.declared)), limits, strict=True
        ):
            if not _within(count, allowed):
                raise Failure(f"append: {node.label}: {count} {what}, but {_limits_text(allowed)} expected")
        self.nodes.append(node)

    def append_constant(self, number: int, shape: Shape, data: npt.NDArray[np.uint8]) -> None:
        """Append a constant; `data` is copied.

        Raises
        ------
        Failure
            if the graph is prepared, the number is reserved, or the constant is too large.
        """
        self.check_construction()
        self._check_number(number)
        if math.prod(shape) >= LARGEST:
            raise Failure(f"append: node 0x{number:x} (Const): {math.prod(shape)} elements")
        declared = (Declared(shape, data.size),)
        self.nodes.append(GraphNode(number, CONST, declared=declared, value=Value(shape, data.copy())))

    def populate(self, number: int, data: npt.NDArray[np.uint8], offset: int) -> None:
        """Write a part of a constant; raises Failure if there is none, or it is too small."""
        self.check_construction()
        found = next((n for n in self.nodes if n.number == number and n.value is not None), None)
        if found is None or found.value is None:
            raise Failure(f"populate: there is no constant 0x{number:x}")
        if offset + data.size > found.value.data.size:
            raise Failure(
                f"populate: bytes {offset} to {offset + data.size} of {found.value.data.size} ({found.label})"
            )
        found.value.data[offset : offset + data.size] = data

    # -- preparation --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Check all references; nodes can be executed then, and no longer appended.

        Raises
        ------
        Failure
            if the graph is prepared already, a number is used twice, or an input refers to a node that does
            not exist, comes later, or has fewer outputs; all errors but the last are in the log.
        """
        if self.state != State.CONSTRUCTION:
            raise Failure("prepare: the graph is not under construction")
        errors = []
        kept: list[GraphNode] = []
        known: dict[int, GraphNode] = {}
        for node in self.nodes:
            if node.number in known:
                if node.operation == CONST == known[node.number].operation:
                    self.say(f"prepare: {node.label} is ignored: the number is used before", 1)
                    continue
                errors.append(f"prepare: {node.label}: the number is used before")
            kept.append(node)
            known.setdefault(node.number, node)
        place = {id(node): n for n, node in enumerate(kept)}
        for node in kept:
            errors += [
                f"prepare: {node.label}: input {n} {text}"
                for n, edge in enumerate(node.inputs)
                if (text := _wrong(edge, known, place, place[id(node)]))
            ]
        if errors:
            for text in errors[:-1]:
                self.say(text)
            raise Failure(errors[-1])
        self.nodes, self.by_number = kept, known
        self.state = State.PREPARED

    def node(self, number: int) -> GraphNode:
        """Return a node; raises Failure if there is none."""
        for node in self.nodes:
            if node.number == number:
                return node
        raise Failure(f"there is no node 0x{number:x}")

    def text(self) -> str:
        """Return a line for each node, with its inputs and outputs if the debug level is above 0."""
        lines = [f"graph {self.number}: {self.state.value}, debug level {self.debug_level}"]
        for node in self.nodes:
            line = f"node 0x{node.number:x}: operation {node.operation} ({node.name})"
            line += f", padding {node.padding.name}, {len(node.inputs)} inputs, {len(node.declared)} outputs"
            if node.place:
                line += f", on the {'NPU' if node.place == 'npu' else 'host'}, {node.executions} executions"
            lines.append(line)
            if self.debug_level > 0:
                lines += [
                    f"    input {n}: output {e.index} of node 0x{e.source:x}"
                    for n, e in enumerate(node.inputs)
                ]
                lines += [f"    output {n}: {_sizes(d)}" for n, d in enumerate(node.declared)]
        return "".join(f"{line}\n" for line in [*lines, f"{len(self.nodes)} nodes"])


def _sizes(declared: Declared) -> str:
    sizes = "x".join(str(n) for n in declared.sizes)
    return f"up to {sizes}, {declared.room} bytes" if sizes else f"up to {declared.room} bytes"


def _limits_text(limits: tuple[int, int | None]) -> str:
    low, high = limits
    if high is None:
        return f"at least {low} are"
    return f"{low} to {high} are" if low != high else f"{low} {'is' if low == 1 else 'are'}"


def _wrong(edge: Edge, known: dict[int, GraphNode], place: dict[int, int], own: int) -> str:
    """Return what is wrong with an input of the node at position `own`, or an empty text."""
    source = known.get(edge.source)
    if source is None:
        return f"refers to node 0x{edge.source:x}, which does not exist"
    if edge.index >= len(source.declared):
        return f"refers to output {edge.index} of {source.label}, which has {len(source.declared)}"
    if place[id(source)] >= own:
        return f"refers to {source.label}, which comes later"
    return ""
