"""The calls of the delegate of LiteRT (`native/litert_delegate.c`)."""

from __future__ import annotations

import numpy as np

from rkcosim.apis.link.protocol import Message, ProtocolError, Reader, RequestKind, Status
from rkcosim.apis.litert.graph import RuntimeGraph, greeting, read_graph
from rkcosim.apis.litert.parts import Leave, Part, PartNumbers
from rkcosim.running.machine import GraphCount, Left, Machine

NOT_READ = "the delegate does not know this operator or a type of its tensors"


class LiteRtCalls:
    """Graphs and parts of one delegate.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._graphs: dict[int, RuntimeGraph] = {}
        self._parts: dict[int, Part] = {}
        self._known: dict[tuple[int, PartNumbers], int | Leave] = {}
        self._counts: dict[int, GraphCount] = {}
        self._last = 0

    def greeting(self) -> bytes:
        """Return what the delegate must know."""
        return greeting(self._machine.settings.timeout * 1000, self._machine.settings.dynamic)

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Execute a request and return the answer with its contents."""
        reader = Reader(memory[: request.used])
        if request.call == RequestKind.GRAPH:
            return self._graph(request, reader)
        if request.call == RequestKind.COMPILE:
            return self._compile(request, reader)
        if request.call == RequestKind.RUN:
            self._part(request.number).run(memory[: request.used])
        elif request.call == RequestKind.FORGET:
            self._forget(request.number)
        elif request.call == RequestKind.RELEASE:
            self._part(request.number).unload()
            del self._parts[request.number]
        else:
            raise ProtocolError(f"call {request.call} is unknown")
        return Message(request.call, size=request.size), b""

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _part(self, number: int) -> Part:
        if number not in self._parts:
            raise ProtocolError(f"there is no part {number}")
        return self._parts[number]

    def _graph(self, request: Message, reader: Reader) -> tuple[Message, bytes]:
        graph, number = read_graph(reader), self._number()
        self._graphs[number] = graph
        self._counts[number] = GraphCount(len(graph.nodes))
        self._machine.count_graph(self._counts[number])
        usable = [graph.is_usable(node) for node in graph.nodes]
        for node, good in zip(graph.nodes, usable, strict=True):
            if not good:
                self._machine.leave(Left(*graph.label(node), NOT_READ))
        return Message(request.call, number=number, size=request.size), bytes(usable)

    def _compile(self, request: Message, reader: Reader) -> tuple[Message, bytes]:
        graph = self._graphs.get(request.number)
        if graph is None:
            raise ProtocolError(f"there is no graph {request.number}")
        use = bool(reader.number())
        nodes, inputs, outputs = reader.ints(), reader.ints(), reader.ints()
        numbers = PartNumbers(nodes, self._variable(graph, inputs), self._variable(graph, outputs))
        if not nodes or not all(n in graph.nodes and graph.is_usable(n) for n in nodes):
            raise ProtocolError(f"a part of the nodes {nodes}")
        key = request.number, numbers
        if key not in self._known:
            try:
                part = Part(self._machine, graph, numbers)
            except Leave as leave:
                self._known[key] = leave
            else:
                self._known[key] = self._number()
                self._parts[self._last] = part
        found = self._known[key]
        if isinstance(found, Leave):
            left = np.asarray(found.nodes, np.int32).tobytes()
            return Message(request.call, Status.LEAVE, size=request.size), left
        if use:
            self._part(found).load()
            self._counts[request.number].taken += len(nodes)
        return Message(request.call, number=found, size=request.size), b""

    @staticmethod
    def _variable(graph: RuntimeGraph, tensors: tuple[int, ...]) -> tuple[int, ...]:
        if not all(-1 <= n < len(graph.tensors) for n in tensors):
            raise ProtocolError(f"a part with the tensors {tensors}")
        return tuple(n for n in tensors if n >= 0 and not graph.tensors[n].constant)

    def _forget(self, number: int) -> None:
        """Drop a graph and its parts that are not loaded."""
        self._graphs.pop(number, None)
        self._counts.pop(number, None)
        for key in [key for key in self._known if key[0] == number]:
            found = self._known.pop(key)
            if isinstance(found, int) and found in self._parts and not self._parts[found].is_loaded:
                del self._parts[found]
