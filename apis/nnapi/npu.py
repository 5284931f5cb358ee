"""Operations on the NPU: which runs of operations become one compiled network, and their executions."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from rkcosim.apis.nnapi.emit import DATA, EMITTERS, Emission
from rkcosim.apis.nnapi.model import Operand, OperandLifeTime, OperandType, Operation, Subgraph
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.segments import Segment
from rkcosim.apis.nnapi.values import Array, ExecutionError, OperationCall, Value
from rkcosim.compiler import CompiledModel, ModelError
from rkcosim.compiler.graph import Graph
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.runtime import NpuBuffer
from rkcosim.compiler.steps import HostStep
from rkcosim.compiler.trial import check_operations
from rkcosim.driver import DriverError
from rkcosim.running.machine import Machine, RunningModel

L = OperandLifeTime

MOST_SAMPLES = 64
"""Largest number of samples whose jobs run one after the other; the host computes larger batches."""

MOST_KEPT = 4
"""Networks for other shapes or parameters that are kept for each first operation; the oldest one is freed."""


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

    def place(self, name: str) -> Place:
        """Return the layout of a tensor in the device's memory."""
        return self.running.loaded.model.plan.place(name)


@dataclass
class KnownRun:
    """What is known of the operations from one on: for these shapes and parameters, this was found.

    Members
    -------
    depends : operands with their shapes, and a digest of those that are parameters but not constants.
    found : the run of operations, or why the first one is not on the NPU.
    """

    depends: dict[int, tuple[tuple[int, ...], bytes]]
    found: Loaded | str


@dataclass
class Executed:
    """Results of a run of operations.

    Members
    -------
    arrays, natives : of the operands that are read afterwards.
    usage : what the jobs took.
    converted, unconverted : bytes in native layouts that the host packed or unpacked, or that it did not.
    """

    arrays: dict[int, Array]
    natives: dict[int, NativeTensor]
    usage: Usage
    converted: int = 0
    unconverted: int = 0


@dataclass
class Usage:
    """Cycles of jobs, and bytes that they read and wrote in DRAM; 0 if the engine does not measure them."""

    cycles: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


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
        self._runs: dict[int, list[KnownRun]] = {}
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
        for run in self._runs.get(number, ()):
            if all(
                self._state(index, values, bool(known[1])) == known for index, known in run.depends.items()
            ):
                return run.found
        found, count = self._found(number, values)
        run = KnownRun(self._depends(number, count, values), found)
        kept = self._runs.setdefault(number, [])
        kept.append(run)
        if len(kept) > MOST_KEPT:
            self._unload(kept.pop(0))
        return found

    def _unload(self, run: KnownRun) -> None:
        if isinstance(run.found, Loaded):
            self.machine.unload(run.found.running)

    def _state(self, index: int, values: Mapping[int, Value], digest: bool) -> tuple[tuple[int, ...], bytes]:
        if index not in values:
            return (-1,), b""
        array = values[index].array
        return array.shape, hashlib.sha256(array.tobytes()).digest() if digest else b""

    def _depends(
        self, number: int, count: int, values: Mapping[int, Value]
    ) -> dict[int, tuple[tuple[int, ...], bytes]]:
        """Return what operations depend on beyond the model: shapes, and parameters that are given now."""
        found: dict[int, tuple[tuple[int, ...], bytes]] = {}
        made: set[int] = set()
        for operation in self.subgraph.operations[number : number + count]:
            data = data_inputs(OperationType(operation.type).name, operation)
            for index in operation.inputs:
                lifetime = self.subgraph.operands[index].lifetime
                if index in made or lifetime in (L.CONSTANT_COPY, L.CONSTANT_POOL, L.NO_VALUE):
                    continue
                given = index not in data or bool(found.get(index, ((), b""))[1])
                found[index] = self._state(index, values, given)
            made |= set(operation.outputs)
        return found

    def _found(self, number: int, values: Mapping[int, Value]) -> tuple[Loaded | str, int]:
        """Compile the longest run of operations; return it or the reason, and how many were looked at."""
        segment, count, reason = Segment(self.reals), 0, ""
        for operation in self.subgraph.operations[number:]:
            grown = segment.copy()
            try:
                self._add(grown, number + count, operation, values)
            except (ModelError, ExecutionError, ValueError) as error:
                reason = str(error)
                break
            segment, count = grown, count + 1
        looked = min(count + 1, len(self.subgraph.operations) - number)
        if not count:
            return reason, looked
        while count:
            found = self._load(number, count, values)
            if not isinstance(found, str):
                return found, looked
            reason, count = found, count // 2
        return reason, looked

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
        call = OperationCall(kind, inputs, outputs)
        emission = Emission(segment, call, operation.inputs, operation.outputs, f"{number} {kind.name}")
        EMITTERS[kind.name](emission)
        if segment.samples > MOST_SAMPLES:
            raise ModelError(f"{segment.samples} samples are more than {MOST_SAMPLES}")
        check_operations(segment.graph, segment.graph.ops[before:])

    def _load(self, number: int, count: int, values: Mapping[int, Value]) -> Loaded | str:
        """Compile and load a run of operations; return why not if the NPU cannot do it."""
        segment = Segment(self.reals)
        operations = self.subgraph.operations[number : number + count]
        try:
            for place, operation in enumerate(operations):
                self._add(segment, number + place, operation, values)
            outputs = self._outputs(segment, number + count)
            model = self._compiled(segment.finished(outputs))
            name = ", ".join(OperationType(o.type).name for o in operations[:3])
            return Loaded(segment, count, outputs, self.machine.load(name, model))
        except (ModelError, ExecutionError, DriverError) as error:  # also: no room in the device's memory
            return str(error)

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

    def execute(
        self,
        loaded: Loaded,
        values: Mapping[int, Value],
        natives: Mapping[int, NativeTensor] = MappingProxyType({}),
        keep: Collection[int] = (),
    ) -> Executed:
        """Run the jobs of all samples.

        Parameters
        ----------
        loaded : the run of operations.
        values : values of the operands that it takes.
        natives : those in device memory; their bytes are taken as they are if the layout is the same.
        keep : operands whose results stay in device memory.
        """
        segment, running = loaded.segment, loaded.running
        done = Executed({}, {}, Usage())
        given = [self._given(loaded, name, values, natives, done) for name in segment.takes]
        read = [None if index in keep else True for index in loaded.outputs]
        parts: list[list[Array]] = [[] for raw in read if raw]
        kept: dict[int, list[NpuBuffer]] = {n: [] for n in loaded.outputs if n in keep}
        meter = self.machine.meter
        before = len(meter()) if meter else 0
        try:
            for sample in range(segment.samples):
                arrays = []
                for name, cubes in zip(segment.takes, given, strict=True):
                    if isinstance(cubes, NativeTensor):
                        running.loaded.memory(name)[: cubes.place.size] = self._bytes(cubes, sample)
                    arrays.append(None if isinstance(cubes, NativeTensor) else cubes[sample : sample + 1])
                for part, array in zip(parts, running.run(arrays, read), strict=True):
                    part.append(array)
                for index, buffers in kept.items():
                    buffers.append(self._copy(loaded, str(index)))
                done.usage.cycles += running.last_cycles if self.machine.engine.has_cycles else 0
        except BaseException:
            for buffers in kept.values():
                for buffer in buffers:
                    buffer.free()
            raise
        measures = meter()[before:] if meter else ()
        done.usage.bytes_read = sum(measure.bytes_read for measure in measures)
        done.usage.bytes_written = sum(measure.bytes_written for measure in measures)
        for index, part in zip([n for n in loaded.outputs if n not in keep], parts, strict=True):
            done.arrays[index] = segment.result(index, self.subgraph.operands[index], np.concatenate(part))
            done.converted += loaded.place(str(index)).size * segment.samples
        for index, buffers in kept.items():
            place, operand = loaded.place(str(index)), self.subgraph.operands[index]
            view, shape = segment.views[str(index)], segment.shapes[index]
            done.natives[index] = NativeTensor(operand, shape, view, place, tuple(buffers))
            done.unconverted += place.size * segment.samples
        return done

    def _given(
        self,
        loaded: Loaded,
        name: str,
        values: Mapping[int, Value],
        natives: Mapping[int, NativeTensor],
        done: Executed,
    ) -> Array | NativeTensor:
        """Return an input: as it is in device memory if the layout is the same, else the cubes."""
        index, view, place = loaded.segment.takes[name], loaded.segment.views[name], loaded.place(name)
        size = place.size * loaded.segment.samples
        native = natives.get(index)
        if native is not None and native.fits(view, place):
            done.unconverted += size
            return native
        done.converted += size
        value = values[index]
        if native is not None:
            value = Value(native.to_numpy(), value.operand)
            done.converted += native.nbytes
        return loaded.segment.given(name, value)

    def _bytes(self, native: NativeTensor, sample: int) -> Array:
        """Return the bytes of a sample; in a checked run with zeros as the channels that fill up an atom.

        What these hold changes no result, but the check of the memory knows them as zeros.
        """
        data = native.buffers[sample].view(0, native.place.size)
        if self.machine.settings.check:
            data = native.place.pack(native.place.unpack(data, native.cube_dtype))
        return data

    def _copy(self, loaded: Loaded, name: str) -> NpuBuffer:
        """Return a copy of a tensor's bytes in device memory."""
        size = loaded.place(name).size
        buffer = self.machine.driver.alloc(size, "native tensor")
        buffer.view(0, size)[:] = loaded.running.loaded.memory(name)[:size]
        return buffer

    def close(self) -> None:
        """Free the device's memory of all networks."""
        for kept in self._runs.values():
            for run in kept:
                self._unload(run)
        self._runs.clear()
