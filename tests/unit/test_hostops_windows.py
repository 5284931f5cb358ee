"""Windows of the host's kernels, against indices written out and TensorFlow's published example."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.hostops.geometry import Sliding, count, missing, reach, same_pads
from rkcosim.hostops.windows import counted, taps, windows

Array = npt.NDArray[Any]


def element(x: Array, place: tuple[int, ...], fill: float) -> float:
    """Return an element, or the fill value outside of the array."""
    inside = all(0 <= at < size for at, size in zip(place, x.shape, strict=True))
    return float(x[place]) if inside else fill


@st.composite
def slidings(draw: st.DrawFn) -> tuple[Sliding, tuple[int, ...]]:
    """Draw windows along one to three axes, and the sizes of the axes."""
    axes = draw(st.integers(1, 3))
    few = st.integers(1, 3)
    sizes, kernel, strides, dilations = (
        tuple(draw(few if least else st.integers(1, 5)) for _ in range(axes)) for least in (0, 1, 1, 1)
    )
    before = tuple(draw(st.integers(0, 2)) for _ in range(axes))
    counts = tuple(draw(st.integers(0, 4)) for _ in range(axes))
    return Sliding(kernel, strides, dilations, before, counts), sizes


@settings(deadline=None, max_examples=40)
@given(slidings(), st.booleans())
def test_windows_are_the_elements_at_their_indices(drawn: tuple[Sliding, tuple[int, ...]], turned: bool):
    sliding, sizes = drawn
    data = np.arange(2 * np.prod(sizes) * 2).reshape(2, *sizes, 2)
    x = data[::-1, ..., ::-1] if turned else data
    found = windows(x, sliding, 1, -1)
    rank = len(sizes)
    assert found.shape == (2, *sliding.counts, 2, *sliding.kernel)
    by_tap = dict(taps(x, sliding, 1, -1))
    assert list(by_tap) == list(itertools.product(*map(range, sliding.kernel)))
    inside = counted(sliding, sizes)
    assert inside.shape == sliding.counts
    for window in itertools.product(*map(range, sliding.counts)):
        known = 0
        for tap, values in by_tap.items():
            place = tuple(
                window[n] * sliding.strides[n] + tap[n] * sliding.dilations[n] - sliding.before[n]
                for n in range(rank)
            )
            wanted = [[element(x[i, ..., c], place, -1) for c in (0, 1)] for i in (0, 1)]
            assert found[(slice(None), *window, slice(None), *tap)].tolist() == wanted
            assert values[(slice(None), *window)].tolist() == wanted
            known += wanted[0][0] >= 0
        assert inside[window] == known


def test_the_views_of_unpadded_data_need_no_copy():
    x = np.zeros((1, 64, 64, 3))
    assert np.shares_memory(windows(x, Sliding.over((64, 64), (3, 3), (1, 1), (0, 0), (0, 0)), 1), x)


def test_negative_numbers_of_windows_are_errors():
    with pytest.raises(ValueError, match=r"\(-1,\) windows along axes of \(4,\)"):
        windows(np.zeros(4), Sliding((9,), (1,), (1,), (0,), (-1,)), 0)


def test_padding_of_tensorflows_example():
    """13 columns, 6 taps, stride 5 (TensorFlow, api_docs/python/tf/nn, "Notes on padding").

    VALID has 2 windows and drops the last 2 columns, SAME pads 1 column to the left and 2 to the right.
    """
    assert count(13, 0, 0, 6, 5) == 2 and 13 - ((2 - 1) * 5 + 6) == 2
    assert same_pads((1, 13), (1, 6), (1, 5), (1, 1)) == (0, 1, 0, 2)
    assert count(13, 1, 2, 6, 5) == 3
    assert missing(13, 3, 6, 5) == 3


def test_taps_of_the_padding_count_if_they_are_asked_for():
    """Windows of 3 at -2, 1 and 4 over 4 elements, 2 before them and 1 after them."""
    sliding = Sliding((3,), (3,), (1,), (2,), (3,))
    assert counted(sliding, (4,)).tolist() == [1, 3, 0]
    assert counted(sliding, (4,), (1,)).tolist() == [3, 3, 1]


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.integers(1, 4))
def test_numbers_of_windows(size: int, before: int, after: int, taps: int, stride: int):
    """All windows that fit are counted; `test_hostops_pooling.py` has those of `ceil`."""
    span = reach(taps, 2)
    begins = range(-before, size + after, stride)
    fitting = [at for at in begins if at + span <= size + after]
    assert max(count(size, before, after, span, stride), 0) == len(fitting)
    assert fitting == list(begins)[: len(fitting)]
