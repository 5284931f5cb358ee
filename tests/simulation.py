"""Simulations that are reused for many runs: building one takes seconds, resetting it a millisecond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pytest
from amaranth.sim import Simulator

Run = Callable[[Any], Any]
"""A coroutine function of the simulation's context."""


class Simulation:
    """A component in Amaranth's simulator, with testbenches that change from run to run.

    Parameters
    ----------
    dut
        The component; its domain is `sync`.
    period
        Clock period in seconds.
    """

    BACKGROUND, PROCESSES = 24, 4

    def __init__(self, dut: Any, period: float = 1e-6) -> None:
        self._simulator = Simulator(dut)
        self._simulator.add_clock(period)
        self._used = False
        self._runs: Sequence[Run] = ()
        self._processes: Sequence[Run] = ()
        for place in range(self.PROCESSES):
            self._simulator.add_process(self._slot("_processes", place))
        for place in range(self.BACKGROUND):
            self._simulator.add_testbench(self._slot("_runs", place), background=True)
        self._simulator.add_testbench(self._run_main)

    def _slot(self, name: str, place: int) -> Run:
        async def run(ctx: Any) -> None:
            runs = getattr(self, name)
            if place < len(runs):
                await runs[place](ctx)

        return run

    async def _run_main(self, ctx: Any) -> None:
        await self._main(ctx)

    def run(self, main: Run, background: Sequence[Run] = (), processes: Sequence[Run] = ()) -> None:
        """From reset, run until the testbench `main` ends."""
        assert len(background) <= self.BACKGROUND and len(processes) <= self.PROCESSES
        self._main, self._runs, self._processes = main, background, processes
        if self._used:
            self._simulator.reset()
        self._used = True
        self._simulator.run()


def bound(limit: int, state: Callable[[], str] = str) -> Run:
    """Return a testbench, to be run in the background, that fails after so many cycles.

    `state` gives more words for the message.
    """

    async def run(ctx: Any) -> None:
        for _ in range(limit):
            await ctx.tick()
        pytest.fail(f"not finished after {limit} cycles{state()}")

    return run


@lru_cache(maxsize=4)
def shared(make: Callable[..., Any], *arguments: Any) -> Any:
    """Return the component `make(*arguments)`; `simulation` always uses the same simulation for it."""
    dut = make(*arguments)
    dut.kept_simulation = Simulation(dut)
    return dut


def simulation(dut: Any) -> Simulation:
    """Return a simulation of a component: the stored one if it comes from `shared`, else a new one."""
    return getattr(dut, "kept_simulation", None) or Simulation(dut)
