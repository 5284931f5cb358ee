"""Clock, cycle numbers and pins, as the agent, the memory and the monitors share them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time


class Clocking:
    """The clock of a device under test and the number of the cycle.

    Cycles count as the engines do: after the n-th rising edge the cycle is n.  A coroutine that wakes
    at an edge still sees the cycle before it, as it sees the pins of that cycle.

    Parameters
    ----------
    clk
        handle of the clock pin; it is driven from now on.
    period_ps
        1000 for the NPU's 1 GHz; even.
    """

    def __init__(self, clk: Any, period_ps: int = 1000) -> None:
        if period_ps <= 0 or period_ps % 2:
            raise ValueError(f"period_ps must be an even number above 0, not {period_ps}")
        self.clk, self.period_ps = clk, period_ps
        self._start = round(get_sim_time("ps"))
        Clock(clk, period_ps, "ps").start(start_high=False)

    @property
    def cycle(self) -> int:
        """Cycles that have ended."""
        passed = round(get_sim_time("ps")) - self._start
        # Edges are in the middle of a period.  At the edge itself its cycle has not ended.
        return max(0, (passed - self.period_ps // 2 + self.period_ps - 1) // self.period_ps)

    def time_ps(self, cycles: int) -> int:
        """Length of a number of cycles."""
        return cycles * self.period_ps

    async def edges(self, count: int) -> None:
        """Wait for `count` rising edges."""
        edge = RisingEdge(self.clk)
        for _ in range(count):
            await edge


class Bundle:
    """The pins of a device under test that begin with a prefix, as attributes without it."""

    def __init__(self, dut: Any, prefix: str) -> None:
        self._dut, self._prefix = dut, prefix

    def __getattr__(self, name: str) -> Any:
        pin = getattr(self._dut, self._prefix + name)
        self.__dict__[name] = pin  # looked up once
        return pin


def high(pin: Any) -> bool:
    """Whether a pin of one bit is 1 (X counts as 0)."""
    return bool(pin.value == 1)


async def pulses(pin: Any, clk: Any) -> AsyncIterator[None]:
    """Once at every rising edge of `clk` at which `pin` is high; costs nothing while it is low."""
    rise, edge = RisingEdge(pin), RisingEdge(clk)
    while True:
        if not high(pin):
            await rise
            await edge
        while high(pin):
            yield
            await edge
