"""Convolutions whose kernels the model computes, as products of two matrices, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import compile_model
from rkcosim.compiler.steps import CallStep, ConvStep, HostStep, ProductStep
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import run
from tests.system.test_resize_ratios import reference


def dynamic(channels: int, kernels: int, taps: tuple[int, int], bias: bool, **attributes: object) -> Net:
    """Return a network whose last Conv has a kernel that a Gemm computes from the mean of its features."""
    net = Net((1, 3, 18, 20), channels)
    features = net.conv("x", 3, channels, pads=[1, 1, 1, 1])
    mean = net.add("Flatten", net.add("GlobalAveragePool", features))
    groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
    shape = (kernels, channels // groups, *taps)
    weights = net.rng.normal(size=(channels, int(np.prod(shape)))) / channels
    flat = net.add("Gemm", mean, net.constant(weights), net.constant(net.rng.normal(size=weights.shape[1])))
    inputs = [features, net.add("Reshape", flat, net.constant(np.array(shape), np.int64))]
    inputs += [net.constant(net.rng.normal(size=kernels))] if bias else []
    net.add("Relu", net.add("Conv", *inputs, **attributes))
    return net


@pytest.mark.parametrize(
    ("channels", "kernels", "taps", "bias", "more"),
    [
        (32, 8, (1, 1), False, {}),
        (24, 5, (1, 1), True, {}),
        (16, 9, (3, 3), True, {"pads": [1, 1, 1, 1]}),
        (8, 1, (5, 4), False, {"strides": [2, 1], "dilations": [1, 2]}),
    ],
)
def test_computed_kernel(
    channels: int, kernels: int, taps: tuple[int, int], bias: bool, more: dict[str, object]
) -> None:
    """The host brings at most the kernel, which is small, into rows."""
    net = dynamic(channels, kernels, taps, bias, **more)
    data = net.model(net.nodes[-1].output[0], opset=17).SerializeToString()
    x = net.rng.normal(size=net.shape).astype(np.float16).astype(np.float32)
    compiled = compile_model(data, reuse=False)
    assert any(isinstance(step, ProductStep) for step in compiled.plan.steps)
    hosted = [step for step in compiled.plan.steps if isinstance(step, HostStep)]
    assert all(step.output.elements <= 2048 for step in hosted)
    got, _ = run(compiled, x)
    want = reference(data, x)
    assert got.shape == want.shape and np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_groups_stay_on_the_host() -> None:
    """Each group would be a product of its own."""
    net = dynamic(16, 16, (3, 3), False, group=16)
    steps = compile_model(net.model(net.nodes[-1].output[0], opset=17).SerializeToString()).plan.steps
    said = [item for step in steps if isinstance(step, CallStep) for item in step.program.operators]
    (reason,) = (item.reason for item in said if item.kind == "Conv")
    assert "(16, 1, 3, 3) is computed by the model" in reason and "one group" in reason


def test_constant_kernels_stay_convolutions() -> None:
    """A kernel behind a Reshape of a constant is folded, and no product is made of it."""
    net = Net((1, 8, 9, 9), 2)
    kernel = net.add(
        "Reshape", net.constant(net.rng.normal(size=(72, 8))), net.constant([8, 8, 3, 3], np.int64)
    )
    data = net.model(net.add("Conv", "x", kernel), opset=17).SerializeToString()
    assert [type(step) for step in compile_model(data).plan.steps] == [ConvStep]
