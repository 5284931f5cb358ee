"""`rkcosim.load`: arrays in and out with the names, shapes and types of the file, and what its reports say.

The expected outputs are those of onnxruntime and LiteRT on the same file and arrays.
"""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.base import PACKAGE
from rkcosim.compiler import ModelError, compile_model
from rkcosim.compiler.host_runtimes import exact_options
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.measure.models.references import ReferenceProblem
from rkcosim.model import ClosedError, Outputs, SaveError
from rkcosim.rknn_file.writer import write_rknn
from tests.makers import batch_models, tflite_networks
from tests.programs import needs_program

DIGITS = PACKAGE / "examples" / "digits" / "digits_int8.onnx"


def _session(proto: onnx.ModelProto) -> Any:
    import onnxruntime

    options = exact_options(onnxruntime)  # sums of bytes do not saturate on processors without VNNI
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])


def _proto(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]
) -> onnx.ModelProto:
    initialisers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _two_in_two_out() -> onnx.ModelProto:
    """Two inputs of different shapes, and outputs of float, int64 and bool."""
    value = helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    return _proto(
        [
            helper.make_node("Conv", ["picture", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["c", "offset"], ["sum"], name="add"),
            helper.make_node("ArgMax", ["sum"], ["best"], name="argmax", axis=1, keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["positive"], name="greater"),
        ],
        [value("picture", TensorProto.FLOAT, [1, 3, 8, 6]), value("offset", TensorProto.FLOAT, [1, 4, 1, 1])],
        [
            value("sum", TensorProto.FLOAT, [1, 4, 8, 6]),
            value("best", TensorProto.INT64, [1, 8, 6]),
            value("positive", TensorProto.BOOL, [1, 4, 8, 6]),
        ],
        {"w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "zero": np.zeros(1, np.float32)},
    )


def _whole(shape: tuple[int, ...]) -> Any:
    """Numbers whose sums are exact in fp16, so that ties of ArgMax do not differ."""
    return np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)


def test_names_shapes_and_types_are_those_of_the_file():
    with rkcosim.load(_two_in_two_out(), engine="golden") as model:
        assert model.inputs.names == ("picture", "offset")
        assert [(t.name, t.shape, str(t.dtype)) for t in model.outputs] == [
            ("sum", (1, 4, 8, 6), "float32"),
            ("best", (1, 8, 6), "int64"),
            ("positive", (1, 4, 8, 6), "bool"),
        ]
        assert model.inputs["offset"].shape == (1, 4, 1, 1)
        with pytest.raises(KeyError, match="the names are picture, offset"):
            model.inputs["image"]


def test_a_run_gives_the_arrays_of_onnxruntime():
    proto = _two_in_two_out()
    feed = {"picture": _whole((1, 3, 8, 6)), "offset": _whole((1, 4, 1, 1))}
    theirs = _session(proto).run(None, feed)
    with rkcosim.load(proto, engine="golden") as model:
        for found in (
            model.run(feed["picture"], feed["offset"]),
            model.run(feed["picture"], offset=feed["offset"]),
            model.run(feed),
            model.run([feed["picture"], feed["offset"]]),
            model.run(feed["picture"].tolist(), feed["offset"][0]),
            model(**feed),
        ):
            assert isinstance(found, Outputs) and found.names == ("sum", "best", "positive")
            for name, ours, right in zip(found.names, found, theirs, strict=True):
                assert (ours.dtype, ours.shape) == (right.dtype, right.shape), name
            np.testing.assert_allclose(found["sum"], theirs[0], atol=0.02)
        assert found.asdict().keys() == {"sum", "best", "positive"}
        assert len(repr(found)) < 120
        with pytest.raises(KeyError, match="the names are sum, best, positive"):
            found["worst"]
    # Where sums are far apart, what follows them is equal.
    clear = np.abs(theirs[0]) > 0.1
    assert np.array_equal(found["positive"][clear], theirs[2][clear])


@pytest.mark.parametrize(
    ("arrays", "named", "text", "tensor"),
    [
        ((), {}, "no array is given for inputs 'picture', 'offset'; the model has 2 inputs", "picture"),
        ((np.zeros((1, 3, 8, 6)),), {}, "no array is given for input 'offset'", "offset"),
        (
            (np.zeros((1, 3, 8, 6)),),
            {"picture": 0},
            "input 'picture' is given by position and by name",
            "picture",
        ),
        ((1, 2, 3), {}, "3 arrays given, but the model has 2 inputs: picture, offset", None),
        (({"image": 0},), {}, "no input 'image'; its inputs are picture, offset", "image"),
        (
            (np.zeros((1, 8, 6, 3)), 0),
            {},
            r"\(1, 8, 6, 3\), .* needs \(1, 3, 8, 6\): its channels must be",
            "picture",
        ),
        ((np.zeros((8, 6, 3)), 0), {}, r"its channels must be the second dimension \(NCHW\)", "picture"),
        ((np.zeros((2, 3, 8, 6)), 0), {}, "run its samples one by one", "picture"),
        (([[1, 2], [3]], 0), {}, "input 'picture' is no array of numbers", "picture"),
        ((np.full((1, 3, 8, 6), "x"), 0), {}, "elements of type <U1, not numbers", "picture"),
    ],
)
def test_a_wrong_input_is_named(arrays: Any, named: Any, text: str, tensor: str | None):
    with rkcosim.load(_two_in_two_out(), engine="golden") as model:
        with pytest.raises(rkcosim.ModelError, match=text) as found:
            model.run(*arrays, **named)
        assert found.value.tensor == tensor
        assert isinstance(found.value, rkcosim.Error)


def test_what_runs_where_and_why_is_known_without_a_run():
    model = rkcosim.load(_two_in_two_out(), engine="golden")
    layers = model.layers
    assert {layer.target for layer in layers} == {"npu", "host"}
    assert all(bool(layer.reason) == (layer.target == "host") for layer in layers)
    assert layers[0].cycles is None and layers[0].macs == 4 * 3 * 9 * 8 * 6
    assert layers[layers.names()[0]] is layers[0]
    with pytest.raises(KeyError, match="no row 'missing'"):
        layers["missing"]
    assert 0 < model.mac_share <= 1
    assert "why on the host" in repr(layers) and "<table>" in layers._repr_html_()
    assert model._device.engine is None  # nothing was opened


def test_a_profile_of_the_golden_model_has_no_cycles():
    model = rkcosim.load(DIGITS, engine="golden")
    found = model.profile()
    assert found.cycles is None and found.milliseconds() is None and found.board_milliseconds() is None
    assert "the engine golden does not count them" in repr(found)
    assert found.macs == sum(layer.macs for layer in model.layers)
    assert len(found.tasks) == 0 and "roofline" not in found._repr_html_()


@needs_program("g++")
def test_reports_are_short_texts_tables_frames_and_files(tmp_path: Path):
    model = rkcosim.load(DIGITS)
    found = model.profile()
    assert found.cycles == sum(found.run.inference_cycles) and len(repr(found)) < 120
    assert sum(task.cycles for task in found.tasks) < found.cycles
    assert found.layers["dw1"].bound == "array"
    frame = found.to_pandas(everything=True)
    assert list(frame["name"]) == model.layers.names() and frame["cycles"].sum() < found.cycles
    assert found.to_arrow().num_rows == len(found.layers)
    assert 'alt="roofline"' in found._repr_html_() and found.roofline().startswith("<")
    axes = found.plot()
    assert len(axes.patches) == len(found.layers) and axes.get_xlabel() == "cycles"
    for ending in ("html", "json", "csv"):
        found.save(tmp_path / f"report.{ending}")
    assert json.loads((tmp_path / "report.json").read_text())["cycles"] == found.cycles
    assert (tmp_path / "report.csv").read_text().count("\n") == len(found.layers) + 1
    assert "</html>" in (tmp_path / "report.html").read_text()
    with pytest.raises(SaveError, match=r"a report is written as \.html, \.json, \.csv, not as '\.txt'"):
        found.save(tmp_path / "report.txt")
    assert not (tmp_path / "report.txt").exists()


def test_a_check_says_how_much_of_the_model_it_is_about():
    found = rkcosim.load(DIGITS, engine="golden").check()
    assert found and found.match is True and found.first_difference is None
    assert found.mac_share == 1 and found.element_share < 1
    assert "MATCH" in repr(found) and "100.00% of the MACs" in str(found)


def test_a_model_of_which_nothing_ran_is_no_match():
    value = helper.make_tensor_value_info
    proto = _proto(
        [helper.make_node("NonZero", ["x"], ["y"], name="places")],
        [value("x", TensorProto.FLOAT, [4])],
        [value("y", TensorProto.INT64, [1, None])],
        {},
    )
    found = rkcosim.load(proto, engine="golden").check(np.array([0, 1, 0, 2], np.float32))
    assert found.match is None and not found
    assert repr(found) == "small: nothing ran on the NPU, so nothing was compared"
    assert str(found).splitlines()[1] == "on the NPU: nothing"


def test_a_planted_difference_is_a_mismatch(monkeypatch: pytest.MonkeyPatch):
    model = rkcosim.load(DIGITS, engine="golden")
    run = model._run

    def spoil(loaded: Any, values: Any) -> Any:
        report = run(loaded, values)
        loaded.memory("probabilities" if "probabilities" in loaded.model.plan.places else next(
            name for name, place in loaded.model.plan.places.items() if place.size > 64
        ))[:64] ^= 1  # fmt: skip
        return report

    monkeypatch.setattr(model, "_run", spoil)
    found = model.check()
    assert found.match is False and not found and "MISMATCH" in repr(found)
    assert found.first_difference


def test_compare_and_estimate_and_stream():
    model = rkcosim.load(DIGITS, engine="golden")
    x = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    found = model.compare(x, reference="onnxruntime")
    assert found and found.match and found.worst < 0.01 and len(found.table) == 11
    with pytest.raises(rkcosim.Error, match="litert does not read this format"):
        model.compare(x, reference="litert")
    guess = model.estimate()
    assert guess.cycles > 10_000 and guess.board_milliseconds > guess.milliseconds
    slow = model.estimate(dram="400MT/s")
    assert slow.cycles > guess.cycles and model.estimate(clock=500).milliseconds > guess.milliseconds
    streams = model.stream(x)
    assert len(streams) == 1 and streams[0].kick.tasks == 10


def test_a_model_of_bytes_a_protocol_buffer_and_a_file_is_the_same(tmp_path: Path):
    data = DIGITS.read_bytes()
    forms = (DIGITS, str(DIGITS), data, onnx.load_from_string(data))
    models = [rkcosim.load(form, engine="golden") for form in forms]
    x = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    first = models[0](x)
    assert all(np.array_equal(model(x), first) for model in models[1:])
    assert all(model.compare(x) for model in models[2:])
    models[0].save(tmp_path / "digits.rkc")
    again = rkcosim.load(tmp_path / "digits.rkc", engine="golden")
    assert np.array_equal(again(x), first)
    models[2].save(tmp_path / "same.onnx")
    assert (tmp_path / "same.onnx").read_bytes() == data


def test_half_precision_and_single_numbers_keep_their_types():
    value = helper.make_tensor_value_info
    proto = _proto(
        [helper.make_node("Mul", ["x", "two"], ["y"], name="double")],
        [value("x", TensorProto.FLOAT16, [1, 4, 2, 2])],
        [value("y", TensorProto.FLOAT16, [1, 4, 2, 2])],
        {"two": np.array(2, np.float16)},
    )
    x = np.arange(16).reshape(1, 4, 2, 2).astype(np.float16)
    with rkcosim.load(proto, engine="golden") as model:
        y = model(x)
        assert y.dtype == np.float16 and np.array_equal(y, _session(proto).run(None, {"x": x})[0])
        assert np.array_equal(model(x.astype(np.uint8)), y)


def test_open_dimensions_are_given_by_name():
    value = helper.make_tensor_value_info
    proto = _proto(
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        [value("x", TensorProto.FLOAT, ["batch", 4, "h", "w"])],
        [value("y", TensorProto.FLOAT, ["batch", 4, "h", "w"])],
        {},
    )
    x = np.random.default_rng(0).normal(size=(1, 4, 5, 3)).astype(np.float16).astype(np.float32)
    with rkcosim.load(proto, engine="golden", shapes={"x": (1, 4, 5, 3)}) as model:
        assert np.array_equal(model(x), np.maximum(x, 0))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": "qemu"}, "engine must be one of verilator, .*, golden, or an open engine, not 'qemu'"),
        ({"cores": 4}, "cores must be 1, 2 or 3, not 4"),
        ({"plan": "vendor"}, "plan must be 'ours' or 'rknn'"),
        ({"floats": "fp32"}, "floats must be 'fp16', 'host' or 'refuse'"),
        ({"dram": {"bandwidth": 1}}, "dram: .*bandwidth"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        rkcosim.load(DIGITS, **options)


def test_a_wrong_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        rkcosim.load(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("hello\n")
    with pytest.raises(rkcosim.Error, match=r"text\.onnx"):
        rkcosim.load(tmp_path / "text.onnx")


def test_models_share_an_open_engine_and_close_their_own():
    x = np.zeros((1, 1, 16, 16), np.float32)
    with rkcosim.open_engine("golden") as engine:
        one, two = (rkcosim.load(DIGITS, engine=engine) for _ in range(2))
        assert np.array_equal(one(x), two(x)) and one.engine is two.engine is engine
        one.close()
        two(x)
        engine.read32(0, 0)  # still open
    with rkcosim.load(DIGITS, engine="golden") as model:
        own = model.engine
    with pytest.raises(ClosedError, match=r"digits_int8\.onnx: the model has been closed"):
        model(x)
    model.close()
    assert own is not None


def test_an_unused_model_closes_its_engine():
    closed = []
    model = rkcosim.load(DIGITS, engine="golden")
    engine = model.engine
    close = engine.close
    engine.close = lambda: (closed.append(True), close())  # type: ignore[method-assign]
    del model
    gc.collect()
    assert closed == [True]


def test_threads_wait_for_each_other():
    model = rkcosim.load(DIGITS, engine="golden")
    inputs = [np.random.default_rng(n).random((1, 1, 16, 16), np.float32) for n in range(4)]
    wanted = [model(x) for x in inputs]
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: model(inputs[n])})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[n], wanted[n]) for n in range(4))


def test_a_quantised_model_knows_how_far_it_is_from_its_original():
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    proto = _proto(
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"], name="relu"),
            helper.make_node("Conv", ["b", "w2"], ["y"], name="second"),
        ],
        [value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [value("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        {
            "w1": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
            "w2": rng.normal(size=(4, 8, 1, 1)).astype(np.float32),
        },
    )
    samples = rng.normal(size=(4, 1, 3, 8, 8)).astype(np.float32)
    model = rkcosim.load(proto, engine="golden")
    forms = (samples, list(samples), [{"x": one} for one in samples], {"x": samples}, samples[:, 0])
    made = [model.quantize(form) for form in forms]
    assert len({one.to_bytes() for one in made}) == 1
    first = made[0]
    assert first.accuracy is not None and model.accuracy is None
    assert first.accuracy.outputs["y"].cosine > 0.99 and first.accuracy.worst(1)
    assert "against the float model" in str(first.accuracy)
    theirs = _session(onnx.load_from_string(first.to_bytes())).run(None, {"x": samples[0]})[0]
    assert np.abs(first(samples[0]) - theirs).max() <= 2 * first._model().outputs[0].scale
    kept = model.quantize(samples, keep=["second"])
    assert kept.accuracy is not None and kept.accuracy.outputs["y"].sqnr > first.accuracy.outputs["y"].sqnr
    with pytest.raises(rkcosim.ModelError, match="at least one sample"):
        model.quantize([])
    assert rkcosim.load(proto, engine="golden", calibration=samples).accuracy is not None


def test_a_waveform_of_a_layer(tmp_path: Path):
    with pytest.raises(ValueError, match="engine golden"):
        rkcosim.load(DIGITS, engine="golden").trace(None, tmp_path / "x.vcd")
    assert not (tmp_path / "x.vcd").exists()


def test_text_tables_need_no_terminal():
    text = io.StringIO()
    print(rkcosim.load(DIGITS, engine="golden"), file=text)
    assert "input image: float32[1, 1, 16, 16]" in text.getvalue()


@pytest.mark.parametrize("name", ["keywords", "resnet8", "mobilenet_uint8"])
def test_a_tflite_model_has_its_own_layout_and_codes(name: str):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")
    data = getattr(tflite_networks, name)()
    reference = interpreter.OpResolverType.BUILTIN_REF
    theirs = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=reference)
    theirs.allocate_tensors()
    model = rkcosim.load(data, engine="golden")
    pairs = ((theirs.get_input_details(), model.inputs), (theirs.get_output_details(), model.outputs))
    for details, tensors in pairs:
        for detail, tensor in zip(details, tensors, strict=True):
            assert (tuple(detail["shape"]), detail["dtype"]) == (tensor.shape, tensor.dtype)
            assert detail["quantization"] == (pytest.approx(tensor.scale), tensor.zero_point)
    (tensor,), limits = model.inputs, np.iinfo(model.inputs[0].dtype)
    codes = np.random.default_rng(0).integers(limits.min, limits.max + 1, tensor.shape).astype(tensor.dtype)
    theirs.set_tensor(theirs.get_input_details()[0]["index"], codes)
    theirs.invoke()
    right = theirs.get_tensor(theirs.get_output_details()[0]["index"])
    found = model(codes)
    assert found.dtype == right.dtype and np.abs(found.astype(int) - right.astype(int)).max() <= 1
    assert np.array_equal(model(tensor.to_real(codes)), found)  # floats are real numbers
    assert np.array_equal(tensor.to_codes(tensor.to_real(codes)), codes)
    assert model.compare(codes, reference="litert")


@pytest.mark.parametrize("name", ["convolutions", "heads_of_an_attention"])
def test_a_model_of_batches_takes_all_samples(name: str):
    proto = batch_models.model(name)
    feed = batch_models.drawn(proto)
    theirs = _session(proto).run(None, feed)
    with rkcosim.load(proto, engine="golden") as model:
        found = model.run(feed)
        assert model.check(feed)
    for ours, right in zip(found, theirs, strict=True):
        assert ours.shape == right.shape and ours.dtype == right.dtype
        np.testing.assert_allclose(ours, right, atol=0.02 * np.abs(right).max())


def test_a_vendor_file_takes_what_programs_give():
    """Pixels with the channels last: the file has mean and std."""
    before = Preprocessing(mean=(10.0,), std=(50.0,))
    compiled = compile_model(DIGITS.read_bytes(), reuse=False)
    file = write_rknn(compiled, [before])
    pixels = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 1)).astype(np.uint8)
    with rkcosim.load(file, engine="golden") as model, rkcosim.load(DIGITS, engine="golden") as network:
        (tensor,) = model.inputs
        assert (tensor.shape, tensor.dtype) == ((1, 16, 16, 1), np.dtype(np.uint8))
        numbers = ((pixels.astype(np.float32) - 10) / 50).transpose(0, 3, 1, 2)
        assert np.array_equal(model(pixels), network(numbers))
        assert np.array_equal(model(pixels[0].astype(np.float32)), network(numbers))
        assert model.outputs[0].dtype == np.float32


_value = helper.make_tensor_value_info


def _conv(name: str = "x", channels: int = 4, seed: int = 0) -> onnx.ModelProto:
    """A convolution of float32 (1, 3, 8, 8), whose input has the name."""
    weights = np.random.default_rng(seed).normal(size=(channels, 3, 3, 3)).astype(np.float32)
    return _proto(
        [helper.make_node("Conv", [name, "w"], ["y"], name="conv")],
        [_value(name, TensorProto.FLOAT, [1, 3, 8, 8])],
        [_value("y", TensorProto.FLOAT, [1, channels, 6, 6])],
        {"w": weights},
    )


def _onnxruntime(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(found) for found in session.run(None, feed)]


IMAGE = np.random.default_rng(5).normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMax", "Size"])
def test_an_output_without_dimensions_has_none(kind: str):
    options = {} if kind == "Size" else {"keepdims": 0}
    dtype = TensorProto.INT64 if kind == "Size" else TensorProto.FLOAT
    proto = _proto(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node(kind, ["c"], ["y"], name="all", **options),
        ],
        [_value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [_value("y", dtype, [])],
        {"w": np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32)},
    )
    wanted = _onnxruntime(proto, {"x": IMAGE})[0]
    with rkcosim.load(proto, engine="golden") as model:
        found = model(IMAGE)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype) == ((), wanted.dtype)
    assert np.allclose(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["self", "arrays", "named", "class", "x:0", "<b>", "a b"])
def test_an_input_of_any_name_is_given_by_name(name: str):
    proto = _conv(name)
    with rkcosim.load(proto, engine="golden") as model:
        found = model(**{name: IMAGE})
        assert np.array_equal(found, model({name: IMAGE}))
        assert name in model.inputs
        assert "z" not in model.inputs
        assert "conv" in model.layers
        assert model.inputs[0] in model.inputs
        outputs = model.run(IMAGE)
        assert "y" in outputs
        assert "z" not in outputs
    assert np.allclose(found, _onnxruntime(proto, {name: IMAGE})[0], rtol=1e-2, atol=1e-2)


def test_two_models_of_one_engine_take_turns():
    protos = [_conv(channels=4, seed=1), _conv(channels=16, seed=2)]
    with rkcosim.open_engine("golden") as engine:
        models = [rkcosim.load(proto, engine=engine) for proto in protos]
        found: list[tuple[int, np.ndarray]] = []
        threads = [
            threading.Thread(target=lambda n=n: [found.append((n, models[n](IMAGE))) for _ in range(4)])
            for n in (0, 1, 0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    wanted = [_onnxruntime(proto, {"x": IMAGE})[0] for proto in protos]
    assert len(found) == 16
    for number, y in found:
        assert np.allclose(y, wanted[number], rtol=1e-2, atol=1e-2)


def test_a_model_shares_the_engine_that_another_model_opened():
    protos = [_conv(channels=4, seed=1), _conv(channels=16, seed=2)]
    with rkcosim.load(protos[0], engine="golden") as first:
        before = first(IMAGE)
        second = rkcosim.load(protos[1], engine=first.engine)
        wanted = _onnxruntime(protos[1], {"x": IMAGE})[0]
        assert np.allclose(second(IMAGE), wanted, rtol=1e-2, atol=1e-2)
        assert np.array_equal(first(IMAGE), before)
    with pytest.raises(ClosedError, match="its engine has been closed"):
        second(IMAGE)


def test_an_engine_that_models_shared_is_freed():
    engine = rkcosim.open_engine("golden")
    with rkcosim.load(_conv(), engine=engine) as model:
        model(IMAGE)
    engine.close()
    kept = weakref.ref(engine)
    del engine, model
    gc.collect()
    assert kept() is None


def test_a_model_is_not_copied():
    with rkcosim.load(_conv(), engine="golden") as model:
        for work in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor pickled, because it has an engine"):
                work(model)
        report = pickle.loads(pickle.dumps(model.profile(IMAGE)))
        assert np.array_equal(report.outputs["y"], model(IMAGE))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": 3}, "engine must be one of .*, or an open engine, not 3"),
        ({"cores": True}, "cores must be 1, 2 or 3, not True"),
        ({"cores": 1.0}, "cores must be 1, 2 or 3, not 1.0"),
        ({"dram": 5}, "dram must be a speed .*, not 5"),
        ({"fallback": "no"}, "fallback must be True or False, not 'no'"),
        ({"exact": "no"}, "exact must be True or False, not 'no'"),
        ({"outputs": "y"}, r"outputs must be a sequence of names, not the text 'y': give \['y'\]"),
        ({"outputs": [1]}, r"outputs must be names, not \[1\]"),
        ({"shapes": [1, 3, 8, 8]}, "shapes must be a mapping"),
    ],
)
def test_an_option_of_another_kind_is_named(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        rkcosim.load(_conv(), **{"engine": "golden", **options})


@pytest.mark.parametrize("wrong", [None, 5, [], onnx.GraphProto()])
def test_what_is_no_model_is_named(wrong: Any):
    with pytest.raises(ValueError, match=f"model must be a path, .* not {type(wrong).__name__}"):
        rkcosim.load(wrong)


def test_the_name_of_a_model_is_said_once():
    with pytest.raises(ModelError, match=r"^model: not an ONNX model"):
        rkcosim.load(b"abc")


def test_wrong_arguments_of_reports_are_named():
    model = rkcosim.load(_conv(), engine="golden")
    samples = np.stack([IMAGE, IMAGE])
    wrong: list[tuple[Any, str]] = [
        (lambda: model.estimate(cores=0), "cores must be 1, 2 or 3, not 0"),
        (lambda: model.estimate(plan="x"), "plan must be 'ours' or 'rknn', not 'x'"),
        (lambda: model.estimate(clock="x"), "the clock must be 10 to 5000 MHz, not 'x'"),
        (lambda: model.profile(IMAGE).milliseconds(0), "the clock must be 10 to 5000 MHz, not 0"),
        (lambda: model.profile(IMAGE).board_milliseconds(-5), "the clock must be 10 to 5000 MHz, not -5"),
        (lambda: model.compare(IMAGE, IMAGE), "takes the inputs once and the name of one runtime"),
        (lambda: model.compare("onnxruntime", "litert"), "takes the inputs once and the name of one runtime"),
        (lambda: model.compare("torch", IMAGE), "the runtime must be one of .*, not 'torch'"),
        (lambda: model.quantize(samples, method="x"), "method must be one of .*, not 'x'"),
        (lambda: model.quantize(samples, mixed=-1), "mixed must be a number of layers, not -1"),
        (lambda: model.quantize(samples, percentile=float("nan")), "percentile must be 0 to 100, not nan"),
        (lambda: model.quantize(samples, keep="conv"), "keep must be a sequence of names"),
        (lambda: model.quantize(samples * np.nan), "input 'x' has numbers that are not finite"),
        (lambda: model.quantize(None), "samples are arrays or a path, not NoneType"),
        (lambda: model({"x": IMAGE}, x=IMAGE), "input 'x' is given in the mapping and by name"),
        (lambda: model(np.ma.masked_less(IMAGE, 0)), "input 'x' has masked elements"),
    ]
    for call, text in wrong:
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ReferenceProblem, match=r"^[^/]*: litert does not read this format"):
        model.compare("litert", IMAGE)


@pytest.mark.parametrize("name", ["golden", pytest.param("fast", marks=pytest.mark.heavy)])
def test_an_interrupted_run_leaves_the_engine_usable(name: str, monkeypatch: pytest.MonkeyPatch):
    proto = _conv()
    with rkcosim.load(proto, engine=name) as model:
        engine = model.engine
        wait = engine.run_until_irq
        seen: list[int] = []

        def interrupted(core_mask: int, max_cycles: int) -> int:
            seen.append(core_mask)
            if len(seen) == 1:
                raise KeyboardInterrupt
            return wait(core_mask, max_cycles)

        monkeypatch.setattr(engine, "run_until_irq", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(IMAGE)
        found = model(IMAGE)
        assert len(seen) > 1
    assert np.allclose(found, _onnxruntime(proto, {"x": IMAGE})[0], rtol=1e-2, atol=1e-2)
