"""Tables in the task of the convolution before them or in one of their own: what took fewer cycles in RTL."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.compiler.fusion import apart_is_faster
from rkcosim.compiler.graph import Conv, Window

MEASURED = [
    # side, channels, kernels, kernel, cycles of one task and of two in RTL (docs/models.md, "Tables apart")
    (112, 16, 16, 1, 202286, 161113),
    (80, 48, 8, 1, 106827, 97436),
    (56, 32, 16, 1, 51780, 43758),
    (24, 16, 16, 1, 10319, 8594),
    (24, 48, 5, 1, 10599, 10069),
    (80, 64, 1, 1, 107677, 106130),
    (24, 64, 1, 1, 10716, 10861),
    (12, 48, 5, 1, 3491, 3608),
    (6, 48, 16, 1, 1674, 1964),
    (6, 40, 1, 1, 1617, 1907),
    (56, 24, 16, 3, 52867, 56371),
    (40, 16, 16, 3, 27310, 29279),
    (24, 128, 16, 1, 11435, 14206),
    (80, 128, 1, 1, 115569, 141603),
    (24, 48, 20, 1, 10656, 14779),
    (24, 32, 40, 1, 19753, 20820),
    (28, 96, 48, 1, 27269, 32500),
]


def decided(side: int, channels: int, kernels: int, kernel: int, groups: int = 1) -> bool:
    weights = np.zeros((kernels, channels // groups, kernel, kernel), np.int8)
    window = Window((kernel, kernel), (1, 1), (kernel // 2,) * 4, (1, 1))
    rest = np.ones(kernels), 0, np.zeros(kernels, np.int64)
    conv = Conv("conv", ("x",), "y", weights, *rest, window, groups)
    return apart_is_faster(conv, (channels, side, side), (kernels, side, side))


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[1]}-{row[2]}-{row[0]}")
def test_two_tasks_are_only_taken_where_they_are_faster(row: tuple[int, ...]) -> None:
    one, two = row[4:]
    assert not (decided(*row[:4]) and two >= one)


def test_two_tasks_are_taken_where_they_save_much() -> None:
    taken = {row[:4] for row in MEASURED if decided(*row[:4])}
    assert {row[:4] for row in MEASURED if row[5] < 0.93 * row[4]} <= taken
    assert not decided(56, 16, 16, 3, groups=16)  # depthwise
