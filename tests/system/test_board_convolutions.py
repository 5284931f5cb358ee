"""Convolutions with our own plans: the largest difference from the reference equals the board's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.board_convolutions import BoardConvolution, board_convolutions

ALL = board_convolutions()
QUICK_MACS = 100_000
ENGINE_MACS = 15_000
MAX_CYCLES = 2_000_000

RULES = ("3.2", "3.4.1", "3.6.1", "3.6.2", "4.1.3", "4.4.3", "4.5.2", "6.2.2", "7.11.2", "7.11.3")
"""Rules that the shapes hold against the board."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


def test_table_is_whole() -> None:
    """217 shapes are listed, 190 of them different."""
    assert len(ALL) == len(set(ALL)) == 190
    assert sum(shape.listed for shape in ALL) == 217


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=str(shape), marks=[] if shape.macs < QUICK_MACS else pytest.mark.heavy)
        for shape in ALL
    ],
)
@pytest.mark.board(*RULES, source="allbilly-sweep", place="217 shapes, largest difference of each")
def test_board_difference(shape: BoardConvolution) -> None:
    shape.check(GoldenDriver)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=str(shape))
        for shape in ALL
        if 2_000 < shape.macs < ENGINE_MACS and shape.batch == 1
    ],
)
@pytest.mark.board(*RULES, source="allbilly-sweep", place="217 shapes, largest difference of each")
def test_board_difference_on_the_rtl(engine: Engine, shape: BoardConvolution) -> None:
    shape.check(lambda: Driver(engine, MAX_CYCLES))
