"""Zero-copy as in the vendor's samples: create_mem, set_io_mem, write, run, read."""

from __future__ import annotations

import ctypes as ct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from device import open_device

import rkcosim.rknn_api as rk

DIGITS = Path(__file__).parents[1] / "digits"


def main() -> None:
    """Classify one digit from memory that the NPU reads directly."""
    device = open_device(__doc__)
    held = np.load(DIGITS / "held_back.npz")
    ctx = rk.rknn_context()
    if rk.rknn_init(ct.byref(ctx), str(DIGITS / "digits_int8.onnx").encode(), 0, 0, None) < 0:
        raise SystemExit("rknn_init fail!")
    input_attr, output_attr = rk.rknn_tensor_attr(), rk.rknn_tensor_attr()
    size = ct.sizeof(rk.rknn_tensor_attr)
    rk.rknn_query(ctx, rk.RKNN_QUERY_NATIVE_INPUT_ATTR, ct.byref(input_attr), size)
    rk.rknn_query(ctx, rk.RKNN_QUERY_NATIVE_OUTPUT_ATTR, ct.byref(output_attr), size)
    input_mem = rk.rknn_create_mem(ctx, input_attr.size_with_stride)
    output_mem = rk.rknn_create_mem(ctx, output_attr.size_with_stride)
    rk.rknn_set_io_mem(ctx, input_mem, ct.byref(input_attr))
    rk.rknn_set_io_mem(ctx, output_mem, ct.byref(output_attr))

    values = held["images"][0].astype(np.float32) * held["scale"]
    codes = np.clip(np.rint(values / input_attr.scale) + input_attr.zp, -128, 127).astype(np.int8)
    rows = np.zeros((16, input_attr.w_stride), np.int8)
    rows[:, :16] = codes
    ct.memmove(input_mem.contents.virt_addr, rows.ctypes.data, rows.nbytes)
    if rk.rknn_run(ctx, None) < 0:
        raise SystemExit("rknn_run fail!")
    scores = np.frombuffer(ct.string_at(output_mem.contents.virt_addr, 40), np.float32)
    label = int(held["labels"][0])
    print(f"digit {scores.argmax()}, {'right' if scores.argmax() == label else f'not right: {label}'}")
    rk.rknn_destroy_mem(ctx, input_mem)
    rk.rknn_destroy_mem(ctx, output_mem)
    rk.rknn_destroy(ctx)
    rk.use_device(None)
    device.close()


if __name__ == "__main__":
    main()
