"""NNAPI's driver memory: pools, requests and memory domains, with one test for each rule."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.apis.nnapi.buffers import IBuffer, combined
from rkcosim.apis.nnapi.device import IDevice, IPreparedModel
from rkcosim.apis.nnapi.hal_types import BufferDesc, BufferRole, Request, RequestArgument
from rkcosim.apis.nnapi.memory import (
    PROT_READ,
    PROT_WRITE,
    MemoryPool,
    ashmem,
    hardware_buffer,
    hardware_buffer_blob,
    mmap_fd,
)
from rkcosim.apis.nnapi.model import DataLocation, Model, OperandLifeTime
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.status import ErrorStatus, HalError, OutputShape
from tests.makers.nnapi_models import F32, I32, S8, Builder, T

SIZE = (1, 6, 7, 32)
BYTES = int(np.prod(SIZE))


@pytest.fixture(scope="module")
def device() -> Iterator[IDevice]:
    """A device of the golden model."""
    with IDevice(engine="golden") as made:
        yield made


def layer(seed: int = 1, scale_in: float = 0.05, scale_out: float = 0.05) -> Model:
    """Return a convolution 1x1 from 32 to 32 channels, in the quantisation of its input."""
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input(S8, SIZE, scale_in, 3)
    weights = b.constant(S8, rng.integers(-20, 21, (32, 1, 1, 32)), 0.01)
    bias = b.constant(I32, rng.integers(-500, 500, 32), scale_in * 0.01)
    y = b.output(S8, SIZE, scale_out, 3)
    words = [b.scalar(n) for n in (1, 1, 1, 0)]
    b.add("CONV_2D", [x, weights, bias, *words], y)
    return b.model()


def addition(first: tuple[int, ...] = (2, 3), second: tuple[int, ...] = (2, 3)) -> Model:
    """Return the sum of two float tensors, which the host computes."""
    b = Builder()
    x, y = b.input(F32, first), b.input(F32, second)
    z = b.output(F32, tuple(p or q for p, q in zip(first, second, strict=False)))
    b.add("ADD", [x, y, b.scalar(0)], z)
    return b.model()


def place(pool: int, offset: int = 0, length: int = 0, **more: Any) -> RequestArgument:
    """Return an argument in a pool."""
    return RequestArgument(location=DataLocation(pool, offset, length), **more)


def data(seed: int = 2) -> np.ndarray:
    """Return an input of `layer`."""
    return np.random.default_rng(seed).integers(-128, 128, SIZE).astype(np.int8)


def shared(array: np.ndarray) -> MemoryPool:
    """Return shared memory with an array."""
    pool = ashmem(array.nbytes)
    pool.write(0, array)
    return pool


def received(pool: MemoryPool, dtype: Any = np.int8, shape: tuple[int, ...] = SIZE) -> np.ndarray:
    """Return the array of a shared memory."""
    return np.frombuffer(pool.read(0, pool.size), dtype).reshape(shape)


def wanted(model: IPreparedModel, array: np.ndarray) -> np.ndarray:
    """Return the result of a model of one layer through shared memory."""
    with shared(array) as source, ashmem(BYTES) as target:
        request = Request((place(0, 0, BYTES),), (place(1, 0, BYTES),), (source, target))
        model.execute_synchronously(request)
        return received(target)


def refused(status: ErrorStatus, words: str, call: Any, *arguments: Any, **options: Any) -> HalError:
    """Check the error of a call, and return it."""
    with pytest.raises(HalError, match=words) as found:
        call(*arguments, **options)
    assert found.value.status is status
    return found.value


INVALID, FAILED = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE


# -- memory pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ashmem", "mmap_fd", "hardware_buffer_blob"])
def test_pools_hold_inputs_outputs_and_constants(device: IDevice, kind: str, tmp_path: Path) -> None:
    def made(size: int) -> MemoryPool:
        if kind == "mmap_fd":
            file = tmp_path / f"{size}"
            file.write_bytes(bytes(4096 + size))
            with file.open("r+b") as opened:
                return mmap_fd(size, PROT_READ | PROT_WRITE, opened.fileno(), 4096)
        return {"ashmem": ashmem, "hardware_buffer_blob": hardware_buffer_blob}[kind](size)

    model = layer()
    weights = model.main.operands[1]
    raw = model.operand_values[weights.location.offset :][: weights.location.length]
    constants = made(len(raw) + 64)
    constants.write(64, raw)
    moved = replace(
        weights,
        lifetime=OperandLifeTime.CONSTANT_POOL,
        location=DataLocation(0, 64, len(raw)),
    )
    operands = (model.main.operands[0], moved, *model.main.operands[2:])
    by_reference = replace(model, main=replace(model.main, operands=operands))
    prepared = device.prepare_model(by_reference, [constants])
    constants.write(64, bytes(len(raw)))  # the values were read at the preparation
    constants.close()
    source, target = made(BYTES + 8), made(2 * BYTES)
    source.write(8, data())
    request = Request((place(0, 8, BYTES),), (place(1, BYTES, BYTES),), (source, target))
    before = device.traffic.copied_in, device.traffic.copied_out
    result = prepared.execute_synchronously(request, measure=True)
    assert result.output_shapes == (OutputShape(SIZE),) and result.timing.time_in_driver_ns > 0
    assert (device.traffic.copied_in - before[0], device.traffic.copied_out - before[1]) == (BYTES, BYTES)
    expected = wanted(device.prepare_model(model), data())
    assert target.read(BYTES, BYTES) == expected.tobytes() and target.read(0, BYTES) == bytes(BYTES)
    assert all(record.place == "npu" for record in prepared.account.operations)


def test_other_hardware_buffers_are_refused(device: IDevice) -> None:
    model = layer()
    memory = hardware_buffer(4096)
    assert not memory.mappable
    refused(FAILED, "'hardware_buffer' is not supported", device.prepare_model, model, [memory])
    refused(FAILED, "'hardware_buffer' is not supported", device.supported_operations, model, [memory])
    prepared, target = device.prepare_model(model), ashmem(BYTES)
    target.write(0, data())
    for pools in ((memory, target), (target, memory)):
        request = Request((place(0, 0, BYTES),), (place(1, 0, BYTES),), pools)
        refused(
            FAILED, "put 0: memory of the kind 'hardware_buffer'", prepared.execute_synchronously, request
        )
    assert received(target).tobytes() == data().tobytes(), "nothing was written"


def test_pools_keep_their_limits(tmp_path: Path) -> None:
    refused(INVALID, "memory of 0 bytes", ashmem, 0)
    pool = ashmem(16)
    refused(INVALID, "bytes 12 to 20 lie outside a memory of 16", pool.read, 12, 8)
    refused(INVALID, "outside", pool.write, 10, bytes(7))
    refused(INVALID, "outside", pool.read, -1, 2)
    pool.close()
    pool.close()
    refused(FAILED, "cannot be mapped", pool.read, 0, 1)
    file = tmp_path / "data"
    file.write_bytes(bytes(range(100)))
    with file.open("rb") as opened:
        fd = opened.fileno()
        refused(INVALID, "protection of a memory is 4", mmap_fd, 8, 4, fd)
        refused(INVALID, "memory of 0 bytes at offset 0", mmap_fd, 0, PROT_READ, fd)
        refused(INVALID, "offset -1", mmap_fd, 8, PROT_READ, fd, -1)
        only = mmap_fd(50, PROT_READ, fd, 60)
        longer = mmap_fd(8, PROT_READ | PROT_WRITE, fd)
    refused(INVALID, "is not open", mmap_fd, 8, PROT_READ, 10**6)
    assert only.read(3, 4) == bytes(range(63, 67)), "the descriptor was duplicated"
    refused(FAILED, "may not be written", only.write, 0, b"x")
    refused(FAILED, "ends before byte 50", only.read, 0, 50)
    refused(FAILED, "cannot be written", longer.write, 0, b"x")
    os.truncate(file, 61)
    refused(FAILED, "ends before", only.read, 0, 4)


# -- requests --------------------------------------------------------------------------------------------


def test_requests_are_checked(device: IDevice) -> None:
    prepared = device.prepare_model(layer())
    source, target = shared(data()), ashmem(BYTES)
    good = Request((place(0, 0, BYTES),), (place(1, 0, BYTES),), (source, target))

    def wrong(words: str, **members: Any) -> None:
        refused(INVALID, words, prepared.execute_synchronously, replace(good, **members))

    wrong("has 1 inputs, the request 2", inputs=good.inputs * 2)
    wrong("has 1 outputs, the request 0", outputs=())
    wrong("input 0 lies in pool 2 of 2", inputs=(place(2, 0, BYTES),))
    wrong(f"bytes 1 to {BYTES + 1} of a memory of {BYTES}", inputs=(place(0, 1, BYTES),))
    wrong("negative offset", inputs=(place(0, -4, BYTES),))
    wrong(f"has {BYTES} bytes, not {BYTES - 1}", inputs=(place(0, 0, BYTES - 1),))
    wrong("output 0 has no memory", outputs=(RequestArgument(has_no_value=True),))
    wrong("has the dimensions", inputs=(place(0, 0, BYTES, dimensions=(1, 6, 7, 31)),))
    wrong("has the dimensions", outputs=(place(1, 0, BYTES, dimensions=(6, 7, 32)),))
    wrong("no buffer with the token 77", inputs=(place(2),), pools=(source, target, 77))
    wrong("no buffer with the token 0", inputs=(place(2),), pools=(source, target, 0))
    fits = replace(good, inputs=(place(0, 0, BYTES, dimensions=SIZE),))
    prepared.execute_synchronously(fits)
    padded = RequestArgument(location=DataLocation(1, 0, BYTES - 4, 4))
    small = refused(
        ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
        "output 0 is too small",
        prepared.execute_synchronously,
        replace(good, outputs=(padded,)),
    )
    assert small.output_shapes == (OutputShape(SIZE, is_sufficient=False),)
    late = ErrorStatus.MISSED_DEADLINE_TRANSIENT
    refused(late, "deadline", prepared.execute_synchronously, good, deadline=0.0)
    prepared.close()
    prepared.close()
    refused(FAILED, "is freed", prepared.execute_synchronously, good)


def test_dimensions_of_an_execution_decide_unknown_ones(device: IDevice) -> None:
    prepared = device.prepare_model(addition((0, 3), (0, 3)))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    source, target = shared(x), ashmem(60)
    unknown = Request((place(0, 0, 48),) * 2, (place(1, 0, 60),), (source, target))
    refused(INVALID, r"dimensions \[0, 3\] of input 0", prepared.execute_synchronously, unknown)
    known = replace(unknown, inputs=(place(0, 0, 48, dimensions=(4, 3)),) * 2)
    assert prepared.execute_synchronously(known).output_shapes == (OutputShape((4, 3)),)
    assert np.array_equal(np.frombuffer(target.read(0, 48), np.float32), 2 * x.ravel())
    contradicting = replace(known, outputs=(place(1, 0, 60, dimensions=(5, 3)),))
    refused(FAILED, "output 0 has dimensions", prepared.execute_synchronously, contradicting)


def test_unsupported_and_invalid_models(device: IDevice) -> None:
    b = Builder()
    x, y = b.input(F32, (1, 3)), b.output(I32, (1, 4))
    b.add("RANDOM_MULTINOMIAL", [x, b.scalar(4), b.constant(I32, [1, 2])], y)
    refused(FAILED, "RANDOM_MULTINOMIAL is not supported", device.prepare_model, b.model())
    assert device.supported_operations(b.model()) == [False]
    assert device.supported_operations(layer()) == [True]
    broken = layer()
    broken = replace(broken, main=replace(broken.main, output_indexes=(99,)))
    refused(INVALID, "output|operand", device.prepare_model, broken)


# -- allocation ------------------------------------------------------------------------------------------


def test_rules_of_allocation(device: IDevice) -> None:
    first, second = device.prepare_model(layer()), device.prepare_model(layer(2, scale_in=0.07))
    role = BufferRole(0, 0)

    def wrong(words: str, *arguments: Any) -> None:
        refused(INVALID, words, device.allocate, *arguments)

    wrong("needs a prepared model", BufferDesc(), [], [role], [])
    wrong("needs a role", BufferDesc(), [first], [], [])
    wrong("names model 1 of 1", BufferDesc(), [first], [BufferRole(1, 0)], [])
    wrong("names model -1", BufferDesc(), [first], [BufferRole(-1, 0)], [])
    wrong("names input 1 of 1", BufferDesc(), [first], [BufferRole(0, 1)], [])
    wrong("names output 2 of 1", BufferDesc(), [first], [], [BufferRole(0, 2)])
    for probability in (0.0, -0.5, 1.5, float("nan")):
        wrong("probability", BufferDesc(), [first], [BufferRole(0, 0, probability)], [])
    wrong("input 0 is given twice", BufferDesc(), [first], [role, BufferRole(0, 0, 0.5)], [])
    wrong("another type or quantisation", BufferDesc(), [first, second], [role, BufferRole(1, 0)], [])
    wrong("which contradict", BufferDesc((1, 6, 7, 31)), [first], [role], [])
    wrong("which contradict", BufferDesc((6, 7, 32)), [first], [role], [])
    wrong(r"has the dimensions \[-1", BufferDesc((-1, 6, 7, 32)), [first], [role], [])
    with IDevice(engine="golden") as other:
        foreign = other.prepare_model(layer())
        wrong("prepared model 1 is not one of this device", BufferDesc(), [first, foreign], [role], [])
    second.close()
    wrong("prepared model 0 is not one", BufferDesc(), [second], [role], [])
    with device.allocate(BufferDesc((0, 6, 0, 32)), [first], [role], [role]) as buffer:
        assert buffer.initial_dimensions == SIZE and buffer.token > 0 and not buffer.initialized


def test_scalars_have_no_dimensions(device: IDevice) -> None:
    b = Builder()
    x, axis = b.input(F32, (2, 3)), b.input(T.INT32)
    y = b.output(F32, (0, 0, 0))
    b.add("EXPAND_DIMS", [x, axis], y)
    prepared = device.prepare_model(b.model())
    refused(INVALID, "a scalar", device.allocate, BufferDesc((1,)), [prepared], [BufferRole(0, 1)], [])
    with device.allocate(BufferDesc(), [prepared], [BufferRole(0, 1)], []) as buffer, ashmem(4) as memory:
        memory.write(0, np.int32(1).tobytes())
        refused(INVALID, "scalar has no dimensions", buffer.copy_from, memory, (1,))
        buffer.copy_from(memory)
        assert buffer.content() == 1


def test_tokens_are_used_again_and_only_by_their_device(device: IDevice) -> None:
    prepared = device.prepare_model(layer())
    roles = ([BufferRole(0, 0)], [BufferRole(0, 0)])
    first = device.allocate(BufferDesc(), [prepared], *roles)
    second = device.allocate(BufferDesc(), [prepared], *roles)
    assert first.token != second.token and min(first.token, second.token) > 0
    freed = first.token
    first.close()
    first.close()
    request = Request((place(0),), (place(1),), (freed, second.token))
    refused(INVALID, f"token {freed}", prepared.execute_synchronously, request)
    refused(FAILED, "is freed", first.copy_to, ashmem(BYTES))
    with device.allocate(BufferDesc(), [prepared], *roles) as third:
        assert third.token == freed
    with IDevice(engine="golden") as other:
        theirs = other.prepare_model(layer())
        stranger = Request((place(0),), (place(1, 0, BYTES),), (second.token, ashmem(BYTES)))
        refused(INVALID, "there is no buffer", theirs.execute_synchronously, stranger)
    second.close()


# -- roles, content and dimensions -------------------------------------------------------------------------


def pair(device: IDevice) -> tuple[IPreparedModel, IPreparedModel, IBuffer]:
    """Return two layers, and a buffer from the first to the second."""
    first, second = device.prepare_model(layer(1)), device.prepare_model(layer(2))
    buffer = device.allocate(BufferDesc(), [first, second], [BufferRole(1, 0)], [BufferRole(0, 0)])
    return first, second, buffer


def test_a_chain_keeps_its_tensor_in_device_memory(device: IDevice) -> None:
    first, second, buffer = pair(device)
    source, target = shared(data()), ashmem(BYTES)
    kept = device.traffic.kept
    before = second.account.bytes_converted
    first.execute_synchronously(Request((place(0, 0, BYTES),), (place(1),), (source, buffer.token)))
    assert buffer.initialized and buffer.dimensions == SIZE
    assert isinstance(buffer.content(), NativeTensor), "the output stays in the NPU's layout"
    second.execute_synchronously(Request((place(0),), (place(1, 0, BYTES),), (buffer.token, target)))
    chained = second.account.bytes_converted - before
    expected = wanted(second, wanted(first, data()))
    assert np.array_equal(received(target), expected)
    assert device.traffic.kept - kept == BYTES, "32 channels have no padding in the native layout"
    assert second.account.bytes_unconverted >= BYTES
    before = second.account.bytes_converted
    wanted(second, data())
    assert second.account.bytes_converted - before > chained, "a copy through shared memory is converted"
    with ashmem(BYTES) as copy:
        buffer.copy_to(copy)
        assert np.array_equal(received(copy), wanted(first, data()))
    buffer.close()


def test_a_use_outside_the_roles_fails_at_once(device: IDevice) -> None:
    first, second, buffer = pair(device)
    memory = shared(data())
    as_input = Request((place(0),), (place(1, 0, BYTES),), (buffer.token, memory))
    as_output = Request((place(1, 0, BYTES),), (place(0),), (buffer.token, memory))
    refused(INVALID, "was not allocated for input 0", first.execute_synchronously, as_input)
    refused(INVALID, "was not allocated for output 0", second.execute_synchronously, as_output)
    part = Request((place(1, 0, BYTES),), (place(0, 0, BYTES),), (buffer.token, memory))
    refused(INVALID, "offset and length must be 0", first.execute_synchronously, part)
    refused(FAILED, "is not initialised", second.execute_synchronously, as_input)
    buffer.close()


def test_a_buffer_is_used_once_in_a_request(device: IDevice) -> None:
    prepared = device.prepare_model(layer())
    both = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0)], [BufferRole(0, 0)])
    with shared(data()) as memory:
        both.copy_from(memory)
    request = Request((place(0),), (place(0),), (both.token,))
    refused(INVALID, "is used twice", prepared.execute_synchronously, request)
    assert both.initialized, "nothing was begun"
    both.close()
    b = Builder()
    x = b.input(F32, (2, 3))
    b.add("SPLIT", [x, b.scalar(0), b.scalar(2)], b.output(F32, (1, 3)), b.output(F32, (1, 3)))
    halves = device.prepare_model(b.model())
    two = device.allocate(BufferDesc(), [halves], [], [BufferRole(0, 0), BufferRole(0, 1)])
    request = Request((place(0, 0, 24),), (place(1), place(1)), (ashmem(24), two.token))
    refused(INVALID, "is used twice", halves.execute_synchronously, request)
    two.close()


def test_one_buffer_may_be_two_inputs(device: IDevice) -> None:
    prepared = device.prepare_model(addition())
    buffer = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0), BufferRole(0, 1)], [])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with shared(x) as memory:
        buffer.copy_from(memory)
    target = ashmem(24)
    request = Request((place(0), place(0)), (place(1, 0, 24),), (buffer.token, target))
    prepared.execute_synchronously(request)
    assert np.array_equal(received(target, np.float32, (2, 3)), 2 * x)
    buffer.close()


def test_copies(device: IDevice) -> None:
    first, _, buffer = pair(device)
    memory, small = shared(data(5)), ashmem(BYTES - 1)
    refused(FAILED, "is not initialised", buffer.copy_to, memory)
    refused(INVALID, f"has {BYTES} bytes, the memory {BYTES - 1}|have {BYTES}", buffer.copy_from, small)
    refused(INVALID, "contradict", buffer.copy_from, memory, (1, 6, 7, 31))
    refused(INVALID, "needs known dimensions", buffer.copy_from, memory, (1, 6, 0, 32))
    refused(FAILED, "is not supported", buffer.copy_from, hardware_buffer(BYTES))
    buffer.copy_from(memory, SIZE)
    refused(INVALID, f"the memory 'ashmem' {BYTES - 1}", buffer.copy_to, small)
    refused(FAILED, "is not supported", buffer.copy_to, hardware_buffer(BYTES))
    with hardware_buffer_blob(BYTES) as blob:
        buffer.copy_to(blob)
        assert np.array_equal(received(blob), data(5))
    refused(INVALID, "have", buffer.copy_from, small)
    assert not buffer.initialized, "a copy that failed leaves nothing"
    refused(FAILED, "is not initialised", buffer.copy_to, memory)
    buffer.copy_from(memory)
    failing = Request((place(1, 0, BYTES),), (place(0),), (buffer.token, ashmem(BYTES)))
    first.execute_synchronously(failing)
    assert buffer.initialized
    buffer.close()


def test_an_execution_that_fails_leaves_its_outputs_uninitialised(device: IDevice) -> None:
    prepared = device.prepare_model(addition((0, 3), (0, 3)))
    buffer = device.allocate(BufferDesc((4, 3)), [prepared], [BufferRole(0, 0)], [BufferRole(0, 0)])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    memory = shared(x)
    buffer.copy_from(memory)
    other = shared(np.ones((2, 3), np.float32))
    request = Request(
        (place(0, 0, 48, dimensions=(4, 3)), place(1, 0, 24, dimensions=(2, 3))),
        (place(2),),
        (memory, other, 0),
    )
    request = replace(request, pools=(memory, other, buffer.token))
    refused(FAILED, "ADD", prepared.execute_synchronously, request)
    assert not buffer.initialized
    refused(FAILED, "is not initialised", buffer.copy_to, memory)
    buffer.close()


def test_dimensions_are_dynamic_as_output_and_fixed_as_input(device: IDevice) -> None:
    prepared = device.prepare_model(addition((0, 3), (0, 3)))
    buffer = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0)], [BufferRole(0, 0)])
    assert buffer.initial_dimensions == (0, 3) == buffer.dimensions
    for rows in (4, 2):  # each execution gives the buffer its own dimensions
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        size = (rows, 3)
        memory, target = shared(x), ashmem(x.nbytes)
        argument = place(0, 0, x.nbytes, dimensions=size)
        prepared.execute_synchronously(Request((argument, argument), (place(1),), (memory, buffer.token)))
        assert buffer.dimensions == size
        use = Request((place(1), argument), (place(2, 0, x.nbytes),), (memory, buffer.token, target))
        prepared.execute_synchronously(use)
        assert np.array_equal(received(target, np.float32, size), 3 * x)
        wrong = replace(use, inputs=(place(1, dimensions=(rows + 1, 3)), argument))
        refused(INVALID, "has the dimensions", prepared.execute_synchronously, wrong)
    refused(INVALID, "a copy into it needs dimensions", buffer.copy_from, ashmem(24))
    assert buffer.dimensions == (0, 3), "the initial ones after a failure"
    with shared(np.ones((2, 3), np.float32)) as ones:
        buffer.copy_from(ones, (2, 3))
    assert buffer.dimensions == (2, 3)
    buffer.close()


def test_combined_dimensions() -> None:
    assert combined((), (1, 0)) == (1, 0) == combined((1, 0), ())
    assert combined((0, 3), (2, 0)) == (2, 3)
    assert combined((2,), (3,)) is None and combined((2,), (2, 2)) is None


# -- concurrent use ----------------------------------------------------------------------------------------


def test_conflicts_fail_at_once_and_readers_do_not(device: IDevice) -> None:
    first, second, buffer = pair(device)
    memory = shared(data())
    buffer.copy_from(memory)
    with buffer.reading(), buffer.reading():
        second.execute_synchronously(
            Request((place(0),), (place(1, 0, BYTES),), (buffer.token, ashmem(BYTES)))
        )
        refused(FAILED, "is in use", buffer.copy_from, memory)
        write = Request((place(1, 0, BYTES),), (place(0),), (buffer.token, memory))
        refused(FAILED, "is in use", first.execute_synchronously, write)
    assert buffer.initialized, "the content is still there"
    with buffer.writing() as made:
        refused(FAILED, "is being written", buffer.copy_to, memory)
        refused(FAILED, "is in use", buffer.copy_from, memory)
        made.append(data(9))
    with buffer.reading():
        buffer.close()  # ends after the last use
        assert np.array_equal(buffer.content(), data(9))
    assert not buffer.initialized


def test_many_threads_neither_crash_nor_wait(device: IDevice) -> None:
    first, second, buffer = pair(device)
    memory = shared(data())
    right = {wanted(first, data()).tobytes(), data().tobytes()}
    write = Request((place(1, 0, BYTES),), (place(0),), (buffer.token, memory))
    seen: list[bytes] = []
    strange: list[BaseException] = []

    def work(number: int) -> None:
        target = ashmem(BYTES)
        for _ in range(8):
            try:
                if number % 3 == 0:
                    first.execute_synchronously(write)
                elif number % 3 == 1:
                    buffer.copy_from(memory)
                else:
                    buffer.copy_to(target)
                    seen.append(target.read(0, BYTES))
            except HalError as error:
                if error.status is not FAILED:
                    strange.append(error)
            except BaseException as error:
                strange.append(error)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and not strange, strange
    assert set(seen) <= right, "a reader never sees two contents mixed"
    buffer.close()
    del second


def test_asynchronous_and_fenced_executions(device: IDevice) -> None:
    first, second, buffer = pair(device)
    source, target = shared(data()), ashmem(BYTES)
    one = first.execute(Request((place(0, 0, BYTES),), (place(1),), (source, buffer.token)), measure=True)
    use = Request((place(0),), (place(1, 0, BYTES),), (buffer.token, target))
    two = second.execute_fenced(use, [one], duration=60.0)
    assert two.wait(120).output_shapes == (OutputShape(SIZE),) and one.done and two.done
    assert np.array_equal(received(target), wanted(second, wanted(first, data())))
    assert one.wait().timing.time_in_driver_ns > 0
    bad = first.execute(Request((), (), ()))
    refused(INVALID, "has 1 inputs", bad.wait, 60)
    after = second.execute_fenced(use, [bad])
    refused(FAILED, "that this one waits for failed", after.wait, 60)
    late = second.execute_fenced(use, [one], duration=-1.0)
    refused(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "deadline", late.wait, 60)
    buffer.close()


def test_closing_frees_everything() -> None:
    device = IDevice(engine="golden")
    prepared = device.prepare_model(layer())
    buffer = device.allocate(BufferDesc(), [prepared], [], [BufferRole(0, 0)])
    prepared.execute_synchronously(
        Request((place(0, 0, BYTES),), (place(1),), (shared(data()), buffer.token))
    )
    device.close()
    device.close()
    assert prepared.closed and not buffer.initialized
    refused(FAILED, "is freed", buffer.copy_to, ashmem(BYTES))
