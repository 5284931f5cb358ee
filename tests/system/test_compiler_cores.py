"""Layers divided among cores: the same bytes, on the golden engine."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError, compile_conv_layer
from rkcosim.compiler.tiling import ConvShape, plan_tiles
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.system.test_compiler_golden import TILED

CASES = {
    "rows of 64": dict(channels=64, kernels=64, height=40, width=40, kernel=3, pad=1),
    "kernels of one pixel": dict(channels=1024, kernels=512, height=1, width=1),
    "depthwise": dict(channels=128, kernels=128, height=60, width=60, kernel=3, pad=1, depthwise=True),
    "pixels": dict(channels=3, kernels=64, height=120, width=100, kernel=3, stride=2, pad=1),
    **{name: TILED[name][0] for name in ("one pixel channel", "one stripe", "stride above kernel")},
}


@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_same_bytes(name: str, cores: int) -> None:
    single = compile_conv_layer(**CASES[name], relu=True, seed=7)
    model = CompiledModel(single.graph, cores=cores)
    x = np.random.default_rng(3).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    results = []
    for compiled in (single, model):
        loaded = LoadedModel(compiled, GoldenDriver())
        loaded.set_input(0, x)
        loaded.run()
        results.append(loaded.get_output(0))
    assert np.array_equal(*results)
    checker = ModelChecker(loaded, "device")
    verdict = checker.check([x])
    assert verdict.match, str(verdict.first)
    assert checker.check_memory() is None
    (segment,) = model.plan.segments()
    assert len(segment.parts) in (1, cores) or name in ("kernels of one pixel", "one stripe")
    if name in ("rows of 64", "depthwise", "pixels"):
        assert len(segment.parts) == cores


@pytest.mark.parametrize("name", CASES)
def test_parts_are_even(name: str) -> None:
    """Each core's tiles follow each other, reuse only the core's own weights, and cover every output once."""
    graph = compile_conv_layer(**CASES[name]).graph
    op = graph.ops[0]
    x, y = graph.tensors["x"], graph.tensors["y"]
    shape = ConvShape(*x.cube, *y.cube, op.window, op.depthwise)  # type: ignore[attr-defined]
    for cores in (2, 3):
        tiles = plan_tiles(shape, "layer", cores)
        assert [t.core for t in tiles] == sorted(t.core for t in tiles)
        for before, tile in zip([None, *tiles], tiles, strict=False):
            if tile.weight_reuse:
                assert before is not None and before.core == tile.core
                assert before.first_kernel == tile.first_kernel
        seen = np.zeros((shape.out_height, shape.kernels), dtype=int)
        for tile in tiles:
            seen[tile.first_row : tile.first_row + tile.rows, tile.first_kernel :][:, : tile.kernels] += 1
        assert (seen == 1).all()


def parts_of(kernels: int, height: int, kernel: int, pad: int, **options: int) -> list[int]:
    """Output rows of each of three cores."""
    graph = compile_conv_layer(
        kernels=kernels, height=height, width=height, kernel=kernel, pad=pad, **options
    ).graph
    op = graph.ops[0]
    x, y = graph.tensors["x"], graph.tensors["y"]
    shape = ConvShape(*x.cube, *y.cube, op.window, op.depthwise)  # type: ignore[attr-defined]
    tiles = plan_tiles(shape, "layer", 3)
    return [sum(tile.rows for tile in tiles if tile.core == core) for core in range(3)]


def test_a_layer_that_waits_for_memory_is_divided() -> None:
    """Three cores move twice as many bytes as one; 1x1 over few channels takes the time of its bytes."""
    assert max(parts_of(16, 112, 1, 0, channels=64)) == 38


def test_cores_have_as_many_rows() -> None:
    """CBUF holds few rows of a large map; the number of its tiles is a multiple of the cores."""
    parts = parts_of(32, 320, 3, 1, channels=32)
    assert sum(parts) == 320 and max(parts) == 107


def test_cores_have_as_many_kernels() -> None:
    """A division by kernels that moves fewer bytes in all would give one core twice as many as the others."""
    graph = compile_conv_layer(256, 512, 40, 40, kernel=3, stride=2, pad=1).graph
    op = graph.ops[0]
    shape = ConvShape(*graph.tensors["x"].cube, *graph.tensors["y"].cube, op.window, False)  # type: ignore[attr-defined]
    tiles = plan_tiles(shape, "layer", 3)
    assert {tile.first_kernel: tile.core for tile in tiles} == {0: 0, 192: 1, 384: 2}


def test_number_of_cores() -> None:
    with pytest.raises(ModelError, match="4 cores"):
        CompiledModel(compile_conv_layer(16, 16, 4, 4).graph, cores=4)


def test_an_output_is_kept_when_the_device_memory_changes() -> None:
    """A raw output of one pixel is contiguous in device memory; it must still not be a view of it."""
    model = compile_conv_layer(channels=32, kernels=32, height=1, width=1, kernel=1, relu=False, seed=3)
    x = np.random.default_rng(5).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        got = loaded.get_output(0, raw=True)
        kept = got.copy()
        loaded.memory(model.graph.outputs[0].value)[:] ^= 0x55
        assert np.array_equal(got, kept)
        assert not np.array_equal(loaded.get_output(0, raw=True), kept)
