"""DPU (DPU_RDMA: rdma_model) in Python integers, element by element, from [HW 3], [HW 7], [HW 8].

It is slow and simple on purpose: nothing is shared with the RTL or the golden model.  A task is two
dictionaries of registers, `{"BS_CFG": {"BS_BYPASS": 1}}`; absent fields are 0.  The value of
an element between two stages is an unsigned word of 32 bits, an integer's or a binary32's.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.twins.float_model import (
    bf16_bits,
    comes_after,
    float_of_bf16,
    float_of_half,
    float_op,
    float_rounded,
    half_bits,
    half_quotient,
    is_nan,
    to_int,
)
from tests.twins.rdma_model import (
    BF16,
    BITS,
    FLOATS,
    FP16,
    WORD,
    Fields,
    Operands,
    RdmaData,
    Registers,
    atom_channels,
    group_channels,
    input_channels,
    put_element,
    saturate,
    shift_round,
    signed,
    written_surfaces,
)

Tables = tuple[list[int], list[int]]
NO_TABLES: Tables = ([0] * 513, [0] * 513)


Clip = tuple[int, int]
"""CLIP_TRUNCATE and ROUND_TYPE."""

NO_CLIP: Clip = (0, 0)


def clipped(value: int, shift: int, half_up: int) -> int:
    """Return a sum shifted and rounded (3.8)."""
    return (value + (1 << shift >> 1)) >> shift if half_up else shift_round(value, shift)


def look_up(f: Fields, tables: Tables, x: int) -> int:
    """The LUT (4.12): a signed 32-bit number to another."""
    results = []
    for table, name in zip(tables, ("LE", "LO"), strict=True):
        start, end = f(f"LUT_{name}_START", f"LUT_{name}_START"), f(f"LUT_{name}_END", f"LUT_{name}_END")
        start, end = signed(start), signed(end)
        scale = Fields({"S": f.registers.get(f"LUT_{name}_SLOPE_SCALE", {})})
        shift = Fields({"S": f.registers.get(f"LUT_{name}_SLOPE_SHIFT", {})})
        step = min(22, f("LUT_INFO", f"LUT_{name}_INDEX_SELECT"))
        if x < start:
            place = "under"
            rise = (x - start) * signed(scale("S", "UFLOW_SCALE"), 16)
            y = table[0] + (rise >> shift("S", "UFLOW_SHIFT"))
        elif x > end or x - start > 512 << step:
            place = "over"
            rise = (x - end) * signed(scale("S", "OFLOW_SCALE"), 16) if x > end else 0
            y = table[512] + (rise >> shift("S", "OFLOW_SHIFT"))
        else:
            place = "hit"
            index, rest = divmod(x - start, 1 << step)
            y = table[index]
            if rest:
                y += (table[index + 1] - table[index]) * rest >> step
        results.append((place, saturate(y)))
    (le, _), (lo, _) = results
    if le == lo == "under":
        chosen = f("LUT_CFG", "LUT_UFLOW_PRIORITY")
    elif le == lo == "over":
        chosen = f("LUT_CFG", "LUT_OFLOW_PRIORITY")
    elif (le == "hit") != (lo == "hit"):
        chosen = int(lo == "hit")
    else:
        chosen = f("LUT_CFG", "LUT_HYBRID_PRIORITY")
    return results[chosen][1]


def is_float_domain(f: Fields) -> bool:
    """Whether the DPU's stages work on floats (0.4)."""
    return f("DATA_FORMAT", "PROC_PRECISION") in FLOATS


def lut_live(f: Fields) -> bool:
    """Whether the LUT is active."""
    return not f("EW_CFG", "EW_BYPASS") and not f("EW_CFG", "EW_LUT_BYPASS")


def element_value(
    f: Fields,
    acc: int,
    window: int,
    c: int,
    data: RdmaData,
    e: int,
    tables: Tables = NO_TABLES,
    clip: Clip = NO_CLIP,
    slot: int = 0,
) -> int:
    """Return one element after CPEND, BS, BN, EW and OUT_CVT (4.3 to 4.8).

    `acc` is a signed sum, or as `e` a word, `window` a signed sum, `clip` CORE's setting, `slot` the place of
    the pixel in its stripe; returns the bits of the output type, or of the 32-bit integer for the transposed
    writer.
    """
    if not f("EW_CFG", "EW_OP_SRC"):
        e = f(f"EW_OP_VALUE_{slot % 8}", f"EW_OPERAND_{slot % 8}")
    if is_float_domain(f):
        return _float_value(f, acc % WORD, c, data, e % WORD, tables)
    bs, bn = data.bs or Operands(), data.bn or Operands()
    if f("FEATURE_MODE_CFG", "FLYING_MODE"):
        acc = signed(acc)
    else:
        if not f("BS_OW_CFG", "OD_BYPASS"):
            weight = bs.cpend.get(c, 0) if f("BS_OW_CFG", "OW_SRC") else f("BS_OW_OP", "OW_OP")
            acc += window * weight
        acc = saturate(clipped(acc, *clip))
    # BS
    if f("BS_CFG", "BS_BYPASS"):
        v = saturate(acc)
    else:
        a = acc
        if not f("BS_CFG", "BS_ALU_BYPASS"):
            operand = bs.alu.get(c, 0) if f("BS_CFG", "BS_ALU_SRC") else f("BS_ALU_CFG", "BS_ALU_OPERAND")
            a += {2: signed(operand), 4: -signed(operand)}.get(f("BS_CFG", "BS_ALU_ALGO"), 0)
        if f("BS_CFG", "BS_MUL_BYPASS") or (f("BS_CFG", "BS_MUL_PRELU") and a >= 0):
            v = saturate(a)
        else:
            factor = bs.mul.get(c, 0) if f("BS_MUL_CFG", "BS_MUL_SRC") else f("BS_MUL_CFG", "BS_MUL_OPERAND")
            p = a * signed(factor, 16)
            shift = f("BS_MUL_CFG", "BS_MUL_SHIFT_VALUE")
            if p < 0:
                shift = f("DATA_FORMAT", "BS_MUL_SHIFT_VALUE_NEG")
            v = saturate(shift_round(p, shift))
        v = _relu(f, "BS", v)
    # BN
    if not f("BN_CFG", "BN_BYPASS"):
        multiplied = not (f("BN_CFG", "BN_MUL_BYPASS") or (f("BN_CFG", "BN_MUL_PRELU") and v >= 0))
        if multiplied:
            factor = bn.mul.get(c, 0) if f("BN_MUL_CFG", "BN_MUL_SRC") else f("BN_MUL_CFG", "BN_MUL_OPERAND")
            v *= signed(factor, 16)
        if not f("BN_CFG", "BN_ALU_BYPASS"):
            operand = bn.alu.get(c, 0) if f("BN_CFG", "BN_ALU_SRC") else f("BN_ALU_CFG", "BN_ALU_OPERAND")
            v += {2: signed(operand), 4: -signed(operand)}.get(f("BN_CFG", "BN_ALU_ALGO"), 0)
        if multiplied:
            negative = f("DATA_FORMAT", "BN_MUL_SHIFT_VALUE_NEG")
            v = shift_round(v, negative if v < 0 else f("BN_MUL_CFG", "BN_MUL_SHIFT_VALUE"))
        v = saturate(v)
        v = _relu(f, "BN", v)
    if lut_live(f):
        v = look_up(f, tables, v)
    return _integer_output(f, ew_value(f, v, e))


def ew_value(f: Fields, v: int, e: int) -> int:
    """Return what the EW stage makes of a signed integer and the word of its operand (4.6, 4.7)."""
    if f("EW_CFG", "EW_BYPASS"):
        return v
    return _relu(f, "EW", _elementwise(f, v, signed(e)))


def _integer_output(f: Fields, v: int) -> int:
    """Return OUT_CVT of an integer."""
    scale, offset = f("OUT_CVT_SCALE", "OUT_CVT_SCALE"), f("OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
    shift = f("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
    away = bool(f("OUT_CVT_SHIFT", "CVT_ROUND"))
    if f("OUT_CVT_SHIFT", "CVT_TYPE"):
        q = shift_round((v + offset) * scale, shift, away)
    else:
        q = shift_round(v * scale + (offset << shift), shift, away)
    kind = f("DATA_FORMAT", "OUT_PRECISION")
    if kind not in FLOATS:
        return saturate(q, BITS[kind]) % (1 << BITS[kind])
    return _narrowed(f, float_rounded(saturate(q)), kind, whole=True)


def _narrowed(f: Fields, word: int, kind: int, *, whole: bool) -> int:
    """Return a float in the output format, with MINUS_EXP subtracted from its exponent field (4.8).

    `whole`: it comes from an integer, so that fp16 is made of it whatever FP32TOFP16_EN is.
    """
    if kind == FP16:
        if not (whole or f("OUT_CVT_SCALE", "FP32TOFP16_EN")):
            word %= 65536
        else:
            word = 0x7C01 | word >> 16 & 0x8000 if is_nan(word) else half_bits(word)
        mantissa, top = 10, 1 << 15
    elif kind == BF16:
        word, mantissa, top = bf16_bits(word), 7, 1 << 15
    else:
        mantissa, top = 23, 1 << 31
    minus = f("OUT_CVT_SHIFT", "MINUS_EXP") if is_float_domain(f) else 0
    field = top - (1 << mantissa)
    return word & ~field | (word - (minus << mantissa)) & field


def _float_of_16(f: Fields, bits: int) -> int:
    """Widen a 16-bit factor or operand by PROC_PRECISION."""
    bf16 = f("DATA_FORMAT", "PROC_PRECISION") == BF16
    return float_of_bf16(bits % 65536) if bf16 else float_of_half(bits % 65536)


def _float_value(f: Fields, v: int, c: int, data: RdmaData, e: int, tables: Tables) -> int:
    """Return `element_value` in the float domain."""
    bs, bn = data.bs or Operands(), data.bn or Operands()

    def alu(stage: str, operands: Operands, v: int) -> int:
        algo = f(f"{stage}_CFG", f"{stage}_ALU_ALGO")
        if f(f"{stage}_CFG", f"{stage}_ALU_BYPASS") or algo not in (2, 4):
            return v
        operand = f(f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND")
        if f(f"{stage}_CFG", f"{stage}_ALU_SRC"):
            operand = operands.alu.get(c, 0)
        return float_op("+" if algo == 2 else "-", v, operand % WORD)

    def mul(stage: str, operands: Operands, v: int) -> int:
        if f(f"{stage}_CFG", f"{stage}_MUL_BYPASS") or (
            f(f"{stage}_CFG", f"{stage}_MUL_PRELU") and not v >> 31
        ):
            return v
        factor = f(f"{stage}_MUL_CFG", f"{stage}_MUL_OPERAND")
        if f(f"{stage}_MUL_CFG", f"{stage}_MUL_SRC"):
            factor = operands.mul.get(c, 0)
        return float_op("*", v, _float_of_16(f, factor))

    if not f("BS_CFG", "BS_BYPASS"):
        v = _float_relu(f, "BS", mul("BS", bs, alu("BS", bs, v)))
    if not f("BN_CFG", "BN_BYPASS"):
        v = _float_relu(f, "BN", alu("BN", bn, mul("BN", bn, v)))
    if lut_live(f):
        number = look_up(f, tables, to_int(v))
        return _integer_output(f, _relu(f, "EW", _elementwise(f, number, signed(e))))
    if not f("EW_CFG", "EW_BYPASS"):
        v = _float_relu(f, "EW", _float_elementwise(f, v, e))
    kind = f("DATA_FORMAT", "OUT_PRECISION")
    if kind in FLOATS:
        return _narrowed(f, v, kind, whole=False)
    return saturate(to_int(v), BITS[kind]) % (1 << BITS[kind])


def _float_relu(f: Fields, stage: str, v: int) -> int:
    if not f(f"{stage}_CFG", f"{stage}_RELU_BYPASS") and v >> 31 and not is_nan(v):
        v = 0
    if f(f"{stage}_CFG", f"{stage}_RELUX_EN"):
        limit = f(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT") % WORD
        v = limit if comes_after(v, limit) else v
    return v


def _float_elementwise(f: Fields, v: int, e: int) -> int:
    if f("EW_CFG", "EW_OP_BYPASS"):
        return v
    if f("EW_CFG", "EW_OP_TYPE"):
        if f("EW_CFG", "EW_MUL_PRELU") and not v >> 31:
            return v
        product = float_op("*", v, _float_of_16(f, e))
        count = f("DATA_FORMAT", "EW_TRUNCATE_NEG")
        if not product >> 31:
            count = f("EW_CVT_SCALE_VALUE", "EW_TRUNCATE")
        return shift_round(signed(product), count % 64) % WORD
    algo = f("EW_CFG", "EW_ALU_ALGO")
    live = f("EW_CFG", "EW_OP_SRC") and not f("EW_CFG", "EW_OP_CVT_BYPASS")
    if live and f("EW_CFG", "EDATA_SIZE") == 2 and algo != 3:
        e = _float_of_16(f, e)
    if algo in (0, 1):
        first = comes_after(v, e) if algo == 0 else comes_after(e, v)
        return int(first) if f("EW_CFG", "EW_BINARY_EN") else v if first else e
    infinities = v % (1 << 31) == e % (1 << 31) == 0x7F800000
    match algo:
        case 2:
            return 0 if v == e == 1 << 31 else float_op("+", v, e)
        case 3:
            return half_quotient(v, e)
        case 4:
            if infinities:
                return 0x7F800000 if v == e else 0x7FC00000
            return float_op("-", v, e)
        case 5:
            return v % (1 << 31)
        case 6:
            return v ^ 1 << 31
        case 7:
            return float_op("floor", v, 0)
        case 8:
            return float_op("ceil", v, 0)
    return v


def _relu(f: Fields, stage: str, v: int) -> int:
    if not f(f"{stage}_CFG", f"{stage}_RELU_BYPASS"):
        v = max(v, 0)
    if f(f"{stage}_CFG", f"{stage}_RELUX_EN"):
        v = min(v, signed(f(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT")))
    return v


def _elementwise(f: Fields, v: int, e: int) -> int:
    if f("EW_CFG", "EW_OP_BYPASS"):
        return v
    if f("EW_CFG", "EW_OP_SRC") and not f("EW_CFG", "EW_OP_CVT_BYPASS"):
        offset = f("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        scale = f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE")
        t = (e + offset) * scale if f("EW_CFG", "EW_CVT_TYPE") else e * scale + offset
        shift = f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        e = saturate(shift_round(t, shift, bool(f("EW_CFG", "EW_CVT_ROUND"))))
    if f("EW_CFG", "EW_OP_TYPE"):
        if f("EW_CFG", "EW_MUL_PRELU") and v >= 0:
            return v
        p = v * signed(e, 16)
        shift = f("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") if p >= 0 else f("DATA_FORMAT", "EW_TRUNCATE_NEG")
        return saturate(shift_round(p, shift % 64))
    minimum = -(1 << 31)
    algo = f("EW_CFG", "EW_ALU_ALGO")
    if algo == 5:
        return v if v == minimum else abs(v)
    if algo == 6:
        return v if v == minimum else -v
    if f("EW_CFG", "EW_BINARY_EN") and algo in (0, 1):
        return int(v > e if algo == 0 else v < e)
    return saturate({0: max(v, e), 1: min(v, e), 2: v + e, 4: v + signed(-e)}.get(algo, v))


def output_element(
    f: Fields,
    data: RdmaData,
    acc: Callable[[int, int, int], tuple[int, int]] | None,
    tables: Tables,
    place: tuple[int, int, int],
    clip: Clip = NO_CLIP,
) -> int:
    """Return the value written for (channel, y, x); the padding value for channels past the original ones."""
    c, y, x = place
    last, original, per = f("DATA_CUBE_CHANNEL", "CHANNEL"), f("DATA_CUBE_CHANNEL", "ORIG_CHANNEL"), 1
    if f("FEATURE_MODE_CFG", "FLYING_MODE"):
        per = atom_channels(f)
    if original // per < last // per:  # only the last atom is padded inside
        original = original // per * per + per - 1
    if c > min(last, original):
        return f("OFFSET_PEND", "OFFSET_PEND") % WORD
    if f("FEATURE_MODE_CFG", "FLYING_MODE"):
        main, window = data.main(c, y, x), 0
    else:
        main, window = acc(c, y, x)
    element = data.ew(c, y, x) if data.ew else 0
    slot = (y * (f("DATA_CUBE_WIDTH", "WIDTH") + 1) + x) % 16
    return element_value(f, main, window, c, data, element, tables, clip, slot)


def run_dpu(
    registers: Registers,
    memory: bytearray,
    data: RdmaData,
    acc: Callable[[int, int, int], tuple[int, int]] | None = None,
    tables: Tables = NO_TABLES,
    clip: Clip = NO_CLIP,
) -> list[int]:
    """Run one DPU task and write its result into `memory` (4.9 to 4.11).

    Parameters
    ----------
    registers : Registers
        Registers of the DPU.
    memory : bytearray
        Changed in place; all data are read before (`data`), because the block overlaps nothing.
    data : RdmaData
    acc : callable
        (channel, y, x) to (accumulator, window sum), unless the task is flying.
    tables : pair of lists of 513 int
        LE and LO.
    clip : pair of int
        CLIP_TRUNCATE and ROUND_TYPE of CORE.

    Returns
    -------
    list of int
        The atoms that go to the PPU (OUTPUT_MODE bit 0), in order.
    """
    f = Fields(registers)
    width, height = f("DATA_CUBE_WIDTH", "WIDTH") + 1, f("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = f("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    flying, mode = f("FEATURE_MODE_CFG", "FLYING_MODE"), f("FEATURE_MODE_CFG", "OUTPUT_MODE")
    conv_mode, precision = f("FEATURE_MODE_CFG", "CONV_MODE"), f("DATA_FORMAT", "IN_PRECISION")
    out = f("DATA_FORMAT", "OUT_PRECISION")
    base = 16 * f("DST_BASE_ADDR", "DST_BASE_ADDR")
    bits = BITS[out]
    per_atom = atom_channels(f)
    series = kept = f("BS_OW_CFG", "SIZE_E_1") + 1
    if not flying and written_surfaces(conv_mode, precision, out) > 8:  # more than SIZE_E can name
        series = kept = written_surfaces(conv_mode, precision, out)
    if flying:
        series = max(1, input_channels(f) * bits // 128)
        kept = series if series > 8 else kept
    jump, stride = f("SURFACE_ADD", "SURF_ADD"), f("DST_SURF_STRIDE", "DST_SURF_STRIDE")
    pitch = width + f("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    surfaces = -(-channels // per_atom)
    atoms: dict[tuple[int, int], int] = {}
    for surface in range(surfaces):
        for pixel in range(height * width):
            y, x = divmod(pixel, width)
            atom = bytearray(16)
            for lane in range(per_atom):
                value = output_element(f, data, acc, tables, (surface * per_atom + lane, y, x), clip)
                put_element(atom, bits * lane, bits, value)
            at = base + 16 * ((surface // series) * jump + (surface % series) * stride + y * pitch + x)
            atoms[surface, pixel] = int.from_bytes(atom, "little")
            if mode & 2 and surface % series < kept:
                memory[at : at + 16] = atom
    if not mode & 1:
        return []
    group = max(1, group_channels(conv_mode, precision) // per_atom)
    return [
        atoms[surface, pixel]
        for first in range(0, surfaces, group)
        for stripe in range(0, height * width, 16)
        for surface in range(first, min(first + group, surfaces))
        for pixel in range(stripe, min(stripe + 16, height * width))
    ]
