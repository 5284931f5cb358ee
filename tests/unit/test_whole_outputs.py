"""Outputs of whole numbers, such as the indices of TopK: their size means nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkcosim.measure.models.outputs import add_agreement, agreement


class _Info:
    name, shape = "indices", (1, 4)
    dtype: np.dtype[Any] = np.dtype(np.int64)
    scale, zero_point, quantised = 1.0, 0, False


def test_indices_are_equal_or_differ() -> None:
    ours, theirs = np.array([[7, 1000, 3, 2]]), np.array([[7, 999, 3, 2]])
    found = agreement(ours, theirs, None, whole=True)
    assert (found.worst, found.mean, found.unit, found.cosine) == (0.25, 0.25, "elements", None)
    assert found.text() == "25.000% of the whole numbers differ" and found.place == (0, 1)
    assert agreement(theirs, theirs, None, whole=True).text() == "equal whole numbers"
    rows: list[dict[str, Any]] = [{"name": "indices"}, {"name": "scores"}]

    class _Scores(_Info):
        dtype: np.dtype[Any] = np.dtype(np.float32)

    add_agreement(rows, [_Info(), _Scores()], [ours, ours], [theirs, theirs])
    assert rows[0]["reference_unit"] == "elements" and rows[0]["reference_worst"] == 0.25
    assert rows[1]["reference_unit"] == "of the largest value" and rows[1]["reference_worst"] < 0.002
