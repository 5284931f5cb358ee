"""Files without weights (rkcosim.compiler.shared_weights) and contexts that use those of a full model."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim.rknn_api as rk
from rkcosim.compiler import ModelError, compile_model
from rkcosim.compiler.batch import BatchModel, compile_divided
from rkcosim.compiler.container import is_without_weights
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_file.opening import open_model as open_file_model
from rkcosim.rknn_file.writer import write_rknn
from tests.makers.rknn_models import float_model, get_float, image_model, open_model, set_float

RNG = np.random.default_rng(11)
FLAG = rk.RKNN_FLAG_SHARE_WEIGHT_MEM


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3))
    yield
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    assert runtime.driver is not None and list(runtime.driver.buffers) == []
    rk.use_device(None)


def network(
    shape: tuple[int, ...], nodes: list[Any], output: tuple[int, ...], **weights: np.ndarray
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.float32(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


SCALE = np.array([1, 0.5, -0.25]).reshape(3, 1, 1)
WIDE = np.random.default_rng(3).integers(-8, 9, (96, 64, 3, 3)) / 16
DEEP = np.random.default_rng(4).integers(-8, 9, (24, 96, 1, 1)) / 16


def host_only(size: tuple[int, int]) -> bytes:
    """A product of three dimensions, which the host computes."""
    return network((3, *size), [helper.make_node("Mul", ["x", "s"], ["y"])], (3, *size), s=SCALE)


def two_convolutions(size: tuple[int, int]) -> bytes:
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["y"], name="second"),
    ]
    return network((1, 64, *size), nodes, (1, 24, *size), a=WIDE, b=DEEP)


def sine_behind(size: tuple[int, int]) -> bytes:
    """A convolution, a host operator, and a sum with a constant on the host."""
    nodes = [
        helper.make_node("Conv", ["x", "b"], ["h"], name="conv"),
        helper.make_node("Sin", ["h"], ["s"]),
        helper.make_node("Erf", ["s"], ["e"]),
        helper.make_node("Pow", ["e", "p"], ["y"]),
    ]
    p = np.full((24, 1, 1), 2.0)
    return network((1, 96, *size), nodes, (1, 24, *size), b=DEEP, p=p)


def int8_image(size: tuple[int, int]) -> bytes:
    return image_model(3, 20, size)


def fp16_image(size: tuple[int, int]) -> bytes:
    return float_model(3, 20, size)


Network = Callable[[tuple[int, int]], bytes]
NETWORKS = (host_only, two_convolutions, sine_behind, int8_image, fp16_image)
SIZES = ((6, 10), (6, 10)), ((6, 10), (14, 12)), ((40, 48), (5, 7))
"""Heights and widths of the full model and of the other one."""


def reference(model: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(model).run(None, {"x": x})[0])


def run(context: Any, x: np.ndarray) -> np.ndarray:
    set_float(context, x)
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    return get_float(context)


def shared(full: Any, data: bytes) -> rk.rknn_context:
    return open_model(data, FLAG, ct.byref(rk.rknn_init_extend(ctx=full.value)))


def input_of(model: bytes) -> np.ndarray:
    dims = onnx.load_model_from_string(model).graph.input[0].type.tensor_type.shape.dim
    return RNG.integers(-8, 9, [dim.dim_value for dim in dims]).astype(np.float32) / 4


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("made", NETWORKS)
def test_a_model_without_weights_computes_as_with_them(made: Network, sizes: Any):
    first, second = (made(size) for size in sizes)
    full, whole = compile_model(first).save(), compile_model(second)
    data = whole.save(weights=False)
    assert is_without_weights(data) and not is_without_weights(full)
    assert len(data) + len(whole.plan.weights) < len(whole.save())
    context = open_model(full)
    other = shared(context, data)
    x, z = input_of(second), input_of(first)
    alone = run(open_model(whole.save()), x)
    assert np.array_equal(run(other, x), alone)
    assert np.allclose(alone, reference(second, x), atol=0.02, rtol=0.02)
    assert np.array_equal(run(context, z), run(open_model(first), z))
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    assert np.array_equal(run(other, x), alone), "the weights outlive the context of the full model"


def test_a_batch_uses_the_weights_of_a_full_model():
    one = two_convolutions((6, 10))
    proto = onnx.load_model_from_string(two_convolutions((8, 6)))
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = 4
    several = proto.SerializeToString()
    batch = compile_divided(several)
    assert isinstance(batch, BatchModel)
    x = input_of(several)
    found = run(shared(open_model(one), batch.save(weights=False)), x)
    assert found.shape == (4, 24, 8, 6) and np.array_equal(found, run(open_model(several), x))
    assert np.allclose(found, reference(several, x), atol=0.02, rtol=0.02)


def test_one_copy_of_the_weights_in_memory():
    context = open_model(compile_model(int8_image((6, 10))).save())
    other = shared(context, compile_model(int8_image((14, 12))).save(weights=False))
    assert rk.loaded_model(context).bases["weights"] == rk.loaded_model(other).bases["weights"]


@pytest.mark.usefixtures("cycles_only")
def test_cores_of_a_model_without_weights():
    model = two_convolutions((14, 12))
    x = input_of(model)
    context = open_model(model)
    other = shared(context, compile_model(model, cores=3).save(weights=False))
    assert np.array_equal(run(other, x), run(context, x))


@pytest.mark.parametrize("made", NETWORKS)
def test_without_a_full_model_it_is_refused(made: Network):
    data, handle = compile_model(made((6, 10))).save(weights=False), rk.rknn_context()
    assert rk.rknn_init(handle, data, len(data)) == rk.RKNN_ERR_MODEL_INVALID and not handle.value
    assert "the model was made without weights" in str(rk.last_error())
    assert rk.rknn_init(handle, data, len(data), FLAG, None) == rk.RKNN_ERR_PARAM_INVALID
    with pytest.raises(ModelError, match="the model was made without weights"):
        compile_model(data)


@pytest.mark.parametrize("made", NETWORKS)
def test_the_weights_of_another_model_are_refused(made: Network):
    data, handle = compile_model(made((6, 10))).save(weights=False), rk.rknn_context()
    proto = onnx.load_model_from_string(made((6, 10)))
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size > 1:
            changed = array.copy()
            changed.flat[1] += 1
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    extend = rk.rknn_init_extend(ctx=open_model(proto.SerializeToString()).value)
    code = rk.rknn_init(handle, data, len(data), FLAG, ct.byref(extend))
    assert code == rk.RKNN_ERR_MODEL_INVALID and not handle.value
    assert "the full model does not have the weights of this one" in str(rk.last_error())


def test_a_vendor_file_keeps_its_weights():
    file = open_file_model(write_rknn(compile_model(int8_image((6, 10)))))
    with pytest.raises(ValueError, match="cannot be written without its weights"):
        file.save(weights=False)
