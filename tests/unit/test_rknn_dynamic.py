"""rknn_api: models of several shapes."""

from __future__ import annotations

import ctypes as ct
import json
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import get_float, image_model, open_model, query_attr, run_float, set_float

RNG = np.random.default_rng(12)
SIZES = ((4, 6), (12, 10), (8, 8))


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(1))
    yield
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    assert runtime.driver is not None and list(runtime.driver.buffers) == [], "every variant is freed"
    rk.use_device(None)


def dynamic_model(shapes: object) -> bytes:
    model = onnx.load_model_from_string(image_model(3, 20, (6, 10)))
    text = shapes if isinstance(shapes, str) else json.dumps(shapes)
    onnx.helper.set_model_props(model, {"dynamic_input": text})
    return model.SerializeToString()


def open_dynamic() -> rk.rknn_context:
    return open_model(dynamic_model([[[1, 3, *size]] for size in SIZES]))


def choose(context: rk.rknn_context, size: tuple[int, int], fmt: int = rk.RKNN_TENSOR_NHWC) -> int:
    attr = rk.rknn_tensor_attr(index=0, name=b"x", n_dims=4, fmt=int(fmt))
    attr.dims[:4] = [1, *size, 3] if fmt == rk.RKNN_TENSOR_NHWC else [1, 3, *size]
    return rk.rknn_set_input_shapes(context, 1, ct.byref(attr))


def test_shapes_are_listed_and_chosen() -> None:
    context = open_dynamic()
    shapes = rk.rknn_input_range()
    size = ct.sizeof(shapes)
    code = rk.rknn_query(context, rk.RKNN_QUERY_INPUT_DYNAMIC_RANGE, ct.byref(shapes), size)
    assert code == rk.RKNN_SUCC
    assert (shapes.shape_number, shapes.n_dims, shapes.name) == (3, 4, b"x")
    assert shapes.fmt == rk.RKNN_TENSOR_NHWC
    assert [list(row[:4]) for row in shapes.dyn_range[:3]] == [[1, *s, 3] for s in SIZES]
    assert list(query_attr(context, rk.RKNN_QUERY_INPUT_ATTR).dims[:4]) == [1, 12, 10, 3]
    attr = rk.rknn_tensor_attr()
    assert rk.rknn_query(context, rk.RKNN_QUERY_CURRENT_INPUT_ATTR, attr, 376) == rk.RKNN_ERR_FAIL
    for size_ in (*SIZES, SIZES[0]):
        fmt = rk.RKNN_TENSOR_NCHW if size_ == SIZES[2] else rk.RKNN_TENSOR_NHWC
        assert choose(context, size_, fmt) == rk.RKNN_SUCC
        assert list(query_attr(context, rk.RKNN_QUERY_CURRENT_INPUT_ATTR).dims[:4]) == [1, *size_, 3]
        assert list(query_attr(context, rk.RKNN_QUERY_CURRENT_OUTPUT_ATTR).dims[:4]) == [1, 20, *size_]
        native = query_attr(context, rk.RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR)
        assert list(native.dims[:5]) == [1, 2, *size_, 16]
        assert rk.rknn_run(context) == rk.RKNN_ERR_INPUT_INVALID, "inputs must be set again"
        x = (RNG.integers(-100, 100, (1, 3, *size_)) / 2).astype(np.float32)
        set_float(context, x)
        assert rk.rknn_run(context) == rk.RKNN_SUCC
        item = rk.rknn_output(want_float=1)
        assert rk.rknn_outputs_get(context, 1, [item]) == rk.RKNN_SUCC
        got = np.frombuffer(ct.string_at(item.buf, item.size), np.float32).reshape(1, 20, *size_)
        assert np.array_equal(got, run_float(open_model(image_model(3, 20, size_)), x))
    assert list(query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR).dims[:4]) == [1, 20, 12, 10]


def test_what_is_refused(caplog) -> None:
    context = open_dynamic()
    assert choose(context, (5, 5)) == rk.RKNN_ERR_FAIL
    for line in (
        "rknn_set_input_shapes error, input name = x supported input shapes are as follows:",
        *(f" shape = [1,{size[0]},{size[1]},3], layout = NHWC" for size in SIZES),
        "while get rknn_tensor_attr[0].name = x, dims = [1, 5, 5, 3], fmt = NHWC",
    ):
        assert line in caplog.text
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(rk.rknn_context())) == rk.RKNN_ERR_FAIL
    assert rk.rknn_query(context, 13, rk.rknn_input_range(index=1), 33040) == rk.RKNN_ERR_PARAM_INVALID
    for wrong in (
        "nonsense",
        [],
        [[[1, 3, 4]], [[1, 3, 4, 4]]],
        [[[1, 3, 0, 4]]],
        [[[1, 3, 4, 4]]] * 2,
        [[], []],
    ):
        model = dynamic_model(wrong)
        code = rk.rknn_init(rk.rknn_context(), model, len(model))
        assert code == rk.RKNN_ERR_MODEL_INVALID, wrong
        assert "dynamic_input must be a list of sets of 1 shapes" in str(rk.last_error())
    model = dynamic_model([[[1, 3, 4, 4]], [[1, 5, 4, 4]]])
    assert rk.rknn_init(rk.rknn_context(), model, len(model)) == rk.RKNN_ERR_MODEL_INVALID
    assert "dynamic_input [[1, 5, 4, 4]]: " in str(rk.last_error())
    full = open_model(image_model())
    flag, extend = rk.RKNN_FLAG_SHARE_WEIGHT_MEM, rk.rknn_init_extend(ctx=full.value)
    model = dynamic_model([[[1, 3, 4, 4]]])
    code = rk.rknn_init(rk.rknn_context(), model, len(model), flag, extend)
    assert code == rk.RKNN_ERR_MODEL_INVALID


def test_without_a_choice_the_largest_runs() -> None:
    context = open_dynamic()
    x = (RNG.integers(-100, 100, (1, 3, 12, 10)) / 2).astype(np.float32)
    set_float(context, x)
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    assert np.array_equal(get_float(context), run_float(open_model(image_model(3, 20, (12, 10))), x))
