"""rknn_api: zero-copy memory, native attributes, weights and tensors in the program's memory."""

from __future__ import annotations

import ctypes as ct
import os
from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import (
    bytes_of,
    float_model,
    get_float,
    image_model,
    open_model,
    query_attr,
    run_float,
    set_float,
)

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def device() -> Iterator[GoldenNpu]:
    npu = GoldenNpu(3)
    rk.use_device(npu)
    yield npu
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        (rk.rknn_matmul_destroy if not hasattr(runtime.contexts[handle], "model") else rk.rknn_destroy)(
            handle
        )
    rk.use_device(None)


def image(channels: int = 3, size: tuple[int, int] = (6, 10)) -> np.ndarray:
    return (RNG.integers(-100, 100, (1, channels, *size)) / 2).astype(np.float32)


def test_attributes_of_a_picture_and_of_channels() -> None:
    context = open_model(image_model())
    attr = query_attr(context, rk.RKNN_QUERY_INPUT_ATTR)
    assert (list(attr.dims[:4]), attr.fmt, attr.w_stride) == ([1, 6, 10, 3], rk.RKNN_TENSOR_NHWC, 16)
    assert (attr.size, attr.size_with_stride) == (180, 6 * 16 * 3)
    native = query_attr(context, rk.RKNN_QUERY_NATIVE_INPUT_ATTR)
    assert (list(native.dims[:4]), native.fmt, native.type) == (
        [1, 6, 10, 3],
        rk.RKNN_TENSOR_NHWC,
        rk.RKNN_TENSOR_INT8,
    )
    out = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR)
    assert (list(out.dims[:4]), out.fmt, out.w_stride) == ([1, 20, 6, 10], rk.RKNN_TENSOR_NCHW, 0)
    assert (out.size, out.size_with_stride) == (20 * 60, 32 * 60)  # whole kernel groups are written
    native = query_attr(context, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR)
    assert (list(native.dims[:5]), native.fmt) == ([1, 2, 6, 10, 16], rk.RKNN_TENSOR_NC1HWC2)
    assert (native.n_elems, native.size, native.zp, native.scale) == (32 * 60, 32 * 60, 4, 1.0)
    rows = query_attr(context, rk.RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR)
    assert (list(rows.dims[:4]), rows.fmt, rows.size) == ([1, 6, 10, 20], rk.RKNN_TENSOR_NHWC, 1200)
    for now, then in ((14, 1), (15, 2), (16, 8), (17, 9)):
        assert bytes(query_attr(context, now)) == bytes(query_attr(context, then))
    deep = open_model(image_model(20))
    native = query_attr(deep, rk.RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR)
    assert (list(native.dims[:5]), native.fmt) == ([1, 2, 6, 10, 16], rk.RKNN_TENSOR_NC1HWC2)


@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_zero_copy_equals_the_general_path(channels: int, dtype: type) -> None:
    context = open_model(image_model(channels, dtype=dtype))
    x = image(channels)
    want = run_float(context, x)
    zero = open_model(image_model(channels, dtype=dtype))
    for native in (False, True):
        attr = query_attr(zero, rk.RKNN_QUERY_NATIVE_INPUT_ATTR if native else rk.RKNN_QUERY_INPUT_ATTR)
        out = query_attr(zero, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR)
        memory = rk.rknn_create_mem(zero, attr.size_with_stride)
        result = rk.rknn_create_mem(zero, out.size_with_stride)
        assert rk.rknn_set_io_mem(zero, memory, ct.byref(attr)) == rk.RKNN_SUCC
        assert rk.rknn_set_io_mem(zero, result, ct.byref(out)) == rk.RKNN_SUCC
        limits = np.iinfo(np.int8 if attr.type == rk.RKNN_TENSOR_INT8 else np.uint8)
        codes = np.clip(np.rint(x / attr.scale) + attr.zp, limits.min, limits.max).astype(limits.dtype)
        if attr.fmt == rk.RKNN_TENSOR_NHWC:
            rows = bytes_of(memory)[: 6 * attr.w_stride * channels].reshape(6, attr.w_stride, channels)
            rows[:, :10] = codes[0].transpose(1, 2, 0).view(np.uint8)
        else:
            blocks = np.zeros((2, 16, 6, 10), codes.dtype)
            blocks.reshape(32, 6, 10)[:channels] = codes[0]
            bytes_of(memory)[:] = blocks.transpose(0, 2, 3, 1).reshape(-1).view(np.uint8)
        assert rk.rknn_run(zero, None) == rk.RKNN_SUCC, rk.last_error(zero)
        atoms = bytes_of(result).view(np.int8).reshape(2, 6, 10, 16).transpose(0, 3, 1, 2).reshape(32, 6, 10)
        got = (atoms[:20].astype(np.float32) - out.zp) * out.scale
        assert np.array_equal(got, want[0])
        assert rk.rknn_destroy_mem(zero, memory) == rk.rknn_destroy_mem(zero, result) == rk.RKNN_SUCC


@pytest.mark.parametrize("channels", [3, 20])
def test_floats_are_fp16(channels: int) -> None:
    context = open_model(float_model(channels), rk.RKNN_FLAG_COLLECT_PERF_MASK)
    x = (RNG.integers(-32, 32, (1, channels, 6, 10)) / 8).astype(np.float32)
    want = run_float(context, x)
    assert want.any()
    for query in (rk.RKNN_QUERY_INPUT_ATTR, rk.RKNN_QUERY_OUTPUT_ATTR, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR):
        attr = query_attr(context, query)
        assert (attr.type, attr.qnt_type) == (
            rk.RKNN_TENSOR_FLOAT16,
            rk.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC,
        )
        assert (attr.zp, attr.scale, attr.size) == (0, 1.0, 2 * attr.n_elems)
    info = rk.rknn_perf_detail()
    assert rk.rknn_query(context, rk.RKNN_QUERY_PERF_DETAIL, ct.byref(info), 16) == rk.RKNN_SUCC
    assert "FLOAT16  NPU" in ct.string_at(info.perf_data, info.data_len).decode()
    native = query_attr(context, rk.RKNN_QUERY_NATIVE_INPUT_ATTR)
    out = query_attr(context, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR)
    assert native.fmt == out.fmt == rk.RKNN_TENSOR_NC1HWC2 and native.dims[4] == out.dims[4] == 8
    memory = rk.rknn_create_mem(context, native.size_with_stride)
    result = rk.rknn_create_mem(context, out.size_with_stride)
    assert rk.rknn_set_io_mem(context, memory, native) == rk.RKNN_SUCC
    assert rk.rknn_set_io_mem(context, result, out) == rk.RKNN_SUCC
    blocks = np.zeros((native.dims[1] * 8, 6, 10), np.float16)
    blocks[:channels] = x[0]
    atoms = np.ascontiguousarray(blocks.reshape(-1, 8, 6, 10).transpose(0, 2, 3, 1))
    bytes_of(memory)[:] = atoms.reshape(-1).view(np.uint8)
    assert rk.rknn_run(context, None) == rk.RKNN_SUCC
    got = bytes_of(result).view(np.float16).reshape(out.dims[1], 6, 10, 8).transpose(0, 3, 1, 2)
    assert np.array_equal(got.reshape(-1, 6, 10)[:20], want[0])
    rows = query_attr(context, rk.RKNN_QUERY_INPUT_ATTR)
    assert rk.rknn_set_io_mem(context, memory, rows) == rk.RKNN_SUCC
    dense = np.ascontiguousarray(x[0].transpose(1, 2, 0)).astype(np.float16)
    bytes_of(memory)[: dense.nbytes] = dense.reshape(-1).view(np.uint8)
    assert rk.rknn_run(context, None) == rk.RKNN_SUCC
    assert np.array_equal(get_float(context), want)


@pytest.mark.parametrize("fmt", [rk.RKNN_TENSOR_NCHW, rk.RKNN_TENSOR_NHWC, rk.RKNN_TENSOR_NC1HWC2])
@pytest.mark.parametrize("kind", [rk.RKNN_TENSOR_FLOAT32, rk.RKNN_TENSOR_FLOAT16, rk.RKNN_TENSOR_INT8])
def test_outputs_in_every_type_and_order(fmt: int, kind: int) -> None:
    context = open_model(image_model())
    x = image()
    want = run_float(context, x)[0]
    attr = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR)
    attr.fmt, attr.type = fmt, kind
    dtype = {0: np.float32, 1: np.float16, 2: np.int8}[kind]
    elements = 32 * 60 if fmt == rk.RKNN_TENSOR_NC1HWC2 else 1200
    small = rk.rknn_create_mem(context, elements * np.dtype(dtype).itemsize - 1)
    assert rk.rknn_set_io_mem(context, small, attr) == rk.RKNN_ERR_PARAM_INVALID
    assert "output memory size" in str(rk.last_error(context))
    memory = rk.rknn_create_mem(context, elements * np.dtype(dtype).itemsize)
    assert rk.rknn_set_io_mem(context, memory, attr) == rk.RKNN_SUCC
    set_float(context, x)
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    values = bytes_of(memory).view(dtype)
    if fmt == rk.RKNN_TENSOR_NHWC:
        values = values.reshape(6, 10, 20).transpose(2, 0, 1)
    elif fmt == rk.RKNN_TENSOR_NC1HWC2:
        values = values.reshape(2, 6, 10, 16).transpose(0, 3, 1, 2).reshape(32, 6, 10)[:20]
    got = values.reshape(20, 6, 10).astype(np.float32)
    if kind == rk.RKNN_TENSOR_INT8:
        got = (got - attr.zp) * attr.scale
    assert np.array_equal(got, want)


def test_an_input_of_another_type_is_converted_at_each_run() -> None:
    context = open_model(image_model())
    attr = query_attr(context, rk.RKNN_QUERY_INPUT_ATTR)
    attr.type = rk.RKNN_TENSOR_UINT8  # the vendor's samples do this: raw pixels in, rows of w_stride
    memory = rk.rknn_create_mem(context, attr.size_with_stride)
    assert rk.rknn_set_io_mem(context, memory, attr) == rk.RKNN_SUCC
    for _ in range(2):
        pixels = RNG.integers(0, 60, (6, 10, 3)).astype(np.uint8)
        bytes_of(memory).reshape(6, attr.w_stride, 3)[:, :10] = pixels
        assert rk.rknn_run(context, None) == rk.RKNN_SUCC
        got = get_float(context)
        other = open_model(image_model())
        assert np.array_equal(got, run_float(other, pixels.transpose(2, 0, 1)[None].astype(np.float32)))


def test_memory_from_fd_and_address() -> None:
    context, other = open_model(image_model()), open_model(image_model())
    memory = rk.rknn_create_mem(context, 4096)
    struct = memory.contents
    assert struct.flags == rk.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE and struct.fd >= 0 and struct.size == 4096
    bytes_of(memory)[:] = 7
    same = rk.rknn_create_mem_from_fd(other, struct.fd, struct.virt_addr, 1024, 512)
    assert same.contents.phys_addr == struct.phys_addr + 512
    assert same.contents.flags == rk.RKNN_TENSOR_MEMORY_FLAGS_FROM_FD
    bytes_of(same)[:] = 9
    assert bytes_of(memory)[511:514].tolist() == [7, 9, 9]
    phys = rk.rknn_create_mem_from_phys(other, struct.phys_addr + 4000, None, 96)
    assert phys.contents.flags == rk.RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS
    bytes_of(phys)[:] = 3
    assert bytes_of(memory)[3999:].tolist() == [7] + [3] * 96
    assert rk.rknn_destroy_mem(context, memory) == rk.RKNN_SUCC
    assert bytes_of(phys)[0] == 3, "another memory still names the bytes"
    assert rk.rknn_destroy_mem(context, memory) == rk.RKNN_ERR_PARAM_INVALID
    assert not rk.rknn_create_mem_from_fd(other, struct.fd + 9999, None, 16, 0)
    assert not rk.rknn_create_mem_from_phys(other, 0xDEAD0000, None, 16)
    assert not rk.rknn_create_mem_from_mb_blk(other, None, 0)
    assert not rk.rknn_create_mem(rk.rknn_context(1 << 60), 16) and not rk.rknn_create_mem(context, 0)


def test_the_programs_own_memory_is_copied_at_sync() -> None:
    context = open_model(image_model())
    own = np.arange(256, dtype=np.uint8)
    memory = rk.rknn_create_mem_from_phys(context, 0, own.ctypes.data, 256)
    from rkcosim.rknn_api.memory import memory_of

    shadow = memory_of(memory)
    assert shadow.view().tobytes() == own.tobytes() and memory.contents.virt_addr == own.ctypes.data
    own[:] = 1
    assert shadow.view()[0] == 0
    assert rk.rknn_mem_sync(context, memory, rk.RKNN_MEMORY_SYNC_TO_DEVICE) == rk.RKNN_SUCC
    assert shadow.view()[0] == 1
    shadow.view()[:] = 2
    assert rk.rknn_mem_sync(None, memory, rk.RKNN_MEMORY_SYNC_FROM_DEVICE) == rk.RKNN_SUCC
    assert own.tolist() == [2] * 256
    assert rk.rknn_mem_sync(context, memory, 4) == rk.RKNN_ERR_PARAM_INVALID
    fd = os.memfd_create("frame")
    os.ftruncate(fd, 8192)
    os.pwrite(fd, b"\x55" * 100, 4096)
    memory = rk.rknn_create_mem_from_fd(context, fd, None, 100, 4096)
    assert bytes_of(memory).tolist() == [0x55] * 100 and memory.contents.fd == fd
    memory_of(memory).view()[:] = 0x66
    assert rk.rknn_mem_sync(context, memory, rk.RKNN_MEMORY_SYNC_FROM_DEVICE) == rk.RKNN_SUCC
    assert os.pread(fd, 4, 4096) == b"\x66" * 4
    os.ftruncate(fd, 4150)  # a mapping of it would end the process
    for mode in (rk.RKNN_MEMORY_SYNC_TO_DEVICE, rk.RKNN_MEMORY_SYNC_FROM_DEVICE):
        assert rk.rknn_mem_sync(context, memory, mode) == rk.RKNN_ERR_FAIL
        assert "now has 4150 bytes, not 100 bytes from 4096" in str(rk.last_error(context))
    assert rk.rknn_destroy_mem(context, memory) == rk.RKNN_SUCC
    os.close(fd)


def test_weights_and_tensors_outside() -> None:
    model, x = image_model(20), image(20)
    want = run_float(open_model(model), x)
    info = open_model(model, rk.RKNN_FLAG_COLLECT_MODEL_INFO_ONLY)
    size = rk.rknn_mem_size()
    assert rk.rknn_query(info, rk.RKNN_QUERY_MEM_SIZE, ct.byref(size), ct.sizeof(size)) == rk.RKNN_SUCC
    assert size.total_weight_size > 0 and size.total_internal_size > 0 and size.total_dma_allocated_size == 0
    assert (size.total_sram_size, size.free_sram_size) == (0, 0)
    attr = rk.rknn_tensor_attr()
    assert rk.rknn_query(info, rk.RKNN_QUERY_INPUT_ATTR, attr, ct.sizeof(attr)) == rk.RKNN_ERR_FAIL
    assert rk.rknn_run(info) == rk.RKNN_ERR_FAIL

    context = open_model(model, rk.RKNN_FLAG_MEM_ALLOC_OUTSIDE)
    weights = rk.rknn_create_mem(context, size.total_weight_size)
    internal = rk.rknn_create_mem2(context, size.total_internal_size, rk.RKNN_FLAG_MEMORY_CACHEABLE)
    small = rk.rknn_create_mem(context, 16)
    assert rk.rknn_set_weight_mem(context, small) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_weight_mem(context, weights) == rk.RKNN_SUCC
    assert bytes_of(weights).any()
    assert rk.rknn_set_internal_mem(context, small) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_internal_mem(context, internal) == rk.RKNN_SUCC
    assert np.array_equal(run_float(context, x), want)
    again = open_model(model, rk.RKNN_FLAG_MEM_ALLOC_OUTSIDE)
    assert rk.rknn_run(again) == rk.RKNN_ERR_INPUT_INVALID


def test_memory_counts_and_is_freed_with_its_context(device: GoldenNpu) -> None:
    def allocated(context: rk.rknn_context) -> int:
        size = rk.rknn_mem_size()
        assert rk.rknn_query(context, rk.RKNN_QUERY_MEM_SIZE, ct.byref(size), 64) == rk.RKNN_SUCC
        return int(size.total_dma_allocated_size)

    context = open_model(image_model())
    before = allocated(context)
    assert rk.rknn_create_mem(context, 5000)
    assert allocated(context) == before + 5000
    free = rk.rknn_create_mem2(None, 100, rk.RKNN_MEM_FLAG_ALLOC_NO_CONTEXT)
    assert free and not rk.rknn_create_mem2(None, 100, 0) and not rk.rknn_create_mem2(context, 100, 8)
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    from rkcosim.rknn_api.state import runtime

    assert len(runtime.memories) == 1
    assert rk.rknn_destroy_mem(None, free) == rk.RKNN_SUCC
    assert runtime.driver is not None and list(runtime.driver.buffers) == []


def test_device_mem_info_and_texts() -> None:
    context = open_model(image_model())
    mem = rk.rknn_tensor_mem()
    assert rk.rknn_query(context, rk.RKNN_QUERY_DEVICE_MEM_INFO, ct.byref(mem), 40) == rk.RKNN_SUCC
    assert mem.virt_addr and mem.phys_addr and mem.size
    text = rk.rknn_custom_string()
    assert rk.rknn_query(context, rk.RKNN_QUERY_CUSTOM_STRING, ct.byref(text), 1024) == rk.RKNN_SUCC
    assert text.string == b""
    shapes = rk.rknn_input_range()
    code = rk.rknn_query(context, rk.RKNN_QUERY_INPUT_DYNAMIC_RANGE, ct.byref(shapes), 33040)
    assert code == rk.RKNN_ERR_MODEL_INVALID


@pytest.mark.parametrize(("level", "lines"), [(None, 0), ("0", 0), ("1", 1)])
def test_a_question_for_a_dynamic_range_is_a_warning(
    level: str | None, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code and text of librknnrt 2.3.0: the log in issue 1 of a15355447898a/mt-photos-ai-rk-all."""
    monkeypatch.delenv("RKNN_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("RKNN_LOG_LEVEL", level)
    shapes, context = rk.rknn_input_range(), open_model(image_model())
    capsys.readouterr()
    code = rk.rknn_query(context, rk.RKNN_QUERY_INPUT_DYNAMIC_RANGE, ct.byref(shapes), 33040)
    printed = capsys.readouterr().err.splitlines()
    assert code == rk.RKNN_ERR_MODEL_INVALID and len(printed) == lines
    for line in printed:
        assert line.startswith("W RKNN: ") and line.endswith(
            " query RKNN_QUERY_INPUT_DYNAMIC_RANGE error, rknn model is static shape type, "
            "please export rknn with dynamic_shapes"
        )


def test_memory_without_a_descriptor_is_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rkcosim.rknn_api.state import runtime

    context = open_model(image_model())
    assert runtime.driver is not None
    before = len(runtime.driver.buffers)
    capsys.readouterr()

    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("os.open", full)
        patch.setattr("os.dup", full)
        memory = rk.rknn_create_mem(context, 4096)
    assert not memory and len(runtime.driver.buffers) == before
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("E RKNN: ") and "failed to convert handle(" in line
    assert line.endswith(") to fd, ret: -1, errno: 24, errstr: Too many open files")


def test_misuse_of_io_mem() -> None:
    context = open_model(image_model())
    attr = query_attr(context, rk.RKNN_QUERY_INPUT_ATTR)
    memory = rk.rknn_create_mem(context, attr.size_with_stride - 1)
    assert rk.rknn_set_io_mem(context, memory, attr) == rk.RKNN_ERR_PARAM_INVALID
    assert "input memory size(287) < model input size(288)" in str(rk.last_error(context))
    memory = rk.rknn_create_mem(context, 1 << 16)
    assert rk.rknn_set_io_mem(context, rk.rknn_tensor_mem(), attr) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_io_mem(context, memory, None) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_io_mem(context, memory, rk.rknn_tensor_attr(name=b"z")) == rk.RKNN_ERR_PARAM_INVALID
    attr.type = rk.RKNN_TENSOR_INT64
    assert rk.rknn_set_io_mem(context, memory, attr) == rk.RKNN_ERR_INPUT_INVALID
    attr.type, attr.fmt = rk.RKNN_TENSOR_INT8, rk.RKNN_TENSOR_NC1HWC2
    assert rk.rknn_set_io_mem(context, memory, attr) == rk.RKNN_ERR_INPUT_INVALID
    out = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR)
    out.type = rk.RKNN_TENSOR_INT32
    assert rk.rknn_set_io_mem(context, memory, out) == rk.RKNN_ERR_OUTPUT_INVALID
