"""rknn_api: struct layouts of the C header, conversions, call order and error codes on a fake model."""

from __future__ import annotations

import ctypes as ct
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

import sw.compiler
import sw.rknn_api as rk
from sw.driver import DriverError, DriverTimeout
from tests.fake_device import FakeDevice

U = 4
LAYOUTS = {
    "rknn_input_output_num": (8, {"n_input": (0, U), "n_output": (4, U)}),
    "rknn_tensor_attr": (
        376,
        {
            "index": (0, U),
            "n_dims": (4, U),
            "dims": (8, 64),
            "name": (72, 256),
            "n_elems": (328, U),
            "size": (332, U),
            "fmt": (336, U),
            "type": (340, U),
            "qnt_type": (344, U),
            "fl": (348, 1),
            "zp": (352, U),
            "scale": (356, U),
            "w_stride": (360, U),
            "size_with_stride": (364, U),
            "pass_through": (368, 1),
            "h_stride": (372, U),
        },
    ),
    "rknn_input_range": (
        33040,
        {
            "index": (0, U),
            "shape_number": (4, U),
            "fmt": (8, U),
            "name": (12, 256),
            "dyn_range": (268, 32768),
            "n_dims": (33036, U),
        },
    ),
    "rknn_perf_detail": (16, {"perf_data": (0, 8), "data_len": (8, 8)}),
    "rknn_perf_run": (8, {"run_duration": (0, 8)}),
    "rknn_sdk_version": (512, {"api_version": (0, 256), "drv_version": (256, 256)}),
    "rknn_mem_size": (
        64,
        {
            "total_weight_size": (0, U),
            "total_internal_size": (4, U),
            "total_dma_allocated_size": (8, 8),
            "total_sram_size": (16, U),
            "free_sram_size": (20, U),
            "reserved": (24, 40),
        },
    ),
    "rknn_custom_string": (1024, {"string": (0, 1024)}),
    "rknn_tensor_mem": (
        40,
        {
            "virt_addr": (0, 8),
            "phys_addr": (8, 8),
            "fd": (16, U),
            "offset": (20, U),
            "size": (24, U),
            "flags": (28, U),
            "priv_data": (32, 8),
        },
    ),
    "rknn_input": (
        32,
        {
            "index": (0, U),
            "buf": (8, 8),
            "size": (16, U),
            "pass_through": (20, 1),
            "type": (24, U),
            "fmt": (28, U),
        },
    ),
    "rknn_output": (
        24,
        {"want_float": (0, 1), "is_prealloc": (1, 1), "index": (4, U), "buf": (8, 8), "size": (16, U)},
    ),
    "rknn_init_extend": (
        136,
        {
            "ctx": (0, 8),
            "real_model_offset": (8, U),
            "real_model_size": (12, U),
            "model_buffer_fd": (16, U),
            "model_buffer_flags": (20, U),
            "reserved": (24, 112),
        },
    ),
    "rknn_run_extend": (
        24,
        {"frame_id": (0, 8), "non_block": (8, U), "timeout_ms": (12, U), "fence_fd": (16, U)},
    ),
    "rknn_output_extend": (8, {"frame_id": (0, 8)}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_the_headers(name: str) -> None:
    size, fields = LAYOUTS[name]
    kind = getattr(rk, name)
    assert ct.sizeof(kind) == size
    assert [entry[0] for entry in kind._fields_] == list(fields)
    for entry, place in fields.items():
        described = getattr(kind, entry)
        assert (described.offset, described.size) == place, entry


def test_signedness_is_the_headers() -> None:
    signed = {
        rk.rknn_tensor_attr: ("zp", "fl"),
        rk.rknn_tensor_mem: ("fd", "offset"),
        rk.rknn_init_extend: ("real_model_offset", "model_buffer_fd"),
        rk.rknn_run_extend: ("non_block", "timeout_ms", "fence_fd"),
    }
    for kind, names in signed.items():
        instance = kind()
        for name in names:
            setattr(instance, name, -1)
            assert getattr(instance, name) == -1, name
    assert rk.rknn_input(index=-1).index == 0xFFFFFFFF


def test_constants_are_the_headers() -> None:
    assert (rk.RKNN_SUCC, rk.RKNN_ERR_TARGET_PLATFORM_UNMATCH) == (0, -13)
    assert rk.RKNN_QUERY_SDK_VERSION == 5 and rk.RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR == 17
    assert rk.RKNN_TENSOR_BFLOAT16 == 11 and rk.RKNN_TENSOR_UNDEFINED == 3
    assert rk.RKNN_NPU_CORE_0_1_2 == 7 and rk.RKNN_FLAG_MODEL_BUFFER_ZERO_COPY == 0x10000
    assert rk.get_type_string(3) == "UINT8" and rk.get_type_string(99) == "UNKNOW"
    assert rk.get_qnt_type_string(2) == "AFFINE" and rk.get_format_string(2) == "NC1HWC2"


@dataclass(frozen=True)
class Info:
    name: str
    shape: tuple[int, ...]
    dtype: type
    scale: float
    zero_point: int


@dataclass
class Report:
    cycles: int = 123_456
    layers: tuple = ()


@dataclass
class FakeLoaded:
    """Gives back its first input, reordered, as first output; a real constant as second."""

    model: FakeModel
    inputs: dict[int, np.ndarray] = field(default_factory=dict)
    closed: bool = False
    failure: Exception | None = None

    def set_input(self, index: int, values: np.ndarray) -> None:
        info = self.model.inputs[index]
        assert values.shape == info.shape and values.dtype == info.dtype
        self.inputs[index] = values

    def run(self) -> Report:
        if self.failure:
            raise self.failure
        return Report()

    def get_output(self, index: int, raw: bool = False) -> np.ndarray:
        info = self.model.outputs[index]
        if info.dtype is np.float32:
            return np.arange(4, dtype=np.float32).reshape(1, 4) / 3
        codes = self.inputs[0]
        return codes if raw else (codes.astype(np.float32) - info.zero_point) * np.float32(info.scale)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeModel:
    data: bytes = b""
    inputs: ClassVar = [
        Info("image", (1, 3, 4, 5), np.int8, 0.5, -8),
        Info("vector", (1, 6), np.uint8, 0.25, 3),
    ]
    outputs: ClassVar = [
        Info("same", (1, 3, 4, 5), np.int8, 0.5, -8),
        Info("real", (1, 4), np.float32, 1.0, 0),
    ]

    def load(self, driver) -> FakeLoaded:
        return FakeLoaded(self)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    seen: list[bytes] = []

    def compile_model(data: bytes) -> FakeModel:
        seen.append(data)
        if data.startswith(b"bad"):
            raise ValueError("node 'conv': nonsense")
        return FakeModel(data)

    monkeypatch.setattr(sw.compiler, "compile_model", compile_model)
    rk.use_device(FakeDevice())
    yield seen
    from sw.rknn_api.state import runtime

    runtime.contexts.clear()
    rk.use_device(None)


@pytest.fixture
def context():
    handle = rk.rknn_context()
    assert rk.rknn_init(ct.byref(handle), b"model", 5, 0, None) == rk.RKNN_SUCC
    assert handle.value
    return handle


def make_input(array: np.ndarray, kind: int, fmt: int = rk.RKNN_TENSOR_NHWC, **more) -> rk.rknn_input:
    item = rk.rknn_input(size=array.nbytes, type=kind, fmt=fmt, **more)
    item.buf = array.ctypes.data
    item.keep = array  # ctypes keeps no reference
    return item


def set_all(context, image: np.ndarray | None = None) -> np.ndarray:
    image = np.zeros((1, 4, 5, 3), np.float32) if image is None else image
    inputs = (rk.rknn_input * 2)()
    vector = np.zeros(6, np.float32)
    for place, array in enumerate((image, vector)):
        inputs[place].index = place
        inputs[place].buf = array.ctypes.data
        inputs[place].size = array.nbytes
        inputs[place].type = rk.RKNN_TENSOR_FLOAT32
        inputs[place].fmt = rk.RKNN_TENSOR_NHWC
    assert rk.rknn_inputs_set(context, 2, inputs) == rk.RKNN_SUCC
    return image


def test_init_by_bytes_path_address_and_part_of_a_file(device, tmp_path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"0123456789")
    handle = rk.rknn_context()
    memory = ct.create_string_buffer(b"address")
    extend = rk.rknn_init_extend(real_model_offset=2, real_model_size=3)
    calls = [
        (b"bytes!", 5, None),
        (path, 0, None),
        (str(path), 0, None),
        (str(path).encode(), 0, None),
        (ct.addressof(memory), 7, None),
        (memory, 3, None),
        (path, 0, ct.byref(extend)),
    ]
    for model, size, more in calls:
        assert rk.rknn_init(handle, model, size, 0, more) == rk.RKNN_SUCC
        assert rk.rknn_destroy(handle) == rk.RKNN_SUCC
    whole = b"0123456789"
    assert device == [b"bytes", whole, whole, whole, b"address", b"add", b"234"]


def test_init_failures(tmp_path, caplog) -> None:
    handle = rk.rknn_context()
    assert rk.rknn_init(handle, b"RKNN\0\0\0\0rest", 12) == rk.RKNN_ERR_MODEL_INVALID
    assert "vendor's compiler" in caplog.text and "ONNX" in caplog.text
    assert rk.rknn_init(handle, b"bad model", 9) == rk.RKNN_ERR_MODEL_INVALID
    assert "node 'conv': nonsense" in caplog.text and "nonsense" in str(rk.last_error())
    assert rk.rknn_init(handle, str(tmp_path / "none.onnx"), 0) == rk.RKNN_ERR_FAIL
    assert rk.rknn_init(handle, b"short", 9) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_init(handle, None, 0) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_init(None, b"model", 5) == rk.RKNN_ERR_PARAM_INVALID
    rk.use_device(None)
    assert rk.rknn_init(handle, b"model", 5) == rk.RKNN_ERR_DEVICE_UNAVAILABLE
    assert handle.value == 0


def test_out_of_memory_is_malloc_fail(monkeypatch) -> None:
    def load(self, driver):
        raise DriverError("no room")

    monkeypatch.setattr(FakeModel, "load", load)
    assert rk.rknn_init(rk.rknn_context(), b"model", 5) == rk.RKNN_ERR_MALLOC_FAIL


def test_queries(context, caplog) -> None:
    number = rk.rknn_input_output_num()
    assert rk.rknn_query(context, rk.RKNN_QUERY_IN_OUT_NUM, ct.byref(number), ct.sizeof(number)) == 0
    assert (number.n_input, number.n_output) == (2, 2)

    attr = rk.rknn_tensor_attr(index=0)
    assert rk.rknn_query(context, rk.RKNN_QUERY_INPUT_ATTR, ct.pointer(attr), ct.sizeof(attr)) == 0
    assert (list(attr.dims)[: attr.n_dims], attr.fmt) == ([1, 4, 5, 3], rk.RKNN_TENSOR_NHWC)
    assert (attr.name, attr.n_elems, attr.size, attr.w_stride) == (b"image", 60, 60, 5)
    assert (attr.type, attr.zp, attr.scale) == (rk.RKNN_TENSOR_INT8, -8, 0.5)
    assert attr.qnt_type == rk.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC

    attr = rk.rknn_tensor_attr(index=1)
    assert rk.rknn_query(context, rk.RKNN_QUERY_INPUT_ATTR, attr, ct.sizeof(attr)) == 0
    assert (list(attr.dims)[:2], attr.fmt, attr.type) == (
        [1, 6],
        rk.RKNN_TENSOR_UNDEFINED,
        rk.RKNN_TENSOR_UINT8,
    )

    attr = rk.rknn_tensor_attr(index=0)
    assert rk.rknn_query(context, rk.RKNN_QUERY_OUTPUT_ATTR, attr, ct.sizeof(attr)) == 0
    assert (list(attr.dims)[:4], attr.fmt, attr.w_stride) == ([1, 3, 4, 5], rk.RKNN_TENSOR_NCHW, 0)
    attr.index = 1
    assert rk.rknn_query(context, rk.RKNN_QUERY_OUTPUT_ATTR, attr, ct.sizeof(attr)) == 0
    assert (attr.type, attr.qnt_type, attr.size) == (rk.RKNN_TENSOR_FLOAT32, rk.RKNN_TENSOR_QNT_NONE, 16)

    version = rk.rknn_sdk_version()
    assert rk.rknn_query(context, rk.RKNN_QUERY_SDK_VERSION, ct.addressof(version), 512) == 0
    assert version.api_version.startswith(b"2.3.2") and version.drv_version == b"0.9.8"

    assert rk.rknn_query(context, rk.RKNN_QUERY_INPUT_ATTR, attr, 372) == rk.RKNN_ERR_PARAM_INVALID
    assert "info_len(372) < sizeof(rknn_tensor_attr)(376)!" in caplog.text
    attr.index = 2
    assert rk.rknn_query(context, rk.RKNN_QUERY_INPUT_ATTR, attr, 376) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, rk.RKNN_QUERY_MEM_SIZE, attr, 376) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, 99, attr, 376) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, rk.RKNN_QUERY_IN_OUT_NUM, None, 8) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, rk.RKNN_QUERY_PERF_RUN, rk.rknn_perf_run(), 8) == rk.RKNN_ERR_FAIL
    assert rk.rknn_query(rk.rknn_context(77), 0, number, 8) == rk.RKNN_ERR_CTX_INVALID


def codes_of(context, item: rk.rknn_input) -> np.ndarray:
    """Codes that an input becomes."""
    assert rk.rknn_inputs_set(context, 1, [item]) == rk.RKNN_SUCC, rk.last_error(context)
    return rk.loaded_model(context).inputs[item.index]


def test_inputs_are_reordered_and_quantised(context) -> None:
    rng = np.random.default_rng(1)
    real = (rng.integers(-200, 200, (1, 4, 5, 3)) / 4).astype(np.float32)
    expected = np.clip(np.rint(real / 0.5) - 8, -128, 127).astype(np.int8).transpose(0, 3, 1, 2)
    assert np.array_equal(codes_of(context, make_input(real, rk.RKNN_TENSOR_FLOAT32)), expected)
    planar = np.ascontiguousarray(real.transpose(0, 3, 1, 2))
    item = make_input(planar, rk.RKNN_TENSOR_FLOAT32, rk.RKNN_TENSOR_NCHW)
    assert np.array_equal(codes_of(context, item), expected)
    half = make_input(real.astype(np.float16), rk.RKNN_TENSOR_FLOAT16)
    assert np.array_equal(codes_of(context, half), expected)
    for kind, dtype in ((rk.RKNN_TENSOR_UINT8, np.uint8), (rk.RKNN_TENSOR_INT8, np.int8)):
        numbers = rng.integers(0, 127, (1, 4, 5, 3)).astype(dtype)
        wanted = np.clip(numbers.astype(int) * 2 - 8, -128, 127).transpose(0, 3, 1, 2)
        assert np.array_equal(codes_of(context, make_input(numbers, kind)), wanted)
    vector = np.array([0, 0.125, 0.375, -9, 1000, 1], np.float32)
    got = codes_of(context, make_input(vector, rk.RKNN_TENSOR_FLOAT32, rk.RKNN_TENSOR_UNDEFINED, index=1))
    assert got.tolist() == [[3, 3, 5, 0, 255, 7]]


def test_pass_through_takes_codes_in_native_order(context, monkeypatch) -> None:
    codes = np.arange(60, dtype=np.int8).reshape(1, 4, 5, 3)
    got = codes_of(context, make_input(codes, rk.RKNN_TENSOR_INT8, pass_through=1))
    assert np.array_equal(got, codes.transpose(0, 3, 1, 2))
    monkeypatch.setattr(FakeModel, "inputs", [Info("deep", (1, 20, 2, 2), np.int8, 1.0, 0)])
    blocks = np.arange(128, dtype=np.int64).astype(np.int8).reshape(1, 2, 2, 2, 16)
    got = codes_of(context, make_input(blocks, rk.RKNN_TENSOR_INT8, rk.RKNN_TENSOR_NC1HWC2, pass_through=1))
    for channel in (0, 15, 16, 19):
        assert np.array_equal(got[0, channel], blocks[0, channel // 16, :, :, channel % 16])


def test_input_errors(context, caplog) -> None:
    image = np.zeros((1, 4, 5, 3), np.float32)

    def code(n: int = 1, **changes) -> int:
        item = make_input(image, rk.RKNN_TENSOR_FLOAT32)
        for name, value in changes.items():
            setattr(item, name, value)
        return rk.rknn_inputs_set(context, n, [item])

    assert code(size=239) == rk.RKNN_ERR_PARAM_INVALID
    assert "param input size(239) < model input size(240)" in caplog.text
    assert code(size=300) == rk.RKNN_SUCC  # more is fine, as on the board
    assert code(buf=None) == rk.RKNN_ERR_PARAM_INVALID
    assert code(index=2) == rk.RKNN_ERR_INPUT_INVALID
    assert code(type=rk.RKNN_TENSOR_INT64) == rk.RKNN_ERR_INPUT_INVALID
    assert code(fmt=rk.RKNN_TENSOR_NC1HWC2) == rk.RKNN_ERR_INPUT_INVALID
    assert code(pass_through=1) == rk.RKNN_ERR_INPUT_INVALID
    assert code(n=3) == rk.RKNN_ERR_PARAM_INVALID
    assert code(n=0) == rk.RKNN_ERR_PARAM_INVALID
    image[0, 0, 0, 0] = np.nan
    assert code() == rk.RKNN_ERR_INPUT_INVALID
    assert "not all finite" in caplog.text


def test_run_and_outputs(context) -> None:
    image = set_all(context, np.arange(60, dtype=np.float32).reshape(1, 4, 5, 3) / 2)
    extend = rk.rknn_run_extend()
    assert rk.rknn_run(context, ct.byref(extend)) == rk.RKNN_SUCC
    assert extend.frame_id == 1
    perf = rk.rknn_perf_run()
    assert rk.rknn_query(context, rk.RKNN_QUERY_PERF_RUN, perf, 8) == rk.RKNN_SUCC
    assert perf.run_duration == 124

    outputs = (rk.rknn_output * 2)()
    outputs[0].want_float = 1
    outputs[1].index = 1
    more = rk.rknn_output_extend()
    assert rk.rknn_outputs_get(context, 2, outputs, ct.byref(more)) == rk.RKNN_SUCC
    assert (outputs[0].size, outputs[1].size, more.frame_id) == (240, 16, 1)
    got = np.frombuffer(ct.string_at(outputs[0].buf, 240), np.float32).reshape(1, 3, 4, 5)
    assert np.array_equal(got, image.transpose(0, 3, 1, 2))
    assert np.frombuffer(ct.string_at(outputs[1].buf, 16), np.float32)[1] == np.float32(1 / 3)
    assert rk.rknn_outputs_release(context, 2, outputs) == rk.RKNN_SUCC
    assert not outputs[0].buf and not outputs[1].buf

    codes = np.zeros(60, np.int8)
    item = rk.rknn_output(is_prealloc=1, size=60)
    item.buf = codes.ctypes.data
    assert rk.rknn_outputs_get(context, 1, [item]) == rk.RKNN_SUCC
    assert np.array_equal(codes.reshape(1, 3, 4, 5), rk.loaded_model(context).inputs[0])
    assert rk.rknn_outputs_release(context, 1, [item]) == rk.RKNN_SUCC
    assert item.buf == codes.ctypes.data


def test_output_errors_and_order_of_calls(context) -> None:
    item = rk.rknn_output(want_float=1)
    assert rk.rknn_run(context) == rk.RKNN_ERR_INPUT_INVALID
    assert "image, vector" in str(rk.last_error(context))
    set_all(context)
    assert rk.rknn_outputs_get(context, 1, [item]) == rk.RKNN_ERR_FAIL
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    assert rk.rknn_outputs_get(context, 3, [item]) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_outputs_get(context, 1, [rk.rknn_output(index=2)]) == rk.RKNN_ERR_OUTPUT_INVALID
    small = rk.rknn_output(is_prealloc=1, want_float=1, size=239)
    memory = np.zeros(60, np.float32)
    small.buf = memory.ctypes.data
    assert rk.rknn_outputs_get(context, 1, [small]) == rk.RKNN_ERR_OUTPUT_INVALID
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    for call in (
        lambda: rk.rknn_destroy(context),
        lambda: rk.rknn_run(context),
        lambda: rk.rknn_inputs_set(context, 1, []),
        lambda: rk.rknn_outputs_get(context, 1, [item]),
        lambda: rk.rknn_outputs_release(context, 1, [item]),
    ):
        assert call() == rk.RKNN_ERR_CTX_INVALID


def test_device_trouble_is_a_code_and_keeps_its_story(context, caplog) -> None:
    set_all(context)
    rk.loaded_model(context).failure = DriverTimeout(5, [])
    assert rk.rknn_run(context) == rk.RKNN_ERR_FAIL
    assert isinstance(rk.last_error(context), DriverTimeout)
    assert "failed to submit!" in caplog.text


def test_destroy_closes_and_two_contexts_are_apart(context) -> None:
    other = rk.rknn_context()
    assert rk.rknn_init(other, b"model", 5) == rk.RKNN_SUCC
    assert other.value != context.value
    loaded = rk.loaded_model(context)
    with pytest.raises(RuntimeError, match="2 contexts"):
        rk.use_device(None)
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    assert loaded.closed and rk.loaded_model(other) is not None
    assert rk.compiled_model(other).data == b"model" and rk.run_report(other) is None
