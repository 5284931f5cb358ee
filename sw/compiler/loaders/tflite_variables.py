"""Resource variables of TFLite models (VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE) as states of the graph.

Streaming models keep their last frames in variables.  A state has a tensor with the value at the start of an
inference and another one with the value at its end; the runtime copies the second to the first.  The initial
values are those that the subgraph of a CALL_ONCE assigns; LiteRT computes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Graph, ModelError, State, Tensor
from rkcosim.compiler.host_runtimes import load_program
from rkcosim.compiler.loaders.tflite_file import TfModel, TfNode
from rkcosim.compiler.loaders.tflite_node import FLOATS, define, first
from rkcosim.compiler.loaders.tflite_program import program
from rkcosim.compiler.options import LoadOptions

KINDS = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")


class Places(Protocol):
    """What the variables need of the loader (`rkcosim.compiler.loaders.tflite_graph.Loader`)."""

    graph: Graph
    options: LoadOptions
    numbers: dict[str, int]

    def keep_on_host(self, number: int, label: str) -> Tensor:
        """Add a tensor of the file to the graph as an array of the host."""
        ...


class Variables:
    """The variables of a model while its nodes are visited.

    Parameters
    ----------
    model
        The model; operators of its subgraph alone may use the variables.
    """

    def __init__(self, model: TfModel) -> None:
        self.model = model
        self.handles: dict[int, TfNode] = {}
        """The VAR_HANDLE of each tensor that is a handle."""
        self.once: list[TfNode] = []
        self.reads: dict[str, TfNode] = {}
        """The first READ_VARIABLE of each variable, by name, unless it was assigned before."""
        self.latest: dict[str, int] = {}
        """The tensor that was assigned last to each variable."""

    def visit(self, loader: Places, record: TfNode) -> bool:
        """Visit a node; return whether it was one of `KINDS`.

        Raises
        ------
        ModelError
            If a variable is used in a way that is not supported; the message names the operator.
        """
        if record.op not in KINDS:
            return False
        if record.op == "CALL_ONCE":
            self.once.append(record)
        elif record.op == "VAR_HANDLE":
            self.handles[record.outputs[0]] = record
        elif record.op == "READ_VARIABLE":
            self._read(loader, record)
        else:
            self.latest[self._name(record)] = record.inputs[1]
        return True

    def _name(self, record: TfNode) -> str:
        """Return the name of the variable that a node reads or assigns."""
        handle = self.handles.get(record.inputs[0]) if record.inputs else None
        if handle is None or len(record.inputs) != (1 if record.op == "READ_VARIABLE" else 2):
            raise ModelError(f"{self.model.label(record)}: its variable has no VAR_HANDLE in this subgraph")
        return str(handle.options["SharedName"])

    def _read(self, loader: Places, record: TfNode) -> None:
        name, item = self._name(record), self.model.tensors[record.outputs[0]]
        graph, label = loader.graph, self.model.label(record)
        source = self.latest.get(name)
        if source is None and name in self.reads:
            source = self.reads[name].outputs[0]
        if source is None:
            self.reads[name] = record
            try:
                if item.dtype in FLOATS and loader.options.floats == "host":
                    raise ModelError("--float host")
                define(graph, item, label)
            except ModelError:
                loader.keep_on_host(item.index, label)
            return
        given = self.model.tensors[source]
        if given.name not in graph.tensors:
            raise ModelError(f"{label}: '{given.name}' {given.dtype} cannot be read from a variable")
        graph.tensors[item.name] = replace(graph.tensors[given.name], name=item.name)
        graph.aliases[item.name] = given.name
        loader.numbers[item.name] = item.index

    def states(self, loader: Places) -> list[State]:
        """Return the states of the graph, after all nodes have been visited."""
        if not self.reads:
            return []
        found, values = [], self._initial()
        for name, record in self.reads.items():
            tensor = self.model.tensors[record.outputs[0]]
            number = self.latest.get(name)
            following = tensor if number is None else self.model.tensors[number]
            if following.name not in loader.graph.tensors:
                raise ModelError(
                    f"variable '{name}': '{following.name}' {following.dtype} cannot be assigned"
                )
            initial = values[name].transpose(0, 3, 1, 2) if values[name].ndim == 4 else values[name]
            if first(tensor.shape) != initial.shape or following.shape != tensor.shape:
                shapes = f"{tensor.shape}, {following.shape} and initially {values[name].shape}"
                raise ModelError(f"variable '{name}' changes its shape: {shapes}")
            found.append(State(tensor.name, following.name, tensor.dtype, np.array(initial, order="C")))
        return found

    def _initial(self) -> dict[str, npt.NDArray[Any]]:
        """Let LiteRT run the initialisation and read all variables."""
        records = list(self.reads.values())
        handles = [self.handles[record.inputs[0]] for record in records]
        nodes = [*self.once, *handles, *records]
        outputs = [record.outputs[0] for record in records]
        data = program(self.model, nodes, [], outputs).tobytes()
        return dict(zip(self.reads, load_program("litert", data, (), ())([]), strict=True))
