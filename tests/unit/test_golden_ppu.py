"""PPU of the golden model against plain Python, one window at a time [HW 9]."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rkcosim.golden.task import GoldenDevice, GoldenError, GoldenHang
from rkcosim.golden.task.ppu import reciprocal
from tests.makers.golden_bench import MAIN, OUT, Program, device, flying, get, pattern, put
from tests.twins import scalar_floats as sf
from tests.twins.scalar_dpu import sat, signed

INDEX = 0x8000
"""Bytes from the output to the positions."""
KINDS = ((0, 1, 8), (1, 2, 16), (2, 2, 16))
"""PROC_PRECISION, IN_PRECISION, bits."""


class Pool:
    """A pooling task over a cube at MAIN, and the scalar model of it."""

    def __init__(
        self,
        kind: int,
        shape: tuple[int, int, int],
        kernel: tuple[int, int],
        method: int,
        *,
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
        trailing: tuple[int, int] = (0, 0),
        value: int = 0,
    ) -> None:
        self.kind, self.shape, self.kernel, self.method = kind, shape, kernel, method
        self.stride, self.pad, self.value = stride, pad, value
        self.bits = 8 if kind == 0 else 16
        size = zip(shape[1:], kernel, stride, pad, trailing, strict=True)
        self.out = tuple((n + p + t - k) // s + 1 for n, k, s, p, t in size)
        factors = [self._factor(k) for k in kernel]
        self.factors = factors
        p = self.program = Program("PPU", "PPU_RDMA")
        for axis, given, made in zip(
            ("CHANNEL", "HEIGHT", "WIDTH"), shape, (shape[0], *self.out), strict=True
        ):
            p.set("PPU", f"DATA_CUBE_IN_{axis}", given - 1)
            p.set("PPU_RDMA", f"CUBE_IN_{axis}", given - 1)
            p.set("PPU", f"DATA_CUBE_OUT_{axis}", made - 1)
        p.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=method)
        p.set("PPU", "POOLING_KERNEL_CFG", KERNEL_HEIGHT=kernel[0] - 1, KERNEL_WIDTH=kernel[1] - 1)
        p.set("PPU", "POOLING_KERNEL_CFG", KERNEL_STRIDE_HEIGHT=stride[0] - 1)
        p.set("PPU", "POOLING_KERNEL_CFG", KERNEL_STRIDE_WIDTH=stride[1] - 1)
        p.set("PPU", "POOLING_PADDING_CFG", PAD_TOP=pad[0], PAD_LEFT=pad[1])
        p.set("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=value)
        p.set("PPU", "RECIP_KERNEL_HEIGHT", factors[0])
        p.set("PPU", "RECIP_KERNEL_WIDTH", factors[1])
        p.set("PPU", "DATA_FORMAT", PROC_PRECISION=kind)
        p.set("PPU", "DST_BASE_ADDR", OUT >> 4)
        p.set("PPU", "DST_SURF_STRIDE", self.out[0] * self.out[1])
        p.set("PPU_RDMA", "SRC_BASE_ADDR", MAIN)
        p.set("PPU_RDMA", "SRC_LINE_STRIDE", shape[2])
        p.set("PPU_RDMA", "SRC_SURF_STRIDE", shape[1] * shape[2])
        p.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1 if kind == 0 else 2)

    def _factor(self, k: int) -> int:
        """RECIP of a kernel side: 1/k as 1-6-10 float for fp16, else in 2^-16."""
        if self.kind != 2:
            return round(65536 / k)
        e = -((k - 1).bit_length())
        return (e + 31) << 10 | round((Fraction(1, k) / Fraction(2) ** e - 1) * 1024)

    def taps(self, oy: int, ox: int) -> list[tuple[int, int] | None]:
        """Input (row, column) of every tap, None where padded."""
        out: list[tuple[int, int] | None] = []
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = oy * self.stride[0] - self.pad[0] + ky, ox * self.stride[1] - self.pad[1] + kx
                inside = 0 <= y < self.shape[1] and 0 <= x < self.shape[2]
                out.append((y, x) if inside else None)
        return out

    def expected(self, data: np.ndarray, c: int, oy: int, ox: int) -> tuple[int, int]:
        """Return the pattern of one output and its position."""
        taps = self.taps(oy, ox)
        real = [(int(data[c, at[0], at[1]]), at) for at in taps if at is not None]
        pads = taps.count(None)
        if self.method == 0:
            return self.average([v for v, _ in real], pads), 0
        return self.extreme(real)

    def order(self, pattern: int) -> Fraction | None:
        """Return the position in numeric order; None for a NaN."""
        if self.kind != 2:
            return Fraction(signed(pattern, self.bits))
        if sf.F16.is_nan(pattern):
            return None
        big = Fraction(1 << 20) if sf.F16.is_infinite(pattern) else abs(sf.F16.number(pattern))
        return -big - Fraction(1, 1 << 40) if pattern >> 15 else big

    def extreme(self, real: list) -> tuple[int, int]:
        places = [self.order(v) for v, _ in real]
        index = 0
        if None in places:
            at = real[places.index(None)][1]
        elif places:
            at = real[places.index(max(places) if self.method == 1 else min(places))][1]
        if places:
            index = at[0] % 8 * 8 + at[1] % 8
        values = [v for v, _ in real]
        if not values:
            pad = self.value & 0xFFFF
            if self.kind != 2:
                pad = sat(signed(self.value, 19), self.bits) % (1 << self.bits)
            values.append(pad)
        if any(self.order(v) is None for v in values):
            return sf.F16.nan, index
        pick = max if self.method == 1 else min
        return pick(values, key=lambda v: self.order(v)), index

    def average(self, values: list[int], pads: int) -> int:
        if self.kind == 2:
            return self.float_average(values + [self.value & 0xFFFF] * pads)
        total = sum(signed(v, self.bits) for v in values) + signed(self.value, 19) * pads
        size = self.kernel[0] * self.kernel[1]
        s = abs(total)
        m = (s * self.factors[0] * self.factors[1] + 2**31) >> 32
        for j in (m - 1, m):
            if size % 2 == 0 and 2 * s == (2 * j + 1) * size:
                exact = all(k in (1, 2, 4, 8, 16) for k in self.kernel)
                m = j + 1 if exact and j % 2 else j
                break
        return sat(-m if total < 0 else m, self.bits) % (1 << self.bits)

    def float_average(self, values: list[int]) -> int:
        wide = [sf.widen(sf.F16, v) for v in values]
        infinities = {v for v in wide if sf.F32.is_infinite(v)}
        if any(sf.F32.is_nan(v) for v in wide) or len(infinities) == 2:
            value = sf.F32.nan
        elif infinities:
            value = infinities.pop()
        else:
            value = sf.F32.round(sum((sf.F32.number(v) for v in wide), Fraction(0)))
        for code in (self.factors[1], self.factors[0]):
            e, f = code >> 10 & 63, code & 1023
            factor = Fraction(f + 1024 * (e > 0), 1024) * Fraction(2) ** (max(e, 1) - 31)
            value = sf.multiply(value, sf.F32.round(-factor if code >> 16 else factor, code >> 16))
        return sf.narrow(sf.F16, value)

    def run(self, data: np.ndarray, dev: GoldenDevice | None = None) -> GoldenDevice:
        """Store patterns [channel, row, column] and run."""
        dev = dev or device()
        value = lambda c, y, x: int(data[c, y, x])  # noqa: E731
        put(dev, MAIN, self.bits, self.shape, value, self.shape[2], self.shape[1] * self.shape[2])
        self.program.run(dev)
        return dev

    def check(self, data: np.ndarray, index: bool = False) -> None:
        """Run and compare every output, and every position."""
        if index:
            self.program.set("PPU", "OPERATION_MODE_CFG", INDEX_EN=1)
            self.program.set("PPU", "DATA_FORMAT", INDEX_ADD=INDEX // 16)
        dev = self.run(data)
        height, width = self.out
        for c in range(self.shape[0]):
            for y in range(height):
                for x in range(width):
                    want, at = self.expected(data, c, y, x)
                    got = get(dev, OUT, self.bits, c, y, x, width, height * width)
                    assert got == want, (c, y, x, hex(got), hex(want), self.taps(y, x))
                    if index:
                        got = get(dev, OUT + INDEX, self.bits, c, y, x, width, height * width)
                        assert got == at, (c, y, x, got, at)


def draw(rng: np.random.Generator, kind: int, shape: tuple[int, int, int], few: bool = False) -> np.ndarray:
    """Random patterns; `few` different ones, so that ties are common."""
    choice = [pattern(rng, kind) for _ in range(3 if few else 10000)]
    return np.array([choice[i % len(choice)] for i in rng.integers(0, 10000, np.prod(shape))]).reshape(shape)


@pytest.mark.parametrize("seed", range(60))
def test_random_pooling_matches_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = seed % 3
    kernel = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    if seed % 10 == 9:
        kernel = (int(rng.integers(1, 17)), int(rng.integers(1, 17)))
    shape = (int(rng.integers(1, 20)), *(int(rng.integers(1, 12)) for _ in range(2)))
    pad = tuple(int(rng.integers(0, 8)) for _ in range(2))
    after = tuple(
        max(0, k - n - p) + int(rng.integers(0, 3)) for k, n, p in zip(kernel, shape[1:], pad, strict=True)
    )
    stride = tuple(int(rng.integers(1, 4)) for _ in range(2))
    value = pattern(rng, kind) if rng.random() < 0.7 else int(rng.integers(0, 1 << 19))
    method = int(rng.integers(0, 3))
    pool = Pool(kind, shape, kernel, method, stride=stride, pad=pad, trailing=after, value=value)
    pool.check(draw(rng, kind, shape, few=seed % 4 == 0), index=method > 0)


@pytest.mark.parametrize("kernel", [(2, 2), (4, 4), (1, 2), (2, 3), (3, 6), (5, 2), (8, 8), (16, 16), (3, 3)])
@pytest.mark.parametrize("kind", [0, 1])
def test_ties_of_integer_averages(kernel: tuple[int, int], kind: int) -> None:
    """Every sum next to a half, of both signs, by the formula and by the rule in words of [HW 9.3]."""
    size, count = kernel[0] * kernel[1], 64
    data = np.zeros((count, *kernel), np.int64)
    sums = []
    for c in range(count):
        total = ((2 * (c // 2) + 1) * size // 2 + (c % 4 == 3)) * (-1) ** c
        sums.append(total)
        flat, rest = np.zeros(size, np.int64), total
        for i in range(size):
            flat[i] = np.clip(rest, -128, 127)
            rest -= flat[i]
        assert rest == 0
        data[c] = flat.reshape(kernel)
    pool = Pool(kind, (count, *kernel), kernel, 0)
    patterns = data % (1 << pool.bits)
    pool.check(patterns)
    dev = pool.run(patterns)
    powers = all(k & (k - 1) == 0 for k in kernel)
    for c, total in enumerate(sums):
        exact = Fraction(abs(total), size)
        m = int(exact + Fraction(1, 2))
        if size % 2 == 0 and exact.denominator == 2:
            # Half away from zero steps back, for exact reciprocals only where the quotient was odd.
            m -= 1 if not powers or m % 2 else 0
        got = signed(get(dev, OUT, pool.bits, c, 0, 0, 1, 1), pool.bits)
        assert got == (m if total >= 0 else -m), (total, size)


def test_factors_of_fp16_averages() -> None:
    for code, want in ((0x7C00, 1.0), (0x7800, 0.5), (0x7555, 1365 / 4096), (0, 0.0), (1, 2.0**-40)):
        assert reciprocal(code) == want
        assert reciprocal(code | 1 << 16) == -want
    assert reciprocal(0xFFFF) == (2047 / 1024) * 2.0**32  # an exponent of 63 is an ordinary one


def test_special_values_of_fp16() -> None:
    inf, minus, nan, zero, neg = 0x7C00, 0xFC00, 0x7C01, 0x0000, 0x8000
    rows = np.array([[[zero, neg]], [[neg, zero]], [[inf, minus]], [[nan, inf]], [[inf, inf]], [[neg, neg]]])
    for method, want, at in (
        (0, [zero, zero, 0x7E00, 0x7E00, inf, zero], None),
        (1, [zero, zero, inf, 0x7E00, inf, neg], [0, 1, 0, 0, 0, 0]),
        (2, [neg, neg, minus, 0x7E00, inf, neg], [1, 0, 1, 0, 0, 0]),
    ):
        pool = Pool(2, (6, 1, 2), (1, 2), method)
        if at:
            pool.program.set("PPU", "OPERATION_MODE_CFG", INDEX_EN=1)
            pool.program.set("PPU", "DATA_FORMAT", INDEX_ADD=INDEX // 16)
        dev = pool.run(rows)
        assert [get(dev, OUT, 16, c, 0, 0, 1, 1) for c in range(6)] == want
        if at:
            assert [get(dev, OUT + INDEX, 16, c, 0, 0, 1, 1) for c in range(6)] == at


def test_padding_never_wins_a_maximum() -> None:
    """Vendor lists of int8 maxima have pad value 0 [HW 9.2]."""
    data = np.array([[[-128, -7], [-90, -20]]]) % 256
    pool = Pool(0, (1, 2, 2), (3, 3), 1, pad=(1, 1), value=0)
    dev = pool.run(data)
    assert [dev.memory.read(OUT, 1)[0]] == [-7 % 256]
    pool.check(data)


def test_windows_without_a_real_tap_have_position_zero() -> None:
    pool = Pool(0, (1, 2, 2), (1, 1), 1, pad=(2, 2), value=0x7FF85)
    data = np.full((1, 2, 2), 5)
    pool.check(data, index=True)


def test_positions_count_input_rows_and_columns_modulo_eight() -> None:
    data = np.zeros((1, 11, 13), np.int64)
    data[0, 10, 11] = 9
    pool = Pool(0, (1, 11, 13), (11, 13), 1)
    pool.program.set("PPU", "OPERATION_MODE_CFG", INDEX_EN=1, USE_CNT=5)
    pool.program.set("PPU", "DATA_FORMAT", INDEX_ADD=2)
    dev = pool.run(data)
    assert dev.memory.read(OUT, 1) == b"\x09"
    assert dev.memory.read(OUT + 32, 1)[0] == 2 * 8 + 3


# -- fed by the DPU ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "both"), [(0, True), (0, False), (1, True), (2, False)])
def test_pooling_on_the_fly(kind: int, both: bool) -> None:
    """The DPU's result is written and pooled in one task."""
    rng = np.random.default_rng(kind)
    shape, kernel = (21, 5, 6), (3, 2)
    data = draw(rng, kind, shape)
    bits = 8 if kind == 0 else 16
    task, pool = flying(shape, kind, kind), Pool(kind, shape, kernel, 1)
    task.blocks = ("DPU", "DPU_RDMA", "PPU")
    task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=3 if both else 1)
    for (block, register), fields in pool.program.fields.items():
        if block == "PPU":
            task.set(block, register, **fields)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=0)
    task.set("PPU", "DATA_FORMAT", DPU_FLYIN=1)
    task.set("PPU", "DST_BASE_ADDR", (OUT + 0x4000) >> 4)
    dev = device()
    put(dev, MAIN, bits, shape, lambda c, y, x: int(data[c, y, x]), 6, 30)
    task.run(dev)
    for c in range(shape[0]):
        for y in range(shape[1]):
            for x in range(shape[2]):
                got = get(dev, OUT, bits, c, y, x, 6, 30)
                assert got == (int(data[c, y, x]) if both else 0)
        for y in range(pool.out[0]):
            for x in range(pool.out[1]):
                want, _ = pool.expected(data, c, y, x)
                got = get(dev, OUT + 0x4000, bits, c, y, x, pool.out[1], pool.out[0] * pool.out[1])
                assert got == want
    assert dev.raw == 0x100 | 0x400
    assert sorted(dev.reports[0].groups) == ["DPU", "DPU_RDMA", "PPU"]


def joint(**changes: int) -> Program:
    """Return a small task of both blocks with changed fields of the PPU."""
    task, pool = flying((16, 2, 2), 0, 0), Pool(0, (16, 2, 2), (1, 1), 1)
    task.blocks = ("DPU", "DPU_RDMA", "PPU")
    task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=1)
    for (block, register), fields in pool.program.fields.items():
        if block == "PPU":
            task.set(block, register, **fields)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=changes.pop("FLYING_MODE", 0))
    task.set("PPU", "DATA_FORMAT", DPU_FLYIN=changes.pop("DPU_FLYIN", 1))
    for register, value in changes.items():
        task.set("PPU", register, value)
    return task


def test_a_pool_takes_eight_surfaces_of_a_group() -> None:
    """Sums of 32 bits narrowed to bytes fill a quarter of each atom, so that 64 channels are 16 surfaces."""
    task = joint(DATA_CUBE_IN_CHANNEL=63, DATA_CUBE_OUT_CHANNEL=63)
    task.set("DPU", "DATA_FORMAT", IN_PRECISION=4)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", IN_PRECISION=4)
    task.run(device())
    for block in ("DPU", "DPU_RDMA"):
        task.set(block, "FEATURE_MODE_CFG", CONV_MODE=3)
    with pytest.raises(GoldenHang, match=r"16 surfaces of a group.*SIZE_MISMATCH"):
        task.run(device())


def test_a_pool_of_another_size_than_the_dpus_hangs() -> None:
    joint().run(device())
    joint(DATA_CUBE_IN_CHANNEL=8, DATA_CUBE_OUT_CHANNEL=8).run(device())  # the same atom
    for changes in (
        {"DATA_CUBE_IN_WIDTH": 2},
        {"DATA_CUBE_IN_HEIGHT": 0},
        {"DATA_CUBE_IN_CHANNEL": 16, "DATA_CUBE_OUT_CHANNEL": 16},
    ):
        with pytest.raises(GoldenHang, match=r"PPU.DATA_CUBE_IN_WIDTH .*SIZE_MISMATCH"):
            joint(**changes).run(device())
    wide = joint()
    wide.set("PPU", "DATA_FORMAT", PROC_PRECISION=1)
    with pytest.raises(GoldenHang, match=r"PPU.DATA_CUBE_IN_WIDTH .*8 bits per element"):
        wide.run(device())


def test_who_does_not_take_part_hangs() -> None:
    alone = joint()
    alone.blocks = ("DPU", "DPU_RDMA")
    alone.fields = {key: fields for key, fields in alone.fields.items() if key[0] != "PPU"}
    with pytest.raises(GoldenHang, match=r"DPU.FEATURE_MODE_CFG.OUTPUT_MODE .*PPU does not accept"):
        alone.run(device())
    with pytest.raises(GoldenHang, match="PPU does not accept"):
        joint(FLYING_MODE=1).run(device())
    reader = joint()
    reader.blocks = (*reader.blocks, "PPU_RDMA")
    with pytest.raises(GoldenHang, match="PPU_RDMA"):
        reader.run(device())
    pool = Pool(0, (16, 2, 2), (1, 1), 1)
    pool.program.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=0)
    with pytest.raises(GoldenHang, match="PPU"):
        pool.run(np.zeros((16, 2, 2), np.int64))


# -- settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "register", "fields", "label"),
    [
        ("PPU", "MISC_CTRL", {"NONALIGN": 1}, "PPU.MISC_CTRL.NONALIGN"),
        ("PPU", "MISC_CTRL", {"SURF_LEN": 1}, "PPU.MISC_CTRL.SURF_LEN"),
        ("PPU", "MISC_CTRL", {"MC_SURF_OUT": 1}, "PPU.MISC_CTRL.MC_SURF_OUT"),
        ("PPU", "OPERATION_MODE_CFG", {"INDEX_EN": 1}, "PPU.OPERATION_MODE_CFG.INDEX_EN"),
        ("PPU", "OPERATION_MODE_CFG", {"POOLING_METHOD": 3}, "PPU.OPERATION_MODE_CFG.POOLING_METHOD"),
        ("PPU", "DATA_FORMAT", {"PROC_PRECISION": 3}, "PPU.DATA_FORMAT.PROC_PRECISION"),
        ("PPU_RDMA", "DATA_FORMAT", {"IN_PRECISION": 0}, "PPU_RDMA.DATA_FORMAT.IN_PRECISION"),
        ("PPU_RDMA", "DATA_FORMAT", {"IN_PRECISION": 2}, "PPU_RDMA.DATA_FORMAT.IN_PRECISION"),
    ],
)
def test_settings_are_told(block: str, register: str, fields: dict, label: str) -> None:
    pool = Pool(0, (16, 2, 2), (2, 2), 0)
    pool.program.set(block, register, **fields)
    with pytest.raises(GoldenError, match=rf"{label} .*RESERVED_MODE"):
        pool.run(np.zeros((16, 2, 2), np.int64))
    if "METHOD" not in label:  # and the result is that of the task without them
        data = draw(np.random.default_rng(1), 0, (16, 2, 2))
        dev = pool.run(data, device(strict=False))
        want = [pool.expected(data, c, 0, 0)[0] for c in range(16)]
        assert [get(dev, OUT, 8, c, 0, 0, 1, 1) for c in range(16)] == want


def test_fly_in_is_compared_with_the_dpu() -> None:
    with pytest.raises(GoldenError, match=r"PPU.DATA_FORMAT.DPU_FLYIN .*RESERVED_MODE"):
        joint(DPU_FLYIN=0).run(device())


def test_reader_of_another_size_hangs() -> None:
    for register in ("CUBE_IN_WIDTH", "CUBE_IN_HEIGHT", "CUBE_IN_CHANNEL"):
        pool, dev = Pool(0, (16, 2, 2), (1, 1), 1), device()
        pool.program.set("PPU_RDMA", register, 40)
        with pytest.raises(GoldenHang, match=rf"PPU.DATA_CUBE_IN_WIDTH .*{register}.*SIZE_MISMATCH"):
            pool.run(np.zeros((16, 2, 2), np.int64), dev)
        assert {f.code for f in dev.findings} == {"SIZE_MISMATCH"}


def test_open_rows_have_a_limit() -> None:
    for rows, fits in ((8, True), (9, False)):
        pool = Pool(0, (1, 16, 256), (rows, 1), 1)
        if fits:
            pool.run(np.zeros((1, 16, 256), np.int64))
            continue
        with pytest.raises(GoldenHang, match=r"PPU.DATA_CUBE_OUT_WIDTH .*FEATURE_FOOTPRINT"):
            pool.run(np.zeros((1, 16, 256), np.int64))


@pytest.mark.parametrize(("channels", "fits"), [(16, True), (17, False), (40, False)])
def test_open_rows_on_the_fly_count_the_surfaces_of_a_group(channels: int, fits: bool) -> None:
    task, pool = flying((channels, 16, 128), 0, 0), Pool(0, (channels, 16, 128), (9, 1), 1)
    task.blocks = ("DPU", "DPU_RDMA", "PPU")
    task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=1)
    for (block, register), fields in pool.program.fields.items():
        if block == "PPU":
            task.set(block, register, **fields)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=0)
    task.set("PPU", "DATA_FORMAT", DPU_FLYIN=1)
    dev = device()
    dev.memory.map(MAIN + 0x800000, 0x200000)
    task.set("DPU_RDMA", "SRC_BASE_ADDR", MAIN + 0x800000)
    task.set("PPU", "DST_BASE_ADDR", (OUT + 0x800000) >> 4)
    if fits:
        task.run(dev)
        return
    with pytest.raises(GoldenHang, match=r"PPU.DATA_CUBE_OUT_WIDTH .*2304 results"):
        task.run(dev)
