"""Frigate's RKNN runner, converter and detector: OUTCOMES, the folder frigate, and a folder of models.

The files `detectors/plugins/rknn.py`, `detectors/detection_runners.py` and what they import are Frigate's;
stand-ins have lock, labels and account that they name and that decide nothing here, and a module `torch`,
because the converter installs that package if it is missing although it uses nothing of it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tools.outside.drivers import TOLERANCE, agree, arguments, expect, judge, package, stand_in

DETECTORS = {"yolo-generic": "yologeneric", "yolonas": "yolonas", "yolox": "yolox"}


class Lock(contextlib.nullcontext[None]):
    """The lock of a file, which one process needs not."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__()

    def acquire(self) -> bool:
        """Say that it is held."""
        return True

    def release(self) -> None:
        """Say that it is free."""


def prepared(folder: Path) -> None:
    """Let the package frigate consist of Frigate's files, and of stand-ins."""
    package("frigate", folder)
    for name in ("detectors", "util"):
        package(f"frigate.{name}", folder / name)
    package("frigate.detectors.plugins", folder / "detectors/plugins")
    stand_in("frigate.plus", PlusApi=object)
    stand_in("frigate.util.file", FileLock=Lock)
    stand_in("frigate.util.builtin", generate_color_palette=lambda count: [], load_labels=lambda path: {})
    stand_in("torch")


def same_boxes(ours: Any, expected: Any) -> None:
    """Raise ValueError if detections have other classes, or scores and places that are not as close."""
    count = int((np.asarray(expected)[:, 1] > 0).sum())
    expect(count > 0, "onnxruntime finds no boxes")
    expect(
        bool((ours[:, 0] == expected[:, 0]).all()), f"classes {ours[:count, 0]}; not {expected[:count, 0]}"
    )
    worst = float(np.abs(ours - expected).max())
    expect(worst <= TOLERANCE, f"a score or a place is {worst:.3g} away")


def main() -> None:
    """Run the tests."""
    outcomes, (files, data) = arguments()
    prepared(Path(files))
    runners: Any = importlib.import_module("frigate.detectors.detection_runners")
    converter: Any = importlib.import_module("frigate.util.rknn_converter")
    plugin: Any = importlib.import_module("frigate.detectors.plugins.rknn")
    config: Any = importlib.import_module("frigate.detectors.detector_config")
    folder = Path(data)
    with np.load(folder / "reference.npz") as file:
        known = dict(file)

    def of(name: str) -> list[np.ndarray]:
        count = sum(key.startswith(f"{name}/output") for key in known)
        return [known[f"{name}/output{number}"] for number in range(count)]

    def board() -> None:
        expect(converter.get_soc_type() == "rk3588", f"the SoC is {converter.get_soc_type()}")
        expect(converter.is_rknn_compatible("model.onnx", "yolo-generic"), "the board is not known")

    def detector(kind: str) -> None:
        path = converter.auto_convert_model(str(folder / f"{kind}.onnx"), kind)
        expect(path is not None and Path(path).is_file(), "no model was written")
        side = known[f"{kind}/input"].shape[1]
        model = config.ModelConfig(path=path, width=side, height=side, model_type=kind, labelmap_path=None)
        opened = plugin.Rknn(plugin.RknnDetectorConfig(type="rknn", num_cores=3, model=model))
        outputs = opened.runner.run({"input": known[f"{kind}/input"]})
        agree([np.squeeze(output) for output in outputs], [np.squeeze(output) for output in of(kind)])
        same_boxes(opened.detect_raw(known[f"{kind}/input"]), opened.post_process(of(kind)))

    def vision() -> None:
        runner = runners.RKNNModelRunner(str(folder / "clip-vision.rknn"))
        expect(runner.get_input_names() == ["pixel_values"], str(runner.get_input_names()))
        agree(runner.run({"pixel_values": known["vision/input"]}), of("vision"))

    def face() -> None:
        path = converter.auto_convert_model(str(folder / "arcface.onnx"))
        runner = runners.get_optimized_runner(path or "", None, "arcface")
        expect(isinstance(runner, runners.RKNNModelRunner), f"the runner is {type(runner).__name__}")
        agree(runner.run({"data": known["arcface/input"]}), of("arcface"))

    def refused() -> None:
        try:
            runners.RKNNModelRunner(str(folder / "none.rknn"))
        except RuntimeError as error:
            expect("Failed to load" in str(error), str(error))
        else:
            raise ValueError("a model that does not exist is loaded")

    tests = {"board": board, "runner: CLIP": vision, "runner: ArcFace": face, "no model": refused}
    tests |= {f"detector: {kind}": lambda kind=kind: detector(kind) for kind in DETECTORS}  # type: ignore[misc]
    judge(outcomes, tests)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
