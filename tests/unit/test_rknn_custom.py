"""rknn_api: custom operators as callbacks of the program, after the NPU's part of a network."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import (
    CUSTOM_DOMAIN,
    Qdq,
    get_float,
    open_model,
    query_attr,
    run_float,
    set_float,
)

RNG = np.random.default_rng(4)
SHAPE = (1, 3, 4, 5)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(1))
    yield
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    rk.use_device(None)


def scaled_net(tail: bool = False, shaped: bool = True) -> bytes:
    """conv -> Twist (custom, with attributes and a constant) [-> Softmax -> Last (custom)]."""
    net = Qdq()
    x = net.input("x", SHAPE)
    y = net.conv(x, 3, 8)
    net.output(y, "codes", (1, 8, 4, 5))
    z = net.node(
        "Twist",
        y,
        net.constant(np.arange(8) + 1.0),
        domain=CUSTOM_DOMAIN,
        factor=2.5,
        axis=1,
        steps=[3, 4, 5],
        mode="fast",
    )
    if tail:
        z = net.node("Softmax", z, axis=1)
        z = net.node("Last", z, domain=CUSTOM_DOMAIN)
    net.output(z, "z", (1, 8, 4, 5))
    model = onnx.load_model_from_string(net.bytes())
    if shaped:
        for name in {node.output[0] for node in model.graph.node if node.domain}:
            model.graph.value_info.append(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 4, 5))
            )
    return model.SerializeToString()


def array(tensor: rk.rknn_custom_op_tensor) -> np.ndarray:
    """A tensor's numbers, in memory shared with the library."""
    shape = tuple(tensor.attr.dims[: tensor.attr.n_dims])
    start = tensor.mem.virt_addr + tensor.mem.offset
    flat = (ct.c_float * tensor.attr.n_elems).from_address(start)
    return np.ctypeslib.as_array(flat).reshape(shape)


class Twist:
    """y * weights * factor, with a record of the calls."""

    def __init__(self, op_type: bytes = b"Twist", code: dict[str, int] | None = None) -> None:
        self.calls: list[str] = []
        self.attributes: dict[str, object] = {}
        self.code = code or {}
        self.op = rk.rknn_custom_op(version=1, target=int(rk.RKNN_TARGET_TYPE_CPU), op_type=op_type)
        self.op.init = rk.rknn_custom_op_callback(self.wrap("init", self.init))
        self.op.prepare = rk.rknn_custom_op_callback(self.wrap("prepare", lambda *_: None))
        self.op.compute = rk.rknn_custom_op_callback(self.wrap("compute", self.compute))
        self.op.destroy = rk.rknn_custom_op_destroy(self.wrap("destroy", lambda *_: None))

    def wrap(self, name: str, function: Callable[..., None]) -> Callable[..., int]:
        def call(*args: object) -> int:
            self.calls.append(name)
            function(*args)
            return self.code.get(name, 0)

        return call

    def init(self, ctx, inputs, n_in, outputs, n_out) -> None:
        assert ctx.contents.target == rk.RKNN_TARGET_TYPE_CPU
        assert (n_in, n_out, inputs[0].attr.type, inputs[0].attr.fmt) == (2, 1, 0, rk.RKNN_TENSOR_NCHW)
        for name in (b"factor", b"axis", b"steps", b"mode", b"name", b"none"):
            attr = rk.rknn_custom_op_attr()
            rk.rknn_custom_op_get_op_attr(ctx, name, ct.byref(attr))
            kinds = {rk.RKNN_TENSOR_FLOAT32: "f4", rk.RKNN_TENSOR_INT64: "i8", rk.RKNN_TENSOR_UINT8: "u1"}
            size = attr.n_elems * np.dtype(kinds[attr.dtype]).itemsize
            raw = ct.string_at(attr.data, size) if attr.n_elems else b""
            values = np.frombuffer(raw, kinds[attr.dtype])
            self.attributes[name.decode()] = raw if attr.dtype == rk.RKNN_TENSOR_UINT8 else values.tolist()
        ctx.contents.priv_data = 4711

    def compute(self, ctx, inputs, n_in, outputs, n_out) -> None:
        assert ctx.contents.priv_data == 4711
        weights = array(inputs[1]).reshape(1, 8, 1, 1)
        array(outputs[0])[...] = array(inputs[0]) * weights * self.attributes["factor"][0]


def image() -> np.ndarray:
    return (RNG.integers(-40, 40, SHAPE) / 2).astype(np.float32)


def test_a_custom_operator_behind_the_npu() -> None:
    context, twist = open_model(scaled_net()), Twist()
    numbers = rk.rknn_input_output_num()
    assert rk.rknn_query(context, 0, ct.byref(numbers), 8) == rk.RKNN_SUCC
    assert (numbers.n_input, numbers.n_output) == (1, 2)
    attr = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR, 1)
    assert (attr.name, attr.type, list(attr.dims[:4])) == (b"z", rk.RKNN_TENSOR_FLOAT32, [1, 8, 4, 5])
    assert rk.rknn_register_custom_ops(context, ct.byref(twist.op), 1) == rk.RKNN_SUCC
    assert twist.calls == ["init"]
    assert twist.attributes == {
        "factor": [2.5],
        "axis": [1],
        "steps": [3, 4, 5],
        "mode": b'"fast"',
        "name": twist.attributes["name"],
        "none": [],
    }
    assert bytes(twist.attributes["name"]).startswith(b"twist")  # type: ignore[arg-type]
    for _ in range(2):
        y = run_float(context, image())
        assert y.any()
        want = (y * np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1, 1)) * np.float32(2.5)
        assert np.array_equal(get_float(context, 1), want)
    assert twist.calls == ["init", "prepare", "compute", "prepare", "compute"]
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    assert twist.calls[-1] == "destroy"


def test_other_nodes_behind_a_custom_operator() -> None:
    context, twist, last = open_model(scaled_net(tail=True)), Twist(), Twist(b"Last")
    last.init = lambda *_: None  # type: ignore[method-assign]
    last.op.init = rk.rknn_custom_op_callback(lambda *_: 0)

    def negate(ctx, inputs, n_in, outputs, n_out) -> int:
        array(outputs[0])[...] = -array(inputs[0])
        return 0

    last.op.compute = rk.rknn_custom_op_callback(negate)
    ops = (rk.rknn_custom_op * 2)(twist.op, last.op)
    assert rk.rknn_register_custom_ops(context, ops, 2) == rk.RKNN_SUCC
    y = run_float(context, image())
    scaled = y.astype(np.float64) * np.arange(1, 9).reshape(1, 8, 1, 1) * 2.5
    power = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    assert np.allclose(get_float(context, 1), -power / power.sum(axis=1, keepdims=True), atol=1e-6)


def test_what_goes_wrong(caplog) -> None:
    context = open_model(scaled_net())
    set_float(context, image())
    assert rk.rknn_run(context) == rk.RKNN_ERR_FAIL
    assert "no operator of type 'Twist' is registered" in caplog.text

    def register(twist: Twist) -> int:
        return rk.rknn_register_custom_ops(context, ct.byref(twist.op), 1)

    bad = rk.RKNN_ERR_PARAM_INVALID
    assert register(Twist(b"Other")) == bad
    gpu, empty, native = Twist(), Twist(), Twist()
    gpu.op.target = int(rk.RKNN_TARGET_TYPE_GPU)
    empty.op.compute = rk.rknn_custom_op_callback()
    native.op.compute_native = native.op.compute
    assert register(gpu) == register(empty) == register(native) == bad
    assert register(Twist(code={"init": 3})) == rk.RKNN_ERR_FAIL
    assert "returned 3" in caplog.text
    skip = Twist(code={"init": rk.RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE})
    assert register(skip) == rk.RKNN_ERR_FAIL
    failing = Twist(code={"compute": -1})
    assert register(failing) == rk.RKNN_SUCC and register(Twist()) == bad
    assert rk.rknn_run(context) == rk.RKNN_ERR_FAIL
    assert "compute returned -1" in caplog.text
    assert rk.rknn_register_custom_ops(context, None, 1) == bad
    assert rk.rknn_register_custom_ops(rk.rknn_context(1 << 60), failing.op, 1) == rk.RKNN_ERR_CTX_INVALID
    model = scaled_net(shaped=False)
    code = rk.rknn_init(rk.rknn_context(), model, len(model))
    assert code == rk.RKNN_ERR_MODEL_INVALID
    assert "does not specify the shape of" in caplog.text and "Twist 'twist" in caplog.text


def test_copies_of_a_context_register_for_themselves() -> None:
    context, twist, copy = open_model(scaled_net()), Twist(), rk.rknn_context()
    assert rk.rknn_register_custom_ops(context, twist.op, 1) == rk.RKNN_SUCC
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(copy)) == rk.RKNN_SUCC
    set_float(copy, image())
    assert rk.rknn_run(copy) == rk.RKNN_ERR_FAIL
    other = Twist()
    assert rk.rknn_register_custom_ops(copy, other.op, 1) == rk.RKNN_SUCC
    assert rk.rknn_run(copy) == rk.RKNN_SUCC and other.calls == ["init", "prepare", "compute"]
