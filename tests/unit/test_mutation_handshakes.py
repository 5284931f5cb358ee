"""`python -m tools.mutation.handshakes`: faults of the ports of components, and the tests that find them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Fragment, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tools.mutation import faulty_ports, handshakes
from tools.mutation.faulty_ports import COUNT_FAULTS, PULSE_FAULTS, PortFault, faults_of, plant
from tools.mutation.handshakes import (
    FOUND,
    SURVIVED,
    Finding,
    Use,
    counted,
    finders,
    page,
    planned,
    reason_of,
)


class Follower(wiring.Component):
    """Shows its input, and what it believes that others see."""

    given: In(1)
    amount: In(4)
    shown: Out(1)
    beats: Out(4)
    believed: Out(1)
    items: In(stream.Signature(4))
    awlock: Out(1)
    data: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.shown.eq(self.given), self.believed.eq(self.shown), self.beats.eq(self.amount)]
        return m


def _seen(
    monkeypatch: pytest.MonkeyPatch, port: str, kind: str, values: Sequence[int], given: str
) -> tuple[list[int], list[int]]:
    """Return what others see of a port with a fault, and what the component believes that they see."""

    class Faulty(Follower):
        belongs: In(1)  # a component has a signature of its own

        def elaborate(self, platform: object) -> Module:
            return super().elaborate(platform)

    monkeypatch.setattr(faulty_ports, "components", lambda: {"toy.Faulty": Faulty})
    plant(PortFault("toy.Faulty", port, kind))
    dut, seen, believed = Faulty(), [], []

    async def bench(ctx: Any) -> None:
        for value in values:
            ctx.set(getattr(dut, given), value)
            seen.append(ctx.get(getattr(dut, port)))
            believed.append(ctx.get(dut.believed))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen, believed


PULSES = [0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("late", [0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1]),
        ("held", [0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1]),
        ("raised", [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0]),
        ("dropped", [0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0]),
    ],
)
def test_faults_of_one_bit(monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[int]) -> None:
    """Others see the fault; the component keeps its own value, so that both sides disagree."""
    seen, believed = _seen(monkeypatch, "shown", kind, PULSES, "given")
    assert seen == expected and believed == PULSES


@pytest.mark.parametrize(
    ("kind", "expected"), [("late", [0, 3, 0, 15]), ("more", [4, 1, 0, 3]), ("less", [2, 0, 14, 1])]
)
def test_faults_of_a_count(monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[int]) -> None:
    seen, _ = _seen(monkeypatch, "beats", kind, [3, 0, 15, 2], "amount")
    assert seen == expected


def test_handshakes_and_counts_have_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ready of a stream that comes in is driven by the component; what never changes has no fault."""
    follower = Follower()
    faults = list(faults_of("toy.Follower", follower))
    expected = {(port, kind) for port in ("shown", "believed", "items__ready") for kind in PULSE_FAULTS}
    assert {(one.port, one.kind) for one in faults} == expected | {("beats", kind) for kind in COUNT_FAULTS}
    assert not list(faults_of("core.NpuCore", follower))
    Fragment.get(follower, None)  # a component has to be used
    monkeypatch.setattr(faulty_ports, "components", lambda: {"toy.Follower": Follower})
    monkeypatch.setattr(Follower, "elaborate", Follower.elaborate)  # restored at the end
    plant(PortFault("toy.Follower", "nothing", "late"))
    with pytest.raises(ValueError, match="drives no port nothing"):
        Fragment.get(Follower(), None)
    with pytest.raises(ValueError, match=r"the RTL has no component other\.Thing"):
        plant(PortFault("other.Thing", "x", "late"))


def test_a_blocks_own_tests_find_a_fault() -> None:
    fault = PortFault("bus.SkidBuffer", "o__valid", "late")
    found = handshakes.attempt(fault, ["tests/block/test_bus.py"])
    assert found.result == FOUND and "test_skid_buffer" in found.test


def test_a_fault_that_nothing_sees_survives() -> None:
    fault = PortFault("npu.csc_weights.WeightWalk", "tile_here", "late")
    found = handshakes.attempt(fault, ["tests/block/test_interrupt.py"])
    assert (found.result, found.test) == (SURVIVED, "all tests pass")


def test_a_proof_finds_a_fault_that_the_tests_do_not_see() -> None:
    fault = PortFault("bus.SkidBuffer", "o__valid", "dropped")
    found = handshakes.attempt(fault, ["tests/block/test_interrupt.py"])
    assert (found.result, found.test) == (FOUND, "proof skid_buffer")


def test_own_tests_come_first_and_survivors_are_counted() -> None:
    first, second = PortFault("a.A", "x", "late"), PortFault("b.B", "y", "held")
    uses = [Use("core.py", {"a.A": (first,), "b.B": (second,)}), Use("own.py", {"a.A": (first,)})]
    plans = planned(uses)
    assert plans == {first: ("own.py", "core.py"), second: ("core.py",)}
    findings = [
        Finding(str(first), FOUND, "own.py::t", 2.0, ""),
        Finding(str(second), SURVIVED, "-", 30.0, ""),
    ]
    assert counted(findings, {})[-1] == ("all", 1, 0, 1, 1)
    mended = replace(findings[1], result=FOUND, first=SURVIVED)
    assert counted([findings[0], mended], {})[-1] == ("all", 2, 0, 0, 1)
    assert finders("a.A", findings, ["own.py"]) == ["own.py::t"] and not finders("a.A", findings, ["core.py"])
    known = {"b.B: y *": "Only the rate changes."}
    assert counted(findings, known)[-1] == ("all", 1, 1, 0, 0) and reason_of(str(first), known) is None
    text = page(findings, known, 2)
    assert "Only the rate changes. `b.B: y held`." in text and "## Faults that survive\n\nNone." in text


def test_reasons_are_sentences_for_components_that_exist() -> None:
    names = faulty_ports.components()
    for pattern, reason in handshakes.reasons().items():
        assert pattern.partition(":")[0] in names and reason[0].isupper() and reason.endswith(".")
