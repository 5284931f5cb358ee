"""Prepared models: preparation and execution of a model on the NPU and on the host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rkcosim.frontends.nnapi import (
    host_elements,
    host_moves,
    host_products,
    host_quantised_lstm,
    host_recurrent,
    host_windows,
)
from rkcosim.frontends.nnapi.emit import EMITTERS
from rkcosim.frontends.nnapi.model import Model, Operand, OperandLifeTime, Operation, Subgraph
from rkcosim.frontends.nnapi.native import NativeTensor
from rkcosim.frontends.nnapi.npu import Loaded, Npu, data_inputs, stand_in
from rkcosim.frontends.nnapi.operations import OperationType
from rkcosim.frontends.nnapi.validation import validate
from rkcosim.frontends.nnapi.values import HOST, Array, Call, ExecutionError, Value
from rkcosim.plugins.machine import Machine
from rkcosim.plugins.settings import Settings

MODULES = (host_elements, host_moves, host_products, host_quantised_lstm, host_recurrent, host_windows)
"""The modules that fill the registry `HOST`."""

L = OperandLifeTime


class Unsupported(ValueError):
    """A model has an operation that exists neither on the NPU nor on the host; the message names it."""


@dataclass
class OperationAccount:
    """Where an operation ran, and what it took since the preparation.

    Members
    -------
    index : index in the main subgraph.
    kind : name of the operation.
    place : "npu", "host" or "" before the first execution.
    reason : why it did not run on the NPU; "" if it did.
    executions : how often it ran.
    cycles : cycles of the jobs, of the whole segment at its first operation.
    bytes_read, bytes_written : bytes of the jobs in DRAM, as the cycles.
    """

    index: int
    kind: str
    place: str = ""
    reason: str = ""
    executions: int = 0
    cycles: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass
class Account:
    """What a prepared model did.

    Members
    -------
    operations : of each operation of the main subgraph.
    executions : number of executions.
    bytes_converted : bytes that the host packed into the native layout or unpacked from it.
    bytes_unconverted : bytes of native tensors that were taken and given as they are.
    """

    operations: list[OperationAccount] = field(default_factory=list)
    executions: int = 0
    bytes_converted: int = 0
    bytes_unconverted: int = 0

    @property
    def cycles(self) -> int:
        """Cycles of all jobs."""
        return sum(item.cycles for item in self.operations)


class Prepared:
    """A model that can be executed; made by `prepare`.

    Members
    -------
    model : the model.
    account : what ran where.
    output_dimensions : of each output as the model has them; 0 for unknown ones, () for an unknown rank.
    """

    def __init__(self, model: Model, machine: Machine | None, settings: Settings, float_npu: bool) -> None:
        self.model = model
        main = model.main
        self.account = Account(
            [OperationAccount(n, OperationType(o.type).name) for n, o in enumerate(main.operations)]
        )
        self.output_dimensions = [main.operands[n].dimensions for n in main.output_indexes]
        self._float_npu, self._settings = float_npu, settings
        self._machine, self._owned = machine, machine is None
        self._npu: Npu | None = None
        self._last_read: dict[int, int] = {}
        self._host_reads: set[int] = set()
        """Operands that are weights or parameters of an operation of the NPU."""
        for number, operation in enumerate(main.operations):
            self._last_read |= dict.fromkeys(operation.inputs, number)
            kind = OperationType(operation.type).name
            if kind in EMITTERS:
                self._host_reads |= set(operation.inputs) - set(data_inputs(kind, operation))

    def execute(
        self, inputs: Sequence[np.ndarray | NativeTensor | None], native: Collection[int] = ()
    ) -> list[Any]:
        """Execute the model.

        Parameters
        ----------
        inputs : an array for each input, in the type of its operand; the arrays' shapes decide the unknown
            dimensions.  A `NativeTensor` of the same device is taken without conversion where its layout
            serves; None stands for an omitted input.
        native : positions of outputs that are to stay in device memory.

        Returns
        -------
        The outputs in the order of the model, with their final shapes: arrays, or a `NativeTensor` for those
        of `native` that the NPU computed last and no operation of the host reads.  Who gets a native tensor
        frees it.

        Raises
        ------
        ExecutionError
            If a shape or type of an input does not fit its operand, or an operation cannot be executed on
            these values; the message names it.
        """
        main = self.model.main
        values, natives = self._constants(main), dict[int, NativeTensor]()
        if len(inputs) != len(main.input_indexes):
            raise ExecutionError(f"the model has {len(main.input_indexes)} inputs, {len(inputs)} are given")
        for place, (index, given) in enumerate(zip(main.input_indexes, inputs, strict=True)):
            if isinstance(given, NativeTensor):
                values[index] = self._native_input(place, index, given, natives)
            elif given is not None:
                values[index] = self._input(place, main.operands[index], np.asarray(given))
        wanted = {main.output_indexes[place] for place in native}
        self._run(main, values, natives, wanted)
        self.account.executions += 1
        return [natives[n] if n in wanted and n in natives else values[n].array for n in main.output_indexes]

    def _native_input(
        self, place: int, index: int, given: NativeTensor, natives: dict[int, NativeTensor]
    ) -> Value:
        """Return a value for a native tensor: one without content if only the NPU reads it."""
        operand = self.model.main.operands[index]
        own, other = ((o.type, np.float32(o.scale), o.zero_point) for o in (operand, given.operand))
        if own != other:
            raise ExecutionError(f"input {place} is {operand.type.name} with another quantisation, or type")
        check_shape(f"input {place}", given.shape, operand)
        if index in self._host_reads:
            self.account.bytes_converted += given.nbytes
            return Value(given.to_numpy(), operand)
        natives[index] = given
        return stand_in(given.shape, operand)

    def _constants(self, subgraph: Subgraph) -> dict[int, Value]:
        found = {}
        for index, operand in enumerate(subgraph.operands):
            if operand.lifetime in (L.CONSTANT_COPY, L.CONSTANT_POOL):
                array = self.model.value(operand)
                assert array is not None
                found[index] = Value(array, operand)
        return found

    def _input(self, place: int, operand: Operand, array: Array) -> Value:
        if array.dtype != operand.type.dtype:
            raise ExecutionError(f"input {place} is {array.dtype}, not {operand.type.dtype}")
        check_shape(f"input {place}", array.shape, operand)
        return Value(array, operand)

    def _device(self) -> Npu:
        """Return the device; it is opened when it is needed for the first time."""
        if self._npu is None:
            if self._machine is None:
                self._machine = Machine(self._settings)
            reals = self.model.relax_computation_float32_to_float16
            self._npu = Npu(self._machine, self.model.main, reals, self._float_npu)
        return self._npu

    def _run(
        self,
        subgraph: Subgraph,
        values: dict[int, Value],
        natives: dict[int, NativeTensor],
        wanted: Collection[int],
    ) -> None:
        number = 0
        while number < len(subgraph.operations):
            operation = subgraph.operations[number]
            found: Loaded | str = "the NPU has no such operation"
            if OperationType(operation.type).name in EMITTERS:
                found = self._device().run_from(number, values)
            if isinstance(found, Loaded):
                self._on_npu(subgraph, number, found, values, natives, wanted)
                number += found.count
                continue
            for index in {*operation.inputs} & natives.keys():
                values[index] = Value(natives[index].to_numpy(), subgraph.operands[index])
                self.account.bytes_converted += natives.pop(index).nbytes
            self._on_host(subgraph, number, operation, values)
            self.account.operations[number].reason = found
            number += 1

    def _on_npu(
        self,
        subgraph: Subgraph,
        number: int,
        loaded: Loaded,
        values: dict[int, Value],
        natives: dict[int, NativeTensor],
        wanted: Collection[int],
    ) -> None:
        keep = {
            n for n in loaded.outputs if n in wanted and self._last_read.get(n, -1) < number + loaded.count
        }
        done = self._device().execute(loaded, values, natives, keep)
        for index, array in done.arrays.items():
            values[index] = Value(array, subgraph.operands[index])
        natives |= done.natives
        for record in self.account.operations[number : number + loaded.count]:
            record.place, record.reason, record.executions = "npu", "", record.executions + 1
        first = self.account.operations[number]
        first.cycles += done.usage.cycles
        first.bytes_read += done.usage.bytes_read
        first.bytes_written += done.usage.bytes_written
        self.account.bytes_converted += done.converted
        self.account.bytes_unconverted += done.unconverted

    def _on_host(
        self, subgraph: Subgraph, number: int, operation: Operation, values: dict[int, Value]
    ) -> None:
        kind = OperationType(operation.type)
        inputs = [values.get(index) for index in operation.inputs]
        outputs = [subgraph.operands[index] for index in operation.outputs]
        made = compute(Call(kind, inputs, outputs), number)
        for index, array in zip(operation.outputs, made, strict=True):
            check_shape(f"operation {number} ({kind.name})", array.shape, subgraph.operands[index])
            values[index] = Value(array, subgraph.operands[index])
        record = self.account.operations[number]
        record.place, record.executions = "host", record.executions + 1

    def close(self) -> None:
        """Free the device's memory, and the device if it was opened here; a second call does nothing."""
        npu, self._npu = self._npu, None
        if npu is not None:
            npu.close()
        if self._owned and self._machine is not None:
            self._machine.close()
            self._machine = None

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_shape(what: str, shape: tuple[int, ...], operand: Operand) -> None:
    """Compare a shape with the known dimensions of an operand; raises ExecutionError."""
    known = operand.dimensions
    if operand.type.scalar or not known:
        return
    if len(shape) != len(known) or any(k not in (0, n) for k, n in zip(known, shape, strict=True)):
        raise ExecutionError(f"{what} has the shape {shape}, but the operand {known}")


def compute(call: Call, number: int) -> list[Array]:
    """Compute an operation on the host.

    Raises
    ------
    ExecutionError
        If the operation cannot be executed on these inputs; the message names its number.
    """
    try:
        return HOST[call.kind](call)
    except ExecutionError as error:
        raise ExecutionError(f"operation {number}: {error}") from error
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise ExecutionError(f"operation {number}: {call.kind.name}: {error}") from error


def prepare(
    model: Model,
    *,
    engine: str | None = None,
    cores: int = 1,
    checked: bool = False,
    float_npu: bool = True,
    machine: Machine | None = None,
) -> Prepared:
    """Prepare a model for executions.

    Parameters
    ----------
    model : the model; it is validated.
    engine : engine by name (`rkcosim.plugins.settings.Settings`); None for the fastest one.
    cores : cores that share large layers, 1 to 3.
    checked : compare every tensor of every job with the golden models.
    machine : an open device to use instead of an own one; engine, cores and checked are then its settings.
    float_npu : whether fp16 tensors, and float32 ones of relaxed models, are computed on the NPU in fp16.

    Raises
    ------
    ModelInvalid
        If the model breaks a rule of NNAPI.
    Unsupported
        If it has an operation that does not exist here.
    """
    validate(model)
    for number, operation in enumerate(model.main.operations):
        kind = OperationType(operation.type)
        if kind not in HOST:
            raise Unsupported(f"operation {number}: {kind.name} is not supported")
    return Prepared(model, machine, Settings(engine=engine, cores=cores, check=checked), float_npu)
