"""rknn_api: conversions, call order and error codes on a fake model."""

from __future__ import annotations

import ctypes as ct
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.driver import DriverError, DriverTimeout
from tests.fake_device import FakeDevice


@dataclass(frozen=True)
class Info:
    name: str
    shape: tuple[int, ...]
    dtype: type
    scale: float
    zero_point: int
    preprocessing: None = None
    half = False

    @property
    def quantised(self) -> bool:
        return self.dtype is not np.float32


PLACES = {
    "image": SimpleNamespace(cube=(3, 4, 5), argb=3, pitch=16, unsigned_pixels=False),
    "vector": SimpleNamespace(cube=(6, 1, 1), argb=0, surface_count=1, plain=False, size=16),
}


@dataclass
class Report:
    cycles: int = 123_456
    layers: tuple = ()


@dataclass
class FakeLoaded:
    """Returns its first input, reordered, as first output; a real constant as second."""

    model: FakeModel
    inputs: dict[int, np.ndarray] = field(default_factory=dict)
    closed: bool = False
    failure: Exception | None = None

    def set_input(self, index: int, values: np.ndarray) -> None:
        info = self.model.inputs[index]
        assert values.shape == info.shape and values.dtype == info.dtype
        self.inputs[index] = values

    def memory(self, tensor: str) -> np.ndarray:
        return np.zeros(4096, np.uint8)

    def run(self, max_cycles: int | None = None) -> Report:
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

    graph = SimpleNamespace(
        tensors={},
        inputs=[SimpleNamespace(tensor="image"), SimpleNamespace(tensor="vector")],
        outputs=[SimpleNamespace(value="image", real=False), SimpleNamespace(value="real", real=True)],
    )
    plan = SimpleNamespace(place=lambda name: PLACES[name])


@pytest.fixture(autouse=True)
def device(monkeypatch):
    seen: list[bytes] = []

    def load(model: FakeModel, driver, **options) -> FakeLoaded:
        return FakeLoaded(model)

    monkeypatch.setattr("rkcosim.rknn_api.loading.LoadedModel", load)

    def compile_model(data: bytes) -> FakeModel:
        seen.append(data)
        if data.startswith(b"bad"):
            raise ValueError("node 'conv': nonsense")
        return FakeModel(data)

    monkeypatch.setattr("rkcosim.rknn_api.api.compile_divided", compile_model)
    rk.use_device(FakeDevice())
    yield seen
    from rkcosim.rknn_api.state import runtime

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
    assert "damaged .rknn file: 12 bytes are less than its header" in caplog.text
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
    def load(model, driver, **options):
        raise DriverError("no room")

    monkeypatch.setattr("rkcosim.rknn_api.loading.LoadedModel", load)
    assert rk.rknn_init(rk.rknn_context(), b"model", 5) == rk.RKNN_ERR_MALLOC_FAIL


def test_queries(context, caplog) -> None:
    number = rk.rknn_input_output_num()
    assert rk.rknn_query(context, rk.RKNN_QUERY_IN_OUT_NUM, ct.byref(number), ct.sizeof(number)) == 0
    assert (number.n_input, number.n_output) == (2, 2)

    attr = rk.rknn_tensor_attr(index=0)
    assert rk.rknn_query(context, rk.RKNN_QUERY_INPUT_ATTR, ct.pointer(attr), ct.sizeof(attr)) == 0
    assert (list(attr.dims)[: attr.n_dims], attr.fmt) == ([1, 4, 5, 3], rk.RKNN_TENSOR_NHWC)
    assert (attr.name, attr.n_elems, attr.size) == (b"image", 60, 60)
    assert (attr.w_stride, attr.size_with_stride) == (16, 192)
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
    assert rk.rknn_query(context, 18, attr, 376) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, 99, attr, 376) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, rk.RKNN_QUERY_IN_OUT_NUM, None, 8) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, rk.RKNN_QUERY_PERF_RUN, rk.rknn_perf_run(), 8) == rk.RKNN_ERR_FAIL
    assert rk.rknn_query(rk.rknn_context(1 << 60), 0, number, 8) == rk.RKNN_ERR_CTX_INVALID


def codes_of(context, item: rk.rknn_input) -> np.ndarray:
    """Return the codes of an input."""
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
    assert code(pass_through=1) == rk.RKNN_ERR_PARAM_INVALID  # too short: rows of 16 pixels
    assert "param input size(240) < model input size(768)" in caplog.text
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


def test_what_python_raises_becomes_a_code(context, caplog) -> None:
    rk.loaded_model(context).model = None
    set_all_failed = rk.rknn_inputs_set(context, 1, [make_input(np.zeros(60, np.float32), 0)])
    assert set_all_failed == rk.RKNN_ERR_FAIL
    assert "rknn_inputs_set: AttributeError" in caplog.text
    assert rk.rknn_query(context, "nonsense", None, None) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_query(context, 0, None, "eight") == rk.RKNN_ERR_FAIL
    assert not rk.rknn_create_mem(context, "many")


def test_log_lines_are_the_vendors(context, capsys, monkeypatch) -> None:
    monkeypatch.delenv("RKNN_LOG_LEVEL", raising=False)
    assert rk.rknn_query(context, 99, None, 0) == rk.RKNN_ERR_PARAM_INVALID
    line = capsys.readouterr().err
    assert re.fullmatch(r"E RKNN: \[\d\d:\d\d:\d\d\.\d{3}\] rknn_query: command 99 is not supported\n", line)
    memory = rk.rknn_create_mem(context, 64)
    other = rk.rknn_context()
    assert rk.rknn_init(other, b"model", 5) == rk.RKNN_SUCC
    left = rk.rknn_create_mem(other, 64)
    assert left and rk.rknn_destroy(other) == rk.RKNN_SUCC
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RKNN_LOG_LEVEL", "1")
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC and memory
    assert "W RKNN: " in capsys.readouterr().err


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
