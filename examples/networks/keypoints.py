"""A network for keypoints, as a person may bring it: HardSwish, Resize, Concat, a Sigmoid, two outputs.

    python examples/networks/keypoints.py build/keypoints

It writes `keypoints.onnx` in floating point, `keypoints_int8.onnx` in QDQ form, and `keypoints.npz` with four
inputs.  Weights and inputs are random with a fixed seed.  Needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

try:
    from rkcosim.examples.networks import make as maker
except ImportError:  # the file is run where the package is not installed
    import make as maker  # type: ignore[no-redef]

KEYPOINTS = 5
SIDE = 96
INPUTS = 4


def keypoints() -> tuple[maker.Network, list[str]]:
    """Return the network: heatmaps of 24 x 24 pixels for five points, and their offsets."""
    n = maker.Network("keypoints", (1, 3, SIDE, SIDE), 11)

    def swish(x: str) -> str:
        return n.add("HardSwish", x)

    def block(x: str, cin: int, cout: int, stride: int) -> str:
        wide = swish(n.conv(swish(n.conv(x, cin, 3 * cin, 1)), 3 * cin, 3 * cin, 5, stride, groups=3 * cin))
        y = n.conv(wide, 3 * cin, cout, 1)
        return n.add("Add", x, y) if stride == 1 and cin == cout else y

    x = swish(n.conv("image", 3, 24, 3, 2))
    fine = block(x, 24, 40, 2)
    coarse = block(block(fine, 40, 72, 2), 72, 72, 1)
    up = n.conv(n.twice(coarse), 72, 40, 1)
    joined = n.add("HardSwish", n.add("Concat", fine, up, axis=1))
    body = swish(n.conv(joined, 80, 48))
    heat = n.add("Sigmoid", n.conv(body, 48, KEYPOINTS, 1))
    offsets = n.add("Transpose", n.conv(body, 48, 2 * KEYPOINTS, 1), perm=[0, 2, 3, 1])
    return n, [heat, offsets]


def main() -> None:
    """Write the files into the folder of the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/keypoints")
    network, outputs = keypoints()
    model = network.model(outputs)
    data = [network.rng.normal(size=network.shape).astype(np.float32) for _ in range(INPUTS)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "keypoints.onnx").write_bytes(model.SerializeToString())
    (folder / "keypoints_int8.onnx").write_bytes(maker.quantise(model, data))
    np.savez(folder / "keypoints.npz", images=np.concatenate(data))
    print(f"written: {', '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
