"""DPU and DPU_RDMA of the golden model against plain Python, one element at a time."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import dpu_float as fp
from tests.makers.golden_bench import (
    BITS,
    BN,
    BS,
    ELEMENT,
    MAIN,
    OUT,
    SPECIAL,
    device,
    flying,
    get,
    pattern,
    put,
)
from tests.twins import scalar_floats as sf
from tests.twins.scalar_dpu import FLOATS, Operands, ScalarDpu, signed

INTEGERS = (0, 1, 4, 6)


# -- binary32 ----------------------------------------------------------------------------------------


def some_floats(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    near = rng.choice(SPECIAL, count).astype(np.uint32) + rng.integers(-2, 3, count).astype(np.uint32)
    small = (rng.normal(size=count) * 2.0 ** rng.integers(-30, 30, count)).astype(np.float32).view(np.uint32)
    kinds = (near, rng.integers(1 << 32, size=count).astype(np.uint32), small)
    return np.choose(rng.integers(0, 3, count), kinds)


def test_binary32_operations_match_fractions() -> None:
    a, b = some_floats(4000, 1), some_floats(4000, 2)
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert fp.operate(np.add, a, b).tolist() == [sf.add(x, y) for x, y in pairs]
    assert fp.operate(np.multiply, a, b).tolist() == [sf.multiply(x, y) for x, y in pairs]
    assert fp.divide16(a, b).tolist() == [sf.divide(x, y) for x, y in pairs]
    assert (fp.rank(a) > fp.rank(b)).tolist() == [sf.greater(x, y) for x, y in pairs]
    assert fp.round_whole(np.floor, a).tolist() == [sf.whole(x, False) for x, _ in pairs]
    assert fp.round_whole(np.ceil, a).tolist() == [sf.whole(x, True) for x, _ in pairs]
    for width in (4, 8, 16, 32):
        assert fp.to_integers(a, width).tolist() == [sf.to_integer(x, width) for x, _ in pairs]


def test_narrowing_and_widening_match_fractions() -> None:
    values = np.concatenate(
        (
            some_floats(3000, 3),
            # Halfway between neighbours of fp16, slightly off, and near its limits.
            (np.arange(0x38FFF000, 0x39003000, 0x800)).astype(np.uint32),
            (np.arange(0x477FE000, 0x47800800, 0x800)).astype(np.uint32),
            (np.arange(0x33000000 - 4, 0x33000000 + 5)).astype(np.uint32),
            (np.arange(0x7F7F0000, 0x7F800000, 0x4000)).astype(np.uint32),
        )
    )
    assert fp.narrow16(values).tolist() == [sf.narrow(sf.F16, int(v)) for v in values]
    assert fp.narrow_bf16(values).tolist() == [sf.narrow(sf.BF16, int(v)) for v in values]
    halves = np.arange(1 << 16, dtype=np.int64)
    assert fp.widen16(halves).tolist() == [sf.widen(sf.F16, int(v)) for v in halves]
    assert fp.widen_bf16(halves).tolist() == [v << 16 for v in range(1 << 16)]


# -- random tasks ------------------------------------------------------------------------------------


class Draw:
    """A random flying task with its memory and the inputs of the scalar model."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.float = bool(rng.random() < 0.55)
        kinds = FLOATS if self.float else INTEGERS
        self.kind, self.process = int(rng.choice(kinds)), int(rng.choice(kinds))
        self.out = int(rng.integers(0, 7))
        self.shape = (int(rng.integers(1, 41)), int(rng.integers(1, 4)), int(rng.integers(1, 5)))
        self.per = 128 // max(BITS[self.kind], BITS[self.out])  # channels of an output atom [HW 7.11]
        if self.out == 0 and self.per < 16:  # several atoms partly filled with bytes never end
            self.shape = (min(self.shape[0], self.per), *self.shape[1:])
        self.lut = bool(rng.random() < 0.3)
        self.tables = rng.integers(-32768, 32768, (2, 513)).tolist()
        self.element = bool(rng.random() < 0.5)
        self.program = flying(self.shape, self.kind, self.out, process=self.process, element=self.element)
        self.dev = device()
        self.stages = {name: self._stage(name) for name in ("BS", "BN")}
        self._ew()
        self._out()
        self._memory()

    def chance(self, p: float) -> int:
        return int(self.rng.random() < p)

    def word(self) -> int:
        """A 32-bit operand of the domain."""
        return pattern(self.rng, 5 if self.float else 4)

    def half(self) -> int:
        """A 16-bit operand of the domain."""
        return pattern(self.rng, 2 if self.float else 1)

    def _stage(self, stage: str) -> tuple[list[int], list[int], int]:
        """Draw BS or BN; return its operands in memory and which of them are used."""
        p = self.program
        p.set("DPU", f"{stage}_CFG", **{f"{stage}_BYPASS": self.chance(0.3)})
        for name, odds in (("ALU_BYPASS", 0.3), ("MUL_BYPASS", 0.3), ("MUL_PRELU", 0.3), ("ALU_SRC", 0.5)):
            p.set("DPU", f"{stage}_CFG", **{f"{stage}_{name}": self.chance(odds)})
        for name, odds in (("RELU_BYPASS", 0.6), ("RELUX_EN", 0.3)):
            p.set("DPU", f"{stage}_CFG", **{f"{stage}_{name}": self.chance(odds)})
        p.set("DPU", f"{stage}_CFG", **{f"{stage}_ALU_ALGO": 2 + 2 * self.chance(0.5)})
        p.set("DPU", f"{stage}_ALU_CFG", **{f"{stage}_ALU_OPERAND": self.word()})
        mul = {"MUL_OPERAND": self.half(), "MUL_SRC": self.chance(0.5)}
        shift, negative = (int(v) for v in self.rng.integers(0, 24, 2))
        p.set("DPU", f"{stage}_MUL_CFG", **{f"{stage}_{name}": value for name, value in mul.items()})
        p.set("DPU", f"{stage}_MUL_CFG", **{f"{stage}_MUL_SHIFT_VALUE": shift})
        p.set("DPU", "DATA_FORMAT", **{f"{stage}_MUL_SHIFT_VALUE_NEG": negative})
        p.set("DPU", f"{stage}_RELUX_CMP_VALUE", **{f"{stage}_RELUX_CMP_DAT": self.word()})
        beat = 4 if BITS[self.kind] == 32 else 8  # channels of a block that count [HW 8.3]
        count = -(-self.shape[0] // beat) * 8
        words, halves = [self.word() for _ in range(count)], [self.half() for _ in range(count)]
        use = int(self.rng.choice([1, 4, 5, 7] if stage == "BS" else [1, 4, 5]))
        client, base = ("BRDMA", "BS_BASE_ADDR") if stage == "BS" else ("NRDMA", "BN_BASE_ADDR")
        p.set("DPU_RDMA", f"{client}_CFG", **{f"{client}_DATA_USE": use})
        p.set("DPU_RDMA", base, BS if stage == "BS" else BN)
        raw = b""
        for at in range(0, count, 8):
            raw += np.array(words[at : at + 8], "<u4").tobytes() if use & 1 else b""
            raw += bytes(16) if use & 2 else b""
            raw += np.array(halves[at : at + 8], "<u2").tobytes() if use & 4 else b""
        self.dev.memory.write(BS if stage == "BS" else BN, raw)
        kept = [at for at in range(count) if at % 8 < beat]
        words, halves = ([v[at] for at in kept] for v in (words, halves))
        if use == 4 and BITS[self.kind] == 16 and self.shape[0] > 8 and self.shape[0] % 8:
            halves[self.shape[0] // 8 * 8 :] = [0] * 8  # multipliers of an incomplete last block
        return [v * (use & 1) for v in words], [v * (use >> 2) for v in halves], use

    def _ew(self) -> None:
        p, rng = self.program, self.rng
        integer = self.lut or not self.float
        algorithms = (0, 1, 2, 4, 5, 6) if integer else (0, 1, 2, 3, 4, 5, 6, 7, 8)
        bypass = int(not (self.element or self.lut) and rng.random() < 0.3)
        p.set("DPU", "EW_CFG", EW_BYPASS=bypass, EW_LUT_BYPASS=int(not self.lut), EW_OP_SRC=int(self.element))
        op_bypass = int(not self.element and rng.random() < 0.3)
        p.set("DPU", "EW_CFG", EW_OP_BYPASS=op_bypass, EW_OP_TYPE=self.chance(0.3))
        p.set("DPU", "EW_CFG", EW_ALU_ALGO=int(rng.choice(algorithms)), EW_MUL_PRELU=self.chance(0.3))
        p.set("DPU", "EW_CFG", EW_RELU_BYPASS=self.chance(0.6), EW_RELUX_EN=self.chance(0.3))
        p.set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=self.chance(0.4), EW_CVT_TYPE=self.chance(0.5))
        p.set("DPU", "EW_CFG", EW_CVT_ROUND=self.chance(0.5), EW_EQUAL_EN=self.chance(0.5))
        p.set("DPU", "EW_CFG", EDATA_SIZE=int(rng.integers(0, 4)))
        p.set("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=self.chance(0.6))
        if self.kind == 2:
            p.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=self.chance(0.7))
        if self.element and p.get("DPU", "EW_CFG", "EW_OP_TYPE") and not integer and self.process != 3:
            p.set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=1)  # otherwise it never ends [HW 7.8.6]
        words = integer and self.element and p.get("DPU", "EW_CFG", "EDATA_SIZE") == 3
        if words and len({self.kind, self.process, self.out}) > 1:
            p.set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=1)  # with 0, sums raise RESERVED_MODE [HW 7.8.6]
        algorithm = p.get("DPU", "EW_CFG", "EW_ALU_ALGO")
        if not p.get("DPU", "EW_CFG", "EW_OP_TYPE") and algorithm < 2 and integer:
            p.set("DPU", "EW_CFG", EW_BINARY_EN=self.chance(0.5))
        p.set("DPU", "EW_RELUX_CMP_VALUE", EW_RELUX_CMP_DAT=pattern(rng, 4 if integer else 5))
        for lane in range(8):
            operand = pattern(rng, 4) if integer else self.half() if self.chance(0.5) else self.word()
            p.set("DPU", f"EW_OP_VALUE_{lane}", **{f"EW_OPERAND_{lane}": operand})
        truncate = {"EW_TRUNCATE": int(rng.integers(0, 20)) + 64 * self.chance(0.2)}
        p.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1, **truncate)
        p.set("DPU", "DATA_FORMAT", EW_TRUNCATE_NEG=int(rng.integers(0, 20)))
        if integer:
            scale, shift = int(rng.integers(-32768, 32768)), int(rng.integers(0, 20))
            p.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=scale, EW_OP_CVT_SHIFT=shift)
            p.set("DPU", "EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=pattern(rng, 4))
        if self.lut:
            self._lut()

    def _lut(self) -> None:
        p, rng = self.program, self.rng
        p.set("DPU", "LUT_CFG", LUT_LO_LE_MUX=2, LUT_HYBRID_PRIORITY=self.chance(0.5))
        p.set("DPU", "LUT_CFG", LUT_OFLOW_PRIORITY=self.chance(0.5), LUT_UFLOW_PRIORITY=self.chance(0.5))
        for table in ("LE", "LO"):
            step = int(rng.choice([0, 1, 3, 5, 8, 14, 22]))
            start = int(rng.integers(-200, 200)) << max(0, step - 2)
            length = 512 << step
            end = start + int(length * rng.choice([0.25, 1.0, 1.5]))
            p.set("DPU", "LUT_INFO", **{f"LUT_{table}_INDEX_SELECT": step})
            p.set("DPU", f"LUT_{table}_START", max(-(1 << 31), start))
            p.set("DPU", f"LUT_{table}_END", min((1 << 31) - 1, end))
            for side in ("UFLOW", "OFLOW"):
                scale, shift = int(rng.integers(-32768, 32768)), int(rng.integers(0, 32))
                p.set("DPU", f"LUT_{table}_SLOPE_SCALE", **{f"{side}_SCALE": scale})
                p.set("DPU", f"LUT_{table}_SLOPE_SHIFT", **{f"{side}_SHIFT": shift})
        self.dev.lut.entries[:] = self.tables

    def _out(self) -> None:
        p, rng = self.program, self.rng
        if self.lut or not self.float:
            shift = int(rng.integers(0, 40)) + 64 * self.chance(0.3)
            p.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=int(rng.integers(-32768, 32768)))
            p.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=shift, CVT_TYPE=self.chance(0.5))
            p.set("DPU", "OUT_CVT_SHIFT", CVT_ROUND=self.chance(0.5))
            p.set("DPU", "OUT_CVT_OFFSET", pattern(rng, 4))
        p.set("DPU", "OUT_CVT_SHIFT", MINUS_EXP=int(rng.choice([0, 0, 1, 15, 15, 140, 160, 255])))
        self.original = int(rng.integers(1, self.shape[0] + 1)) if self.chance(0.3) else self.shape[0]
        p.set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=self.original - 1)
        p.set("DPU", "OFFSET_PEND", pattern(rng, 1))

    def _memory(self) -> None:
        """Main data with notches, the element-wise operand in one of its shapes."""
        p, rng, (channels, height, width) = self.program, self.rng, self.shape
        kinds = {
            MAIN: [pattern(rng, self.kind) for _ in range(channels * height * width)],
            ELEMENT: [],
        }
        notch, tail = int(rng.integers(0, 3)), int(rng.integers(0, 3))
        p.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=notch)
        p.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=tail)
        line = width + notch
        self.main = lambda c, y, x: kinds[MAIN][(c * height + y) * width + x]
        put(self.dev, MAIN, BITS[self.kind], self.shape, self.main, line, line * height - notch + tail)
        if not self.element:
            return
        self.element_bits = int(rng.choice([16, 32] if self.process in FLOATS else [4, 8, 16, 32]))
        self.element_kind = 4  # the integers are read as patterns of any width
        if self.process in FLOATS:
            self.element_kind = 5 if self.element_bits == 32 else 3 if self.process == 3 else 2
        kinds[ELEMENT] = [
            pattern(rng, self.element_kind) % (1 << self.element_bits)
            for _ in range(channels * height * width)
        ]
        mode = self.chance(0.7)
        p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=mode)
        p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_SIZE={4: 0, 8: 1, 16: 2, 32: 3}[self.element_bits])
        p.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
        shape, line, stride = self.shape, width + notch, (width + notch) * height
        if mode:
            p.set("DPU_RDMA", "DATA_CUBE_HEIGHT", EW_LINE_NOTCH_ADDR=notch)
            p.set("DPU_RDMA", "EW_SURF_NOTCH", notch + tail)  # from the end of the last line
            self.operand = lambda c, y, x: kinds[ELEMENT][(c * height + y) * width + x]
        else:
            shape, line, tail = (channels, 1, 1), 0, 0
            self.operand = lambda c, y, x: kinds[ELEMENT][c]
        p.set("DPU_RDMA", "EW_SURF_STRIDE", stride)
        put(self.dev, ELEMENT, self.element_bits, shape, self.operand, line, stride + tail)

    def expected(self, c: int, y: int, x: int) -> int:
        """Return the output pattern by the scalar model."""
        bits = BITS[self.out]
        end = self.original
        if (end - 1) // self.per < (self.shape[0] - 1) // self.per:  # not the last atom
            end = -(-end // self.per) * self.per
        if c >= end:
            return signed(self.program.get("DPU", "OFFSET_PEND", "OFFSET_PEND"), 16) % (1 << bits)

        def wide(value: int, kind: int, size: int) -> int:
            if kind == 2 and not self.program.get("DPU_RDMA", "FEATURE_MODE_CFG", "MRDMA_FP16TOFP32_EN"):
                return value
            if kind in (2, 3):
                return sf.widen(sf.F16 if kind == 2 else sf.BF16, value)
            return signed(value, size) % (1 << 32)

        op = Operands(
            bs_alu=self.stages["BS"][0][c],
            bs_mul=self.stages["BS"][1][c],
            bn_alu=self.stages["BN"][0][c],
            bn_mul=self.stages["BN"][1][c],
        )
        if self.element:
            op.element = signed(self.operand(c, y, x), self.element_bits) % (1 << 32)
        model = ScalarDpu(lambda r, f: self.program.get("DPU", r, f), self.tables)
        pixel = y * self.shape[2] + x
        return model.element(wide(self.main(c, y, x), self.kind, BITS[self.kind]), pixel, op)


@pytest.mark.parametrize("seed", range(120))
def test_random_task_matches_the_scalar_model(seed: int) -> None:
    draw = Draw(seed)
    draw.program.run(draw.dev)
    channels, height, width = draw.shape
    bits = BITS[draw.out]
    last = -(-channels // draw.per) * draw.per
    pend = draw.program.get("DPU", "OFFSET_PEND", "OFFSET_PEND")
    for y in range(height):
        for x in range(width):
            for c in range(last):
                lane = c // draw.per * (128 // bits) + c % draw.per
                got = get(draw.dev, OUT, bits, lane, y, x, width, height * width)
                want = signed(pend, 16) % (1 << bits) if c >= channels else draw.expected(c, y, x)
                assert got == want, (seed, draw.kind, draw.process, draw.out, (c, y, x), hex(got), hex(want))


@pytest.mark.parametrize("algorithm", [5, 6])
def test_the_lowest_integer_has_no_opposite(algorithm: int) -> None:
    dev, p = device(), flying((4, 1, 1), 4, 4)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_ALU_ALGO=algorithm, EW_RELU_BYPASS=1)
    dev.memory.write(MAIN, np.array([-(2**31), 2**31 - 1, -7, 0], "<i4"))
    p.run(dev)
    got = np.frombuffer(dev.memory.read(OUT, 16), "<i4").tolist()
    assert got == [-(2**31), (2**31 - 1) * (1 if algorithm == 5 else -1), 7, 0]
