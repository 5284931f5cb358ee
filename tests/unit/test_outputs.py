"""Outputs of models: classes by the stated rule, differences from another runtime, random inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rkcosim.measure.models.compare import LayerDifference
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.outputs import add_agreement, agreement, one_score_each


@dataclass(frozen=True)
class Described:
    """An input or output."""

    shape: tuple[int, ...]
    dtype: np.dtype
    scale: float = 1.0
    zero_point: int = 0


@pytest.mark.parametrize(
    ("shape", "right"),
    [
        *[((1, 10), True), ((10,), True), ((1, 10, 1, 1), True), ((1, 1, 1, 1000), True)],
        *[((1, 1), False), ((), False), ((4, 10), False), ((4, 1), False)],
        *[((1, 21, 33, 33), False), ((1, 40, 6625), False), ((1, 2, 8400), False), ((0,), False)],
    ],
)
def test_shapes_of_scores(shape: tuple[int, ...], right: bool) -> None:
    """One number for each class; single values, batches and maps are something else."""
    assert one_score_each(shape) == right


def test_agreement_in_steps() -> None:
    """Steps of the output's scale, with the element that is furthest away."""
    theirs = np.array([[0.0, 1.0, 2.0, -1.0]])
    ours = theirs + np.array([[0.0, 0.25, -0.5, 0.0]])
    found = agreement(ours, theirs, 0.25)
    assert (found.worst, found.mean, found.unit) == (2.0, 0.75, "steps")
    assert (found.place, found.ours, found.theirs) == ((0, 2), 1.5, 2.0)
    cosine = float(ours.ravel() @ theirs.ravel() / np.linalg.norm(ours) / np.linalg.norm(theirs))
    assert found.cosine == pytest.approx(cosine) and "2 quantisation steps" in found.text()


def test_agreement_of_floats() -> None:
    """Floats are compared relative to the reference's largest finite value."""
    found = agreement(np.array([1.0, 4.1]), np.array([1.0, 4.0]), None)
    assert found.worst == pytest.approx(0.025) and found.unit == "of the largest value"
    assert "2.500%" in found.text()
    opposite = agreement(np.array([-1.0, 2.0]), np.array([1.0, -2.0]), None)
    assert opposite.cosine == pytest.approx(-1.0) and opposite.worst == 2.0
    same = agreement(np.array([np.inf, np.nan, 1.0]), np.array([np.inf, np.nan, 1.0]), None)
    assert same.worst == 0.0 and same.cosine is None
    assert agreement(np.array([np.inf, 1.0]), np.array([5.0, 1.0]), None).worst == np.inf
    assert agreement(np.zeros(3), np.zeros(3), None).cosine is None
    assert agreement(np.zeros((0, 4)), np.zeros((0, 4)), None).worst == 0.0


def test_rows_keep_the_worst_inference() -> None:
    """Values of the reference beyond the codes' range count as its end; other sizes are left out."""
    infos = [Described((1, 2), np.dtype(np.int8), 0.5, 0), Described((3,), np.dtype(np.float32))]
    rows: list[dict] = [{}, {}]
    add_agreement(rows, infos, [np.array([[63.5, 1.0]]), np.ones(3)], [np.array([[90.0, 2.0]]), np.ones(2)])
    assert rows[0]["reference_worst"] == 2.0 and rows[0]["reference_mean"] == 1.0 and rows[1] == {}
    add_agreement(rows, infos, [np.array([[3.0, 1.0]]), np.ones(3)], [np.array([[3.0, 1.0]]), np.ones(3)])
    assert rows[0]["reference_worst"] == 2.0 and rows[0]["reference_cosine"] < 1
    assert rows[1]["reference_worst"] == 0.0 and rows[1]["reference_cosine"] == 1.0


def test_random_inputs_fit_their_types() -> None:
    """Codes of bytes within their range, whole numbers for indices and switches, normal numbers."""
    codes = Described((1, 500), np.dtype(np.uint8), 0.5, 10)
    number = Described((), np.dtype(np.int64))
    first, second, third = random_reals([codes, number, Described((1, 500), np.dtype(np.float16))], 3)
    assert first.min() >= -5.0 and first.max() <= 122.5 and len(np.unique(first)) > 100
    assert second.shape == () and float(second) in (0.0, 1.0)
    assert 0.8 < third.std() < 1.2
    assert all(a.dtype == np.float32 for a in (first, second, third))


def test_layers_name_their_worst_element() -> None:
    """The largest difference of all inferences is kept with place, tensor and both codes."""
    row = LayerDifference("conv", "Conv", "convolution", 8, tensor="conv_out")
    zeros = np.zeros((2, 2, 2), np.int8)
    row.add(zeros, zeros)
    assert row.extreme is None
    other = zeros.copy()
    other[1, 0, 1] = 3
    row.add(zeros, other)
    other[1, 0, 1] = 2
    row.add(zeros, other)
    assert row.extreme is not None and str(row.extreme) == (
        "element [1, 0, 1] of tensor 'conv_out' is 0, not 3"
    )
