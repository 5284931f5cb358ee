"""Pools that round their size up: after `exact_windows`, inference finds the sizes that onnxruntime gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime
from onnx import TensorProto, helper

from rkcosim.compiler.loaders.onnx_fold import inferred
from rkcosim.compiler.loaders.onnx_windows import exact_windows
from tests import seeds
from tests.extent import extent


def pool(rng: random.Random):
    """Return a model of a random pool with `ceil_mode` that onnxruntime takes, its input and its result."""
    while True:
        kernel, strides = ([rng.randint(1, 5) for _ in range(2)] for _ in range(2))
        pads = [rng.randint(0, kernel[axis % 2] - 1) for axis in range(4)]
        kind = rng.choice(("AveragePool", "AveragePool", "MaxPool"))
        more = {"count_include_pad": rng.randint(0, 1)} if kind == "AveragePool" else {}
        if rng.random() < 0.3:
            more["dilations"] = [rng.randint(1, 2) for _ in range(2)]
        node = helper.make_node(
            kind, ["x"], ["y"], kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=1, **more
        )
        x = np.random.default_rng(rng.randrange(1 << 30)).normal(size=(1, 2, rng.randint(4, 14), 9))
        graph = helper.make_graph(
            [node],
            "pool",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        try:
            return model, x.astype(np.float32), run(model, x.astype(np.float32))
        except Exception:  # windows larger than their input
            continue


def run(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_sizes_and_values_are_those_of_onnxruntime():
    rng, changed = random.Random(seeds.seed("pools")), 0
    for _ in range(extent(150, 3000)):
        model, x, want = pool(rng)
        if not np.isfinite(want).all():  # onnxruntime divides by the elements of an empty window
            continue
        made = exact_windows(model)
        shape = inferred(made).graph.output[0].type.tensor_type.shape
        assert tuple(dim.dim_value for dim in shape.dim) == want.shape, model
        assert np.array_equal(run(made, x), want), model
        changed += made is not model and len(made.graph.node) > 1
    assert changed  # some lose rows that no window uses
