"""Ultralytics: OUTCOMES, a folder and names of networks, which are exported, run, and compared.

Each network is one that the package describes, with random weights that keep the size of numbers.
Ultralytics' own exporter writes it as ONNX and, by `rknn.api`, for the RK3588; its `AutoBackend` runs both
files, and so does `predict()` with a picture, for the networks of `PREDICTED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools.outside.drivers import arguments, expect, judge

SIDE = 64
NETWORKS = {
    "yolo26n": (1.6, 40),
    "yolo11n": (1.64, 41),
    "yolo11n-cls": (1.7, 42),
    "yolov8n-seg": (1.7, 43),
    "yolo11n-pose": (1.62, 44),
}
"""Networks with a gain, the standard deviation of their weights times the square root of the number that is
added, and a seed.

SiLU keeps 0.36 of a variance, which a gain of 1.7 makes up for. With it some networks leave the range of
fp16, in PyTorch too.
"""

PREDICTED = ("yolo11n", "yolo11n-cls")
"""Networks of which `predict()` is asked as well: for boxes, and for probabilities."""

PART = 8
"""The largest difference from onnxruntime is at most this part of the largest one between two pictures.

The numbers go through about 100 layers in fp16. PyTorch's own half precision is a 24th to a 300th away."""


def codes(rng: np.random.Generator) -> np.ndarray:
    """Return a picture (1, 3, SIDE, SIDE) of codes that survive the division and multiplication by 255.

    `RKNNBackend.forward` cuts `im * 255` off, so that other codes lose one there.
    """
    every = np.arange(256, dtype=np.float32)
    whole = every[(every / np.float32(255) * np.float32(255)).astype(np.uint8) == every]
    return rng.choice(whole, (1, 3, SIDE, SIDE)).astype(np.float32) / np.float32(255)


def randomised(torch: Any, network: Any, seed: int, gain: float) -> None:
    """Draw weights, and set all biases to 0."""
    torch.manual_seed(seed)
    for name, value in network.model.named_parameters():
        if value.ndim > 1:
            torch.nn.init.normal_(value, 0, gain / value[0].numel() ** 0.5)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(value)


def pixels(picture: np.ndarray) -> np.ndarray:
    """Return a picture of `codes` as `predict()` takes it: (SIDE, SIDE, 3) uint8, blue first."""
    return np.ascontiguousarray(np.rint(picture[0] * 255).astype(np.uint8).transpose(1, 2, 0)[..., ::-1])


def rows(result: Any) -> np.ndarray:
    """Return what `predict()` says of a picture: (boxes, 5), corners and score; or (classes, 1)."""
    if result.probs is not None:
        return np.asarray(result.probs.data.numpy()).reshape(-1, 1)
    said = result.boxes.data.numpy()[:, :5].astype(np.float64)
    said[:, 4] *= SIDE  # scores count like pixels
    return np.asarray(said)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far two answers of `rows` are apart.

    Of probabilities, the largest difference. Of boxes, whose order and number depend on single roundings, the
    largest distance from a box of one answer to the nearest box of the other one.
    """
    if one.shape[1] == 1:
        return float(np.abs(one - other).max())
    if not (len(one) and len(other)):
        return float("inf")
    distances = np.abs(one[:, None] - other[None]).max(2)
    return float(max(distances.min(0).max(), distances.min(1).max()))


def main() -> None:
    """Run the tests."""
    outcomes, (folder, *names) = arguments()
    os.environ |= {"YOLO_AUTOINSTALL": "false", "YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": folder}
    os.chdir(folder)
    import torch
    import ultralytics
    from ultralytics.nn.autobackend import AutoBackend

    def answers(file: Path, pictures: list[np.ndarray]) -> list[list[np.ndarray]]:
        model = AutoBackend(model=str(file), verbose=False)
        found = []
        for picture in pictures:
            made = model(torch.from_numpy(picture))
            found.append([value.numpy() for value in (made if isinstance(made, list) else [made])])
        return found

    def network(name: str, gain: float, seed: int) -> Callable[[], None]:
        def test() -> None:
            drawn = ultralytics.YOLO(f"{name}.yaml")
            randomised(torch, drawn, seed, gain)
            drawn.export(format="rknn", imgsz=SIDE, name="rk3588", verbose=False)
            rng = np.random.default_rng(seed)
            pictures = [codes(rng), codes(rng)]
            ours = answers(Path(f"{name}_rknn_model"), pictures)
            known = answers(Path(f"{name}.onnx"), pictures)
            for place, (one, other) in enumerate(zip(*known, strict=True)):
                for part in [slice(0, 4), slice(4, None)] if one.ndim == 3 else [slice(None)]:
                    seen = float(np.abs(one[:, part] - other[:, part]).max())
                    for given, right in zip(ours, known, strict=True):
                        worst = float(np.abs(given[place][:, part] - right[place][:, part]).max())
                        said = f"output {place}: {worst:.3g} away; two pictures differ by {seen:.3g}"
                        expect(worst <= seen / PART, said)

        return test

    def prediction(name: str, seed: int) -> Callable[[], None]:
        def test() -> None:
            rng = np.random.default_rng(seed)
            pictures = [pixels(codes(rng)) for _ in range(2)]
            task = "classify" if name.endswith("-cls") else "detect"
            # Every box is kept: a threshold would let a rounding decide which.
            asked = {
                "imgsz": SIDE,
                "conf": 1e-9,
                "iou": 1.0,
                "max_det": 1000,
                "verbose": False,
                "rect": False,
            }
            ours, known = (
                [rows(ultralytics.YOLO(file, task=task).predict(one, **asked)[0]) for one in pictures]
                for file in (f"{name}_rknn_model", f"{name}.onnx")
            )
            seen = apart(*known)
            for given, right in zip(ours, known, strict=True):
                worst = apart(given, right)
                expect(worst <= seen / PART, f"{worst:.3g} away; two pictures differ by {seen:.3g}")

        return test

    tests: dict[str, Callable[[], None]] = {}
    for name in names:
        tests[name] = network(name, *NETWORKS[name])
        if name in PREDICTED:
            tests[f"{name}: predict()"] = prediction(name, NETWORKS[name][1])
    judge(outcomes, tests)


if __name__ == "__main__":
    main()
