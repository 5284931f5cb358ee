"""Small hand-written quantised networks (ONNX, QDQ form), and helpers for the calls of rknn_api."""

from __future__ import annotations

import ctypes as ct
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import rkcosim.rknn_api as rk

CUSTOM_DOMAIN = "test.custom"


class Qdq:
    """A graph under construction; its methods return value names."""

    def __init__(self, dtype: type = np.int8) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.rng = np.random.default_rng(5)

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def coded(self, x: str, scale: float, zero: int) -> str:
        """Add QuantizeLinear and DequantizeLinear."""
        s, z = self.constant(scale), self.constant(zero, self.dtype)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, s, z), s, z)

    def input(self, name: str, shape: tuple[int, ...], scale: float = 0.5, zero: int = 0) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.coded(name, scale, zero)

    def conv(
        self, x: str, channels: int, kernels: int, kernel: int = 1, scale: float = 1.0, zero: int = 0
    ) -> str:
        codes = self.rng.integers(-9, 10, (kernels, channels, kernel, kernel))
        w = self.node(
            "DequantizeLinear", self.constant(codes, np.int8), self.constant(0.25), self.constant(0, np.int8)
        )
        return self.coded(self.node("Conv", x, w, kernel_shape=[kernel, kernel]), scale, zero)

    def output(self, x: str, name: str, shape: tuple[int, ...]) -> None:
        self.nodes.append(helper.make_node("Identity", [x], [name], name=f"to {name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def bytes(self) -> bytes:
        graph = helper.make_graph(self.nodes, "small", self.inputs, self.outputs, self.tensors)
        opsets = [helper.make_opsetid("", 13)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid(CUSTOM_DOMAIN, 1))
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        return model.SerializeToString()


def image_model(
    channels: int = 3, kernels: int = 20, size: tuple[int, int] = (6, 10), dtype: type = np.int8
) -> bytes:
    """Return a model with one 1x1 convolution, an image input "x" and an output "y"."""
    net = Qdq(dtype)
    zero = 128 if dtype is np.uint8 else -3
    x = net.input("x", (1, channels, *size), zero=zero)
    y = net.conv(x, channels, kernels, zero=130 if dtype is np.uint8 else 4)
    net.output(y, "y", (1, kernels, *size))
    return net.bytes()


def float_model(channels: int = 3, kernels: int = 20, size: tuple[int, int] = (6, 10)) -> bytes:
    """Return the same network with float values, which runs as fp16."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-9, 10, (kernels, channels, 1, 1)).astype(np.float32) / 4
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[1, 1])],
        "floats",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, *size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, kernels, *size))],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


def open_model(model: bytes, flag: int = 0, extend: Any = None) -> rk.rknn_context:
    """Open a model with `rknn_init`, which must succeed."""
    context = rk.rknn_context()
    code = rk.rknn_init(ct.byref(context), model, len(model), flag, extend)
    assert code == rk.RKNN_SUCC, rk.last_error()
    return context


def query_attr(context: Any, command: int, index: int = 0) -> rk.rknn_tensor_attr:
    """Return the attributes from a query, which must succeed."""
    attr = rk.rknn_tensor_attr(index=index)
    code = rk.rknn_query(context, command, ct.byref(attr), ct.sizeof(attr))
    assert code == rk.RKNN_SUCC, rk.last_error(context)
    return attr


def set_float(context: Any, *arrays: np.ndarray, fmt: int = rk.RKNN_TENSOR_NCHW) -> None:
    """Set all inputs from real numbers in the shape that the model has."""
    inputs = (rk.rknn_input * len(arrays))()
    kept = [np.ascontiguousarray(array, np.float32) for array in arrays]
    for index, array in enumerate(kept):
        inputs[index] = rk.rknn_input(
            index=index, buf=array.ctypes.data, size=array.nbytes, type=rk.RKNN_TENSOR_FLOAT32, fmt=fmt
        )
    assert rk.rknn_inputs_set(context, len(kept), inputs) == rk.RKNN_SUCC, rk.last_error(context)


def get_float(context: Any, index: int = 0, extend: Any = None) -> np.ndarray:
    """Return an output as real numbers in the shape that the model has."""
    attr = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR, index)
    outputs = (rk.rknn_output * 1)(rk.rknn_output(want_float=1, index=index))
    assert rk.rknn_outputs_get(context, 1, outputs, extend) == rk.RKNN_SUCC, rk.last_error(context)
    raw = ct.string_at(outputs[0].buf, outputs[0].size)
    assert rk.rknn_outputs_release(context, 1, outputs) == rk.RKNN_SUCC
    return np.frombuffer(raw, np.float32).reshape(tuple(attr.dims[: attr.n_dims]))


def run_float(context: Any, *arrays: np.ndarray) -> np.ndarray:
    """Call inputs_set, run and outputs_get; return output 0."""
    set_float(context, *arrays)
    assert rk.rknn_run(context, None) == rk.RKNN_SUCC, rk.last_error(context)
    return get_float(context)


def bytes_of(mem: Any) -> np.ndarray:
    """Return the bytes at `virt_addr`, writable."""
    struct = mem.contents
    return np.ctypeslib.as_array((ct.c_uint8 * struct.size).from_address(struct.virt_addr))
