"""DPU_RDMA in Python integers, from [HW 3], [HW 7.2], 5 (see dpu_model)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.twins.float_model import (
    float_of_bf16,
    float_of_half,
)

Registers = dict[str, dict[str, int]]
INT8, INT16, FP16, BF16, INT32, FP32, INT4 = 0, 1, 2, 3, 4, 5, 6
HALF_BITS = 8
"""fp16 that is not widened."""
BITS = {INT4: 4, INT8: 8, INT16: 16, FP16: 16, BF16: 16, INT32: 32, FP32: 32, HALF_BITS: 16}
BYTES = {INT8: 1, INT16: 2, INT32: 4, FP16: 2, BF16: 2, FP32: 4}
FLOATS = (FP16, BF16, FP32)
WORD = 1 << 32


def saturate(value: int, bits: int = 32) -> int:
    """`value` limited to `bits` signed bits."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def signed(value: int, bits: int = 32) -> int:
    """Return the low `bits` bits of `value` as a two's complement number."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def shift_round(value: int, shift: int, away: bool = False) -> int:
    """`value / 2^shift`, ties to even or away from zero."""
    quotient, rest = divmod(value, 1 << shift)
    twice = 2 * rest - (1 << shift)
    if shift and (twice > 0 or (twice == 0 and (value > 0 if away else quotient % 2))):
        quotient += 1
    return quotient


@dataclass
class Fields:
    """Reader of the fields of a task; unset fields are 0."""

    registers: Registers

    def __call__(self, register: str, name: str) -> int:
        return self.registers.get(register, {}).get(name, 0)


@dataclass
class Operands:
    """BRDMA or NRDMA values by channel; kinds that are not fetched are 0."""

    alu: dict[int, int] = field(default_factory=dict)
    cpend: dict[int, int] = field(default_factory=dict)
    mul: dict[int, int] = field(default_factory=dict)


def group_channels(conv_mode: int, precision: int) -> int:
    """Channels of a group in the order in which the octets are sent (4.1, 5.1)."""
    if conv_mode == 3 or precision == INT4:
        return 64
    return 32 if precision == INT8 else 16


def input_channels(f: Fields) -> int:
    """Channels of an input atom of a flying task of the DPU, of two with COMB_USE (4.10)."""
    return 128 // BITS[f("DATA_FORMAT", "IN_PRECISION")] * (1 + f("FEATURE_MODE_CFG", "COMB_USE"))


def atom_channels(f: Fields) -> int:
    """Channels of an output atom (4.10)."""
    full = 128 // BITS[f("DATA_FORMAT", "OUT_PRECISION")]
    return min(full, input_channels(f)) if f("FEATURE_MODE_CFG", "FLYING_MODE") else full


def written_surfaces(conv_mode: int, precision: int, out: int) -> int:
    """Surfaces of a group in the order in which they are written (4.10)."""
    channels = group_channels(conv_mode, precision)
    if conv_mode == 3 and BITS[precision] == 16:
        channels = 32
    return max(1, channels * BITS[out] // 128)


def get_element(memory: bytes, at: int, bits: int) -> int:
    """Return the unsigned element of `bits` bits at bit address `at`."""
    first, last = at // 8, (at + bits - 1) // 8
    return int.from_bytes(memory[first : last + 1], "little") >> at % 8 & ((1 << bits) - 1)


def put_element(memory: bytearray, at: int, bits: int, value: int) -> None:
    """Store the low `bits` bits of `value` at bit address `at`."""
    value %= 1 << bits
    if bits == 4:
        keep = memory[at // 8] & (0x0F if at % 8 else 0xF0)
        memory[at // 8] = keep | value << at % 8
    else:
        memory[at // 8 : (at + bits) // 8] = value.to_bytes(bits // 8, "little")


def read_operands(
    memory: bytes, base: int, use: int, channels: int, per_block: int = 8, drops_rest: bool = False
) -> Operands:
    """Return the operand tables of 5.3; of each block of eight `per_block` channels count.

    With `drops_rest` the multipliers of a last block of fewer channels are 0.
    """
    result, at = Operands(), base
    for block in range(-(-channels // per_block)):
        for bit, size, into in ((0, 4, result.alu), (1, 2, result.cpend), (2, 2, result.mul)):
            if use >> bit & 1:
                for lane in range(8):
                    value = int.from_bytes(memory[at : at + size], "little", signed=True)
                    at += size
                    if lane < per_block:
                        into[per_block * block + lane] = value
    if drops_rest and use & 7 == 4 and channels > 8 and channels % 8:
        for lane in range(8):
            result.mul[channels // 8 * 8 + lane] = 0
    return result


def element_word(raw: int, kind: int) -> int:
    """Return an element of memory as the word between the stages: sign-extended or widened."""
    if kind == HALF_BITS:
        return raw
    if kind == FP16:
        return float_of_half(raw)
    if kind == BF16:
        return float_of_bf16(raw)
    return signed(raw, BITS[kind]) % WORD


def read_cube(
    memory: bytes,
    base: int,
    kind: int,
    shape: tuple[int, int, int],
    line: int,
    surface: int,
    per_channel: bool,
) -> Callable[[int, int, int], int]:
    """Return a reader of elements (channel, y, x) of a cube whose pitches are in atoms (5.2, 5.4)."""

    def element(c: int, y: int, x: int) -> int:
        if c >= shape[0]:
            return 0
        per_atom = 128 // BITS[kind]
        atom = (c // per_atom) * surface + (0 if per_channel else y * line + x)
        at = 128 * atom + 8 * base + BITS[kind] * (c % per_atom)
        return element_word(get_element(memory, at, BITS[kind]), kind)

    return element


@dataclass
class RdmaData:
    """The data that the four readers of DPU_RDMA send, as words; None for a reader that is off."""

    main: Callable[[int, int, int], int] | None = None
    ew: Callable[[int, int, int], int] | None = None
    bs: Operands | None = None
    bn: Operands | None = None


def operand_kind(size: int) -> int:
    """Return the type of ERDMA's elements by ERDMA_DATA_SIZE (5.4)."""
    return {0: INT4, 1: INT8, 2: INT16, 3: INT32}[size]


def run_rdma(registers: Registers, memory: bytes, dpu_comb_use: int = 0) -> RdmaData:
    """Return the data of one DPU_RDMA task; `dpu_comb_use` is COMB_USE of the DPU (5.5)."""
    f, result = Fields(registers), RdmaData()
    width, height = f("DATA_CUBE_WIDTH", "WIDTH") + 1, f("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = f("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    shape = (channels, height, width)
    flying = f("FEATURE_MODE_CFG", "FLYING_MODE")
    operand = operand_kind(f("ERDMA_CFG", "ERDMA_DATA_SIZE"))
    line = width + f("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    surface = line * (height - 1) + width + f("SURF_NOTCH", "SURF_NOTCH_ADDR")
    base = f("SRC_BASE_ADDR", "SRC_BASE_ADDR")
    ew_line = width + f("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
    ew_base = f("EW_BASE_ADDR", "EW_BASE_ADDR")
    wide = BITS[f("FEATURE_MODE_CFG", "IN_PRECISION")]
    per_block = 4 if flying and wide == 32 and not dpu_comb_use else 8
    forms = per_block, bool(flying and wide == 16)
    use = f("BRDMA_CFG", "BRDMA_DATA_USE") & 7
    if use and not f("BRDMA_CFG", "BRDMA_DISABLE"):
        result.bs = read_operands(memory, f("BS_BASE_ADDR", "BS_BASE_ADDR"), use, channels, *forms)
    use = f("NRDMA_CFG", "NRDMA_DATA_USE") & 7
    if use and not f("NRDMA_CFG", "NRDMA_DISABLE"):
        result.bn = read_operands(memory, f("BN_BASE_ADDR", "BN_BASE_ADDR"), use, channels, *forms)
    kind = f("FEATURE_MODE_CFG", "IN_PRECISION")
    if kind == FP16 and not f("FEATURE_MODE_CFG", "MRDMA_FP16TOFP32_EN"):
        kind = HALF_BITS
    ew_surface = ew_line * (height - 1) + width + f("EW_SURF_NOTCH", "EW_SURF_NOTCH")
    residual = f("FEATURE_MODE_CFG", "COMB_USE") == 5 and not flying
    alternate = f("FEATURE_MODE_CFG", "COMB_USE") == 3 and flying and dpu_comb_use
    if residual or alternate:
        read = operand if residual else kind
        per_atom = 128 // BITS[read]

        def both(c: int, y: int, x: int) -> int:
            if c >= channels:
                return 0
            which, place = c // per_atom % 2, c // per_atom // 2 * per_atom + c % per_atom
            if which:
                return read_cube(memory, ew_base, read, shape, ew_line, ew_surface, False)(place, y, x)
            return read_cube(memory, base, read, shape, line, surface, False)(place, y, x)

        if residual:
            result.ew = both
        else:
            result.main = both
        return result
    if not f("FEATURE_MODE_CFG", "MRDMA_DISABLE"):
        result.main = read_cube(memory, base, kind, shape, line, surface, False)
    if not f("ERDMA_CFG", "ERDMA_DISABLE"):
        per_channel = f("ERDMA_CFG", "ERDMA_DATA_MODE") == 0
        if per_channel:
            ew_surface = f("EW_SURF_STRIDE", "EW_SURF_STRIDE")
        result.ew = read_cube(memory, ew_base, operand, shape, ew_line, ew_surface, per_channel)
    return result
