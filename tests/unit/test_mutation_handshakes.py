"""`python -m tools.mutation.handshakes`: faults of the ports of components, and the tests that find them."""

# mypy: disable-error-code="valid-type"
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Fragment, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tools.mutation import faulty_ports, handshake_record, handshakes
from tools.mutation.faulty_ports import COUNT_FAULTS, PULSE_FAULTS, PortFault, faults_of, plant
from tools.mutation.handshake_record import (
    FOUND,
    PAGE,
    ROOT,
    SURVIVED,
    Finding,
    Record,
    counted,
    digest_of,
    page,
    reason_of,
    reasons,
)
from tools.mutation.handshakes import Use, finders, in_turn, planned


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


@pytest.mark.parametrize("works", [False, True])
def test_tests_that_do_not_end_are_stopped(works: bool) -> None:
    """Those that wait for ever; not those that compute for longer than the time."""

    def work(pipe: Any) -> None:
        begin = time.process_time()
        while works and time.process_time() < begin + 0.5:
            pass
        if not works:
            threading.Event().wait()
        pipe.send("late" if not works else (1,))

    assert handshakes._child(work, 0.2) == (((1,), True) if works else (None, False))


def test_a_fault_that_nothing_sees_survives() -> None:
    fault = PortFault("npu.csc_weights.WeightWalk", "tile_here", "late")
    found = handshakes.attempt(fault, ["tests/block/test_interrupt.py"])
    assert (found.result, found.test) == (SURVIVED, "all tests pass")


@pytest.mark.heavy
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
    assert finders("a.A", findings, ["own.py"]) == ["own.py::t"] and not finders("a.A", findings, ["core.py"])
    assert finders("b.B", findings, ["own.py"]) == ["own.py::t"], "what finds most of the others' faults"


def _record(*findings: Finding, untried: Sequence[str] = ()) -> Record:
    return Record([*(one.fault for one in findings), *untried], {one.fault: one for one in findings})


def test_survivors_are_counted() -> None:
    found = Finding("a.A: x late", FOUND, "own.py::t", 2.0, "")
    lost = Finding("b.B: y held", SURVIVED, "-", 30.0, "12")

    def numbers(record: Record, known: dict[str, str]) -> tuple[int, ...]:
        all_ = counted(record, known)[-1]
        return all_.tried, all_.of, all_.found, all_.harmless, all_.left, all_.before

    assert numbers(_record(found, lost), {}) == (2, 2, 1, 0, 1, 1)
    mended = replace(lost, result=FOUND, first=SURVIVED)
    assert numbers(_record(found, mended, untried=["c.C: z late"]), {}) == (2, 3, 2, 0, 0, 1)
    known = {"b.B: y *": "Only the rate changes."}
    assert numbers(_record(found, lost), known) == (2, 2, 1, 1, 0, 0)
    assert reason_of(found.fault, known) is None
    text = page(_record(found, lost, untried=["c.C: z late"]), known)
    assert "Only the rate changes. `b.B: y held`." in text and "## Faults that survive\n\nNone." in text
    assert "2 of 3 faults have been tried" in text and "No fault has been tried of `c.C`." in text
    short = replace(lost, sources="")
    assert numbers(_record(found, short), {}) == (2, 2, 1, 0, 0, 0) and not short.decided
    assert counted(_record(found, short), {})[-1].undecided == 1
    assert "not decided\n\n- `b.B: y held` (-)" in page(_record(found, short), {})
    text = page(_record(found, lost, Finding("d.D: v late", FOUND, "", 0.0, "")), {})
    assert "- `b.B: y held` (-)" in text and "(median 2.0 s)" in text and "1 finds are older" in text


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = _record(
        Finding("a.A: x__valid late", FOUND, "tests/t.py::t[1]", 1.5, "12", SURVIVED),
        Finding("a.A: y more", SURVIVED, "all tests pass", 30.0, "34", SURVIVED),
        untried=["b.B: z held"],
    )
    path = tmp_path / "record.json"
    record.write(path)
    assert Record.read(path) == record and not Record.read(tmp_path / "none.json").faults


def test_a_verdict_holds_while_its_sources_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A find depends on its component and its test, a fault that survived on all files of tests."""
    fault, test = PortFault("bus.SkidBuffer", "o__valid", "late"), "tests/test_a.py::test_a[3]"

    def digests(a: str, b: str, rtl: str = "x = 1") -> tuple[str, str]:
        for name, text in (("rtl/bus.py", rtl), ("tests/test_a.py", a), ("tests/test_b.py", b)):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        handshake_record._functions.cache_clear()
        paths = ["tests/test_a.py", "tests/test_b.py"]
        return digest_of(fault, test, paths), digest_of(fault, "all tests pass", paths)

    monkeypatch.setattr(handshake_record, "ROOT", tmp_path)
    base = "def test_a():\n    assert 1\n"
    found, lost = digests(base, "")
    assert digests(base + "def test_c(): pass\n", "# new")[0] == found
    assert digests(base, "# new")[1] != lost
    assert digests(base.replace("1", "2"), "")[0] != found
    changed = digests(base, "", "x = 2")
    assert changed[0] != found and changed[1] != lost


def test_what_was_never_tried_comes_first() -> None:
    """Then what survived; components whose own tests are in one file are tried together."""
    a = [PortFault("a.A", port, "late") for port in "xyz"]
    b = [PortFault("b.B", port, "late") for port in "xy"]
    lost, found = Finding(str(a[0]), SURVIVED, "-", 30.0, ""), Finding(str(b[0]), FOUND, "t", 1.0, "")
    apart = dict.fromkeys(a, ("a.py",)) | dict.fromkeys(b, ("b.py", "a.py"))
    groups = in_turn(apart, _record(lost, found))
    assert groups == [(a[1], a[2]), (b[1],), (a[0],), (b[0],)]
    assert in_turn(dict.fromkeys([*a, *b], ("a.py",)), _record(lost)) == [(a[1], a[2], *b), (a[0],)]
    assert [len(group) for group in in_turn(apart, _record(), 3)] == [3]


def test_each_component_is_sampled_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped has tried as many faults of each, and not the first ones by name."""
    monkeypatch.setattr(handshakes, "TURN", 2)
    plans = {
        PortFault(name, f"port{n}", "late"): (f"{name[0]}.py",) for name in ("a.A", "b.B") for n in range(6)
    }
    first, second, *_ = groups = in_turn(plans, _record())
    assert [one.component for one in (*first, *second)] == ["a.A", "a.A", "b.B", "b.B"]
    assert {len(group) for group in groups} == {2} and {one.port for one in first} != {"port0", "port1"}


def test_faults_of_several_components_are_in_one_design(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the chosen one is active."""

    class First(Follower):
        belongs: In(1)

        def elaborate(self, platform: object) -> Module:
            return super().elaborate(platform)

    class Second(Follower):
        belongs: In(1)

        def elaborate(self, platform: object) -> Module:
            return super().elaborate(platform)

    monkeypatch.setattr(faulty_ports, "components", lambda: {"toy.First": First, "toy.Second": Second})
    faults = [PortFault("toy.First", "beats", "more"), PortFault("toy.Second", "beats", "more")]
    planted = faulty_ports.Faults(faults)
    for chosen in (None, *faults):
        planted.choose(chosen)
        m, duts = Module(), (First(), Second())
        m.submodules += duts

        async def bench(ctx: Any, duts: Any = duts, chosen: Any = chosen) -> None:
            await ctx.tick()
            assert [ctx.get(dut.beats) for dut in duts] == [fault is chosen for fault in faults]

        simulator = Simulator(m)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()


def test_short_tests_come_first() -> None:
    seconds = {"a.py::long": 3.0, "b.py::mid": 1.0, "a.py::short": 0.1, "c.py::other": 0.0}
    assert handshakes._in_order(["a.py", "b.py"], seconds) == ["a.py::short", "b.py::mid", "a.py::long"]
    assert handshakes._in_order(["d.py"], seconds) == ["d.py"]


def test_the_kept_record_is_about_this_rtl() -> None:
    """Its components, ports and tests exist, and the page is made from it."""
    record, names = Record.read(), faulty_ports.components()
    assert len(record.faults) > 1000 and {fault.partition(":")[0] for fault in record.faults} <= set(names)
    tests = {one.test for one in record.findings if "::" in one.test}
    for test in tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in handshake_record._functions(ROOT / path), test
    assert PAGE.read_text(encoding="utf-8") == page(record, reasons())


def test_reasons_are_sentences_for_components_that_exist() -> None:
    names = faulty_ports.components()
    for pattern, reason in reasons().items():
        assert pattern.partition(":")[0] in names and reason[0].isupper() and reason.endswith(".")
