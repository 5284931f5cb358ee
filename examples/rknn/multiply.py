"""Matrix product as in the vendor's samples: matmul_create, set_io_mem, matmul_run."""

from __future__ import annotations

import ctypes as ct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from device import open_device

import rkcosim.rknn_api as rk

M, K, N = 4, 64, 32


def main() -> None:
    """Multiply two int8 matrices and compare with numpy."""
    device = open_device(__doc__)
    info = rk.rknn_matmul_info(M=M, K=K, N=N, type=int(rk.RKNN_INT8_MM_INT8_TO_INT32))
    ctx, io_attr = rk.rknn_matmul_ctx(), rk.rknn_matmul_io_attr()
    if rk.rknn_matmul_create(ct.byref(ctx), ct.byref(info), ct.byref(io_attr)) < 0:
        raise SystemExit("rknn_matmul_create fail!")
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (M, K)).astype(np.int8)
    b = rng.integers(-128, 128, (K, N)).astype(np.int8)
    mems = {}
    for name, matrix in (("A", a), ("B", b), ("C", None)):
        attr = getattr(io_attr, name)
        mems[name] = rk.rknn_create_mem(ctx, attr.size)
        if matrix is not None:
            ct.memmove(mems[name].contents.virt_addr, matrix.ctypes.data, attr.size)
        rk.rknn_matmul_set_io_mem(ctx, mems[name], ct.byref(attr))
    if rk.rknn_matmul_run(ctx) < 0:
        raise SystemExit("rknn_matmul_run fail!")
    c = np.frombuffer(ct.string_at(mems["C"].contents.virt_addr, io_attr.C.size), np.int32).reshape(M, N)
    print("right" if np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32)) else "wrong")
    for mem in mems.values():
        rk.rknn_destroy_mem(ctx, mem)
    rk.rknn_matmul_destroy(ctx)
    rk.use_device(None)
    device.close()


if __name__ == "__main__":
    main()
