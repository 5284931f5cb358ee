"""Float TFLite models quantised by the AI Edge Quantizer, and their comparison with the originals."""

from __future__ import annotations

import flatbuffers
import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_quantizer", reason="needs the extra quantizer")

from rkcosim.compiler import compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders.tflite_file import read_tflite
from rkcosim.compiler.loaders.tflite_program import schema
from rkcosim.compiler.quantization import FloatModel, Normalisation, Settings, open_float_model
from rkcosim.measure.models.accuracy import npu_figures
from tests.makers.tflite_models import Tf

RELU = 1


def network(form: str = "") -> bytes:
    t = Tf(seed=4, dtype="float32", form=form)
    x = t.input((1, 16, 12, 3))
    x = t.conv(x, 8, stride=2, FusedActivationFunction=RELU)
    y = t.depthwise(x, FusedActivationFunction=RELU)
    x = t.add("ADD", [x, y], t.items[x].shape)
    x = t.conv(x, 16, FusedActivationFunction=RELU)
    x = t.add("MEAN", [x, t.ints([1, 2])], (1, 16))
    x = t.dense(x, 10)
    return t.bytes(x)


def samples(model: FloatModel, count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    (item,) = model.inputs
    return [{item.name: rng.normal(size=item.shape).astype(np.float32)} for _ in range(count)]


def repacked(data: bytes, change: object) -> bytes:
    """Return a file after a change of its objects."""
    model = schema().ModelT.InitFromPackedBuf(data, 0)
    change(model)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize("form", ["", "float16", "sparse"])
def test_float_models_become_int8(form: str) -> None:
    model = open_float_model(network(form))
    assert model.inputs[0].shape == (1, 3, 16, 12), "the channels are in front"
    given = samples(model)
    made = model.quantize(given, Settings())
    file = read_tflite(made)
    assert {file.tensors[n].dtype for n in (*file.inputs, *file.outputs)} == {"int8"}
    for node in file.nodes:
        if node.op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            weights = file.tensors[node.inputs[1]]
            assert weights.dtype == "int8" and not weights.zero.any()
            assert weights.scale.size == (
                1 if node.op == "FULLY_CONNECTED" else weights.shape[weights.axis]
            ) or (weights.scale.size == weights.shape[0])
    found = model.measure(made, given)
    assert [layer.op for layer in found.layers] == [
        *("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "CONV_2D", "MEAN", "FULLY_CONNECTED")
    ]
    (output,) = found.outputs.values()
    assert found.runtime == "LiteRT"
    assert output.sqnr is not None and output.sqnr > 35 and not found.skipped and not found.kept
    assert [round(layer.alone.sqnr) for layer in found.layers if layer.alone.sqnr < 38] == []
    (npu,) = npu_figures(model, made, given).values()
    assert npu.sqnr is not None and npu.sqnr > 35
    graph = compile_model(made).graph
    assert not [name for name, tensor in graph.tensors.items() if tensor.host]


def test_kept_layers_stay_in_floats() -> None:
    model = open_float_model(network())
    given = samples(model)
    first = model.measure(model.quantize(given, Settings()), given).layers[0].name
    made = model.quantize(given, Settings(keep=(first,)))
    found = model.measure(made, given)
    assert found.kept == [first]
    with pytest.raises(ModelError, match="no operator has the result 'nothing'"):
        model.quantize(given, Settings(keep=("nothing",)))


def test_an_error_is_found_in_its_layer_alone() -> None:
    model = open_float_model(network())
    given = samples(model)
    made = model.quantize(given, Settings())
    before = model.measure(made, given)

    def change(root: object) -> None:
        graph = root.subgraphs[0]
        weights = graph.tensors[graph.operators[1].inputs[1]]
        buffer = root.buffers[weights.buffer]
        buffer.data = np.roll(np.asarray(buffer.data), 5)

    after = model.measure(repacked(made, change), given)
    assert after.layers[0].alone == before.layers[0].alone
    assert after.ranked()[0].op == "DEPTHWISE_CONV_2D"
    assert after.layers[1].alone.sqnr < before.layers[1].alone.sqnr - 10
    assert after.layers[2].alone == before.layers[2].alone, "it gets the float model's tensors"


def test_what_is_not_available_is_named() -> None:
    model = open_float_model(network())
    given = samples(model)
    with pytest.raises(ModelError, match="'entropy' is not available for TFLite models"):
        model.quantize(given, Settings("entropy"))
    with pytest.raises(ModelError, match="at least one calibration sample"):
        model.quantize([], Settings())
    with pytest.raises(ModelError, match="already quantised"):
        open_float_model(model.quantize(given, Settings()))
    with pytest.raises(ModelError, match="cannot normalise its inputs"):
        open_float_model(network(), [Normalisation((1.0,), (2.0,))])
    with pytest.raises(ModelError, match="named one by one"):
        model.between("a", "b")


def test_operator_codes_in_the_new_field_only() -> None:
    """The AI Edge Quantizer leaves the deprecated field at 0; LiteRT takes the larger of the two."""

    def change(root: object) -> None:
        for code in root.operatorCodes:
            code.deprecatedBuiltinCode = 0

    data = network()
    ops = [node.op for node in read_tflite(data).nodes]
    assert "ADD" in ops and [node.op for node in read_tflite(repacked(data, change)).nodes] == ops


def test_absent_options_are_zeros() -> None:
    """LiteRT's readers of options take zeros if an operator has none."""

    def change(root: object) -> None:
        for operator in root.subgraphs[0].operators:
            if type(operator.builtinOptions).__name__ == "AddOptionsT":
                operator.builtinOptions, operator.builtinOptionsType = None, 0

    nodes = read_tflite(repacked(network(), change)).nodes
    (add,) = (node for node in nodes if node.op == "ADD")
    assert add.options["FusedActivationFunction"] == 0
