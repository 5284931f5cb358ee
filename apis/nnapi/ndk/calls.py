"""The calls of `libneuralnetworks.so` (`native/`): its objects, and their executions on a device.

Requests and answers are messages of `rkcosim.apis.link.protocol`.  `number` of a request is the object that
the function belongs to, `number` of an answer the `ResultCode` that the function returns; an answer with
another one than NO_ERROR has a text.  Contents are numbers of 64 bits, lists behind their length in bytes,
and bytes behind their number.  An operand type is `_type`: present, type, scale (as the bits of a float),
zero point, dimensions (int64).

================== ==================================================== ===================================
call               request                                              answer
================== ==================================================== ===================================
MODEL              -                                                    object
OPERAND            type                                                 -
VALUE              index, present, bytes                                -
VALUE_LENGTH       index, bytes of a VALUE that follows                 -
VALUE_FROM_MEMORY  index, memory, offset, length                        -
VALUE_FROM_MODEL   index, model                                         -
CHANNEL_SCALES     index, dimension, float32 of the scales              -
SCALES_COUNT       index, dimension, number of the scales that follow   -
EXTENSION_DATA     index                                                -
OPERATION          operation, inputs, outputs (int64)                   -
IDENTIFY           inputs, outputs (int64)                              -
RELAX              allowed                                              -
FINISH_MODEL       -                                                    -
SUPPORTED          -                                                    a byte for each operation
COMPILATION        (of a model) whether devices are named               object
PREFERENCE         preference                                           -
PRIORITY           priority                                             -
CACHING            -                                                    -
COMPILE_TIMEOUT    -                                                    -
FINISH_COMPILATION -                                                    -
PREFERRED          output, index                                        alignment and padding
EXECUTION          (of a compilation) -                                 object
BURST              (of a compilation) -                                 object
ARGUMENT           output, index, type, omitted, memory (0: pointer),   -
                   offset, length
TIMEOUT            nanoseconds                                          -
LOOP_TIMEOUT       nanoseconds                                          -
MEASURE            measured                                             -
REUSABLE           reusable                                             -
PADDING            enabled                                              -
BEGIN              burst (0: none)                                      -
COMPUTE            nanoseconds for the begin (-1: no limit); number of  for each output behind a pointer
                   inputs behind pointers, bytes of each                its bytes
GIVE_UP            -                                                    -
RANK               index                                                sufficient, rank
DIMENSIONS         index                                                sufficient, dimensions
DURATION           code                                                 nanoseconds
MEMORY             kind (`Kind`), process, descriptor, protection,      object
                   size, offset
DESC               -                                                    object
ROLE               output, compilation, index, float32 of the frequency -
DESC_DIMENSIONS    dimensions (int64)                                   -
FINISH_DESC        -                                                    -
ALLOCATE           (of a description) -                                 object
COPY               (of the source) target                               -
FREE               -                                                    -
================== ==================================================== ===================================
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rkcosim.apis.link.protocol import Message, Reader
from rkcosim.apis.nnapi.device import IDevice
from rkcosim.apis.nnapi.memory import hardware_buffer
from rkcosim.apis.nnapi.ndk.compilations import Compilation
from rkcosim.apis.nnapi.ndk.executions import Argument, Burst, Execution, NewType
from rkcosim.apis.nnapi.ndk.memories import (
    DriverMemory,
    Memory,
    MemoryDesc,
    SharedMemory,
    copy,
    from_descriptor,
)
from rkcosim.apis.nnapi.ndk.models import ModelBuilder
from rkcosim.apis.nnapi.ndk.result_codes import NdkError, ResultCode, as_results, bad_data, bad_state
from rkcosim.apis.nnapi.ndk.summary import Summary
from rkcosim.running.machine import Machine, Mismatch

MOST_TENSORS = 10**4
"""Most inputs behind pointers of an execution."""

T = TypeVar("T")


class NdkRequest(enum.IntEnum):
    """Kinds of requests, above those of the plug-ins and of Hexagon NN."""

    MODEL = 300
    OPERAND = enum.auto()
    VALUE = enum.auto()
    VALUE_LENGTH = enum.auto()
    VALUE_FROM_MEMORY = enum.auto()
    VALUE_FROM_MODEL = enum.auto()
    CHANNEL_SCALES = enum.auto()
    SCALES_COUNT = enum.auto()
    EXTENSION_DATA = enum.auto()
    OPERATION = enum.auto()
    IDENTIFY = enum.auto()
    RELAX = enum.auto()
    FINISH_MODEL = enum.auto()
    SUPPORTED = enum.auto()
    COMPILATION = enum.auto()
    PREFERENCE = enum.auto()
    PRIORITY = enum.auto()
    CACHING = enum.auto()
    COMPILE_TIMEOUT = enum.auto()
    FINISH_COMPILATION = enum.auto()
    PREFERRED = enum.auto()
    EXECUTION = enum.auto()
    BURST = enum.auto()
    ARGUMENT = enum.auto()
    TIMEOUT = enum.auto()
    LOOP_TIMEOUT = enum.auto()
    MEASURE = enum.auto()
    REUSABLE = enum.auto()
    PADDING = enum.auto()
    BEGIN = enum.auto()
    COMPUTE = enum.auto()
    GIVE_UP = enum.auto()
    RANK = enum.auto()
    DIMENSIONS = enum.auto()
    DURATION = enum.auto()
    MEMORY = enum.auto()
    DESC = enum.auto()
    ROLE = enum.auto()
    DESC_DIMENSIONS = enum.auto()
    FINISH_DESC = enum.auto()
    ALLOCATE = enum.auto()
    COPY = enum.auto()
    FREE = enum.auto()


class Kind(enum.IntEnum):
    """Kinds of memory that a program makes."""

    DESCRIPTOR = 0
    HARDWARE_BUFFER = 1


def _numbers(*values: int) -> bytes:
    return b"".join(struct.pack("<Q", value % 2**64) for value in values)


def _size(reader: Reader) -> int:
    """Read a size_t."""
    return reader.number() % 2**64


def _float(number: int) -> float:
    return float(np.uint32(number % 2**32).view(np.float32))


def _type(reader: Reader) -> tuple[NewType, float, int] | None:
    """Read an operand type; None if the program gave none."""
    present, kind, scale, zero_point = (reader.number() for _ in range(4))
    dimensions = reader.longs()
    return (NewType(kind, dimensions), _float(scale), zero_point) if present else None


class NdkCalls:
    """Objects of one program.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._device = IDevice(machine=machine, float_npu=machine.settings.float == "fp16")
        self._summary = Summary(self._device, machine.settings.check)
        machine.finish(self._finish)
        self._objects: dict[int, Any] = {}
        self._last = 0
        self._calls: dict[NdkRequest, Callable[[int, Reader], bytes | None]] = {
            NdkRequest.MODEL: lambda _, __: self._new(ModelBuilder()),
            NdkRequest.DESC: lambda _, __: self._new(MemoryDesc()),
            NdkRequest.OPERAND: self._operand,
            NdkRequest.VALUE: self._value,
            NdkRequest.VALUE_LENGTH: lambda n, r: self._model(n).check_length(r.number(), _size(r)),
            NdkRequest.VALUE_FROM_MEMORY: self._value_from_memory,
            NdkRequest.VALUE_FROM_MODEL: self._value_from_model,
            NdkRequest.CHANNEL_SCALES: self._channel_scales,
            NdkRequest.SCALES_COUNT: lambda n, r: self._model(n).check_scales(
                r.number(), r.number(), r.number()
            ),
            NdkRequest.EXTENSION_DATA: lambda n, r: self._model(n).set_extension_data(r.number()),
            NdkRequest.OPERATION: lambda n, r: self._model(n).add_operation(r.number(), r.longs(), r.longs()),
            NdkRequest.IDENTIFY: lambda n, r: self._model(n).identify(r.longs(), r.longs()),
            NdkRequest.RELAX: lambda n, r: self._model(n).relax(bool(r.number())),
            NdkRequest.FINISH_MODEL: lambda n, _: self._model(n).finish(),
            NdkRequest.SUPPORTED: self._supported,
            NdkRequest.COMPILATION: lambda n, r: self._new(Compilation(self._model(n), bool(r.number()))),
            NdkRequest.PREFERENCE: lambda n, r: self._compilation(n).set_preference(r.number()),
            NdkRequest.PRIORITY: lambda n, r: self._compilation(n).set_priority(r.number()),
            NdkRequest.CACHING: lambda n, _: self._compilation(n).set_caching(),
            NdkRequest.COMPILE_TIMEOUT: lambda n, _: self._compilation(n).set_timeout(),
            NdkRequest.FINISH_COMPILATION: self._compile,
            NdkRequest.PREFERRED: lambda n, r: _numbers(
                self._compilation(n).preferred(bool(r.number()), r.number())
            ),
            NdkRequest.EXECUTION: lambda n, _: self._new(Execution(self._compilation(n))),
            NdkRequest.BURST: lambda n, _: self._new(Burst(self._compilation(n))),
            NdkRequest.ARGUMENT: self._argument,
            NdkRequest.TIMEOUT: lambda n, r: self._execution(n).set_timeout(r.number() % 2**64),
            NdkRequest.LOOP_TIMEOUT: lambda n, r: self._execution(n).set_loop_timeout(r.number() % 2**64),
            NdkRequest.MEASURE: lambda n, r: self._execution(n).set_measured(bool(r.number())),
            NdkRequest.REUSABLE: lambda n, r: self._execution(n).set_reusable(bool(r.number())),
            NdkRequest.PADDING: lambda n, r: self._execution(n).enable_padding(bool(r.number())),
            NdkRequest.BEGIN: self._begin,
            NdkRequest.COMPUTE: self._compute,
            NdkRequest.GIVE_UP: lambda n, _: self._execution(n).give_up(),
            NdkRequest.RANK: self._rank,
            NdkRequest.DIMENSIONS: self._dimensions,
            NdkRequest.DURATION: lambda n, r: _numbers(self._execution(n).duration(r.number())),
            NdkRequest.MEMORY: self._memory,
            NdkRequest.ROLE: self._role,
            NdkRequest.DESC_DIMENSIONS: lambda n, r: self._get(n, MemoryDesc).set_dimensions(r.longs()),
            NdkRequest.FINISH_DESC: lambda n, _: self._get(n, MemoryDesc).finish(),
            NdkRequest.ALLOCATE: lambda n, _: self._new(self._get(n, MemoryDesc).allocate(self._device)),
            NdkRequest.COPY: lambda n, r: copy(self._shared(n), self._shared(r.number())),
            NdkRequest.FREE: self._free,
        }

    def greeting(self) -> bytes:
        """Return the longest time of a call in milliseconds."""
        return struct.pack("<Q", self._machine.settings.timeout * 1000)

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Execute a request and return the answer with its contents."""
        reader = Reader(memory[: request.used])
        code = ResultCode.NO_ERROR
        try:
            content = self._calls[NdkRequest(request.call)](request.number, reader) or b""
        except NdkError as error:
            code, content = error.code, f"{error.code.name}: {error}".encode()
        except Mismatch as error:
            self._summary.mismatch = self._summary.mismatch or str(error)
            raise
        return Message(request.call, number=code, size=request.size), content

    def _finish(self) -> tuple[dict[str, Any], list[str]]:
        self._device.close()
        return self._summary.finish()

    def _new(self, made: object) -> bytes:
        self._last += 1
        self._objects[self._last] = made
        return _numbers(self._last)

    def _get(self, number: int, kind: type[T]) -> T:
        found = self._objects.get(number)
        if not isinstance(found, kind):
            raise bad_data("an object does not exist any more")
        return found

    def _model(self, number: int) -> ModelBuilder:
        return self._get(number, ModelBuilder)

    def _compilation(self, number: int) -> Compilation:
        return self._get(number, Compilation)

    def _execution(self, number: int) -> Execution:
        return self._get(number, Execution)

    def _shared(self, number: int) -> Memory:
        found = self._objects.get(number)
        if not isinstance(found, SharedMemory | DriverMemory):
            raise bad_data("a memory does not exist any more")
        return found

    def _operand(self, number: int, reader: Reader) -> bytes:
        given = _type(reader)
        if given is None:
            raise bad_data("an operand without a type")
        new, scale, zero_point = given
        self._model(number).add_operand(new.type, new.dimensions, scale, zero_point)
        return b""

    def _value(self, number: int, reader: Reader) -> bytes:
        index, present, value = reader.number(), reader.number(), reader.bytes()
        self._model(number).set_value(index, value if present else None)
        return b""

    def _value_from_memory(self, number: int, reader: Reader) -> bytes:
        index, memory, offset, length = reader.number(), reader.number(), _size(reader), _size(reader)
        self._model(number).set_value_from_memory(index, self._shared(memory), offset, length)
        return b""

    def _value_from_model(self, number: int, reader: Reader) -> bytes:
        index, value = reader.number(), reader.number()
        self._model(number).set_value_from_model(index, self._model(value))
        return b""

    def _channel_scales(self, number: int, reader: Reader) -> bytes:
        index, dimension = reader.number(), reader.number()
        self._model(number).set_channel_scales(index, dimension, [float(x) for x in reader.floats()])
        return b""

    def _supported(self, number: int, _: Reader) -> bytes:
        model = self._model(number)
        if not model.finished:
            raise bad_state("the model is not finished")
        with as_results():
            found = self._device.supported_operations(*model.merged())
        answers = bytearray(len(found))
        for place, one in zip(model.order, found, strict=True):
            answers[place] = one
        return bytes(answers)

    def _compile(self, number: int, _: Reader) -> bytes:
        compilation = self._compilation(number)
        compilation.finish(self._device)
        self._summary.add(compilation.prepared)
        return b""

    def _argument(self, number: int, reader: Reader) -> bytes:
        output, index, new = bool(reader.number()), reader.number(), _type(reader)
        omitted, memory, offset, length = reader.number(), reader.number(), _size(reader), _size(reader)
        given = Argument(
            omitted=bool(omitted),
            memory=self._shared(memory) if memory else None,
            offset=offset,
            length=length,
        )
        self._execution(number).set_argument(output, index, new[0] if new else None, given)
        return b""

    def _begin(self, number: int, reader: Reader) -> bytes:
        burst = reader.number()
        self._execution(number).begin(self._get(burst, Burst) if burst else None)
        return b""

    def _compute(self, number: int, reader: Reader) -> bytes:
        limit = reader.number()
        inputs = [reader.bytes() for _ in range(reader.count(MOST_TENSORS))]
        made = self._execution(number).compute(inputs, None if limit < 0 else limit)
        return b"".join(_numbers(len(data)) + data for data in made)

    def _rank(self, number: int, reader: Reader) -> bytes:
        execution, index = self._execution(number), reader.number()
        return _numbers(execution.sufficient(index), execution.rank(index))

    def _dimensions(self, number: int, reader: Reader) -> bytes:
        execution, index = self._execution(number), reader.number()
        return _numbers(execution.sufficient(index), *execution.dimensions(index))

    def _memory(self, _: int, reader: Reader) -> bytes:
        kind, pid, fd, prot = (reader.number() for _ in range(4))
        size, offset = _size(reader), _size(reader)
        if kind == Kind.HARDWARE_BUFFER:
            return self._new(SharedMemory(hardware_buffer(size)))
        return self._new(from_descriptor(pid, fd, prot, size, offset))

    def _role(self, number: int, reader: Reader) -> bytes:
        output, compilation, index, frequency = (reader.number() for _ in range(4))
        desc = self._get(number, MemoryDesc)
        desc.add_role(self._compilation(compilation), bool(output), index, _float(frequency))
        return b""

    def _free(self, number: int, _: Reader) -> bytes:
        free = getattr(self._objects.pop(number, None), "free", None)
        if free is not None:
            free()
        return b""
