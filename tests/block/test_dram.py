"""The memory model alone: a scripted AXI master in Python against the C++ of cosim/engines/harness."""

from __future__ import annotations

import ctypes as ct
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from rkcosim.engines import DramConfig, MemoryAccessError
from rkcosim.engines import library as lib
from rkcosim.engines.build import Variant, build
from rkcosim.engines.dram import Dram
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source

BASE = 0x4000_0000
FAST = DramConfig(peak_bytes_per_cycle=1024, port_bytes_per_cycle=1024).unshared


@dataclass
class Read:
    address: int
    beats: int = 16
    id: int = 0


@dataclass
class Write:
    address: int
    data: bytes
    id: int = 0
    strobes: list[int] | None = None


@dataclass
class Master:
    """One core's pins; it requests as fast as possible and accepts all data."""

    reads: deque = field(default_factory=deque)
    writes: deque = field(default_factory=deque)
    beats: deque = field(default_factory=deque)
    asked: list = field(default_factory=list)  # (cycle, id)
    got: list = field(default_factory=list)  # (cycle, id, resp, last, bytes)
    responses: list = field(default_factory=list)  # (cycle, id, resp)
    accepted: list = field(default_factory=list)  # cycles of accepted write beats
    data_first: bool = False
    cycle: int = 0

    def queue(self, *items):
        for item in items:
            if isinstance(item, Read):
                self.reads.append(item)
                continue
            self.writes.append(item)
            count = len(item.data) // 32
            strobes = item.strobes or [0xFFFFFFFF] * count
            for n in range(count):
                self.beats.append((item.data[32 * n : 32 * n + 32], strobes[n], n == count - 1))

    def step(self, i, o):
        """Do the clock edge that ends `cycle`: sample the pins, then drive the next values."""
        if i.m_rvalid:
            self.got.append((self.cycle, i.m_rid, i.m_rresp, bool(i.m_rlast), bytes(i.m_rdata)))
        if i.m_bvalid:
            self.responses.append((self.cycle, i.m_bid, i.m_bresp))
        if o.m_arvalid and i.m_arready:
            self.asked.append((self.cycle, o.m_arid))
            o.m_arvalid = 0
        if o.m_awvalid and i.m_awready:
            o.m_awvalid = 0
        if o.m_wvalid and i.m_wready:
            self.accepted.append(self.cycle)
            o.m_wvalid = 0
        o.m_rready = o.m_bready = 1
        o.m_arsize = o.m_awsize = 5
        o.m_arburst = o.m_awburst = 1
        if self.reads and not o.m_arvalid:
            r = self.reads.popleft()
            o.m_arvalid, o.m_araddr, o.m_arid, o.m_arlen = 1, r.address, r.id, r.beats - 1
        if self.beats and not o.m_wvalid:
            data, strobe, last = self.beats.popleft()
            ct.memmove(o.m_wdata, data, 32)
            o.m_wvalid, o.m_wstrb, o.m_wlast = 1, strobe, last
        if self.writes and not o.m_awvalid and not (self.data_first and not self.accepted):
            w = self.writes.popleft()
            o.m_awvalid, o.m_awaddr, o.m_awid = 1, w.address, w.id
            o.m_awlen = len(w.data) // 32 - 1
        self.cycle += 1


class Bench:
    """An engine whose cores are `Master`s."""

    def __init__(self, cores=1, dram=FAST):
        self.masters = [Master() for _ in range(cores)]
        self.error = None
        library = build(None, Variant("external"))
        source = Source(lambda traced: library, lib.STEP(self._step), lambda: self.error)
        self.engine = SocEngine("test", "none", source, cores=cores, dram=dram, on_diagnostic="go on")
        self.engine.memory.map(BASE, 1 << 20)

    def _step(self, core, pins_in, pins_out):
        try:
            self.masters[core].step(pins_in[0], pins_out[0])
        except BaseException as error:
            self.error = error
            return 1
        return 0

    def run(self, cycles):
        self.engine.run(cycles)


def pattern(size, seed=1):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def test_read_takes_latency_and_gives_the_bytes():
    bench = Bench(dram=DramConfig(read_latency=40))
    data = pattern(512)
    bench.engine.memory.write(BASE + 512, data)
    bench.masters[0].queue(Read(BASE + 512, 16, 5))
    bench.run(400)
    m = bench.masters[0]
    assert b"".join(g[4] for g in m.got) == data.tobytes()
    assert [g[3] for g in m.got] == [False] * 15 + [True]
    assert {(g[1], g[2]) for g in m.got} == {(5, 0)}
    assert m.got[0][0] - m.asked[0][0] == 40
    assert bench.engine.counters(0).bytes_read == {"ERDMA": 512}


@pytest.mark.parametrize("data_first", [False, True])
def test_write_lands_with_strobes_and_answers(data_first):
    bench = Bench(dram=DramConfig(write_latency=25))
    m = bench.masters[0]
    m.data_first = data_first
    before, data = pattern(96, 2), pattern(96, 3)
    bench.engine.memory.write(BASE, before)
    m.queue(Write(BASE, data.tobytes(), 1, [0xFFFFFFFF, 0x00FF00F0, 0]))
    bench.run(200)
    expected = before.copy()
    expected[:32] = data[:32]
    for n in range(32):
        if 0x00FF00F0 >> n & 1:
            expected[32 + n] = data[32 + n]
    assert bench.engine.memory.read(BASE, 96) == expected.tobytes()
    assert [r[1:] for r in m.responses] == [(1, 0)]
    assert m.responses[0][0] - m.accepted[-1] == 25
    assert bench.engine.counters(0).bytes_written == {"PPU": 32 + 12}


@pytest.mark.parametrize("peak", [7.5, 23.65, 32.0])
def test_peak_bandwidth_of_reads(peak):
    bench = Bench(dram=DramConfig(peak_bytes_per_cycle=peak).unshared)
    m = bench.masters[0]
    m.queue(*(Read(BASE + 512 * n, 16, n % 3) for n in range(200)))
    bench.run(200 * 512 // 7 + 1000)
    assert len(m.got) == 3200
    first, last = m.got[0][0], m.got[-1][0]
    assert (3199 * 32) / (last - first) == pytest.approx(peak, rel=0.01)


def test_port_limit_holds_for_each_core_and_direction():
    dram = DramConfig(peak_bytes_per_cycle=1000, port_bytes_per_cycle=8).unshared
    bench = Bench(cores=2, dram=dram)
    for m in bench.masters:
        m.queue(*(Read(BASE + 512 * n) for n in range(40)))
        m.queue(*(Write(BASE + 0x80000 + 512 * n, bytes(512)) for n in range(40)))
    bench.run(40 * 512 // 8 + 600)
    for m in bench.masters:
        span = m.got[-1][0] - m.got[0][0]
        assert len(m.got) == 640 and 639 * 32 / span == pytest.approx(8, rel=0.02)
        span = m.accepted[-1] - m.accepted[10]
        assert len(m.accepted) == 640 and 629 * 32 / span == pytest.approx(8, rel=0.02)


def _shares(bench: Bench) -> list[int]:
    """The beats of each core's reads, then of its writes, in 1,000 cycles in which all have requests."""
    for m in bench.masters:
        m.queue(*(Read(BASE + 512 * n) for n in range(100)))
        m.queue(*(Write(BASE + 0x80000 + 512 * n, bytes(512)) for n in range(100)))
    bench.run(1500)
    early = [len([g for g in m.got if 500 <= g[0] < 1500]) for m in bench.masters]
    written = [len([c for c in m.accepted if 500 <= c < 1500]) for m in bench.masters]
    return early + written


def test_cores_and_directions_share_fairly():
    shares = _shares(Bench(cores=3, dram=DramConfig(peak_bytes_per_cycle=24)))
    assert sum(shares) * 32 / 1000 == pytest.approx(24, rel=0.03)
    assert max(shares) <= 1.15 * min(shares) + 2, shares


@pytest.mark.parametrize("cores, peak, wanted", [(1, 24, 6), (2, 24, 12), (3, 24, 18), (3, 15, 15)])
def test_one_core_moves_what_one_core_can_in_both_directions_together(cores, peak, wanted):
    dram = DramConfig(peak_bytes_per_cycle=peak, core_bytes_per_cycle=6)
    shares = _shares(Bench(cores=cores, dram=dram))
    assert sum(shares) * 32 / 1000 == pytest.approx(wanted, rel=0.03)
    for core in range(cores):
        assert shares[core] + shares[cores + core] == pytest.approx(sum(shares) / cores, rel=0.1)


def test_the_limit_of_one_core_is_a_peak_of_its_own():
    """For a single core it makes no difference which of the two limits applies."""
    benches = [
        Bench(dram=DramConfig(peak_bytes_per_cycle=peak, core_bytes_per_cycle=core, jitter=20))
        for peak, core in ((6.5, 99.0), (99.0, 6.5))
    ]
    for bench in benches:
        _shares(bench)
    first, second = (bench.masters[0] for bench in benches)
    assert first.got == second.got and first.accepted == second.accepted


def test_ids_take_turns_and_each_stays_in_order():
    seed = 7
    bench = Bench(dram=DramConfig(jitter=90, seed=seed))
    rng = np.random.default_rng(seed)
    data = pattern(1 << 17)
    bench.engine.memory.write(BASE, data)
    m = bench.masters[0]
    asked = [Read(BASE + 512 * n, int(rng.integers(1, 17)), int(rng.integers(0, 8))) for n in range(150)]
    m.queue(*asked)
    bench.run(9000)
    for id_ in range(8):
        want = b"".join(
            data[r.address - BASE : r.address - BASE + 32 * r.beats].tobytes() for r in asked if r.id == id_
        )
        assert b"".join(g[4] for g in m.got if g[1] == id_) == want, f"id {id_}, seed {seed}"
    order = [g[1] for g in m.got if g[3]]
    assert order != [r.id for r in asked]  # jitter lets ids overtake each other


def test_jitter_repeats_with_its_seed():
    def times(seed):
        bench = Bench(dram=DramConfig(jitter=50, seed=seed))
        bench.masters[0].queue(*(Read(BASE + 512 * n, 4, n % 5) for n in range(30)))
        bench.run(1000)
        return [g[0] for g in bench.masters[0].got]

    assert times(3) == times(3)
    assert times(3) != times(4)


def test_outstanding_limits():
    dram = DramConfig(read_outstanding=4, client_read_outstanding=2, write_outstanding=3, read_latency=100)
    bench = Bench(dram=dram)
    m = bench.masters[0]
    m.queue(*(Read(BASE + 512 * n, 1, 0) for n in range(10)))
    m.queue(*(Write(BASE + 32 * n, bytes(32), 0) for n in range(10)))
    bench.run(60)
    assert len(m.asked) == 2
    assert len(m.accepted) <= 3 + 1  # one beat may come before its address
    bench.run(2000)
    assert len(m.got) == 10 and len(m.responses) == 10


def test_access_outside_is_an_error_with_a_record():
    bench = Bench()
    m = bench.masters[0]
    bench.engine.memory.write(BASE + (1 << 20) - 64, np.full(64, 7, np.uint8))
    m.queue(Read(BASE + (1 << 20), 2, 1), Read(1 << 33, 1, 2), Write(0x1000, b"\xaa" * 64, 1))
    bench.run(400)
    assert [g[1:4] for g in m.got] == [(1, 3, False), (1, 3, True), (2, 3, True)]
    assert all(g[4] == bytes(32) for g in m.got)
    assert [r[1:] for r in m.responses] == [(1, 3)]
    faults = {(f.client, f.address, f.text) for f in bench.engine.faults()}
    assert faults == {
        ("WEIGHT", BASE + (1 << 20), "read outside every mapped range"),
        ("MRDMA", 1 << 33, "read outside every mapped range"),
        ("PPU", 0x1000, "write outside every mapped range"),
    }


def test_injected_faults():
    bench = Bench(dram=DramConfig(fault_read=2, fault_write=1))
    m = bench.masters[0]
    m.queue(
        Read(BASE, 1), Read(BASE + 32, 2), Read(BASE, 1), Write(BASE, b"\xff" * 32), Write(BASE, b"\x11" * 32)
    )
    bench.run(400)
    assert [g[2] for g in m.got] == [0, 2, 2, 0]
    assert [r[2] for r in m.responses] == [2, 0]
    assert bench.engine.memory.read(BASE, 32) == b"\x11" * 32
    assert [f.text for f in bench.engine.faults()].count("read error injected") == 1


def test_burst_over_a_page_is_refused():
    bench = Bench()
    bench.masters[0].queue(Read(BASE + 4096 - 32, 2))
    bench.run(300)
    assert [g[2] for g in bench.masters[0].got] == [2, 2]
    assert "AXI4" in bench.engine.faults()[0].text


def test_unmapping_takes_effect_and_clears():
    bench = Bench()
    memory = bench.engine.memory
    memory.map(0x1000, 100)
    memory.write(0x1000, b"abc")
    view = memory.view(0x1000, 4096)
    assert view[1] == ord("b")
    memory.unmap(0x1000)
    bench.masters[0].queue(Read(0x1000, 1))
    bench.run(300)
    assert bench.masters[0].got[0][2] == 3
    memory.map(0x1000, 4096)
    assert memory.read(0x1000, 3) == bytes(3)


def test_host_access_is_strict():
    memory = Bench().engine.memory
    with pytest.raises(MemoryAccessError, match="overlaps"):
        memory.map(BASE + 0x1000, 4096)
    with pytest.raises(MemoryAccessError, match="not a multiple"):
        memory.map(0x123, 4096)
    with pytest.raises(MemoryAccessError, match="do not fit"):
        memory.map(0xFFFFF000, 8192)
    with pytest.raises(MemoryAccessError, match="not in one mapped range"):
        memory.read(BASE + (1 << 20) - 2, 3)
    with pytest.raises(MemoryAccessError, match="no range starts"):
        memory.unmap(0x2000)


@pytest.mark.parametrize(
    "values", [{"peak_bytes_per_cycle": 0}, {"read_outstanding": 256}, {"read_latency": 0}, {"jitter": -1}]
)
def test_bad_parameters_are_named(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        DramConfig(**values)


@pytest.mark.parametrize("dram", [DramConfig(), DramConfig(read_latency=2, write_latency=3), FAST])
def test_the_memory_by_itself_is_that_of_the_engines(dram):
    """For the same bursts at the same pins every beat and response comes after the same cycles."""
    items = [Read(BASE + 512 * n, 16, n % 5) for n in range(20)]
    items += [Write(BASE + 0x8000 + 256 * n, pattern(256, n).tobytes(), n % 3) for n in range(20)]
    items += [Read(BASE - 512, 4, 7)]
    bench, alone, master = Bench(dram=dram), Dram(dram), Master()
    bench.masters[0].queue(*items)
    master.queue(*items)
    alone.memory.map(BASE, 1 << 20)
    bench.engine.memory.write(BASE, pattern(1 << 15))
    alone.memory.write(BASE, pattern(1 << 15))
    bench.run(3000)
    for now in range(3000):
        seen, out, wakes = lib.CoreIn.from_buffer_copy(alone.pins_in[0]), alone.pins_out[0], alone.wakes(0)
        if out.m_arvalid or out.m_awvalid or out.m_wvalid or (wakes is not None and wakes <= now):
            alone.edge(now)
        master.step(seen, alone.pins_out[0])
    other = bench.masters[0]
    zero, begin = master.asked[0][0], other.asked[0][0]
    for mine, theirs in ((master.got, other.got), (master.responses, other.responses)):
        assert mine
        assert [(c - zero, *rest) for c, *rest in mine] == [(c - begin, *rest) for c, *rest in theirs]
    assert alone.counters(0).bytes_read == bench.engine.counters(0).bytes_read
    assert [f.address for f in alone.faults()] == [f.address for f in bench.engine.faults()] == [BASE - 512]
    assert alone.wakes(0) is None and not alone.open_bursts(0)
    assert (alone.memory.view(BASE, 1 << 16) == bench.engine.memory.view(BASE, 1 << 16)).all()
    alone.close()
