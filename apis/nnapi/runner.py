"""Execution of one subgraph: runs of operations on the NPU, all others on the host, and control flow."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from rkcosim.apis.nnapi import (
    host_elements,
    host_moves,
    host_products,
    host_quantised_lstm,
    host_recurrent,
    host_windows,
)
from rkcosim.apis.nnapi.account import Account, OperationAccount
from rkcosim.apis.nnapi.emit import EMITTERS
from rkcosim.apis.nnapi.model import Model, Operand, OperandLifeTime, Operation, Subgraph
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.npu import Loaded, Npu, data_inputs
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.validation import ModelInvalid, check_scales
from rkcosim.apis.nnapi.values import HOST, Array, ExecutionError, MissedDeadline, OperationCall, Value
from rkcosim.running.machine import Machine

MODULES = (host_elements, host_moves, host_products, host_quantised_lstm, host_recurrent, host_windows)
"""The modules that fill the registry `HOST`."""

CONTROL = ("IF", "WHILE")
"""Operations that execute other subgraphs."""

NOT_ON_NPU = "the NPU has no such operation"

L = OperandLifeTime


def known(kind: OperationType) -> bool:
    """Whether an operation can be executed here."""
    return kind in HOST or kind.name in CONTROL


class Context(Protocol):
    """What the runners of a model share.

    Members
    -------
    model : the model.
    account : what ran where.
    npu, float_npu : whether the NPU computes anything, and whether it computes floating point.
    loop_timeout : longest time of a WHILE in seconds.
    deadline : `time.monotonic()` at which a WHILE ends with an error, None for none.
    """

    model: Model
    account: Account
    npu: bool
    float_npu: bool
    loop_timeout: float
    deadline: float | None

    def machine(self) -> Machine:
        """Return the device; it is opened when it is needed for the first time."""
        ...

    def referenced(self, index: int) -> Runner:
        """Return the runner of a referenced subgraph."""
        ...


class Runner:
    """The execution of a subgraph.

    Parameters
    ----------
    context : what the runners of a model share.
    subgraph : the operations.
    records : where the operations ran; those of the main subgraph are the account's.
    """

    def __init__(self, context: Context, subgraph: Subgraph, records: Sequence[OperationAccount]) -> None:
        self.context, self.subgraph, self.records = context, subgraph, records
        self._npu: Npu | None = None
        self._constants: dict[int, Value] | None = None
        self._last_read: dict[int, int] = {}
        self._scales_checked = False
        self.parameters: set[int] = set()
        """Operands that are weights or parameters of an operation of the NPU."""
        for number, operation in enumerate(subgraph.operations):
            self._last_read |= dict.fromkeys(operation.inputs, number)
            kind = OperationType(operation.type).name
            if kind in EMITTERS:
                self.parameters |= set(operation.inputs) - set(data_inputs(kind, operation))

    def constants(self) -> dict[int, Value]:
        """Return the values of all constants."""
        if self._constants is None:
            self._constants = {}
            for index, operand in enumerate(self.subgraph.operands):
                array = self.context.model.value(operand)
                if array is not None:
                    self._constants[index] = Value(array, operand)
        return dict(self._constants)

    def call(self, inputs: Sequence[Value | None]) -> list[Value]:
        """Execute the subgraph on values."""
        values = self.constants()
        for index, value in zip(self.subgraph.input_indexes, inputs, strict=True):
            if value is not None:
                check_shape(f"operand {index}", value.shape, self.subgraph.operands[index])
                values[index] = Value(value.array, self.subgraph.operands[index])
        self.run(values, {}, ())
        return [values[index] for index in self.subgraph.output_indexes]

    def run(
        self, values: dict[int, Value], natives: dict[int, NativeTensor], wanted: Collection[int]
    ) -> None:
        """Execute all operations.

        Parameters
        ----------
        values : values of the inputs and constants; those of all operands that are read are added.
        natives : inputs that are in device memory; results that stay there are added.
        wanted : outputs that are to stay in device memory if no operation of the host reads them.
        """
        self._check_scales()
        number = 0
        while number < len(self.subgraph.operations):
            operation = self.subgraph.operations[number]
            kind = OperationType(operation.type)
            found: Loaded | str = NOT_ON_NPU if self.context.npu else "everything is to run on the host"
            if kind.name in EMITTERS and self.context.npu:
                found = self._device().run_from(number, values)
            if isinstance(found, Loaded):
                self._on_npu(number, found, values, natives, wanted)
                number += found.count
                continue
            for index in {*operation.inputs} & natives.keys():
                values[index] = Value(natives[index].to_numpy(), self.subgraph.operands[index])
                self.context.account.bytes_converted += natives.pop(index).nbytes
            self._on_host(kind, number, operation, values)
            record = self.records[number]
            record.place, record.reason, record.executions = "host", found, record.executions + 1
            number += 1

    def _check_scales(self) -> None:
        """Check once that the operations may execute with their scales; raises ExecutionError."""
        if self._scales_checked:
            return
        try:
            for number, operation in enumerate(self.subgraph.operations):
                check_scales(self.subgraph, number, operation)
        except ModelInvalid as error:
            raise ExecutionError(str(error)) from error
        self._scales_checked = True

    def _device(self) -> Npu:
        if self._npu is None:
            reals = self.context.model.relax_computation_float32_to_float16
            self._npu = Npu(self.context.machine(), self.subgraph, reals, self.context.float_npu)
        return self._npu

    def _on_npu(
        self,
        number: int,
        loaded: Loaded,
        values: dict[int, Value],
        natives: dict[int, NativeTensor],
        wanted: Collection[int],
    ) -> None:
        end = number + loaded.count
        keep = {n for n in loaded.outputs if n in wanted and self._last_read.get(n, -1) < end}
        done = self._device().execute(loaded, values, natives, keep)
        for index, array in done.arrays.items():
            values[index] = Value(array, self.subgraph.operands[index])
        natives |= done.natives
        for record in self.records[number:end]:
            record.place, record.reason, record.executions = "npu", "", record.executions + 1
        first = self.records[number]
        first.cycles += done.usage.cycles
        first.bytes_read += done.usage.bytes_read
        first.bytes_written += done.usage.bytes_written
        self.context.account.bytes_converted += done.converted
        self.context.account.bytes_unconverted += done.unconverted

    def _on_host(
        self, kind: OperationType, number: int, operation: Operation, values: dict[int, Value]
    ) -> None:
        inputs = [values.get(index) for index in operation.inputs]
        outputs = [self.subgraph.operands[index] for index in operation.outputs]
        if kind.name in CONTROL:
            made = self._control(kind, number, operation, inputs)
        else:
            made = compute(OperationCall(kind, inputs, outputs), number)
        if len(made) != len(outputs):
            raise ExecutionError(f"operation {number}: {kind.name} gives {len(made)} results")
        for index, array in zip(operation.outputs, made, strict=True):
            check_shape(f"operation {number} ({kind.name})", array.shape, self.subgraph.operands[index])
            values[index] = Value(array, self.subgraph.operands[index])

    def _control(
        self, kind: OperationType, number: int, operation: Operation, inputs: Sequence[Value | None]
    ) -> list[Array]:
        """Execute the chosen subgraph of an IF, or those of a WHILE as long as the condition is true."""

        def runner(place: int) -> Runner:
            operand = self.subgraph.operands[operation.inputs[place]]
            if operand.lifetime is not L.SUBGRAPH:
                raise ExecutionError(f"operation {number}: input {place} of {kind.name} is no subgraph")
            return self.context.referenced(operand.location.offset)

        if kind.name == "IF":
            chosen = runner(1 if _true(inputs[0], number) else 2)
            return [value.array for value in chosen.call(inputs[3:])]
        condition, body, state = runner(0), runner(1), list(inputs[2:])
        end = time.monotonic() + self.context.loop_timeout
        while _true(condition.call(state)[0], number):
            made = body.call(state)
            state[: len(made)] = made
            now, deadline = time.monotonic(), self.context.deadline
            if now > end:
                seconds = self.context.loop_timeout
                raise MissedDeadline(f"operation {number}: WHILE needs more than {seconds:g} s")
            if deadline is not None and now > deadline:
                raise MissedDeadline(f"operation {number}: WHILE runs beyond the execution's deadline")
        return [value.array for value in state[: len(operation.outputs)] if value is not None]

    def close(self) -> None:
        """Free the device's memory."""
        npu, self._npu = self._npu, None
        if npu is not None:
            npu.close()


def _true(value: Value | None, number: int) -> bool:
    if value is None or value.array.size != 1:
        raise ExecutionError(f"operation {number}: the condition is not one boolean")
    return bool(np.asarray(value.array).reshape(-1)[0])


def check_shape(what: str, shape: tuple[int, ...], operand: Operand) -> None:
    """Compare a shape with the known dimensions of an operand; raises ExecutionError."""
    dimensions = operand.dimensions
    if operand.type.scalar or not dimensions:
        return
    if len(shape) != len(dimensions) or any(k not in (0, n) for k, n in zip(dimensions, shape, strict=True)):
        raise ExecutionError(f"{what} has the shape {shape}, but the operand {dimensions}")


def compute(call: OperationCall, number: int) -> list[Array]:
    """Compute an operation on the host.

    Raises
    ------
    ExecutionError
        If the operation cannot be executed on these inputs; the message names its number.
    """
    try:
        with np.errstate(all="ignore"):
            return HOST[call.kind](call)
    except ExecutionError as error:
        raise ExecutionError(f"operation {number}: {error}") from error
    except (ValueError, IndexError, ZeroDivisionError, MemoryError, OverflowError) as error:
        raise ExecutionError(f"operation {number}: {call.kind.name}: {error}") from error
