"""Advice for int8 models: each advice, followed, improves the outputs as onnxruntime computes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

import rkcosim
from rkcosim.base import PACKAGE
from rkcosim.cli.main import app
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import exact_options
from rkcosim.compiler.quantization import (
    Cost,
    OnnxModel,
    Settings,
    advise,
    divided,
    open_float_model,
    prepared,
    quantize_model,
    select_ranges,
    selection,
)
from rkcosim.compiler.quantization.cuts import before_concat
from rkcosim.compiler.quantization.quantizer import activation_scales
from rkcosim.compiler.quantization.scores import Score, standard_errors
from rkcosim.compiler.quantization.sharing import shared_tensors
from rkcosim.compiler.quantization.trials import Trial
from tests.makers.archives import arrays_of
from tests.makers.tflite_models import Tf
from tests.system.qdq_models import Net
from tests.unit.test_accuracy_codes import boxes_and_scores, samples

LEARNT, FRESH = samples(6), samples(5, seed=2)


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def whole(path: Path, given: Sequence[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """Return the output of each sample in onnxruntime; boxes and scores of a cut model are joined."""
    session = onnxruntime.InferenceSession(path.read_bytes(), exact_options(onnxruntime))
    parts = [session.run(None, sample) for sample in given]
    return [np.concatenate(several, axis=1).reshape(1, 14, 256) for several in parts]


def error(right: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """Return the mean over samples and channels of the norm of the error over the norm of the channel."""
    norm = np.linalg.norm
    each = [norm(b - a, axis=2) / norm(a, axis=2) for a, b in zip(right, found, strict=True)]
    return float(np.minimum(each, 1).mean())


def test_each_advice_that_is_followed_improves_the_outputs(tmp_path: Path):
    model, made, document = tmp_path / "box.onnx", tmp_path / "int8.onnx", tmp_path / "q.json"
    model.write_bytes(boxes_and_scores().SerializeToString())
    for name, several in (("learnt", LEARNT), ("fresh", FRESH)):
        np.savez(tmp_path / f"{name}.npz", x=np.stack([one["x"] for one in several]))
    data = ("--data", tmp_path / "learnt.npz")
    asked = ("--advice", "--held-out", tmp_path / "fresh.npz", "--json", document)
    code, text = invoke("quantize", model, "-o", made, *data, *asked, "--html", tmp_path / "q.html")
    assert code == 0, text
    advice = json.loads(document.read_text())["advice"]
    right = whole(model, FRESH)
    before = error(right, whole(made, FRESH))
    assert advice["before"]["error"] == pytest.approx(before, rel=1e-4) and before > 0.7
    advised = [trial for trial in advice["trials"] if trial["advised"]]
    assert {tuple(trial["options"]) for trial in advised} >= {
        ("--outputs", "boxes,score"),
        ("--keep", "cat", "--keep", "flat"),
    }
    for trial in advised:
        code, followed = invoke("quantize", model, "-o", made, *data, *trial["options"])
        assert code == 0, followed
        after = error(right, whole(made, FRESH))
        assert after == pytest.approx(trial["error"], rel=1e-4) and after < 0.98 * before
        assert (
            f"{100 * after:.2f} %" in text
            and trial["text"].replace("'", "&#39;") in (tmp_path / "q.html").read_text()
        )
    assert error(right, whole(made, FRESH)) < 0.03
    for trial in advice["trials"]:
        assert trial["advised"] or trial["error"] > 0.9 * before, "what is not advised gains nothing"


def test_advice_in_python_and_for_given_models(tmp_path: Path):
    model = rkcosim.load(boxes_and_scores(), engine="golden")
    with pytest.raises(ValueError, match="held_out has no effect without advice"):
        model.quantize(LEARNT, held_out=FRESH)
    made = model.quantize(LEARNT)
    assert made.accuracy is not None and not made.accuracy.advice and "--advice" not in str(made.accuracy)
    report = made.measure_accuracy(model, [*LEARNT, *FRESH], advice=True)
    assert report.advice[0].options == ["--outputs", "boxes,score"]
    assert "cut the model before the Concat 'cat'" in str(report)
    assert report.found.advice is not None and report.found.advice.before.text == "the given model"
    other = onnx.load_model_from_string(model.quantize(LEARNT, keep=["cls"]).to_bytes())
    next(node for node in other.graph.node if node.name == "cls").name = "named by another program"
    report = rkcosim.load(other, engine="golden").measure_accuracy(model, [*LEARNT, *FRESH], advice=True)
    assert report.found.kept == ["named by another program"] and report.advice


def test_no_advice_within_the_noise():
    rng = np.random.default_rng(1)
    right = [{"y": rng.normal(size=(1, 4, 8, 8))} for _ in range(6)]

    def noisy(size: float, seed: int) -> Score:
        other = np.random.default_rng(seed)
        return Score(right, [{"y": one["y"] + size * other.normal(size=(1, 4, 8, 8))} for one in right])

    trial = Trial("", [], 0.0, None)
    start = noisy(0.1, 2)
    pairs = [(noisy(0.1, 10 + seed), noisy(0.1, 200 + seed)) for seed in range(100)]
    assert sum(one.against(other, trial).advised for one, other in pairs) <= 3, "one of a hundred is expected"
    better = noisy(0.05, 3).against(start, trial)
    assert better.advised and better.error == pytest.approx(0.05, rel=0.1) and 0 < better.noise < 0.005
    assert not noisy(0.2, 3).against(start, trial).advised


@pytest.mark.parametrize("samples_, quantile", [(4, 4.541), (6, 3.365), (11, 2.764), (101, 2.364)])
def test_the_limit_is_the_quantile_of_student(samples_: int, quantile: float):
    """Tables of Student's t at 99 %, one-sided."""
    assert standard_errors(samples_) == pytest.approx(quantile, rel=0.08)


def test_small_channels_are_not_bought_with_the_whole():
    """A change that makes small channels better by a factor of ten, but the whole tensor worse by 12 dB."""
    right = [
        {"y": np.stack([np.full((1, 16), 1000.0), *[np.full((1, 16), 0.1)] * 9], axis=1)} for _ in range(4)
    ]
    errors = [np.array([1.0, *[0.1] * 9]), np.array([4.0, *[0.01] * 9])]
    start, changed = (
        Score(right, [{"y": one["y"] + apart.reshape(1, 10, 1)} for one in right]) for apart in errors
    )
    found = changed.against(start, Trial("", [], 0.0, None))
    assert found.error < 0.2 * start.error and found.sqnr < start.sqnr - 10 and not found.advised


def test_scales_of_channels_and_layers_are_advised():
    n = Net((1, 8, 6, 6), seed=3)
    y = n.conv(n.add("Relu", n.conv("x", 8, 16, pads=[1] * 4)), 16, 8, 1)
    model = OnnxModel(prepared(n.model(y).SerializeToString()))
    rng = np.random.default_rng(5)
    given = [{"x": rng.normal(size=(1, 8, 6, 6)).astype(np.float32)} for _ in range(12)]
    found = advise(model, *divided(given), Settings(per_channel=False))
    assert ["--per-channel"] in [trial.options for trial in found.advised]
    assert ["--keep", "conv0", "--keep", y] in [trial.options for trial in found.advised] or [
        *("--keep", y),
        *("--keep", "conv0"),
    ] in [trial.options for trial in found.advised]
    assert found.calibrated == found.measured == 6 and not found.failed
    assert [trial.error for trial in found.trials] == sorted(trial.error for trial in found.trials)


def test_changes_that_gain_beside_each_other_are_made_together():
    model = OnnxModel(prepared(boxes_and_scores().SerializeToString()))
    found = advise(model, LEARNT, FRESH, Settings("percentile", 80.0))
    assert found.together is not None and found.advised[0] is found.together
    assert found.together.options == ["--outputs", "boxes,score", "--method", "minmax"]
    assert found.together.error < 0.1 * found.trials[0].error


def test_inputs_of_a_concat_share_the_range_of_the_result():
    n = Net((1, 8, 6, 6), seed=3)
    wide, narrow = n.conv("x", 8, 4, 1), n.add("MaxPool", n.conv("x", 8, 4, 1), kernel_shape=[1, 1])
    end = n.add("Concat", wide, narrow, axis=1)
    proto = prepared(n.model(end).SerializeToString())
    concat = next(node.name for node in proto.graph.node if node.op_type == "Concat")
    rng = np.random.default_rng(5)
    given = [{"x": rng.normal(size=(1, 8, 6, 6)).astype(np.float32)} for _ in range(8)]
    own, shared = (
        activation_scales(quantize_model(proto, given, Settings(share=share))) for share in ((), (concat,))
    )
    names = shared_tensors(proto, concat)
    assert names == [wide, proto.graph.node[1].output[0], end], "the pool has the scale of its input"
    assert len({float(own[name][0]) for name in names}) == 2
    assert {tuple(map(float, shared[name])) for name in names} == {tuple(map(float, own[end]))}
    with pytest.raises(ModelError, match="no Concat of the model is named 'nothing'"):
        quantize_model(proto, given, Settings(share=("nothing",)))
    found = advise(OnnxModel(proto), *divided(given), Settings(), cost=lambda data: Cost(len(data), 0))
    assert ["--share", concat] in [trial.options for trial in found.trials]
    assert all(trial.cost and trial.cost.cycles > 0 for trial in (found.before, *found.trials))


def test_advice_for_tflite_models():
    pytest.importorskip("ai_edge_quantizer", reason="needs the extra quantizer")
    t = Tf(seed=4, dtype="float32")
    x = t.conv(t.input((1, 8, 8, 3)), 8)
    model = open_float_model(t.bytes(t.conv(x, 4)))
    rng = np.random.default_rng(1)
    given = [{model.inputs[0].name: rng.random((1, 3, 8, 8), np.float32)} for _ in range(8)]
    found = advise(model, *divided(given), Settings())
    assert {trial.options[0] for trial in found.trials} == {"--keep"} and found.advised
    assert all(trial.error < found.before.error for trial in found.advised)


def test_cuts_are_only_where_values_are_moved():
    proto = prepared(boxes_and_scores().SerializeToString())
    assert before_concat(proto, "cat") == ["boxes", "score"]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("logit", 1, [1, 10, 16, 16]))
    assert before_concat(proto, "cat") == ["logit", "boxes", "score"], "other outputs stay"
    proto.graph.node.append(onnx.helper.make_node("Relu", ["cat"], ["z"], name="after"))
    assert before_concat(proto, "cat") == []


def test_too_few_samples_are_refused():
    model = OnnxModel(prepared(boxes_and_scores().SerializeToString()))
    with pytest.raises(ModelError, match="at least 8 samples, half of them to measure on, not 7"):
        divided(samples(7))
    with pytest.raises(ModelError, match="at least 4 samples to measure on, not 2"):
        advise(model, LEARNT, FRESH[:2], Settings())


def test_ranges_are_chosen_by_what_onnxruntime_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The digits: percentile is better on other digits, too, as onnxruntime computes them."""
    archive = arrays_of(PACKAGE / "examples" / "digits" / "held_back.npz")
    digits = archive["images"].reshape(-1, 1, 1, 16, 16).astype(np.float32) * archive["scale"]
    given = [{"image": one} for one in digits[:164]]
    path = PACKAGE / "examples" / "digits" / "digits_float.onnx"
    model = OnnxModel(prepared(path.read_bytes()))
    monkeypatch.setattr(selection, "METHODS", (("minmax", 99.99), ("percentile", 99.99)))
    found = select_ranges(model, given[:64], Settings())
    assert found.settings.method == "percentile"
    assert [trial.text for trial in found.trials if trial.advised] == ["percentile of 99.99 %"]
    right = np.concatenate([one["probabilities"] for one in model.run(given[64:])])
    errors = {}
    for method in ("minmax", "percentile"):
        made = model.quantize(given[:64], Settings(method, found.settings.percentile))
        session = onnxruntime.InferenceSession(made, exact_options(onnxruntime))
        ours = np.concatenate([session.run(None, one)[0] for one in given[64:]])
        errors[method] = np.linalg.norm(ours - right)
    assert errors["percentile"] < errors["minmax"]

    np.save(tmp_path / "x.npy", digits[:8])
    words = ("quantize", path, "--data", tmp_path / "x.npy", "-o", tmp_path / "q.onnx")
    code, text = invoke(*words, "--method", "auto", "--json", tmp_path / "q.json")
    document = json.loads((tmp_path / "q.json").read_text())
    assert code == 0 and f"ranges by {document['methods_tried'][0]['text']}; errors" in text, text
    chosen = Settings(document["method"], document["percentile"])
    assert (tmp_path / "q.onnx").read_bytes() == model.quantize(given[:8], chosen)
    code, text = invoke(*words, "--method", "auto", "--limit", 7)
    assert code == 2 and "needs at least 8 samples" in text


def test_methods_that_fail_are_left_out():
    """onnxruntime makes no histogram of values that are nearly 0."""
    n = Net((1, 4, 6, 6), seed=3)
    proto = n.model(n.add("Relu", n.conv("x", 4, 4, 1)))
    model = OnnxModel(prepared(proto.SerializeToString()))
    tiny = np.linspace(1e-44, 3e-44, 4 * 6 * 6, dtype=np.float32).reshape(1, 4, 6, 6)
    given = [{"x": tiny} for _ in range(8)]
    with pytest.raises(ModelError, match="onnxruntime cannot quantise"):
        model.quantize(given, Settings("percentile"))
    found = select_ranges(model, given, Settings())
    assert found.settings.method == "minmax" and len(found.trials) == 1


def test_a_bad_method_is_warned_of(tmp_path: Path):
    """Ranges by entropy lose most of a network without outliers."""
    n = Net((1, 4, 24, 24), seed=3)
    y = n.conv("x", 4, 4, 1)
    rng = np.random.default_rng(2)
    given = rng.normal(size=(2, 1, 4, 24, 24)).astype(np.float32)
    model = rkcosim.load(n.model(y), engine="golden")
    made = model.quantize(given, method="entropy")
    (remark,) = made.accuracy.found.remarks
    assert remark.startswith("warning: ranges by entropy leave an error of ") and remark in str(made.accuracy)
    assert not model.quantize(given).accuracy.found.remarks
    with pytest.raises(ValueError, match="method must be one of minmax, percentile, entropy, mse, auto"):
        model.quantize(given, method="kl")
