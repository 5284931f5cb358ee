"""Convolutions of the host's kernels, against onnxruntime's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rkcosim.hostops.convolution import convolved, transposed
from rkcosim.hostops.geometry import Sliding, reach

Array = npt.NDArray[Any]
SEEDS = range(24)


def by_onnxruntime(kind: str, x: Array, w: Array, **attributes: Any) -> Array:
    """Return a convolution of float32, computed by onnxruntime."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("w", w))]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w"], ["y"], **attributes)],
        "convolution",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    made: Array = session.run(None, {"x": x.astype(np.float32), "w": w.astype(np.float32)})[0]
    return made


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Return small integers, of which float32 has every sum here exactly."""
    return rng.integers(-9, 10, shape)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions_are_those_of_onnxruntime(seed: int, dtype: type):
    rng = np.random.default_rng(seed)
    axes, groups = 1 + seed % 3, int(rng.integers(1, 4))
    depth, outputs = (1, 2) if seed % 4 == 0 else rng.integers(1, 4, 2).tolist()
    x = integers(rng, 2, depth * groups, *rng.integers(6, 9, axes)).astype(dtype)
    w = integers(rng, outputs * groups, depth, *rng.integers(1, 4, axes)).astype(dtype)
    strides, dilations = rng.integers(1, 4, axes).tolist(), rng.integers(1, 3, axes).tolist()
    before, after = rng.integers(0, 3, (2, axes)).tolist()
    wanted = by_onnxruntime(
        "Conv", x, w, group=groups, strides=strides, dilations=dilations, pads=before + after
    )
    sliding = Sliding.over(x.shape[2:], w.shape[2:], strides, before, after, dilations)
    found = convolved(x, w, sliding, groups)
    assert found.dtype == np.float64 and found.tolist() == wanted.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_transposed_convolutions_are_those_of_onnxruntime(seed: int):
    rng = np.random.default_rng(seed)
    axes, groups = 1 + seed % 2, int(rng.integers(1, 4))
    depth, outputs = rng.integers(1, 4, 2).tolist()
    x = integers(rng, 2, depth * groups, *rng.integers(2, 6, axes))
    w = integers(rng, depth * groups, outputs, *rng.integers(1, 4, axes))
    strides, dilations = rng.integers(1, 4, axes).tolist(), rng.integers(1, 3, axes).tolist()
    pads = rng.integers(0, 2, axes).tolist()
    more = [int(rng.integers(0, s)) for s in strides]  # onnxruntime has no larger ones
    counts = [
        (n - 1) * s + reach(k, d) + extra - 2 * pad
        for n, s, k, d, extra, pad in zip(
            x.shape[2:], strides, w.shape[2:], dilations, more, pads, strict=True
        )
    ]
    if min(counts) < 1:
        pads, counts = [0] * axes, [count + 2 * pad for count, pad in zip(counts, pads, strict=True)]
    wanted = by_onnxruntime(
        "ConvTranspose",
        x,
        w,
        group=groups,
        strides=strides,
        dilations=dilations,
        pads=pads * 2,
        output_padding=more,
    )
    found = transposed(x, w, strides, dilations, pads, counts, groups)
    assert found.tolist() == wanted.tolist()


def test_integers_stay_exact():
    """A sum of 2**52 and 1, which float32 does not have."""
    x, w = np.array([2**26, 1]).reshape(1, 2, 1), np.array([2**26, 1]).reshape(1, 2, 1)
    assert convolved(x, w, Sliding.over((1,), (1,), (1,), (0,), (0,))).item() == 2**52 + 1


def test_no_samples_make_no_samples():
    sliding = Sliding.over((4,), (2,), (1,), (0,), (0,))
    assert convolved(np.zeros((0, 2, 4)), np.zeros((5, 2, 2)), sliding).shape == (0, 5, 3)
    made = transposed(np.zeros((0, 2, 4)), np.zeros((2, 5, 2)), [1], [1], [0], [5])
    assert made.shape == (0, 5, 5)


def test_channels_that_do_not_fit_are_errors():
    sliding = Sliding.over((4,), (2,), (1,), (0,), (0,))
    with pytest.raises(ValueError, match=r"channels of \(1, 3, 4\) and filters of \(5, 2, 2\).* 1 groups"):
        convolved(np.zeros((1, 3, 4)), np.zeros((5, 2, 2)), sliding)
    with pytest.raises(ValueError, match="do not fit 2 groups"):
        convolved(np.zeros((1, 4, 4)), np.zeros((5, 2, 2)), sliding, 2)
    with pytest.raises(ValueError, match="do not fit 2 groups"):
        transposed(np.zeros((1, 3, 4)), np.zeros((3, 5, 2)), [1], [1], [0], [5], 2)
