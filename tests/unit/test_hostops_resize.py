"""Resizes of the host's kernels, against onnxruntime's Resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rkcosim.hostops.resize import Coordinates, cubic, linear, nearest, picked, places, step_of

Array = npt.NDArray[Any]
SIZES = [(5, 10), (5, 3), (1, 4), (7, 7), (4, 9), (6, 1)]
RULES = {
    "asymmetric": (Coordinates.ASYMMETRIC, False),
    "align_corners": (Coordinates.ASYMMETRIC, True),
    "half_pixel": (Coordinates.HALF_PIXEL, False),
}
"""The rule and the distance of ONNX's coordinate modes."""


def by_onnxruntime(x: Array, count: int, **attributes: Any) -> Array:
    """Return float32 maps (N, C, H, W) with another number of columns."""
    size = np.array([*x.shape[:3], count])
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "size"], ["y"], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("size", TensorProto.INT64, [4], size)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    made: Array = session.run(None, {"x": x})[0]
    return made


def maps(size: int) -> Array:
    return np.random.default_rng(size).normal(size=(1, 2, 3, size)).astype(np.float32)


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_interpolation_is_that_of_onnxruntime(size: int, count: int, mode: str):
    x, (rule, corners) = maps(size), RULES[mode]
    at = places(count, step_of(size, count, corners), rule)
    for function, name in ((linear, "linear"), (cubic, "cubic")):
        wanted = by_onnxruntime(x, count, mode=name, coordinate_transformation_mode=mode)
        np.testing.assert_allclose(function(x.astype(np.float64), 3, at), wanted, 2e-5, 2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [("asymmetric", "floor"), ("align_corners", "round_prefer_ceil"), ("half_pixel", "round_prefer_ceil")],
)
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_nearest_elements_are_those_of_onnxruntime(
    size: int, count: int, mode: str, rounding: str, dtype: Any
):
    x, (rule, corners) = maps(size), RULES[mode]
    at = places(count, step_of(size, count, corners, dtype), rule, dtype)
    assert at.dtype == dtype
    wanted = by_onnxruntime(
        x, count, mode="nearest", coordinate_transformation_mode=mode, nearest_mode=rounding
    )
    assert nearest(x, 3, at, half_up=rounding != "floor").tolist() == wanted.tolist()


def test_centres_are_tensorflows():
    """With half pixels TensorFlow takes the element that has the centre: floor((i + 1/2) * 5 / 3)."""
    at = places(3, step_of(5, 3), Coordinates.CENTRES)
    assert picked(at, 5).tolist() == [0, 2, 4]
    assert picked(np.array([-0.6, 4.5, 9.0]), 5, half_up=True).tolist() == [0, 4, 4]


def test_the_type_of_places_decides_whole_numbers():
    """8 * (float32(0.1)) is 0.8000000119 and 10 * it is 1 in float32, above 1 in float64."""
    step = np.float32(0.1)
    assert places(11, step, Coordinates.ASYMMETRIC, np.float32)[10] == 1
    assert places(11, step, Coordinates.ASYMMETRIC)[10] > 1


def test_an_element_after_a_whole_place_takes_part_or_not():
    x = np.array([1.0, np.inf])
    with np.errstate(invalid="ignore"):
        assert np.isnan(linear(x, 0, np.array([0.0]))[0])
    assert linear(x, 0, np.array([0.0]), past=False)[0] == 1


def test_places_outside_have_the_outer_element():
    x = np.array([3.0, 5.0])
    for past in (False, True):
        assert linear(x, 0, np.array([-0.25, 0.5, 1.25]), past).tolist() == [3, 4, 5]
