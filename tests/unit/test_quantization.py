"""Quantisation of float models, and the comparison of quantised models with their originals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization import (
    Normalisation,
    OnnxModel,
    Settings,
    for_inputs,
    keep_most_important,
    measure,
    prepared,
    quantize_model,
    worst_of,
)
from rkcosim.compiler.quantization.figures import Sums
from rkcosim.compiler.quantization.quantizer import with_activations
from rkcosim.compiler.quantization.ranges import BINS, least_error
from rkcosim.compiler.quantization.session import run_outputs
from rkcosim.examples.networks import make
from rkcosim.measure.models.accuracy_words import output_lines
from rkcosim.rknn_file.opening import open_model
from tests.system.qdq_models import Net

SHAPE = (1, 8, 6, 6)


def chain() -> Net:
    """Return two convolutions with a Relu between them; the names are conv0, relu1, conv2."""
    n = Net(SHAPE, seed=3)
    n.conv(n.add("Relu", n.conv("x", 8, 16, pads=[1] * 4)), 16, 8, 1)
    return n


def samples(count: int = 3) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(count)]


def arrays(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}


def quantised(
    net: Net, end: str, settings: Settings | None = None
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    proto = prepared(net.model(end).SerializeToString())
    return proto, onnx.load_model_from_string(quantize_model(proto, samples(), settings))


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_are_symmetric_activations_are_not(per_channel: bool) -> None:
    _, made = quantised(chain(), "conv2", Settings(per_channel=per_channel))
    known = arrays(made)
    makers = {name: node for node in made.graph.node for name in node.output}
    for node in made.graph.node:
        if node.op_type != "Conv":
            continue
        data, weights, bias = (makers[name] for name in node.input)
        assert known[weights.input[0]].dtype == np.int8
        assert not known[weights.input[2]].any()
        assert known[weights.input[1]].size == (len(known[weights.input[0]]) if per_channel else 1)
        assert known[data.input[2]].dtype == np.int8 and known[data.input[1]].size == 1
        assert known[bias.input[0]].dtype == np.int32
        unit = known[data.input[1]] * known[weights.input[1]]
        np.testing.assert_allclose(known[bias.input[1]], unit.reshape(known[bias.input[1]].shape), rtol=1e-6)
    zero_points = [known[n.input[2]] for n in made.graph.node if n.op_type == "QuantizeLinear"]
    assert any(point == -128 for point in zero_points), "the result of the Relu begins at 0"


def test_dead_channels_have_no_scale_of_one() -> None:
    net = chain()
    weights, bias = numpy_helper.to_array(net.tensors[0]).copy(), numpy_helper.to_array(net.tensors[1])
    weights[[2, 11]] = 0
    net.tensors[0] = numpy_helper.from_array(weights, net.tensors[0].name)
    proto, made = quantised(net, "conv2")
    known = arrays(made)
    scales = known["c0_scale"]
    live = np.delete(scales, [2, 11])
    assert live.max() < 0.5 and np.all(scales[[2, 11]] == live.max())
    real = known["c1_quantized"] * known["c1_quantized_scale"]
    np.testing.assert_allclose(real, bias, atol=known["c1_quantized_scale"].max())
    found = measure(proto, made, samples())
    assert found.layers[0].accumulated.sqnr is not None and found.layers[0].accumulated.sqnr > 30


def test_an_error_is_found_in_its_layer_alone() -> None:
    proto, made = quantised(chain(), "conv2")
    before = measure(proto, made, samples())
    for item in made.graph.initializer:
        if item.name == "c0_quantized":
            codes = numpy_helper.to_array(item).copy()
            codes[3] = np.roll(codes[3], 1)
            item.CopyFrom(numpy_helper.from_array(codes, item.name))
    after = measure(proto, made, samples())
    assert [layer.name for layer in after.layers] == ["conv0", "conv2"]
    assert after.worst(1)[0].name == "conv0"
    assert after.layers[0].alone.sqnr < before.layers[0].alone.sqnr - 10
    assert after.layers[1].alone == before.layers[1].alone, "it gets the float model's tensors"
    assert after.layers[1].accumulated.sqnr < before.layers[1].accumulated.sqnr - 3


def test_figures_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(1)
    a = [rng.normal(size=(3, 4)).astype(np.float32) for _ in range(2)]
    b = [(x + rng.normal(size=x.shape) * 0.1).astype(np.float32) for x in a]
    sums = Sums()
    for x, y in zip(a, b, strict=True):
        sums.add(x, y)
    found = sums.figures(0.05)
    x, y = (np.concatenate(parts).astype(np.float64).reshape(-1) for parts in (a, b))
    assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert found.sqnr == pytest.approx(20 * np.log10(np.linalg.norm(x) / np.linalg.norm(x - y)))
    assert found.worst == pytest.approx(np.abs(x - y).max())
    assert found.steps == pytest.approx(np.abs(x - y).max() / 0.05)
    zeros, same = Sums(), Sums()
    zeros.add(np.zeros(3), np.zeros(3))
    same.add(a[0], a[0])
    assert zeros.figures().cosine == 1.0 and zeros.figures().sqnr is None
    assert same.figures().sqnr is None and same.figures().worst == 0


def test_the_last_layer_alone_is_computed_from_the_floats() -> None:
    proto, made = quantised(chain(), "conv2")
    found = measure(proto, made, samples(1))
    known, sample = arrays(made), samples(1)[0]
    relu = run_outputs(prepared(chain().model("relu1").SerializeToString()), [sample])[0]["relu1"]
    coder = next(n for n in made.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "relu1")
    step, zero = known[coder.input[1]], int(known[coder.input[2]])
    x = (np.clip(np.rint(relu / step) + zero, -128, 127) - zero) * step
    weights = known["c2_quantized"] * known["c2_scale"].reshape(-1, 1, 1, 1)
    y = np.einsum("oi,bihw->bohw", weights[:, :, 0, 0], x)
    y += (known["c3_quantized"] * known["c3_quantized_scale"]).reshape(1, -1, 1, 1)
    last = next(
        n for n in made.graph.node if n.op_type == "QuantizeLinear" and n.input[0].startswith("conv2")
    )
    step, zero = known[last.input[1]], int(known[last.input[2]])
    y = (np.clip(np.rint(y / step) + zero, -128, 127) - zero) * step
    sums = Sums()
    sums.add(run_outputs(proto, [sample])[0]["conv2"], y)
    assert found.layers[1].alone.sqnr == pytest.approx(sums.figures().sqnr, abs=0.05)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_outliers_do_not_widen_the_range(method: str) -> None:
    proto = prepared(chain().model("conv2").SerializeToString())
    data = samples(16)
    data[0]["x"][0, 0, 0, 0] = 60.0
    steps = []
    for settings in (Settings(), Settings(method, percentile=99.0)):  # type: ignore[arg-type]
        steps.append(arrays(onnx.load_model_from_string(quantize_model(proto, data, settings)))["x_scale"])
    assert steps[1] < steps[0] / 3


def test_kept_layers_stay_in_floats_with_their_activation() -> None:
    proto, made = quantised(chain(), "conv2", Settings(keep=("conv0",)))
    assert with_activations(proto, ["conv0"]) == ["conv0", "relu1"]
    found = measure(proto, made, samples())
    assert found.kept == ["conv0"]
    assert [layer.name for layer in found.ranked()] == ["conv2", "relu1"]
    with pytest.raises(ModelError, match="'conv9'"):
        quantize_model(proto, samples(), Settings(keep=("conv9",)))


def test_normalisation_in_the_model() -> None:
    data = chain().model("conv2").SerializeToString()
    how = Normalisation(tuple(range(8)), (2.0,))
    pixels = np.random.default_rng(2).integers(0, 256, SHAPE).astype(np.float32)
    inside = run_outputs(prepared(data, [how]), [{"x": pixels}])[0]["conv2"]
    outside = run_outputs(prepared(data), [{"x": how.apply("x", pixels)}])[0]["conv2"]
    np.testing.assert_allclose(inside, outside, rtol=1e-4, atol=1e-3)
    with pytest.raises(ModelError, match="8 channels, but there are 3 means"):
        prepared(data, [Normalisation((1.0, 2.0, 3.0))])
    with pytest.raises(ModelError, match="standard deviation of 0"):
        Normalisation((0.0,), (0.0,))


def test_batch_normalisation_is_joined() -> None:
    net = Net(SHAPE)
    rng = np.random.default_rng(4)
    parameters = [net.constant(rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
    end = net.add("BatchNormalization", net.conv("x", 8, 4), *parameters)
    proto = prepared(net.model(end).SerializeToString())
    assert [node.op_type for node in proto.graph.node] == ["Conv"]


def test_refusals() -> None:
    proto, made = quantised(chain(), "conv2")
    with pytest.raises(ModelError, match="already quantised"):
        prepared(made.SerializeToString())
    with pytest.raises(ModelError, match="at least one calibration sample"):
        quantize_model(proto, [])
    with pytest.raises(ModelError, match="onnxruntime cannot quantise"):
        quantize_model(proto, [{"x": np.zeros((1, 3, 6, 6), np.float32)}])
    other = Net((1, 8, 6, 6))
    stranger = prepared(other.model(other.add("Sigmoid", "x")).SerializeToString())
    with pytest.raises(ModelError, match="no tensor of the quantised model"):
        measure(stranger, made, samples())
    made.graph.input[0].name = "y"
    with pytest.raises(ModelError, match="inputs x, the quantised one y"):
        measure(proto, made, samples())


@pytest.mark.parametrize(("kind", "end"), [(TensorProto.FLOAT, "x"), (TensorProto.INT32, "y")])
def test_a_model_without_floats_says_that_there_is_nothing_to_quantise(kind: int, end: str) -> None:
    """An output that is the input, and a sum of integers."""
    nodes = [] if end == "x" else [helper.make_node("Add", ["x", "x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, kind, SHAPE) for name in ("x", end)]
    graph = helper.make_graph(nodes, "plain", ends[:1], ends[1:])
    plain = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = [{"x": np.ones(SHAPE, helper.tensor_dtype_to_np_dtype(kind))}]
    made = quantize_model(prepared(plain.SerializeToString()), given)
    with pytest.raises(ModelError, match="nothing to quantise; build it without quantisation"):
        measure(plain, onnx.load_from_string(made), given)


def test_gains_are_those_of_quantising_again_without_the_layer() -> None:
    net = chain()
    proto, made = quantised(net, "conv2")
    found = measure(proto, made, samples(), gains=True)
    tried = [layer for layer in found.ranked() if layer.output is not None]
    assert {layer.name for layer in tried} == {"conv0", "conv2"}
    for layer in tried:
        again = quantize_model(proto, samples(), Settings(keep=(layer.name,)))
        kept = measure(proto, onnx.load_model_from_string(again), samples())
        assert layer.output.sqnr == pytest.approx(worst_of(kept.outputs).sqnr, abs=1e-6)
    assert [layer.output.sqnr for layer in tried] == sorted(
        (layer.output.sqnr for layer in tried), reverse=True
    )
    assert measure(proto, made, samples()).layers[0].output is None


def test_the_range_of_least_error_is_the_best_of_a_search() -> None:
    rng = np.random.default_rng(5)
    values = np.append(rng.laplace(scale=0.3, size=30_000), [30.0, -11.0])
    weights = np.append(np.full(30_000, 100), [1, 1])

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        codes = np.clip(np.rint((values - low) / step), 0, 255)
        return float(np.average((codes * step + low - values) ** 2, weights=weights))

    limit = float(np.abs(values).max())
    counts, _ = np.histogram(values, BINS, range=(-limit, limit), weights=weights)
    low, high = least_error(counts, limit, (values.min(), values.max()))
    grid = [
        error(values.min() * a, values.max() * b)
        for a in np.linspace(0.1, 1, 13)
        for b in np.linspace(0.1, 1, 13)
    ]
    assert error(low, high) < 0.5 * error(values.min(), values.max())
    assert error(low, high) < 1.02 * min(grid)
    assert least_error(counts, limit, (0.0, 5.0))[0] == 0.0


def test_the_smallest_squared_error_is_a_method() -> None:
    rng = np.random.default_rng(6)
    proto = prepared(chain().model("conv2").SerializeToString())
    data = [{"x": rng.laplace(scale=0.3, size=SHAPE).astype(np.float32)} for _ in range(300)]
    data[7]["x"][0, 0, 0, 0] = 20.0
    made = [
        arrays(onnx.load_model_from_string(quantize_model(proto, data, Settings(method))))["x_scale"]
        for method in ("minmax", "mse")
    ]
    assert made[1] < 0.9 * made[0]


def test_one_normalisation_concerns_the_inputs_with_its_channels() -> None:
    one = Normalisation((1.0, 2.0, 3.0), (4.0,))
    shapes = {"images": (1, 3, 8, 8), "texts": (1, 80, 512), "points": (1, 3)}
    assert for_inputs([one], shapes) == {"images": one, "points": one}
    assert for_inputs([], shapes) == {}
    with pytest.raises(ModelError, match=r"'texts' .* has 80 channels, but there are 3 means"):
        for_inputs([one], {"texts": (1, 80, 512)})
    with pytest.raises(ModelError, match="2 normalisations are given, the model has 3 inputs"):
        for_inputs([one, one], shapes)
    with pytest.raises(ModelError, match=r"'maps' .* has 4 channels"):
        for_inputs([one], {"maps": (1, 4, 8, 8), "images": (1, 3, 8, 8)})


def test_layers_are_chosen_one_after_the_other() -> None:
    proto, made = quantised(chain(), "conv2")
    found = measure(proto, made, samples(), gains=True)
    first = found.worst(1)[0].name
    assert keep_most_important(OnnxModel(proto), samples(), Settings(), 1) == (first,)
    assert set(keep_most_important(OnnxModel(proto), samples(), Settings(), 2, found)) == {"conv0", "conv2"}
    assert keep_most_important(OnnxModel(proto), samples(), Settings(keep=(first,)), 1)[0] == first
    assert keep_most_important(OnnxModel(proto), samples(), Settings(keep=("conv0",)), 0) == ("conv0",)


@pytest.mark.parametrize("op", ["Tanh", "HardSigmoid", "Elu", "Softplus"])
def test_functions_at_outputs_are_quantised_and_run_on_the_npu(op: str) -> None:
    n = chain()
    end = n.add(op, "conv2")
    middle = n.conv(end, 8, 4, 1)
    for result in (end, middle):
        proto, made = quantised(n, result)
        coded = {
            n.input[0].removesuffix("_QuantizeLinear_Input")
            for n in made.graph.node
            if n.op_type == "QuantizeLinear"
        }
        assert result in coded
        graph = compile_model(made.SerializeToString()).graph
        assert not [name for name, tensor in graph.tensors.items() if tensor.host]
        found = measure(proto, made, samples())
        assert found.outputs[result].sqnr > 25 and not found.float_outputs()


def test_an_output_that_is_not_quantised_is_named() -> None:
    n = chain()
    end = n.add("Sin", "conv2")
    proto, made = quantised(n, end)
    found = measure(proto, made, samples())
    assert f"output {end} is in floating point: Sin '{end}' is not quantised" in list(output_lines(found))


def test_nodes_without_a_name_can_be_kept() -> None:
    proto = chain().model("conv2")
    for node in proto.graph.node:
        node.name = ""
    made = prepared(proto.SerializeToString())
    assert [node.name for node in made.graph.node] == [node.output[0] for node in made.graph.node]
    kept = onnx.load_model_from_string(quantize_model(made, samples(), Settings(keep=("conv2",))))
    assert measure(made, kept, samples()).kept == ["conv2"]


def test_parts_of_a_replaced_operator_are_named_after_its_output() -> None:
    """onnxruntime replaces HardSwish by its definition, in which it names `_inlfunc_HardSwish_HS_X`."""
    n = chain()
    end = n.add("HardSwish", "conv2")
    proto, made = quantised(n, end)
    ready = prepared(proto.SerializeToString())
    names = {name for node in ready.graph.node for name in (node.name, *node.input, *node.output)}
    assert f"{end}@HS_X" in names and not [name for name in names if name.startswith("_inlfunc")]
    assert measure(ready, made, samples()).outputs[end].sqnr > 25


def test_a_normalisation_that_is_written_out_stays_in_floating_point():
    """Its factors have the name that onnxruntime would give to the scale of its result."""
    n = make.Network("norm", (1, 8, 16), 1)
    d = n.add("Sub", "image", n.add("ReduceMean", "image", axes=[-1], keepdims=1))
    v = n.add("ReduceMean", n.add("Mul", d, d), axes=[-1], keepdims=1)
    y = n.add("Div", d, n.add("Sqrt", n.add("Add", v, n.constant(1e-5))))
    y = n.add("Add", n.add("Mul", y, n.constant(np.full(16, 1.5))), n.constant(np.full(16, 0.5)))
    end = n.add("MatMul", y, n.constant(n.rng.normal(size=(16, 32))))
    proto = prepared(n.model(end).SerializeToString())
    given = [{"image": n.rng.normal(size=n.shape).astype(np.float32)} for _ in range(2)]
    made = quantize_model(proto, given)
    kinds = [node.op_type for node in onnx.load_model_from_string(made).graph.node]
    assert "LayerNormalization" in kinds and "ReduceMean" not in kinds
    right, found = (run_outputs(one, given) for one in (proto, onnx.load_model_from_string(made)))
    error = np.linalg.norm(found[0][end] - right[0][end]) / np.linalg.norm(right[0][end])
    assert error < 0.03 and open_model(made).plan.tasks
