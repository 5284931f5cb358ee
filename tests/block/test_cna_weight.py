"""Weight loader: order, ring and release rules against the byte stream in memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.cna_weight import WeightLoader
from rkcosim.spec.config import SMALL
from rkcosim.spec.regs import registers
from tests.block.cna_bench import Image, Memory, configure, memory_bytes
from tests.simulation import shared, simulation

BANK_BYTES = SMALL.cbuf_bank_bytes


def settings(total: int, *, banks: int = 2, atom: int = 0x100, reuse: int = 0, burst_m1: int = 15):
    """Return registers of a task whose weights are `total` bytes in one kernel group."""
    return {
        "CBUF_CON0": {"WEIGHT_BANK": banks, "DATA_BANK": 12 - banks, "WEIGHT_REUSE": reuse},
        "WEIGHT_SIZE0": {"WEIGHT_BYTES": total},
        "WEIGHT_SIZE2": {"WEIGHT_WIDTH": 1, "WEIGHT_HEIGHT": 1, "WEIGHT_KERNELS": 1},
        "DATA_SIZE1": {"DATAIN_CHANNEL": 16},
        "DMA_CON0": {"WEIGHT_BURST_LEN": burst_m1},
        "DCOMP_ADDR0": {"DECOMPRESS_ADDR0": atom},
    }


def run_loader(jobs, rng: random.Random, *, latency=(3, 3), stall=0.0, slow=0.0):
    """Run jobs on one loader while the reader of the ring releases chunks at random times.

    Released chunks are compared with memory at the moment of the release, and the ring rule is checked in
    every cycle.  Returns, per job, (image, memory, diagnostics, cycles).
    """
    dut = shared(WeightLoader, SMALL)
    results = []

    async def bench(ctx):
        for values in jobs:
            total = -(-values["WEIGHT_SIZE0"]["WEIGHT_BYTES"] // 16) * 16
            banks = values["CBUF_CON0"]["WEIGHT_BANK"]
            base = 16 * values["DCOMP_ADDR0"]["DECOMPRESS_ADDR0"]
            reuse = values["CBUF_CON0"]["WEIGHT_REUSE"]
            ring, start = banks * BANK_BYTES, (12 - banks) * BANK_BYTES
            memory, image = Memory(rng, latency, stall), Image(SMALL)
            want = memory_bytes(base, total)
            diagnostics = []
            configure(ctx, dut.cfg, values)
            ctx.set(dut.released, 0)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            cycles, released, chunk, done = 1, 0, 0, False
            while not (done and (released == total or reuse)):
                memory.drive(ctx, dut.read, dut.beats)
                ready = rng.random() >= stall
                ctx.set(dut.fill.ready, ready)
                sample = await ctx.tick().sample(
                    dut.read.req.valid,
                    dut.read.req.ready,
                    dut.read.req.payload,
                    dut.fill.valid,
                    dut.fill.payload,
                    dut.held,
                    dut.loaded,
                    dut.done,
                    dut.diag.valid,
                    dut.diag.payload,
                )
                *_, valid, fill, held, loaded, now_done, d_valid, d_payload = sample
                if reuse:
                    assert loaded in (0, total)
                else:
                    assert loaded == 16 * image.atoms, "all that has been taken, and nothing else"
                    offered = valid * (1 + fill.two)
                    if cycles > 1:  # in the first cycle it is still that of the task before
                        assert 16 * (held - offered) == loaded - released, "in the ring, and offered"
                    assert loaded <= total and loaded % 16 == 0
                    assert loaded - released <= ring
                    chunk = chunk or min(total - released, 16 * rng.randint(1, 40))
                    if loaded - released >= chunk and rng.random() >= slow:
                        at = start + (released + np.arange(chunk)) % ring
                        assert (image.bytes[at] == want[released : released + chunk]).all(), released
                        released += chunk
                        chunk = 0
                        ctx.set(dut.released, released)
                memory.see(*sample[2:5])
                image.see(valid, ready, fill)
                assert not (done and now_done)
                done = done or bool(now_done)
                assert not done or not ctx.get(dut.beats)
                if d_valid:
                    diagnostics.append((d_payload.code, d_payload.register, d_payload.value))
                cycles += 1
                assert cycles < 60_000, f"{values} does not end"
            assert not ctx.get(dut.done), "the end is a pulse"
            assert image.atoms == (0 if reuse else total // 16)
            assert image.written[: start // 16].sum() == 0
            results.append((image, memory, diagnostics, cycles))

    simulation(dut).run(bench)
    return results


@pytest.mark.parametrize(("seed", "slow"), [(0, 0.0), (1, 0.9), (2, 0.97), (3, 0.99)])
def test_random_streams(seed, slow):
    """Any length, odd atoms at both ends, wrap of the ring, slow release, wrap of the address."""
    rng = random.Random(seed)
    print("seed", seed)
    jobs = [settings(6000, banks=1, atom=rng.randrange(1 << 28))]  # nearly three times the ring
    for _ in range(6):
        banks = rng.choice([1, 1, 2, 3, 11])
        total = rng.choice([rng.randint(1, 300), rng.randint(1, 3 * banks * BANK_BYTES // 2), 2048 * banks])
        atom = rng.choice([rng.randrange(1 << 28), (1 << 28) - rng.randrange(1, 50)])
        jobs.append(
            settings(min(total, 12000), banks=banks, atom=atom, burst_m1=rng.choice([15, 15, 7, 3, 0]))
        )
    run_loader(
        jobs,
        rng,
        latency=rng.choice([(1, 1), (2, 30)]),
        stall=rng.choice([0.0, 0.2, 0.5]),
        slow=slow,
    )


def test_ring_is_filled_to_the_last_byte():
    """Without any release exactly the ring is loaded; then the loader waits."""
    dut = shared(WeightLoader, SMALL)

    async def bench(ctx):
        rng = random.Random(0)
        memory, image = Memory(rng), Image(SMALL)
        configure(ctx, dut.cfg, settings(3 * BANK_BYTES, banks=1, atom=0x101))
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.fill.ready, 1)
        for _ in range(400):
            memory.drive(ctx, dut.read, dut.beats)
            sample = await ctx.tick().sample(
                dut.read.req.valid,
                dut.read.req.ready,
                dut.read.req.payload,
                dut.fill.valid,
                dut.fill.payload,
                dut.loaded,
            )
            memory.see(*sample[2:5])
            image.see(sample[5], 1, sample[6])
        assert sample[-1] == BANK_BYTES
        assert image.atoms == BANK_BYTES // 16 and image.written.max() == 1
        assert not ctx.get(dut.activity.IDLE)

    simulation(dut).run(bench)


def test_gives_way_to_features():
    """While features are requested, only the first kernel group is fetched; then the rest follows."""
    dut = shared(WeightLoader, SMALL)
    group = 32 * 16
    values = settings(3 * group, banks=2, atom=0x203)
    values["WEIGHT_SIZE2"]["WEIGHT_KERNELS"] = 96

    async def bench(ctx):
        rng = random.Random(0)
        memory, image = Memory(rng), Image(SMALL)
        configure(ctx, dut.cfg, values)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.fill.ready, 1)
        ctx.set(dut.give_way, 1)
        for cycle in range(400):
            memory.drive(ctx, dut.read, dut.beats)
            sample = await ctx.tick().sample(
                dut.read.req.valid,
                dut.read.req.ready,
                dut.read.req.payload,
                dut.fill.valid,
                dut.fill.payload,
                dut.loaded,
                dut.done,
            )
            memory.see(*sample[2:5])
            image.see(sample[5], 1, sample[6])
            if cycle == 200:
                assert sample[-2] == group and not sample[-1]
                ctx.set(dut.give_way, 0)
            if sample[-1]:
                break
        assert sample[-1] and sample[-2] == 3 * group
        at = 10 * BANK_BYTES
        assert (image.bytes[at : at + 3 * group] == memory_bytes(0x2030, 3 * group)).all()

    simulation(dut).run(bench)


def test_rate_and_bursts():
    """32 bytes per cycle in bursts that end at multiples of 512 bytes, so that none crosses 4 KiB."""
    ((_, memory, diagnostics, cycles),) = run_loader(
        [settings(11 * BANK_BYTES, banks=11, atom=0x105)], random.Random(1)
    )
    assert cycles <= 11 * BANK_BYTES // 32 + 40
    assert not diagnostics
    assert memory.requests[0] == (0x1040, 14)
    assert all((addr // 512) == (addr + 32 * beats - 1) // 512 for addr, beats in memory.requests)
    assert [beats for _, beats in memory.requests[1:-1]] == [16] * (len(memory.requests) - 2)


def test_reuse():
    """Reuse fetches nothing and treats everything as present; more than the ring is reported."""
    small, large = run_loader(
        [settings(1000, reuse=1), settings(2 * BANK_BYTES + 16, reuse=1)], random.Random(2)
    )
    assert small[1].requests == large[1].requests == []
    assert small[2] == []
    assert [code for code, *_ in large[2]] == [DiagnosticCode.REUSE_FOOTPRINT]


@pytest.mark.parametrize(
    ("register", "changes", "code"),
    [
        ("WEIGHT_SIZE2", {"WEIGHT_KERNELS": 3, "WEIGHT_WIDTH": 3, "WEIGHT_HEIGHT": 2}, "SIZE_MISMATCH"),
        ("WEIGHT_SIZE0", {"WEIGHT_BYTES": 0}, "EMPTY_SIZE"),
    ],
)
def test_diagnostics(register, changes, code):
    values = settings(160)
    if code == "EMPTY_SIZE":
        values["WEIGHT_SIZE2"] = {}
    values[register] = {**values.get(register, {}), **changes}
    ((_, _, diagnostics, _),) = run_loader([values], random.Random(3))
    described = registers()["CNA"][register]
    word = described.encode(**values[register])
    reported = (
        DiagnosticCode[code],
        registers()["CNA"]["WEIGHT_SIZE0"].offset if code == "SIZE_MISMATCH" else described.offset,
        160 if code == "SIZE_MISMATCH" else word,
    )
    assert diagnostics == [reported]


GROUPS = [
    # precision, depthwise, kernel side, channels, kernels, bytes of the largest group, of all
    (0, 0, 5, 16, 40, 32 * 25 * 16, 40 * 25 * 16),
    (0, 1, 7, 80, 1, 64 * 49, 80 * 49),
    (0, 1, 7, 40, 1, 64 * 49, 64 * 49),
    (6, 0, 2, 40, 70, 64 * 4 * 32, 70 * 4 * 32),
    (1, 0, 3, 24, 20, 16 * 9 * 64, 20 * 9 * 64),
    (2, 0, 2, 33, 17, 16 * 4 * 80, 17 * 4 * 80),
    (3, 1, 5, 96, 1, 2 * 64 * 25, 3 * 64 * 25),
    (1, 1, 7, 44, 1, 96 * 49, 96 * 49),
    (2, 1, 5, 152, 1, 128 * 25, 320 * 25),
    (7, 0, 3, 28, 17, 16 * 9 * 128, 17 * 9 * 128),
]


@pytest.mark.parametrize(("precision", "depthwise", "side", "channels", "kernels", "group", "total"), GROUPS)
def test_group_over_its_banks(precision, depthwise, side, channels, kernels, group, total):
    """A kernel group larger than its banks is reported in a task of several stripes; limits are exact."""
    fits = -(-group // BANK_BYTES)
    assert fits > 1
    for banks, pixels, size, expected in (
        (fits - 1, 16, total, []),
        (fits - 1, 17, total, ["WEIGHT_FOOTPRINT"]),
        (fits, 17, total, []),
        (fits, 17, total - 1, ["SIZE_MISMATCH"]),
    ):
        values = settings(size, banks=banks)
        values["WEIGHT_SIZE2"] = {"WEIGHT_WIDTH": side, "WEIGHT_HEIGHT": side, "WEIGHT_KERNELS": kernels}
        values["DATA_SIZE1"] = {"DATAIN_CHANNEL": channels}
        values["CONV_CON1"] = {"CONV_MODE": 3 if depthwise else 0, "IN_PRECISION": precision}
        values["DATA_SIZE3"] = {"DATAOUT_ATOMICS": pixels}
        ((_, _, diagnostics, _),) = run_loader([values], random.Random(4))
        assert [DiagnosticCode(code).name for code, *_ in diagnostics] == expected


def test_two_blocks_apart():
    """Depthwise of 16-bit types needs a block row and one more block in the ring, even in one stripe."""
    for height, expected in ((31, []), (32, [DiagnosticCode.WEIGHT_FOOTPRINT])):
        values = settings(2 * 64 * height, banks=1)
        values["WEIGHT_SIZE2"] = {"WEIGHT_WIDTH": 1, "WEIGHT_HEIGHT": height, "WEIGHT_KERNELS": 1}
        if height == 32:
            values["WEIGHT_SIZE2"] |= {"WEIGHT_WIDTH": 2, "WEIGHT_HEIGHT": 16}
        values["DATA_SIZE1"] = {"DATAIN_CHANNEL": 64}
        values["CONV_CON1"] = {"CONV_MODE": 3, "IN_PRECISION": 1}
        ((_, _, diagnostics, _),) = run_loader([values], random.Random(4))
        assert [code for code, *_ in diagnostics] == expected
