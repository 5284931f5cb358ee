"""Pooling of the host's kernels, against onnxruntime's operators and exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rkcosim.hostops.geometry import Sliding
from rkcosim.hostops.pooling import (
    adaptive_largest,
    adaptive_means,
    even_ranges,
    largest,
    largest_with_places,
    means,
    sums,
)

Array = npt.NDArray[Any]
SEEDS = range(24)


def by_onnxruntime(kind: str, x: Array, outputs: int, **attributes: Any) -> list[Array]:
    """Return the results of a pool of float32 or float64 maps (N, C, ...)."""
    names = [f"y{n}" for n in range(outputs)]
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    types = [element, TensorProto.INT64]
    made = [helper.make_tensor_value_info(name, types[n], None) for n, name in enumerate(names)]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], names, **attributes)],
        "pool",
        [helper.make_tensor_value_info("x", element, x.shape)],
        made,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {"x": x}))


def drawn(seed: int) -> tuple[np.random.Generator, list[int], dict[str, Any]]:
    """Return a generator, sizes of one to three axes, and windows over them."""
    rng = np.random.default_rng(seed)
    axes = 1 + seed % 3
    kernel = rng.integers(1, 4, axes)
    pads = [int(rng.integers(0, k // 2 + 1)) for k in kernel]
    window = {
        "kernel_shape": kernel.tolist(),
        "strides": rng.integers(1, 4, axes).tolist(),
        "pads": pads * 2,
        "ceil_mode": int(rng.integers(0, 2)),
    }
    return rng, rng.integers(6, 10, axes).tolist(), window


def sliding(sizes: list[int], window: dict[str, Any]) -> Sliding:
    pads, dilations = window["pads"][: len(sizes)], window.get("dilations")
    ceil = bool(window["ceil_mode"])
    return Sliding.over(sizes, window["kernel_shape"], window["strides"], pads, pads, dilations, ceil)


@pytest.mark.parametrize("seed", SEEDS)
def test_largest_elements_and_their_places_are_those_of_onnxruntime(seed: int):
    rng, sizes, window = drawn(seed)
    window["dilations"] = rng.integers(1, 3, len(sizes)).tolist()
    x = rng.integers(-9, 9, (2, 3, *sizes)).astype(np.float32)
    values, places = by_onnxruntime("MaxPool", x, 2, **window)
    best, found = largest_with_places(x, sliding(sizes, window))
    assert best.tolist() == values.tolist() == largest(x, sliding(sizes, window), 2).tolist()
    first = np.arange(6).reshape(2, 3, *[1] * len(sizes)) * np.prod(sizes)  # ONNX counts from the first map
    assert (found + first).tolist() == places.tolist()


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_means_are_those_of_onnxruntime(seed: int, include: bool):
    rng, sizes, window = drawn(seed)
    x = rng.normal(size=(2, 3, *sizes)).astype(np.float32)
    (values,) = by_onnxruntime("AveragePool", x, 1, count_include_pad=int(include), **window)
    found = means(x, sliding(sizes, window), 2, window["pads"][: len(sizes)] if include else None)
    assert found.shape == values.shape
    np.testing.assert_allclose(found, values, 1e-5, 1e-6)


def test_axes_may_be_in_the_middle_and_integers_stay_exact():
    x = np.arange(2**40, 2**40 + 24).reshape(1, 4, 3, 2)
    windows = Sliding.over((4, 3), (2, 3), (2, 1), (0, 0), (0, 0))
    whole = sums(x, windows, 1)
    assert whole.dtype == np.int64 and whole.shape == (1, 2, 1, 2)
    assert whole[0, 1, 0, 1] == sum(2**40 + place for place in (13, 15, 17, 19, 21, 23))
    assert largest(x, windows, 1, np.iinfo(np.int64).min)[0, :, 0, 0].tolist() == [2**40 + 10, 2**40 + 22]


def test_a_nan_is_the_largest_and_padding_has_no_place():
    best, found = largest_with_places(np.array([1.0, np.nan, 3.0]), Sliding((2,), (2,), (1,), (2,), (3,)))
    assert best[0] == -np.inf and np.isnan(best[1]) and best[2] == 3.0
    assert found.tolist() == [-1, 1, 2]
    assert np.isnan(largest(np.array([1.0, np.nan]), Sliding((2,), (1,), (1,), (0,), (1,)), 0)[0])


def test_a_window_without_data_has_no_mean():
    assert np.isnan(means(np.ones(2), Sliding((1,), (2,), (1,), (2,), (2,)), 0)).tolist() == [True, False]


def test_windows_that_divide_an_axis_are_pytorchs():
    """They are from floor(i * size / n) to ceil((i + 1) * size / n), as in torch.nn.AdaptiveAvgPool1d."""
    for size in range(1, 9):
        for wanted in range(1, 9):
            assert even_ranges(size, wanted) == [
                (Fraction(i * size, wanted).__floor__(), Fraction((i + 1) * size, wanted).__ceil__())
                for i in range(wanted)
            ]
    assert adaptive_means(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), [3]).tolist() == [1.5, 14 / 3, 12.0]
    assert adaptive_means(np.ones((2, 5)), [0]).shape == (2, 0)


@pytest.mark.parametrize("seed", range(6))
def test_even_windows_are_pools_of_onnxruntime(seed: int):
    rng = np.random.default_rng(seed)
    kernel, wanted = rng.integers(1, 4, 2).tolist(), rng.integers(1, 4, 2).tolist()
    x = rng.integers(-99, 99, (2, 2, kernel[0] * wanted[0], kernel[1] * wanted[1])).astype(np.float32)
    window = {"kernel_shape": kernel, "strides": kernel}
    (mean,) = by_onnxruntime("AveragePool", x, 1, **window)
    values, places = by_onnxruntime("MaxPool", x, 2, **window)
    np.testing.assert_allclose(adaptive_means(x, wanted), mean, 1e-5)
    best, found = adaptive_largest(x, wanted)
    assert best.tolist() == values.tolist()
    assert found.tolist() == (places - np.arange(4).reshape(2, 2, 1, 1) * x[0, 0].size).tolist()
