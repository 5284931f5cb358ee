"""CORE: drain order, rounding and saturation; with the sequence controller, whole convolutions."""

import random

import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

import rkcosim.rtl.npu.core_block as core_block
from rkcosim.rtl.layouts import ACC_BITS, AccOctet, ControlPort, DiagnosticCode
from rkcosim.rtl.npu.array import CELL_LATENCY, ArrayCell
from rkcosim.rtl.npu.core_block import CoreBlock
from rkcosim.rtl.npu.csc import SequenceController
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import SMALL
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.cna_bench import configure
from tests.block.conv_bench import Conv, random_conv
from tests.block.csc_bench import FakeCbuf
from tests.extent import extent

_HIGHEST = (1 << (ACC_BITS - 1)) - 1
OCTETS = {0: 4, 1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 2}
"""Octets per group by CORE's PROC_PRECISION [HW 6.3]."""

FLOATS = (2, 3, 7)
GATING = 0x07800800
"""Reset value of MAC_GATING [HW 2.3]."""

SEED = seeds.seed(__name__)


def simulate(dut, *benches) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


def read_octet(ctx, payload) -> tuple[list[int], list[int]]:
    def signed(value: int) -> int:
        half = 1 << (ACC_BITS - 1)
        return (value ^ half) - half

    return [signed(ctx.get(payload.acc[n])) for n in range(8)], [ctx.get(payload.sum[n]) for n in range(8)]


# ---------------------------------------------------------------------- CORE alone


class FakeCell(ArrayCell):
    """A cell whose accumulators are a table with rows of (octet, bank, slot)."""

    rows: list[tuple[list[int], list[int]]] = []

    def elaborate(self, platform) -> Module:
        m = Module()

        def pack(values, bits):
            return sum((value % (1 << bits)) << (bits * n) for n, value in enumerate(values))

        init = [pack(acc, ACC_BITS) | pack(total, 32) << 8 * ACC_BITS for acc, total in self.rows]
        m.submodules.table = table = Memory(MemoryData(shape=8 * ACC_BITS + 256, depth=256, init=init))
        port = table.read_port()
        m.d.comb += [
            port.en.eq(self.d_valid),
            port.addr.eq(Cat(self.d_slot, self.d_bank, self.d_octet)),
            Cat(self.o_acc, self.o_sum).eq(port.data),
        ]
        return m


def random_acc(rng: random.Random) -> int:
    """Draw values at the limits of 32 bits and of the accumulator, at ties, and others."""
    pick = rng.random()
    if pick < 0.3:
        return rng.choice((1 << 31, -(1 << 31), _HIGHEST, ~_HIGHEST)) + rng.choice((-1, 0, 0, 0))
    if pick < 0.6:
        return (2 * rng.randint(-(1 << 8), 1 << 8) + 1) << rng.randint(0, 29)
    return rng.randint(-(1 << rng.randint(1, ACC_BITS - 1)), (1 << rng.randint(1, ACC_BITS - 1)) - 1)


@pytest.fixture
def fake_cell(monkeypatch):
    rng = random.Random(SEED)
    FakeCell.rows = [
        (
            [min(max(random_acc(rng), ~_HIGHEST), _HIGHEST) for _ in range(8)],
            [rng.getrandbits(32) for _ in range(8)],
        )
        for _ in range(256)
    ]
    monkeypatch.setattr(core_block, "ArrayCell", FakeCell)
    return FakeCell.rows


def expected_octets(rows, values, stripes) -> list[tuple[list[int], list[int]]]:
    """Return the octets that CORE passes to the DPU [HW 6.3]."""
    misc = values["MISC_CFG"]
    gates = values["MAC_GATING"]["SLCG_OP_EN"]
    is_float = misc["PROC_PRECISION"] in FLOATS
    octets = 8 if misc["DW_EN"] else OCTETS[misc["PROC_PRECISION"]]
    want = []
    for stripe in stripes:
        for pixel in range(stripe["pixels_m1"] + 1):
            for octet in range(octets):
                acc, total = rows[octet * 32 + stripe["bank"] * 16 + pixel]
                if not gates >> (23 if octet % 2 else 11) & 1:
                    want.append(([0] * 8, [0] * 8))
                    continue
                real = [8 * octet + n < stripe["kernels"] for n in range(8)]
                if is_float:
                    acc = [(a % 2**32 ^ 1 << 31) - (1 << 31) for a in acc]
                acc = [a if r else 0 for a, r in zip(acc, real, strict=True)]
                want.append((acc, total if misc["QD_EN"] and not is_float else [0] * 8))
    return want


def drain_tasks(rows, tasks, *, stall: float):
    """Run tasks (registers, stripes) on CORE; check octets, banks and the end; return cycles of each task.

    The stripes are one kernel group, or several of equal size (a third member is their number).
    """
    rng = random.Random(SEED)
    dut = CoreBlock()
    cycles = []

    async def bench(ctx):
        for values, stripes, *rest in tasks:
            (groups,) = rest or (1,)
            size = {"groups": groups, "stripes": len(stripes) // groups}
            configure(ctx, dut.cfg, values)
            ctx.set(dut.control.start, 1)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            want = expected_octets(rows, values, stripes)
            octets = len(want) // sum(stripe["pixels_m1"] + 1 for stripe in stripes)
            wanted = values["DATAOUT_SIZE_1"]["DATAOUT_CHANNEL"] // (8 * octets) + 1
            want += max(0, wanted - groups) * (len(want) // groups) * [([0] * 8, [0] * 8)]
            assert ctx.get(dut.octets) == octets
            clipping = values["CLIP_TRUNCATE"]
            cut = (clipping["CLIP_TRUNCATE"], clipping["ROUND_TYPE"])
            if values["MISC_CFG"]["PROC_PRECISION"] in FLOATS:
                cut = (0, 0)
            queue, got, done = list(stripes), [], False
            cycle = 0
            while not done and cycle < 4000:
                cycle += 1
                offered = bool(queue) and (stall == 0 or rng.random() >= stall)
                if offered or not ctx.get(dut.feed.stripe.valid):
                    ctx.set(dut.feed.stripe.valid, offered)
                if queue:
                    ctx.set(dut.feed.stripe.payload, queue[0])
                ctx.set(dut.acc.ready, rng.random() >= stall)
                ctx.set(dut.feed.cell.precision, values["MISC_CFG"]["PROC_PRECISION"])
                ctx.set(dut.feed.cell.depthwise, values["MISC_CFG"]["DW_EN"])
                ctx.set(dut.feed.size, size)
                clean = values["MAC_GATING"]["SLCG_OP_EN"] == GATING and wanted <= groups
                assert not ctx.get(dut.diag.valid) or not clean
                taken = ctx.get(dut.feed.stripe.valid) and ctx.get(dut.feed.stripe.ready)
                out = ctx.get(dut.acc.valid) and ctx.get(dut.acc.ready)
                if out:
                    got.append(read_octet(ctx, dut.acc.payload))
                    clip = dut.acc.payload.clip
                    assert (ctx.get(clip.shift), ctx.get(clip.half_up)) == cut
                done = ctx.get(dut.control.done)
                await ctx.tick()
                if taken:
                    bank = queue.pop(0)["bank"]
                    assert not ctx.get(dut.feed.bank_free) >> bank & 1, "a bank under drain must not be free"
                    ctx.set(dut.feed.stripe.valid, 0)
            assert done and got == want
            assert ctx.get(dut.feed.bank_free) == 3
            cycles.append(cycle)

    simulate(dut, bench)
    return cycles


def core_values(*, depthwise=0, sums=1, shift=0, half_up=0, precision=0, gates=GATING, channels=1):
    return {
        "MAC_GATING": {"SLCG_OP_EN": gates},
        "MISC_CFG": {"DW_EN": depthwise, "QD_EN": sums, "PROC_PRECISION": precision},
        "CLIP_TRUNCATE": {"CLIP_TRUNCATE": shift, "ROUND_TYPE": half_up},
        "DATAOUT_SIZE_1": {"DATAOUT_CHANNEL": channels - 1},
    }


def stripes_of(rng: random.Random, count: int, lanes: int) -> list[dict[str, int]]:
    return [
        {
            "bank": n % 2,
            "pixels_m1": rng.randrange(16),
            "kernels": rng.randint(1, lanes),
            "last": n == count - 1,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_drain(fake_cell, stall):
    """Order, CLIP_TRUNCATE with both roundings, lanes that are not real, QD_EN."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    tasks = []
    for shift in (0, 1, 2, 7, 8, 23, 30, 31):
        for precision in (rng.choice((0, 1, 6)), rng.choice((0, 1, 2, 3, 6, 7))):
            depthwise = rng.randrange(2)
            values = core_values(
                depthwise=depthwise,
                sums=rng.randrange(2),
                shift=shift,
                half_up=rng.randrange(2),
                precision=precision,
                gates=GATING if rng.random() < 0.8 else GATING & ~rng.choice((1 << 11, 1 << 23)),
            )
            tasks.append((values, stripes_of(rng, 2, 8 * (8 if depthwise else OCTETS[precision]))))
    drain_tasks(fake_cell, tasks, stall=stall)


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_missing_groups(fake_cell, stall):
    """Groups of DATAOUT_CHANNEL after those with kernels are zeros, with the same number of pixels (3.8).

    On boards WEIGHT_KERNELS 6 and 16 with DATAOUT_CHANNEL 31 complete with fp16 (allbilly/rk3588 40fae7b,
    examples/kernel_6_18/conv_new.py and examples/conv_tiles.py).
    """
    tasks = []
    for precision, depthwise, groups, stripes, tail, channels in (
        (2, 0, 1, 1, 0, 32),  # one pixel; 6 kernels of 32
        (2, 0, 1, 3, 11, 32),
        (2, 0, 2, 1, 15, 65),  # five groups wanted, two given
        (0, 0, 1, 2, 15, 96),
        (0, 0, 2, 2, 3, 64),  # none is missing
        (0, 0, 2, 2, 3, 32),  # more are given than wanted
        (6, 0, 1, 2, 6, 129),
        (1, 1, 1, 2, 4, 65),
        (1, 1, 1, 2, 4, 64),
    ):
        last = {"bank": 0, "pixels_m1": tail, "kernels": 6, "last": 0}
        given = [
            last | {"pixels_m1": tail if (n + 1) % stripes == 0 else 15} for n in range(stripes * groups)
        ]
        given = [stripe | {"bank": n % 2} for n, stripe in enumerate(given)]
        given[-1] = given[-1] | {"last": 1}
        values = core_values(precision=precision, depthwise=depthwise, channels=channels)
        tasks.append((values, given, groups))
    drain_tasks(fake_cell, tasks, stall=stall)


@pytest.mark.parametrize(("channels", "expected"), [(17, ["SIZE_MISMATCH"]), (16, [])])
def test_missing_groups_are_told(fake_cell, channels, expected):
    """SIZE_MISMATCH is reported for DATAOUT_SIZE_1, once."""
    dut = CoreBlock()
    seen = []

    async def bench(ctx):
        configure(ctx, dut.cfg, core_values(precision=2, channels=channels))
        ctx.set(dut.feed.cell.precision, 2)
        ctx.set(dut.feed.size, {"groups": 1, "stripes": 1})
        ctx.set(dut.feed.stripe.payload, {"bank": 0, "pixels_m1": 2, "kernels": 6, "last": 1})
        ctx.set(dut.acc.ready, 1)
        ctx.set(dut.control.start, 1)
        for cycle in range(60):
            if ctx.get(dut.diag.valid):
                payload = ctx.get(dut.diag.payload)
                seen.append((DiagnosticCode(payload["code"]).name, payload["register"], payload["value"]))
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            ctx.set(dut.feed.stripe.valid, cycle == 0)

    simulate(dut, bench)
    assert seen == [(name, registers()["CORE"]["DATAOUT_SIZE_1"].offset, channels - 1) for name in expected]


def test_drain_rate(fake_cell):
    """One octet per cycle, also between stripes."""
    full = {"pixels_m1": 15, "kernels": 32}
    stripes = [{"bank": n % 2, "last": n == 3} | full for n in range(4)]
    (cycles,) = drain_tasks(fake_cell, [(core_values(), stripes)], stall=0.0)
    assert 4 * 64 <= cycles <= 4 * 64 + 6


@pytest.mark.parametrize(
    ("core", "cell", "depthwise", "gates", "register"),
    [
        (2, 2, 0, GATING, None),
        (2, 0, 0, GATING, "MISC_CFG"),
        (0, 6, 0, GATING, "MISC_CFG"),
        (4, 0, 0, GATING, "MISC_CFG"),
        (1, 1, 1, GATING, "MISC_CFG"),
        (0, 0, 0, GATING & ~(1 << 11), "MAC_GATING"),
        (0, 0, 0, GATING & ~(1 << 23), "MAC_GATING"),
        (0, 0, 0, 0, "MAC_GATING"),
    ],
)
def test_diagnostics(fake_cell, core, cell, depthwise, gates, register):
    """A type or mode that differs from the cell's, and gated halves; a gated array never accepts a stripe."""
    dut = CoreBlock()
    values = core_values(precision=core, gates=gates, depthwise=depthwise)
    seen, taken = [], 0

    async def bench(ctx):
        nonlocal taken
        configure(ctx, dut.cfg, values)
        ctx.set(dut.control.start, 1)
        for _ in range(40):
            if ctx.get(dut.diag.valid):
                payload = ctx.get(dut.diag.payload)
                seen.append((payload["code"], payload["register"], payload["value"]))
            taken += ctx.get(dut.feed.stripe.valid) & ctx.get(dut.feed.stripe.ready)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            ctx.set(dut.feed.cell.precision, cell)
            ctx.set(dut.feed.size, {"groups": 1, "stripes": 1})
            ctx.set(dut.feed.stripe.valid, not taken)
            ctx.set(dut.acc.ready, 1)

    simulate(dut, bench)
    assert taken == bool(gates)
    if register is None:
        assert not seen
    else:
        where = registers()["CORE"][register]
        assert seen == [(DiagnosticCode.RESERVED_MODE, where.offset, where.encode(**values[register]))]


@pytest.mark.parametrize("precision", [0, 1, 2, 3, 6, 7])
def test_without_floats(fake_cell, precision):
    """Without the path of floats their results are 0, and MISC_CFG is told; the task ends all the same."""
    dut = CoreBlock(floats=False)
    values = core_values(precision=precision)
    stripe = {"bank": 0, "pixels_m1": 2, "kernels": 16, "last": 1}
    seen, got = [], []

    async def bench(ctx):
        configure(ctx, dut.cfg, values)
        ctx.set(dut.feed.cell.precision, precision)
        ctx.set(dut.feed.size, {"groups": 1, "stripes": 1})
        ctx.set(dut.feed.stripe.payload, stripe)
        ctx.set(dut.acc.ready, 1)
        ctx.set(dut.control.start, 1)
        done = 0
        for cycle in range(60):
            if ctx.get(dut.diag.valid):
                payload = ctx.get(dut.diag.payload)
                seen.append((payload["code"], payload["register"], payload["value"]))
            if ctx.get(dut.acc.valid):
                got.append(read_octet(ctx, dut.acc.payload))
            done += ctx.get(dut.control.done)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            ctx.set(dut.feed.stripe.valid, cycle == 0)
        assert done == 1

    simulate(dut, bench)
    want = expected_octets(fake_cell, values, [stripe])
    if precision in FLOATS:
        where = registers()["CORE"]["MISC_CFG"]
        assert seen == [(DiagnosticCode.NOT_BUILT, where.offset, where.encode(**values["MISC_CFG"]))]
        want = [([0] * 8, [0] * 8)] * len(want)
    else:
        assert not seen
    assert got == want


# ---------------------------------------------------------------------- sequence controller + CORE


class Pair(wiring.Component):
    """Sequence controller and CORE, with everything else as ports; CBUF's ports are those of `csc`."""

    cna: In(config_signature("CNA"))
    core: In(config_signature("CORE"))
    control: In(ControlPort())
    acc: Out(stream.Signature(AccOctet))

    def __init__(self) -> None:
        super().__init__()
        self.csc = SequenceController(SMALL)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.csc = csc = self.csc
        m.submodules.core_block = core = CoreBlock()
        wiring.connect(m, wiring.flipped(self.cna), csc.cfg)
        wiring.connect(m, wiring.flipped(self.core), core.cfg)
        wiring.connect(m, wiring.flipped(self.control), core.control)
        wiring.connect(m, csc.core, core.feed)
        wiring.connect(m, core.acc, wiring.flipped(self.acc))
        m.d.comb += csc.start.eq(self.control.start)
        return m


async def run_pair(ctx, dut, conv: Conv, rng: random.Random, *, slow: float, stall: float, check=True):
    """Run a task and, if the cell is a real one, compare the octets that CORE passes to the DPU."""
    acc, total, real = conv.expected()
    shift, half_up, sums = rng.choice((0, 0, 3, 9)), rng.randrange(2), rng.randrange(2)
    octets = 8 if conv.depthwise else OCTETS[conv.precision]
    want = []
    for group in range(conv.groups):
        for pixel in range(conv.pixels):
            for octet in range(octets):
                lanes = range(8 * octet, 8 * octet + 8)
                want.append(
                    (
                        [int(acc[group, pixel, k]) if k < real[group] else 0 for k in lanes],
                        [int(total[group, pixel, k]) % 2**32 if sums else 0 for k in lanes],
                    )
                )
    configure(ctx, dut.cna, conv.registers())
    values = core_values(
        depthwise=int(conv.depthwise), sums=sums, shift=shift, half_up=half_up, precision=conv.precision
    )
    configure(ctx, dut.core, values)
    cbuf, csc = FakeCbuf(conv, rng, SMALL, slow=slow), dut.csc
    ctx.set(dut.control.start, 1)
    got, ended, cycle = [], {"csc": False, "core": False}, 0
    while not all(ended.values()):
        if cycle:
            cbuf.fill(ctx.get(csc.released))
            ctx.set(csc.rows_ready, cbuf.rows)
            ctx.set(csc.loaded, cbuf.loaded)
        ctx.set(dut.acc.ready, rng.random() >= stall)
        if ctx.get(dut.acc.valid) and ctx.get(dut.acc.ready):
            assert len(got) < len(want)
            got.append(read_octet(ctx, dut.acc.payload))
            assert not check or got[-1] == want[len(got) - 1], f"octet {len(got) - 1} of {conv}"
        cbuf.read(ctx, csc)
        for name, done in (("csc", csc.done), ("core", dut.control.done)):
            assert not (ended[name] and ctx.get(done)), "the end is a pulse"
            ended[name] |= bool(ctx.get(done))
        await ctx.tick()
        cbuf.answer(ctx, csc)
        ctx.set(dut.control.start, 0)
        cycle += 1
        assert cycle < 20000
    assert not ctx.get(csc.done) and not ctx.get(dut.control.done), "the end is a pulse"
    assert len(got) == len(want)


def test_convolutions():
    """Random tasks with stalls at every port, against plain loops over the definition."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    dut = Pair()
    kinds = [(kind, 0) for kind in ("direct", "depthwise", "argb")] + [("any", 1), ("any", 6)]
    budget = extent(35, 500)
    tasks = [random_conv(rng, SMALL, kind=kind, precision=code, budget=budget) for kind, code in kinds]

    async def bench(ctx):
        for conv in tasks:
            await run_pair(ctx, dut, conv, rng, slow=rng.choice((0.0, 0.7)), stall=rng.choice((0.0, 0.6)))

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("precision", "channels", "late"), [(0, 128, True), (0, 160, False), (2, 96, False), (6, 288, False)]
)
def test_back_to_back(fake_cell, precision, channels, late):
    """The array hides the drain from five tiles per group on (int8), three (16 bits), nine (int4).

    With one tile less both take the same time, and a bank is returned too late because of the cell's latency.
    """
    kernels = {0: 32, 2: 16, 6: 64}[precision]
    conv = Conv(height=10, width=8, channels=channels, kernels=kernels, precision=precision, weight_banks=5)
    lost = 2 * (CELL_LATENCY + 2) if late else 0
    dut = Pair()
    slots = []

    async def watch(ctx):
        while True:
            await ctx.tick()
            slots.append(ctx.get(dut.csc.status.slot_valid))

    async def bench(ctx):
        await run_pair(ctx, dut, conv, random.Random(2), slow=0.0, stall=0.0, check=False)

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    busy = np.flatnonzero(slots)
    assert conv.stripes == 5 and len(busy) == 16 * conv.tiles * conv.stripes
    assert busy[-1] - busy[0] + 1 - len(busy) <= lost
