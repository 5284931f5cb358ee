"""Changes that make a network faster: what each does to the results, judged by onnxruntime, and its time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from click.testing import CliRunner  # noqa: E402

from rkcosim.cli.main import app  # noqa: E402
from rkcosim.compiler.quantization.session import run_outputs  # noqa: E402
from rkcosim.examples.networks import keypoints, make  # noqa: E402
from rkcosim.measure.advice import (  # noqa: E402
    activations,
    channels,
    hosts,
    inputs,
    kernels,
    orders,
    outputs,
    processes,
)
from rkcosim.measure.advice import advise as module  # noqa: E402
from rkcosim.measure.advice.advise import AdviceError, advise, readable  # noqa: E402
from rkcosim.measure.advice.change import Change, NotApplicable, Subject  # noqa: E402
from rkcosim.measure.advice.net import Net  # noqa: E402
from rkcosim.measure.advice.timing import Timed  # noqa: E402

DIGITS = Path(__file__).resolve().parents[2] / "examples/digits/digits_int8.onnx"
ENGINE = "verilator"


def network() -> make.Network:
    return make.Network("small", (1, 3, 16, 16), 5)


def file_of(n: make.Network, ends: str | list[str], int8: bool = False) -> bytes:
    model = n.model(ends)
    if int8:
        return readable(make.quantise(model, [n.rng.normal(size=n.shape).astype(np.float32)]))
    return readable(model.SerializeToString())


def given(data: bytes) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes = {item.name: Net(data).shape(item.name) for item in onnx.load_from_string(data).graph.input}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def results(data: bytes, sample: Mapping[str, Any]) -> dict[str, Any]:
    return run_outputs(onnx.load_from_string(data), [sample])[0]


def named(changes: Sequence[Change], name: str) -> Change:
    return {change.name: change for change in changes}[name]


def ops(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(data).graph.node]


def joined() -> tuple[make.Network, str]:
    n = network()
    parts = [n.conv("image", 3, 16), n.conv("image", 3, 16, 1)]
    return n, n.conv(n.add("LeakyRelu", n.add("Concat", *parts, axis=1)), 32, 8)


def pooled() -> tuple[make.Network, str]:
    n = network()
    sizes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return n, n.conv(n.add("MaxPool", n.add("Sigmoid", n.conv("image", 3, 16)), **sizes), 16, 8)


def resized() -> tuple[make.Network, str]:
    n = network()
    return n, n.conv(n.relu(n.conv(n.twice(n.conv("image", 3, 16)), 16, 8, 1)), 8, 8)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("made", [joined, pooled, resized])
def test_a_change_of_order_has_the_same_results(made: Any, int8: bool) -> None:
    n, end = made()
    data = file_of(n, end, int8)
    (change,) = orders.candidates(Net(data), {})
    assert change.meaning == "same"
    changed = change.apply(Subject(data)).model
    sample = given(data)
    right, found = results(data, sample)[end], results(changed, sample)[end]
    error = np.square(found - right).sum() / np.square(right).sum()
    assert found.shape == right.shape and error < (1e-3 if int8 else 1e-11)  # bytes: roundings differ
    real = [kind for kind in ops(data) if "quantize" not in kind.lower() and "Quantize" not in kind]
    after = [kind for kind in ops(changed) if "Quantize" not in kind]
    assert after != real


def test_a_strided_convolution_in_place_of_a_pool() -> None:
    n, end = network(), ""
    sizes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    end = n.conv(n.add("MaxPool", n.relu(n.conv("image", 3, 16)), **sizes), 16, 8)
    data = file_of(n, end)
    changed = named(list(kernels.candidates(Net(data), {})), "stride:conv0").apply(Subject(data)).model
    assert "MaxPool" not in ops(changed)
    assert results(changed, given(data))[end].shape == (1, 8, 8, 8)


def test_a_cropped_kernel_keeps_its_centre() -> None:
    n = network()
    end = n.conv("image", 3, 8, 5)
    data = file_of(n, end)
    changed = named(list(kernels.candidates(Net(data), {})), "kernel-5-to-3").apply(Subject(data)).model
    weights = np.array(Net(data).array("constant0"))
    weights[:, :, [0, 4]] = weights[:, :, :, [0, 4]] = 0
    proto = onnx.load_from_string(data)
    for item in proto.graph.initializer:
        if item.name == "constant0":
            item.CopyFrom(onnx.numpy_helper.from_array(weights, item.name))
    sample = given(data)
    right = results(proto.SerializeToString(), sample)[end]
    assert np.allclose(results(changed, sample)[end], right, atol=1e-5)


@pytest.mark.parametrize("int8", [False, True])
def test_fewer_channels_pass_through_sums_and_depthwise_layers(int8: bool) -> None:
    n = network()
    x = n.relu(n.conv("image", 3, 40))
    y = n.add("Add", x, n.conv(n.relu(n.conv(x, 40, 40, 3, groups=40)), 40, 40, 1))
    end = n.conv(y, 40, 8)
    data = file_of(n, end, int8)
    change = next(channels.candidates(Net(data), {}))
    changed = change.apply(Subject(data)).model
    assert change.text.startswith("32 channels instead of 40")
    sizes = {Net(changed).shape(node.output[0])[1] for node in Net(changed).nodes("Conv")}
    assert sizes == {32, 8} and results(changed, given(data))[end].shape == (1, 8, 16, 16)
    with pytest.raises(NotApplicable):
        change.apply(Subject(changed))


def test_activations_are_replaced_one_by_one_and_together() -> None:
    n = network()
    x = n.silu(n.conv("image", 3, 8))
    end = n.conv(n.add("PRelu", n.silu(n.conv(x, 8, 8)), n.constant(np.full((8, 1, 1), 0.1))), 8, 8)
    data = file_of(n, end)
    found = list(activations.candidates(Net(data), {}))
    assert ops(named(found, "silu-to-relu").apply(Subject(data)).model).count("Relu") == 2
    one = named(found, "silu-to-relu:mul2").apply(Subject(data)).model
    assert ops(one).count("Relu") == 1 == ops(one).count("Sigmoid")
    both = named(found, "prelu-to-leakyrelu").apply(Subject(one)).model
    assert "LeakyRelu" in ops(both)
    with pytest.raises(NotApplicable):
        named(found, "silu-to-relu:mul2").apply(Subject(one))


def test_the_program_does_what_is_cut_off() -> None:
    n = network()
    x = n.conv("image", 3, 8)
    first, second = n.add("Sigmoid", n.conv(x, 8, 4)), n.add("Transpose", n.conv(x, 8, 4), perm=[0, 2, 3, 1])
    data = file_of(n, [first, second])
    changed = named(list(outputs.candidates(Net(data), {})), "outputs").apply(Subject(data)).model
    sample = given(data)
    right, found = list(results(data, sample).values()), list(results(changed, sample).values())
    assert "Sigmoid" not in ops(changed) and "Transpose" not in ops(changed)
    assert np.allclose(1 / (1 + np.exp(-found[0])), right[0], atol=1e-5)
    assert np.array_equal(found[1].transpose(0, 2, 3, 1), right[1])


def test_an_input_in_the_layout_of_the_npu() -> None:
    n = make.Network("last", (1, 16, 16, 3), 5)
    end = n.conv(n.add("Transpose", "image", perm=[0, 3, 1, 2]), 3, 8)
    data = file_of(n, end)
    change = named(list(inputs.candidates(Net(data), {})), "layout:image")
    changed, sample = change.apply(Subject(data)).model, given(data)
    first = {"image": sample["image"].transpose(0, 3, 1, 2)}
    assert np.allclose(results(changed, first)[end], results(data, sample)[end], atol=1e-5)
    assert "Transpose" not in ops(changed)


def test_a_smaller_input_makes_smaller_maps() -> None:
    n = make.Network("large", (1, 3, 128, 128), 5)
    end = n.conv("image", 3, 8, 3, 2)
    data = file_of(n, end)
    found = list(inputs.candidates(Net(data), {}))
    smaller = named(found, "input-64x64").apply(Subject(data))
    assert Net(smaller.model).shape(end) == (1, 8, 32, 32) and smaller.runs == 1
    halves = named(found, "halves").apply(Subject(data))
    assert Net(halves.model).shape(end) == (1, 8, 32, 64) and halves.runs == 2


def test_operators_of_the_host_get_a_form_of_the_npu() -> None:
    n = network()
    scales = n.constant([1.0, 1.0, 1.7, 1.7])
    end = n.conv(n.add("Resize", n.conv("image", 3, 8), "", scales, mode="cubic"), 8, 8)
    data = file_of(n, end)
    hosted = {"resize3": "mode cubic"}
    (name,) = [node.name for node in Net(data).nodes("Resize")]
    found = list(hosts.candidates(Net(data), {name: hosted["resize3"]}))
    assert {change.name.split(":")[0] for change in found} == {"linear", "nearest"}
    changed = named(found, f"nearest:{name}").apply(Subject(data)).model
    assert results(changed, given(data))[end].shape == results(data, given(data))[end].shape
    assert not list(hosts.candidates(Net(data), {}))


def test_every_change_of_the_example_makes_a_network() -> None:
    n, ends = keypoints.keypoints()
    data = file_of(n, ends)
    net, tried = Net(data), 0
    for kind in (activations, orders, channels, kernels, outputs, inputs):
        for change in kind.candidates(net, {}):
            changed = change.apply(Subject(data)).model
            assert results(changed, given(changed)), change.name
            tried += 1
    assert tried == 14


def advice_of(times: Mapping[frozenset[str], float], monkeypatch: pytest.MonkeyPatch, **how: Any) -> Any:
    """Return advice about made-up changes, whose times are given by the names of all that were made."""

    def change(name: str, meaning: Any, group: str) -> Change:
        def apply(subject: Subject) -> Subject:
            return Subject(subject.model + name.encode())

        return Change("orders", name, name, meaning, apply, group=group)

    def time(subject: Subject, *_: Any, **__: Any) -> Timed:
        names = frozenset(subject.model.decode())
        return Timed(round(1e6 * times[names]), 1, times[names], {}, {}, {}, "made up")

    made = [change("a", "same", ""), change("b", "retraining", "g"), change("c", "same", "g")]
    made.append(change("d", "program", ""))
    monkeypatch.setattr(module, "timed", time)
    monkeypatch.setattr(processes, "timed", time)
    monkeypatch.setattr(module, "_changes", lambda *_: iter(made))
    return advise(b"", "made up", **how)


TIMES = {"": 10.0, "a": 8.0, "b": 7.0, "c": 9.0, "d": 11.0, "ab": 6.0, "ac": 7.5}


def test_changes_are_ranked_and_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {frozenset(names): time for names, time in TIMES.items()}
    found = advice_of(times, monkeypatch)
    assert [one.name for one in found.advised] == ["b", "a", "c"]
    assert [one.name for one in found.not_faster] == ["d"] and not found.untried
    assert found.advised[0].saved == 3_000_000
    # Those that change nothing together, then all; b and c exclude each other.
    assert [one.names for one in found.combined] == [["a", "c"], ["b", "a"]]
    assert [one.meaning for one in found.combined] == ["same", "retraining"]
    weaker = advice_of(times, monkeypatch, meaning="program")
    assert [one.name for one in weaker.advised] == ["a", "c"]
    taken = advice_of(times, monkeypatch, take=["c", "a"]).taken
    assert taken.time.milliseconds == 7.5 and taken.meaning == "same"
    with pytest.raises(AdviceError, match="this network has no change 'e'"):
        advice_of(times, monkeypatch, take=["e"])
    late = advice_of(times, monkeypatch, seconds=0.0)
    assert not late.advised and len(late.untried) == 4 and "--seconds" in late.untried[0].why


def test_a_combination_that_takes_longer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {frozenset(names): time for names, time in TIMES.items()} | {frozenset("ab"): 7.5}
    assert [one.names for one in advice_of(times, monkeypatch).combined][-1] == ["b"]


def test_advice_promises_what_a_run_takes(tmp_path: Path) -> None:
    file, made = tmp_path / "advice.json", tmp_path / "faster.onnx"
    words = ["advise", str(DIGITS), "--engine", ENGINE, "--only", "outputs", "--json", str(file)]
    done = CliRunner().invoke(app, [*words, "-o", str(made), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    (row,) = (found := json.loads(file.read_text()))["advice"]
    assert found["before"]["cycles"] == 14977 and found["before"]["host_operators"] == 1
    assert row["host_operators"] == 0 and "0 operators on the host instead of 1" in done.output
    run = tmp_path / "run.json"
    assert CliRunner().invoke(app, ["run", str(made), "--json", str(run)]).exit_code == 0
    assert json.loads(run.read_text())["cycles"] == row["cycles"]
    assert "outputs" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "there are no changes of the kind 'nothing'"),
        (["--take", "output"], "this network has no change 'output'; it has outputs"),
        (["--engine", "golden"], "golden"),
    ],
)
def test_what_cannot_be_asked_for_is_said(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["advise", str(DIGITS), "--engine", ENGINE, *words])
    assert done.exit_code == 2 and said in " ".join(done.output.split())


@pytest.mark.heavy
def test_processes_find_the_same() -> None:
    data = DIGITS.read_bytes()
    found = [
        advise(data, "digits", only=["outputs", "what-if"], engine=ENGINE, workers=workers).as_json()
        for workers in (1, 2)
    ]
    assert found[0] == found[1] and found[0]["board"]
