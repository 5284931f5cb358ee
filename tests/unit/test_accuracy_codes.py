"""Codes in use of quantised tensors, and the error of each channel, against onnxruntime's own results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler.host_runtimes import exact_options
from rkcosim.compiler.quantization import OnnxModel, Settings, open_float_model, prepared
from rkcosim.compiler.quantization.channels import CodeSums, channel_axis, lost, sentence
from rkcosim.compiler.quantization.figures import Sums, channel_squares, relative_error
from rkcosim.measure.models.accuracy_words import code_rows, layer_line, output_lines
from tests.makers.tflite_models import Tf

SHAPE = (1, 3, 32, 32)


def boxes_and_scores() -> onnx.ModelProto:
    """Return a detector whose boxes in pixels and scores of 0 to 1 share the tensor of a Concat."""
    rng = np.random.default_rng(7)
    constants = {
        "k": rng.normal(size=(16, 3, 3, 3)) / 5,
        "kb": rng.normal(size=(4, 16, 1, 1)) / 4,
        "ks": rng.normal(size=(10, 16, 1, 1)),
        "bs": np.full(10, -2.0),
        "size": np.float32(640),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k"], ["f"], name="stem", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["f"], ["r"]),
        node("Conv", ["r", "kb"], ["box0"], name="box"),
        node("Sigmoid", ["box0"], ["box1"], name="squash"),
        node("Mul", ["box1", "size"], ["boxes"], name="pixels"),
        node("Conv", ["r", "ks", "bs"], ["logit"], name="cls"),
        node("Sigmoid", ["logit"], ["score"], name="prob"),
        node("Concat", ["boxes", "score"], ["cat"], name="cat", axis=1),
        node("Reshape", ["cat", "rs"], ["output0"], name="flat"),
    ]
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), name) for name, v in constants.items()]
    graph = helper.make_graph(
        nodes,
        "boxes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 14, 256])],
        [*tensors, numpy_helper.from_array(np.array([1, 14, 256]), "rs")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(count: int, seed: int = 1) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.random(SHAPE, np.float32)} for _ in range(count)]


def outputs(model: bytes, given: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Return the outputs of all samples in onnxruntime, of shape (samples, 14, 256)."""
    session = onnxruntime.InferenceSession(model, exact_options(onnxruntime))
    return np.concatenate([session.run(None, sample)[0] for sample in given])


@pytest.fixture(scope="module")
def detector() -> tuple[OnnxModel, bytes]:
    model = OnnxModel(prepared(boxes_and_scores().SerializeToString()))
    return model, model.quantize(samples(6), Settings())


def test_codes_in_use_and_errors_of_channels_are_those_of_onnxruntime(detector: tuple[OnnxModel, bytes]):
    model, made = detector
    given = samples(4, seed=2)
    found = model.measure(made, given)
    right, ours = outputs(model.file(), given), outputs(made, given)
    (layer,) = [layer for layer in found.layers if layer.tensor == "output0"]
    codes = layer.codes
    assert codes is not None
    assert codes.used == [len(np.unique(ours[:, channel])) for channel in range(14)]
    assert codes.lost == list(range(4, 14)), "ten channels of scores"
    np.testing.assert_allclose(codes.lows, right.min(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_allclose(codes.highs, right.max(axis=(0, 2)), rtol=1e-5)
    assert codes.step == pytest.approx(np.diff(np.unique(ours)).min(), rel=1e-4)
    norm = np.linalg.norm
    errors = [norm(ours[:, c] - right[:, c]) / norm(right[:, c]) for c in range(14)]
    assert found.outputs["output0"].channels == pytest.approx(np.minimum(errors, 1).mean(), rel=1e-5)
    assert found.outputs["output0"].cosine > 0.9999, "the whole tensor does not show it"
    assert found.outputs["output0"].channels > 0.7


def test_a_finding_names_channels_range_step_and_inputs(detector: tuple[OnnxModel, bytes]):
    model, made = detector
    given = samples(4, seed=2)
    found = model.measure(made, given)
    right = outputs(model.file(), given)
    scores, boxes = right[:, 4:], right[:, :4]
    at_output, at_concat = found.findings()
    assert at_output.startswith("10 of 14 channels of 'output0' use fewer than 4 of 256 codes: range ")
    assert f"range {scores.min():.3g}..{scores.max():.3g} against a step of " in at_output
    assert f"inputs of Concat 'cat': boxes {boxes.min():.3g}..{boxes.max():.3g} (" in at_concat
    assert f"score {scores.min():.3g}..{scores.max():.3g} (1 codes)" in at_concat
    assert found.as_json()["findings"] == [at_output, at_concat]
    assert [line for line in output_lines(found) if line.startswith("warning: ")] == [
        f"warning: {words}" for words in (at_output, at_concat)
    ]
    assert {row.name for row in code_rows(found)[:2]} == {"cat", "output0"}


def test_only_measured_gains_are_proposed(detector: tuple[OnnxModel, bytes]):
    model, made = detector
    given = samples(4, seed=2)
    assert "was not measured" in layer_line(model.measure(made, given))
    found = model.measure(made, given, gains=True)
    line = layer_line(found)
    named = [layer for layer in found.layers if f"{layer.name} " in line.partition(": ")[2]]
    assert named and all(
        layer.output.sqnr > found.outputs["output0"].sqnr + 0.05 for layer in named if layer.output
    )
    assert all(model.quantize(given, Settings(keep=(layer.name,))) for layer in named), "names of nodes"


def test_concats_of_tflite_models_are_divided():
    pytest.importorskip("ai_edge_quantizer", reason="needs the extra quantizer")
    t = Tf(seed=4, dtype="float32")
    x = t.input((1, 8, 8, 3))
    large, small = t.conv(x, 8), t.conv(x, 4)
    for item in t.items[large - 2 : large]:  # weights and bias
        item.data = item.data * np.float32(1000)
    model = open_float_model(t.bytes(t.add("CONCATENATION", [large, small], (1, 8, 8, 12), Axis=3)))
    rng = np.random.default_rng(1)
    given = [{model.inputs[0].name: rng.random((1, 3, 8, 8), np.float32)} for _ in range(4)]
    found = model.measure(model.quantize(given, Settings()), given)
    (words,) = [words for words in found.findings() if "CONCATENATION" in words]
    assert words.startswith("4 of 12 channels of ") and "(1 codes)" in words


@pytest.mark.parametrize(
    "shape, last, axis",
    [
        ((1, 14, 8, 8), False, 1),
        ((1, 8, 8, 14), True, 3),
        ((1, 14, 256), False, 1),
        ((1, 8400, 85), False, 2),
        ((1, 1000), False, None),
        ((5,), False, None),
        ((1, 1, 8, 8), False, None),
    ],
)
def test_the_axis_of_channels(shape: tuple[int, ...], last: bool, axis: int | None):
    assert channel_axis(shape, last) == axis


def test_few_values_that_are_apart_are_not_lost():
    assert lost(1.0, 1, 0.01) and lost(1.0, 2, 2.0) and not lost(1.0, 2, 0.01) and not lost(1.0, 4, 0.3)


def test_channels_of_samples_with_other_shapes_are_counted_as_one():
    counts, sums = CodeSums(1.0, 0), Sums()
    for channels in (2, 3):
        values = np.arange(channels * 6, dtype=np.float32).reshape(1, channels, 2, 3)
        counts.add(values, values, {})
        sums.add(values, values + 0.5)
    codes = counts.codes()
    assert codes is not None and codes.used == [18] and codes.highs == [17.0]
    assert sums.figures().channels is None


def test_channels_of_zeros_have_no_relative_error():
    right = np.array([[[3.0, 4.0], [0.0, 0.0]]])
    squares = channel_squares(right, right + np.array([[[0.5, 0.0], [1.0, 1.0]]]))
    assert relative_error(squares) == pytest.approx(0.1)
    assert relative_error(np.zeros((2, 3))) == 0.0


def test_small_probabilities_of_a_softmax_are_no_finding():
    counts = CodeSums(1 / 256, -128)
    values = np.array([[[[0.999, 0.998], [0.001, 0.0011]]]]).reshape(1, 2, 1, 2)
    counts.add(values, np.rint(values * 256) / 256, {})
    codes = counts.codes()
    assert codes is not None and len(codes.lost) == 2
    assert sentence("p", "Softmax", "softmax", codes) is None
    assert sentence("p", "Conv", "conv", codes) is not None
