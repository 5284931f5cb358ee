"""Ultralytics: its exporter and its `AutoBackend`, as PyPI has them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.outside.drivers.yolo import NETWORKS
from tools.outside.programs import driven
from tools.outside.suite import Checkout, NotHere, Outcome, Suite

RTL_TOO = ("yolo11n-cls",)
"""Networks that run on the RTL, too."""

PACKAGES = ("ultralytics", "torch", "onnx", "onnxslim", "onnxruntime", "cv2")


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    found = [f"importlib.util.find_spec({name!r})" for name in PACKAGES]
    asked = [here.python, "-c", f"import importlib.util, sys; sys.exit(not all([{', '.join(found)}]))"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        raise NotHere(f"{Path(here.python).name} has not all of {', '.join(PACKAGES)}")
    options = ["--machine", "aarch64"]
    words = [folder.resolve(), *(NETWORKS if engine == "golden" else RTL_TOO)]
    return driven(here, "rknn", engine, "yolo", words, folder, 3000, options=options)


SUITE = Suite(
    name="ultralytics",
    repository="ultralytics/ultralytics",
    package="ultralytics",
    tests="Ultralytics' exporter (`format=rknn`), its `AutoBackend` and `predict()`, with networks that it "
    "describes: detection, classification, segmentation, poses",
    how="A driver draws weights, lets the exporter write each network as ONNX and by `rknn.api` for the "
    "RK3588, 64 x 64, and asks `AutoBackend` for both files, under `rkcosim rknn --machine aarch64`; "
    "the answers are those of onnxruntime within an eighth of what the answers for two pictures differ by "
    "(about 100 layers in fp16). `predict()` gets pictures and both files, for boxes (all of them, without "
    "suppression, each compared with the nearest) and for probabilities. The RTL runs the classification. "
    "The version is the newest of PyPI.",
    board_source="no log of a board with such weights is known.",
    run=_run,
)
