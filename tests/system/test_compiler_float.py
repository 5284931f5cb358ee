"""Networks of floats as fp16: equal on both golden levels, near onnxruntime's binary32."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime

from rkcosim.compiler import compile_model
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import SHAPES, run

FLOAT_TOLERANCE = 3e-3
"""Largest error of fp16 results compared with binary32, relative to the largest result."""


@pytest.mark.parametrize("name", SHAPES)
def test_float_network(name: str) -> None:
    """The float networks as fp16: equal on both golden levels, near onnxruntime's binary32."""
    shape, build = SHAPES[name]
    net = Net(shape, len(name))
    data = net.model(build(net)).SerializeToString()
    x = net.rng.normal(size=shape).astype(np.float32)
    got, _ = run(compile_model(data, reuse=False), x)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": x})[0]
    assert got.shape == want.shape
    assert np.abs(got - want).max() < FLOAT_TOLERANCE * np.abs(want).max()


TILED_FLOAT = {
    "rows": (128, 48, 48, 5, 3, 1),
    "deep": (960, 9, 12, 17, 3, 1),
    "depthwise": (96, 60, 60, 96, 3, 96),
    "depthwise channels": (512, 6, 160, 512, 5, 512),
    "columns": (20, 3, 2100, 9, 3, 1),
    "uneven": (21, 20, 20, 37, 3, 1),
}


@pytest.mark.parametrize("name", TILED_FLOAT)
def test_tiled_floats(name: str) -> None:
    """fp16 layers larger than CBUF (values of both signs), and channel counts not divisible by an atom."""
    cin, height, width, cout, kernel, groups = TILED_FLOAT[name]
    net = Net((1, cin, height, width), 3)
    y = net.conv("x", cin, cout, kernel, groups=groups, pads=[kernel // 2] * 4)
    data = net.model(net.add("Relu", y)).SerializeToString()
    model = compile_model(data, reuse=False)
    assert (len(model.plan.tiles[0]) > 1) == (name != "uneven")
    x = np.random.default_rng(1).normal(size=(1, cin, height, width)).astype(np.float32)
    got, _ = run(model, x)
    assert (got > 0).mean() > 0.3


def test_normalisation_is_folded() -> None:
    net = Net((1, 5, 6, 6), 2)
    y = net.conv("x", 5, 8)
    parameters = [net.constant(net.rng.uniform(0.5, 1.5, 8)) for _ in range(4)]
    data = net.model(net.add("Relu", net.add("BatchNormalization", y, *parameters))).SerializeToString()
    model = compile_model(data)
    assert len(model.plan.steps) == 1
    x = net.rng.normal(size=(1, 5, 6, 6)).astype(np.float32)
    got, _ = run(model, x)
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert np.abs(got - want).max() < FLOAT_TOLERANCE * np.abs(want).max()
