"""A small core with the ports of `rkcosim.rtl.core.NpuCore`: a register bus, a copy engine, an interrupt.

Tests of engines and memory use it because the real core takes long to build.  `open_toy` opens an engine
of such cores, `start` starts a copy on one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.engines import DramConfig, SocEngine, open_engine

SRC, DST, BURSTS, GO, STATUS, BEATS, SUM, SLOW = range(0xE000, 0xE020, 4)
"""Registers: addresses, bursts, start, state (1 busy, 2 error; a write clears irq), beats of a
burst minus one, sum of all bytes read, an address whose accesses end in SLVERR."""

SLOTS = 4

SOURCE, TARGET = 0x10_0000, 0x20_0000
"""Where `open_toy` maps memory; the source has random contents."""

CROWDED = DramConfig(jitter=70, seed=11, peak_bytes_per_cycle=20)
"""Memory that delays cores, each time differently."""


def open_toy(name: str = "verilator", **options: Any) -> SocEngine:
    """Open an engine of small cores; `options` as in `open_engine`."""
    engine = open_engine(name, design=ToyCore, progress=lambda text: None, **options)
    engine.memory.map(SOURCE, 0x10000)
    engine.memory.map(TARGET, 0x10000)
    engine.memory.write(SOURCE, np.random.default_rng(5).integers(0, 256, 0x10000, dtype=np.uint8))
    return engine


def start(
    engine: SocEngine, core: int, bursts: int, beats: int = 16, source: int = SOURCE, target: int = TARGET
) -> None:
    """Let a core copy `bursts` bursts of `beats` beats; each core has a part of the target."""
    for register, value in (
        (SRC, source),
        (DST, target + 0x4000 * core),
        (BURSTS, bursts),
        (BEATS, beats - 1),
        (GO, 1),
    ):
        engine.write32(core, register, value)


def ports() -> dict[str, wiring.Member]:
    """Ports of a core (except clock and reset)."""
    table = {
        "core_index": In(2),
        "options": In(8),
        "irq": Out(1),
        "idle": Out(1),
        "events": Out(16),
        "task_index": Out(12),
        "step_report": Out(16),
        "step_answer": In(18),
        "watch_valid": Out(1),
        "watch_fetched": Out(1),
        "watch_offset": Out(16),
        "watch_value": Out(32),
        "busy_blocks": Out(7),
        "counting": In(1),
        "activity": Out(48),
        "levels": Out(192),
        "macs": Out(12),
        "array_macs": Out(12),
        "diag_valid": Out(1),
        "diag_code": Out(8),
        "diag_block": Out(4),
        "diag_register": Out(16),
        "diag_value": Out(32),
    }
    lite = {"awvalid": 1, "awaddr": 16, "wvalid": 1, "wdata": 32, "wstrb": 4, "bready": 1}
    lite |= {"arvalid": 1, "araddr": 16, "rready": 1}
    lite_back = {"awready": 1, "wready": 1, "bvalid": 1, "bresp": 2, "arready": 1}
    lite_back |= {"rvalid": 1, "rdata": 32, "rresp": 2}
    table |= {f"s_axil_{name}": In(width) for name, width in lite.items()}
    table |= {f"s_axil_{name}": Out(width) for name, width in lite_back.items()}
    for way, id_bits in (("ar", 5), ("aw", 4)):
        request = {"valid": 1, "addr": 40, "id": id_bits, "len": 8, "size": 3, "burst": 2}
        request |= {"lock": 1, "cache": 4, "prot": 3, "qos": 4}
        table |= {f"m_axi_{way}{name}": Out(width) for name, width in request.items()}
        table[f"m_axi_{way}ready"] = In(1)
    back = {"rvalid": 1, "rdata": 256, "rid": 5, "rresp": 2, "rlast": 1}
    back |= {"wready": 1, "bvalid": 1, "bid": 4, "bresp": 2}
    table |= {f"m_axi_{name}": In(width) for name, width in back.items()}
    out = {"rready": 1, "wvalid": 1, "wdata": 256, "wstrb": 32, "wlast": 1, "bready": 1}
    return table | {f"m_axi_{name}": Out(width) for name, width in out.items()}


class ToyCore(wiring.Component):
    """Copies bursts from SRC to DST, with up to four outstanding reads, each with another id."""

    def __init__(self) -> None:
        super().__init__(ports())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        src, dst, total = Signal(32), Signal(32), Signal(32)
        bursts = Signal(12)
        beats_m1 = Signal(4)
        busy, error, go = Signal(), Signal(), Signal()
        m.d.sync += [go.eq(0), self.diag_valid.eq(0), self.events.eq(0)]
        self._registers(m, src, dst, bursts, beats_m1, busy, error, total, go)

        buffer = memory.Memory(shape=256, depth=16 * SLOTS, init=[])
        m.submodules.buffer = buffer
        write, read = buffer.write_port(), buffer.read_port()
        full = Signal(SLOTS)
        taken = Signal(SLOTS)
        count = Signal(data.ArrayLayout(4, SLOTS))

        asked, done = Signal(12), Signal(12)
        m.d.comb += [
            self.m_axi_arsize.eq(5),
            self.m_axi_arburst.eq(1),
            self.m_axi_awsize.eq(5),
            self.m_axi_awburst.eq(1),
            self.m_axi_rready.eq(1),
            self.m_axi_bready.eq(1),
            self.m_axi_wstrb.eq(~0),
        ]
        with m.If(go):
            m.d.sync += [busy.eq(1), error.eq(0), asked.eq(0), done.eq(0), total.eq(0)]
            m.d.sync += [self.events[0].eq(1), self.task_index.eq(self.task_index + 1)]

        slot = Signal(2)
        m.d.comb += slot.eq(asked[:2])
        with m.If(self.m_axi_arvalid):
            with m.If(self.m_axi_arready):
                m.d.sync += [self.m_axi_arvalid.eq(0), asked.eq(asked + 1)]
        with m.Elif(busy & (asked != bursts) & ~taken.bit_select(slot, 1)):
            m.d.sync += [
                self.m_axi_arvalid.eq(1),
                self.m_axi_araddr.eq(src + asked * 512),
                self.m_axi_arid.eq(slot),
                self.m_axi_arlen.eq(beats_m1),
                taken.bit_select(slot, 1).eq(1),
            ]

        place = Signal(2)
        m.d.comb += [
            place.eq(self.m_axi_rid),
            write.en.eq(self.m_axi_rvalid),
            write.addr.eq(place * 16 + count[place]),
            write.data.eq(self.m_axi_rdata),
        ]
        with m.If(self.m_axi_rvalid):
            lanes = [self.m_axi_rdata[8 * n : 8 * n + 8] for n in range(32)]
            m.d.sync += [count[place].eq(count[place] + 1), total.eq(total + sum(lanes[1:], lanes[0]))]
            with m.If(self.m_axi_rresp != 0):
                m.d.sync += error.eq(1)
            with m.If(self.m_axi_rlast):
                m.d.sync += [full.bit_select(place, 1).eq(1), count[place].eq(0)]

        source = Signal(2)
        beat = Signal(4)
        m.d.comb += [source.eq(done[:2]), read.addr.eq(source * 16 + beat), read.en.eq(1)]
        with m.If(self.m_axi_awvalid & self.m_axi_awready):
            m.d.sync += self.m_axi_awvalid.eq(0)
        with m.If(self.m_axi_wvalid & ~self.m_axi_wready):
            m.d.sync += self.events[2].eq(1)
        with m.FSM():
            with m.State("WAIT"):
                with m.If(busy & ~go & (done == bursts)):
                    m.d.sync += [busy.eq(0), self.irq.eq(1), self.events[1].eq(1)]
                with m.Elif(busy & full.bit_select(source, 1)):
                    m.d.sync += beat.eq(0)
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "FETCHED"
            with m.State("FETCHED"):
                # The first beat comes before its address every other time.
                early = Signal()
                m.d.comb += early.eq(done[0])
                with m.If(beat == Mux(early & (beats_m1 != 0), 1, 0)):
                    m.d.sync += [
                        self.m_axi_awvalid.eq(1),
                        self.m_axi_awaddr.eq(dst + done * 512),
                        self.m_axi_awid.eq(done[0]),
                        self.m_axi_awlen.eq(beats_m1),
                    ]
                m.d.sync += [
                    self.m_axi_wvalid.eq(1),
                    self.m_axi_wdata.eq(read.data),
                    self.m_axi_wlast.eq(beat == beats_m1),
                ]
                m.next = "SEND"
            with m.State("SEND"):
                with m.If(self.m_axi_wready):
                    m.d.sync += [self.m_axi_wvalid.eq(0), beat.eq(beat + 1)]
                    m.next = "FETCH"
                    with m.If(self.m_axi_wlast):
                        m.next = "RESPONSE"
            with m.State("RESPONSE"):
                with m.If(self.m_axi_bvalid):
                    with m.If(self.m_axi_bresp != 0):
                        m.d.sync += error.eq(1)
                    m.d.sync += [full.bit_select(source, 1).eq(0), taken.bit_select(source, 1).eq(0)]
                    m.d.sync += done.eq(done + 1)
                    m.next = "WAIT"
        return m

    def _registers(
        self,
        m: Module,
        src: Signal,
        dst: Signal,
        bursts: Signal,
        beats_m1: Signal,
        busy: Signal,
        error: Signal,
        total: Signal,
        go: Signal,
    ) -> None:
        take = Signal()
        m.d.comb += take.eq(
            self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_awready & ~self.s_axil_bvalid
        )
        m.d.sync += [self.s_axil_awready.eq(take), self.s_axil_wready.eq(take)]
        m.d.sync += [self.watch_valid.eq(self.s_axil_awready), self.busy_blocks.eq(busy)]
        with m.If(self.s_axil_bready & self.s_axil_bvalid):
            m.d.sync += self.s_axil_bvalid.eq(0)
        with m.If(self.s_axil_awready):
            m.d.sync += [self.s_axil_bvalid.eq(1), self.s_axil_bresp.eq(0)]
            m.d.sync += [self.watch_offset.eq(self.s_axil_awaddr), self.watch_value.eq(self.s_axil_wdata)]
            with m.Switch(self.s_axil_awaddr):
                for offset, target in ((SRC, src), (DST, dst), (BURSTS, bursts), (BEATS, beats_m1)):
                    with m.Case(offset):
                        m.d.sync += target.eq(self.s_axil_wdata)
                with m.Case(GO):
                    m.d.sync += go.eq(1)
                with m.Case(STATUS):
                    m.d.sync += self.irq.eq(0)
                with m.Case(SLOW):
                    m.d.sync += self.s_axil_bresp.eq(2)
                with m.Default():
                    m.d.sync += [
                        self.diag_valid.eq(1),
                        self.diag_code.eq(1),
                        self.diag_block.eq(self.s_axil_awaddr[12:]),
                        self.diag_register.eq(self.s_axil_awaddr),
                        self.diag_value.eq(self.s_axil_wdata),
                    ]

        ask = Signal()
        m.d.comb += ask.eq(self.s_axil_arvalid & ~self.s_axil_arready & ~self.s_axil_rvalid)
        m.d.sync += self.s_axil_arready.eq(ask)
        with m.If(self.s_axil_rready & self.s_axil_rvalid):
            m.d.sync += self.s_axil_rvalid.eq(0)
        with m.If(self.s_axil_arready):
            m.d.sync += [self.s_axil_rvalid.eq(1), self.s_axil_rdata.eq(0), self.s_axil_rresp.eq(0)]
            with m.Switch(self.s_axil_araddr):
                with m.Case(SRC):
                    m.d.sync += self.s_axil_rdata.eq(src)
                with m.Case(STATUS):
                    m.d.sync += self.s_axil_rdata.eq(busy | error << 1)
                with m.Case(SUM):
                    m.d.sync += self.s_axil_rdata.eq(total)
                with m.Case(SLOW):
                    m.d.sync += self.s_axil_rresp.eq(2)
        bus = Signal()
        m.d.comb += bus.eq(
            self.s_axil_awready | self.s_axil_arready | self.s_axil_bvalid | self.s_axil_rvalid
        )
        m.d.sync += self.idle.eq(~(busy | go | bus | take | ask))


class CountingCell(wiring.Component):
    """Sums signed products, to check wide arithmetic in every engine."""

    i: In(16)
    o: Out(signed(40))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.o.eq(self.o + self.i[:8].as_signed() * self.i[8:].as_signed())
        return m
