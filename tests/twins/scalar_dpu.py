"""The DPU, one element at a time in plain Python, from [HW 7]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tests.twins import scalar_floats as sf

Field = Callable[[str, str], int]
"""Return an unsigned field of a DPU register by register and field name."""

FLOATS = (2, 3, 5)


def signed(value: int, bits: int) -> int:
    """Return the low bits as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def sat(value: int, bits: int) -> int:
    """Return the value clamped to a signed range."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def rne(value: int, shift: int) -> int:
    """Return `value / 2^shift`, half to even."""
    return round(Fraction(value, 1 << shift))


def away(value: int, shift: int) -> int:
    """Return `value / 2^shift`, half away from zero."""
    whole = int(Fraction(abs(value), 1 << shift) + Fraction(1, 2))
    return whole if value >= 0 else -whole


@dataclass
class Operands:
    """All inputs of an element other than the registers: 32- and 16-bit patterns."""

    window: int = 0
    bs_alu: int = 0
    cpend: int = 0
    bs_mul: int = 0
    bn_alu: int = 0
    bn_mul: int = 0
    element: int = 0


class ScalarDpu:
    """Registers and tables of a task; `element` computes all stages for one element."""

    def __init__(self, field: Field, tables: list[list[int]], live_cpend: bool = False) -> None:
        self.f, self.tables, self.live_cpend = field, tables, live_cpend
        self.float = field("DATA_FORMAT", "PROC_PRECISION") in FLOATS
        self.lut = not field("EW_CFG", "EW_BYPASS") and not field("EW_CFG", "EW_LUT_BYPASS")

    def element(self, main: int, pixel: int, op: Operands) -> int:
        """Return the output bits, in the width of OUT_PRECISION, of one 32-bit pattern.

        `pixel` is the number of the pixel in the cube.
        """
        value = main if self.float else signed(main, 32)
        if self.live_cpend and not self.float:
            source = op.cpend if self.f("BS_OW_CFG", "OW_SRC") else self.f("BS_OW_OP", "OW_OP")
            value += signed(op.window, 32) * signed(source, 16)
        if not self.float:
            value = sat(value, 32)
        value = self._bs(value, op)
        value = self._bn(value, op)
        value, is_float = self._ew(value, pixel, op)
        return self._out(value, is_float)

    # -- stages ---------------------------------------------------------------------------------

    def _alu(self, stage: str, value: int, loaded: int) -> int:
        f = self.f
        if f(f"{stage}_CFG", f"{stage}_ALU_BYPASS"):
            return value
        source = f(f"{stage}_CFG", f"{stage}_ALU_SRC")
        operand = loaded if source else f(f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND")
        minus = {2: False, 4: True}[f(f"{stage}_CFG", f"{stage}_ALU_ALGO")]
        if self.float:
            return sf.add(value, sf.negate(operand) if minus and not sf.F32.is_nan(operand) else operand)
        return value - signed(operand, 32) if minus else value + signed(operand, 32)

    def _mul(self, stage: str, value: int, loaded: int) -> int:
        f, cfg = self.f, f"{stage}_MUL_CFG"
        operand = loaded if f(cfg, f"{stage}_MUL_SRC") else f(cfg, f"{stage}_MUL_OPERAND")
        prelu = f(f"{stage}_CFG", f"{stage}_MUL_PRELU")
        if self.float:
            if prelu and not value >> 31:
                return value
            return sf.multiply(value, self._widened(operand))
        if prelu and value >= 0:
            return sat(value, 32)
        p = value * signed(operand, 16)
        if p >= 0:
            return sat(rne(p, f(cfg, f"{stage}_MUL_SHIFT_VALUE")), 32)
        return sat(rne(p, f("DATA_FORMAT", f"{stage}_MUL_SHIFT_VALUE_NEG")), 32)

    def _limits(self, stage: str, value: int, is_float: bool) -> int:
        f, cfg = self.f, f"{stage}_CFG"
        if not f(cfg, f"{stage}_RELU_BYPASS"):
            if not is_float:
                value = max(value, 0)
            elif value >> 31 and not sf.F32.is_nan(value):
                value = 0
        if f(cfg, f"{stage}_RELUX_EN"):
            limit = f(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT")
            if is_float:
                value = limit if sf.greater(value, limit) else value
            else:
                value = min(value, signed(limit, 32))
        return value

    def _bs(self, value: int, op: Operands) -> int:
        if not self.f("BS_CFG", "BS_BYPASS"):
            value = self._alu("BS", value, op.bs_alu)
            if not self.f("BS_CFG", "BS_MUL_BYPASS"):
                value = self._mul("BS", value, op.bs_mul)
            value = value if self.float else sat(value, 32)
            return self._limits("BS", value, self.float)
        return value if self.float else sat(value, 32)

    def _bn(self, value: int, op: Operands) -> int:
        if self.f("BN_CFG", "BN_BYPASS"):
            return value
        passed = self.f("BN_CFG", "BN_MUL_BYPASS") or (self.f("BN_CFG", "BN_MUL_PRELU") and value >= 0)
        if self.float:
            if not self.f("BN_CFG", "BN_MUL_BYPASS"):
                value = self._mul("BN", value, op.bn_mul)
            return self._limits("BN", self._alu("BN", value, op.bn_alu), True)
        if not passed:
            register = not self.f("BN_MUL_CFG", "BN_MUL_SRC")
            value *= signed(self.f("BN_MUL_CFG", "BN_MUL_OPERAND") if register else op.bn_mul, 16)
        value = self._alu("BN", value, op.bn_alu)
        if not passed:
            shift = self.f("BN_MUL_CFG", "BN_MUL_SHIFT_VALUE")
            value = rne(value, self.f("DATA_FORMAT", "BN_MUL_SHIFT_VALUE_NEG") if value < 0 else shift)
        return self._limits("BN", sat(value, 32), False)

    def _widened(self, bits: int) -> int:
        """Return the binary32 of a 16-bit factor or operand."""
        bf16 = self.f("DATA_FORMAT", "PROC_PRECISION") == 3
        return sf.widen(sf.BF16 if bf16 else sf.F16, bits & 0xFFFF)

    def _ew(self, value: int, pixel: int, op: Operands) -> tuple[int, bool]:
        f, is_float = self.f, self.float
        if f("EW_CFG", "EW_BYPASS"):
            return value, is_float
        if self.lut:
            value = self._look_up(sf.to_integer(value, 32) if is_float else value)
            is_float = False
        if not f("EW_CFG", "EW_OP_BYPASS"):
            value = self._operation(value, pixel, op, is_float)
        return self._limits("EW", value, is_float), is_float

    def _operation(self, value: int, pixel: int, op: Operands, is_float: bool) -> int:
        f = self.f
        e = op.element
        converts = f("EW_CFG", "EW_OP_SRC") and not f("EW_CFG", "EW_OP_CVT_BYPASS")
        if not f("EW_CFG", "EW_OP_SRC"):
            number = pixel % 16 % 8
            e = f(f"EW_OP_VALUE_{number}", f"EW_OPERAND_{number}")
        elif converts and not is_float:
            e = self._convert(signed(e, 32))
        if f("EW_CFG", "EW_OP_TYPE"):
            return self._element_mul(value, e, is_float)
        name, binary = f("EW_CFG", "EW_ALU_ALGO"), f("EW_CFG", "EW_BINARY_EN")
        if is_float and converts and f("EW_CFG", "EDATA_SIZE") == 2 and name != 3:
            e = self._widened(e)
        if binary and name in (0, 1):
            pair = (value, e) if is_float else (value, signed(e, 32))
            first, second = pair if name == 0 else pair[::-1]
            return int(sf.greater(first, second) if is_float else first > second)
        return self._float_alu(name, value, e) if is_float else self._integer_alu(name, value, signed(e, 32))

    def _convert(self, e: int) -> int:
        f = self.f
        scale = signed(f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE"), 16)
        offset = signed(f("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET"), 32)
        shift = f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        t = (e + offset) * scale if f("EW_CFG", "EW_CVT_TYPE") else e * scale + offset
        return sat(away(t, shift) if f("EW_CFG", "EW_CVT_ROUND") else rne(t, shift), 32)

    def _element_mul(self, value: int, e: int, is_float: bool) -> int:
        f = self.f
        prelu = f("EW_CFG", "EW_MUL_PRELU")
        if is_float:
            if prelu and not value >> 31:
                return value
            p = signed(sf.multiply(value, self._widened(e)), 32)
            part = ("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") if p >= 0 else ("DATA_FORMAT", "EW_TRUNCATE_NEG")
            return rne(p, f(*part) & 63) & 0xFFFFFFFF
        if prelu and value >= 0:
            return value
        p = value * signed(e, 16)
        if p >= 0:
            return sat(rne(p, f("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") & 63), 32)
        return sat(rne(p, f("DATA_FORMAT", "EW_TRUNCATE_NEG") & 63), 32)

    @staticmethod
    def _integer_alu(name: int, v: int, e: int) -> int:
        keeps = v == -(1 << 31)
        return {
            0: max(v, e),
            1: min(v, e),
            2: sat(v + e, 32),
            4: sat(v + signed(-e, 32), 32),
            5: v if keeps else abs(v),
            6: v if keeps else -v,
        }[name]

    @staticmethod
    def _float_alu(name: int, v: int, e: int) -> int:
        if name == 0:
            return v if sf.greater(v, e) else e
        if name == 1:
            return v if sf.greater(e, v) else e
        if name == 2:
            return 0 if v == e == 1 << 31 else sf.add(v, e)
        if name == 3:
            return sf.divide(v, e)
        if name == 4:
            return sf.subtract(v, e)
        if name == 5:
            return v & 0x7FFFFFFF
        return sf.negate(v) if name == 6 else sf.whole(v, name == 8)

    # -- LUT ------------------------------------------------------------------------------------

    def _look_up(self, x: int) -> int:
        found = [self._table(i, name, x) for i, name in enumerate(("LE", "LO"))]
        kinds = [kind for kind, _ in found]
        if kinds == ["under", "under"]:
            pick = self.f("LUT_CFG", "LUT_UFLOW_PRIORITY")
        elif kinds == ["over", "over"]:
            pick = self.f("LUT_CFG", "LUT_OFLOW_PRIORITY")
        elif kinds.count("hit") == 1:
            pick = kinds.index("hit")
        else:
            pick = self.f("LUT_CFG", "LUT_HYBRID_PRIORITY")
        return found[pick][1]

    def _table(self, number: int, name: str, x: int) -> tuple[str, int]:
        f, t = self.f, self.tables[number]
        start, end = (signed(f(f"LUT_{name}_{side}", f"LUT_{name}_{side}"), 32) for side in ("START", "END"))
        s = f("LUT_INFO", f"LUT_{name}_INDEX_SELECT")
        slope, by = f"LUT_{name}_SLOPE_SCALE", f"LUT_{name}_SLOPE_SHIFT"
        if x < start:
            y = t[0] + ((x - start) * signed(f(slope, "UFLOW_SCALE"), 16) >> f(by, "UFLOW_SHIFT"))
            return "under", sat(y, 32)
        if x > end:
            y = t[512] + ((x - end) * signed(f(slope, "OFLOW_SCALE"), 16) >> f(by, "OFLOW_SHIFT"))
            return "over", sat(y, 32)
        if x - start > 512 << s:
            return "over", t[512]
        i, part = divmod(x - start, 1 << s)
        return "hit", t[i] if part == 0 else t[i] + ((t[i + 1] - t[i]) * part >> s)

    # -- output ---------------------------------------------------------------------------------

    def _out(self, value: int, is_float: bool) -> int:
        f, out = self.f, self.f("DATA_FORMAT", "OUT_PRECISION")
        bits = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}[out]
        if not is_float:
            scale = signed(f("OUT_CVT_SCALE", "OUT_CVT_SCALE"), 16)
            offset = signed(f("OUT_CVT_OFFSET", "OUT_CVT_OFFSET"), 32)
            shift = f("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") & 63
            rounded = away if f("OUT_CVT_SHIFT", "CVT_ROUND") else rne
            if f("OUT_CVT_SHIFT", "CVT_TYPE"):
                q = rounded((value + offset) * scale, shift)
            else:
                q = rounded(value * scale + (offset << shift), shift)
            if out not in FLOATS:
                return sat(q, bits) % (1 << bits)
            value = sf.F32.round(Fraction(sat(q, 32)))
        elif out not in FLOATS:
            return sf.to_integer(value, bits) % (1 << bits)
        if out == 2 and is_float and not f("OUT_CVT_SCALE", "FP32TOFP16_EN"):
            value &= 0xFFFF
        elif out == 2:
            nan = 0x7C01 | value >> 16 & 0x8000
            value = nan if sf.F32.is_nan(value) else sf.narrow(sf.F16, value)
        elif out == 3:
            value = sf.narrow(sf.BF16, value)
        if self.float:
            minus = f("OUT_CVT_SHIFT", "MINUS_EXP")
            width, bits = {2: (5, 10), 3: (8, 7), 5: (8, 23)}[out]
            field = value >> bits & ((1 << width) - 1)
            value += ((field - minus) % (1 << width) - field) << bits
        return value
