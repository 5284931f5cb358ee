"""`rkcosim quantize` and `rkcosim accuracy`: int8 models from float ones, their reports, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from PIL import Image

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.cli.main import app
from tests.system.qdq_models import Net


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a small classifier of RGB pictures in floating point."""
    n = Net((1, 3, 16, 12), seed=2)
    x = n.add("Relu", n.conv("x", 3, 16, pads=[1] * 4))
    x = n.add("Relu", n.conv(x, 16, 16, pads=[1] * 4))
    flat = n.add("Flatten", n.add("GlobalAveragePool", x))
    path = tmp_path / "small.onnx"
    path.write_bytes(n.model(n.gemm(flat, 16, 5)).SerializeToString())
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder of four pictures of the input's size."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(7)
    for number in range(4):
        pixels = rng.integers(0, 256, (16, 12, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_quantize_run_and_compare(model: Path, pictures: Path, tmp_path: Path) -> None:
    out, document, page = tmp_path / "int8.onnx", tmp_path / "q.json", tmp_path / "q.html"
    words = ("--data", pictures, "--mean", "127.5", "--std", "60,60,60", "--npu")
    code, text = invoke("quantize", model, "-o", out, *words, "--json", document, "--html", page)
    assert code == 0, text
    data = json.loads(document.read_text())
    assert data["schema_version"] == 1 and data["samples"] == 4 and not data["skipped"]
    (name,) = data["outputs"]
    assert data["outputs"][name]["sqnr"] > 25 and data["npu"][name]["sqnr"] > 25
    assert {layer["op"] for layer in data["layers"]} >= {"Conv", "Gemm", "GlobalAveragePool"}
    order = [
        layer["alone"]["sqnr"] for n in data["float_first"] for layer in data["layers"] if layer["name"] == n
    ]
    assert order == sorted(order)
    html = page.read_text()
    assert data["float_first"][0] in html and f"{data['outputs'][name]['sqnr']:.1f} dB" in html

    code, again = invoke("accuracy", out, model, *words, "--json", tmp_path / "a.json")
    assert code == 0, again
    other = json.loads((tmp_path / "a.json").read_text())
    assert other["layers"] == data["layers"] and other["npu"] == data["npu"]

    values = np.stack([np.asarray(Image.open(file)) for file in sorted(pictures.iterdir())]).astype(
        np.float32
    )
    np.save(tmp_path / "values.npy", ((values - 127.5) / 60).transpose(0, 3, 1, 2))
    code, text = invoke("run", out, "--input", tmp_path / "values.npy", "--engine", "golden", "--check")
    assert code == 0 and "MATCH" in text, text


def test_forms_of_data_give_the_same_model(model: Path, pictures: Path, tmp_path: Path) -> None:
    files = sorted(pictures.iterdir())
    values = np.stack([np.asarray(Image.open(file)) for file in files]).astype(np.float32) / np.float32(255)
    arrays, rows = tmp_path / "arrays", tmp_path / "list.txt"
    arrays.mkdir()
    for number, value in enumerate(values):
        np.save(arrays / f"{number}.npy", value)
    np.savez(tmp_path / "x.npz", x=values.transpose(0, 3, 1, 2))
    np.savez(tmp_path / "images.npz", images=values)
    rows.write_text("".join(f"pictures/{file.name}\n" for file in files) + "\n")
    made = []
    for data in (pictures, arrays, tmp_path / "x.npz", tmp_path / "images.npz", rows):
        out = tmp_path / "int8.onnx"
        code, text = invoke("quantize", model, "-o", out, "--data", data)
        assert code == 0, text
        made.append(out.read_bytes())
    assert len(set(made)) == 1


def test_pixels_put_the_normalisation_into_the_model(model: Path, pictures: Path, tmp_path: Path) -> None:
    words = ("--data", pictures, "--mean", "100,110,120", "--std", "60,61,62", "--pixels")
    out = tmp_path / "int8.onnx"
    code, text = invoke("quantize", model, "-o", out, *words, "--npu", "--json", tmp_path / "q.json")
    assert code == 0, text
    proto = onnx.load(out)
    scale = next(item for item in proto.graph.initializer if item.name == "x_scale")
    assert onnx.numpy_helper.to_array(scale) == pytest.approx(1.0, rel=0.01), "a pixel is a code"
    (figures,) = json.loads((tmp_path / "q.json").read_text())["npu"].values()
    assert figures["sqnr"] > 25
    code, text = invoke("quantize", model, "-o", out, "--pixels", "--std", "255", "--float-only")
    assert onnx.load(out).graph.node[0].name == "x@normalised"
    assert code == 0 and {n.op_type for n in onnx.load(out).graph.node} >= {"Conv", "Relu"}, text


def test_mixed_keeps_the_layers_that_the_output_gains_most_from(
    model: Path, pictures: Path, tmp_path: Path
) -> None:
    document = tmp_path / "q.json"
    out = tmp_path / "int8.onnx"
    code, text = invoke(
        *("quantize", model, "-o", out, "--data", pictures, "--json", document),
        *("--gains", "--html", tmp_path / "q.html"),
    )
    assert code == 0 and "most important for the output first" in text, text
    data = json.loads(document.read_text())
    worst = data["float_first"]
    gained = [layer["output"]["sqnr"] for n in worst for layer in data["layers"] if layer["name"] == n]
    assert gained == sorted(gained, reverse=True)
    assert "when this layer alone is in floating point" in (tmp_path / "q.html").read_text()
    words = ("--data", pictures, "--mixed", 1, "--json", document, "--npu")
    code, text = invoke("quantize", model, "-o", out, *words)
    assert code == 0, text
    data = json.loads(document.read_text())
    (found,) = data["outputs"].values()
    assert data["floats"] == worst[:1] and found["sqnr"] == pytest.approx(gained[0], abs=1e-6)
    assert all(layer["name"] != worst[0] or layer["scale"] is None for layer in data["layers"])


def test_several_inputs(tmp_path: Path) -> None:
    n = Net((1, 8, 4, 4))
    proto = n.model(n.add("Add", "x", "y"))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8, 4, 4)))
    proto = onnx.shape_inference.infer_shapes(proto)
    model, out = tmp_path / "two.onnx", tmp_path / "int8.onnx"
    model.write_bytes(proto.SerializeToString())
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(3, 8, 4, 4)).astype(np.float32) for _ in range(2))
    np.savez(tmp_path / "both.npz", x=x, y=y)
    code, text = invoke("quantize", model, "-o", out, "--data", tmp_path / "both.npz", "--npu")
    assert code == 0 and "3 samples" in text, text
    np.save(tmp_path / "x.npy", x)
    code, text = invoke("quantize", model, "-o", out, "--data", tmp_path / "x.npy")
    assert code == 2 and "2 inputs" in text
    (tmp_path / "list.txt").write_text("x.npy\n")
    code, text = invoke("quantize", model, "-o", out, "--data", tmp_path / "list.txt")
    assert code == 2 and "list.txt:1: names 1 files, the model has 2 inputs" in text


@pytest.mark.parametrize(
    "words, wanted",
    [
        ((), "--data is missing"),
        (("--data", "nowhere"), "nowhere"),
        (("--data", "empty"), "has no picture"),
        (("--data", "wrong.npz"), "has shape [2, 3, 5, 5]"),
        (("--data", "other.npz"), "has no array for the input 'x' (it has: z)"),
        (("--data", "damaged.png"), "damaged.png"),
        (("--data", "x.npz", "--mean", "1,a"), "--mean must be numbers"),
        (("--data", "x.npz", "--mean", "1,2"), "3 channels, but there are 2 means"),
        (("--data", "x.npz", "--std", "0"), "standard deviation of 0"),
        (("--data", "x.npz", "--pixels"), "--pixels needs --mean or --std"),
        (("--data", "x.npz", "--held-out", "x.npz"), "--held-out needs --advice"),
        (("--data", "x.npz", "--advice"), "advice needs at least 8 samples"),
        (("--data", "x.npz", "--keep", "conv77"), "no node of the model is named 'conv77'"),
        (("--data", "x.npz", "--outputs", "conv77"), "no node of the model computes 'conv77'"),
    ],
)
def test_bad_input_is_named(model: Path, tmp_path: Path, words: tuple[str, ...], wanted: str) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "wrong.npz", x=np.zeros((2, 3, 5, 5)))
    np.savez(tmp_path / "other.npz", z=np.zeros((2, 3, 16, 12)))
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3, 16, 12)))
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    out = tmp_path / "int8.onnx"
    places = [tmp_path / w if w.endswith((".npz", ".png")) or w in ("empty", "nowhere") else w for w in words]
    code, text = invoke("quantize", model, "-o", out, *places)
    assert code == 2 and wanted in text, text
    assert not out.exists()


def test_other_files_are_refused(model: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    assert invoke("quantize", model, "-o", out, "--data", pictures)[0] == 0
    code, text = invoke("quantize", out, "-o", tmp_path / "twice.onnx", "--data", pictures)
    assert code == 2 and "already quantised" in text
    code, text = invoke("quantize", pictures / "0.png", "-o", out, "--data", pictures)
    assert code == 2 and "is a picture" in text and "not an ONNX or TFLite model" in text
