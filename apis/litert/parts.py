"""Parts of LiteRT's graph on the device: compiled, loaded and run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.link.protocol import ALIGN, ProtocolError
from rkcosim.apis.litert.graph import RESHAPES, RuntimeGraph, Tensor, constant_nodes, part_file
from rkcosim.compiler import CompiledModel, ModelError
from rkcosim.compiler.runtime import hosted_operators
from rkcosim.compiler.steps import CallStep
from rkcosim.running.machine import Left, Machine, RunningModel

Array = npt.NDArray[Any]

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Orders of axes: LiteRT has the channels last, compiled models have them first."""


class Leave(Exception):
    """Nodes of a part that the NPU cannot do.

    Parameters
    ----------
    nodes : their numbers.
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = tuple(nodes)
        super().__init__(f"{len(self.nodes)} nodes are left")


@dataclass(frozen=True)
class PartNumbers:
    """A part of a graph: its nodes, and the tensors that it takes and gives (no constants)."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Part:
    """A compiled part.

    Parameters
    ----------
    machine : the device.
    graph : the graph of the runtime.
    numbers : the part.

    Raises
    ------
    Leave
        if the NPU cannot do some of the nodes; the reasons are recorded in `machine.left`.
    """

    def __init__(self, machine: Machine, graph: RuntimeGraph, numbers: PartNumbers) -> None:
        self._machine = machine
        self._inputs = [graph.tensors[n] for n in numbers.inputs]
        self._outputs = [graph.tensors[n] for n in numbers.outputs]
        self._name = _name_of(graph)
        self._running: RunningModel | None = None
        used = [n for n in constant_nodes(graph, numbers.outputs) if n in numbers.nodes]
        if used:
            text = "its result is constant, and the runtime uses it"
            raise self._left(graph, used, dict.fromkeys(used, text))
        own = constant_nodes(graph, numbers.inputs)
        made = {n for number in own for n in graph.nodes[number].outputs}
        taken = [n for n in numbers.inputs if n not in made]
        order = sorted({*own, *numbers.nodes}, key=list(graph.nodes).index)
        try:
            self._file = part_file(graph, order, taken, numbers.outputs)
            self._model = machine.compile(self._file)
        except ModelError as error:
            raise self._left(graph, numbers.nodes, dict.fromkeys(numbers.nodes, str(error))) from error
        hosted = self._hosted(graph, numbers.nodes)
        if hosted:
            raise self._left(graph, hosted, hosted)
        if not self._model.plan.tasks:
            text = "the part has no operator for the NPU"
            raise self._left(graph, numbers.nodes, dict.fromkeys(numbers.nodes, text))
        places = {tensor.name: place for place, tensor in enumerate(self._inputs)}
        self._order = [places[info.name] for info in self._model.inputs]

    def _left(self, graph: RuntimeGraph, nodes: Iterable[int], reasons: dict[int, str]) -> Leave:
        for number in nodes:
            self._machine.leave(Left(*graph.label(number), reasons[number]))
        return Leave(nodes)

    def _hosted(self, graph: RuntimeGraph, nodes: Sequence[int]) -> dict[int, str]:
        """Return the nodes that the compiler leaves to LiteRT, with the reasons.

        Operators that divide a batch into samples, and join them, are not nodes of the graph: they remain in
        the part, and LiteRT computes them in this process.
        """
        known = {}
        for number in nodes:
            name, kind = graph.label(number)
            known[name, "RESHAPE" if kind in RESHAPES else kind] = number
        calls = [step for step in self._model.plan.steps if isinstance(step, CallStep)]
        found = [item for step in calls for item in hosted_operators(step)]
        return {known[i.name, i.kind]: i.reason for i in found if (i.name, i.kind) in known}

    @property
    def model(self) -> CompiledModel:
        """The compiled model."""
        return self._model

    def load(self) -> None:
        """Load the part into the device's memory."""
        if self._running is None:
            self._running = self._machine.load(self._name, self._model, self._file)

    def unload(self) -> None:
        """Free the device's memory."""
        if self._running is not None:
            self._machine.unload(self._running)
            self._running = None

    @property
    def is_loaded(self) -> bool:
        """Whether the part is in the device's memory."""
        return self._running is not None

    def run(self, memory: memoryview) -> None:
        """Run one inference on the inputs in `memory`, and write the outputs behind them.

        Raises
        ------
        ProtocolError
            if the memory has another size than inputs and outputs together.
        """
        if self._running is None:
            raise ProtocolError("a part that is not loaded")
        places, end = _places([*self._inputs, *self._outputs])
        if end != len(memory):
            raise ProtocolError(f"{len(memory)} bytes for tensors of {end} bytes")
        given = []
        for place in self._order:
            tensor = self._inputs[place]
            array = np.frombuffer(memory, tensor.dtype, tensor.size // _itemsize(tensor), places[place])
            array = array.reshape(tensor.shape)
            given.append(array.transpose(TO_FIRST) if array.ndim == 4 else array)
        codes = [np.dtype(tensor.dtype).kind != "f" for tensor in self._outputs]
        results = self._running.run(given, codes)
        for tensor, result, place in zip(self._outputs, results, places[len(self._inputs) :], strict=True):
            result = result.transpose(TO_LAST) if result.ndim == 4 else result
            data = _as_type(result, tensor).tobytes()
            memory[place : place + len(data)] = data


def _as_type(values: Array, tensor: Tensor) -> Array:
    """Return an output in the type of the runtime's tensor."""
    dtype = np.dtype(tensor.dtype)
    if values.dtype != dtype and values.dtype.kind == "f" == dtype.kind:
        values = values.astype(dtype)
    if values.dtype != dtype or values.nbytes != tensor.size:
        what = f"{values.dtype} of {values.nbytes} bytes"
        raise ModelError(
            f"'{tensor.name}' is {tensor.dtype} of {tensor.size} bytes, but the result is {what}"
        )
    return values


def _itemsize(tensor: Tensor) -> int:
    return np.dtype(tensor.dtype).itemsize


def _places(tensors: Sequence[Tensor]) -> tuple[list[int], int]:
    """Return the offset of each tensor, and the end."""
    places, end = [], 0
    for tensor in tensors:
        places.append(end)
        end += -(-tensor.size // ALIGN) * ALIGN
    return places, end


def _name_of(graph: RuntimeGraph) -> str:
    """Return the name of the model's file, if the runtime has mapped it, else "model"."""
    addresses = [tensor.address for tensor in graph.tensors if tensor.constant and tensor.address]
    try:
        lines = Path(f"/proc/{os.getppid()}/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "model"
    for line in lines:
        fields = line.split(None, 5)
        begin, end = (int(text, 16) for text in fields[0].split("-"))
        if len(fields) == 6 and fields[5].startswith("/") and any(begin <= a < end for a in addresses):
            return Path(fields[5]).name
    return "model"
