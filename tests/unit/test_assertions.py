"""rtl/assertions.py: what is asserted, that it fails where it has to, and that nothing is left without it."""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import C, Fragment, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.verilog import told_assertions
from rkcosim.rtl import assertions
from rkcosim.rtl.assertions import CHECKS, Assertions, handshakes
from rkcosim.rtl.bus import RegisterBus
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.list_fetch import ListFetcher
from rkcosim.rtl.npu.atom_reader import AtomReader
from rkcosim.rtl.npu.atom_writer import AtomWriter
from rkcosim.spec.config import SMALL
from tools.mutation.faulty_ports import PortFault, plant


class Ports(wiring.Component):
    """Streams, a channel of AXI, a bus for accesses of registers, and states without names as in the core."""

    given: In(stream.Signature(4))
    shown: Out(stream.Signature(4))
    awvalid: Out(1)
    awready: In(1)
    awaddr: Out(8)
    bus: Out(RegisterBus())
    valid: Out(1)
    ready: In(1)
    activity: Out(48)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal().eq(self.ready)  # there is a clock
        assertions.ports(m, platform, self)
        return m


Cycle = Mapping[str, int]
"""Values of ports by their names, joined with "__"; all others stay as they are."""


def _run(dut: wiring.Component, cycles: Sequence[Cycle], platform: object) -> None:
    def port(name: str) -> Any:
        signal: Any = dut
        for part in name.split("__"):
            signal = getattr(signal, part)
        return signal

    async def bench(ctx: Any) -> None:
        for values in cycles:
            for name, value in values.items():
                ctx.set(port(name), value)
            await ctx.tick()

    simulator = Simulator(Fragment.get(dut, platform))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


OFFER = {"given__valid": 1, "given__payload": 3}

WRONG = {
    "Ports.given.valid: an offer ends before it is taken": [OFFER, {"given__valid": 0}],
    "Ports.given.valid: an offer changes before it is taken": [OFFER, {"given__payload": 4}],
    "Ports.shown.valid: an offer ends before it is taken": [{"shown__valid": 1}, {"shown__valid": 0}],
    "Ports.awvalid: an offer changes before it is taken": [{"awvalid": 1}, {"awaddr": 1}],
    "Ports.bus.write: an offer changes before it is taken": [{"bus__write": 1}, {"bus__wdata": 1}],
    "Ports.bus.read: an offer ends before it is taken": [{"bus__read": 1}, {"bus__read": 0}],
    "Ports.bus: a write and a read in the same cycle": [{"bus__read": 1, "bus__write": 1}],
}


@pytest.mark.parametrize("text", WRONG)
def test_a_broken_handshake_is_found(text: str) -> None:
    with pytest.raises(AssertionError, match=rf"{text}$"):
        _run(Ports(), [*WRONG[text], {}, {}], Assertions())
    _run(Ports(), [*WRONG[text], {}, {}], None)


def test_handshakes_that_keep_to_the_rules() -> None:
    """An offer may end and change once it is taken, and ready may come and go."""
    taken = {"given__ready": 1, "shown__ready": 1, "awready": 1, "bus__ready": 1}
    offer = {**OFFER, "shown__valid": 1, "awvalid": 1, "awaddr": 9, "bus__write": 1, "bus__wdata": 7}
    ended = {"given__valid": 0, "shown__valid": 0, "awvalid": 0, "bus__write": 0, "given__payload": 9}
    waits = dict.fromkeys(taken, 0)
    cycles = [offer, {}, taken, {**waits, **ended}, {"valid": 1}, {"valid": 0}, taken, offer, ended, {}]
    _run(Ports(), cycles, Assertions())


def test_handshakes_of_components() -> None:
    """Members called valid and ready without a port of their own are no handshake."""
    ports, fetcher = Ports(), ListFetcher()
    for component in (ports, fetcher):
        Fragment.get(component, None)  # a component has to be used
    found = {(one.name, one.given, len(one.payload)) for one in handshakes(ports)}
    assert found == {
        ("given.valid", True, 1),
        ("shown.valid", False, 1),
        ("awvalid", False, 1),
        ("bus.write", False, 2),
        ("bus.read", False, 1),
    }
    names = {one.name for one in handshakes(fetcher)}
    assert names == {"read.req.valid", "read.rsp.valid", "words.valid"}


class Counts(wiring.Component):
    """A FIFO and a count, driven from outside."""

    write: In(1)
    read: In(1)
    up: In(2)
    down: In(2)
    count: In(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = SyncFIFO(width=1, depth=2)
        m.d.comb += [queue.w_en.eq(self.write), queue.r_en.eq(self.read)]
        assertions.has_room(m, platform, queue, "Counts.queue")
        assertions.has_value(m, platform, queue, "Counts.queue")
        assertions.bounded(m, platform, self.count, "Counts.count", up=self.up, down=self.down, most=9)
        return m


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("queue: a value finds no room", [{"write": 1}, {}, {}]),
        ("queue: it is read while it is empty", [{"write": 1, "read": 0}, {"write": 0, "read": 1}, {}]),
        ("count: it becomes negative", [{"count": 1, "down": 2, "up": 1}, {"up": 0}]),
        ("count: it becomes larger than 9", [{"count": 9, "down": 2, "up": 2}, {"down": 1}]),
    ],
)
def test_fifos_and_counts(text: str, cycles: list[Cycle]) -> None:
    _run(Counts(), cycles[:-1], Assertions())
    with pytest.raises(AssertionError, match=rf"Counts\.{text}$"):  # in the last cycle
        _run(Counts(), cycles, Assertions())


class States(wiring.Component):
    """A block whose states for the counters come from outside."""

    idle: In(1)
    array: In(1)
    activity: Out(activity_layout("CORE"))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal().eq(self.idle)  # there is a clock
        drive_activity(m, platform, "States", self.activity, self.idle, DPU=C(0), BUSY=C(0), ARRAY=self.array)
        return m


def test_each_cycle_has_a_state() -> None:
    cycles: list[Cycle] = [{"idle": 1}, {"idle": 0, "array": 1}, {"idle": 1}, {"array": 0}]
    _run(States(), cycles, Assertions())
    with pytest.raises(AssertionError, match=r"States\.activity: a cycle has no state$"):
        _run(States(), [*cycles, {"idle": 0}, {}], Assertions())


def test_the_rtl_without_them_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the platform None, nothing is left of them in what engines and exports are made from."""

    def text(platform: object) -> str:
        return str(rtlil.convert(AtomWriter(), platform=platform, emit_src=False))

    plain, checked = text(None), text(Assertions())
    assert "$check" in checked and CHECKS in checked
    for name in ("ports", "always", "has_room", "has_value", "bounded"):
        monkeypatch.setattr(assertions, name, lambda *given, **options: None)
    assert text(None) == plain


@pytest.mark.heavy  # elaborates the whole core
def test_every_handshake_of_the_core_has_them() -> None:
    """No component of the core leaves out the assertions of its ports."""
    seen = set()

    def visit(part: Fragment) -> None:
        owner = part.origins[0] if part.origins else None
        if isinstance(owner, wiring.Component) and type(owner).__module__.startswith("rkcosim."):
            if list(handshakes(owner)):
                assert any(name == CHECKS for _, name, _ in part.subfragments), type(owner).__name__
                seen.add(type(owner).__name__)
        for inner, *_ in part.subfragments:
            visit(inner)

    visit(Fragment.get(NpuCore(SMALL), Assertions()))
    assert len(seen) > 35 and {"NpuCore", "BurstReader", "StripeWriter", "RowWindows"} <= seen


def test_a_planted_fault_makes_an_assertion_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is offered for one cycle only; the assertion sees what the memory sees."""
    cycles = [{"read__req__ready": 0}] * 8
    _run(AtomReader(64), cycles, Assertions())
    monkeypatch.setattr(AtomReader, "elaborate", AtomReader.elaborate)  # restored at the end
    plant(PortFault("npu.atom_reader.AtomReader", "read__req__valid", "raised"))
    with pytest.raises(AssertionError, match=r"AtomReader\.read\.req\.valid: an offer ends"):
        _run(AtomReader(64), cycles, Assertions())


WRITTEN = """\
module \\core.a$4.assertions (clk, b);
  always @(posedge clk)
    if (1'h1) begin
      if (!_02_)
        $write("Sub.b: it \\"ends\\"");
      assert (_02_);
    end
endmodule
"""


def test_verilog_tells_the_harness() -> None:
    text = told_assertions(WRITTEN)
    assert text.startswith('import "DPI-C" function void rk_assertion(')
    assert 'if (!_02_) rk_assertion("a", "Sub.b: it \\"ends\\"");\n    end' in text
    assert told_assertions("module a;\nendmodule\n") == "module a;\nendmodule\n"
    with pytest.raises(BuildError, match="assertions in an unknown form"):
        told_assertions("      assert (_03_);\n")
