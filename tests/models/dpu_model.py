"""DPU and DPU_RDMA in Python integers, element by element, from docs/hardware.md sections 4 and 5.

Slow and plain on purpose: nothing here is shared with the RTL or the golden model.  A task is two
dictionaries of registers, `{"BS_CFG": {"BS_BYPASS": 1}}`; a field that is not there is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Registers = dict[str, dict[str, int]]
INT8, INT16, INT32 = 0, 1, 4
BYTES = {INT8: 1, INT16: 2, INT32: 4}


def saturate(value: int, bits: int = 32) -> int:
    """`value` limited to `bits` signed bits."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def shift_round(value: int, shift: int, away: bool = False) -> int:
    """`value / 2^shift`, ties to even or away from zero."""
    quotient, rest = divmod(value, 1 << shift)
    twice = 2 * rest - (1 << shift)
    if shift and (twice > 0 or (twice == 0 and (value > 0 if away else quotient % 2))):
        quotient += 1
    return quotient


@dataclass
class Fields:
    """Reads fields of a task, 0 where unset."""

    registers: Registers

    def __call__(self, register: str, name: str) -> int:
        return self.registers.get(register, {}).get(name, 0)


@dataclass
class Operands:
    """BRDMA or NRDMA values by channel; 0 for the kinds not fetched."""

    alu: dict[int, int] = field(default_factory=dict)
    cpend: dict[int, int] = field(default_factory=dict)
    mul: dict[int, int] = field(default_factory=dict)


def group_channels(conv_mode: int, flying: int, precision: int) -> int:
    """Channels of a group (4.1, 5.1)."""
    if conv_mode == 3:
        return 64
    return 16 if flying and precision != INT8 else 32


def read_operands(memory: bytes, base: int, use: int, channels: int) -> Operands:
    """Operand tables of 5.3."""
    result, at = Operands(), base

    def element(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(memory[at - size : at], "little", signed=True)

    for block in range(-(-channels // 8)):
        for bit, size, into in ((0, 4, result.alu), (1, 2, result.cpend), (2, 2, result.mul)):
            if use >> bit & 1:
                for lane in range(8):
                    into[8 * block + lane] = element(size)
    return result


def read_cube(
    memory: bytes,
    base: int,
    size: int,
    shape: tuple[int, int, int],
    line: int,
    surface: int,
    per_channel: bool,
) -> Callable[[int, int, int], int]:
    """Element reader (channel, y, x) of a cube whose pitches are in atoms (5.2, 5.4)."""

    def element(c: int, y: int, x: int) -> int:
        if c >= shape[0]:
            return 0
        per_atom = 16 // size
        atom = (c // per_atom) * surface + (0 if per_channel else y * line + x)
        at = base + 16 * atom + size * (c % per_atom)
        return int.from_bytes(memory[at : at + size], "little", signed=True)

    return element


@dataclass
class RdmaData:
    """What the four readers of DPU_RDMA deliver; None for a reader that is off."""

    main: Callable[[int, int, int], int] | None = None
    ew: Callable[[int, int, int], int] | None = None
    bs: Operands | None = None
    bn: Operands | None = None


def run_rdma(registers: Registers, memory: bytes) -> RdmaData:
    """The data of one DPU_RDMA task."""
    f, result = Fields(registers), RdmaData()
    width, height = f("DATA_CUBE_WIDTH", "WIDTH") + 1, f("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = f("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    shape = (channels, height, width)
    if not f("FEATURE_MODE_CFG", "MRDMA_DISABLE"):
        line = width + f("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
        surface = line * height + f("SURF_NOTCH", "SURF_NOTCH_ADDR")
        size = BYTES[f("FEATURE_MODE_CFG", "IN_PRECISION")]
        result.main = read_cube(
            memory, f("SRC_BASE_ADDR", "SRC_BASE_ADDR"), size, shape, line, surface, False
        )
    use = f("BRDMA_CFG", "BRDMA_DATA_USE") & 7
    if use and not f("BRDMA_CFG", "BRDMA_DISABLE"):
        result.bs = read_operands(memory, f("BS_BASE_ADDR", "BS_BASE_ADDR"), use, channels)
    use = f("NRDMA_CFG", "NRDMA_DATA_USE") & 7
    if use and not f("NRDMA_CFG", "NRDMA_DISABLE"):
        result.bn = read_operands(memory, f("BN_BASE_ADDR", "BN_BASE_ADDR"), use, channels)
    if not f("ERDMA_CFG", "ERDMA_DISABLE"):
        size = {1: 1, 2: 2, 3: 4}[f("ERDMA_CFG", "ERDMA_DATA_SIZE")]
        per_channel = f("ERDMA_CFG", "ERDMA_DATA_MODE") == 0
        surface = f("EW_SURF_STRIDE", "EW_SURF_STRIDE")
        if not per_channel:
            surface += f("EW_SURF_NOTCH", "EW_SURF_NOTCH")
        line = width + f("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
        base = f("EW_BASE_ADDR", "EW_BASE_ADDR")
        result.ew = read_cube(memory, base, size, shape, line, surface, per_channel)
    return result


def element_value(f: Fields, acc: int, window: int, c: int, data: RdmaData, e: int) -> int:
    """One element through CPEND, BS, BN, EW and OUT_CVT (4.3 to 4.8)."""
    bs, bn = data.bs or Operands(), data.bn or Operands()
    flying = f("FEATURE_MODE_CFG", "FLYING_MODE")
    if not flying and not f("BS_OW_CFG", "OD_BYPASS"):
        weight = bs.cpend.get(c, 0) if f("BS_OW_CFG", "OW_SRC") else f("BS_OW_OP", "OW_OP")
        acc += window * weight
    # BS
    if f("BS_CFG", "BS_BYPASS"):
        v = saturate(acc)
    else:
        a = acc
        if not f("BS_CFG", "BS_ALU_BYPASS"):
            operand = bs.alu.get(c, 0) if f("BS_CFG", "BS_ALU_SRC") else f("BS_ALU_CFG", "BS_ALU_OPERAND")
            a += {2: operand, 4: -operand}.get(f("BS_CFG", "BS_ALU_ALGO"), 0)
        if f("BS_CFG", "BS_MUL_BYPASS") or (f("BS_CFG", "BS_MUL_PRELU") and a >= 0):
            v = saturate(a)
        else:
            factor = bs.mul.get(c, 0) if f("BS_MUL_CFG", "BS_MUL_SRC") else f("BS_MUL_CFG", "BS_MUL_OPERAND")
            p = a * factor
            shift = f("BS_MUL_CFG", "BS_MUL_SHIFT_VALUE")
            if p < 0:
                shift = f("DATA_FORMAT", "BS_MUL_SHIFT_VALUE_NEG")
            v = saturate(shift_round(p, shift))
        v = _relu(f, "BS", v)
    # BN
    if not f("BN_CFG", "BN_BYPASS"):
        if not (f("BN_CFG", "BN_MUL_BYPASS") or (f("BN_CFG", "BN_MUL_PRELU") and v >= 0)):
            factor = bn.mul.get(c, 0) if f("BN_MUL_CFG", "BN_MUL_SRC") else f("BN_MUL_CFG", "BN_MUL_OPERAND")
            p = v * factor
            shift = f("BN_MUL_CFG", "BN_MUL_SHIFT_VALUE")
            if p < 0:
                shift = f("DATA_FORMAT", "BN_MUL_SHIFT_VALUE_NEG")
            v = saturate(shift_round(p, shift))
        if not f("BN_CFG", "BN_ALU_BYPASS"):
            operand = bn.alu.get(c, 0) if f("BN_CFG", "BN_ALU_SRC") else f("BN_ALU_CFG", "BN_ALU_OPERAND")
            v = saturate(v + {2: operand, 4: -operand}.get(f("BN_CFG", "BN_ALU_ALGO"), 0))
        v = _relu(f, "BN", v)
    if not f("EW_CFG", "EW_BYPASS"):
        v = _relu(f, "EW", _elementwise(f, v, c, e))
    # OUT_CVT
    scale, offset = f("OUT_CVT_SCALE", "OUT_CVT_SCALE"), f("OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
    shift = f("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
    away = bool(f("OUT_CVT_SHIFT", "CVT_ROUND"))
    if f("OUT_CVT_SHIFT", "CVT_TYPE"):
        q = shift_round((v + offset) * scale, shift, away)
    else:
        q = shift_round(v * scale, shift, away) + offset
    return saturate(q, 8 * BYTES[f("DATA_FORMAT", "OUT_PRECISION")])


def _relu(f: Fields, stage: str, v: int) -> int:
    if not f(f"{stage}_CFG", f"{stage}_RELU_BYPASS"):
        v = max(v, 0)
        if f(f"{stage}_CFG", f"{stage}_RELUX_EN"):
            v = min(v, f(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT"))
    return v


def _elementwise(f: Fields, v: int, c: int, e: int) -> int:
    if f("EW_CFG", "EW_OP_BYPASS"):
        return v
    if not f("EW_CFG", "EW_OP_SRC"):
        e = f(f"EW_OP_VALUE_{c % 8}", f"EW_OPERAND_{c % 8}")
    elif not f("EW_CFG", "EW_OP_CVT_BYPASS"):
        offset = f("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        scale = f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE")
        t = (e + offset) * scale if f("EW_CFG", "EW_CVT_TYPE") else e * scale + offset
        shift = f("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        e = saturate(shift_round(t, shift, bool(f("EW_CFG", "EW_CVT_ROUND"))))
    if f("EW_CFG", "EW_OP_TYPE"):
        if f("EW_CFG", "EW_MUL_PRELU") and v >= 0:
            return v
        low = (e + 0x8000) % 0x10000 - 0x8000
        p = v * low
        shift = f("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") if p >= 0 else f("DATA_FORMAT", "EW_TRUNCATE_NEG")
        return saturate(shift_round(p, shift % 64))
    minimum = -(1 << 31)
    algo = f("EW_CFG", "EW_ALU_ALGO")
    if algo == 5:
        return v if v == minimum else abs(v)
    if algo == 6:
        return v if v == minimum else -v
    return saturate({0: max(v, e), 1: min(v, e), 2: v + e, 4: v - e}.get(algo, v))


def run_dpu(
    registers: Registers,
    memory: bytearray,
    data: RdmaData,
    acc: Callable[[int, int, int], tuple[int, int]] | None = None,
) -> None:
    """Run one DPU task and write its result into `memory` (4.9, 4.10).

    Parameters
    ----------
    registers : Registers
        of the DPU.
    memory : bytearray
        changed in place; everything is read from it before (`data`), as the block overlaps nothing.
    data : RdmaData
    acc : callable
        (channel, y, x) to (accumulator, window sum), unless the task is flying.
    """
    f = Fields(registers)
    width, height = f("DATA_CUBE_WIDTH", "WIDTH") + 1, f("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = f("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    original = f("DATA_CUBE_CHANNEL", "ORIG_CHANNEL")
    flying = f("FEATURE_MODE_CFG", "FLYING_MODE")
    if not f("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
        return
    size = BYTES[f("DATA_FORMAT", "OUT_PRECISION")]
    per_atom = 16 // size
    group = group_channels(f("FEATURE_MODE_CFG", "CONV_MODE"), flying, f("DATA_FORMAT", "IN_PRECISION"))
    series = f("BS_OW_CFG", "SIZE_E_1") + 1
    if f("BS_OW_CFG", "OD_BYPASS") and not flying:
        series = group // per_atom
    base = 16 * f("DST_BASE_ADDR", "DST_BASE_ADDR")
    jump, stride = f("SURFACE_ADD", "SURF_ADD"), f("DST_SURF_STRIDE", "DST_SURF_STRIDE")
    pitch = width + f("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    pend = f("OFFSET_PEND", "OFFSET_PEND")
    for surface in range(-(-channels // per_atom)):
        for y in range(height):
            for x in range(width):
                atom = (surface // series) * jump + (surface % series) * stride + y * pitch + x
                for lane in range(per_atom):
                    c = surface * per_atom + lane
                    if c >= channels or c > original:
                        value = pend
                    else:
                        main, window = (data.main(c, y, x), 0) if flying else acc(c, y, x)
                        e = data.ew(c, y, x) if data.ew else 0
                        value = element_value(f, main, window, c, data, e)
                    at = base + 16 * atom + size * lane
                    memory[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
