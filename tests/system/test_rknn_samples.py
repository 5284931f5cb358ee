"""Programs like the vendor's samples, on the digits network: golden device, and once the RTL."""

from __future__ import annotations

import ctypes as ct
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.archives import arrays_of

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
MODEL = (DIGITS / "digits_int8.onnx").read_bytes()
HELD = arrays_of(DIGITS / "held_back.npz")


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3))
    yield
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    rk.use_device(None)


def picture(number: int) -> np.ndarray:
    """Return real values (1, 16, 16, 1), like an NHWC picture from a camera."""
    return (HELD["images"][number] * HELD["scale"]).astype(np.float32).reshape(1, 16, 16, 1)


def init(flag: int = 0) -> rk.rknn_context:
    ctx = rk.rknn_context()
    ret = rk.rknn_init(ct.byref(ctx), MODEL, len(MODEL), flag, None)
    assert ret == rk.RKNN_SUCC
    return ctx


def set_picture(ctx: rk.rknn_context, number: int) -> None:
    image = picture(number)
    inputs = (rk.rknn_input * 1)()
    inputs[0].index = 0
    inputs[0].type = rk.RKNN_TENSOR_FLOAT32
    inputs[0].size = image.nbytes
    inputs[0].fmt = rk.RKNN_TENSOR_NHWC
    inputs[0].buf = image.ctypes.data
    assert rk.rknn_inputs_set(ctx, 1, inputs) == rk.RKNN_SUCC


def top1(ctx: rk.rknn_context) -> int:
    outputs = (rk.rknn_output * 1)()
    outputs[0].want_float = 1
    assert rk.rknn_outputs_get(ctx, 1, outputs, None) == rk.RKNN_SUCC
    scores = np.frombuffer(ct.string_at(outputs[0].buf, outputs[0].size), np.float32)
    assert rk.rknn_outputs_release(ctx, 1, outputs) == rk.RKNN_SUCC
    assert scores.shape == (10,) and abs(scores.sum() - 1) < 0.02  # steps of 1/255
    return int(scores.argmax())


def test_classification() -> None:
    ctx = init()
    version = rk.rknn_sdk_version()
    assert (
        rk.rknn_query(ctx, rk.RKNN_QUERY_SDK_VERSION, ct.byref(version), ct.sizeof(version)) == rk.RKNN_SUCC
    )
    io_num = rk.rknn_input_output_num()
    assert rk.rknn_query(ctx, rk.RKNN_QUERY_IN_OUT_NUM, ct.byref(io_num), ct.sizeof(io_num)) == rk.RKNN_SUCC
    assert (io_num.n_input, io_num.n_output) == (1, 1)
    attr = rk.rknn_tensor_attr()
    assert rk.rknn_query(ctx, rk.RKNN_QUERY_INPUT_ATTR, ct.byref(attr), ct.sizeof(attr)) == rk.RKNN_SUCC
    assert list(attr.dims[:4]) == [1, 16, 16, 1] and attr.fmt == rk.RKNN_TENSOR_NHWC
    right = 0
    for number in range(8):
        set_picture(ctx, number)
        assert rk.rknn_run(ctx, None) == rk.RKNN_SUCC
        right += top1(ctx) == HELD["labels"][number]
    assert right >= 7
    assert rk.rknn_destroy(ctx) == rk.RKNN_SUCC


def test_zero_copy() -> None:
    ctx = init()
    input_attr, output_attr = rk.rknn_tensor_attr(), rk.rknn_tensor_attr()
    assert rk.rknn_query(ctx, rk.RKNN_QUERY_NATIVE_INPUT_ATTR, input_attr, ct.sizeof(input_attr)) == 0
    assert rk.rknn_query(ctx, rk.RKNN_QUERY_OUTPUT_ATTR, output_attr, ct.sizeof(output_attr)) == 0
    input_mem = rk.rknn_create_mem(ctx, input_attr.size_with_stride)
    output_mem = rk.rknn_create_mem(ctx, output_attr.n_elems * 4)
    assert rk.rknn_set_io_mem(ctx, input_mem, ct.byref(input_attr)) == rk.RKNN_SUCC
    assert rk.rknn_set_io_mem(ctx, output_mem, ct.byref(output_attr)) == rk.RKNN_SUCC
    for number in range(3):
        codes = np.clip(np.rint(picture(number) / input_attr.scale) + input_attr.zp, -128, 127)
        rows = codes.astype(np.int8).reshape(16, 16)
        assert input_attr.w_stride == 16
        ct.memmove(input_mem.contents.virt_addr, rows.ctypes.data, rows.nbytes)
        assert rk.rknn_run(ctx, None) == rk.RKNN_SUCC
        scores = np.frombuffer(ct.string_at(output_mem.contents.virt_addr, 40), np.float32)
        other = init()
        set_picture(other, number)
        assert rk.rknn_run(other) == rk.RKNN_SUCC
        assert scores.argmax() == top1(other)
    for mem in (input_mem, output_mem):
        assert rk.rknn_destroy_mem(ctx, mem) == rk.RKNN_SUCC
    assert rk.rknn_destroy(ctx) == rk.RKNN_SUCC


def test_two_contexts_in_two_threads() -> None:
    first, second = init(), rk.rknn_context()
    assert rk.rknn_dup_context(ct.byref(first), ct.byref(second)) == rk.RKNN_SUCC
    assert rk.rknn_set_core_mask(first, rk.RKNN_NPU_CORE_0) == rk.RKNN_SUCC
    assert rk.rknn_set_core_mask(second, rk.RKNN_NPU_CORE_1) == rk.RKNN_SUCC
    found: dict[int, int] = {}

    def work(ctx: rk.rknn_context, numbers: range) -> None:
        for number in numbers:
            set_picture(ctx, number)
            if rk.rknn_run(ctx, None) == rk.RKNN_SUCC:
                found[number] = top1(ctx)

    threads = [
        threading.Thread(target=work, args=(ctx, range(start, 8, 2)))
        for start, ctx in enumerate((first, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found[n] == HELD["labels"][n] for n in range(8)) >= 7


def test_pipeline_without_blocking() -> None:
    ctx = init()
    for number in range(3):
        set_picture(ctx, number)
        extend = rk.rknn_run_extend(non_block=1)
        assert rk.rknn_run(ctx, ct.byref(extend)) == rk.RKNN_SUCC and extend.frame_id == number + 1
        assert rk.rknn_wait(ctx, ct.byref(extend)) == rk.RKNN_SUCC
        assert top1(ctx) == HELD["labels"][number]


@pytest.mark.parametrize("name", ["classify.py", "zero_copy.py", "multiply.py"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rk.use_device(None)
    monkeypatch.setattr("sys.argv", [name, "--engine", "golden"])
    runpy.run_path(str(ROOT / "examples" / "rknn" / name), run_name="__main__")
    assert "right" in capsys.readouterr().out


def test_on_the_rtl() -> None:
    """The default engine: the classification, cycles of its layers, and a product of each type."""
    from rkcosim.engines.engine import open_engine
    from rkcosim.rknn_api.session import Model, matmul
    from rkcosim.running.meter import meter

    rk.use_device(None)
    engine = open_engine(cores=1)
    try:
        rk.use_device(engine, meter=meter(engine), quiet=True)
        with Model(MODEL) as model:
            (scores,) = model.run(picture(0).transpose(0, 3, 1, 2))
            assert scores.argmax() == HELD["labels"][0]
            layers = [layer for layer in model.layers() if layer.target == "npu"]
            assert layers and all(layer.cycles and layer.cycles >= layer.formula_npu for layer in layers)
            assert "DepthwiseConv" in model.performance and model.microseconds > 5
        rng = np.random.default_rng(6)
        for kind, dtype, high in (
            (rk.RKNN_INT8_MM_INT8_TO_INT32, np.int8, 128),
            (rk.RKNN_INT8_MM_INT8_TO_INT8, np.int8, 2),
            (rk.RKNN_INT8_MM_INT8_TO_FLOAT32, np.int8, 128),
            (rk.RKNN_INT4_MM_INT4_TO_INT16, np.int8, 8),
            (rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, np.float16, 32),
            (rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16, np.float16, 4),
        ):
            a = rng.integers(-high, high, (20, 64)).astype(dtype)
            b = rng.integers(-high, high, (64, 128)).astype(dtype)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            assert np.array_equal(matmul(a, b, kind).astype(np.float64), exact), kind
        scales = {"A": 0.5, "B": rng.uniform(0.001, 0.002, 128).tolist(), "C": 1.0}
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((20, 64), (64, 128)))
        got = matmul(a, b, rk.RKNN_INT8_MM_INT8_TO_INT8, scales=scales)
        want = np.clip((a.astype(float) @ b.astype(float)) * np.array(scales["B"]) / 2, -128, 127)
        assert np.abs(got - want).max() <= 0.51
        assert not engine.diagnostics()
    finally:
        rk.use_device(None)
        engine.close()
