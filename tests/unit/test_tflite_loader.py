"""The TFLite reader: graphs from good files, and a clear message for every bad file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.compiler import ModelError, compile_model
from rkcosim.compiler.graph import Binary, Clamp, Conv, OnHost, Pad, Pool
from rkcosim.compiler.loaders import is_tflite, load_model, load_tflite, tflite_data
from rkcosim.compiler.options import using_options
from tests.makers.tflite_models import Tf

IMAGE = (1, 6, 7, 8)


def small() -> tuple[Tf, bytes]:
    t = Tf()
    x = t.input(IMAGE)
    y = t.conv(x, 16, 3, 2, FusedActivationFunction=3)
    y = t.depthwise(y, 3)
    y = t.add("MEAN", [y, t.ints([1, 2])], (1, 16), scale=0.02)
    return t, t.bytes(t.dense(y, 4))


def test_graph() -> None:
    _, data = small()
    assert is_tflite(data)
    graph = load_model(data)
    assert [op.kind for op in graph.ops] == ["Conv", "DepthwiseConv", "GlobalAveragePool", "FullyConnected"]
    conv, _, mean, _ = graph.ops
    assert isinstance(conv, Conv) and isinstance(mean, Pool)
    assert conv.weights.shape == (16, 8, 3, 3) and conv.clamp == Clamp(0.0, 6.0)
    assert conv.window.pads == (0, 1, 1, 1)  # 6 rows: one more below; 7 columns: both sides
    assert mean.whole and graph.inputs[0].shape == (1, 8, 6, 7)
    assert graph.tensors[conv.output].cube == (16, 3, 4)


def test_unsigned() -> None:
    t = Tf(dtype="uint8")
    x = t.input(IMAGE, zero=130)
    graph = load_tflite(t.bytes(t.conv(x, 4)))
    conv = graph.ops[0]
    assert isinstance(conv, Conv)
    assert graph.tensors["x"].zero_point == 2 and graph.tensors["x"].unsigned
    assert conv.weight_zero_point == 131 - 128
    assert np.array_equal(conv.weights.transpose(0, 2, 3, 1).astype(int) + 128, t.items[1].data.astype(int))


def test_host_and_movement() -> None:
    t = Tf()
    x = t.input(IMAGE)
    padded = t.add("PAD", [x, t.ints([[0, 0], [1, 0], [0, 2], [0, 0]])], (1, 7, 9, 8))
    flat = t.add("RESHAPE", [padded, t.ints([1, 63, 8])], (1, 63, 8))
    turned = t.add("TRANSPOSE", [flat, t.ints([0, 2, 1])], (1, 8, 63))
    total = t.add("ADD", [turned, t.constant((63,))], (1, 8, 63))
    graph = load_tflite(t.bytes(total))
    assert [type(op) for op in graph.ops] == [Pad, OnHost, Binary]
    assert len(graph.aliases) == 1  # the reshape keeps the bytes where they are


def test_pad_becomes_part_of_a_convolution() -> None:
    t = Tf()
    x = t.input(IMAGE)
    edges = t.ints([[0, 0], [1, 0], [0, 2], [0, 0]])
    padded = t.add("PAD", [x, edges], (1, 7, 9, 8))
    first = t.conv(padded, 4, 3, Padding=1)
    model = compile_model(t.bytes(first))
    (step,) = model.plan.steps
    assert step.kind == "Conv" and step.window.pads == (1, 0, 0, 2)  # type: ignore[attr-defined]
    assert compile_model(t.bytes(first, t.depthwise(padded, 3))).plan.steps[0].kind == "Pad"


def bad(change: Callable[[Tf], int]) -> bytes:
    t = Tf()
    t.input(IMAGE)
    return t.bytes(change(t))


def without_quantisation(t: Tf) -> int:
    y = t.conv(0, 4)
    t.items[y].scale = None
    return y


def of_type(dtype: str) -> Callable[[Tf], int]:
    def change(t: Tf) -> int:
        y = t.conv(0, 4)
        t.items[y].dtype = dtype
        return y

    return change


def with_shape(index: int, shape: tuple[int, ...]) -> Callable[[Tf], int]:
    def change(t: Tf) -> int:
        y = t.conv(0, 4)
        t.items[index if index >= 0 else y].shape = shape
        return y

    return change


def several_bad(t: Tf) -> int:
    a, b = t.conv(0, 4), t.conv(0, 4)
    t.items[a].shape = t.items[b].shape = (1, 1, 1, 4)
    return t.add("ADD", [a, b], (1, 1, 1, 4))


BAD: dict[str, tuple[str, Callable[[Tf], int]]] = {
    "operators": (
        "unsupported operators: SIN 't2', COS 't3'",
        lambda t: t.add("COS", [t.add("SIN", [t.add("RELU", [0], IMAGE)], IMAGE)], IMAGE),
    ),
    "all nodes": (r"CONV_2D 't3': output .*; CONV_2D 't6': output", several_bad),
    "no quantisation": ("CONV_2D 't3': tensor 't3' has no quantisation", without_quantisation),
    "float": ("'x' is int8 and the result float32", of_type("float32")),
    "output": (r"'t3' .* should be \(4, 6, 7\)", with_shape(-1, (1, 5, 7, 4))),
    "batch": (r"shape \(2, 6, 7, 8\)", with_shape(0, (2, 6, 7, 8))),
    "overflow": (r"'x': shape .* is not supported", with_shape(0, (1, 65536, 65536, 65536))),
    "negative": (r"'x': shape .* is not supported", with_shape(0, (1, -1, 7, 8))),
    "weights": ("bytes of data for int8", with_shape(1, (4, 3, 3, 7))),
    "axes": (
        "a reduction of the channels that removes their dimension",
        lambda t: t.add("MEAN", [0, t.ints([3])], (1, 6, 7)),
    ),
    "masks": (
        "ShrinkAxisMask changes the dimensions",
        lambda t: t.add(
            "STRIDED_SLICE", [0, t.ints([0] * 4), t.ints(IMAGE), t.ints([1] * 4)], IMAGE, ShrinkAxisMask=1
        ),
    ),
    "shapes": ("cannot be combined|should be", lambda t: t.add("ADD", [0, t.conv(0, 8, 1, 2)], IMAGE)),
    "slope": ("not per channel", lambda t: t.add("PRELU", [0, t.constant((6, 7, 8))], IMAGE)),
    "activation": ("the fused activation is TANH", lambda t: t.conv(0, 4, FusedActivationFunction=4)),
    "stride": (
        "StrideH is 0",
        lambda t: t.add("MAX_POOL_2D", [0], IMAGE, FilterHeight=1, FilterWidth=1, StrideW=1),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_model_is_named(name: str) -> None:
    words, change = BAD[name]
    with pytest.raises(ModelError, match=words), using_options(fallback=False):
        compile_model(bad(change))


def test_truncated_and_damaged() -> None:
    """Any damage: a clear error, or a model that compiles.  The share that passes the reader is checked."""
    _, data = small()
    for size in range(8, len(data), 97):
        with pytest.raises(ModelError):
            compile_model(data[:size])
    rng = np.random.default_rng(588)
    past, taken = 0, 0
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            changed[8 + rng.integers(len(data) - 8)] = rng.integers(256)
        try:
            compile_model(bytes(changed))
            taken += 1
        except ModelError as error:
            past += "damaged TFLite" not in str(error)
    assert taken + past > 60 and taken > 20


def test_other_files() -> None:
    for data in (b"\x1c\0\0\0TFL3", b"\x1c\0\0\0TFL3" + bytes(64), b"\xff" * 4 + b"TFL3" + b"\xff" * 64):
        with pytest.raises(ModelError, match="TFLite"):
            compile_model(data)


class Level:
    """One level of a sparse tensor as the schema's reader presents it."""

    def __init__(self, size: int = 0, segments: list[int] | None = None, indices: list[int] | None = None):
        self.size, self.vectors = size, (segments, indices)

    def Format(self) -> int:
        return int(self.vectors[0] is not None)

    def DenseSize(self) -> int:
        return self.size


class Sparsity:
    """Sparsity parameters as the schema's reader presents them."""

    def __init__(self, order: list[int], blocks: list[int], levels: list[Level]) -> None:
        self.order, self.blocks, self.levels = order, blocks, levels

    def TraversalOrderAsNumpy(self) -> np.ndarray:
        return np.array(self.order, np.int32)

    def BlockMapAsNumpy(self) -> np.ndarray:
        return np.array(self.blocks, np.int32)

    def DimMetadataLength(self) -> int:
        return len(self.levels)

    def DimMetadata(self, level: int) -> Level:
        return self.levels[level]


def test_sparse_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 2 x 2, listed by column of blocks; wrong parameters are errors."""

    def vector(item: Level, which: str) -> np.ndarray:
        return np.array(item.vectors[which == "ArrayIndices"], np.int64)

    monkeypatch.setattr(tflite_data, "_index_vector", vector)
    dense = np.zeros((4, 6), np.int8)
    dense[0:2, 2:4], dense[2:4, 0:2], dense[2:4, 4:6] = [[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 1], [2, 3]]
    raw = np.concatenate([dense[2:4, 0:2], dense[0:2, 2:4], dense[2:4, 4:6]]).reshape(-1).view(np.uint8)
    rows = Level(0, [0, 1, 2, 3], [1, 0, 1])
    levels = [Level(3), rows, Level(2), Level(2)]
    good = Sparsity([1, 0, 2, 3], [0, 1], levels)
    assert np.array_equal(tflite_data._dense(good, raw, "w", (4, 6), "int8"), dense)
    for order, blocks, changed in (
        ([1, 0, 2, 2], [0, 1], levels),
        ([1, 0, 2, 3], [0, 0], levels),
        ([1, 0, 2, 3], [0, 1], [Level(4), rows, Level(2), Level(2)]),
        ([1, 0, 2, 3], [0, 1], [Level(3), Level(0, [0, 1, 2, 3], [1, 0, 2]), Level(2), Level(2)]),
        ([1, 0, 2, 3], [0, 1], [Level(3), Level(0, [0, 2, 1, 3], [1, 0, 1]), Level(2), Level(2)]),
    ):
        with pytest.raises(ModelError, match="sparsity parameters"):
            tflite_data._dense(Sparsity(order, blocks, changed), raw, "w", (4, 6), "int8")
    with pytest.raises(ModelError, match="8 bytes of data for 12 elements"):
        tflite_data._dense(good, raw[:8], "w", (4, 6), "int8")
    huge = Sparsity([0, 1], [], [Level(1 << 13), Level(1 << 13)])
    with pytest.raises(ModelError, match="sparsity parameters"):  # before 2^26 paths are listed
        tflite_data._dense(huge, raw, "w", (1 << 13, 1 << 13), "int8")
