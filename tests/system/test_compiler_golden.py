"""Compiled networks on the task-level golden model: equal to the graph level, near onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rkcosim.compiler import CompiledModel, LoadedModel, compile_conv_layer, compile_model
from rkcosim.compiler.graph import Clamp
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.makers.archives import arrays_of
from tests.system.qdq_models import Build, Net, make, reference

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def run(model: CompiledModel, *inputs: np.ndarray) -> tuple[np.ndarray, ModelChecker]:
    """Run on the golden device, assert both levels and all padding equal; return output 0."""
    loaded = LoadedModel(model, GoldenDriver())
    for index, values in enumerate(inputs):
        loaded.set_input(index, values)
    loaded.run()
    checker = ModelChecker(loaded, "device")
    verdict = checker.check(list(inputs))
    assert verdict.match, str(verdict.first)
    assert checker.check_memory() is None
    return loaded.get_output(0), checker


def separable(net: Net) -> str:
    x = net.conv("x", 3, 16, strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.add("Relu", x)
    x = net.conv(x, 16, 16, groups=16, pads=[1, 1, 1, 1])
    x = net.add("Relu", x)
    y = net.add("Relu", net.conv(x, 16, 16, 1))
    x = net.add("Add", x, y)
    x = net.add("GlobalAveragePool", x)
    x = net.add("Flatten", x)
    return net.add("Softmax", net.gemm(x, 16, 7), axis=1)


def tail(net: Net, x: str, channels: int) -> str:
    """Append a convolution: the quantiser gives scales to the inputs of a convolution."""
    return net.conv(x, channels, 8, 1)


def squeeze(net: Net, x: str) -> str:
    gate = net.add("Sigmoid", net.conv(net.add("GlobalAveragePool", x), 20, 20, 1))
    return net.add("Mul", x, gate)


def silu(net: Net, x: str) -> str:
    return net.add("Mul", x, net.add("Sigmoid", x))


def parts(net: Net, x: str, sizes: list[int], axis: int) -> str:
    first = net.add("Split", x, net.constant(np.array(sizes), np.int64), axis=axis)
    net.nodes[-1].output.append(f"{first}_rest")
    if axis == 1:
        return net.add("Concat", f"{first}_rest", first, axis=1)
    return net.add("Concat", first, f"{first}_rest", first, axis=axis)


def sliced(net: Net, x: str) -> str:
    bounds = ([16, 1, 0], [48, 7, 8], [1, 2, 3], [1, 1, 2])
    given = [net.constant(np.array(v), np.int64) for v in bounds]
    return net.conv(net.add("Slice", x, *given), 32, 8, 1)


def resize(net: Net, x: str, factor: float) -> str:
    scales = net.constant(np.array([1.0, 1.0, factor, factor]))
    return net.add(
        "Resize",
        x,
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def bilinear(net: Net, x: str, form: str, size: tuple[int, int]) -> str:
    sizes = net.constant(np.array([1, 20, *size]), np.int64)
    return net.add("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode=form)


def line(net: Net) -> str:
    """Convolutions and pools along a line (1, C, L), with constants per channel and position."""
    y = conv_line(net, "x", 12, 20, 5, pads=[2, 1], strides=[2])
    y = net.add("Relu", conv_line(net, y, 20, 20, 3, groups=20, dilations=[3], pads=[3, 3]))
    y = net.add("MaxPool", y, kernel_shape=[3], strides=[2], pads=[1, 0])
    y = net.add("Add", y, net.constant(net.rng.normal(size=(1, 20, 1)) * 0.2))
    y = conv_line(net, y, 20, 12, 1)
    return net.add("MatMul", y, net.constant(net.rng.normal(size=(12, 9)) / 3))


def conv_line(net: Net, x: str, cin: int, cout: int, kernel: int, groups: int = 1, **extra: object) -> str:
    weights = net.rng.normal(size=(cout, cin // groups, kernel)) / np.sqrt(cin / groups * kernel)
    return net.add("Conv", x, net.constant(weights), group=groups, kernel_shape=[kernel], **extra)


def hard_swish(net: Net, x: str) -> str:
    """HardSwish as exporters write it out."""
    gate = clip(net, net.add("Add", x, net.constant(np.array(3.0))), 0.0, 6.0)
    return net.add("Mul", net.add("Mul", x, gate), net.constant(np.array(1 / 6)))


def head(net: Net, channels: int) -> str:
    """Insert a convolution first, because the quantiser leaves a first pool or activation unquantised."""
    return net.conv("x", channels, channels, 1)


def clip(net: Net, x: str, low: float, high: float) -> str:
    return net.add("Clip", x, net.constant(np.array(low)), net.constant(np.array(high)))


SHAPES: dict[str, tuple[tuple[int, ...], Build]] = {
    "conv": ((1, 20, 9, 11), lambda n: n.conv("x", 20, 37, pads=[1, 1, 1, 1])),
    "conv no bias": ((1, 5, 9, 11), lambda n: n.conv("x", 5, 6, 2, bias=False)),
    "conv 1 channel": ((1, 1, 13, 17), lambda n: n.conv("x", 1, 8, strides=[2, 2], pads=[1, 1, 1, 1])),
    "conv 3 channels": ((1, 3, 21, 19), lambda n: n.conv("x", 3, 33, 5, strides=[2, 3], pads=[2, 1, 2, 3])),
    "conv 4 channels": ((1, 4, 8, 8), lambda n: n.conv("x", 4, 16, 1)),
    "conv dilated": ((1, 33, 15, 14), lambda n: n.conv("x", 33, 16, dilations=[2, 3], pads=[2, 3, 2, 3])),
    "conv same": ((1, 16, 7, 8), lambda n: n.conv("x", 16, 16, 3, strides=[2, 2], auto_pad="SAME_UPPER")),
    "conv groups": ((1, 24, 6, 6), lambda n: n.conv("x", 24, 12, groups=3, pads=[1, 1, 1, 1])),
    "depthwise": ((1, 40, 9, 10), lambda n: n.conv("x", 40, 40, groups=40, pads=[1, 1, 1, 1])),
    "depthwise stride": (
        (1, 100, 8, 7),
        lambda n: n.conv("x", 100, 100, 5, groups=100, strides=[2, 2], pads=[2, 2, 2, 2]),
    ),
    "depthwise multiplier": ((1, 8, 6, 6), lambda n: n.conv("x", 8, 16, groups=8)),
    "conv relu": ((1, 16, 6, 6), lambda n: n.add("Relu", n.conv("x", 16, 16))),
    "conv clip": ((1, 16, 6, 6), lambda n: clip(n, n.conv("x", 16, 16), 0.0, 0.8)),
    "conv clip both": ((1, 16, 6, 6), lambda n: clip(n, n.conv("x", 16, 16), -0.5, 0.4)),
    "relu": (
        (1, 7, 5, 5),
        lambda n: n.conv(n.add("Relu", n.add("MaxPool", head(n, 7), kernel_shape=[2, 2])), 7, 8),
    ),
    "add": (
        (1, 24, 6, 5),
        lambda n: n.add("Add", n.conv("x", 24, 24, 1), n.conv("x", 24, 24, pads=[1, 1, 1, 1])),
    ),
    "add relu": (
        (1, 24, 6, 5),
        lambda n: n.add("Relu", n.add("Add", "x", n.conv("x", 24, 24, pads=[1, 1, 1, 1]))),
    ),
    "add self": ((1, 16, 4, 4), lambda n: n.add("Add", *[n.conv("x", 16, 16, 1)] * 2)),
    "max pool": (
        (1, 18, 9, 9),
        lambda n: n.add("MaxPool", head(n, 18), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ),
    "max pool ceil": (
        (1, 16, 8, 7),
        lambda n: n.add("MaxPool", head(n, 16), kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    ),
    "average pool": ((1, 18, 9, 9), lambda n: n.add("AveragePool", head(n, 18), kernel_shape=[3, 3])),
    "average pool padded": (
        (1, 16, 9, 9),
        lambda n: n.add(
            "AveragePool",
            head(n, 16),
            kernel_shape=[2, 2],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            count_include_pad=1,
        ),
    ),
    "global average": ((1, 70, 6, 7), lambda n: n.add("GlobalAveragePool", "x")),
    "global average large": ((1, 5, 24, 31), lambda n: n.add("GlobalAveragePool", "x")),
    "global average huge": ((1, 5, 56, 40), lambda n: n.add("GlobalAveragePool", "x")),
    "global average huge, uneven": ((1, 20, 37, 9), lambda n: n.add("GlobalAveragePool", "x")),
    "global average huge, wide": ((1, 3, 90, 130), lambda n: n.add("Relu", n.add("GlobalAveragePool", "x"))),
    "wide add": (
        (1, 16, 2, 2100),
        lambda n: n.add("Relu", n.add("Add", "x", n.conv("x", 16, 16, pads=[1, 1, 1, 1]))),
    ),
    "wide conv transpose": (
        (1, 6, 2, 1100),
        lambda n: n.conv_transpose("x", 6, 5, 3, strides=[2, 2], pads=[1, 1, 1, 1]),
    ),
    "flatten gemm": ((1, 20, 4, 3), lambda n: n.gemm(n.add("Flatten", "x"), 240, 35)),
    "gemm scaled": ((1, 24), lambda n: n.gemm("x", 24, 5, alpha=0.5, beta=2.0)),
    "matmul": ((6, 24), lambda n: n.add("MatMul", "x", n.constant(n.rng.normal(size=(24, 10))))),
    "matmul add": (
        (1, 24),
        lambda n: n.add(
            "Add",
            n.add("MatMul", "x", n.constant(n.rng.normal(size=(24, 10)))),
            n.constant(n.rng.normal(size=10)),
        ),
    ),
    "reshape gemm": (
        (1, 8, 2, 2),
        lambda n: n.gemm(n.add("Reshape", "x", n.constant(np.array([1, -1]), np.int64)), 32, 4),
    ),
    "separable": ((1, 3, 24, 24), separable),
    "sub": (
        (1, 24, 6, 5),
        lambda n: tail(n, n.add("Sub", n.conv("x", 24, 24, 1), n.conv("x", 24, 24, 1)), 24),
    ),
    "mul constant": (
        (1, 24, 6, 5),
        lambda n: n.add("Mul", head(n, 24), n.constant(n.rng.normal(size=(24, 1, 1)))),
    ),
    "max": (
        (1, 24, 6, 5),
        lambda n: tail(n, n.add("Max", n.conv("x", 24, 24, 1), n.conv("x", 24, 24, 1)), 24),
    ),
    "min scalar": (
        (1, 24, 6, 5),
        lambda n: tail(n, n.add("Min", head(n, 24), n.constant(np.array(0.3))), 24),
    ),
    "squeeze and excite": ((1, 20, 6, 5), lambda n: squeeze(n, n.conv("x", 20, 20))),
    "silu": ((1, 20, 6, 5), lambda n: silu(n, n.conv("x", 20, 20))),
    "tanh": ((1, 20, 6, 5), lambda n: tail(n, n.add("Tanh", n.conv("x", 20, 20)), 20)),
    "hard swish": ((1, 20, 6, 5), lambda n: tail(n, n.add("HardSwish", n.conv("x", 20, 20)), 20)),
    "leaky relu": ((1, 20, 6, 5), lambda n: n.add("LeakyRelu", n.conv("x", 20, 20), alpha=0.13)),
    "prelu": (
        (1, 20, 6, 5),
        lambda n: tail(
            n, n.add("PRelu", n.conv("x", 20, 20), n.constant(n.rng.uniform(0.05, 0.6, (20, 1, 1)))), 20
        ),
    ),
    "conv transpose": (
        (1, 20, 6, 5),
        lambda n: n.conv_transpose("x", 20, 12, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    ),
    "conv transpose groups": (
        (1, 20, 6, 5),
        lambda n: n.conv_transpose("x", 20, 20, 4, groups=20, strides=[4, 2], pads=[0, 1, 0, 1]),
    ),
    "conv transpose 3": ((1, 20, 6, 5), lambda n: n.conv_transpose("x", 20, 12, strides=[3, 3])),
    "concat": (
        (1, 16, 6, 5),
        lambda n: n.conv(
            n.add("Concat", n.conv("x", 16, 32, 1), n.conv("x", 16, 9, 3, pads=[1] * 4), axis=1), 41, 8
        ),
    ),
    "concat rows": (
        (1, 20, 6, 5),
        lambda n: n.add("Concat", n.conv("x", 20, 20, 1), n.conv("x", 20, 20, pads=[1] * 4), axis=2),
    ),
    "split": ((1, 48, 6, 5), lambda n: parts(n, n.conv("x", 48, 48, 1), [16, 32], 1)),
    "split columns": ((1, 20, 6, 5), lambda n: parts(n, n.conv("x", 20, 20, 1), [2, 3], 3)),
    "slice": ((1, 48, 8, 8), lambda n: sliced(n, n.conv("x", 48, 48, 1))),
    "pad": (
        (1, 20, 6, 5),
        lambda n: n.conv(
            n.add("Pad", head(n, 20), n.constant(np.array([0, 0, 1, 2, 0, 0, 2, 1]), np.int64)), 20, 8
        ),
    ),
    "transpose": (
        (1, 20, 6, 5),
        lambda n: n.conv(n.add("Transpose", n.conv("x", 20, 20, 1), perm=[0, 3, 1, 2]), 5, 8, 1),
    ),
    "resize": ((1, 20, 6, 5), lambda n: n.conv(resize(n, n.conv("x", 20, 20, 1), 2.0), 20, 8)),
    "resize uneven": ((1, 20, 6, 5), lambda n: n.conv(resize(n, n.conv("x", 20, 20, 1), 1.7), 20, 8)),
    "mean": (
        (1, 20, 6, 5),
        lambda n: n.gemm(n.add("ReduceMean", n.conv("x", 20, 20, 1), axes=[2, 3], keepdims=0), 20, 7),
    ),
    "global max": ((1, 20, 6, 5), lambda n: tail(n, n.add("GlobalMaxPool", n.conv("x", 20, 20, 1)), 20)),
    "average pool excluding": (
        (1, 16, 9, 9),
        lambda n: n.add("AveragePool", head(n, 16), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ),
    "moving reshape": (
        (1, 16, 4, 6),
        lambda n: n.conv(
            n.add("Reshape", n.conv("x", 16, 16, 1), n.constant(np.array([1, 32, 2, 6]), np.int64)), 32, 8, 1
        ),
    ),
    "conv transpose large": (
        (1, 6, 40, 44),
        lambda n: n.conv_transpose("x", 6, 5, 4, strides=[2, 2], pads=[1, 1, 1, 1]),
    ),
    "conv transpose large, dilated": (
        (1, 6, 20, 24),
        lambda n: n.conv_transpose("x", 6, 5, 3, strides=[4, 4], pads=[0, 1, 2, 1], dilations=[3, 1]),
    ),
    "conv transpose large, groups": (
        (1, 12, 20, 24),
        lambda n: n.conv_transpose("x", 12, 12, 3, groups=12, strides=[2, 2], output_padding=[1, 0]),
    ),
    "concat uneven": (
        (1, 16, 6, 5),
        lambda n: tail(
            n,
            n.add("Concat", n.conv("x", 16, 5, 1), n.conv("x", 16, 9, 1), n.conv("x", 16, 20, 1), axis=1),
            34,
        ),
    ),
    "slice channels": (
        (1, 40, 6, 5),
        lambda n: tail(
            n,
            n.add(
                *("Slice", n.conv("x", 40, 40, 1)),
                *(n.constant(np.array(v), np.int64) for v in ([3, 1], [33, 6], [1, 2], [2, 1])),
            ),
            15,
        ),
    ),
    "pad channels": (
        (1, 20, 6, 5),
        lambda n: tail(
            n, n.add("Pad", head(n, 20), n.constant(np.array([0, 3, 1, 2, 0, 9, 2, 1]), np.int64)), 32
        ),
    ),
    "depth to space": (
        (1, 24, 6, 5),
        lambda n: tail(n, n.add("DepthToSpace", n.conv("x", 24, 24, 1), blocksize=2, mode="CRD"), 6),
    ),
    "depth to space 4": (
        (1, 48, 3, 5),
        lambda n: tail(n, n.add("DepthToSpace", n.conv("x", 48, 48, 1), blocksize=4), 3),
    ),
    "space to depth": (
        (1, 5, 6, 9),
        lambda n: tail(n, n.add("SpaceToDepth", n.conv("x", 5, 5, 1), blocksize=3), 45),
    ),
    "resize 3": ((1, 20, 6, 5), lambda n: tail(n, resize(n, n.conv("x", 20, 20, 1), 3.0), 20)),
    **{
        f"bilinear {form} {size}": (
            (1, 20, 6, 5),
            lambda n, form=form, size=size: tail(n, bilinear(n, n.conv("x", 20, 20, 1), form, size), 20),
        )
        for form, size in (
            ("half_pixel", (12, 20)),
            ("half_pixel", (6, 10)),
            ("asymmetric", (24, 40)),
            ("align_corners", (11, 33)),
            ("align_corners", (81, 65)),
            ("pytorch_half_pixel", (12, 10)),
        )
    },
    "written hard swish": (
        (1, 20, 6, 5),
        lambda n: tail(n, hard_swish(n, n.conv("x", 20, 20, 1)), 20),
    ),
    "mean of channels": (
        (1, 20, 6, 5),
        lambda n: tail(n, n.add("ReduceMean", n.conv("x", 20, 20, 1), axes=[1], keepdims=1), 1),
    ),
    "mean of rows": (
        (1, 20, 6, 5),
        lambda n: tail(n, n.add("ReduceMean", n.conv("x", 20, 20, 1), axes=[-2], keepdims=1), 20),
    ),
    "max of columns": (
        (1, 20, 6, 5),
        lambda n: tail(n, n.add("ReduceMax", n.conv("x", 20, 20, 1), axes=[3], keepdims=1), 20),
    ),
    "line": ((1, 12, 50), lambda n: line(n)),
    "softmax inside": (
        (1, 16, 4, 6),
        lambda n: n.conv(n.add("Softmax", n.conv("x", 16, 16, 1), axis=1), 16, 8, 1),
    ),
}
OPTIONS: dict[str, dict[str, bool]] = {
    "int8": {},
    "uint8": {"unsigned": True},
    "symmetric": {"symmetric": True, "per_channel": False},
    "uint8 weights": {"unsigned": True, "weights_unsigned": True, "per_channel": False},
}


def step_of(model: CompiledModel) -> float:
    """Return the smallest step of the output in real numbers."""
    info = model.outputs[0]
    return info.scale if info.quantised else 1 / 256


def ties(model: CompiledModel) -> bool:
    """Whether the PPU averages: it rounds exact halves in its own way [HW 9.3]."""
    return any(step.kind == "AveragePool" for step in model.plan.steps)


NEWER = list(SHAPES).index("sub")
"""From here on two of the options are sufficient: weights have no effect in most of these."""
CASES = [
    (name, options)
    for number, name in enumerate(SHAPES)
    for options in (OPTIONS if number < NEWER else ("int8", "uint8"))
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_network(name: str, options: str) -> None:
    """Equal on both golden levels; at most one step from onnxruntime, rarely and in one layer."""
    shape, build = SHAPES[name]
    data, x = make(shape, build, seed=len(name), **OPTIONS[options])
    model = compile_model(data, reuse=False)
    got, _ = run(model, x)
    want = reference(data, x)
    assert got.shape == want.shape
    steps = np.abs(got - want) / step_of(model)
    if "huge" in name:  # in steps of an average, much finer than the input's
        assert steps.max() < 1.01
        assert not any(isinstance(step, HostStep) for step in model.plan.steps)
        return
    shallow = len(model.plan.steps) <= 2 and name != "wide add"  # enough elements for a rare second rounding
    assert steps.max() < (1.01 if shallow else 4.01), f"{steps.max()} steps away"
    assert (steps > 0.5).mean() < (0.2 if ties(model) else 0.03 if shallow else 0.5)


def test_expected_lowering() -> None:
    """The cases above use the paths that they are meant to test."""
    kinds = {}
    for name in ("conv clip both", "average pool padded", "global average", "relu", "conv 3 channels"):
        shape, build = SHAPES[name]
        kinds[name] = compile_model(make(shape, build, symmetric=True)[0]).plan
    low, high = kinds["conv clip both"].steps[1].limits
    assert low < 0 < high
    assert kinds["average pool padded"].tasks[1].blocks == ("PPU", "PPU_RDMA")
    assert kinds["global average"].tasks[0].blocks[0] == "CNA"
    assert any(task.blocks == ("DPU", "DPU_RDMA") for task in kinds["relu"].tasks)
    assert next(iter(kinds["conv 3 channels"].places.values())).argb == 3


MOVED = [
    name
    for name in SHAPES
    if name.startswith(
        ("conv transpose", "concat", "slice", "pad", "resize", "bilinear", "space", "depth to")
    )
]


@pytest.mark.parametrize("name", sorted(set(MOVED) - {"conv transpose 3", "resize uneven"}))
@pytest.mark.parametrize("floats", [False, True])
def test_moved_by_the_npu(name: str, floats: bool) -> None:
    """Data are moved by the NPU, also channels that do not fill atoms."""
    shape, build = SHAPES[name]
    if floats:
        net = Net(shape, len(name))
        data = net.model(build(net)).SerializeToString()
    else:
        data = make(shape, build)[0]
    assert not [s for s in compile_model(data).plan.steps if isinstance(s, HostStep | CallStep)]


TILED = {
    "rows": (dict(channels=256, kernels=64, height=40, width=40, kernel=3, pad=1), 2, 1),
    "rows of pixels": (dict(channels=3, kernels=32, height=240, width=224, kernel=3, stride=2, pad=1), 2, 1),
    "one pixel channel": (dict(channels=1, kernels=16, height=460, width=70, kernel=3), 2, 1),
    "kernels": (dict(channels=1408, kernels=40, height=9, width=12, kernel=3, pad=1), 1, 3),
    "rows and kernels": (dict(channels=512, kernels=64, height=14, width=112, kernel=3, pad=1), 2, 2),
    "depthwise rows": (
        dict(channels=128, kernels=128, height=90, width=60, kernel=3, pad=1, depthwise=True),
        2,
        1,
    ),
    "one stripe": (dict(channels=512, kernels=64, height=7, width=7, kernel=7), 1, 1),
    "stride above kernel": (dict(channels=512, kernels=33, height=64, width=32, kernel=1, stride=3), 2, 1),
}


DIVIDED = {
    "wide": (dict(channels=16, kernels=24, height=2, width=2500, kernel=3, pad=1), 2, 1),
    "wide first layer": (dict(channels=1, kernels=16, height=1, width=5000, kernel=(1, 15), stride=4), 2, 1),
    "slabs": (dict(channels=512, kernels=16, height=3, width=600, kernel=1), 3, 1),
    "wide rows of many channels": (
        dict(channels=512, kernels=16, height=7, width=240, kernel=7, pad=3),
        2,
        1,
    ),
    "depthwise channels": (
        dict(channels=512, kernels=512, height=12, width=320, kernel=5, pad=2, depthwise=True),
        1,
        2,
    ),
    "depthwise columns": (
        dict(channels=70, kernels=70, height=3, width=2100, kernel=3, pad=1, stride=2, depthwise=True),
        2,
        1,
    ),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_divided(name: str) -> None:
    """Layers whose rows do not fit CBUF are divided by columns, or by channels if they are depthwise."""
    settings, columns, kernels = DIVIDED[name]
    model = compile_conv_layer(**settings, relu=True, seed=7)
    tiles = model.plan.tiles[0]
    assert len({t.first_column for t in tiles}) >= columns, str(model.plan)
    assert len({t.first_kernel for t in tiles}) >= kernels, str(model.plan)
    info = model.inputs[0]
    run(model, np.random.default_rng(1).integers(-128, 128, info.shape, dtype=np.int8))


@pytest.mark.parametrize("name", TILED)
def test_tiled(name: str) -> None:
    """Layers larger than CBUF are divided by rows or kernels and still give the graph level's bytes."""
    settings, rows, kernels = TILED[name]
    model = compile_conv_layer(**settings, relu=True, seed=7)
    tiles = model.plan.tiles[0]
    assert len({t.first_row for t in tiles}) >= rows, str(model.plan)
    assert len({t.first_kernel for t in tiles}) >= kernels, str(model.plan)
    info = model.inputs[0]
    x = np.random.default_rng(3).integers(-128, 128, info.shape).astype(np.int8)
    got, _ = run(model, x)
    assert np.unique(got).size > 20


CLAMPS = [(0, 31.4), (-20.3, 40.0), (-33.0, np.inf), (-np.inf, 17.0), (7.0, 50.0), (-500.0, 500.0)]


@pytest.mark.parametrize("limits", CLAMPS)
@pytest.mark.parametrize("depthwise", [False, True])
def test_fused_clamp(limits: tuple[float, float], depthwise: bool) -> None:
    """Clamps inside a convolution's task, with any limits."""
    model = compile_conv_layer(32, 32, 6, 5, kernel=3, pad=1, depthwise=depthwise, clamp=Clamp(*limits))
    assert len(model.plan.tasks) == 1
    x = np.random.default_rng(3).integers(-128, 128, (1, 32, 6, 5)).astype(np.int8)
    got, _ = run(model, x)
    steps = np.rint(got / step_of(model))
    zero = model.outputs[0].zero_point
    low, high = max(np.rint(limits[0]), -128 - zero), min(np.rint(limits[1]), 127 - zero)
    assert steps.min() == low or (steps.min() > low and low < -100)
    assert steps.max() == high or (steps.max() < high and high > 100)


def test_digits() -> None:
    """The whole digits network: labels equal onnxruntime's, every layer is equal on both levels."""
    data = (DIGITS / "digits_int8.onnx").read_bytes()
    held_back = arrays_of(DIGITS / "held_back.npz")
    images = (held_back["images"] / 16).astype(np.float32)[:, None, None]
    model = compile_model(data, reuse=False)
    loaded = LoadedModel(model, GoldenDriver())
    checker = ModelChecker(loaded, "device")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    right = 0
    for number, image in enumerate(images[:30]):
        loaded.set_input(0, image)
        loaded.run()
        got = loaded.get_output(0)
        right += int(got.argmax()) == int(held_back["labels"][number])
        assert got.argmax() == session.run(None, {"image": image})[0].argmax()
        if number < 3:
            verdict = checker.check([image])
            assert verdict.match, str(verdict.first)
    assert right >= 28


def test_difference_is_named() -> None:
    """A wrong byte on the device is reported with layer, coordinate and address."""
    model = compile_conv_layer(20, 40, 5, 6, kernel=3, pad=1)
    loaded = LoadedModel(model, GoldenDriver())
    x = np.random.default_rng(3).integers(-128, 128, (1, 20, 5, 6)).astype(np.int8)
    loaded.set_input(0, x)
    loaded.run()
    checker = ModelChecker(loaded, "device")
    assert checker.check([x]).match
    memory = loaded.memory("y")
    at = (2 * 30 + 3 * 6 + 4) * 16 + 1  # channel 33, row 3, column 4
    memory[at] ^= 0x55
    first = checker.check([x]).first
    assert first is not None and first.coordinate == (33, 3, 4) and first.count == 1
    assert first.address == loaded.bases["activations"] + model.plan.place("y").ref.offset + at
    assert "device" in str(first) and "'y'" in str(first)
    assert checker.check_memory() == first.address
