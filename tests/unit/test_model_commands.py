"""The object of a model does what commands do, by the same functions: the same documents, files and pages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import rkcosim
from rkcosim.cli.main import app
from tests.makers.archives import arrays_of

DIGITS = rkcosim.example("digits/digits_int8.onnx")
FLOATS = rkcosim.example("digits/digits_float.onnx")


def command(*words: object) -> None:
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output


def digits(count: int) -> np.ndarray:
    held_back = arrays_of(rkcosim.example("digits/held_back.npz"))
    return (held_back["images"][:count] * held_back["scale"]).astype(np.float32)[:, None, None]


@pytest.mark.parametrize("what_if", [False, True])
def test_an_estimate_is_the_document_of_the_command(what_if: bool, tmp_path: Path):
    file = tmp_path / "estimate.json"
    more = ["--what-if"] if what_if else []
    command("estimate", DIGITS, "--clock", 600, "--cores", 3, "--ddr", "3200MT/s", "--json", file, *more)
    written = json.loads(file.read_text())
    model = rkcosim.load(DIGITS)
    found = model.estimate(clock=600.0, cores=3, dram="3200MT/s", what_if=what_if)
    ours = json.loads(json.dumps(found.as_json()))
    assert ours.pop("plans").keys() == {"ours"} and written["plans"].keys() == {"ours", "rknn"}
    assert ours == {name: value for name, value in written.items() if name in ours}
    assert written.keys() - ours.keys() == {"plans", "rkcosim_version"}
    assert (len(found.variants) > 5) == what_if
    with pytest.raises(ValueError, match="what-if varies the plan of this compiler"):
        model.estimate(plan="rknn", what_if=True)


def test_a_quantised_model_and_its_page_are_those_of_the_command(tmp_path: Path):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("jinja2", reason="needs the extra report")
    samples = digits(4)
    np.savez(tmp_path / "samples.npz", image=samples.reshape(4, 1, 16, 16))
    made, page = tmp_path / "digits_float_int8.onnx", tmp_path / "accuracy.html"
    command(
        *("quantize", FLOATS, "--data", tmp_path / "samples.npz", "-o", made, "--mixed", 1),
        *("--below", 0.99, "--html", page, "--json", tmp_path / "accuracy.json"),
    )
    small = rkcosim.load(FLOATS).quantize(samples, mixed=1, below=0.99)
    assert small.to_bytes() == made.read_bytes() and small.accuracy is not None
    small.accuracy.save(tmp_path / "ours.html")
    assert (tmp_path / "ours.html").read_text() == page.read_text()
    document = json.loads((tmp_path / "accuracy.json").read_text())
    assert small.accuracy.as_json()["layers"] == document["layers"] and document["floats"]


def test_below_keeps_layers_in_floating_point():
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    model = rkcosim.load(FLOATS)
    every = model.quantize(digits(4), below=1.0)
    none = model.quantize(digits(4), below=0.0)
    assert every.accuracy is not None and none.accuracy is not None
    assert len(every.accuracy.table) < len(none.accuracy.table)


def test_a_model_is_saved_in_the_container_of_the_command(tmp_path: Path):
    command("compile", DIGITS, "-o", tmp_path / "command.rknn")
    model = rkcosim.load(DIGITS, engine="golden")
    model.save(tmp_path / "ours.RKNN")
    assert (tmp_path / "ours.RKNN").read_bytes() == (tmp_path / "command.rknn").read_bytes()
    again = rkcosim.load(tmp_path / "ours.RKNN", engine="golden")
    again.save(tmp_path / "again.rknn")
    assert (tmp_path / "again.rknn").read_bytes() == (tmp_path / "command.rknn").read_bytes()
    assert again.check(digits(1)[0].reshape(again.inputs[0].shape))
