"""Whole TFLite networks: on the golden engine, and layer by layer beside LiteRT.

Networks in the shapes of published ones are made by the tests; the published files themselves are used with
`RKCOSIM_SHARED` (marker `shared`).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.compiler import compile_model
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.input_files import load_batch
from rkcosim.measure.models.run import run_model
from tests.makers.tflite_networks import NETWORKS

MODELS = {
    "ad01_int8.tflite": 10,
    "kws_ref_model.tflite": 12,
    "pretrainedResnet_quant.tflite": 12,
    "vww_96_int8.tflite": 30,
    "mobilenet_v1_0.25_128_quant.tflite": 30,
}
"""Published files and their layers."""
ADDITIONS = {"pretrainedResnet_quant.tflite": 3, "resnet8": 3}
"""Additions that convolutions do, whose results `compare` counts beside the sums."""
PICTURES = ("cat.bmp", "bird.bmp")
CLASSES = {"cat.bmp": 286, "bird.bmp": 20}
"""Classes of MobileNetV1: Egyptian cat, chickadee."""


def check_whole(path: Path, layers: int, softmax: bool) -> None:
    """Through rknn_api on the golden engine: every tensor equal on both levels, one host step."""
    result = run_model(path, engine="golden", check=True, seed=3)
    assert result.verdict["match"] is True, result.verdict
    assert len(result.layers) == layers
    hosted = [row.op for row in result.layers if row.target == "host"]
    assert hosted == (["Softmax"] if softmax else [])
    json.dumps(result.as_json())


def check_beside_litert(path: Path, batch: list[dict[str, np.ndarray]], layers: int) -> None:
    """Each layer fed with LiteRT's tensors: one step at most (fused sums three), and the same class."""
    found = compare(path, batch)
    assert found.match, [(o.top1, o.reference_top1) for o in found.outputs]
    assert not found.skipped and len(found.layers) == layers
    assert max(layer.worst for layer in found.layers if "+" not in layer.op) <= 1
    differing = sum(layer.differing for layer in found.layers)
    assert differing < 0.02 * sum(layer.elements for layer in found.layers)
    assert np.all([layer.elements > 0 for layer in found.layers])


@pytest.mark.parametrize("name", NETWORKS)
def test_whole_network(name: str, tmp_path: Path) -> None:
    make, layers = NETWORKS[name]
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(make())
    check_whole(path, layers, name != "autoencoder")


@pytest.mark.parametrize("name", NETWORKS)
def test_network_beside_litert(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    make, layers = NETWORKS[name]
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(make())
    batch = [random_reals(compile_model(path.read_bytes()).inputs, 1)]
    check_beside_litert(path, batch, layers + ADDITIONS.get(name, 0))


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_whole_model(name: str, shared: Path) -> None:
    check_whole(shared / "models" / name, MODELS[name], not name.startswith("ad01"))


@pytest.mark.shared
@pytest.mark.parametrize("picture", PICTURES)
def test_pictures(picture: str, shared: Path) -> None:
    path = shared / "models" / "mobilenet_v1_0.25_128_quant.tflite"
    infos = compile_model(path.read_bytes()).inputs
    batch = load_batch([shared / "models" / picture], infos, None).items
    result = run_model(path, batch, engine="golden", check=True)
    assert result.verdict["match"] is True and result.predictions == [CLASSES[picture]]


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_model_beside_litert(name: str, shared: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = shared / "models" / name
    model = compile_model(path.read_bytes())
    batch = [random_reals(model.inputs, 1)]
    if len(model.inputs[0].shape) == 4 and model.inputs[0].shape[1] == 3:
        batch = load_batch([shared / "models" / p for p in PICTURES], model.inputs, None).items
    check_beside_litert(path, batch, MODELS[name] + ADDITIONS.get(name, 0))
