"""RKNN's division of convolutions against plans of the vendor's compiler: tasks, rows, kernels, banks.

Three sources, none of which was left out where it disagreed: the tables in tests/makers/vendor_plans
(`iree-plans` of [HW 15]), the decoded fp16 plans of allbilly/rk3588 (commit 40fae7b, folder
conv_expt/capture_harness/decoded, key `rknn-plans`), and the numbers of tasks in a profile of YOLOv5s (key
`yolov5-profile`), which are sums over the plans for one, two and three cores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rkcosim.compiler import LoadedModel, compile_conv_layer
from rkcosim.compiler.graph import Window
from rkcosim.compiler.rknn_tiling import rknn_plans, rknn_tiles
from rkcosim.compiler.tiling import ConvShape, Tile
from rkcosim.spec.layouts import argb_pitch
from rkcosim.verify.conformance.plan_tables import Plan, read_plans
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker

FOLDER = Path(__file__).parents[1] / "makers" / "vendor_plans"

DECODED = (
    # channels, height = width, kernel, kernels (0: depthwise); (input rows, kernels, feature banks) of the
    # first task of the plans for one, two and three cores
    (1024, 1, 1, 1001, (1, 1001, 1), (1, 512, 1), (1, 320, 1)),
    (1024, 7, 1, 1024, (7, 1024, 4), (7, 512, 4), (7, 352, 4)),
    (1280, 10, 1, 24, (10, 24, 8), (5, 24, 8), (4, 24, 8)),
    (1280, 10, 1, 546, (10, 546, 8), (10, 288, 8), (10, 192, 8)),
    (128, 2, 1, 256, (2, 256, 1), (2, 128, 1), (2, 96, 1)),
    (128, 56, 3, 0, (56, 32, 7), (16, 128, 11), (20, 128, 11)),
    (144, 75, 3, 0, (75, 32, 11), (15, 144, 11), (15, 144, 11)),
    (16, 80, 3, 128, (80, 128, 7), (80, 64, 7), (28, 128, 7)),
    (192, 28, 1, 96, (28, 96, 10), (28, 48, 10), (28, 32, 10)),
    (192, 38, 3, 0, (38, 96, 9), (20, 192, 11), (14, 192, 11)),
    (192, 7, 3, 384, (7, 384, 1), (7, 192, 1), (7, 128, 1)),
    (256, 28, 3, 0, (28, 224, 11), (15, 256, 11), (11, 256, 11)),
    (256, 2, 1, 546, (2, 546, 1), (1, 546, 1), (2, 192, 1)),
    (288, 20, 1, 72, (20, 72, 8), (10, 72, 8), (7, 72, 8)),
    (320, 40, 3, 0, (40, 96, 10), (12, 320, 11), (9, 320, 11)),
    (32, 112, 3, 0, (50, 32, 11), (30, 32, 11), (39, 32, 11)),
    (384, 19, 1, 64, (19, 64, 9), (19, 32, 9), (7, 64, 9)),
    (384, 19, 1, 96, (19, 96, 9), (19, 48, 9), (19, 32, 9)),
    (40, 40, 3, 160, (40, 160, 4), (40, 80, 4), (15, 160, 4)),
    (480, 10, 1, 120, (10, 120, 3), (10, 48, 3), (4, 120, 3)),
    (480, 10, 5, 0, (10, 480, 3), (7, 480, 3), (6, 480, 3)),
    (512, 14, 3, 0, (14, 512, 7), (8, 512, 7), (6, 512, 7)),
    (576, 19, 1, 12, (16, 12, 11), (10, 12, 11), (7, 12, 11)),
    (576, 19, 1, 273, (2, 273, 2), (2, 128, 2), (2, 80, 2)),
    (576, 19, 3, 0, (19, 480, 11), (11, 576, 11), (8, 576, 11)),
    (576, 20, 1, 96, (11, 96, 8), (11, 48, 8), (11, 32, 8)),
    (768, 20, 1, 96, (7, 96, 7), (7, 48, 7), (7, 32, 7)),
    (832, 7, 1, 48, (7, 48, 3), (4, 48, 3), (7, 16, 3)),
    (96, 150, 3, 0, (37, 32, 11), (12, 96, 11), (12, 96, 11)),
    (96, 20, 1, 273, (20, 273, 3), (20, 128, 3), (20, 80, 3)),
)

YOLOV5S = (
    # channels, height = width, kernels, kernel, stride, pad, tasks of the three plans together (without the
    # five tasks that end a chain of cores)
    (3, 640, 32, 6, 2, 2, 68),
    (32, 320, 64, 3, 2, 1, 42),
    (64, 160, 32, 1, 1, 0, 17),
    (32, 160, 32, 1, 1, 0, 10),
    (32, 160, 32, 3, 1, 1, 10),
    (64, 160, 64, 1, 1, 0, 21),
    (64, 160, 128, 3, 2, 1, 30),
    (128, 80, 64, 1, 1, 0, 12),
    (64, 80, 64, 1, 1, 0, 9),
    (64, 80, 64, 3, 1, 1, 9),
    (128, 80, 128, 1, 1, 0, 12),
    (128, 80, 256, 3, 2, 1, 42),
    (256, 40, 128, 1, 1, 0, 9),
    (128, 40, 128, 1, 1, 0, 6),
    (128, 40, 128, 3, 1, 1, 6),
    (256, 40, 256, 1, 1, 0, 9),
    (256, 40, 512, 3, 2, 1, 12),
    (512, 20, 256, 1, 1, 0, 6),
    (256, 20, 256, 1, 1, 0, 6),
    (256, 20, 256, 3, 1, 1, 6),
    (512, 20, 512, 1, 1, 0, 6),
    (1024, 20, 512, 1, 1, 0, 12),
    (512, 40, 128, 1, 1, 0, 12),
    (256, 80, 64, 1, 1, 0, 21),
    (128, 80, 255, 1, 1, 0, 12),
    (128, 80, 128, 3, 2, 1, 18),
    (256, 40, 255, 1, 1, 0, 9),
    (256, 40, 256, 3, 2, 1, 12),
    (512, 20, 255, 1, 1, 0, 6),
)


def conv_shape(
    channels: int,
    size: tuple[int, int],
    kernels: int,
    window: Window,
    itemsize: int,
    depthwise: bool = False,
) -> ConvShape:
    argb = channels if channels <= 4 and itemsize == 1 else 0
    pitch = argb_pitch(size[1]) if argb else 0
    out = window.output(*size)
    return ConvShape(channels, *size, kernels, *out, window, depthwise, argb, pitch, itemsize=itemsize)


def planned(shape: ConvShape, cores: int) -> list[Tile]:
    tiles = rknn_tiles(shape, cores)
    assert tiles is not None
    return tiles


def check_plans(plans: list[Plan]) -> tuple[int, int, int]:
    """Compare all plans; return their number, the number of tasks and of those with equal FEATURE_GRAINS."""
    compared = tasks = grains = 0
    for plan in plans:
        row = plan.rows[0]
        if (row.cin <= 4 and plan.dtype == "fp16") or plan.left_out:
            continue  # first layers of fp16 are compiled in another form here
        window = Window((row.kernel_h, row.kernel_w), (row.stride,) * 2, (row.pad_h, row.pad_w) * 2)
        shape = conv_shape(row.cin, (row.in_height, row.in_width), row.cout, window, plan.itemsize)
        mine = planned(shape, plan.cores)
        even = plan.dtype == "int8"
        assert [
            (t.in_rows, t.rows, t.pad_top, t.kernels + t.kernels % 2 * even, t.data_banks) for t in mine
        ] == [(t.rows, t.out_rows, t.pad_top, t.kernels, t.data_banks) for t in plan.rows], plan.name
        compared += 1
        tasks += len(mine)
        grains += sum(a.grains == b.feature_grains for a, b in zip(mine, plan.rows, strict=True))
    return compared, tasks, grains


def test_tabulated_plans() -> None:
    compared, tasks, grains = check_plans(read_plans(FOLDER))
    assert compared == 38
    assert grains >= 0.8 * tasks


@pytest.mark.shared
def test_all_shared_plans(shared: Path) -> None:
    compared, tasks, grains = check_plans(read_plans(shared / "vendor_plans"))
    assert compared > 300
    assert grains >= 0.8 * tasks


def test_decoded_plans() -> None:
    for channels, size, kernel, kernels, *firsts in DECODED:
        window = Window((kernel, kernel))
        shape = conv_shape(channels, (size, size), kernels or channels, window, 2, not kernels)
        for cores, first in enumerate(firsts, 1):
            tile = planned(shape, cores)[0]
            assert (tile.in_rows, tile.kernels, tile.data_banks) == first, (channels, size, kernels, cores)


def test_task_numbers_of_a_network() -> None:
    for channels, size, kernels, kernel, stride, pad, tasks in YOLOV5S:
        window = Window((kernel, kernel), (stride, stride), (pad,) * 4)
        shape = conv_shape(channels, (size, size), kernels, window, 1)
        counts = [len(planned(shape, cores)) for cores in (1, 2, 3)]
        assert sum(counts) == tasks, (channels, size, kernels, counts)


def test_plans_cover_their_outputs() -> None:
    """Each element of the output belongs to exactly one task, whatever the number of cores."""
    for channels, size, kernels, kernel, stride, pad, _ in YOLOV5S:
        window = Window((kernel, kernel), (stride, stride), (pad,) * 4)
        shape = conv_shape(channels, (size, size), kernels, window, 1)
        for cores in (1, 2, 3):
            counts = np.zeros((shape.kernels, shape.out_height), int)
            for tile in planned(shape, cores):
                kernel_range = slice(tile.first_kernel, tile.first_kernel + tile.kernels)
                counts[kernel_range, tile.first_row : tile.first_row + tile.rows] += 1
            assert counts.min() == counts.max() == 1


def test_unknown_plans_are_left_to_the_compiler() -> None:
    transposed = ConvShape(16, 8, 8, 16, 16, 16, Window((4, 4), (1, 1), (2, 2, 2, 2)), False, insert=2)
    assert rknn_tiles(transposed) is None
    wide = conv_shape(4096, (40, 40), 32, Window((5, 5)), 1)  # five rows do not fit
    assert rknn_tiles(wide) is None


@pytest.mark.parametrize("depthwise", [False, True])
def test_numbers_of_such_a_plan(depthwise: bool) -> None:
    """A layer that RKNN divides into several tasks equals the graph level on the golden device."""
    channels, kernels = (96, 96) if depthwise else (80, 40)
    with rknn_plans():
        model = compile_conv_layer(channels, kernels, 70, 70, kernel=3, pad=1, depthwise=depthwise)
    tiles = model.plan.tiles[0]
    assert len(tiles) > 1 and all(tile.grains for tile in tiles)
    values = np.random.default_rng(5).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    loaded = LoadedModel(model, GoldenDriver())
    loaded.set_input(0, values)
    loaded.run()
    verdict = ModelChecker(loaded, "device").check([values])
    assert verdict.match, str(verdict.first)
