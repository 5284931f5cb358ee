"""The timing model: what is left of a netlist, and that its C++ does what the netlist does."""

import ctypes as ct
import random
import subprocess
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rkcosim.engines import build, timing, toolchain
from rkcosim.engines.library import CoreIn, CoreOut
from rkcosim.engines.timing.clusters import clusters_of
from rkcosim.engines.timing.cone import timing_netlist
from rkcosim.engines.timing.nodes import program_of
from tests import seeds

DRIVER = """
#include "timing.h"
extern "C" TimingState* start() {
    auto* s = new TimingState;
    timing_start(*s);
    return s;
}
extern "C" void edge(TimingState* s, const CoreIn* i, CoreOut* o) {
    timing_commit(*s);
    timing_pins(*s, *i);
    timing_settle(*s);
    timing_pull(*s, *o);
}
"""


class Sums(wiring.Component):
    """Counts valid words, and keeps their sum, which is only written."""

    m_axi_rvalid: In(1)
    m_axi_rdata: In(256)
    m_axi_wdata: Out(256)
    diag_value: Out(32)

    def elaborate(self, platform) -> Module:
        m = Module()
        total, count = Signal(256), Signal(8)
        with m.If(self.m_axi_rvalid):
            m.d.sync += [total.eq(total + self.m_axi_rdata), count.eq(count + 1)]
        m.d.comb += [self.m_axi_wdata.eq(total), self.diag_value.eq(count)]
        return m


class Everything(wiring.Component):
    """Registers, memories and each kind of operator, with free inputs."""

    s_axil_wdata: In(32)
    s_axil_awaddr: In(16)
    m_axi_bvalid: In(1)
    diag_value: Out(32)
    watch_value: Out(32)
    m_axi_araddr: Out(40)
    m_axi_awaddr: Out(40)
    s_axil_rdata: Out(32)
    m_axi_wvalid: Out(1)
    m_axi_wdata: Out(256)

    def elaborate(self, platform) -> Module:
        m = Module()
        a, b, on = self.s_axil_wdata, self.s_axil_awaddr, self.m_axi_bvalid
        low, high = a[:13].as_signed(), a[13:].as_signed()
        product, shifted, wide = Signal(32), Signal(32), Signal(150)
        m.d.sync += [
            product.eq(Mux(on, low * high, low - high)),
            shifted.eq(Cat((low >> b[:4])[:16], (a << b[4:7])[:16])),
            wide.eq(Cat(wide[32:], a ^ b, on, wide[:21])),
        ]
        m.submodules.rows = rows = Memory(shape=40, depth=11, init=range(11))
        put, get, late = rows.write_port(), rows.read_port(domain="comb"), rows.read_port(transparent_for=())
        near = rows.read_port(transparent_for=(put,))
        m.d.comb += [
            put.en.eq(on & (b[:4] < 11)),
            put.addr.eq(b[:4]),
            put.data.eq(Cat(a, b[8:])),
            get.addr.eq(Mux(b[4:8] < 11, b[4:8], 0)),
            late.addr.eq(get.addr),
            near.addr.eq(get.addr),
            late.en.eq(a[0]),
        ]
        kind, state = Signal(8), Signal(3)
        with m.Switch(b[:5]):
            with m.Case("--001", 7):
                m.d.comb += kind.eq(a[:8])
            with m.Case("1-1--"):
                m.d.comb += kind[2:5].eq(a[3:6])
                with m.If(on):
                    m.d.comb += kind[7].eq(1)
            with m.Default():
                m.d.comb += kind.eq(Cat(low < high, low <= high, a[:9] > b[:9], a[:9] >= b[:9], a.any()))
        with m.If((a[:4] == b[:4]) | a[:3].all()):
            m.d.sync += state.eq(state + 1)
        with m.Elif(a[:5].xor() & (a[5:9] != b[3:7])):
            m.d.sync += state.eq(0)
        signed_part = Signal(signed(20))
        m.d.comb += signed_part.eq(low)
        m.d.comb += [
            self.diag_value.eq(product ^ (a // (b[:6] + 1))),
            self.watch_value.eq(shifted + wide.bit_select(b[:7], 20)),
            self.m_axi_araddr.eq(get.data ^ wide.word_select(b[8:10], 37)),
            self.m_axi_awaddr.eq(
                late.data + near.data + (wide >> b[:8]) + wide.word_select(b[8:10], 70)[25:]
            ),
            self.s_axil_rdata.eq(Cat(kind, state, (signed_part >> b[:5])[:12], ~a[:5], (-low)[:4])),
            self.m_axi_wvalid.eq(a[7]),
            self.m_axi_wdata.eq(Cat(lane(m, number, a, b, on, rows) for number in range(8))),
        ]
        return m


def lane(m: Module, number: int, a: Value, b: Value, on: Value, rows: Memory) -> Value:
    """One of eight equal parts of the data: registers with enables, and choices by control and by data."""
    taken, kept, out = Signal(32), Signal(signed(20)), Signal(32, init=number)
    chosen, scaled = Signal(signed(40)), Signal(signed(40))
    read = rows.read_port(transparent_for=())
    m.d.comb += [read.addr.eq((b + number)[:3]), read.en.eq(b[9])]
    with m.If(on):
        m.d.sync += taken.eq(a.rotate_left(number) ^ read.data[:32])
    with m.If(b[0]):
        with m.Switch(b[1:3]):
            with m.Case(0):
                m.d.comb += chosen.eq((taken.as_signed() * kept) >> b[3:6])
            with m.Case(1):
                m.d.comb += chosen.eq(Mux(taken[31], -taken.as_signed(), (taken << 1).as_signed() + kept))
            with m.Default():
                m.d.comb += chosen.eq(taken[:16].as_signed() - b.as_signed())
    with m.Else():
        m.d.comb += [chosen[:10].eq(taken[4:9].replicate(2)), chosen[30:].eq(kept)]
    saturated = Mux(chosen > 0x7FFFF, 0x7FFFF, Mux(chosen < -0x80000, -0x80000, chosen))
    m.d.comb += scaled.eq(saturated)
    with m.If(a[number] | b[15]):
        m.d.sync += kept.eq(scaled)
    with m.If(b[14]):
        m.d.sync += [out[:16].eq(kept[4:]), out[20:].eq(taken)]
    return out


def ports(component) -> set[str]:
    """Names of a component's outputs in pins.h."""
    names = {path[0] for path, member, _ in component.signature.flatten(component) if member.flow == Out}
    return {name.replace("s_axil_", "s_").replace("m_axi_", "m_") for name in names}


def test_only_what_determines_cycles_is_left():
    netlist = timing_netlist(Sums(), "core")
    program = program_of(netlist)
    registers = [node.out.width for node in program.nodes if node.kind == "register"]
    assert sum(registers) == 8  # the counter, and nothing of the sum
    assert not any(variable.width > 8 for variable in program.variables if not variable.state)


def test_each_node_follows_what_it_needs():
    program = program_of(timing_netlist(Everything(), "core"))
    found = clusters_of(program, 5)
    at = {id(node): c.number for c in found.clusters for node in c.nodes}
    assert len(at) == len(program.nodes)
    for cluster in found.clusters:
        for node in cluster.nodes:
            if node.out is not None and not node.out.state:
                assert all(reader > cluster.number for reader in found.readers.get(node.out.number, ()))


@pytest.mark.parametrize("data", [False, True], ids=["timing", "with data"])
def test_cpp_equals_amaranth(tmp_path: Path, data: bool):
    seed = seeds.seed(__name__)
    print("seed", seed)
    component = Everything()
    sources = timing.write(component, tmp_path, data=data)
    (tmp_path / "driver.cpp").write_text(DRIVER)
    library = tmp_path / "model.so"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", f"-I{tmp_path}", f"-I{build.harness_folder()}"]
    files = [*map(str, sources), str(tmp_path / "driver.cpp")]
    subprocess.run([*toolchain.compiler().command, *flags, *files, "-o", str(library)], check=True)
    model = ct.CDLL(str(library))
    model.start.restype = ct.c_void_p
    state = ct.c_void_p(model.start())
    drawn = random.Random(seed)
    outs = sorted(ports(component))
    names = {name.replace("s_", "s_axil_", 1).replace("m_", "m_axi_", 1): name for name in outs}
    del names["m_axi_wdata"]

    async def bench(ctx):
        pins, result = CoreIn(), CoreOut()
        for cycle in range(3000):
            if drawn.random() < 0.7:
                pins.s_wdata = drawn.choice([0, 0xFFFFFFFF, drawn.getrandbits(32)])
            if drawn.random() < 0.6:
                pins.s_awaddr = drawn.getrandbits(16)
            pins.m_bvalid = drawn.getrandbits(1)
            await ctx.tick()
            ctx.set(component.s_axil_wdata, pins.s_wdata)
            ctx.set(component.s_axil_awaddr, pins.s_awaddr)
            ctx.set(component.m_axi_bvalid, pins.m_bvalid)
            model.edge(state, ct.byref(pins), ct.byref(result))
            await ctx.delay(1e-9)
            for port, name in names.items():
                signal = getattr(component, port if hasattr(component, port) else name)
                assert ctx.get(signal) == getattr(result, name), (cycle, name)
            if data and result.m_wvalid:
                assert ctx.get(component.m_axi_wdata) == int.from_bytes(bytes(result.m_wdata), "little"), (
                    cycle
                )

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
