"""Frigate's RKNN runner, converter and detector, unmodified, on networks of the ledger's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tools.outside.models import Network, convert, reference
from tools.outside.programs import driven
from tools.outside.suite import Checkout, NotHere, Outcome, Suite

SIDE = 64
FILES = (
    *("detectors/plugins/rknn.py", "detectors/detection_runners.py", "detectors/detection_api.py"),
    *("detectors/detector_config.py", "util/model.py", "util/rknn_converter.py", "const.py"),
)
PACKAGES = ("cv2", "pydantic", "requests", "onnxruntime")


def _heads(network: Network, x: str, classes: int, axes: tuple[int, ...], bias: float) -> tuple[str, str]:
    """Add boxes in pixels and scores of one place each; return both, in the order of axes given."""
    boxes = network.add("Sigmoid", network.conv(x, (32, 4), 1))
    scores = network.add("Sigmoid", network.conv(x, (32, classes), 1, bias=bias))
    boxes = network.add("Mul", boxes, network.constant(np.array([SIDE], np.float32)))
    found = []
    for value, wide in ((boxes, 4), (scores, classes)):
        shape = network.constant(np.array([1, wide, (SIDE // 8) ** 2], np.int64))
        value = network.add("Reshape", value, shape)
        found.append(network.add("Transpose", value, perm=axes))
    return found[0], found[1]


def _generic(seed: int, path: Path) -> None:
    network = Network(SIDE, seed)
    x = network.trunk("input", (16, 32, 32), gain=1 / 128)
    boxes, scores = _heads(network, x, 8, (0, 1, 2), -4.0)
    network.write(path, {network.add("Concat", boxes, scores, axis=1): (1, 12, 64)})


def _nas(seed: int, path: Path) -> None:
    network = Network(SIDE, seed)
    x = network.trunk("input", (16, 32, 32), gain=2.0)
    boxes, scores = _heads(network, x, 80, (0, 2, 1), -4.5)
    network.write(path, {boxes: (1, 64, 4), scores: (1, 64, 80)})


def _yolox(seed: int, path: Path) -> None:
    network = Network(SIDE, seed)
    x = network.trunk("input", (16, 32, 32), gain=2.0)
    outputs = {}
    for stride in (8, 16, 32):
        if stride > 8:
            x = network.add("Relu", network.conv(x, (32, 32), 3, stride=2))
        boxes = network.add("Tanh", network.conv(x, (32, 4), 1))
        scores = network.add("Sigmoid", network.conv(x, (32, 9), 1, bias=-1.5))
        side = SIDE // stride
        outputs[network.add("Concat", boxes, scores, axis=1)] = (1, 13, side, side)
    network.write(path, outputs)


def _embedding(name: str, side: int, seed: int, path: Path) -> None:
    network = Network(side, seed, name)
    x = network.trunk(name, (16, 32, 32))
    x = network.add("GlobalAveragePool", network.conv(x, (32, 128), 1))
    network.write(path, {network.add("Flatten", x): (1, 128)})


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(*(f"frigate/{name}" for name in FILES))
    asked = [here.python, "-c", f"import {', '.join(PACKAGES)}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHere(f"its packages: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    random = np.random.default_rng(71)
    known = {}
    for number, (name, make, scale) in enumerate(
        (("yolo-generic", _generic, 1.0), ("yolonas", _nas, 255.0), ("yolox", _yolox, 255.0))
    ):
        path = folder / f"{name}.onnx"
        make(80 + number, path)
        pixels = random.integers(0, 256, (1, SIDE, SIDE, 3), np.uint8)
        known[f"{name}/input"] = pixels
        given = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) / np.float32(scale)
        for place, output in enumerate(reference(path, [given])[0]):
            known[f"{name}/output{place}"] = output
    for name, of, side in (("vision", "pixel_values", 224), ("arcface", "data", 112)):
        path = folder / ("clip-vision.onnx" if name == "vision" else "arcface.onnx")
        _embedding(of, side, 90 + side, path)
        codes = random.integers(0, 256, (1, 3, side, side)).astype(np.float32)
        x = codes / np.float32(127.5) - np.float32(1)
        known[f"{name}/output0"] = reference(path, [x])[0][0]
        # Frigate makes codes of a face's numbers again, and cuts them off.
        known[f"{name}/input"] = x + np.float32(0.25 / 127.5) if name == "arcface" else x
    np.savez(folder / "reference.npz", **known)  # type: ignore[arg-type]
    convert(folder / "clip-vision.onnx", folder / "clip-vision.rknn")
    return driven(here, "rknn", engine, "frigate", [here.folder / "frigate", folder], folder, 1800)


SUITE = Suite(
    name="frigate",
    repository="blakeblackshear/frigate",
    tests="Frigate's RKNN detector (`detectors/plugins/rknn.py`), its runner and its converter",
    how="A driver imports its files, with stand-ins for lock, labels and account, lets its converter "
    "convert networks of the ledger's by `rknn.api` and detects with each of its three kinds of detectors, "
    "under `rkcosim rknn`; tensors are onnxruntime's within 2**-8 of their largest value, boxes and scores "
    "within 2**-8 of the picture.",
    board_source="no log of a board is known.",
    run=_run,
)
