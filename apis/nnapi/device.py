"""NNAPI's driver as its hardware abstraction layer (HAL) shows it: a device and its prepared models.

`requests` has the rules of requests, `executions` what runs in threads, `buffers` the memory domains, and
`memory` the pools.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.account import Account
from rkcosim.apis.nnapi.buffers import BufferTracker, Content, IBuffer, Roles, byte_size, combined
from rkcosim.apis.nnapi.executions import LONGEST_WAIT, Execution, ExecutionResult
from rkcosim.apis.nnapi.hal_types import BufferDesc, BufferRole, Request, Role, Timing
from rkcosim.apis.nnapi.memory import MemoryPool
from rkcosim.apis.nnapi.model import Model
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.prepared import Prepared, Unsupported, prepare
from rkcosim.apis.nnapi.requests import Place, exclusive, places
from rkcosim.apis.nnapi.status import ErrorStatus, HalError, OutputShape, failure, invalid
from rkcosim.apis.nnapi.supported import supported_operations
from rkcosim.apis.nnapi.validation import ModelInvalid
from rkcosim.apis.nnapi.values import ExecutionError, MissedDeadline
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings

NAME, VERSION = "rkcosim-rk3588", "1"


@dataclass
class Traffic:
    """Bytes that the driver moved for executions, and those that it did not have to move.

    Members
    -------
    copied_in, copied_out : from and to shared memory.
    kept : of tensors in device memory that one execution left there and another one took as they were, in
        the NPU's layout with its padding.
    """

    copied_in: int = 0
    copied_out: int = 0
    kept: int = 0


class IDevice:
    """The simulated NPU as an NNAPI device.

    Parameters
    ----------
    engine : engine by name; None for the fastest one of the RTL.
    cores : cores that share large layers.
    checked : compare every tensor with the golden models.
    float_npu : whether fp16, and float32 of relaxed models, are computed on the NPU.
    machine : an open device to use instead of an own one; engine, cores and checked are then its settings.
    """

    def __init__(
        self,
        *,
        engine: str | None = None,
        cores: int = 1,
        checked: bool = False,
        float_npu: bool = True,
        machine: Machine | None = None,
    ) -> None:
        self._settings = Settings(engine=engine, cores=cores, check=checked)
        self._float_npu = float_npu
        self._machine, self._owned = machine, machine is None
        self._models: list[IPreparedModel] = []
        self.buffers = BufferTracker()
        self.traffic = Traffic()
        self.lock = threading.RLock()

    @property
    def name(self) -> str:
        """Name of the device."""
        return NAME

    def supported_operations(self, model: Model, pools: Sequence[MemoryPool] = ()) -> list[bool]:
        """Return for each operation of the main subgraph whether it is executed here.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if the model breaks a rule, GENERAL_FAILURE if a pool cannot be mapped.
        """
        with _as_hal_errors():
            return supported_operations(_with_pools(model, pools))

    def prepare_model(self, model: Model, pools: Sequence[MemoryPool] = ()) -> IPreparedModel:
        """Prepare a model.

        Parameters
        ----------
        model : the model.
        pools : shared memory with the constants of lifetime CONSTANT_POOL, in the place of `model.pools`.
            The values are read once, so the memory may be given up afterwards.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if the model breaks a rule; GENERAL_FAILURE if an operation is not supported, or
            a pool cannot be mapped ("hardware_buffer").
        """
        with self.lock, _as_hal_errors():
            whole = _with_pools(model, pools)
            if self._machine is None:
                self._machine = open_machine(self._settings)
            made = prepare(whole, machine=self._machine, float_npu=self._float_npu)
            prepared = IPreparedModel(self, made)
            self._models.append(prepared)
            return prepared

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> IBuffer:
        """Allocate a buffer for inputs and outputs of prepared models; its `token` names it in requests.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if there is no prepared model or no role, a model is of another device, an index
            or a probability is out of range, a role is there twice, or the operands or dimensions of the
            roles and the descriptor contradict each other.
        """
        if not prepared_models:
            raise invalid("a buffer needs a prepared model")
        if not input_roles and not output_roles:
            raise invalid("a buffer needs a role")
        for place, model in enumerate(prepared_models):
            if not isinstance(model, IPreparedModel) or model.device is not self or model.closed:
                raise invalid(f"prepared model {place} is not one of this device")
        roles = Roles(desc.dimensions)
        for output, given in ((False, input_roles), (True, output_roles)):
            for one in given:
                if not 0 <= one.model_index < len(prepared_models):
                    raise invalid(f"a role names model {one.model_index} of {len(prepared_models)}")
                model = prepared_models[one.model_index]
                operands = model.outputs if output else model.inputs
                roles.add(Role(model, output, one.io_index), operands, one.probability)
        first = roles.operand
        assert first is not None
        if first.type.scalar and desc.dimensions:
            raise invalid("a scalar has no dimensions")
        return IBuffer(self.buffers, self.lock, first, roles.dimensions, frozenset(roles.roles))

    def forget(self, model: IPreparedModel) -> None:
        """Drop a model that is freed."""
        self._models.remove(model)

    def close(self) -> None:
        """Free all buffers and models, and the device.  May be called repeatedly."""
        with self.lock:
            self.buffers.close()
            for model in list(self._models):
                model.finish()
            if self._owned and self._machine is not None:
                self._machine.close()
                self._machine = None

    def __enter__(self) -> IDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IPreparedModel:
    """A model of a device that can be executed; made by `IDevice.prepare_model`."""

    def __init__(self, device: IDevice, prepared: Prepared) -> None:
        self.device, self.prepared = device, prepared
        self.closed = False
        main = prepared.model.main
        self.inputs = [main.operands[index] for index in main.input_indexes]
        self.outputs = [main.operands[index] for index in main.output_indexes]

    @property
    def account(self) -> Account:
        """Where the operations ran, and what that took."""
        return self.prepared.account

    def execute_synchronously(
        self,
        request: Request,
        *,
        measure: bool = False,
        deadline: float | None = None,
        loop_timeout: float | None = None,
    ) -> ExecutionResult:
        """Execute a request.

        Parameters
        ----------
        request : inputs, outputs and their memory.
        measure : whether the result has a time.
        deadline : `time.monotonic()` after which the execution is not begun any more, and a WHILE ends.
        loop_timeout : seconds after which a WHILE ends.

        Raises
        ------
        HalError
            INVALID_ARGUMENT for a request that breaks a rule; OUTPUT_INSUFFICIENT_SIZE, with the dimensions
            of all outputs, if a memory is too small; MISSED_DEADLINE_TRANSIENT, also of a WHILE without end;
            GENERAL_FAILURE for memory that is not initialised, in use or cannot be mapped, and for
            values that an operation does not take.
        """
        begun = time.monotonic()
        if self.closed:
            raise failure("the prepared model is freed")
        buffers = self.device.buffers
        given = places(self, self.inputs, request, buffers, output=False)
        made = places(self, self.outputs, request, buffers, output=True)
        exclusive(given, made)
        with contextlib.ExitStack() as stack:
            for buffer in {one.buffer.token: one.buffer for one in given if one.buffer}.values():
                stack.enter_context(buffer.reading())
            targets = {
                place: stack.enter_context(one.buffer.writing())
                for place, one in enumerate(made)
                if one.buffer is not None
            }
            arrays = [self._value(place, one) for place, one in enumerate(given)]
            self._wait(deadline)
            try:
                before, unconverted = self.account.cycles, self.account.bytes_unconverted
                results = self._run(arrays, list(targets), loop_timeout, deadline)
                cycles = self.account.cycles - before
                left = sum(one.nbytes for one in results if isinstance(one, NativeTensor))
                self.device.traffic.kept += self.account.bytes_unconverted - unconverted - left
            finally:
                self.device.lock.release()
            shapes = self._delivered(made, results, targets)
        if not measure:
            return ExecutionResult(shapes)
        return ExecutionResult(shapes, Timing(cycles, round((time.monotonic() - begun) * 1e9)))

    def execute(self, request: Request, **options: Any) -> Execution:
        """Begin an execution in a thread; options are those of `execute_synchronously`."""
        return Execution(lambda: self.execute_synchronously(request, **options))

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[Execution],
        *,
        duration: float | None = None,
        **options: Any,
    ) -> Execution:
        """Begin an execution in a thread when others have ended without an error.

        Parameters
        ----------
        request : inputs, outputs and their memory.
        wait_for : executions to wait for, each at most `LONGEST_WAIT` seconds.
        duration : seconds after these have ended within which it must begin.
        options : those of `execute_synchronously`.
        """

        def run() -> ExecutionResult:
            for other in wait_for:
                try:
                    other.wait(LONGEST_WAIT)
                except HalError as error:
                    raise failure(f"an execution that this one waits for failed: {error}") from error
            if duration is not None:
                options["deadline"] = time.monotonic() + duration
            return self.execute_synchronously(request, **options)

        return Execution(run)

    def finish(self) -> None:
        """Free the model while the device is locked."""
        if not self.closed:
            self.closed = True
            self.device.forget(self)
            self.prepared.close()

    def close(self) -> None:
        """Free the model; an execution that runs ends first.  May be called repeatedly."""
        with self.device.lock:
            self.finish()

    def _value(self, number: int, place: Place) -> np.ndarray | NativeTensor | None:
        """Return the value of an input."""
        if place.buffer is not None:
            content = place.buffer.content()
            if combined(place.dimensions, content.shape) is None:
                raise invalid(
                    f"{place.name} has dimensions {list(place.dimensions)}, not {list(content.shape)}"
                )
            return content
        if place.pool is None:
            return None
        data = place.pool.read(place.offset, place.length)
        self.device.traffic.copied_in += len(data)
        shape = () if place.operand.type.scalar else place.dimensions
        return np.frombuffer(data, place.operand.type.dtype).reshape(shape)

    def _wait(self, deadline: float | None) -> None:
        """Lock the device."""
        left = LONGEST_WAIT if deadline is None else deadline - time.monotonic()
        if left <= 0 or not self.device.lock.acquire(timeout=min(left, LONGEST_WAIT)):
            raise HalError(
                ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the device was not free before the deadline"
            )
        if self.closed:
            self.device.lock.release()
            raise failure("the prepared model is freed")

    def _run(
        self,
        arrays: Sequence[np.ndarray | NativeTensor | None],
        native: Sequence[int],
        timeout: float | None,
        deadline: float | None,
    ) -> list[Content]:
        prepared = self.prepared
        usual = prepared.loop_timeout
        prepared.loop_timeout = usual if timeout is None else timeout
        prepared.deadline = deadline
        try:
            return prepared.execute(arrays, native)
        except MissedDeadline as error:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, str(error)) from error
        except ExecutionError as error:
            raise failure(str(error)) from error
        finally:
            prepared.loop_timeout, prepared.deadline = usual, None

    def _delivered(
        self, made: Sequence[Place], results: Sequence[Content], targets: dict[int, list[Content]]
    ) -> tuple[OutputShape, ...]:
        """Put the results into their memory; return the dimensions of all outputs."""
        shapes = []
        for place, result in zip(made, results, strict=True):
            if combined(place.dimensions, result.shape) is None:
                self._free(results)
                raise failure(
                    f"{place.name} has dimensions {list(result.shape)}, not {list(place.dimensions)}"
                )
            size = byte_size(place.operand, result.shape)
            enough = place.buffer is not None or size <= place.length
            shapes.append(OutputShape(tuple(result.shape), enough))
        if not all(shape.is_sufficient for shape in shapes):
            self._free(results)
            names = [place.name for place, shape in zip(made, shapes, strict=True) if not shape.is_sufficient]
            raise HalError(
                ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
                f"the memory of {', '.join(names)} is too small",
                tuple(shapes),
            )
        for number, (place, result) in enumerate(zip(made, results, strict=True)):
            if number in targets:
                targets[number].append(result)
            else:
                assert place.pool is not None and not isinstance(result, NativeTensor)
                data = np.ascontiguousarray(result, place.operand.type.dtype)
                place.pool.write(place.offset, data.tobytes())
                self.device.traffic.copied_out += data.nbytes
        return tuple(shapes)

    def _free(self, results: Sequence[Content]) -> None:
        with self.device.lock:
            for result in results:
                if isinstance(result, NativeTensor):
                    result.free()


def _with_pools(model: Model, pools: Sequence[MemoryPool]) -> Model:
    """Return a model with the bytes of shared memory."""
    if not pools:
        return model
    return replace(model, pools=tuple(pool.read(0, pool.size) for pool in pools))


@contextlib.contextmanager
def _as_hal_errors() -> Any:
    try:
        yield
    except ModelInvalid as error:
        raise invalid(str(error)) from error
    except Unsupported as error:
        raise failure(str(error)) from error
