"""Writer, table access, operand readers, CORE's side, hangs and diagnostics of the golden DPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rkcosim.golden.task import GoldenHang
from rkcosim.golden.task.context import Context, TaskReport
from rkcosim.golden.task.core import Clip
from rkcosim.golden.task.dpu import Dpu
from rkcosim.golden.task.rdma import RdmaData, StageOperands
from rkcosim.golden.task.registers import View
from rkcosim.spec.regs import registers
from tests.makers.golden_bench import (
    BITS,
    ELEMENT,
    MAIN,
    OUT,
    Program,
    cube,
    device,
    flying,
    get,
    load,
    pattern,
    put,
)
from tests.twins.scalar_dpu import Operands, ScalarDpu, signed

R = registers()


# -- data of CORE ------------------------------------------------------------------------------------


class FromCore:
    """A DPU pass whose main data are given as CORE would send them."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        kind: int,
        out: int,
        *,
        process: int | None = None,
        depthwise: bool = False,
        group: int | None = None,
        seed: int = 0,
    ) -> None:
        self.dev, self.shape, self.out = device(), shape, out
        self.program = Program("DPU")
        cube(self.program, shape, kind, out, process=process, depthwise=depthwise)
        self.group = group or (64 if depthwise or kind == 6 else 32 if kind == 0 else 16)
        rng = np.random.default_rng(seed)
        self.pixels, self.groups = shape[1] * shape[2], -(-shape[0] // self.group)
        lanes = self.groups * self.group
        wide = 5 if process in (2, 3, 5) or (process is None and kind in (2, 3, 5)) else 4
        acc = np.array([[pattern(rng, wide) for _ in range(lanes)] for _ in range(self.pixels)])
        self.acc = ((acc + 2**31) % 2**32) - 2**31
        self.window = np.broadcast_to(rng.integers(-5000, 5000, (self.pixels, 1)), self.acc.shape)
        self.offered = RdmaData()

    def run(self) -> None:
        words = {
            R["DPU"][register].offset: R["DPU"][register].encode(**fields)
            for (_, register), fields in self.program.fields.items()
        }
        shape = SimpleNamespace(pixels=self.pixels, groups=self.groups, delivered_groups=self.groups)
        conv = SimpleNamespace(shape=shape, acc=self.acc, sum=self.window, clip=Clip())
        ctx = Context(self.dev.memory, 0, TaskReport(0), self.dev.findings, self.dev.strict)
        dpu = Dpu(ctx, View("DPU", words), self.dev.lut)
        dpu.run(self.offered, conv)
        if dpu.unfinished is not None:
            raise dpu.unfinished

    def read(self, c: int, pixel: int) -> int:
        _, height, width = self.shape
        y, x = divmod(pixel, width)
        return get(self.dev, OUT, BITS[self.out], c, y, x, width, height * width)


@pytest.mark.parametrize("register", [True, False])
@pytest.mark.parametrize("live", [True, False])
def test_cpend_adds_the_window_sum(register: bool, live: bool) -> None:
    bench = FromCore((64, 2, 3), 0, 4, seed=3)
    bench.program.set("DPU", "BS_OW_CFG", OD_BYPASS=int(not live), OW_SRC=int(not register))
    bench.program.set("DPU", "BS_OW_OP", OW_OP=-77)
    zero, factors = np.zeros(64, np.int64), np.arange(64) * 1000 - 32000
    bench.offered = RdmaData(3, 2, 64, 32, bs=StageOperands(zero, factors, zero))
    bench.run()
    for pixel in range(6):
        for c in range(64):
            term = int(bench.window[pixel, c]) * (-77 if register else int(factors[c]))
            want = int(bench.acc[pixel, c]) + (term if live else 0)
            want = max(-(2**31), min(2**31 - 1, want))
            assert signed(bench.read(c, pixel), 32) == want


def test_cpend_and_window_sums_do_nothing_to_floats() -> None:
    bench = FromCore((32, 1, 2), 2, 5, seed=4)
    bench.program.set("DPU", "BS_OW_CFG", OD_BYPASS=0, OW_SRC=1)
    bench.run()
    assert [bench.read(c, p) for p in (0, 1) for c in range(32)] == [
        int(v) % 2**32 for p in (0, 1) for v in bench.acc[p]
    ]


@pytest.mark.parametrize(
    ("kind", "out", "depthwise", "surfaces"),
    [
        (0, 0, False, 2),
        (0, 4, False, 8),
        (0, 1, False, 4),
        (0, 2, False, 4),
        (0, 6, False, 1),
        (0, 0, True, 4),
        (0, 1, True, 8),
        (6, 1, False, 8),
        (6, 6, False, 2),
        (6, 0, False, 4),
        (2, 2, False, 2),
        (2, 5, False, 4),
        (1, 4, False, 4),
        (1, 6, False, 1),
        (5, 5, False, 4),
        (2, 2, True, 4),
        (3, 5, True, 8),
        (1, 0, True, 2),
    ],
)
def test_surfaces_of_a_group(kind: int, out: int, depthwise: bool, surfaces: int) -> None:
    """Every channel has the place of section 4.10, with a bypassed and with an active converter."""
    pixels = 3
    per = 128 // BITS[out]
    for live in (False, True):
        channels = 128 if live else 70  # a live converter needs whole groups
        bench = FromCore((channels, 1, pixels), kind, out, depthwise=depthwise, seed=5)
        p = bench.program
        size_e = surfaces - 1
        p.set("DPU", "BS_OW_CFG", OD_BYPASS=int(not live), SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e)
        p.set("DPU", "DST_SURF_STRIDE", 4)
        p.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=1, NOTCH_ADDR_1=1)
        p.set("DPU", "SURFACE_ADD", SURF_ADD=4 * surfaces + 7)
        p.set("DPU", "OFFSET_PEND", 0x1A5C)
        bench.run()
        model = ScalarDpu(lambda r, f, p=p: p.get("DPU", r, f), [])
        for pixel in range(pixels):
            for c in range(-(-channels // per) * per):
                group, inner = divmod(c // per, surfaces)
                byte = OUT + 16 * (group * (4 * surfaces + 7) + inner * 4 + pixel)
                bit = c % per * BITS[out]
                got = load(bench.dev, byte + bit // 8, BITS[out]) >> bit % 8 & ((1 << BITS[out]) - 1)
                want = 0x1A5C % (1 << BITS[out])
                if c < channels:
                    want = model.element(int(bench.acc[pixel, c]) % 2**32, pixel, Operands())
                assert got == want, (pixel, c)


@pytest.mark.parametrize("size_e", [0, 2, 6])
def test_a_live_converter_needs_its_surfaces(size_e: int) -> None:
    bench = FromCore((32, 1, 1), 0, 0)
    bench.program.set("DPU", "BS_OW_CFG", OD_BYPASS=0, SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e)
    with pytest.raises(GoldenHang, match=r"BS_OW_CFG.SIZE_E_1 .*SIZE_MISMATCH"):
        bench.run()
    assert [f.register for f in bench.dev.findings] == ["BS_OW_CFG.SIZE_E_1"]


def test_a_group_that_differs_from_cores_hangs() -> None:
    bench = FromCore((16, 1, 1), 0, 4, group=16)
    with pytest.raises(GoldenHang, match=r"DATA_FORMAT.IN_PRECISION .*groups of 16 .*SIZE_MISMATCH"):
        bench.run()


# -- row-major output --------------------------------------------------------------------------------


def test_rows_of_a_matrix_are_contiguous() -> None:
    """[HW 7.11]: surface stride 1, the notch and SURFACE_ADD write [pixel][channel]."""
    dev, program = device(), flying((24, 1, 5), 4, 4)
    rng = np.random.default_rng(7)
    data = rng.integers(-(2**31), 2**31, (5, 24))
    put(dev, MAIN, 32, (24, 1, 5), lambda c, y, x: int(data[x, c]) % 2**32, 5, 5)
    program.set("DPU", "DST_SURF_STRIDE", 77)  # of one surface: without effect
    program.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=5, NOTCH_ADDR_1=5)
    program.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=4)
    program.set("DPU", "DATA_CUBE_WIDTH", WIDTH=0)
    program.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=4, WIDTH_WDMA=0)
    program.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=4)
    program.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=0)
    program.set("DPU", "SURFACE_ADD", SURF_ADD=1)
    program.run(dev)
    assert np.array_equal(np.frombuffer(dev.memory.read(OUT, 480), "<i4").reshape(5, 24), data)


# -- operand readers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "channels"), [(0, 70), (1, 40), (1, 9), (2, 20), (3, 9)])
def test_residual_operand_comes_from_both_readers(size: int, channels: int) -> None:
    """COMB_USE 5: even surfaces by MRDMA, odd ones by ERDMA [HW 8.5]."""
    height, width, bits = 2, 3, 4 << size
    per = 128 // bits
    rng = np.random.default_rng(10)
    bench = FromCore((channels, height, width), 0, 4)
    dev, program = bench.dev, Program("DPU_RDMA")
    operand = {}
    for c in range(channels):
        reader, index = c // per % 2, c // per // 2
        line, surface = width + 1 + reader, (width + 1 + reader) * height + 2 + 3 * reader
        for y in range(height):
            for x in range(width):
                operand[c, y, x] = value = pattern(rng, {4: 6, 8: 0, 16: 1, 32: 4}[bits])
                one = {(c % per, y, x): value}
                put_one(dev, (MAIN, ELEMENT)[reader] + 16 * index * surface, bits, one, line)
    program.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    program.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=height - 1, EW_LINE_NOTCH_ADDR=2)
    program.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    program.set("DPU_RDMA", "SRC_BASE_ADDR", MAIN)
    program.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    program.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=1)
    program.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=2 + 1)  # from the last line's end
    program.set("DPU_RDMA", "EW_SURF_NOTCH", 5 + 2)
    program.set("DPU_RDMA", "EW_SURF_STRIDE", 99)
    program.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=size)
    program.set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=5)
    bench.program.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_ALU_ALGO=2, EW_OP_CVT_BYPASS=1)
    bench.program.set("DPU", "EW_CFG", EW_RELU_BYPASS=1)
    bench.offered = fetched(dev, program)
    bench.program.set("DPU", "SURFACE_ADD", SURF_ADD=8 * 6)
    bench.program.set("DPU", "DST_SURF_STRIDE", 6)
    bench.run()
    for (c, y, x), value in operand.items():
        want = int(bench.acc[y * width + x, c]) + signed(value, bits)
        assert signed(bench.read(c, y * width + x), 32) == max(-(2**31), min(2**31 - 1, want))


def put_one(dev, base: int, bits: int, values: dict, line: int) -> None:
    """Store single elements of one surface."""
    for (c, y, x), value in values.items():
        byte, bit = 16 * (y * line + x) + c * bits // 8, c * bits % 8
        keep = load(dev, base + byte, bits) & (0xF << (4 - bit)) if bits == 4 else 0
        dev.memory.write(base + byte, (value << bit | keep).to_bytes(max(1, bits // 8), "little"))


def fetched(dev, program: Program) -> RdmaData:
    """Return the data that DPU_RDMA fetches for a program."""
    from rkcosim.golden.task.rdma import fetch

    values = {R[b][r].offset: R[b][r].encode(**f) for (b, r), f in program.fields.items() if b == "DPU_RDMA"}
    return fetch(Context(dev.memory, 0, TaskReport(0), dev.findings, dev.strict), View("DPU_RDMA", values))


def test_elements_follow_the_order_of_the_readers_group() -> None:
    """If DPU and DPU_RDMA have different group settings, the order of the octets differs too (5.1)."""
    shape = (32, 1, 2)
    dev, p = device(), flying(shape, 4, 4, process=4)
    put(dev, MAIN, 32, shape, lambda c, y, x: 100 * x + c, 2, 2)
    p.set("DPU", "DATA_FORMAT", IN_PRECISION=0)  # the DPU counts on 32 channels, DPU_RDMA sends 16
    p.set("DPU", "BS_OW_CFG", SIZE_E_0=3, SIZE_E_1=3, SIZE_E_2=3)
    p.set("DPU", "SURFACE_ADD", SURF_ADD=8)
    p.run(dev)
    got = [[get(dev, OUT, 32, c, 0, x, 2, 2) for c in range(32)] for x in (0, 1)]
    assert got[0] == [*range(16), *range(100, 116)]
    assert got[1] == [*range(16, 32), *range(116, 132)]


@pytest.mark.parametrize(("rows", "columns", "stride", "notch"), [(5, 15, 228, 153), (15, 15, 228, 3)])
def test_pitch_of_the_operand_is_the_cube_and_its_notch(
    rows: int, columns: int, stride: int, notch: int
) -> None:
    """Additions of the vendor cut by rows: surfaces are 228 atoms apart whatever EW_SURF_STRIDE is
    (vendor-adds)."""
    dev, program = device(), Program("DPU_RDMA")
    data = np.arange(3 * 228 * 16).astype(np.uint8)
    dev.memory.write(ELEMENT, data)
    program.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=columns - 1)
    program.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=rows - 1)
    program.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=47)
    program.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    program.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    program.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=1)
    program.set("DPU_RDMA", "EW_SURF_STRIDE", stride)
    program.set("DPU_RDMA", "EW_SURF_NOTCH", notch)
    got = fetched(dev, program).ew
    want = data.view(np.int8).reshape(3, 228, 16)[:, : rows * columns]
    assert np.array_equal(got, want.transpose(1, 0, 2).reshape(rows * columns, 48))


@pytest.mark.parametrize("combines", [1, 0])
def test_two_readers_deliver_the_main_data_of_a_board_program(combines: int) -> None:
    """fp16 masks to bytes: MRDMA has channels 0 to 7, ERDMA 8 to 15; without COMB_USE of the DPU the task
    never ends (half-to-byte, notes-ew)."""
    halves = np.array([1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1], np.float16)
    dev, p = device(strict=bool(combines)), flying((16, 1, 1), 2, 0, element=True)
    dev.memory.write(MAIN, halves[:8].view(np.uint8))
    dev.memory.write(ELEMENT, halves[8:].view(np.uint8))
    p.set("DPU", "FEATURE_MODE_CFG", COMB_USE=combines)
    p.set("DPU", "DATA_FORMAT", PROC_PRECISION=2)
    p.set("DPU", "BS_OW_CFG", OD_BYPASS=1)
    p.set("DPU", "DST_SURF_STRIDE", 1)
    p.set("DPU", "SURFACE_ADD", SURF_ADD=1)
    p.set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=3, PROC_PRECISION=2, MRDMA_FP16TOFP32_EN=1)
    p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=2)
    p.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    p.set("DPU_RDMA", "EW_SURF_STRIDE", 2)
    p.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=1)
    p.set("DPU_RDMA", "EW_SURF_NOTCH", 1)
    if not combines:
        p.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=31)  # as many atoms as are made
        with pytest.raises(GoldenHang, match="COMB_USE = 0x3: flying with bit 0"):
            p.run(dev)
        return
    p.run(dev)
    assert list(dev.memory.read(OUT, 16)) == [1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1]


# -- maximum over channels -----------------------------------------------------------------------------


def maximum(pixels: int, channels: int, **changed: int) -> Program:
    """Return the first task of a Softmax of the vendor's compiler, for a row of pixels (7.16)."""
    program = flying((channels, 1, pixels), 2, 2)
    program.set("DPU", "FEATURE_MODE_CFG", NONALIGN=1, SURF_LEN=-(-pixels // 8))
    program.set("DPU", "DATA_CUBE_HEIGHT", MINMAX_CTL=7)
    program.set("DPU", "DST_SURF_STRIDE", 0)
    program.set("DPU", "SURFACE_ADD", SURF_ADD=0)
    program.set("DPU", "OFFSET_PEND", OFFSET_PEND=-1025)  # -65504
    program.set("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=0, OUT_CVT_SCALE=1)
    program.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=0)
    for name, value in changed.items():
        register = {"SURF_LEN": "FEATURE_MODE_CFG", "MINMAX_CTL": "DATA_CUBE_HEIGHT"}[name]
        program.set("DPU", register, **{name: value})
    return program


@pytest.mark.parametrize(("pixels", "channels"), [(1, 8), (41, 176), (100, 104), (128, 40)])
def test_the_largest_channel_of_each_pixel(pixels: int, channels: int) -> None:
    """Sizes of the vendor's files: each pixel's maximum as numpy has it, one number after the other."""
    rng = np.random.default_rng(pixels)
    data = rng.normal(0, 30, (pixels, channels)).astype(np.float16)
    data[::3] = -np.abs(data[::3]) - np.float16(1)
    dev = device()
    bits = data.view(np.uint16)
    put(dev, MAIN, 16, (channels, 1, pixels), lambda c, y, x: int(bits[x, c]), pixels, pixels)
    dev.memory.write(OUT, b"\xa5" * 300)
    maximum(pixels, channels).run(dev)
    found = np.frombuffer(dev.memory.read(OUT, 2 * pixels), np.float16)
    np.testing.assert_array_equal(found, data.max(1))
    whole = -(-pixels // 8) * 16
    assert dev.memory.read(OUT + 2 * pixels, 300 - 2 * pixels) == bytes(whole - 2 * pixels) + b"\xa5" * (
        300 - whole
    )


@pytest.mark.parametrize("changed", [{"SURF_LEN": 4}, {"MINMAX_CTL": 5}])
def test_other_forms_of_the_maximum_have_no_effect(changed: dict[str, int]) -> None:
    dev = device(strict=False)
    bits = np.arange(24 * 8, dtype=np.uint16).reshape(24, 8)
    put(dev, MAIN, 16, (8, 1, 24), lambda c, y, x: int(bits[x, c]), 24, 24)
    maximum(24, 8, **changed).run(dev)
    registers = [
        finding.register.split(".")[0] for finding in dev.findings if finding.code == "RESERVED_MODE"
    ]
    assert set(registers) == {"FEATURE_MODE_CFG", "DATA_CUBE_HEIGHT"}
    assert get(dev, OUT, 16, 3, 0, 23, 24, 24) == 23 * 8 + 3  # the bits of each element [HW 7.10.4]


def test_rows_of_another_width_are_the_same_pixels() -> None:
    """12 rows of 2 columns are written as 2 rows of 12, as in the vendor's attention layers (8.1)."""
    dev = device()
    put(dev, MAIN, 8, (32, 12, 2), lambda c, y, x: (24 * c + 2 * y + x) % 251, 2, 24)
    program = flying((32, 2, 12), 0, 0)
    program.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=1)
    program.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=11)
    program.run(dev)
    for c in range(32):
        for n in range(24):
            assert get(dev, OUT, 8, c, n // 12, n % 12, 12, 24) == (24 * c + n) % 251
