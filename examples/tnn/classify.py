"""Classify handwritten digits through TNN's interface, on NAIVE and on the NPU, in all sharing modes.

    python examples/tnn/from_onnx.py examples/digits/digits_int8.onnx build/digits
    python examples/tnn/classify.py build/digits.tnnproto --count 3 --engine golden

For each device and mode it prints the bytes of all blobs, of the memory in which they follow each other, and
of what the instance itself allocated for it.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from rkcosim.apis.tnn import (
    TNN,
    DeviceType,
    Instance,
    Mat,
    MatConvertParam,
    MatType,
    ModelConfig,
    NetworkConfig,
    ShareMemoryMode,
    Status,
    get_device,
)

DATA = Path(__file__).parents[1] / "digits" / "held_back.npz"


def sound(status: Status) -> None:
    """End the program if a call failed."""
    if not status:
        raise SystemExit(status.description())


def scores(instance: Instance, picture: np.ndarray) -> np.ndarray:
    """Return the scores of one picture of bytes (16, 16), whose largest value is 16."""
    mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NGRAY, (1, 1, *picture.shape), picture)
    sound(instance.SetInputMat(mat, MatConvertParam(scale=[1 / 16])))
    sound(instance.Forward())
    status, made = instance.GetOutputMat()
    sound(status)
    assert made is not None
    return made.array.reshape(-1).copy()


def main() -> None:
    """Classify pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("proto", type=Path, help=".tnnproto file; the .tnnmodel file is beside it")
    parser.add_argument("--count", type=int, default=3, help="number of pictures")
    parser.add_argument("--engine", help="engine of the NPU; golden is fast and counts no cycles")
    given = parser.parse_args()
    with np.load(DATA) as data:
        pictures, labels = data["images"][: given.count], data["labels"]

    tnn = TNN()
    model = given.proto.with_suffix(".tnnmodel")
    sound(tnn.Init(ModelConfig(params=[given.proto.read_text(), model.read_bytes()])))
    print("device  mode                 blobs  forward memory     own  SHA-256 of all scores")
    for device in (DeviceType.DEVICE_NAIVE, DeviceType.DEVICE_RK3588):
        for mode in ShareMemoryMode:
            config = NetworkConfig(device_type=device, share_memory_mode=mode, engine=given.engine)
            status, instance = tnn.CreateInst(config)
            sound(status)
            assert instance is not None
            with instance:
                if mode == ShareMemoryMode.SHARE_MEMORY_MODE_SET_FROM_EXTERNAL:
                    size, context = instance.GetForwardMemorySize()[1], instance.network.context
                    sound(instance.SetForwardMemory(get_device(device).Allocate(size, context)))
                results = np.array([scores(instance, picture) for picture in pictures])
                use = instance.memory()
            name = mode.name.removeprefix("SHARE_MEMORY_MODE_")
            digest = hashlib.sha256(results.tobytes()).hexdigest()[:16]
            print(f"{device.name[7:]:7} {name:18} {use.blobs:7,} {use.forward:15,} {use.own:7,}  {digest}")
        found = " ".join(str(row.argmax()) for row in results)
        truth = " ".join(str(label) for label in labels[: given.count])
        print(f"{device.name[7:]}: digits {found}, truth {truth}")


if __name__ == "__main__":
    main()
