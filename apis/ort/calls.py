"""The calls of the execution provider of onnxruntime (`native/ort_provider.c`)."""

from __future__ import annotations

import struct

import numpy as np

from rkcosim.apis.link.protocol import Message, ProtocolError, Reader, RequestKind
from rkcosim.apis.ort.graph import read_graph, read_values
from rkcosim.apis.ort.parts import FusedPart, Part, divide
from rkcosim.running.machine import GraphCount, Machine

LEFT = -1
"""Number of the part of a node that remains with the runtime."""


class OrtCalls:
    """Graph and parts of one session.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._offered: dict[int, dict[frozenset[str], Part]] = {}
        self._parts: dict[int, FusedPart] = {}
        self._last = 0

    def greeting(self) -> bytes:
        """Return the limit of a call in milliseconds."""
        return struct.pack("<Q", self._machine.settings.timeout * 1000)

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Execute a request and return the answer with its contents."""
        reader = Reader(memory[: request.used])
        number, content = request.number, b""
        if request.call == RequestKind.GRAPH:
            number, content = self._graph(reader)
        elif request.call == RequestKind.COMPILE:
            number = self._compile(request.number, reader)
        elif request.call == RequestKind.SHAPE:
            part = self._part(number)
            shapes = []
            while reader.left:
                shapes.append(reader.longs())
            content = np.asarray(part.fit(shapes), np.int64).tobytes()
        elif request.call == RequestKind.RUN:
            self._part(number).run(memory[: request.used])
        elif request.call == RequestKind.FORGET:
            self._offered.pop(number, None)
        elif request.call == RequestKind.RELEASE:
            self._part(number).unload()
            del self._parts[number]
        else:
            raise ProtocolError(f"call {request.call} is unknown")
        return Message(request.call, number=number, size=request.size), content

    def _part(self, number: int) -> FusedPart:
        if number not in self._parts:
            raise ProtocolError(f"there is no part {number}")
        return self._parts[number]

    def _graph(self, reader: Reader) -> tuple[int, bytes]:
        graph = read_graph(reader)
        numbers = np.full(len(graph.nodes), LEFT, np.int32)
        count, offered = GraphCount(len(graph.nodes)), {}
        self._machine.count_graph(count)
        for number, (nodes, part) in enumerate(divide(self._machine, graph)):
            numbers[nodes] = number
            count.taken += len(nodes)
            offered[frozenset(graph.nodes[n].outputs[0].name for n in nodes)] = part
        self._last += 1
        self._offered[self._last] = offered
        return self._last, numbers.tobytes()

    def _compile(self, number: int, reader: Reader) -> int:
        names = frozenset(value.name for value in read_values(reader))
        inputs, outputs = read_values(reader), read_values(reader)
        part = self._offered.get(number, {}).get(names)
        if part is None:
            raise ProtocolError("onnxruntime makes another part than the provider offered")
        made = FusedPart(self._machine, part, inputs, outputs)
        if not any(value.is_open for value in inputs):
            made.fit([value.shape for value in inputs])
        self._last += 1
        self._parts[self._last] = made
        return self._last
