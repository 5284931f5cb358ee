"""DpuRdma with all element types, notches and shared operands ([HW 8.1] to [HW 8.5]), element by element."""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.dpu_rdma import DpuRdma
from rkcosim.spec.regs import registers
from tests.block.dpu_bench import Bench
from tests.block.test_dpu import configure
from tests.simulation import shared

INT8, INT16, FP16, BF16, INT32, FP32, INT4 = range(7)
BITS = {INT8: 8, INT16: 16, FP16: 16, BF16: 16, INT32: 32, FP32: 32, INT4: 4, 7: 8}
LIMIT = 20_000
Settings = dict[str, dict[str, int]]
Element = Callable[[int, int, int], int]


def widened(bits: int, raw: int) -> int:
    """Return fp16 bits as binary32 bits; a NaN keeps its bits."""
    if raw & 0x7C00 == 0x7C00:
        return (raw & 0x8000) << 16 | 0x7F800000 | (raw & 0x3FF) << 13
    return int.from_bytes(struct.pack("<f", struct.unpack("<e", raw.to_bytes(2, "little"))[0]), "little")


def element_at(
    memory: bytes, atom: int, lane: int, bits: int, floating: int | None, widens: bool = True
) -> int:
    """Return element `lane` of the atom at byte address `atom` as the 32 bits that go to the DPU."""
    word = int.from_bytes(memory[atom : atom + 16], "little")
    raw = word >> lane * bits & (1 << bits) - 1
    if bits == 16 and floating == FP16:
        return widened(16, raw) if widens else raw
    if bits == 16 and floating == BF16:
        return raw << 16
    return (raw - (raw >> bits - 1 << bits)) % 2**32


def group_of(conv_mode: int, precision: int) -> int:
    """Channels per group (4.1, 5.1)."""
    if conv_mode == 3:
        return 64
    return {INT4: 64, INT8: 32}.get(precision, 16)


def expected(
    cfg: Settings, memory: bytes, atoms: set[int] | None = None, dpu_comb_use: int = 0
) -> dict[str, list[list[int | None]]]:
    """The octets of `main` and `ew`, lanes past the last channel None; `atoms` receives the addresses."""
    touched: set[int] = set() if atoms is None else atoms
    mode, erdma = cfg["FEATURE_MODE_CFG"], cfg["ERDMA_CFG"]
    width, height = cfg["DATA_CUBE_WIDTH"]["WIDTH"] + 1, cfg["DATA_CUBE_HEIGHT"]["HEIGHT"] + 1
    channels = cfg["DATA_CUBE_CHANNEL"]["CHANNEL"] + 1
    m_line = width + cfg["SRC_DMA_CFG"]["LINE_NOTCH_ADDR"]
    e_line = width + cfg["DATA_CUBE_HEIGHT"]["EW_LINE_NOTCH_ADDR"]
    m_surface = m_line * (height - 1) + width + cfg["SURF_NOTCH"]["SURF_NOTCH_ADDR"]
    source, operand = cfg["SRC_BASE_ADDR"]["SRC_BASE_ADDR"], cfg["EW_BASE_ADDR"]["EW_BASE_ADDR"]
    e_surface = e_line * (height - 1) + width + cfg["EW_SURF_NOTCH"]["EW_SURF_NOTCH"]
    kind = mode["IN_PRECISION"]
    e_bits = (4, 8, 16, 32)[erdma["ERDMA_DATA_SIZE"]]

    def at(atom: int, lane: int, bits: int, floating: int | None) -> int:
        touched.add(atom)
        return element_at(memory, atom, lane, bits, floating, bool(mode["MRDMA_FP16TOFP32_EN"]))

    def main(c: int, y: int, x: int) -> int:
        bits = BITS[kind]
        s, lane = divmod(c, 128 // bits)
        return at(source + 16 * (s * m_surface + y * m_line + x), lane, bits, kind)

    def ew(c: int, y: int, x: int) -> int:
        s, lane = divmod(c, 128 // e_bits)
        place = s * cfg["EW_SURF_STRIDE"]["EW_SURF_STRIDE"]
        if erdma["ERDMA_DATA_MODE"] != 0:
            place = s * e_surface + y * e_line + x
        return at(operand + 16 * place, lane, e_bits, None)

    alternate = mode["COMB_USE"] == 3 and mode["FLYING_MODE"] and dpu_comb_use

    def shared(c: int, y: int, x: int) -> int:
        bits, floating = (BITS[kind], kind) if alternate else (e_bits, None)
        s, lane = divmod(c, 128 // bits)
        if s % 2 == 0:
            place = source + 16 * (s // 2 * m_surface + y * m_line + x)
        else:
            place = operand + 16 * (s // 2 * e_surface + y * e_line + x)
        return at(place, lane, bits, floating)

    result: dict[str, list[list[int | None]]] = {"main": [], "ew": []}
    streams: list[tuple[str, Element]] = []
    if mode["COMB_USE"] == 5 and not mode["FLYING_MODE"]:
        streams.append(("ew", shared))
    elif alternate:
        streams.append(("main", shared))
    else:
        streams += [("main", main)] * (not mode["MRDMA_DISABLE"])
        streams += [("ew", ew)] * (not erdma["ERDMA_DISABLE"])
    group = group_of(mode["CONV_MODE"], kind)
    for name, cube in streams:
        for first in range(0, channels, group):
            for pixel in range(width * height):
                y, x = divmod(pixel, width)
                for octet in range(first, min(first + group, channels), 8):
                    result[name].append(
                        [cube(c, y, x) if c < channels else None for c in range(octet, octet + 8)]
                    )
    return result


def random_settings(rng: random.Random, **mode: int) -> tuple[Settings, int]:
    """Draw settings of MRDMA and ERDMA and the memory they need; `mode` fixes FEATURE_MODE_CFG fields."""
    channels = rng.choice([rng.randint(1, 40), rng.randint(1, 200), 8 * rng.randint(1, 20)])
    height, width = rng.randint(1, 5), rng.choice([1, rng.randint(1, 9), rng.randint(10, 20)])
    while channels * height * width > 3000:
        channels, height = max(1, channels // 2), max(1, height - 1)
    m_notch, e_notch = rng.choice([0, rng.randint(1, 4)]), rng.choice([0, rng.randint(1, 4)])
    surfaces = -(-channels // 4)
    e_stride = rng.choice([height * (width + e_notch), 1, height * (width + e_notch) + rng.randint(1, 9)])
    room = 16 * surfaces * (height * (width + 4) + 30) + 0x400
    cfg: Settings = {
        "FEATURE_MODE_CFG": {
            "IN_PRECISION": rng.choice(list(range(7))),
            "PROC_PRECISION": rng.choice([INT8, INT16, FP16, BF16, FP32, INT4]),
            "CONV_MODE": rng.choice([0, 0, 0, 3]),
            "FLYING_MODE": 1,
            "MRDMA_FP16TOFP32_EN": rng.choice([0, 1, 1]),
            "MRDMA_DISABLE": 0,
            "COMB_USE": 0,
            **mode,
        },
        "DATA_CUBE_WIDTH": {"WIDTH": width - 1},
        "DATA_CUBE_HEIGHT": {"HEIGHT": height - 1, "EW_LINE_NOTCH_ADDR": e_notch},
        "DATA_CUBE_CHANNEL": {"CHANNEL": channels - 1},
        "SRC_BASE_ADDR": {"SRC_BASE_ADDR": 16 * rng.randint(2, 9)},
        "SRC_DMA_CFG": {"LINE_NOTCH_ADDR": m_notch},
        "SURF_NOTCH": {"SURF_NOTCH_ADDR": rng.choice([0, rng.randint(1, 20)])},
        "EW_BASE_ADDR": {"EW_BASE_ADDR": room // 16 * 16 + 16 * rng.randint(0, 5)},
        "EW_SURF_STRIDE": {"EW_SURF_STRIDE": e_stride},
        "EW_SURF_NOTCH": {"EW_SURF_NOTCH": rng.choice([0, rng.randint(1, 20)])},
        "ERDMA_CFG": {"ERDMA_DATA_SIZE": rng.randint(0, 3), "ERDMA_DATA_MODE": rng.choice([0, 1, 1])},
        "BRDMA_CFG": {"BRDMA_DISABLE": 1},
        "NRDMA_CFG": {"NRDMA_DISABLE": 1},
    }
    if cfg["FEATURE_MODE_CFG"]["IN_PRECISION"] == BF16:  # without the bit a diagnostic is raised
        cfg["FEATURE_MODE_CFG"]["MRDMA_FP16TOFP32_EN"] = 1
    cfg["ERDMA_CFG"]["ERDMA_DISABLE"] = int(rng.random() < 0.2)
    if cfg["FEATURE_MODE_CFG"]["PROC_PRECISION"] in (FP16, BF16, FP32):
        cfg["ERDMA_CFG"]["ERDMA_DATA_SIZE"] = rng.choice([2, 3])
    return cfg, 2 * room + 0x1000


def run(jobs: list[tuple[Settings, int]], seed: int, stall: float, dpu_comb_use: int = 0) -> None:
    """Run `jobs` one after the other on one instance and compare every octet.

    `dpu_comb_use` is COMB_USE of the DPU.
    """
    memory = bytearray(random.Random(seed).randbytes(max(size for _, size in jobs)))
    for place in range(0, len(memory), 46):  # infinities, NaNs and subnormals of fp16 and bf16
        memory[place : place + 2] = random.Random(place).choice(
            [b"\x00\x7c", b"\x01\xfc", b"\x01\x00", b"\xff\x83", b"\x80\x7f", b"\x00\x80"]
        )
    dut = shared(DpuRdma)
    bench = Bench(dut, seed, stall)
    reads = {name: bench.read_memory(getattr(dut, name), memory, (1, 80)) for name in ("mrdma", "erdma")}
    got: dict[str, list[list[int]]] = {"main": [], "ew": []}
    for name in got:
        bench.sink(getattr(dut, name), lambda p, name=name: got[name].append(list(p.data)))
    complaints: list[tuple[int, int, int]] = []
    bench.collect(dut.diag, complaints)

    async def main(ctx: Any) -> None:
        for cfg, _ in jobs:
            for octets in got.values():
                octets.clear()
            configure(ctx, dut.cfg, "DPU_RDMA", cfg)
            ctx.set(dut.dpu_comb_use, dpu_comb_use)
            ctx.set(dut.control.start, 1)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            atoms: set[int] = set()
            want = expected(cfg, bytes(memory), atoms, dpu_comb_use)
            beats = {atom // 32 * 32 for atom in atoms}
            for _ in range(LIMIT):
                _, _, done = await ctx.tick().sample(dut.control.done)
                if done:
                    break
            counts = {name: (len(got[name]), len(want[name])) for name in got}
            assert done, f"not done after {LIMIT} cycles: octets taken and expected {counts} of {cfg}"
            await ctx.tick()
            for name in got:
                assert len(got[name]) == len(want[name]), f"{name} of {cfg}"
                for index, (have, lanes) in enumerate(zip(got[name], want[name], strict=True)):
                    seen = [h if w is not None else None for h, w in zip(have, lanes, strict=True)]
                    assert seen == lanes, f"{name} octet {index} of {cfg}"
            for name, read in reads.items():
                assert not read.queue
                extra = {at for at in read.touched if at not in beats}
                assert not extra, f"{name} read {min(extra):#x}, which is of no element, of {cfg}"
                read.touched.clear()

    bench.run(main)
    assert complaints == []


@pytest.mark.parametrize("kind", range(7))
@pytest.mark.parametrize("seed", range(2))
def test_main_types(kind: int, seed: int) -> None:
    """MRDMA of every type, together with ERDMA of any size."""
    rng = random.Random(100 * kind + seed)
    jobs = [random_settings(rng, IN_PRECISION=kind) for _ in range(2)]
    run(jobs, seed, rng.choice([0.0, 0.3, 0.5]))


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("mode", [0, 1])
def test_operand_sizes(size: int, mode: int) -> None:
    """ERDMA of every size in groups of 16, 32 and 64 channels, per channel and per pixel."""
    rng = random.Random(10 * size + mode)
    jobs = []
    for kind, conv_mode in ((INT16, 0), (INT8, 0), (INT4, 0), (FP32, 3)):
        proc = rng.choice([FP16, BF16, FP32, INT8] if size > 1 else [INT8, INT16, INT4])
        cfg, room = random_settings(rng, IN_PRECISION=kind, CONV_MODE=conv_mode, PROC_PRECISION=proc)
        cfg["ERDMA_CFG"] = {"ERDMA_DISABLE": 0, "ERDMA_DATA_SIZE": size, "ERDMA_DATA_MODE": mode}
        jobs.append((cfg, room))
    run(jobs, size, 0.3)


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("seed", range(2))
def test_shared_operand(size: int, seed: int) -> None:
    """COMB_USE 5: even surfaces from MRDMA, odd ones from ERDMA, in every kind of group."""
    rng = random.Random(20 * size + seed)
    jobs = []
    for kind, conv_mode in ((INT16, 0), (INT8, 0), (INT4, 0), (FP16, 3)):
        proc = rng.choice([FP16, BF16, INT8] if size > 1 else [INT8, INT16])
        cfg, room = random_settings(
            rng, IN_PRECISION=kind, CONV_MODE=conv_mode, PROC_PRECISION=proc, COMB_USE=5, FLYING_MODE=0
        )
        cfg["ERDMA_CFG"] = {"ERDMA_DISABLE": 0, "ERDMA_DATA_SIZE": size, "ERDMA_DATA_MODE": 1}
        jobs.append((cfg, room))
    run(jobs, seed, rng.choice([0.0, 0.4]))


@pytest.mark.parametrize("kind", range(7))
def test_alternating_main_data(kind: int) -> None:
    """COMB_USE 3 with that of the DPU: even surfaces of the main data from MRDMA, odd ones from ERDMA."""
    rng = random.Random(40 + kind)
    jobs = []
    for conv_mode, channels in ((0, 0), (3, 0), (0, 3)):
        mode = {"IN_PRECISION": kind, "CONV_MODE": conv_mode, "COMB_USE": 3}
        cfg, room = random_settings(rng, **mode, PROC_PRECISION=rng.choice([FP16, INT8]))
        if channels:  # ERDMA has no surface
            cfg["DATA_CUBE_CHANNEL"] = {"CHANNEL": channels}
        cfg["ERDMA_CFG"] = {"ERDMA_DISABLE": 0, "ERDMA_DATA_SIZE": rng.randint(0, 3), "ERDMA_DATA_MODE": 1}
        jobs.append((cfg, room))
    run(jobs, kind, rng.choice([0.0, 0.4]), dpu_comb_use=1)


@pytest.mark.parametrize("flying", [0, 1])
@pytest.mark.parametrize("off", ["MRDMA", "ERDMA"])
def test_shared_cube_needs_both_readers(off: str, flying: int) -> None:
    """If one of the two readers is off, nothing is delivered and the task does not end."""
    combination = 3 if flying else 5
    cfg, size = random_settings(
        random.Random(4), COMB_USE=combination, FLYING_MODE=flying, MRDMA_DISABLE=int(off == "MRDMA")
    )
    cfg["ERDMA_CFG"] = {"ERDMA_DISABLE": int(off == "ERDMA"), "ERDMA_DATA_SIZE": 2, "ERDMA_DATA_MODE": 1}
    dut = shared(DpuRdma)
    bench = Bench(dut, 4, 0.0)
    for name in ("mrdma", "erdma"):
        bench.read_memory(getattr(dut, name), bytearray(size), (1, 5))
    got: list[Any] = []
    bench.sink(dut.main, got.append)
    bench.sink(dut.ew, got.append)

    async def main(ctx: Any) -> None:
        configure(ctx, dut.cfg, "DPU_RDMA", cfg)
        ctx.set(dut.dpu_comb_use, 1)
        ctx.set(dut.control.start, 1)
        await ctx.tick()
        ctx.set(dut.control.start, 0)
        for _ in range(300):
            _, _, done = await ctx.tick().sample(dut.control.done)
            assert not done

    bench.run(main)
    assert got == []


RESERVED = DiagnosticCode.RESERVED_MODE
MODES: list[tuple[str, Settings]] = [
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"IN_PRECISION": 7}}),
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"PROC_PRECISION": 7}}),
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"COMB_USE": 1}}),
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"COMB_USE": 5}}),  # flying
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"COMB_USE": 3}}),  # without that of the DPU
    ("", {"FEATURE_MODE_CFG": {"IN_PRECISION": FP16, "MRDMA_FP16TOFP32_EN": 0}}),
    ("FEATURE_MODE_CFG", {"FEATURE_MODE_CFG": {"IN_PRECISION": BF16, "MRDMA_FP16TOFP32_EN": 0}}),
    ("", {"FEATURE_MODE_CFG": {"IN_PRECISION": FP16}}),
    ("", {"FEATURE_MODE_CFG": {"IN_PRECISION": FP32, "MRDMA_FP16TOFP32_EN": 0}}),
    ("SRC_DMA_CFG", {"SRC_DMA_CFG": {"UNPOOLING_EN": 1}}),
    ("SRC_DMA_CFG", {"SRC_DMA_CFG": {"POOLING_METHOD": 1}}),
    ("SRC_DMA_CFG", {"SRC_DMA_CFG": {"KERNEL_STRIDE_HEIGHT": 1}}),
    ("SRC_DMA_CFG", {"SRC_DMA_CFG": {"KERNEL_WIDTH": 1}}),
    ("PAD_CFG", {"PAD_CFG": {"PAD_VALUE": 1}}),
    ("PAD_CFG", {"PAD_CFG": {"PAD_LEFT": 1}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_DATA_MODE": 2}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_DATA_MODE": 3}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_SURF_MODE": 1}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_NONALIGN": 1}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_DATA_SIZE": 1}, "FEATURE_MODE_CFG": {"PROC_PRECISION": FP32}}),
    ("ERDMA_CFG", {"ERDMA_CFG": {"ERDMA_DATA_SIZE": 0}, "FEATURE_MODE_CFG": {"PROC_PRECISION": BF16}}),
    ("", {"ERDMA_CFG": {"ERDMA_DATA_SIZE": 0}}),
    ("", {"ERDMA_CFG": {"ERDMA_DATA_SIZE": 2}, "FEATURE_MODE_CFG": {"PROC_PRECISION": FP16}}),
    (
        "ERDMA_CFG",
        {"ERDMA_CFG": {"ERDMA_DATA_MODE": 0}, "FEATURE_MODE_CFG": {"COMB_USE": 5, "FLYING_MODE": 0}},
    ),
    ("BRDMA_CFG", {"BRDMA_CFG": {"BRDMA_DATA_USE": 8, "BRDMA_DISABLE": 0}}),
    ("", {"BRDMA_CFG": {"BRDMA_DATA_USE": 8}}),
    ("NRDMA_CFG", {"NRDMA_CFG": {"NRDMA_DATA_USE": 2, "NRDMA_DISABLE": 0}}),
]


ENDLESS = 800
"""Cycles after which a task that never ends has delivered whatever it delivers."""


def test_reserved_modes() -> None:
    """Each setting that is not modelled is reported once, with its register; the task ends as documented."""
    cases: list[tuple[str, Settings]] = []
    endless: list[tuple[str, Settings]] = []
    for register, changes in MODES:
        rng = random.Random(5)
        cfg, _ = random_settings(rng, IN_PRECISION=INT8, PROC_PRECISION=INT8, CONV_MODE=0)
        cfg["ERDMA_CFG"] = {"ERDMA_DISABLE": 0, "ERDMA_DATA_SIZE": 1, "ERDMA_DATA_MODE": 1}
        for name, fields in changes.items():
            cfg[name] = {**cfg.get(name, {}), **fields}
        mode = cfg["FEATURE_MODE_CFG"]
        chosen = endless if mode["FLYING_MODE"] and mode["COMB_USE"] & 1 else cases
        chosen.append((register, cfg))
    assert len(endless) == 3
    dut = shared(DpuRdma)
    for some in (cases, *([case] for case in endless)):
        reported(dut, some, ends=some is cases)


def reported(dut: Any, cases: list[tuple[str, Settings]], *, ends: bool) -> None:
    """Run cases from a reset; one that never ends delivers everything but the main data [HW 8.5]."""
    memory = bytearray(random.Random(5).randbytes(1 << 16))
    bench = Bench(dut, 5, 0.0)
    for name in ("mrdma", "brdma", "nrdma", "erdma"):
        bench.read_memory(getattr(dut, name), memory, (1, 5))
    got: dict[str, list[list[int]]] = {"main": [], "ew": []}
    for name in got:
        bench.sink(getattr(dut, name), lambda p, name=name: got[name].append(list(p.data)))
    for name in ("bs", "bn"):
        bench.sink(getattr(dut, name), lambda p: None)
    complaints: list[tuple[int, int, int]] = []
    bench.collect(dut.diag, complaints)

    async def main(ctx: Any) -> None:
        for register, cfg in cases:
            complaints.clear()
            for octets in got.values():
                octets.clear()
            configure(ctx, dut.cfg, "DPU_RDMA", cfg)
            ctx.set(dut.control.start, 1)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            for _ in range(LIMIT if ends else ENDLESS):
                _, _, done = await ctx.tick().sample(dut.control.done)
                if done:
                    break
            assert bool(done) == ends, cfg
            await ctx.tick().repeat(14)
            told = [(code, place) for code, place, _ in complaints]
            wanted = [(int(RESERVED), registers()["DPU_RDMA"][register].offset)] if register else []
            assert told == wanted, cfg
            for name, octets in expected(cfg, bytes(memory)).items():
                if name == "main" and not ends:
                    assert got[name] == []
                    continue
                assert [len(o) for o in octets] == [len(o) for o in got[name]], f"{name} of {cfg}"
                for have, lanes in zip(got[name], octets, strict=True):
                    seen = [h if w is not None else None for h, w in zip(have, lanes, strict=True)]
                    assert seen == lanes, f"{name} of {cfg}"

    bench.run(main)
