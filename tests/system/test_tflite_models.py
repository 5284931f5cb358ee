"""The real TFLite models: whole on the golden engine, and layer by layer beside LiteRT."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from cosim.cli.inputs import load_batch
from cosim.models.compare import compare, random_values
from cosim.models.run import run_model
from sw.compiler import compile_model

FOLDER = Path(__file__).parents[3] / "shared" / "models"
MODELS = {
    "ad01_int8.tflite": 10,
    "kws_ref_model.tflite": 12,
    "pretrainedResnet_quant.tflite": 12,
    "vww_96_int8.tflite": 30,
    "mobilenet_v1_0.25_128_quant.tflite": 30,
}
"""Files and their layers."""
ADDITIONS = {"pretrainedResnet_quant.tflite": 3}
"""Additions that convolutions do, whose results `compare` counts beside the sums."""
PICTURES = ("cat.bmp", "bird.bmp")
CLASSES = {"cat.bmp": 286, "bird.bmp": 20}
"""Classes of MobileNetV1: Egyptian cat, chickadee."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the models beside the project are not here")


@pytest.mark.parametrize("name", MODELS)
def test_whole_model(name: str) -> None:
    """Through rknn_api on the golden engine: every tensor equal on both levels, one host step."""
    result = run_model(FOLDER / name, engine="golden", check=True, seed=3)
    assert result.verdict["match"] is True, result.verdict
    assert len(result.layers) == MODELS[name]
    hosted = [row.op for row in result.layers if row.target == "host"]
    assert hosted == ([] if name.startswith("ad01") else ["Softmax"])
    json.dumps(result.as_json())


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures(picture: str) -> None:
    path = FOLDER / "mobilenet_v1_0.25_128_quant.tflite"
    infos = compile_model(path.read_bytes()).inputs
    batch = load_batch([FOLDER / picture], infos, None).items
    result = run_model(path, batch, engine="golden", check=True)
    assert result.verdict["match"] is True and result.predictions == [CLASSES[picture]]


@pytest.mark.parametrize("name", MODELS)
def test_beside_litert(name: str) -> None:
    """Each layer fed with LiteRT's tensors: one step at most (fused sums three), and the same class."""
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = FOLDER / name
    model = compile_model(path.read_bytes())
    batch = [random_values(model, 1)]
    if len(model.inputs[0].shape) == 4 and model.inputs[0].shape[1] == 3:
        batch = load_batch([FOLDER / p for p in PICTURES], model.inputs, None).items
    found = compare(path, batch)
    assert found.match, [(o.top1, o.reference_top1) for o in found.outputs]
    assert not found.skipped and len(found.layers) == MODELS[name] + ADDITIONS.get(name, 0)
    assert max(layer.worst for layer in found.layers if "+" not in layer.op) <= 1
    differing = sum(layer.differing for layer in found.layers)
    assert differing < 0.02 * sum(layer.elements for layer in found.layers)
    assert np.all([layer.elements > 0 for layer in found.layers])
