"""The calls of `libhexagon_nn.so` (`native/hexagon_calls.c`): graphs, and their executions on a device.

Requests and answers are messages of `rkcosim.apis.link.protocol`.  `number` of a request is a graph, `number`
of an answer the value that the function returns.  Contents are numbers of 64 bits, and bytes behind their
number.

=============== ==================================================== ======================================
call            request                                              answer
=============== ==================================================== ======================================
INIT            priority                                             number: the graph
NODE            node, operation, padding, form of the outputs        -
                (`SIZES` or `BYTES`), inputs (int32: node, index),
                outputs (int64)
CONSTANT        node, four sizes, bytes                              -
EMPTY           node, four sizes, number of bytes                    -
POPULATE        node, offset, bytes                                  -
PREPARE         -                                                    -
EXECUTE         number of inputs, for each four sizes and bytes;     result, node, operation, number of
                number of outputs, for each the bytes of the memory  outputs; for each four sizes, bytes
                                                                     found; then the bytes of those that fit
TEARDOWN        -                                                    -
LOG, PRINT      -                                                    text
DEBUG           level                                                -
PERFINFO        -                                                    for each node: node, operation,
                                                                     executions, counter
RESET           event                                                -
CYCLES          -                                                    of the last execution, of all
NODE_TYPE       node                                                 operation
COUNT           -                                                    number of nodes
NUMBER, NAME    name; operation                                      operation; name
READ            node, output                                         four sizes, bytes
WRITE           node, output, four sizes (or none), bytes            -
=============== ==================================================== ======================================
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.account import Account
from rkcosim.apis.hexagon.execution import NOT_FOUND, SUCCESS, Accelerator, Execution, Outcome
from rkcosim.apis.hexagon.geometry import V1_PADDING, Padding
from rkcosim.apis.hexagon.graph import CONST, VARIABLE, Graph, GraphNode, State
from rkcosim.apis.hexagon.names import NAMES, NUMBERS
from rkcosim.apis.hexagon.npu import Npu
from rkcosim.apis.hexagon.rewriting import rewrite
from rkcosim.apis.hexagon.tensors import Declared, Edge, Failure, Shape, Value
from rkcosim.apis.link.protocol import Message, ProtocolError, Reader
from rkcosim.running.machine import Machine, Mismatch

EVENTS = 3
"""Counters of a node: cycles, bytes moved, cycles with a busy array."""

MOST_TENSORS = 10**4
"""Most inputs or outputs of an execution."""


class HexagonRequest(enum.IntEnum):
    """Kinds of requests, above those of the plug-ins."""

    INIT = 200
    NODE = 201
    CONSTANT = 202
    EMPTY = 203
    POPULATE = 204
    PREPARE = 205
    EXECUTE = 206
    TEARDOWN = 207
    LOG = 208
    PRINT = 209
    DEBUG = 210
    PERFINFO = 211
    RESET = 212
    CYCLES = 213
    NODE_TYPE = 214
    COUNT = 215
    NUMBER = 217
    NAME = 218
    READ = 219
    WRITE = 220


class Form(enum.IntEnum):
    """How outputs are declared: rank, eight sizes and bytes of an element, or only a number of bytes."""

    SIZES = 10
    BYTES = 1


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _shape(reader: Reader) -> Shape:
    sizes = [reader.number() for _ in range(4)]
    if min(sizes) < 0:
        raise Failure(f"a tensor of {sizes}")
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _declared(numbers: Sequence[int], form: Form) -> tuple[Declared, ...]:
    if len(numbers) % form:
        raise ProtocolError(f"{len(numbers)} numbers for outputs")
    if form == Form.BYTES:
        return tuple(Declared((), size) for size in numbers)
    found = []
    for at in range(0, len(numbers), form):
        rank, *sizes, element = numbers[at : at + form]
        found.append(Declared.of_sizes(rank, tuple(sizes), element))
    return tuple(found)


class HexagonCalls:
    """Graphs of one program.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._accelerator: Accelerator = Npu(machine)
        self._graphs: dict[int, Graph] = {}
        self._last = 0
        self._account = Account(machine.settings.check)
        machine.finish(self._account.finish)
        self._functions: dict[HexagonRequest, Callable[[Graph, Reader], bytes]] = {
            HexagonRequest.NODE: self._node,
            HexagonRequest.CONSTANT: self._constant,
            HexagonRequest.EMPTY: self._empty,
            HexagonRequest.POPULATE: self._populate,
            HexagonRequest.PREPARE: self._prepare,
            HexagonRequest.TEARDOWN: self._teardown,
            HexagonRequest.LOG: lambda graph, _: graph.take_log().encode(),
            HexagonRequest.PRINT: lambda graph, _: graph.text().encode(),
            HexagonRequest.DEBUG: self._debug,
            HexagonRequest.PERFINFO: self._perfinfo,
            HexagonRequest.RESET: self._reset,
            HexagonRequest.CYCLES: lambda graph, _: _numbers(graph.last_cycles, graph.total_cycles),
            HexagonRequest.NODE_TYPE: lambda graph, reader: _numbers(graph.node(reader.number()).operation),
            HexagonRequest.COUNT: self._count,
            HexagonRequest.READ: self._read,
            HexagonRequest.WRITE: self._write,
        }

    def greeting(self) -> bytes:
        """Return the longest time of a call in milliseconds."""
        return struct.pack("<Q", self._machine.settings.timeout * 1000)

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Execute a request and return the answer with its contents."""
        reader = Reader(memory[: request.used])
        call = HexagonRequest(request.call)
        code, content = 0, b""
        if call == HexagonRequest.INIT:
            self._last += 1
            self._graphs[self._last] = Graph(self._last)
            code = self._last
        elif call in (HexagonRequest.NUMBER, HexagonRequest.NAME):
            code, content = _named(call, reader)
        elif call == HexagonRequest.EXECUTE:
            code, content = self._execute(request.number, reader)
        elif (graph := self._graphs.get(request.number)) is None:
            code = -1
        else:
            try:
                content = self._functions[call](graph, reader)
            except Failure as failure:
                graph.say(str(failure))
                code = failure.code
        return Message(request.call, number=code % 2**64, size=request.size), content

    def _node(self, graph: Graph, reader: Reader) -> bytes:
        number, operation, padding = (reader.number() for _ in range(3))
        form = Form(reader.number())
        inputs, outputs = reader.ints(), reader.longs()
        edges = [Edge(a % 2**32, b % 2**32) for a, b in zip(inputs[::2], inputs[1::2], strict=True)]
        known = V1_PADDING if form == Form.BYTES else {one.value: one for one in Padding}
        if padding not in known:
            raise Failure(f"append: node 0x{number:x}: there is no padding {padding}")
        graph.append(GraphNode(number, operation, known[padding], tuple(edges), _declared(outputs, form)))
        return b""

    def _constant(self, graph: Graph, reader: Reader) -> bytes:
        number, shape = reader.number(), _shape(reader)
        graph.append_constant(number, shape, _array(reader.bytes()))
        return b""

    def _empty(self, graph: Graph, reader: Reader) -> bytes:
        number, shape, size = reader.number(), _shape(reader), reader.number()
        if not 0 <= size < 2**32:
            raise Failure(f"append: node 0x{number:x} (Const): {size} bytes")
        graph.append_constant(number, shape, np.zeros(size, np.uint8))
        return b""

    def _populate(self, graph: Graph, reader: Reader) -> bytes:
        number, offset = reader.number(), reader.number()
        graph.populate(number, _array(reader.bytes()), offset)
        return b""

    def _prepare(self, graph: Graph, _: Reader) -> bytes:
        graph.prepare()
        rewrite(graph)
        return b""

    def _teardown(self, graph: Graph, _: Reader) -> bytes:
        self._accelerator.forget(graph)
        self._account.add(graph)
        del self._graphs[graph.number]
        return b""

    def _debug(self, graph: Graph, reader: Reader) -> bytes:
        graph.debug_level = max(0, reader.number())
        return b""

    def _perfinfo(self, graph: Graph, _: Reader) -> bytes:
        rows = b""
        for node in graph.nodes:
            if node.operation != CONST:
                rows += _numbers(node.number, node.operation, node.executions, node.counts[graph.event])
        return rows

    def _reset(self, graph: Graph, reader: Reader) -> bytes:
        event = reader.number()
        if event >= EVENTS:
            raise Failure(
                f"reset_perfinfo: there is no event {event}, only cycles (0), bytes (1) and busy cycles (2)"
            )
        graph.event = event
        for node in graph.nodes:
            node.executions, node.counts = 0, [0] * EVENTS
        return b""

    def _count(self, graph: Graph, _: Reader) -> bytes:
        if graph.state != State.PREPARED:
            raise Failure("get_num_nodes_in_graph: the graph is not prepared")
        return _numbers(len(graph.nodes))

    def _variable(self, graph: Graph, reader: Reader) -> tuple[int, int]:
        node, index = graph.node(reader.number()), reader.number()
        if node.operation != VARIABLE or not 0 <= index < len(node.declared):
            raise Failure(f"{node.label} has no variable {index}")
        return node.number, index

    def _read(self, graph: Graph, reader: Reader) -> bytes:
        key = self._variable(graph, reader)
        if key not in graph.variables:
            raise Failure(f"variable {key[1]} of node 0x{key[0]:x} has no value")
        found = graph.variables[key]
        return _numbers(*found.shape, found.data.size) + found.data.tobytes()

    def _write(self, graph: Graph, reader: Reader) -> bytes:
        key = self._variable(graph, reader)
        whole, shape, data = reader.number(), _shape(reader), _array(reader.bytes()).copy()
        if not whole:
            known = graph.variables.get(key)
            shape = known.shape if known else (1, 1, 1, max(1, data.size))
        room = graph.node(key[0]).declared[key[1]].room
        if data.size > room:
            raise Failure(f"variable {key[1]} of node 0x{key[0]:x}: {data.size} bytes, but room for {room}")
        graph.variables[key] = Value(shape, data)
        return b""

    def _execute(self, number: int, reader: Reader) -> tuple[int, bytes]:
        graph = self._graphs.get(number)
        if graph is None:
            return -1, _numbers(NOT_FOUND, 0, 0, 0)
        inputs = []
        for _ in range(reader.count(MOST_TENSORS)):
            shape = _shape(reader)
            inputs.append(Value(shape, _array(reader.bytes()).copy()))
        rooms = [reader.number() for _ in range(reader.count(MOST_TENSORS))]
        try:
            outcome = Execution(graph, self._accelerator, inputs, rooms).run()
        except Mismatch as error:
            graph.say(f"execute: {error}")
            self._account.mismatch = self._account.mismatch or str(error)
            raise
        self._account.executed(graph, outcome)
        return (-1 if outcome.result else SUCCESS), _packed(outcome, rooms)


def _packed(outcome: Outcome, rooms: Sequence[int]) -> bytes:
    head = _numbers(outcome.result, outcome.node, outcome.operation, len(outcome.outputs))
    data = b""
    for found, room in zip(outcome.outputs, rooms, strict=False):
        head += _numbers(*found.shape, found.data.size)
        data += found.data.tobytes() if found.data.size <= room else b""
    return head + data


def _named(call: HexagonRequest, reader: Reader) -> tuple[int, bytes]:
    if call == HexagonRequest.NUMBER:
        found = NUMBERS.get(reader.text())
        return (-1, _numbers(-1)) if found is None else (0, _numbers(found))
    number = reader.number()
    return (0, NAMES[number].encode()) if 0 <= number < len(NAMES) else (-1, b"")
