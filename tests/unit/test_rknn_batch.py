"""rknn_api: models of batches give each sample what it gets alone, on one core or several."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from ai_edge_litert import interpreter
from onnxruntime import InferenceSession

import rkcosim.rknn_api as rk
from rkcosim.compiler.batch import BatchModel
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_api.state import runtime
from tests.makers.batch_models import Net, drawn
from tests.makers.rknn_models import Qdq
from tests.makers.tflite_models import Tf

RNG = np.random.default_rng(11)


class Counting(GoldenNpu):
    """A device that notes which cores were started."""

    started: list[int]

    def write32(self, core: int, offset: int, value: int) -> None:
        if offset == 8 and value & 1:
            self.started.append(core)
        super().write32(core, offset, value)


@pytest.fixture(autouse=True)
def device() -> Iterator[Counting]:
    npu = Counting(3)
    npu.started = []
    rk.use_device(npu)
    yield npu
    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    rk.use_device(None)


def network(batch: int) -> bytes:
    """A convolution, and a flat output with a Reshape to (batch, ...)."""
    net = Qdq()
    x = net.input("x", (batch, 3, 6, 8))
    y = net.conv(x, 3, 16)
    net.output(y, "y", (batch, 16, 6, 8))
    return net.bytes()


def with_batch(data: bytes, batch: int) -> bytes:
    model = onnx.load_model_from_string(data)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = batch
    del model.graph.value_info[:]
    return model.SerializeToString()


@pytest.mark.parametrize(("batch", "cores"), [(2, 0), (3, 2), (5, 0), (4, 1)])
def test_samples_are_those_of_the_single_model(batch: int, cores: int, device: Counting):
    one = network(1)
    images = RNG.random((batch, 3, 6, 8)).astype(np.float32)
    with Model(one) as model:
        wanted = np.concatenate([model.run(image[None])[0] for image in images])
    with Model(with_batch(one, batch)) as model:
        assert model.inputs[0].shape == (batch, 3, 6, 8) and model.outputs[0].shape[0] == batch
        if cores:
            assert rk.rknn_set_batch_core_num(model.context, cores) == rk.RKNN_SUCC
        device.started.clear()
        np.testing.assert_array_equal(model.run(images)[0], wanted)
        assert set(device.started) == set(range(min(batch, cores or 3)))
        np.testing.assert_array_equal(model.run(images[::-1])[0], wanted[::-1])
        model.cores(int(rk.RKNN_NPU_CORE_1))
        device.started.clear()
        np.testing.assert_array_equal(model.run(images)[0], wanted)
        assert set(device.started) == {1}
        copy = model.copy()
        np.testing.assert_array_equal(copy.run(images)[0], wanted)
        copy.close()


def test_sizes_and_native_memory_are_of_the_whole_batch():
    one = network(1)
    images = RNG.random((2, 3, 6, 8)).astype(np.float32)
    with Model(one) as single, Model(with_batch(one, 2)) as model:
        wanted = np.concatenate([single.run(image[None])[0] for image in images])
        for command in (rk.RKNN_QUERY_INPUT_ATTR, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR):
            small, large = rk.rknn_tensor_attr(), rk.rknn_tensor_attr()
            for context, attr in ((single.context, small), (model.context, large)):
                assert rk.rknn_query(context, command, attr, ct.sizeof(attr)) == rk.RKNN_SUCC
            assert (large.size, large.n_elems) == (2 * small.size, 2 * small.n_elems)
            assert large.size_with_stride == 2 * small.size_with_stride
            assert list(large.dims[:4]) == [2, *small.dims[1:4]]
        attr = rk.rknn_tensor_attr(index=0)
        rk.rknn_query(model.context, rk.RKNN_QUERY_OUTPUT_ATTR, attr, ct.sizeof(attr))
        attr.type, attr.size = int(rk.RKNN_TENSOR_FLOAT32), attr.n_elems * 4
        memory = rk.rknn_create_mem(model.context, attr.size)
        assert rk.rknn_set_io_mem(model.context, memory, attr) == rk.RKNN_SUCC
        model.inputs_set(images)
        model.execute()
        got = np.frombuffer(ct.string_at(memory.contents.virt_addr, attr.size), np.float32)
        np.testing.assert_array_equal(got, wanted.reshape(-1))


@pytest.mark.parametrize("native", [False, True])
def test_memory_of_vectors_in_a_batch(native: bool):
    """Vectors of six numbers take eight on the NPU: what lies between them is no part of the dense array."""
    from onnx import TensorProto, helper, numpy_helper

    kernel = RNG.integers(-3, 4, (6, 3, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Reshape", ["m", "s"], ["r"]),
        helper.make_node("Mul", ["c", "r"], ["y"]),
    ]
    sizes = {"x": (4, 3, 4, 4), "m": (4, 6), "y": (4, 6, 4, 4)}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
    constants = [
        numpy_helper.from_array(kernel, "k"),
        numpy_helper.from_array(np.array((4, 6, 1, 1), np.int64), "s"),
    ]
    graph = helper.make_graph(nodes, "vectors", infos[:2], infos[2:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    data = made.SerializeToString()
    feeds = {name: RNG.integers(-4, 5, sizes[name]).astype(np.float32) for name in "xm"}
    (wanted,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    with Model(data) as model:
        model.inputs_set(feeds["x"], feeds["m"])
        command = rk.RKNN_QUERY_NATIVE_INPUT_ATTR if native else rk.RKNN_QUERY_INPUT_ATTR
        attr = rk.rknn_tensor_attr(index=1)
        assert rk.rknn_query(model.context, command, attr, ct.sizeof(attr)) == rk.RKNN_SUCC
        values = feeds["m"].astype(np.float16)
        if native:
            assert attr.fmt == rk.RKNN_TENSOR_NC1HWC2
            assert tuple(attr.dims[: attr.n_dims]) == (4, 1, 1, 1, 8)
            values = np.pad(values, ((0, 0), (0, 2)))
        assert values.nbytes == attr.size
        memory = rk.rknn_create_mem(model.context, attr.size_with_stride)
        ct.memmove(memory.contents.virt_addr, values.tobytes(), values.nbytes)
        assert rk.rknn_set_io_mem(model.context, memory, attr) == rk.RKNN_SUCC
        model.execute()
        (got,) = model.outputs_get()
    np.testing.assert_array_equal(got, wanted)


def test_inputs_with_different_batches_run_on_the_host():
    net = Qdq()
    a, b = net.input("a", (2, 3, 4, 4)), net.input("b", (3, 3, 4, 4))
    net.output(net.conv(a, 3, 8), "y", (2, 8, 4, 4))
    net.output(net.conv(b, 3, 8), "z", (3, 8, 4, 4))
    data = net.bytes()
    arrays = [RNG.normal(size=(batch, 3, 4, 4)).astype(np.float32) for batch in (2, 3)]
    wanted = InferenceSession(data, providers=["CPUExecutionProvider"]).run(
        None, {"a": arrays[0], "b": arrays[1]}
    )
    with Model(data) as model:
        for ours, theirs in zip(model.run(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def tflite_network(batch: int, dtype: str = "int8") -> bytes:
    """Convolution, slice of columns, transposed convolution, average, dense layer; all for a batch."""
    t = Tf(seed=7, dtype=dtype)
    x = t.conv(t.input((1, 8, 12, 3)), 16)
    same = {"scale": t.items[x].scale, "zero": t.items[x].zero}
    cut = t.add("SLICE", [x, t.ints([0, 0, 2, 0]), t.ints([1, 8, 8, 16])], (1, 8, 8, 16), **same)
    up = t.transpose_conv(cut, 8, 3, 2, True)
    _, height, width, channels = t.items[up].shape
    item = t.items[up]
    window = {"FilterHeight": height, "FilterWidth": width, "StrideH": height, "StrideW": width}
    shape = (1, 1, 1, channels)
    mean = t.add("AVERAGE_POOL_2D", [up], shape, Padding=1, scale=item.scale, zero=item.zero, **window)
    last = t.dense(mean, 10)
    sizes = {t.nodes[n][1][place] for n, place in ((1, 2), (2, 0))}
    for number, item in enumerate(t.items):
        if item.data is None:
            item.shape = (batch, *item.shape[1:])
        elif number in sizes:
            item.data = np.array([batch, *item.data[1:]], np.int32)
    return t.bytes(up, last)


@pytest.mark.parametrize(("batch", "dtype"), [(2, "int8"), (5, "int8"), (3, "uint8")])
def test_tflite_samples_are_those_of_the_single_model(batch: int, dtype: str, device: Counting):
    images = RNG.random((batch, 3, 8, 12)).astype(np.float32)
    with Model(tflite_network(1, dtype)) as model:
        alone = [model.run(image[None]) for image in images]
    with Model(tflite_network(batch, dtype)) as model:
        assert model.inputs[0].shape == (batch, 3, 8, 12)
        assert [info.shape[0] for info in model.outputs] == [batch, batch]
        device.started.clear()
        together = model.run(images)
        assert len(set(device.started)) == min(batch, 3) or model._state.model.plan.jobs > 1
    for number, values in enumerate(together):
        np.testing.assert_array_equal(values, np.concatenate([outputs[number] for outputs in alone]))
    assert all(len(np.unique(values)) > 3 for values in together)


def test_rows_of_a_tflite_matrix_are_no_batch():
    t = Tf(seed=2)
    data = t.bytes(t.dense(t.input((4, 32)), 16))
    with Model(data) as model:
        assert model.inputs[0].shape == (4, 32) and not hasattr(model._state.model, "batch")


TFLITE: dict[str, tuple[bool, Callable[[Tf, int], int]]] = {
    "maps": (True, lambda t, x: t.dense(t.add("MEAN", [x, t.ints([1, 2])], (3, 8)), 5)),
    "square roots": (True, lambda t, x: t.add("SQRT", [t.add("ABS", [x], (3, 6, 7, 8))], (3, 6, 7, 8))),
    "a constant for all samples": (
        True,
        lambda t, x: t.add("ADD", [x, t.constant((1, 6, 7, 8))], (3, 6, 7, 8)),
    ),
    "a constant for each sample": (
        False,
        lambda t, x: t.add("MUL", [x, t.constant((3, 6, 7, 8))], (3, 6, 7, 8)),
    ),
    "a quotient by a constant for each sample": (
        False,
        lambda t, x: t.add("DIV", [x, t.constant((3, 1, 1, 1))], (3, 6, 7, 8)),
    ),
    "a mean of the samples": (False, lambda t, x: t.add("MEAN", [x, t.ints([0])], (6, 7, 8))),
    "more samples": (False, lambda t, x: t.add("CONCATENATION", [x, x], (6, 6, 7, 8), Axis=0)),
    "samples in another order": (
        False,
        lambda t, x: t.add("GATHER", [x, t.ints([2, 1, 0])], (3, 6, 7, 8), Axis=0),
    ),
    "one sample of all": (
        False,
        lambda t, x: t.add("SLICE", [x, t.ints([1, 0, 0, 0]), t.ints([1, 6, 7, 8])], (1, 6, 7, 8)),
    ),
    "axes that change places": (
        False,
        lambda t, x: t.add("TRANSPOSE", [x, t.ints([1, 0, 2, 3])], (6, 3, 7, 8)),
    ),
    "frames as channels": (False, lambda t, x: t.add("RESHAPE", [x, t.ints([1, 6, 7, 24])], (1, 6, 7, 24))),
}
"""Whether the samples are independent, and the last operators, behind a convolution to (3, 6, 7, 8)."""


@pytest.mark.parametrize("name", TFLITE)
def test_a_tflite_model_gives_what_litert_gives(name: str):
    independent, make = TFLITE[name]
    t = Tf(seed=3, dtype="float32")
    data = t.bytes(make(t, t.conv(t.input((3, 6, 7, 8)), 8, 1)))
    values = RNG.normal(size=(3, 6, 7, 8)).astype(np.float32)
    kernels = interpreter.OpResolverType.BUILTIN_REF
    run = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], values)
    run.invoke()
    wanted = run.get_tensor(run.get_output_details()[0]["index"])
    with Model(data) as model:
        assert isinstance(model._state.model, BatchModel) == independent
        (got,) = model.run(values.transpose(0, 3, 1, 2))
    got = got.transpose(0, 2, 3, 1) if got.ndim == 4 else got
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-3 * np.abs(wanted).max())


def test_samples_have_their_own_tensors_on_the_host(device: Counting):
    """Host, NPU, host, NPU: three samples at a time, each with what the host computes from its own."""
    net = Net()
    y = net.add("Conv", net.add("Sin", net.input(7, 8, 6, 6)), net.drawn(8, 8, 1, 1))
    proto = net.proto(net.add("Conv", net.add("Cos", y), net.drawn(4, 8, 1, 1)))
    (values,) = drawn(proto).values()
    session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x0": values})
    with Model(proto.SerializeToString()) as model:
        assert model._state.model.plan.jobs == 2
        device.started.clear()
        (got,) = model.run(values)
        assert device.started.count(0) == 2 * 3 and device.started.count(2) == 2 * 2
        np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-3 * np.abs(wanted).max())
        (back,) = model.run(values[::-1])
        np.testing.assert_array_equal(back, got[::-1])
