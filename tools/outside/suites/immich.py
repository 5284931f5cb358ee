"""Immich's RKNN session, unmodified, on a network of the ledger's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tools.outside.models import Network, convert, reference
from tools.outside.programs import driven
from tools.outside.suite import Checkout, Outcome, Suite


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    files = "machine-learning/immich_ml"
    here.needs(*(f"{files}/sessions/rknn/{name}" for name in ("__init__.py", "rknnpool.py")))
    here.needs(f"{files}/models/constants.py")
    network = Network(112, 61)
    x = network.trunk("input", (8, 16, 32, 32))
    x = network.add("Flatten", network.conv(x, (32, 16), 1))
    weights = network.constant(np.random.default_rng(62).standard_normal((784, 512)).astype(np.float32) / 28)
    network.write(folder / "model.onnx", {network.add("MatMul", x, weights): (1, 512)})
    inputs = list(np.random.default_rng(63).standard_normal((4, 1, 3, 112, 112)).astype(np.float32))
    expected = [outputs[0] for outputs in reference(folder / "model.onnx", inputs)]
    np.savez(folder / "reference.npz", inputs=np.stack(inputs), expected=np.stack(expected))
    convert(folder / "model.onnx", folder / "model.rknn", "--custom-string", '{"dims": [{}]}')
    return driven(here, "rknn", engine, "immich", [here.folder / files, folder], folder, 900)


SUITE = Suite(
    name="immich",
    repository="immich-app/immich",
    tests="the RKNN session of Immich's machine learning (`machine-learning/immich_ml/sessions/rknn`)",
    how="A driver imports its files, with a stand-in for the settings that they read, and runs a network of "
    "five layers in fp16 on one, two and three contexts under `rkcosim rknn`; each answer is onnxruntime's "
    "within 2**-8 of its largest value.",
    board_source="no log of a board is known.",
    run=_run,
)
