"""Every TFLite operator: task golden = graph golden bit for bit, compared with LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import HostStep
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.draw import random_reals
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.makers.tflite_models import Tf

Build = Callable[[Tf], int]
IMAGE = (1, 9, 10, 20)


def pad(t: Tf, x: int, edges: list[list[int]]) -> int:
    shape = tuple(n + sum(e) for n, e in zip(t.items[x].shape, edges, strict=True))
    return t.add("PAD", [x, t.ints(edges)], shape, zero=t.items[x].zero, scale=t.items[x].scale)


def pool(t: Tf, op: str, x: int, kernel: int, stride: int, same: bool, **more: object) -> int:
    _, h, w, c = t.items[x].shape
    size = [-(-n // stride) if same else (n - kernel) // stride + 1 for n in (h, w)]
    options = dict(FilterHeight=kernel, FilterWidth=kernel, StrideH=stride, StrideW=stride)
    return t.add(op, [x], (1, *size, c), Padding=int(not same), **options, **more)


def split(t: Tf, x: int, axis: int, parts: int) -> int:
    shape = list(t.items[x].shape)
    shape[axis] //= parts
    outputs = [t.tensor(tuple(shape)) for _ in range(parts)]
    t.nodes.append(("SPLIT", [t.ints(np.int32(axis)), x], outputs, {"NumSplits": parts}))
    total = outputs[0]
    for number, other in enumerate(outputs[1:]):
        total = t.add("ADD" if number % 2 else "SUB", [total, other], tuple(shape), scale=0.11)
    return total


def dense_after_flatten(t: Tf, x: int) -> int:
    n = int(np.prod(t.items[x].shape))
    return t.dense(t.add("RESHAPE", [x, t.ints([1, n])], (1, n), scale=t.items[x].scale), 11)


def swapped(t: Tf, x: int) -> int:
    _, h, w, c = t.items[x].shape
    y = t.add("TRANSPOSE", [x, t.ints([0, 2, 3, 1])], (1, w, c, h))
    return t.add("RESHAPE", [y, t.ints([1, h * w, c])], (1, h * w, c))


def heads(t: Tf, x: int, count: int) -> int:
    _, tokens, _, channels = t.items[x].shape
    same = {"scale": t.items[x].scale, "zero": t.items[x].zero}
    size = channels // count
    y = t.add("RESHAPE", [x, t.ints([1, tokens, count, size])], (1, tokens, count, size), **same)
    return t.add("TRANSPOSE", [y, t.ints([0, 2, 1, 3])], (1, count, tokens, size), **same)


def nearest(t: Tf, x: int, h: int, w: int, **more: bool) -> int:
    return t.add("RESIZE_NEAREST_NEIGHBOR", [x, t.ints([h, w])], (1, h, w, t.items[x].shape[3]), **more)


def squeeze_excite(t: Tf, x: int) -> int:
    shape = t.items[x].shape
    small = t.add("MEAN", [x, t.ints([1, 2])], (1, 1, 1, shape[3]), KeepDims=True)
    gate = t.add("LOGISTIC", [t.conv(small, shape[3], 1)], (1, 1, 1, shape[3]), scale=1 / 256, zero=-128)
    return t.add("MUL", [x, gate], shape, scale=0.02)


def cat_channels(t: Tf, x: int, sizes: list[int], same: bool) -> int:
    scales = [0.05 if same else 0.04 + 0.02 * n for n in range(len(sizes))]
    parts = [t.conv(x, n, 1, scale=s) for n, s in zip(sizes, scales, strict=True)]
    shape = (*t.items[x].shape[:3], sum(sizes))
    return t.add("CONCATENATION", parts, shape, Axis=3, scale=0.05 if same else 0.08)


def cat_along(t: Tf, x: int, axis: int) -> int:
    parts = [x, t.conv(x, t.items[x].shape[3], 1, scale=0.05)]
    parts.append(t.add("MAXIMUM", [x, parts[1]], t.items[x].shape))
    shape = list(t.items[x].shape)
    shape[axis] *= 3
    return t.add("CONCATENATION", parts, tuple(shape), Axis=axis)


def strided(t: Tf, x: int, begin: list[int], end: list[int], steps: list[int]) -> int:
    shape = tuple(-(-(e - b) // s) for b, e, s in zip(begin, end, steps, strict=True))
    return t.add("STRIDED_SLICE", [x, t.ints(begin), t.ints(end), t.ints(steps)], shape)


CASES: dict[str, tuple[tuple[int, ...], Build]] = {
    "conv same": (IMAGE, lambda t: t.conv(0, 33, 3, 2)),
    "conv valid relu6": (IMAGE, lambda t: t.conv(0, 16, 3, 1, Padding=1, FusedActivationFunction=3)),
    "conv dilated": (
        IMAGE,
        lambda t: t.conv(0, 16, 3, 1, DilationHFactor=2, DilationWFactor=3, Padding=1),
    ),
    "conv grouped": (IMAGE, lambda t: t.conv(0, 12, 3, groups=4)),
    "conv of pixels": ((1, 17, 15, 3), lambda t: t.conv(0, 24, (5, 3), 2, FusedActivationFunction=1)),
    "depthwise": (IMAGE, lambda t: t.depthwise(0, 3, 2)),
    "depthwise multiplied": (IMAGE, lambda t: t.depthwise(0, 3, 1, 2, FusedActivationFunction=2)),
    "dense": ((1, 70), lambda t: t.dense(0, 35)),
    "dense of rows": ((6, 24), lambda t: t.dense(0, 35)),
    "dense after flatten": (IMAGE, lambda t: dense_after_flatten(t, t.conv(0, 8))),
    "transposed conv 2": (IMAGE, lambda t: t.transpose_conv(0, 12, 3, 2, True)),
    "transposed conv valid": (IMAGE, lambda t: t.transpose_conv(0, 40, 4, 2, False)),
    "transposed conv 1": (IMAGE, lambda t: t.transpose_conv(0, 12, 3, 1, True)),
    "transposed conv 3": (IMAGE, lambda t: t.transpose_conv(0, 12, 3, 3, True)),
    "add": (IMAGE, lambda t: t.add("ADD", [0, t.conv(0, 20)], IMAGE, scale=0.11, FusedActivationFunction=1)),
    "add clipped": (
        IMAGE,
        lambda t: t.add("ADD", [0, t.conv(0, 20)], IMAGE, scale=0.02, FusedActivationFunction=2),
    ),
    "add constant": (IMAGE, lambda t: t.add("ADD", [0, t.constant(IMAGE, 0.02)], IMAGE, scale=0.06)),
    "add per channel": (IMAGE, lambda t: t.add("ADD", [t.constant((20,), 0.02), 0], IMAGE, scale=0.06)),
    "sub": (IMAGE, lambda t: t.add("SUB", [0, t.conv(0, 20)], IMAGE, scale=0.11)),
    "sub scalar": (IMAGE, lambda t: t.add("SUB", [0, t.constant((), 0.02)], IMAGE, scale=0.06)),
    "mul": (IMAGE, lambda t: t.add("MUL", [0, t.conv(0, 20)], IMAGE, scale=0.2)),
    "mul per channel": (IMAGE, lambda t: t.add("MUL", [0, t.constant((1, 1, 1, 20))], IMAGE, scale=0.1)),
    "squeeze and excite": (IMAGE, lambda t: squeeze_excite(t, 0)),
    "maximum": (IMAGE, lambda t: t.add("MAXIMUM", [0, t.conv(0, 20, scale=0.05)], IMAGE)),
    "minimum": (IMAGE, lambda t: t.add("MINIMUM", [0, t.constant((20,))], IMAGE)),
    "max pool": (IMAGE, lambda t: pool(t, "MAX_POOL_2D", 0, 3, 2, True)),
    "max pool relu": (IMAGE, lambda t: pool(t, "MAX_POOL_2D", 0, 2, 2, False, FusedActivationFunction=1)),
    "average pool": (IMAGE, lambda t: pool(t, "AVERAGE_POOL_2D", 0, 3, 1, False)),
    "average pool same": (IMAGE, lambda t: pool(t, "AVERAGE_POOL_2D", 0, 3, 2, True)),
    "mean": (IMAGE, lambda t: t.add("MEAN", [0, t.ints([1, 2])], (1, 20), scale=0.01)),
    "pad": (IMAGE, lambda t: pad(t, 0, [[0, 0], [2, 1], [0, 3], [0, 0]])),
    "pad and conv": (
        IMAGE,
        lambda t: t.conv(pad(t, 0, [[0, 0], [1, 1], [1, 1], [0, 0]]), 16, 3, 2, Padding=1),
    ),
    "pad channels": (IMAGE, lambda t: pad(t, 0, [[0, 0], [0, 1], [0, 0], [1, 2]])),
    "softmax": (
        (1, 40),
        lambda t: t.add("SOFTMAX", [t.dense(0, 13)], (1, 13), scale=1 / 256, zero=-128, Beta=1.0),
    ),
    "softmax of a map": (
        IMAGE,
        lambda t: t.add("SOFTMAX", [t.conv(0, 6, 1)], (1, 9, 10, 6), scale=1 / 256, zero=-128, Beta=1.0),
    ),
    "relu": (IMAGE, lambda t: t.add("RELU", [0], IMAGE, scale=0.03, zero=-128)),
    "relu6": (IMAGE, lambda t: t.add("RELU6", [0], IMAGE, scale=0.03, zero=-128)),
    "leaky relu": (IMAGE, lambda t: t.add("LEAKY_RELU", [0], IMAGE, scale=0.043, Alpha=0.3)),
    "prelu": (IMAGE, lambda t: t.add("PRELU", [0, t.constant((1, 1, 20), 0.01)], IMAGE, scale=0.06)),
    "sigmoid": (IMAGE, lambda t: t.add("LOGISTIC", [0], IMAGE, scale=1 / 256, zero=-128)),
    "tanh": (IMAGE, lambda t: t.add("TANH", [0], IMAGE, scale=1 / 128, zero=0)),
    "hard swish": (IMAGE, lambda t: t.add("HARD_SWISH", [0], IMAGE, scale=0.03)),
    "concat channels": (IMAGE, lambda t: cat_channels(t, 0, [16, 32, 5], True)),
    "concat rescaled": (IMAGE, lambda t: cat_channels(t, 0, [16, 16], False)),
    "concat uneven": (IMAGE, lambda t: cat_channels(t, 0, [5, 7], True)),
    "concat rows": (IMAGE, lambda t: cat_along(t, 0, 1)),
    "concat columns": (IMAGE, lambda t: cat_along(t, 0, 2)),
    "split channels": ((1, 5, 6, 64), lambda t: split(t, 0, 3, 4)),
    "split uneven": ((1, 5, 6, 12), lambda t: split(t, 0, 3, 3)),
    "split rows": ((1, 6, 6, 12), lambda t: split(t, 0, 1, 3)),
    "slice": (IMAGE, lambda t: strided(t, 0, [0, 2, 1, 0], [1, 7, 8, 20], [1, 1, 1, 1])),
    "slice steps": (IMAGE, lambda t: strided(t, 0, [0, 1, 0, 3], [1, 8, 10, 17], [1, 2, 3, 2])),
    "transpose and reshape": (IMAGE, lambda t: t.dense(swapped(t, t.conv(0, 8, scale=0.05)), 5)),
    "transpose rows and columns": (
        IMAGE,
        lambda t: t.conv(t.add("TRANSPOSE", [0, t.ints([0, 2, 1, 3])], (1, 10, 9, 20)), 8, 3),
    ),
    "heads of tokens": ((1, 30, 1, 64), lambda t: t.conv(heads(t, 0, 4), 8)),
    "resize by 2": (IMAGE, lambda t: nearest(t, 0, 18, 40)),
    "resize by 1.5": (IMAGE, lambda t: nearest(t, 0, 15, 13, HalfPixelCenters=True)),
    "requantise": (IMAGE, lambda t: t.add("QUANTIZE", [0], IMAGE, scale=0.08, zero=11)),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_float_ends(dtype: str, tmp_path: Path) -> None:
    """A model with real input and output: its first and last node quantise and dequantise."""
    t = Tf(dtype=dtype)
    x = t.tensor(IMAGE, None, None, dtype="float32", name="x")
    t.inputs.append(x)
    y = t.conv(t.add("QUANTIZE", [x], IMAGE), 6)
    z = t.tensor(t.items[y].shape, None, None, dtype="float32")
    t.nodes.append(("DEQUANTIZE", [y], [z], {}))
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(z))
    model = compile_model(file.read_bytes(), reuse=False)
    run(model, random_reals(model.inputs, 5))
    found = compare(file, [random_reals(model.inputs, 5)])
    assert found.match and len(found.layers) == 1 and found.outputs[0].worst < 1.5


UNSIGNED = ["conv same", "depthwise", "dense", "add", "average pool", "max pool", "mean", "concat channels"]
HOSTED = {
    "transposed conv 3",
    "average pool same",
    "softmax",
    "softmax of a map",
    "transpose and reshape",
}
"""Cases of which a part runs on the host."""

BOUND: dict[str, int] = {}


def run(model: CompiledModel, values: list[np.ndarray]) -> None:
    """Run on the golden device; both levels must agree in every byte, padding included."""
    loaded = LoadedModel(model, GoldenDriver())
    for index, item in enumerate(values):
        loaded.set_input(index, item)
    loaded.run()
    checker = ModelChecker(loaded, "device")
    verdict = checker.check(values)
    assert verdict.match, str(verdict.first)
    assert checker.check_memory() is None


@pytest.mark.parametrize(
    "name", [*CASES, *(f"{name}, uint8" for name in UNSIGNED)], ids=lambda n: n.replace(" ", "-")
)
def test_operator(name: str, tmp_path: Path) -> None:
    base, _, kind = name.partition(", ")
    shape, build = CASES[base]
    t = Tf(seed=len(name), dtype=kind or "int8")
    t.input(shape)
    data = t.bytes(build(t))
    model = compile_model(data, reuse=False)
    run(model, random_reals(model.inputs, 5))
    assert any(isinstance(s, HostStep) for s in model.plan.steps) == (base in HOSTED)
    file = tmp_path / "model.tflite"
    file.write_bytes(data)
    if base == "concat rescaled":  # LiteRT refuses inputs of several scales
        return
    found = compare(file, [random_reals(model.inputs, 5)])
    assert found.layers and not found.skipped
    for layer in found.layers:
        assert layer.worst <= BOUND.get(base, 1), f"{layer.op}: {layer.histogram}"
        share = 0.2 if layer.op == "LeakyRelu" else 0.1  # LiteRT rounds its negative side twice
        assert layer.differing <= layer.elements * share, f"{layer.op}: {layer.histogram}"
