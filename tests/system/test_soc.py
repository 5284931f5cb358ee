"""Three cores as one design: the ports, and each core on its own with its number."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Module, Shape, Signal, UnusedElaboratable
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

import rkcosim.rtl.soc
from rkcosim.rtl.bus import AxiLite
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.soc import COUNTER_PREFIX, INDEX_PORT, INNER_PORTS, NpuSoc, core_prefix
from rkcosim.spec.config import SMALL, NpuConfig
from rkcosim.spec.regs import counter_registers
from rkcosim.spec.regs.counters import WINDOW_BYTES
from tests import seeds
from tests.twins.axi_model import axil_write

WORD = 1 << 64
MULTIPLIER = 0x9E3779B97F4A7C15


Members = dict[str, Any]
"""Map from port to the member of the signature."""


def members_of(make: Callable[[NpuConfig], Any]) -> Members:
    """Ports of a component that is made, but neither simulated nor converted, because that takes long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        members = dict(make(SMALL).signature.members.items())
        gc.collect()
    return members


def directions(members: Members) -> dict[str, tuple[bool, int]]:
    """Map from port to (is an input, width)."""
    return {n: (m.flow == In, Shape.cast(m.shape).width) for n, m in members.items()}


@pytest.fixture(scope="module")
def ports() -> Members:
    return members_of(NpuCore)


def test_ports_are_those_of_three_cores(ports: Members) -> None:
    lone, soc = directions(ports), directions(members_of(NpuSoc))
    for inner in INNER_PORTS:
        lone.pop(inner)
    assert len(lone) > 50
    window = directions(dict(AxiLite().flip().members.items()))
    assert soc == {core_prefix(k) + name: port for k in range(3) for name, port in lone.items()} | {
        COUNTER_PREFIX + name: port for name, port in window.items()
    }


class Counters:
    """The counter window's port of a SoC, with the names of AXI4-Lite."""

    def __init__(self, soc: NpuSoc) -> None:
        self._soc = soc

    def __getattr__(self, name: str) -> Any:
        return getattr(self._soc, COUNTER_PREFIX + name)


class StandIn(wiring.Component):
    """A core's ports around one register that every input changes and every output shows differently."""

    def __init__(self, ports: Members) -> None:
        super().__init__(ports)
        self.table = directions(ports)
        self.state = Signal(64)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = self.state
        m.d.sync += state.eq(self.following(state, {name: getattr(self, name) for name in self.table}))
        for name, value in self.shown(state).items():
            m.d.comb += getattr(self, name).eq(value)
        return m

    def following(self, state: Any, values: dict[str, Any]) -> Any:
        """The next value of the register at a clock edge; from Amaranth values or integers."""
        total = (state + 1) * MULTIPLIER
        for place, (name, (is_input, _)) in enumerate(self.table.items()):
            if is_input:
                total = total + values[name] * (2 * place + 0x1001)
        return total % WORD if isinstance(total, int) else total[:64]

    def shown(self, state: Any) -> dict[str, Any]:
        """The outputs, not truncated."""
        outputs = [name for name, (is_input, _) in self.table.items() if not is_input]
        return {name: (state >> place % 53) ^ (place * 0x1357) for place, name in enumerate(outputs)}


def test_every_core_is_on_its_own(ports: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random values on every input: each core's outputs follow from its inputs and its number; core 1
    counts.
    """
    monkeypatch.setattr(rkcosim.rtl.soc, "NpuCore", lambda *arguments, **options: StandIn(ports))
    soc = NpuSoc(SMALL)
    twin = soc._cores[0]
    inner = INNER_PORTS
    inputs = {n: width for n, (is_input, width) in twin.table.items() if is_input and n not in inner}
    outputs = {n: width for n, (is_input, width) in twin.table.items() if not is_input and n not in inner}
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng = random.Random(seed)
    states = [0, 0, 0]
    switch = counter_registers()["CONTROL"]["SWITCH"]

    async def drive(ctx: Any) -> None:
        await axil_write(ctx, Counters(soc), WINDOW_BYTES + switch.offset, switch.encode(ENABLE=1))
        for k in range(3):
            states[k] = ctx.get(soc._cores[k].state)
        for _ in range(20):
            for k in range(3):
                values = {name: rng.getrandbits(width) for name, width in inputs.items()}
                for name, value in values.items():
                    ctx.set(getattr(soc, core_prefix(k) + name), value)
                inside = {
                    INDEX_PORT: k,
                    "counting": k == 1,
                    "step_answer": ctx.get(soc._cores[k].step_answer),
                }
                states[k] = twin.following(states[k], values | inside)
            await ctx.tick()
            for k, state in enumerate(states):
                for name, value in twin.shown(state).items():
                    if name in outputs:
                        got = ctx.get(getattr(soc, core_prefix(k) + name))
                        assert got == value % (1 << outputs[name]), f"core {k}: {name}"

    simulator = Simulator(soc)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.run()
    assert len(set(states)) == 3
