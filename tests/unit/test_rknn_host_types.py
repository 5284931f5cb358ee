"""Inputs and outputs that only the host computes with, of every type and of three to five dimensions."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import bytes_of, get_float, open_model, query_attr

QUERIES = (
    (rk.RKNN_QUERY_INPUT_ATTR, rk.RKNN_QUERY_OUTPUT_ATTR),
    (rk.RKNN_QUERY_NATIVE_INPUT_ATTR, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR),
    (rk.RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR, rk.RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR),
)
TYPES = {
    "float16": (TensorProto.FLOAT16, np.float16, rk.RKNN_TENSOR_FLOAT16),
    "float32": (TensorProto.FLOAT, np.float16, rk.RKNN_TENSOR_FLOAT16),
    "float64": (TensorProto.DOUBLE, np.float16, rk.RKNN_TENSOR_FLOAT16),
    "int32": (TensorProto.INT32, np.int32, rk.RKNN_TENSOR_INT32),
    "int64": (TensorProto.INT64, np.int64, rk.RKNN_TENSOR_INT64),
}
"""Types of a model, and those that programs see: the vendor's converter makes float16 of all floats
(happyme531/ztu_somemodelruntime_ez_rknn_async @63691e6, tests/test_shared_weight.py: a model of float32 takes
float16 in place)."""

SHAPES = {"3d": (5, 6, 7), "4d": (1, 3, 6, 9), "5d": (1, 3, 4, 5, 6)}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3))
    yield
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    rk.use_device(None)


def mod_model(kind: int, shape: tuple[int, ...]) -> bytes:
    """Return z = x modulo y, taken twice; the NPU does not have it."""
    fmod = int(kind not in (TensorProto.INT32, TensorProto.INT64))
    nodes = [
        helper.make_node("Mod", ["x", "y"], ["s"], fmod=fmod),
        helper.make_node("Add", ["s", "s"], ["z"]),
    ]
    infos = [helper.make_tensor_value_info(name, kind, shape) for name in "xyz"]
    graph = helper.make_graph(nodes, "host", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


def expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What ONNX says of Mod: the sign of the divisor as numpy.mod, or with fmod=1 that of C's fmod."""
    return 2 * (np.mod(x, y) if x.dtype.kind == "i" else np.fmod(x, y))


def drawn(shape: tuple[int, ...], seen: Any) -> tuple[np.ndarray, np.ndarray]:
    count = int(np.prod(shape))
    x = ((np.arange(count) % 23) - 11).reshape(shape).astype(seen)
    y = ((np.arange(count) * 3 % 29) + 1).reshape(shape).astype(seen)
    return x, y


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("name", TYPES)
def test_types_and_numbers(name: str, rank: str):
    kind, seen, code = TYPES[name]
    shape = SHAPES[rank]
    context = open_model(mod_model(kind, shape))
    for inputs, outputs in QUERIES:
        for attr in (
            query_attr(context, inputs),
            query_attr(context, inputs, 1),
            query_attr(context, outputs),
        ):
            assert (attr.type, attr.n_elems) == (code, np.prod(shape)), (inputs, outputs)
            assert attr.size == attr.n_elems * np.dtype(seen).itemsize
    x, y = drawn(shape, seen)
    items = (rk.rknn_input * 2)()
    fmt = rk.RKNN_TENSOR_NCHW
    for number, array in enumerate((x, y)):
        items[number] = rk.rknn_input(number, array.ctypes.data, array.nbytes, 0, code, fmt)
    assert rk.rknn_inputs_set(context, 2, items) == rk.rknn_run(context) == rk.RKNN_SUCC
    wanted = expected(x, y)
    assert np.array_equal(get_float(context).reshape(shape), wanted.astype(np.float32))
    result = np.zeros(shape, seen)
    output = rk.rknn_output(0, 1, 0, result.ctypes.data, result.nbytes)
    assert rk.rknn_outputs_get(context, 1, [output]) == rk.RKNN_SUCC and np.array_equal(result, wanted)


@pytest.mark.parametrize(
    ("rank", "query"), [(rank, query) for rank in SHAPES for query in range(3) if (rank, query) != ("4d", 1)]
)
@pytest.mark.parametrize("name", TYPES)
def test_memory_that_is_set_once(name: str, rank: str, query: int):
    kind, seen, _ = TYPES[name]
    shape = SHAPES[rank]
    context = open_model(mod_model(kind, shape))
    inputs, outputs = QUERIES[query]
    attrs = [query_attr(context, inputs), query_attr(context, inputs, 1), query_attr(context, outputs)]
    mems = [rk.rknn_create_mem(context, attr.size_with_stride) for attr in attrs]
    for attr, mem in zip(attrs, mems, strict=True):
        assert rk.rknn_set_io_mem(context, mem, ct.byref(attr)) == rk.RKNN_SUCC
    for seed in (0, 1):
        x, y = (np.roll(array, seed) for array in drawn(shape, seen))
        for attr, mem, array in zip(attrs, mems, (x, y), strict=False):
            ordered = array.transpose(0, 2, 3, 1) if attr.fmt == rk.RKNN_TENSOR_NHWC else array
            bytes_of(mem)[: array.nbytes] = np.frombuffer(ordered.tobytes(), np.uint8)
        assert rk.rknn_run(context) == rk.RKNN_SUCC
        found = np.frombuffer(bytes_of(mems[2]).tobytes(), seen, int(np.prod(shape)))
        dims = tuple(attrs[2].dims[: attrs[2].n_dims])
        found = found.reshape(dims)
        if attrs[2].fmt == rk.RKNN_TENSOR_NHWC:
            found = found.transpose(0, 3, 1, 2)
        assert np.array_equal(found, expected(x, y))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_native_bytes_of_an_input_and_numbers_beyond_fp16(name: str):
    context = open_model(mod_model(TYPES[name][0], (5, 6, 7)))
    x, y = drawn((5, 6, 7), np.float16)
    x[0, 0, 0], y[0, 0, 0] = 60000, 65504
    items = (rk.rknn_input * 2)()
    for number, array in enumerate((x, y)):
        items[number] = rk.rknn_input(number, array.ctypes.data, array.nbytes, 1, rk.RKNN_TENSOR_FLOAT16, 3)
    assert rk.rknn_inputs_set(context, 2, items) == rk.rknn_run(context) == rk.RKNN_SUCC
    assert get_float(context).flat[0] == 120000  # the host computes in the type of the model
    result = np.zeros((5, 6, 7), np.float16)
    output = rk.rknn_output(0, 1, 0, result.ctypes.data, result.nbytes)
    assert rk.rknn_outputs_get(context, 1, [output]) == rk.RKNN_SUCC
    assert np.isinf(result.flat[0]) and np.array_equal(result.flat[1:], 2 * np.fmod(x, y).flat[1:])


def bare_model(constant: np.ndarray | None = None) -> bytes:
    """Return a model that computes nothing: its output is a constant, or its input under the same name."""
    shape = (2, 3) if constant is None else constant.shape
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    constants = [] if constant is None else [numpy_helper.from_array(constant, "x")]
    graph = helper.make_graph([], "bare", [] if constants else infos, infos, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


def test_a_model_without_inputs():
    data = bare_model(np.arange(6, dtype=np.float32).reshape(2, 3))
    (wanted,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {})
    context = open_model(data)
    assert rk.rknn_inputs_set(context, 0, None) == rk.RKNN_SUCC
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    assert np.array_equal(get_float(context), wanted)
    assert rk.rknn_inputs_set(context, 1, (rk.rknn_input * 1)()) == rk.RKNN_ERR_PARAM_INVALID


@pytest.mark.parametrize("again", [False, True])
def test_memory_of_an_output_that_is_the_input(again: bool):
    data, x = bare_model(), np.arange(6, dtype=np.float16).reshape(2, 3) - 2
    session = InferenceSession(data, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x.astype(np.float32)})
    context = open_model(data)
    attrs = [query_attr(context, command) for command in QUERIES[0]]
    mems = [rk.rknn_create_mem(context, attr.size_with_stride) for attr in attrs]
    for attr, mem in zip(attrs, mems, strict=True):
        assert rk.rknn_set_io_mem(context, mem, ct.byref(attr)) == rk.RKNN_SUCC
    if again:  # the memory that is already bound as the output stays the output's
        assert rk.rknn_set_io_mem(context, mems[1], ct.byref(attrs[1])) == rk.RKNN_SUCC
    bytes_of(mems[0])[: x.nbytes] = np.frombuffer(x.tobytes(), np.uint8)
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    found = np.frombuffer(bytes_of(mems[1]).tobytes(), np.float16, 6).reshape(2, 3)
    assert np.array_equal(found, wanted.astype(np.float16))


def with_inputs(kinds: dict[str, int], *nodes: Any, shape: tuple[int, ...] = (4,)) -> bytes:
    """Return a model of these nodes, whose output is `z`."""
    given = [helper.make_tensor_value_info(name, kind, shape) for name, kind in kinds.items()]
    infos = [*given, helper.make_tensor_value_info("z", next(iter(kinds.values())), None)]
    graph = helper.make_graph(list(nodes), "host", infos[:-1], infos[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = onnx.shape_inference.infer_shapes(model).SerializeToString()
    return data


def given(context: Any, array: np.ndarray) -> int:
    code = rk.rknn_tensor_type[f"RKNN_TENSOR_{array.dtype.name.upper()}"]
    item = rk.rknn_input(0, array.ctypes.data if array.size else None, array.nbytes, 0, code, 3)
    return int(rk.rknn_inputs_set(context, 1, [item]))


PARITY = (("Mod", ["x", "x"], ["m"]), ("Add", ["m", "x"], ["z"]))


@pytest.mark.parametrize("name", ["int16", "uint16", "int32", "uint32", "int64"])
def test_integers_are_given_in_any_type_that_has_them(name: str, caplog: pytest.LogCaptureFixture):
    """The sum is onnxruntime's; numbers that the input's type does not have are refused, and not wrapped."""
    kind = getattr(TensorProto, name.upper())
    data = with_inputs({"x": kind}, *[helper.make_node(*n) for n in PARITY])
    own = np.iinfo(name)
    context = open_model(data)
    session = InferenceSession(data)
    for other in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32"):
        x = np.array([1, 2, 3, 100], other)
        assert given(context, x) == rk.rknn_run(context) == rk.RKNN_SUCC
        (wanted,) = session.run(None, {"x": x.astype(name)})
        assert np.array_equal(get_float(context), wanted)
        least, most = (np.finfo if other == "float32" else np.iinfo)(other).min, np.array(own.max, object) + 1
        outside = [least] if least < own.min else []
        outside += [most] if other != "float32" and most <= np.iinfo(other).max else []
        outside += [np.nan, np.inf] if other == "float32" else []
        for number in outside:
            x[2] = number
            caplog.clear()
            assert given(context, x) == rk.RKNN_ERR_INPUT_INVALID
            assert f"input 'x': {x[2]} is no {name}" in caplog.text
    assert given(context, np.ones(4, bool)) == rk.RKNN_ERR_INPUT_INVALID
    assert "cannot be given as BOOL (type 9), only as FP32, FP16, INT8, UINT8" in caplog.text


def test_an_empty_input_needs_no_buffer():
    context = open_model(with_inputs({"x": 1}, helper.make_node("Relu", ["x"], ["z"]), shape=(0, 3)))
    assert given(context, np.zeros((0, 3), np.float32)) == rk.rknn_run(context) == rk.RKNN_SUCC
    output = rk.rknn_output(1, 0, 0)
    assert rk.rknn_outputs_get(context, 1, [output]) == rk.RKNN_SUCC and output.size == 0


@pytest.mark.parametrize("what", ["input", "output"])
def test_a_type_without_a_number_is_refused(what: str, caplog: pytest.LogCaptureFixture):
    kinds = (TensorProto.UINT64, TensorProto.INT64)
    cast = helper.make_node("Cast", ["x"], ["z"], to=kinds[what == "input"])
    data = with_inputs({"x": kinds[what == "output"]}, cast)
    context = rk.rknn_context()
    assert rk.rknn_init(context, data, len(data)) == rk.RKNN_ERR_MODEL_INVALID and not context.value
    name = "x" if what == "input" else "z"
    assert f"{what} '{name}' is uint64, and rknn_tensor_type has no such type" in caplog.text


def test_a_size_that_depends_on_data(caplog: pytest.LogCaptureFixture):
    """Positions of numbers that are not zero: as many as onnxruntime finds, by rknn_outputs_get alone."""
    context = open_model(with_inputs({"x": 1}, helper.make_node("NonZero", ["x"], ["z"]), shape=(3, 4)))
    attr = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR)
    memory = rk.rknn_create_mem(context, 4096)
    assert rk.rknn_set_io_mem(context, memory, ct.byref(attr)) == rk.RKNN_ERR_OUTPUT_INVALID
    assert "the size of output 'z' depends on data: only rknn_outputs_get gives it" in caplog.text
    assert rk.rknn_destroy_mem(context, memory) == rk.RKNN_SUCC
    for count in (5, 0, 12):
        x = np.zeros((3, 4), np.float32)
        x.reshape(-1)[:count] = 1
        assert given(context, x) == rk.rknn_run(context) == rk.RKNN_SUCC
        now = query_attr(context, rk.RKNN_QUERY_CURRENT_OUTPUT_ATTR)
        assert (list(now.dims[: now.n_dims]), now.size) == ([2, count], 16 * count)
        output = rk.rknn_output(1, 0, 0)
        assert rk.rknn_outputs_get(context, 1, [output]) == rk.RKNN_SUCC
        found = np.frombuffer(ct.string_at(output.buf, output.size), np.float32)
        assert np.array_equal(found.reshape(2, count), np.argwhere(x).T)
