"""Operations on the NPU: which runs of operations become one compiled network, and their executions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rkcosim.compiler import CompiledModel, ModelError
from rkcosim.compiler.graph import Graph
from rkcosim.compiler.steps import HostStep
from rkcosim.compiler.trial import check_operations
from rkcosim.frontends.nnapi.emit import DATA, EMITTERS, Emission
from rkcosim.frontends.nnapi.model import Operand, OperandLifeTime, OperandType, Operation, Subgraph
from rkcosim.frontends.nnapi.operations import OperationType
from rkcosim.frontends.nnapi.segments import Segment
from rkcosim.frontends.nnapi.values import Array, Call, ExecutionError, Value
from rkcosim.plugins.machine import Machine, RunningModel

L = OperandLifeTime

MOST_SAMPLES = 64
"""Largest number of samples whose jobs run one after the other; the host computes larger batches."""

MOST_KEPT = 32
"""Compiled networks that a prepared model keeps in the device's memory; the oldest one is freed."""


@dataclass
class Loaded:
    """A run of operations in the device's memory.

    Members
    -------
    segment : the network's tensors.
    count : number of operations.
    outputs : operands that are read afterwards.
    running : the compiled network.
    """

    segment: Segment
    count: int
    outputs: list[int]
    running: RunningModel


def data_inputs(kind: str, operation: Operation) -> tuple[int, ...]:
    """Return the operands of an operation that are data, not weights or parameters."""
    count = DATA.get(kind, 0)
    return operation.inputs[: len(operation.inputs) - 1 if count is None else count]


def stand_in(shape: tuple[int, ...], operand: Operand) -> Value:
    """Return a value of a shape whose elements are not known."""
    return Value(np.broadcast_to(np.zeros((), operand.type.dtype), shape), operand)


class Npu:
    """The device of a prepared model.

    Parameters
    ----------
    machine : the device.
    subgraph : the operations.
    reals : whether float32 is computed in fp16 (relaxed models).
    floats : whether the NPU computes floating point at all.
    """

    def __init__(self, machine: Machine, subgraph: Subgraph, reals: bool, floats: bool) -> None:
        self.machine, self.subgraph = machine, subgraph
        self.reals, self.floats = reals, floats
        self.reasons: dict[int, str] = {}
        self._loaded: dict[tuple[object, ...], Loaded | str] = {}
        self._readers: dict[int, int] = {}
        for number, operation in enumerate(subgraph.operations):
            self._readers |= dict.fromkeys(operation.inputs, number)

    def run_from(self, number: int, values: Mapping[int, Value]) -> Loaded | str:
        """Return the longest run of operations from one on that is on the NPU, or why that one is not.

        Parameters
        ----------
        number : index of the operation.
        values : values of all operands that are known so far.
        """
        segment, count, reason = Segment(self.reals), 0, ""
        key: list[object] = [number]
        for operation in self.subgraph.operations[number:]:
            grown = segment.copy()
            try:
                self._add(grown, number + count, operation, values)
            except (ModelError, ExecutionError, ValueError) as error:
                reason = str(error)
                break
            key += self._key(operation, segment, values)
            segment, count = grown, count + 1
        if not count:
            return reason
        while count:
            found = self._load(tuple([*key[:1], count, *key[1:]]), number, count, values)
            if not isinstance(found, str):
                return found
            reason, count = found, count // 2
        return reason

    def _key(self, operation: Operation, segment: Segment, values: Mapping[int, Value]) -> list[object]:
        """Return what a compiled operation depends on beyond the model: shapes, and parameters given now."""
        found: list[object] = []
        data = data_inputs(OperationType(operation.type).name, operation)
        for index in operation.inputs:
            if index in segment.shapes or index not in values:
                continue
            found.append(values[index].shape)
            lifetime = self.subgraph.operands[index].lifetime
            if index not in data and lifetime not in (L.CONSTANT_COPY, L.CONSTANT_POOL):
                found.append(hashlib.sha256(values[index].array.tobytes()).digest())
        return found

    def _add(self, segment: Segment, number: int, operation: Operation, values: Mapping[int, Value]) -> None:
        """Add an operation to a segment; raises ModelError if the NPU cannot do it there."""
        kind = OperationType(operation.type)
        if kind.name not in EMITTERS:
            raise ModelError("the NPU has no such operation")
        if not self.floats and self.subgraph.operands[operation.outputs[0]].type in (
            OperandType.TENSOR_FLOAT32,
            OperandType.TENSOR_FLOAT16,
        ):
            raise ModelError("floating point is computed on the host, as the preparation asks")
        inputs: list[Value | None] = []
        data = data_inputs(kind.name, operation)
        for index in operation.inputs:
            operand = self.subgraph.operands[index]
            if index in segment.shapes:
                if index not in data:
                    raise ModelError(f"operand {index} is a parameter that is computed in the segment")
                inputs.append(stand_in(segment.shapes[index], operand))
            else:
                inputs.append(values.get(index))
        outputs = [self.subgraph.operands[index] for index in operation.outputs]
        before = len(segment.graph.ops)
        call = Call(kind, inputs, outputs)
        emission = Emission(segment, call, operation.inputs, operation.outputs, f"{number} {kind.name}")
        EMITTERS[kind.name](emission)
        if segment.samples > MOST_SAMPLES:
            raise ModelError(f"{segment.samples} samples are more than {MOST_SAMPLES}")
        check_operations(segment.graph, segment.graph.ops[before:])

    def _load(
        self, key: tuple[object, ...], number: int, count: int, values: Mapping[int, Value]
    ) -> Loaded | str:
        """Compile and load a run of operations, or take it from those that are loaded."""
        if key in self._loaded:
            return self._loaded[key]
        segment = Segment(self.reals)
        operations = self.subgraph.operations[number : number + count]
        found: Loaded | str
        try:
            for place, operation in enumerate(operations):
                self._add(segment, number + place, operation, values)
            outputs = self._outputs(segment, number + count)
            model = self._compiled(segment.finished(outputs))
            name = ", ".join(OperationType(o.type).name for o in operations[:3])
            found = Loaded(segment, count, outputs, self.machine.load(name, model))
        except (ModelError, ExecutionError) as error:
            found = str(error)
        if len(self._loaded) >= MOST_KEPT:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            if isinstance(oldest, Loaded):
                self.machine.unload(oldest.running)
        self._loaded[key] = found
        return found

    def _outputs(self, segment: Segment, end: int) -> list[int]:
        """Return the operands of a segment that later operations or the model's outputs need."""
        wanted = set(self.subgraph.output_indexes)
        return [n for n in segment.shapes if n in wanted or self._readers.get(n, -1) >= end]

    def _compiled(self, graph: Graph) -> CompiledModel:
        """Compile a network; raises ModelError if the host would compute a part of it."""
        checked = self.machine.settings.check
        model = CompiledModel(graph, reuse=not checked, cores=self.machine.settings.cores)
        model.plan.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))
        hosted = [step.kind for step in model.plan.steps if isinstance(step, HostStep)]
        if hosted:
            raise ModelError(f"the compiler computes {hosted[0]} on the host")
        if not model.plan.tasks:
            raise ModelError("the NPU would have nothing to compute")
        return model

    def execute(self, loaded: Loaded, values: Mapping[int, Value]) -> tuple[dict[int, Array], int]:
        """Run the jobs of all samples.

        Returns
        -------
        The arrays of the operands that are read afterwards, and the cycles of the jobs.
        """
        segment = loaded.segment
        given = segment.given(values)
        made: list[list[Array]] = [[] for _ in loaded.outputs]
        cycles = 0
        for sample in range(segment.samples):
            arrays = [cubes[sample : sample + 1] for cubes in given]
            for place, array in enumerate(loaded.running.run(arrays, [True] * len(made))):
                made[place].append(array)
            cycles += loaded.running.last_cycles
        results = {}
        for index, parts in zip(loaded.outputs, made, strict=True):
            results[index] = segment.result(index, self.subgraph.operands[index], np.concatenate(parts))
        return results, cycles

    def close(self) -> None:
        """Free the device's memory of all networks."""
        for found in self._loaded.values():
            if isinstance(found, Loaded):
                self.machine.unload(found.running)
        self._loaded.clear()
