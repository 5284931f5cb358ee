"""ONNX models whose inputs have a first dimension above 1, which is a batch in some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.seeds import seed

RNG = np.random.default_rng(seed(__name__))
N = 3
"""Samples of the models below, a size that no other axis has."""


class Net:
    """An ONNX graph under construction; its methods return names of values."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, *shape: int | str, kind: int = TensorProto.FLOAT) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def drawn(self, *shape: int) -> str:
        """Return normal numbers, divided so that sums of products with them do not grow."""
        return self.constant(RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:])))

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}.{n}" for n in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, names, f"{op}{len(self.nodes)}", domain=domain, **attributes)
        )
        return names if outputs > 1 else names[0]

    def proto(self, *outputs: str) -> onnx.ModelProto:
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.tensors)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        made = onnx.shape_inference.infer_shapes(made)
        for item in made.graph.output:  # inference does not know operators of other domains
            if not item.type.tensor_type.HasField("shape"):
                item.CopyFrom(helper.make_tensor_value_info(item.name, TensorProto.FLOAT, (N, 4, 6, 5)))
        return made


def drawn(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return random inputs: normal numbers, or 0 and 1 for integers."""
    feed = {}
    for item in proto.graph.input:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        whole = item.type.tensor_type.elem_type == TensorProto.INT64
        feed[item.name] = RNG.integers(0, 2, shape) if whole else RNG.normal(size=shape).astype(np.float32)
    return feed


APART: dict[str, Callable[[Net], Sequence[str]]] = {}
"""Models whose samples are independent; each function returns the names of the outputs."""
MIXED: dict[str, Callable[[Net], Sequence[str]]] = {}
"""Models in which the first dimension is no batch."""


def apart(make: Callable[[Net], Any]) -> Callable[[Net], Any]:
    APART[make.__name__] = make
    return make


def mixed(make: Callable[[Net], Any]) -> Callable[[Net], Any]:
    MIXED[make.__name__] = make
    return make


@apart
def convolutions(net: Net):
    x = net.input(N, 4, 6, 8)
    y = net.add("Conv", x, net.drawn(5, 4, 3, 3), net.drawn(5), pads=[1] * 4)
    y = net.add("BatchNormalization", y, net.drawn(5), net.drawn(5), net.drawn(5), net.constant([1.0] * 5))
    y = net.add("MaxPool", net.add("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    up = net.add("ConvTranspose", y, net.drawn(5, 2, 2, 2), strides=[2, 2])
    return up, net.add("Flatten", net.add("GlobalAveragePool", y))


@apart
def a_sum_of_two_inputs(net: Net):
    x, y = net.input(N, 4, 6), net.input(N, 4, 1)
    return [net.add("Sub", net.add("Mul", x, y), net.drawn(6))]


@apart
def a_constant_whose_rows_are_the_same(net: Net):
    x = net.input(N, 4, 6)
    token = net.constant(np.repeat(RNG.normal(size=(1, 1, 6)), N, 0))
    y = net.add("Concat", token, x, axis=1)
    return [net.add("Add", y, net.constant(np.repeat(RNG.normal(size=(1, 5, 6)), N, 0)))]


@apart
def heads_of_an_attention(net: Net):
    """(N, T, H*D) through (N*H, T, D) and back."""
    x = net.input(N, 4, 10)
    parts = []
    for place in range(3):
        y = net.add("MatMul", x, net.drawn(10, 10))
        y = net.add("Transpose", net.add("Reshape", y, net.ints(N, 4, 2, 5)), perm=[0, 2, 1, 3])
        y = net.add("Reshape", y, net.ints(2 * N, 4, 5))
        parts.append(net.add("Transpose", y, perm=[0, 2, 1]) if place == 1 else y)
    scores = net.add("Softmax", net.add("MatMul", parts[0], parts[1]), axis=-1)
    y = net.add("Reshape", net.add("MatMul", scores, parts[2]), net.ints(N, 2, 4, 5))
    y = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), net.ints(N, 4, 10))
    return [net.add("LayerNormalization", y, net.drawn(10), net.drawn(10))]


@apart
def rows_of_a_dense_layer(net: Net):
    """(N, T, C) as N * T rows of a Gemm."""
    x = net.input(N, 4, 10)
    y = net.add("Reshape", x, net.ints(-1, 10))
    y = net.add("Gemm", y, net.drawn(7, 10), net.drawn(7), transB=1)
    return [net.add("Reshape", y, net.ints(N, -1, 7))]


@apart
def shapes_that_are_computed(net: Net):
    x = net.input(N, 4, 5, 6)
    size = net.add("Gather", net.add("Shape", x), net.ints(0), axis=0)
    y = net.add("Reshape", x, net.add("Concat", size, net.ints(-1), axis=0))
    return [net.add("MatMul", y, net.drawn(120, 2))]


@apart
def a_sequence_in_the_second_axis(net: Net):
    """The LSTM of PyTorch's batch_first: transposed to (T, N, C) and back."""
    x = net.add("Transpose", net.input(N, 4, 5), perm=[1, 0, 2])
    start = net.constant(np.zeros((2, N, 6)))
    weights = net.drawn(2, 24, 5), net.drawn(2, 24, 6), net.drawn(2, 48)
    y, h, c = net.add(
        "LSTM", x, *weights, "", start, start, outputs=3, hidden_size=6, direction="bidirectional"
    )
    y = net.add("Reshape", net.add("Transpose", y, perm=[2, 0, 1, 3]), net.ints(N, 4, 12))
    return [y, net.add("Transpose", h, perm=[1, 0, 2]), net.add("Transpose", c, perm=[1, 0, 2])]


@apart
def a_gru_of_the_last_step(net: Net):
    x = net.add("Transpose", net.input(N, 4, 5), perm=[1, 0, 2])
    _, h = net.add("GRU", x, net.drawn(1, 18, 5), net.drawn(1, 18, 6), outputs=2, hidden_size=6)
    return [net.add("Squeeze", h, net.ints(0))]


@apart
def movements(net: Net):
    x = net.input(N, 4, 6)
    y = net.add("Unsqueeze", x, net.ints(0, 3))
    y = net.add("Expand", y, net.ints(2, N, 4, 5, 6))
    y = net.add("Slice", y, net.ints(0, 1), net.ints(N, 3), net.ints(1, 4))
    y = net.add("ReduceMean", y, axes=[0, 3], keepdims=0)
    z = net.add("Pad", y, net.ints(0, 1, 1, 0, 0, 2))
    a, b = net.add("Split", z, net.ints(2, 3), axis=1, outputs=2)
    return [
        net.add("Tile", a, net.ints(1, 2, 1)),
        net.add("Squeeze", net.add("Unsqueeze", b, net.ints(-1)), net.ints(3)),
    ]


@apart
def choices(net: Net):
    x = net.input(N, 4, 6)
    best = net.add("ArgMax", x, axis=2, keepdims=0)
    table = net.add("Gather", net.drawn(6, 7), best, axis=0)
    values, places = net.add("TopK", x, net.ints(2), axis=-1, outputs=2)
    again = net.add("GatherElements", x, places, axis=2)
    some = net.add("Gather", x, net.ints(3, 0), axis=1)
    return [
        table,
        values,
        again,
        some,
        net.add("Where", net.add("Greater", x, net.constant(0.0)), x, net.constant(9.0)),
    ]


@apart
def enlarged(net: Net):
    x = net.input(N, 4, 5, 6)
    y = net.add("Resize", x, "", net.constant([1.0, 1.0, 2.0, 2.0]), mode="linear")
    z = net.add("Resize", y, "", "", net.ints(N, 4, 8, 8), mode="nearest")
    return [net.add("DepthToSpace", z, blocksize=2)]


@apart
def sums_of_einstein(net: Net):
    x, y = net.input(N, 4, 6), net.input(N, 6, 5)
    return [
        net.add("Einsum", x, y, equation="bij,bjk->bik"),
        net.add("Einsum", x, net.drawn(6, 2), equation="bij,jk->bki"),
    ]


@apart
def a_softmax_of_the_old_kind(net: Net):
    net.opset = 11
    return [net.add("Softmax", net.input(N, 4, 6), axis=1)]


@apart
def a_normalisation_of_each_map(net: Net):
    return [net.add("MeanVarianceNormalization", net.input(N, 4, 6, 5), axes=[2, 3])]


@apart
def slopes_of_rows_and_of_columns(net: Net):
    """Both axes have the same size, so that only the place of the slopes tells rows from columns."""
    x = net.input(N, 4, 4)
    rows, columns = net.constant([[0.1], [0.2], [0.3], [0.4]]), net.constant([0.1, 0.2, 0.3, 0.4])
    return [net.add("PRelu", x, rows), net.add("PRelu", x, columns)]


@apart
def codes(net: Net):
    x = net.input(N, 4, 6)
    scale, zero = net.constant([0.1, 0.2, 0.3, 0.4]), net.constant([1, 2, 3, 4], np.int8)
    return [
        net.add("DequantizeLinear", net.add("QuantizeLinear", x, scale, zero, axis=1), scale, zero, axis=1)
    ]


@mixed
def a_sequence(net: Net):
    x = net.input(N, 1, 8)
    return [net.add("LSTM", x, net.drawn(1, 24, 8), net.drawn(1, 24, 6), outputs=3, hidden_size=6)[0]]


@mixed
def a_sequence_of_the_last_state(net: Net):
    x = net.input(N, 1, 8)
    return [net.add("GRU", x, net.drawn(1, 18, 8), net.drawn(1, 18, 6), outputs=2, hidden_size=6)[1]]


@mixed
def a_softmax_over_all_samples(net: Net):
    return [net.add("Softmax", net.input(N, 4, 6), axis=0)]


@mixed
def an_old_softmax_over_all_samples(net: Net):
    net.opset = 11
    return [net.add("Softmax", net.input(N, 4, 6), axis=0)]


@mixed
def a_mean_of_the_samples(net: Net):
    x = net.input(N, 4, 6)
    return [net.add("Sub", x, net.add("ReduceMean", x, axes=[0]))]


@mixed
def a_mean_of_everything(net: Net):
    x = net.input(N, 4, 6)
    return [net.add("Div", x, net.add("ReduceMax", x))]


@mixed
def a_running_sum(net: Net):
    return [net.add("CumSum", net.input(N, 4, 6), net.constant(0, np.int64))]


@mixed
def samples_in_another_order(net: Net):
    return [net.add("Gather", net.input(N, 4, 6), net.ints(2, 1, 0), axis=0)]


@mixed
def samples_backwards(net: Net):
    return [net.add("Slice", net.input(N, 4, 6), net.ints(-1), net.ints(-9), net.ints(0), net.ints(-1))]


@mixed
def one_sample_of_all(net: Net):
    x = net.input(N, 4, 6)
    return [net.add("Add", x, net.add("Slice", x, net.ints(0), net.ints(1), net.ints(0)))]


@mixed
def more_samples(net: Net):
    x = net.input(N, 4, 6)
    return [net.add("Concat", x, x, axis=0)]


@mixed
def padded_samples(net: Net):
    return [net.add("Pad", net.input(N, 4, 6), net.ints(1, 0, 0, 0, 0, 0))]


@mixed
def repeated_samples(net: Net):
    return [net.add("Tile", net.input(N, 4, 6), net.ints(2, 1, 1))]


@mixed
def axes_that_change_places(net: Net):
    return [net.add("Transpose", net.input(N, N, 6), perm=[1, 0, 2])]


@mixed
def frames_as_channels(net: Net):
    return [net.add("Reshape", net.input(N, 4, 6), net.ints(1, 4 * N, 6))]


@mixed
def samples_in_the_inner_axis(net: Net):
    x = net.add("Transpose", net.input(N, 4, 6), perm=[1, 0, 2])
    return [net.add("Reshape", x, net.ints(N, 24))]


@mixed
def flattened(net: Net):
    return [net.add("Flatten", net.input(N, 4, 6), axis=0)]


@mixed
def a_bias_for_each_sample(net: Net):
    return [net.add("Add", net.input(N, 4, 6), net.drawn(N, 1, 1))]


@mixed
def a_product_with_matrices_for_each_sample(net: Net):
    return [net.add("MatMul", net.drawn(N, 5, 4), net.input(N, 4, 6))]


@mixed
def a_product_that_sums_over_the_samples(net: Net):
    x = net.add("Reshape", net.input(N, 4, 1), net.ints(N, 4))
    return [net.add("Gemm", x, net.drawn(N, 5), transA=1)]


@mixed
def a_mean_of_maps(net: Net):
    return [net.add("MeanVarianceNormalization", net.input(N, 4, 6, 5))]


@mixed
def places_in_all_maps(net: Net):
    y, places = net.add("MaxPool", net.input(N, 4, 6, 6), outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    return [y, places]


@mixed
def a_scale_for_each_sample(net: Net):
    scale, zero = net.constant(range(1, N + 1)), net.constant([0] * N, np.int8)
    return [
        net.add(
            "DequantizeLinear",
            net.add("QuantizeLinear", net.input(N, 4, 6), scale, zero, axis=0),
            scale,
            zero,
            axis=0,
        )
    ]


@mixed
def one_range_for_all_samples(net: Net):
    y, scale, zero = net.add("DynamicQuantizeLinear", net.input(N, 4, 6), outputs=3)
    return [net.add("DequantizeLinear", y, scale, zero)]


@mixed
def the_number_of_samples(net: Net):
    x = net.input(N, 4, 6)
    count = net.add("Cast", net.add("Size", x), to=TensorProto.FLOAT)
    return [net.add("Div", x, count)]


@mixed
def an_operator_of_another_domain(net: Net):
    return [net.add("Gelu", net.input(N, 4, 6, 5), domain="com.microsoft")]


@mixed
def a_body(net: Net):
    x = net.input(N, 4, 6)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"]
    one = helper.make_graph([helper.make_node("Relu", [x], ["a"])], "then", [], info[:1])
    two = helper.make_graph([helper.make_node("Neg", [x], ["b"])], "else", [], info[1:2])
    condition = net.add("Greater", net.add("ReduceSum", x, keepdims=0), net.constant(0.0))
    return [net.add("If", condition, then_branch=one, else_branch=two)]


@mixed
def random_numbers(net: Net):
    return [net.add("Add", net.input(N, 4, 6), net.add("RandomNormal", shape=[1, 4, 6]))]


@mixed
def a_constant_result(net: Net):
    x = net.input(N, 4, 6)
    return [net.add("Relu", x), net.add("Identity", net.drawn(N, 4))]


def model(name: str) -> onnx.ModelProto:
    """Return a model of `APART` or `MIXED`."""
    net = Net()
    return net.proto(*(APART | MIXED)[name](net))
