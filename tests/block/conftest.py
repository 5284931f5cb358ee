"""Assertions of the RTL are checked in all tests of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from amaranth.hdl import Fragment, Module, Value
from amaranth.sim import core as simulator

from rkcosim.rtl.assertions import Assertions


class _OfBlocks(Assertions):
    """Only the assertions about what a block does, not those about what its bench does."""

    def claim(self, m: Module, condition: Value, text: str, given: bool) -> None:
        if not given:
            super().claim(m, condition, text, given)


class _Checked:
    """Stands for `Fragment` in Amaranth's simulator, which elaborates every design without a platform."""

    def __init__(self, platform: Assertions) -> None:
        self._platform = platform

    def get(self, design: Any, platform: object) -> Fragment:
        return Fragment.get(design, self._platform)


@pytest.fixture(autouse=True)
def assertions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Elaborate what a test simulates with the assertions of the RTL (rtl/assertions.py).

    A test, or a file, with the mark `withdraws` does not keep what it offers to a block until that takes it.
    """
    platform = _OfBlocks() if request.node.get_closest_marker("withdraws") else Assertions()
    with mock.patch.object(simulator, "Fragment", _Checked(platform)):
        yield
