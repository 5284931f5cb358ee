"""Classification as in the vendor's samples: init, query, inputs_set, run, outputs_get."""

from __future__ import annotations

import ctypes as ct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from device import open_device

import rkcosim.rknn_api as rk

DIGITS = Path(__file__).parents[1] / "digits"


def check(ret: int, call: str) -> None:
    """Stop at the first error, like the samples."""
    if ret < 0:
        raise SystemExit(f"{call} fail! ret={ret}")


def main() -> None:
    """Classify a few digits and print the layers of the last run."""
    device = open_device(__doc__)
    held = np.load(DIGITS / "held_back.npz")
    ctx = rk.rknn_context()
    path = str(DIGITS / "digits_int8.onnx").encode()
    check(rk.rknn_init(ct.byref(ctx), path, 0, rk.RKNN_FLAG_COLLECT_PERF_MASK, None), "rknn_init")

    attr = rk.rknn_tensor_attr(index=0)
    check(rk.rknn_query(ctx, rk.RKNN_QUERY_INPUT_ATTR, ct.byref(attr), ct.sizeof(attr)), "rknn_query")
    print(
        f"input {attr.name.decode()}: dims {list(attr.dims[: attr.n_dims])}, "
        f"{rk.get_format_string(attr.fmt)}, {rk.get_type_string(attr.type)}, zp {attr.zp}, "
        f"scale {attr.scale:.6f}"
    )
    right = 0
    for image, label in zip(held["images"][:5], held["labels"][:5], strict=True):
        values = np.ascontiguousarray(image * held["scale"], np.float32)
        inputs = (rk.rknn_input * 1)()
        inputs[0].index = 0
        inputs[0].type = rk.RKNN_TENSOR_FLOAT32
        inputs[0].fmt = rk.RKNN_TENSOR_NHWC
        inputs[0].size = values.nbytes
        inputs[0].buf = values.ctypes.data
        check(rk.rknn_inputs_set(ctx, 1, inputs), "rknn_inputs_set")
        check(rk.rknn_run(ctx, None), "rknn_run")
        outputs = (rk.rknn_output * 1)()
        outputs[0].want_float = 1
        check(rk.rknn_outputs_get(ctx, 1, outputs, None), "rknn_outputs_get")
        scores = np.frombuffer(ct.string_at(outputs[0].buf, outputs[0].size), np.float32)
        right += int(scores.argmax()) == int(label)
        check(rk.rknn_outputs_release(ctx, 1, outputs), "rknn_outputs_release")
    print(f"{right} of 5 right")

    perf = rk.rknn_perf_detail()
    check(rk.rknn_query(ctx, rk.RKNN_QUERY_PERF_DETAIL, ct.byref(perf), ct.sizeof(perf)), "rknn_query")
    print(ct.string_at(perf.perf_data, perf.data_len).decode())
    check(rk.rknn_destroy(ctx), "rknn_destroy")
    rk.use_device(None)
    device.close()


if __name__ == "__main__":
    main()
