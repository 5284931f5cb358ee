"""Find lines of text with a network of the PaddleOCR detector's kind, whose output is the share of text.

    rkcosim rknn -- python examples/rknn/text_boxes.py MODEL.rknn PICTURE --cores 3

The output is (1, 1, H, W). A picture is a PNG or JPEG file (needs Pillow), resized to the model's input, or
an .npy of (H, W, 3) bytes. Its channels become blue, green, red, as the detector expects them; the runtime
applies mean and std of the file. Boxes are the connected regions of pixels above the threshold, grown by the
usual rule of the detector.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rknnlite.api import RKNNLite

THRESHOLD, LEAST_SCORE, GROWTH, SMALLEST = 0.3, 0.6, 1.5, 5
"""Share of text of a pixel, mean share of a box, factor of the growth, and smallest side in pixels."""


def load(path: Path, height: int, width: int) -> tuple[np.ndarray, float, float]:
    """Return the pixels (1, H, W, 3) in the order blue, green, red, and the factors back to the picture."""
    if path.suffix == ".npy":
        pixels = np.load(path)
        return pixels[None, :, :, ::-1].copy(), 1.0, 1.0
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    resized = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
    return resized[None, :, :, ::-1].copy(), picture.width / width, picture.height / height


def regions(mask: np.ndarray) -> list[np.ndarray]:
    """Return rows and columns of the pixels of each connected region (8 neighbours), from the top."""
    left = mask.copy()
    found = []
    for start in np.argwhere(mask):
        if not left[tuple(start)]:
            continue
        left[tuple(start)] = False
        waiting, pixels = [tuple(start)], []
        while waiting:
            y, x = waiting.pop()
            pixels.append((y, x))
            near = left[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
            for dy, dx in np.argwhere(near):
                at = max(0, y - 1) + dy, max(0, x - 1) + dx
                left[at] = False
                waiting.append(at)
        found.append(np.array(pixels))
    return found


def boxes(shares: np.ndarray) -> list[tuple[int, int, int, int, float]]:
    """Return (left, top, right, bottom, score) of each line of text, upright, in pixels of the network."""
    found = []
    for pixels in regions(shares > THRESHOLD):
        (top, left), (bottom, right) = pixels.min(0), pixels.max(0)
        score = float(shares[pixels[:, 0], pixels[:, 1]].mean())
        width, height = int(right - left), int(bottom - top)
        if score < LEAST_SCORE or min(width, height) < 2:
            continue
        grown = GROWTH * width * height / (2 * (width + height))
        if min(width, height) + 2 * grown < SMALLEST:
            continue
        sides = left - grown, top - grown, right + grown, bottom + grown
        limits = (shares.shape[1], shares.shape[0]) * 2
        clipped = [int(min(max(side, 0), limit - 1)) for side, limit in zip(sides, limits, strict=True)]
        found.append((clipped[0], clipped[1], clipped[2], clipped[3], score))
    return found[::-1]


def main() -> None:
    """Print the boxes of a picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--cores", type=int, choices=(1, 2, 3), default=1)
    parser.add_argument("--size", type=int, nargs=2, default=(480, 480), metavar=("HEIGHT", "WIDTH"))
    asked = parser.parse_args()
    lite: Any = RKNNLite()
    masks = (lite.NPU_CORE_0, lite.NPU_CORE_0_1, lite.NPU_CORE_0_1_2)
    if lite.load_rknn(str(asked.model)) or lite.init_runtime(core_mask=masks[asked.cores - 1]):
        raise SystemExit(1)
    pixels, across, down = load(asked.picture, *asked.size)
    outputs = lite.inference(inputs=[pixels])
    if outputs is None:
        raise SystemExit(1)
    found = boxes(np.asarray(outputs[0])[0, 0])
    print(f"{len(found)} boxes")
    for number, (left, top, right, bottom, score) in enumerate(found):
        corners = [(int(x * across), int(y * down)) for x, y in ((left, top), (right, bottom))]
        print(f"[{number}]: {corners[0]} {corners[1]} {score:.6f}")
    lite.release()


if __name__ == "__main__":
    main()
