"""TNN: the tests of its layers, on the device of this project's TNN interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rkcosim.apis.tnn import DeviceType, get_device
from tools.outside.gtest import definitions, grids
from tools.outside.suite import Checkout, NotHere, Outcome, Suite
from tools.outside.tnn_layers import BODIES, judged

TESTS = "test/unit_test/layer_test"
MACROS = "test/unit_test/unit_test_macro.h"
MOST = {"golden": 250, "rtl": 8}
"""Networks of each test."""
LARGEST = {"golden": 200_000, "rtl": 2000}
"""Elements of the inputs of a network."""
SECONDS = 600.0
"""Limit of each test."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(TESTS, MACROS)
    macros = definitions((here.folder / MACROS).read_text(encoding="utf-8"))
    found = {}
    context = get_device(DeviceType.DEVICE_RK3588).CreateContext(0, "golden" if engine == "golden" else None)
    try:
        for path in sorted((here.folder / TESTS).glob("test_*_layer.cc")):
            for grid in grids(path.read_text(encoding="utf-8"), macros):
                suite = grid.suite.rpartition("/")[2]
                if suite not in BODIES:
                    continue
                found[suite] = judged(grid, engine, MOST[engine], SECONDS, LARGEST[engine])
                print(f"  {suite}: {found[suite].verdict} ({found[suite].note})", flush=True)
    finally:
        context.close()
    if missing := [name for name in BODIES if name not in found]:
        raise NotHere(f"{here.repository} has no test {', '.join(missing[:3])}")
    return found


SUITE = Suite(
    name="TNN",
    repository="Tencent/TNN",
    tests="TNN's unit tests of layers: layers of one and two numbers, convolutions and transposed ones, "
    "products, pooling, reductions, normalisation, resizing, moves of elements",
    how="Nothing of TNN is compiled: the lists of parameters are read from the C++ sources "
    f"(`INSTANTIATE_TEST_SUITE_P` in {TESTS}), and what a test makes of them, which combinations it skips, "
    "how it draws numbers, TNN's device NAIVE and the comparison for blobs of fp16 (1 % or 0.001, else a "
    "cosine of 0.9998) are restated in `tools/outside/tnn_layers.py`. The networks are written as "
    "`.tnnproto` and `.tnnmodel` files and run by `rkcosim.apis.tnn` on the device RK3588. The golden model "
    f"runs about {MOST['golden']} networks of each test, of at most {LARGEST['golden']:,} numbers, drawn "
    "from all instances if there are more (outside.json has the counts), the RTL "
    f"{MOST['rtl']} of at most {LARGEST['rtl']:,}; a layer, or a shape of it, that the compiler leaves to "
    "the host ([layers](../tnn.md#layers)) is compared as well. "
    "Instances of other data types than float are left out, as TNN leaves them out for a device that its "
    "lists do not name; where a list decides, those of DEVICE_ARM are taken, and padding with FLT_MAX, which "
    "fp16 lacks, is skipped as for the Huawei NPU. Of the 9,147 networks on the golden model on 2026-11-30 "
    "the NPU had a part in 3,126: many of the grids have two samples or five dimensions, which an instance "
    "leaves to the host. It had none in those of Cos, Elu, Exp, InstanceNorm, Log, Normalize, Permute, "
    "Reshape, Selu, Sign, Sin, Softmax, Softplus, Sqrt, Squeeze and Unsqueeze.",
    cannot="The C++ programs of the tests: TNN's interface passes C++ containers, so that a device for them "
    "is a part of a build of TNN, and [there is no `libTNN.so`](../tnn.md#the-interface). The tests of int8 "
    "layers (ConvQuant, InnerProductInt8), which TNN runs on ARM, x86 and NAIVE only, LogSoftmax, which it "
    "runs on CUDA only, and those of layers that the interface does not have: Acos, Asin, Atan, Tan, "
    "ArgMaxOrMin, Conv1D, Conv3D, GLU, GridSample, GroupNorm, HdrGuide, Inverse, LayerNorm, LSTM, Pooling3D, "
    "PriorBox, Reformat, Reorg, RoiAlign, SignedMul, Tile.",
    board_source="none: they test an interface.",
    run=_run,
)
