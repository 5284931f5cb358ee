"""Parts of onnxruntime's graph on the device: compiled, loaded and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.link.protocol import ALIGN, ProtocolError
from rkcosim.apis.ort.division import Division
from rkcosim.apis.ort.graph import RuntimeGraph, Shape, ValueInfo, part_model
from rkcosim.base import progress
from rkcosim.compiler import ModelError
from rkcosim.compiler.loaders.onnx_file import planned_shapes
from rkcosim.compiler.runtime import hosted_operators
from rkcosim.compiler.steps import CallStep
from rkcosim.running.machine import AnyModel, Left, Machine, RunningModel

Array = npt.NDArray[Any]


KEPT_SHAPES = 16
"""Sets of input shapes for which a part stays compiled; the ones that were used last."""


class Leave(Exception):
    """Nodes of a part that the NPU cannot do, by their place, with the reasons."""

    def __init__(self, nodes: Mapping[int, str]) -> None:
        self.nodes = dict(nodes)
        super().__init__(f"{len(self.nodes)} nodes are left")


class _Silent:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """See `progress.Listener`."""

    def tick(self, engine: Any) -> None:
        """See `progress.Listener`."""


class Part:
    """A part of a graph, which is compiled for each set of input shapes.

    Parameters
    ----------
    machine : the device.
    graph : the graph of the runtime.
    division : of the graph.
    nodes : places of the part's nodes.
    planned : sizes of open values by name, with which the part is compiled before the first inference.

    Raises
    ------
    Leave
        if the NPU cannot do some of the nodes.
    """

    def __init__(
        self,
        machine: Machine,
        graph: RuntimeGraph,
        division: Division,
        nodes: Sequence[int],
        planned: Mapping[str, Shape],
    ) -> None:
        self._machine, self._graph = machine, graph
        self._nodes = [graph.nodes[n] for n in division.with_constants(nodes)]
        values = graph.values
        made = {name for node in self._nodes for name in node.makes}
        taken = dict.fromkeys(name for node in self._nodes for name in node.reads)
        self.inputs = [values[n] for n in taken if n not in made and n not in graph.constants]
        self.outputs = [_ranked(values[name], planned) for name in division.results(nodes)]
        values = {value.name: value for value in (*self.inputs, *self.outputs)}
        unknown = {name for name, value in values.items() if not value.ranked and name not in planned}
        if unknown:
            text = "the number of axes of '{}' is not known"
            users = {n: unknown.intersection(graph.nodes[n].reads + graph.nodes[n].makes) for n in nodes}
            raise Leave({n: text.format(min(names)) for n, names in users.items() if names})
        self._compiled: dict[tuple[Shape, ...], tuple[AnyModel, bytes]] = {}
        try:
            with progress.listen(_Silent()):  # sizes that are chosen for open ones are replaced later
                model, _ = self.compiled([_planned(value, planned) for value in self.inputs])
        except ModelError as error:
            raise Leave(dict.fromkeys(nodes, str(error))) from error
        hosted = self._hosted(model, {graph.nodes[n].name: n for n in nodes})
        if hosted:
            raise Leave(hosted)
        if not model.plan.tasks:
            raise Leave(dict.fromkeys(nodes, "the part has no operator for the NPU"))

    @staticmethod
    def _hosted(model: AnyModel, known: Mapping[str, int]) -> dict[int, str]:
        """Return the nodes that the compiler leaves to onnxruntime, with the reasons."""
        calls = [step for step in model.plan.steps if isinstance(step, CallStep)]
        found = [item for step in calls for item in hosted_operators(step)]
        return {known[item.name]: item.reason for item in found if item.name in known}

    @property
    def name(self) -> str:
        """Name of the model's file, or "model"."""
        return PurePath(self._graph.path).name or "model"

    def compiled(self, shapes: Iterable[Shape]) -> tuple[AnyModel, bytes]:
        """Return the part compiled for shapes of `inputs`, and its file; raises ModelError."""
        key = tuple(shapes)
        found = self._compiled.pop(key, None)
        if found is None:
            inputs = [replace(v, shape=shape, ranked=True) for v, shape in zip(self.inputs, key, strict=True)]
            data = part_model(self._graph, self._nodes, inputs, self.outputs)
            found = self._machine.compile_divided(data), data
        while len(self._compiled) >= KEPT_SHAPES:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[key] = found  # behind the others, as it was used last
        return found


class FusedPart:
    """A part as the runtime calls it: with the fused node's inputs and outputs in their order.

    Parameters
    ----------
    machine : the device.
    part : the part.
    inputs, outputs : values of the fused node.

    Raises
    ------
    ProtocolError
        if they are not those of the part.
    """

    def __init__(
        self, machine: Machine, part: Part, inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]
    ) -> None:
        self._machine, self._part = machine, part
        self._inputs, self._outputs = list(inputs), list(outputs)
        names = {value.name for value in inputs}
        same = {value.name for value in outputs} == {value.name for value in part.outputs}
        if not same or not names.issuperset(value.name for value in part.inputs):
            raise ProtocolError(f"onnxruntime makes another part than the provider offered: {sorted(names)}")
        self._running: RunningModel | None = None
        self._shapes: list[Shape] = []
        self._model: AnyModel | None = None

    def fit(self, shapes: Sequence[Shape]) -> list[int]:
        """Load the part for shapes of the fused node's inputs.

        Returns
        -------
        Bytes of a RUN, and for each output its rank and sizes.

        Raises
        ------
        ModelError, DriverError
            if it cannot be compiled for these shapes, or memory runs out.
        """
        if len(shapes) != len(self._inputs):
            raise ProtocolError(f"{len(shapes)} shapes for {len(self._inputs)} inputs")
        by_name = {value.name: shape for value, shape in zip(self._inputs, shapes, strict=True)}
        model, data = self._part.compiled(by_name[value.name] for value in self._part.inputs)
        self.unload()
        self._running = self._machine.load(self._part.name, model, data)
        self._shapes, self._model = list(shapes), model
        answer = [self._places(model)[-1]]
        for value in self._outputs:
            shape = _shape(model, value)
            answer += [len(shape), *shape]
        return answer

    def _places(self, model: AnyModel) -> list[int]:
        """Return the offset of each tensor of a RUN, and the end."""
        places, end = [0], 0
        shapes = [*self._shapes, *(_shape(model, value) for value in self._outputs)]
        for value, shape in zip([*self._inputs, *self._outputs], shapes, strict=True):
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(value.dtype).itemsize
            end += -(-size // ALIGN) * ALIGN
            places.append(end)
        return places

    def run(self, memory: memoryview) -> None:
        """Run one inference on the inputs in `memory`, and write the outputs behind them.

        Raises
        ------
        ProtocolError
            if the memory has another size than inputs and outputs together.
        """
        if self._running is None or self._model is None:
            raise ProtocolError("a part that is not loaded")
        places = self._places(self._model)
        if places[-1] != len(memory):
            raise ProtocolError(f"{len(memory)} bytes for tensors of {places[-1]} bytes")
        arrays = {}
        for value, shape, place in zip(self._inputs, self._shapes, places, strict=False):
            count = int(np.prod(shape, dtype=np.int64))
            arrays[value.name] = np.frombuffer(memory, value.dtype, count, place).reshape(shape)
        given = [arrays[info.name] for info in self._model.inputs]
        order = {info.name: number for number, info in enumerate(self._model.outputs)}
        types = {value.name: np.dtype(value.dtype) for value in self._outputs}
        codes = [types[info.name].kind != "f" for info in self._model.outputs]
        results = self._running.run(given, codes)
        for value, place in zip(self._outputs, places[len(self._inputs) :], strict=False):
            data = _as_type(results[order[value.name]], value).tobytes()
            memory[place : place + len(data)] = data

    def unload(self) -> None:
        """Free the device's memory."""
        if self._running is not None:
            self._machine.unload(self._running)
            self._running = self._model = None


def _ranked(value: ValueInfo, planned: Mapping[str, Shape]) -> ValueInfo:
    """Return a value with as many open sizes as the planned shape has, if its rank is not known."""
    if value.ranked or value.name not in planned:
        return value
    return replace(value, shape=(-1,) * len(planned[value.name]), ranked=True)


def _planned(value: ValueInfo, planned: Mapping[str, Shape]) -> Shape:
    """Return the sizes of a value, with planned ones in the place of open ones if they fit."""
    shape = planned.get(value.name, value.shape)
    if not value.ranked:
        return shape
    fits = len(shape) == len(value.shape) and all(
        a in (-1, b) for a, b in zip(value.shape, shape, strict=True)
    )
    return shape if fits else value.shape


def _planned_shapes(graph: RuntimeGraph) -> dict[str, Shape]:
    """Return sizes for the open values of a graph that fit together, as far as they are found."""
    values, nodes, made = graph.values, [], set[str]()
    if not any(value.is_open for value in values.values()):
        return {}
    for node in graph.nodes:
        known = all(n in made or n in graph.constants or values[n].ranked for n in node.reads)
        if known and not node.problem:
            nodes.append(node)
            made.update(node.makes)
    if not nodes:
        return {}
    taken = dict.fromkeys(name for node in nodes for name in node.reads)
    inputs = [values[name] for name in taken if name not in made and name not in graph.constants]
    outputs = [values[name] for name in sorted(made - taken.keys())]
    try:
        with progress.listen(_Silent()):
            return planned_shapes(part_model(graph, nodes, inputs, outputs))
    except ModelError:
        return {}


def _shape(model: AnyModel, value: ValueInfo) -> Shape:
    return tuple(next(info.shape for info in model.outputs if info.name == value.name))


def _as_type(values: Array, value: ValueInfo) -> Array:
    """Return an output in the type of the runtime's value."""
    dtype = np.dtype(value.dtype)
    if values.dtype != dtype and values.dtype.kind == "f" == dtype.kind:
        values = values.astype(dtype)
    if values.dtype != dtype:
        raise ModelError(f"'{value.name}' is {value.dtype}, but the result is {values.dtype}")
    return values


def divide(machine: Machine, graph: RuntimeGraph) -> list[tuple[list[int], Part]]:
    """Divide a graph into compiled parts; `machine.left` gets the nodes that remain with the runtime."""
    division = Division(graph)
    usable = {n for n, node in enumerate(graph.nodes) if not node.problem}
    reasons = {n: node.problem for n, node in enumerate(graph.nodes) if node.problem}
    planned = _planned_shapes(graph)
    known: dict[tuple[int, ...], Part] = {}
    while True:
        bad: dict[int, str] = {}
        parts = division.parts(usable)
        for nodes in parts:
            key = tuple(nodes)
            try:
                known[key] = known.get(key) or Part(machine, graph, division, nodes, planned)
            except Leave as leave:
                bad |= leave.nodes
        reasons |= bad
        usable -= bad.keys()
        if not bad:
            break
    for n, reason in sorted(reasons.items()):
        node = graph.nodes[n]
        machine.leave(Left(node.name, node.kind, reason))
    return [(nodes, known[tuple(nodes)]) for nodes in parts]
