"""Weight loader with compressed weights: CBUF contents, stalls, rate, and encodings that are not known."""

from __future__ import annotations

import random

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.cna_decompress import (
    RUN_ATOMS,
    STORED_ATOMS,
    CodeReader,
    Decompressor,
    SegmentDecoder,
)
from rkcosim.rtl.npu.cna_weight import WeightLoader
from rkcosim.spec.config import SMALL
from rkcosim.spec.layouts.compressed import SegmentCode, compress_weights
from rkcosim.spec.regs import registers
from rkcosim.spec.weight_code import PREFIXES, REGNUM, WIDEST
from tests.block.cna_bench import Image, Memory, configure
from tests.simulation import shared, simulation
from tests.twins.packed_weights import segment_places, some_code, some_weights

BASE = 0x1230
START = 10 * SMALL.cbuf_bank_bytes


def settings(taps: tuple[int, int], amounts: tuple[int, ...], **changes: dict[str, int]):
    """Registers of a task with compressed weights; `changes` of fields by register."""
    values = {
        "CBUF_CON0": {"WEIGHT_BANK": 2, "DATA_BANK": 10},
        "WEIGHT_SIZE0": {"WEIGHT_BYTES": 128 * taps[0] * taps[1]},
        "WEIGHT_SIZE2": {"WEIGHT_WIDTH": taps[1], "WEIGHT_HEIGHT": taps[0], "WEIGHT_KERNELS": 8},
        "DATA_SIZE1": {"DATAIN_CHANNEL": 16},
        "DMA_CON0": {"WEIGHT_BURST_LEN": 15},
        "DCOMP_ADDR0": {"DECOMPRESS_ADDR0": BASE // 16},
        "DCOMP_CTRL": {"DECOMP_CONTROL": 1},
        "DCOMP_REGNUM": {"DCOMP_REGNUM": REGNUM},
    } | {f"DCOMP_AMOUNT{n}": {f"DCOMP_AMOUNT{n}": amount} for n, amount in enumerate(amounts)}
    for register, fields in changes.items():
        values[register] = values.get(register, {}) | fields
    return values


def load(jobs, rng: random.Random, *, latency=(3, 3), stall=0.0, hangs=False):
    """Run (registers, bytes in memory) on one loader.

    Returns
    -------
    list
        For each job the CBUF image, memory, diagnostics, and the cycles to its end (None if it does not end).
    """
    dut = shared(WeightLoader, SMALL)
    results = []

    async def bench(ctx):
        for values, content in jobs:

            def read(address, count, content=content):
                at = np.arange(address - BASE, address - BASE + count)
                inside = (at >= 0) & (at < content.size)
                return np.where(inside, content[np.where(inside, at, 0)], 0xA5).astype(np.uint8)

            memory, image, told = Memory(rng, latency, stall, read), Image(SMALL), []
            configure(ctx, dut.cfg, values)
            ctx.set(dut.released, 0)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            cycles = 0
            for cycle in range(1, 600 if hangs else 20_000):
                memory.drive(ctx, dut.read, dut.beats)
                ready = rng.random() >= stall
                ctx.set(dut.fill.ready, ready)
                sample = await ctx.tick().sample(
                    *(dut.read.req.valid, dut.read.req.ready, dut.read.req.payload),
                    *(dut.fill.valid, dut.fill.payload, dut.loaded, dut.done),
                    *(dut.diag.valid, dut.diag.payload, dut.code_diag.valid, dut.code_diag.payload),
                )
                valid, fill, loaded, done, *reports = sample[5:]
                memory.see(*sample[2:5])
                image.see(valid, ready, fill)
                assert loaded <= 16 * image.atoms or values["CBUF_CON0"].get("WEIGHT_REUSE")
                for said, report in (reports[:2], reports[2:]):
                    if said:
                        told.append((DiagnosticCode(report.code).name, report.register, report.value))
                if done:
                    cycles = cycle
                    break
            results.append((image, memory, told, cycles or None))

    simulation(dut).run(bench)
    return results


@pytest.mark.parametrize("seed", range(3))
def test_random_weights(seed):
    """Segments of every kind of code, any size of kernel, odd addresses, stalls on both sides."""
    rng = random.Random(seed)
    print("seed", seed)
    jobs, wanted = [], []
    for _ in range(5):
        taps = rng.choice([(1, 1), (1, 2), (3, 3), (5, 3), (4, 4)])
        stream, codes = some_weights(rng, taps[0] * taps[1])
        content, amounts = compress_weights(stream, codes)
        jobs.append((settings(taps, amounts), content))
        wanted.append(stream)
    results = load(jobs, rng, latency=rng.choice([(1, 1), (2, 40)]), stall=rng.choice([0.0, 0.3]))
    for (values, content), stream, (image, memory, told, cycles) in zip(jobs, wanted, results, strict=True):
        assert cycles is not None and not told
        assert (image.bytes[START : START + stream.size] == stream).all()
        assert image.atoms == stream.size // 16
        atoms = sum(values[f"DCOMP_AMOUNT{n}"][f"DCOMP_AMOUNT{n}"] + 1 for n in range(16))
        assert 32 * sum(beats for _, beats in memory.requests) >= 16 * atoms
        assert all(BASE - 16 <= a and a + 32 * n <= BASE + content.size + 16 for a, n in memory.requests)


def test_rate():
    """One weight per cycle and segment: 16 bytes per cycle after the headers, and no cycle is lost."""
    stream = np.random.default_rng(1).integers(0, 256, 128 * 25, dtype=np.uint8)
    content, amounts = compress_weights(stream)
    ((image, _, told, cycles),) = load([(settings((5, 5), amounts), content)], random.Random(1))
    assert not told and (image.bytes[START : START + stream.size] == stream).all()
    assert stream.size // 16 <= cycles == 315


def test_passes_through():
    """With WT_DEC_BYPASS the bytes are the weights, and with WEIGHT_REUSE nothing is fetched."""
    content = np.random.default_rng(2).integers(0, 256, 1152, dtype=np.uint8)
    bypass = settings((3, 3), (0,) * 16, DCOMP_CTRL={"WT_DEC_BYPASS": 1, "DECOMP_CONTROL": 5})
    reuse = settings((3, 3), (0,) * 16, CBUF_CON0={"WEIGHT_REUSE": 1}, DCOMP_CTRL={"DECOMP_CONTROL": 5})
    first, second = load([(bypass, content), (reuse, content)], random.Random(2))
    assert (first[0].bytes[START : START + 1152] == content).all() and not first[2]
    assert second[1].requests == [] and second[3] is not None and not second[2]


OFFSET = {name: register.offset for name, register in ((r.name, r) for r in registers()["CNA"])}


@pytest.mark.parametrize(
    ("register", "fields", "code"),
    [
        ("DCOMP_CTRL", {"DECOMP_CONTROL": 2}, "RESERVED_MODE"),
        ("DCOMP_REGNUM", {"DCOMP_REGNUM": REGNUM ^ 1}, "RESERVED_MODE"),
        ("CONV_CON1", {"CONV_MODE": 3}, "RESERVED_MODE"),
        ("CONV_CON1", {"IN_PRECISION": 6, "PROC_PRECISION": 6}, "RESERVED_MODE"),
        ("WEIGHT_SIZE0", {"WEIGHT_BYTES": 1168}, "SIZE_MISMATCH"),
        ("DCOMP_AMOUNT7", {"DCOMP_AMOUNT7": 1 << 20}, "SIZE_MISMATCH"),
    ],
)
def test_registers_that_are_not_known(register, fields, code):
    """Nothing is fetched, and the loader never ends."""
    stream, codes = some_weights(random.Random(3), 9)
    content, amounts = compress_weights(stream, codes)
    values = settings((3, 3), amounts, **{register: fields})
    ((image, memory, told, cycles),) = load([(values, content)], random.Random(3), hangs=True)
    assert memory.requests == [] and image.atoms == 0 and cycles is None
    word = registers()["CNA"][register].encode(**values[register])
    expected = {(code, OFFSET[register], word)}
    if register == "DATA_SIZE1":  # the kernels are twice as long, and all of WEIGHT_BYTES too little
        expected.add(("SIZE_MISMATCH", OFFSET["WEIGHT_SIZE0"], 1152))
    assert set(told) == expected


@pytest.mark.parametrize(
    ("segment", "changes", "byte"),
    [
        (0, {0: 0x10}, 0),
        (5, {3: 1}, 3),
        (9, {8: 5}, 8),
        (9, {8: 0}, 8),
        (15, {9: 1}, 9),
        (6, {4: 0x88, 5: 0x88, 6: 0x88, 7: 0x88}, None),
    ],
)
def test_headers_that_are_not_known(segment, changes, byte):
    """The diagnostic names segment, byte and value, once; the loader never ends."""
    stream = np.random.default_rng(4).integers(0, 3, 1152).astype(np.uint8)
    content, amounts = compress_weights(stream, [SegmentCode(runs=True)] * 16)
    content = content.copy()
    at = segment_places(amounts)[segment]
    for number, value in changes.items():
        content[at + number] = value
    values = settings((3, 3), amounts)
    ((_, _, told, cycles),) = load([(values, content)], random.Random(4), hangs=True)
    ((code, register, value),) = told
    assert (code, register) == ("WEIGHT_CODE", OFFSET[f"DCOMP_AMOUNT{segment}"]) and cycles is None
    assert value & 255 == content[at + (value >> 8)]
    assert value >> 8 in ((byte,) if byte is not None else range(4, 8))


def test_first_fault_in_the_order_of_the_weights():
    """If several segments cannot be decoded, the one whose atom is needed first is reported, at any speed."""
    rng = random.Random(5)
    stream, _ = some_weights(rng, 9)
    content, amounts = compress_weights(stream, [some_code(rng, runs=False) for _ in range(16)])
    for latency in ((1, 1), (2, 60)):
        broken, places = content.copy(), segment_places(amounts)
        broken[places[12]] = 3  # the fourth kernel
        broken[places[6] + 3] = 1  # the second one
        broken[places[5]] = 7
        ((_, _, told, _),) = load([(settings((3, 3), amounts), broken)], rng, latency=latency, hangs=True)
        assert told == [("WEIGHT_CODE", OFFSET["DCOMP_AMOUNT5"], 7)]


def test_too_few_bits():
    """A segment that ends before its weights has a wrong size."""
    stream = np.random.default_rng(6).integers(0, 256, 1152, dtype=np.uint8)
    content, amounts = compress_weights(stream)
    short = tuple(a - (n == 3) * 2 for n, a in enumerate(amounts))
    places, shorter = segment_places(amounts), segment_places(short)
    moved = np.zeros(content.size, np.uint8)
    for n in range(16):
        size = 16 * (short[n] + 1)
        moved[shorter[n] : shorter[n] + size] = content[places[n] : places[n] + size]
    ((image, _, told, cycles),) = load([(settings((3, 3), short), moved)], random.Random(6), hangs=True)
    assert told == [("SIZE_MISMATCH", OFFSET["DCOMP_AMOUNT3"], short[3])] and cycles is None
    assert 0 < image.atoms < 72
    assert (image.bytes[START : START + 16 * image.atoms] == stream[: 16 * image.atoms]).all()


def test_the_first_code_of_a_string():
    """Each output of the reader of codes in each cycle, against a reading bit by bit."""
    rng = random.Random(7)
    dut = CodeReader()

    def expected(bits: str, runs: bool, classes: list[int]) -> dict[str, int]:
        rank = next(n for n, prefix in enumerate(PREFIXES) if bits.startswith(prefix))
        prefix, kind = PREFIXES[rank], classes[rank]
        run, bad_class = runs and not kind, kind > WIDEST
        bits = bits[len(prefix) :]
        tail = kind if 1 <= kind <= WIDEST else 1
        width = len(prefix) + tail + (runs and kind == WIDEST)
        return {
            "rank": rank,
            "run": run,
            "unknown": bad_class or (run and bits[0] == "1"),
            "width": width,
            "short": len(prefix) if bad_class else width,
        }

    async def bench(ctx):
        for _ in range(1500):
            have, runs = rng.randrange(17), rng.random() < 0.5
            bits = "".join(rng.choice("01") for _ in range(16))
            classes = [rng.choice([0, 0, *range(1, 16)]) for _ in range(8)]
            ctx.set(dut.bits, int(bits[::-1], 2))
            ctx.set(dut.have, have)
            ctx.set(dut.runs, runs)
            ctx.set(dut.classes, sum(kind << 4 * n for n, kind in enumerate(classes)))
            want = expected(bits, runs, classes)
            want["short"] = have < want["short"]
            *_, rank, run, unknown, width, short = await ctx.tick().sample(
                dut.rank, dut.run, dut.unknown, dut.width, dut.short
            )
            found = {"rank": rank, "run": run, "unknown": unknown, "width": width, "short": short}
            assert found == want, (bits, have, runs, classes)

    m = Module()  # with a clock, which the reader lacks
    m.submodules.reader = dut
    m.d.sync += Signal().eq(dut.short)
    simulation(m).run(bench)


def test_a_segment_that_cannot_be_decoded_is_said_at_once():
    """From the second cycle after a header that is not known until the next segment, in each cycle."""
    rng, dut = random.Random(8), SegmentDecoder()

    async def bench(ctx):
        stuck_from = None
        for cycle in range(600):
            phase = cycle % 30
            good = cycle // 30 % 3 == 2
            if phase == 0:
                stuck_from, arrives = None, rng.randrange(3, 20)
            ctx.set(dut.clear, phase == 0)
            ctx.set(dut.asked, phase == 1)
            ctx.set(dut.atom.valid, phase == arrives)
            ctx.set(dut.atom.payload, 0 if good else 0x10)
            *_, stuck, room, valid = await ctx.tick().sample(dut.stuck, dut.room, dut.quad.valid)
            if phase:
                assert stuck == (stuck_from is not None and cycle >= stuck_from), f"cycle {cycle}"
                assert room and not valid
            if phase == arrives and not good:
                stuck_from = cycle + 2

    simulation(dut).run(bench)


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_the_decompressor_is_active_until_its_last_weights(stall):
    """`active` is high from the start on, and falls when the last atom has been fetched and taken."""
    rng, dut = random.Random(11), Decompressor()
    jobs = []
    for taps in ((1, 1), (1, 2), (1, 1)):
        stream, codes = some_weights(rng, taps[0] * taps[1])
        jobs.append((taps, stream, *compress_weights(stream, codes)))

    async def bench(ctx):
        for taps, stream, content, amounts in jobs:
            configure(ctx, dut.cfg, settings(taps, amounts))
            atoms = [content[at : at + 16].tobytes() for at in range(0, content.size, 16)]
            beats, got, left, since = [], b"", stream.size // 16, 0
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            was_active = 0
            for _ in range(4000):
                takes = rng.random() >= stall
                ctx.set(dut.atoms.ready, takes)
                ctx.set(dut.run.ready, 1)
                ctx.set(dut.fetched.valid, bool(beats))
                if beats:
                    ctx.set(dut.fetched.payload, beats[0])
                *_, active, valid, weights, asks, run, ready = await ctx.tick().sample(
                    *(dut.active, dut.atoms.valid, dut.atoms.payload),
                    *(dut.run.valid, dut.run.payload, dut.fetched.ready),
                )
                if not active:
                    break
                was_active += 1
                since += 1
                if beats and ready:
                    beats.pop(0)
                    since = 0
                if valid and takes:
                    since = 0
                    got += weights.to_bytes(16, "little")
                    left -= 1
                if asks:
                    first, last = run.addr, run.addr + run.atoms - 1
                    for pair in range(first // 2, last // 2 + 1):
                        data = b"".join(
                            atoms[at] if 0 <= (at := 2 * pair + half - BASE // 16) < len(atoms) else bytes(16)
                            for half in range(2)
                        )
                        inside = [first <= 2 * pair + half <= last for half in range(2)]
                        beats.append(
                            {"data": int.from_bytes(data, "little"), "low": inside[0], "high": inside[1]}
                        )
            assert was_active and got == stream.tobytes() and not beats
            assert since == 1, "active falls in the second cycle after the last transfer"
            for _ in range(rng.randrange(1, 5)):
                assert not ctx.get(dut.active)
                await ctx.tick()

    simulation(dut).run(bench)


def test_each_of_several_tasks_is_reported():
    """A task that cannot be decoded does not keep the loader from telling the same about the next one."""
    rng = random.Random(12)
    stream, _ = some_weights(rng, 1)
    content, amounts = compress_weights(stream, [some_code(rng, runs=False) for _ in range(16)])
    broken = content.copy()
    broken[segment_places(amounts)[2]] = 3
    for _, _, told, cycles in load([(settings((1, 1), amounts), broken)] * 3, rng, hangs=True):
        assert told == [("WEIGHT_CODE", OFFSET["DCOMP_AMOUNT2"], 3)] and cycles is None


def test_the_room_of_a_segment_in_each_cycle():
    """Requests take it, a segment that begins has all of it; what is not requested is not taken."""
    rng, dut = random.Random(13), SegmentDecoder()

    async def bench(ctx):
        room = STORED_ATOMS
        for _ in range(500):
            clear = rng.random() < 0.15
            asked = rng.randrange(RUN_ATOMS + 1) if room >= RUN_ATOMS and rng.random() < 0.7 else 0
            ctx.set(dut.clear, clear)
            ctx.set(dut.asked, asked)
            *_, has = await ctx.tick().sample(dut.room)
            assert has == (room >= RUN_ATOMS)
            room = STORED_ATOMS if clear else room - asked

    simulation(dut).run(bench)
