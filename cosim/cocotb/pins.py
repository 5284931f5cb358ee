"""Clock, cycle numbers and pins, shared by the agent, the memory and the monitors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, ValueChange
from cocotb.utils import get_sim_time

from rkcosim.engines.records import EVENT_NAMES

EVENT_BITS = {name: 1 << bit for bit, name in enumerate(EVENT_NAMES)}
"""Bits of the core's port `events`, by name."""


class Clocking:
    """The clock of a device under test and the number of the cycle.

    Cycles count as in the engines: after the n-th rising edge the cycle is n. A coroutine that wakes at an
    edge still sees the cycle before it, and the pins of that cycle.

    Parameters
    ----------
    clk : handle of the clock pin; it is driven from now on.
    period_ps : 1000 for the NPU's 1 GHz; even.
    """

    def __init__(self, clk: Any, period_ps: int = 1000) -> None:
        if period_ps <= 0 or period_ps % 2:
            raise ValueError(f"period_ps must be an even number above 0, not {period_ps}")
        self.clk, self.period_ps = clk, period_ps
        self._start = round(get_sim_time("ps"))
        Clock(clk, period_ps, "ps").start(start_high=False)

    @property
    def cycle(self) -> int:
        """Number of completed cycles."""
        passed = round(get_sim_time("ps")) - self._start
        # Edges are in the middle of a period. At the edge itself its cycle has not ended.
        return max(0, (passed - self.period_ps // 2 + self.period_ps - 1) // self.period_ps)


def high(pin: Any) -> bool:
    """Return whether a pin of one bit is 1 (X counts as 0)."""
    return bool(pin.value == 1)


async def pulses(pin: Any, clk: Any) -> AsyncIterator[None]:
    """Yield at every rising edge of `clk` at which `pin` is high; costs nothing while it is low."""
    rise, edge = RisingEdge(pin), RisingEdge(clk)
    while True:
        if not high(pin):
            await rise
            await edge
        while high(pin):
            yield
            await edge


async def event_samples(dut: Any) -> AsyncIterator[int]:
    """Yield the value of the core's port `events` at every rising edge at which it is not 0."""
    change, edge = ValueChange(dut.events), RisingEdge(dut.clk)
    while True:
        await change
        await edge
        while value := int(dut.events.value):
            yield value
            await edge
