"""rknn_api on `.rknn` files: from memory and by path, queries, shared and outside memory, cores."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler import compile_model
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_api.session import Model, RknnError
from rkcosim.rknn_file import read_rknn
from rkcosim.rknn_file.writer import write_rknn

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(autouse=True)
def device() -> Iterator[GoldenNpu]:
    npu = GoldenNpu(3)
    rk.use_device(npu, quiet=True)
    yield npu
    rk.use_device(None)


@pytest.fixture(scope="module")
def data() -> bytes:
    return write_rknn(compile_model(DIGITS.read_bytes(), reuse=True))


def picture(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)


def query(model: Model, command: int, kind: type, index: int = 0):
    target = kind(index=index) if kind is rk.rknn_tensor_attr else kind()
    assert rk.rknn_query(model.context, command, ct.byref(target), ct.sizeof(target)) == rk.RKNN_SUCC
    return target


def test_a_file_computes_what_its_model_does(data: bytes, tmp_path: Path):
    path = tmp_path / "digits.rknn"
    path.write_bytes(data)
    with Model(DIGITS) as model, Model(data) as same, Model(path) as named:
        for seed in range(3):
            expected = model.run(picture(seed))[0]
            assert np.array_equal(same.run(picture(seed))[0], expected)
            assert np.array_equal(named.run(picture(seed))[0], expected)


def test_queries_tell_what_the_file_says(data: bytes):
    file = read_rknn(data)
    tensor = file.tensors[file.inputs[0]]
    with Model(data) as model:
        attr = query(model, rk.RKNN_QUERY_INPUT_ATTR, rk.rknn_tensor_attr)
        assert attr.name.decode() == tensor.name and list(attr.dims[:4]) == [1, 16, 16, 1]
        assert (attr.scale, attr.zp) == (np.float32(tensor.scale), tensor.zero_point)
        native = query(model, rk.RKNN_QUERY_NATIVE_INPUT_ATTR, rk.rknn_tensor_attr)
        assert native.fmt == rk.RKNN_TENSOR_NHWC and native.size_with_stride == tensor.size
        sizes = query(model, rk.RKNN_QUERY_MEM_SIZE, rk.rknn_mem_size)
        assert sizes.total_weight_size == file.weight_bytes
        assert file.internal_bytes <= sizes.total_internal_size <= file.internal_bytes + 64
        model.run(picture())
        text = model.performance
        assert all(f"{node.type}:{node.name}" in text for node in file.nodes if node.on_npu)


def test_contexts_share_the_weights(data: bytes):
    with Model(data) as model, model.copy() as other:
        first, second = model.run(picture(1))[0], other.run(picture(2))[0]
        assert np.array_equal(model.run(picture(2))[0], second)
        assert np.array_equal(other.run(picture(1))[0], first)


def test_memory_of_the_program(data: bytes):
    with Model(data) as plain:
        expected = plain.run(picture())[0]
    with Model(data, flag=int(rk.RKNN_FLAG_MEM_ALLOC_OUTSIDE)) as model:
        sizes = query(model, rk.RKNN_QUERY_MEM_SIZE, rk.rknn_mem_size)
        weights = rk.rknn_create_mem(model.context, sizes.total_weight_size)
        internal = rk.rknn_create_mem(model.context, sizes.total_internal_size)
        assert rk.rknn_set_weight_mem(model.context, weights) == rk.RKNN_SUCC
        assert rk.rknn_set_internal_mem(model.context, internal) == rk.RKNN_SUCC
        assert np.array_equal(model.run(picture())[0], expected)


def test_cores_that_the_file_has_no_plan_for(data: bytes):
    with Model(data) as model:
        expected = model.run(picture())[0]
        with pytest.raises(RknnError, match="without a plan for 2 cores"):
            model.cores(3)
        assert np.array_equal(model.run(picture())[0], expected)
    wide = layer_models.conv(64, 96, (40, 40), int8=True, kernel=3, pad=1)
    with Model(write_rknn(compile_model(wide, reuse=True, cores=3))) as model, Model(wide) as other:
        values = np.random.default_rng(1).normal(size=(1, 64, 40, 40)).astype(np.float32)
        assert np.array_equal(model.run(values)[0], other.run(values)[0])


def test_damage_is_an_invalid_model(data: bytes):
    handle = rk.rknn_context()
    for bad in (data[:500], data[:8] + b"\5" + data[9:], b"CYPTRKNN" + data[8:]):
        assert rk.rknn_init(handle, bad, len(bad)) == rk.RKNN_ERR_MODEL_INVALID
        assert ".rknn file" in str(rk.last_error())
