"""The ONNX loader: graphs from hand-written QDQ models, and a clear message for every bad model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.graph import Binary, Clamp, Conv, Pool, Rescale
from rkcosim.compiler.loaders import ModelError, load_onnx
from rkcosim.compiler.loaders.node import Constant
from rkcosim.compiler.loaders.onnx_fold import NUMPY
from rkcosim.compiler.options import using_options
from rkcosim.compiler.steps import ConvStep
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@dataclass
class Qdq:
    """A QDQ model written by hand; `q` quantises and dequantises a value."""

    shape: tuple[int, ...] = (1, 3, 8, 8)
    dtype: type = np.int8
    input_type: int = TensorProto.FLOAT
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def const(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def dq(self, x: str, scale: object, zero: object = 0, dtype: type | None = None, **attr: object) -> str:
        zeros = np.broadcast_to(np.asarray(zero), np.shape(scale))
        return self.add(
            "DequantizeLinear", x, self.const(scale), self.const(zeros, dtype or self.dtype), **attr
        )

    def q(self, x: str, scale: float = 0.05, zero: int = 0) -> str:
        codes = self.add("QuantizeLinear", x, self.const(scale), self.const(zero, self.dtype))
        return self.dq(codes, scale, zero)

    def weights(
        self, shape: tuple[int, ...], scale: object = 0.01, axis: int = 0, dtype: type = np.int8
    ) -> str:
        values = np.arange(np.prod(shape)).reshape(shape) % 100
        return self.dq(self.const(values, dtype), scale, dtype=dtype, axis=axis)

    def load(self, output: str):
        return load_onnx(self.bytes(output))

    def bytes(self, output: str) -> bytes:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", self.input_type, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [])],
            self.tensors,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        return model.SerializeToString()


def test_digits_graph() -> None:
    graph = load_onnx(DIGITS.read_bytes())
    assert [op.kind for op in graph.ops] == [
        "Conv",
        "DepthwiseConv",
        "Conv",
        "MaxPool",
        "DepthwiseConv",
        "Conv",
        "Add",
        "DepthwiseConv",
        "Conv",
        "GlobalAveragePool",
        "Gemm",
    ]
    assert [op.kind for op in graph.host_ops] == ["Softmax", "Quantize", "Dequantize"]
    assert graph.inputs[0].name == "image" and graph.outputs[0].shape == (1, 10)


def test_conv_parameters() -> None:
    n = Qdq()
    bias = n.dq(n.const([7, -9], np.int32), [0.05 * 0.01, 0.05 * 0.02], dtype=np.int32, axis=0)
    y = n.add(
        "Conv",
        n.q("x", 0.05, 3),
        n.weights((2, 3, 3, 3), [0.01, 0.02]),
        bias,
        strides=[2, 1],
        pads=[1, 0, 1, 2],
        dilations=[1, 2],
    )
    graph = n.load(n.q(n.add("Clip", n.add("Relu", y), n.const(-1.0), n.const(4.0)), 0.1, -7))
    conv = graph.ops[0]
    assert isinstance(conv, Conv) and conv.clamp == Clamp(0.0, 4.0)
    assert conv.bias.tolist() == [7, -9]
    assert conv.weight_scales == pytest.approx([0.01, 0.02])
    assert conv.window.strides == (2, 1) and conv.window.pads == (1, 0, 1, 2)
    tensor = graph.tensors[conv.output]
    assert tensor.cube == (2, 4, 6) and tensor.zero_point == -7 and tensor.scale == pytest.approx(0.1)


def test_unsigned_models_are_shifted() -> None:
    n = Qdq(dtype=np.uint8)
    y = n.add("Conv", n.q("x", 0.05, 130), n.weights((4, 3, 1, 1), dtype=np.uint8))
    graph = n.load(n.q(y, 0.1, 5))
    conv = graph.ops[0]
    assert isinstance(conv, Conv)
    assert graph.tensors[conv.inputs[0]].zero_point == 2 and graph.tensors[conv.output].zero_point == -123
    assert conv.weight_zero_point == -128 and conv.weights.reshape(-1)[:3].tolist() == [-128, -127, -126]
    assert graph.tensors[conv.output].unsigned


def test_float_bias_and_gemm_factors() -> None:
    n = Qdq(shape=(1, 4))
    y = n.add(
        "Gemm", n.q("x", 0.5), n.weights((4, 2), 0.25, axis=1), n.const([1.0, -2.0]), alpha=0.5, beta=2.0
    )
    gemm = n.load(n.q(y)).ops[0]
    assert isinstance(gemm, Conv) and gemm.kind == "Gemm"
    assert gemm.weights.reshape(2, 4).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert gemm.weight_scales.tolist() == [0.125, 0.125]
    assert gemm.bias.tolist() == [32, -64]


def test_flatten_keeps_the_cube() -> None:
    n = Qdq(shape=(1, 4, 2, 3))
    x = n.add("Relu", n.q("x"))
    y = n.add("Gemm", n.q(n.add("Flatten", n.q(x)), 0.05), n.weights((5, 24)), transB=1)
    graph = n.load(n.q(y))
    gemm = graph.ops[1]
    assert isinstance(gemm, Conv) and gemm.weights.shape == (5, 4, 2, 3) and gemm.window.kernel == (2, 3)
    assert graph.root(gemm.inputs[0]) == graph.ops[0].output
    assert isinstance(graph.ops[0], Rescale)


def test_add_pool_and_constants() -> None:
    n = Qdq()
    x = n.q("x")
    pooled = n.q(n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1))
    total = n.q(n.add("Add", pooled, pooled), 0.2)
    shifted = n.q(n.add("Add", n.dq(n.const([[[3]], [[4]], [[5]]], np.int8), 0.1), total), 0.2)
    graph = n.load(n.q(n.add("AveragePool", shifted, kernel_shape=[2, 2])))
    kinds = [type(op) for op in graph.ops]
    assert kinds == [Pool, Binary, Binary, Pool]
    assert graph.tensors[graph.ops[0].output].cube == (3, 5, 5)
    (constant,) = graph.constants.values()
    assert constant.shape == (3, 1, 1) and constant[1, 0, 0] == 4
    assert graph.ops[2].inputs[1] in graph.constants


def test_equal_quantisation_is_an_alias() -> None:
    n = Qdq(shape=(1, 4, 1, 1))
    x = n.q(n.add("Relu", n.q("x")))
    graph = n.load(n.q(n.add("Identity", x)))
    assert len(graph.ops) == 1 and len(graph.aliases) == 1


def bad_models() -> dict[str, tuple[str, bytes]]:
    """Map from name to (words that the message must contain, model)."""
    cases: dict[str, tuple[str, bytes]] = {}

    def case(name: str, words: str, n: Qdq, output: str) -> None:
        cases[name] = (words, n.bytes(output))

    n = Qdq()
    y = n.add("Sin", n.add("Cosh", n.q("x")))
    case("operators", r"unsupported operators: Cosh 'Cosh\d', Sin 'Sin\d'", n, n.q(y))
    n = Qdq()
    good, wide = n.weights((2, 3, 1, 1)), n.weights((2, 4, 1, 1))
    y = n.add("Add", n.q(n.add("Conv", n.q("x"), wide)), n.q(n.add("Conv", n.q("x"), wide)))
    case(
        "all nodes",
        r"Conv 'Conv\d+': .* do not fit 3 channels; Conv 'Conv\d+'",
        n,
        n.q(n.add("Conv", y, good)),
    )
    n = Qdq()
    case(
        "input",
        r"Conv 'Conv\d': input 'x' is not quantised",
        n,
        n.q(n.add("Conv", "x", n.weights((2, 3, 1, 1)))),
    )
    n = Qdq()
    case("channels", "do not fit 3 channels", n, n.q(n.add("Conv", n.q("x"), n.weights((2, 4, 1, 1)))))
    n = Qdq()
    y = n.add("Conv", n.q("x"), n.weights((2, 3, 1, 1), [0.1, 0.2, 0.3], axis=1))
    case("axis", "scales on axis 1, not 0", n, n.q(y))
    n = Qdq()
    case("scale", "must be positive", n, n.q(n.add("Relu", n.q("x", -1.0))))
    n = Qdq(shape=(2, 3, 8, 8))
    case("batch", r"shape \(2, 3, 8, 8\) \(required: ", n, n.q(n.add("Relu", n.q("x"))))
    n = Qdq(input_type=TensorProto.FLOAT16)
    case("input type", "is float16, not float32", n, n.q(n.add("Relu", n.q("x"))))
    n = Qdq()
    case("window", "smaller than the window", n, n.q(n.add("MaxPool", n.q("x"), kernel_shape=[9, 9])))
    n = Qdq()
    y = n.add("MaxPool", n.q("x"), kernel_shape=[2, 2])
    case("add shapes", "both operands have one shape", n, n.q(n.add("Add", n.q("x"), n.q(y))))
    n = Qdq()
    case(
        "concat relu",
        "must be quantised first",
        n,
        n.q(n.add("Relu", n.add("Concat", n.q("x"), n.q("x"), axis=1))),
    )
    n = Qdq()
    case("concat batch", "axis 0 of", n, n.q(n.add("Concat", n.q("x"), n.q("x"), axis=0)))
    n = Qdq()
    y = n.add("Split", n.q("x"), n.const([1, 1], np.int64), axis=1)
    n.nodes[-1].output.append("second")
    case("split", r"Split 'Split\d': \[1, 1\]", n, n.q(y))
    n = Qdq()
    case("pad batch", "pads", n, n.q(n.add("Pad", n.q("x"), n.const([1, 0, 0, 0, 0, 0, 0, 0], np.int64))))
    n = Qdq()
    sizes = n.const([1, 3, 16, 16], np.int64)
    y = n.add("Resize", n.q("x"), "", "", sizes, mode="cubic", exclude_outside=1)
    case("resize", "mode cubic, exclude_outside", n, n.q(y))
    n = Qdq()
    y = n.add("PRelu", n.q("x"), n.const([0.1, 0.2], np.float32))
    case("slopes", "are not per channel", n, n.q(y))
    n = Qdq(shape=(1, 4))
    case("transA", "transA", n, n.q(n.add("Gemm", n.q("x"), n.weights((1, 2)), transA=1)))
    n = Qdq(shape=(2, 4))
    x = n.q("x")
    case("matmul", r"\(2, 4\) times \(2, 4\) is not supported", n, n.q(n.add("MatMul", x, x)))
    n = Qdq(shape=(1, 4, 6, 2))
    y = n.add("Reshape", n.q("x"), n.const([1, 2, 12, 2], np.int64))
    y = n.add("Reshape", n.add("Relu", y), n.const([1, 4, 6, 2], np.int64))
    case("reshape", "must be quantised first", n, n.q(y))
    n = Qdq()
    codes = n.add("QuantizeLinear", "x", n.const(0.1), n.const(0, np.int8))
    case("scales differ", "differ from those of", n, n.q(n.add("Relu", n.dq(codes, 0.2))))
    n = Qdq()
    x = n.q("x")
    n.tensors[1] = numpy_helper.from_array(np.zeros((), np.int32), n.tensors[1].name)
    case("int32 activation", "is int32, not 8 bit", n, n.q(n.add("Relu", x)))
    n = Qdq()
    case("nothing", "no operation for the NPU", n, n.q("x"))
    return cases


BAD = bad_models()


@pytest.mark.parametrize("name", BAD)
def test_bad_model_is_named(name: str) -> None:
    words, data = BAD[name]
    with using_options(fallback=False), pytest.raises(ModelError, match=words):
        load_onnx(data)


INVALID = (*("all nodes", "channels", "add shapes", "split", "slopes", "matmul", "int32 activation"),)
"""Models of `bad_models` that onnxruntime refuses; of the others the host computes what the NPU cannot."""


@pytest.mark.parametrize("name", BAD)
def test_valid_models_fall_back_to_the_host(name: str) -> None:
    def results() -> list[np.ndarray]:
        model = compile_model(BAD[name][1])
        with Driver(GoldenNpu(1)) as driver, LoadedModel(model, driver) as loaded:
            for index, info in enumerate(model.inputs):
                loaded.set_input(index, np.ones(info.shape, np.float32))
            loaded.run()
            return [loaded.get_output(index) for index in range(len(model.outputs))]

    if name in INVALID:  # onnxruntime finds some errors only when it runs
        with pytest.raises(ModelError):
            results()
    elif name in ("axis", "input type"):  # accepted in parts, but not as a whole
        assert load_onnx(BAD[name][1]).outputs
    else:
        session = InferenceSession(BAD[name][1], providers=["CPUExecutionProvider"])
        (x,) = session.get_inputs()
        (wanted,) = session.run(None, {"x": np.ones(x.shape, NUMPY[x.type])})
        (given,) = results()
        np.testing.assert_allclose(given, wanted, atol=0.051)  # a step of the output


def test_truncated_files() -> None:
    data = DIGITS.read_bytes()
    for size in [*range(0, 300, 13), *range(300, len(data), 211)]:
        with pytest.raises(ModelError, match=r"ONNX model|initializer"):
            load_onnx(data[:size])


def test_damaged_bytes_never_raise_anything_else() -> None:
    data = DIGITS.read_bytes()
    rng = np.random.default_rng(588)
    refused = 0
    for _ in range(150):
        copy = bytearray(data)
        for _ in range(3):
            copy[rng.integers(len(copy))] = rng.integers(256)
        try:
            load_onnx(bytes(copy))
        except ModelError:
            refused += 1
    assert refused > 50


def test_other_files() -> None:
    for data in (b"", b"RKNN\0\0\0\0", b"\x1c\0\0\0TFL3" + bytes(64), bytes(100)):
        with pytest.raises(ModelError, match="not an ONNX model"):
            load_onnx(data)


@pytest.mark.parametrize("name, values", [("strides", [1]), ("dilations", [1, 1, 1]), ("pads", [0, 0, 0])])
def test_windows_have_as_many_numbers_as_they_must(name: str, values: list[int]) -> None:
    model = onnx.load(DIGITS)
    node = next(node for node in model.graph.node if node.op_type in ("Conv", "QLinearConv"))
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, values)])
    words = f"{name} must be {4 if name == 'pads' else 2} numbers, not"
    with using_options(fallback=False), pytest.raises(ModelError, match=words):
        load_onnx(model.SerializeToString())


@pytest.mark.parametrize(("axis", "count"), [(4, 3), (-5, 3), (1, 3)])
def test_scales_along_a_missing_axis_are_refused(axis: int, count: int) -> None:
    """Scales for an axis that a constant does not have, or of another length, are bad input."""
    scales, zeros = np.ones(count), np.zeros(count, np.int8)
    constant = Constant(np.zeros((3, 2, 1, 1), np.int8), scales, zeros, axis)
    with pytest.raises(ModelError, match=rf"along axis {axis} do not fit a constant of shape \[3, 2, 1, 1\]"):
        constant.real()


@pytest.mark.parametrize("missing", ["weights", "output"])
def test_conv_that_is_not_wholly_quantised(missing: str) -> None:
    """Such a layer runs in fp16, unless floats are refused."""
    n = Qdq()
    if missing == "weights":
        y = n.q(n.add("Conv", n.q("x"), n.const(np.zeros((2, 3, 1, 1)))))
    else:
        y = n.add("Conv", n.q("x"), n.weights((2, 3, 1, 1)))
    data = n.bytes(y)
    with using_options(fallback=False):
        steps = compile_model(data).plan.steps
    assert [step.output.real for step in steps if isinstance(step, ConvStep)] == [True]
    with using_options(floats="refuse"), pytest.raises(ModelError, match="Conv"):
        compile_model(data)
