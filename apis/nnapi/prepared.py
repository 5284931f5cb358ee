"""Prepared models: preparation and execution of a model on the NPU and on the host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.account import Account, OperationAccount
from rkcosim.apis.nnapi.model import Model, Operand, Subgraph
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.npu import stand_in
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.runner import Runner, check_shape, known
from rkcosim.apis.nnapi.validation import validate
from rkcosim.apis.nnapi.values import Array, ExecutionError, Value
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings

LOOP_TIMEOUT = 2.0
"""Longest time of a WHILE in seconds, NNAPI's default."""


class Unsupported(ValueError):
    """A model has an operation that exists neither on the NPU nor on the host; the message names it."""


def _records(subgraph: Subgraph) -> list[OperationAccount]:
    return [OperationAccount(n, OperationType(o.type).name) for n, o in enumerate(subgraph.operations)]


class Prepared:
    """A model that can be executed; made by `prepare`.

    Members
    -------
    model : the model.
    account : what ran where.
    output_dimensions : of each output as the model has them; 0 for unknown ones, () for an unknown rank.
    npu, float_npu : whether the NPU computes anything, and whether it computes floating point.
    loop_timeout : longest time of a WHILE in seconds; may be set before an execution.
    deadline : `time.monotonic()` at which a WHILE ends with an error; may be set before an execution.
    """

    def __init__(
        self, model: Model, machine: Machine | None, settings: Settings, npu: bool, float_npu: bool
    ) -> None:
        self.model, self.npu, self.float_npu, self.loop_timeout = model, npu, float_npu, LOOP_TIMEOUT
        self.deadline: float | None = None
        main = model.main
        self.account = Account(_records(main))
        self.output_dimensions = [main.operands[n].dimensions for n in main.output_indexes]
        self._settings = settings
        self._machine, self._owned = machine, machine is None
        self._main = Runner(self, main, self.account.operations)
        self._referenced: dict[int, Runner] = {}

    def machine(self) -> Machine:
        """Return the device; it is opened when it is needed for the first time."""
        if self._machine is None:
            self._machine = open_machine(self._settings)
        return self._machine

    def referenced(self, index: int) -> Runner:
        """Return the runner of a referenced subgraph."""
        if index not in self._referenced:
            subgraph = self.model.referenced[index]
            self._referenced[index] = Runner(self, subgraph, _records(subgraph))
        return self._referenced[index]

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
        DriverError, Mismatch
            If the device reports an error, or a tensor differs from the golden models (`checked`).
        """
        main = self.model.main
        values, natives = self._main.constants(), dict[int, NativeTensor]()
        if len(inputs) != len(main.input_indexes):
            raise ExecutionError(f"the model has {len(main.input_indexes)} inputs, {len(inputs)} are given")
        for place, (index, given) in enumerate(zip(main.input_indexes, inputs, strict=True)):
            if isinstance(given, NativeTensor):
                values[index] = self._native_input(place, index, given, natives)
            elif given is not None:
                values[index] = self._input(place, main.operands[index], np.asarray(given))
        given_natives = set(natives)
        wanted = {main.output_indexes[place] for place in native}
        try:
            self._main.run(values, natives, wanted)
        except BaseException:
            for index in natives.keys() - given_natives:
                natives[index].free()
            raise
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
        if index in self._main.parameters:
            self.account.bytes_converted += given.nbytes
            return Value(given.to_numpy(), operand)
        natives[index] = given
        return stand_in(given.shape, operand)

    def _input(self, place: int, operand: Operand, array: Array) -> Value:
        if array.dtype != operand.type.dtype:
            raise ExecutionError(f"input {place} is {array.dtype}, not {operand.type.dtype}")
        check_shape(f"input {place}", array.shape, operand)
        return Value(array, operand)

    def close(self) -> None:
        """Free the device's memory, and the device if it was opened here; a second call does nothing."""
        for runner in (self._main, *self._referenced.values()):
            runner.close()
        if self._owned and self._machine is not None:
            self._machine.close()
            self._machine = None

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prepare(
    model: Model,
    *,
    engine: str | None = None,
    cores: int = 1,
    checked: bool = False,
    npu: bool = True,
    float_npu: bool = True,
    machine: Machine | None = None,
) -> Prepared:
    """Prepare a model for executions.

    A device runs one execution at a time: callers with several threads take turns.

    Parameters
    ----------
    model : the model; it is validated.
    engine : engine by name (`rkcosim.running.settings.Settings`); None for the fastest one.
    cores : cores that share large layers, 1 to 3.
    checked : compare every tensor of every job with the golden models.
    machine : an open device to use instead of an own one; engine, cores and checked are then its settings.
    npu : whether the NPU is used; if not, the host computes everything.
    float_npu : whether fp16 tensors, and float32 ones of relaxed models, are computed on the NPU in fp16.

    Raises
    ------
    ModelInvalid
        If the model breaks a rule of NNAPI.
    Unsupported
        If it has an operation that does not exist here.
    """
    validate(model)
    for subgraph in (model.main, *model.referenced):
        for number, operation in enumerate(subgraph.operations):
            kind = OperationType(operation.type)
            if not known(kind):
                raise Unsupported(f"operation {number}: {kind.name} is not supported")
    return Prepared(model, machine, Settings(engine=engine, cores=cores, check=checked), npu, float_npu)
