"""Random but legal register settings of DPU and DPU_RDMA, with a memory image that fits them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.twins.dpu_model import (
    NO_CLIP,
    NO_TABLES,
    Clip,
    Tables,
)
from tests.twins.float_model import half_bits, word_of
from tests.twins.rdma_model import (
    BF16,
    BITS,
    FLOATS,
    FP16,
    INT4,
    INT8,
    INT16,
    INT32,
    Registers,
    group_channels,
    written_surfaces,
)

GUARD = 0x200
INTEGERS = (INT4, INT8, INT16, INT32)
TYPES = (*INTEGERS, *FLOATS)
FLOAT_SPECIALS = (0, 1 << 31, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F812345)
HALF_SPECIALS = (0, 0x8000, 1, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7C01)


@dataclass
class Task:
    """One task of both blocks.

    `acc` has the accumulators and window sums of a task that is not flying, `clip` CORE's setting,
    `tables` the LUT.
    """

    dpu: Registers
    rdma: Registers
    acc: Callable[[int, int, int], tuple[int, int]]
    size: int
    tables: Tables = field(default=NO_TABLES)
    clip: Clip = NO_CLIP


class Layout:
    """Allocates memory regions with guard zones between them."""

    def __init__(self) -> None:
        self.end = GUARD

    def place(self, size: int, align: int = 16) -> int:
        """Return the byte address of a new region."""
        at = -(-self.end // align) * align
        self.end = at + size + GUARD
        return at


def operand(rng: random.Random, bits: int) -> int:
    """Return a signed value of at most `bits` bits: small, arbitrary or at a limit."""
    top = (1 << (bits - 1)) - 1
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([0, 1, -1, top, -top - 1])
    if kind == 1:
        return rng.randint(-128, 127)
    small = rng.randrange(2, bits)
    return rng.randint(-(1 << small - 1), (1 << small - 1) - 1)


def float_word(rng: random.Random) -> int:
    """Return the bits of a binary32: near one, a special value, or of any magnitude."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(FLOAT_SPECIALS)
    if kind == 1:
        return word_of(rng.choice([-1, 1]) * 2.0 ** rng.randint(-149, 127) * (1 + rng.random()))
    if kind == 2:
        return word_of(rng.randint(-9, 9) / 2)
    return word_of(rng.gauss(0, 8))


def half_word(rng: random.Random) -> int:
    """Return the bits of an fp16."""
    if rng.random() < 0.15:
        return rng.choice(HALF_SPECIALS)
    return half_bits(word_of(rng.gauss(0, 2)))


def signed_field(bits: int, width: int) -> int:
    """Return bits as the signed value of a field of `width` bits."""
    return bits - (1 << width) if bits >> width - 1 else bits


def _floats(rng: random.Random, registers: Registers) -> None:
    """Replace register operands by those of the float domain."""
    for name in ("BS", "BN"):
        registers[f"{name}_ALU_CFG"][f"{name}_ALU_OPERAND"] = signed_field(float_word(rng), 32)
        registers[f"{name}_MUL_CFG"][f"{name}_MUL_OPERAND"] = signed_field(half_word(rng), 16)
    for name in ("BS", "BN", "EW"):
        limit = rng.choice([word_of(6.0), float_word(rng)])
        registers[f"{name}_RELUX_CMP_VALUE"][f"{name}_RELUX_CMP_DAT"] = signed_field(limit, 32)
    for lane in range(8):
        multiplies = registers["EW_CFG"]["EW_OP_TYPE"]
        word = half_word(rng) | rng.getrandbits(16) << 16 if multiplies else float_word(rng)
        registers[f"EW_OP_VALUE_{lane}"] = {f"EW_OPERAND_{lane}": signed_field(word, 32)}
    registers["EW_CFG"]["EW_ALU_ALGO"] = rng.choice([*range(9), 3])
    if rng.random() < 0.6:  # most products are not shifted
        registers["EW_CVT_SCALE_VALUE"]["EW_TRUNCATE"] = registers["DATA_FORMAT"]["EW_TRUNCATE_NEG"] = 0
    registers["EW_CVT_OFFSET_VALUE"]["EW_OP_CVT_OFFSET"] = 0
    registers["EW_CVT_SCALE_VALUE"].update(EW_OP_CVT_SHIFT=0, EW_OP_CVT_SCALE=1)
    registers["OUT_CVT_OFFSET"]["OUT_CVT_OFFSET"] = 0
    registers["OUT_CVT_SCALE"]["OUT_CVT_SCALE"] = 1
    registers["OUT_CVT_SHIFT"].update(OUT_CVT_SHIFT=0)


def _lut(rng: random.Random, floats: bool) -> tuple[Registers, Tables]:
    """Draw LUT settings and contents; `floats` keeps the indices small, like those of widened values."""
    steps = [rng.choice([0, 1, 5, 9, rng.randint(0, 22)]) for _ in range(2)]
    if floats:
        steps = [min(step, 3) for step in steps]
    middle = rng.choice([0, 0, operand(rng, 12 if floats else 32)])
    span = [512 << step for step in steps]
    starts = [middle - span[0], middle] if rng.random() < 0.7 else [middle + rng.randint(-span[0], 0), middle]
    ends = [start + length + rng.choice([0, 0, -9, 40]) for start, length in zip(starts, span, strict=True)]
    low, high = -(1 << 31), (1 << 31) - 1
    registers: Registers = {
        "LUT_CFG": {
            "LUT_HYBRID_PRIORITY": rng.randrange(2),
            "LUT_OFLOW_PRIORITY": rng.randrange(2),
            "LUT_UFLOW_PRIORITY": rng.randrange(2),
            "LUT_LO_LE_MUX": 2,
        },
        "LUT_INFO": {"LUT_LE_INDEX_SELECT": steps[0], "LUT_LO_INDEX_SELECT": steps[1]},
    }
    for name, start, end in zip(("LE", "LO"), starts, ends, strict=True):
        registers[f"LUT_{name}_START"] = {f"LUT_{name}_START": max(low, min(high, start))}
        registers[f"LUT_{name}_END"] = {f"LUT_{name}_END": max(low, min(high, end))}
        registers[f"LUT_{name}_SLOPE_SCALE"] = {
            "OFLOW_SCALE": operand(rng, 16),
            "UFLOW_SCALE": operand(rng, 16),
        }
        shifts = {"OFLOW_SHIFT": rng.choice([0, 1, 14, 31]), "UFLOW_SHIFT": rng.choice([0, 1, 14, 31])}
        registers[f"LUT_{name}_SLOPE_SHIFT"] = shifts
    tables = ([operand(rng, 16) for _ in range(513)], [operand(rng, 16) for _ in range(513)])
    return registers, tables


def _stage(rng: random.Random, name: str, table: int) -> Registers:
    """Draw BS or BN settings; `table` selects what the operand reader fetches (0 nothing)."""
    cfg = {
        f"{name}_BYPASS": rng.random() < 0.15,
        f"{name}_ALU_BYPASS": rng.random() < 0.3,
        f"{name}_MUL_BYPASS": rng.random() < 0.4,
        f"{name}_MUL_PRELU": rng.random() < 0.2,
        f"{name}_RELU_BYPASS": rng.random() < 0.6,
        f"{name}_RELUX_EN": rng.random() < 0.5,
        f"{name}_ALU_ALGO": rng.choice([2, 2, 4]),
        f"{name}_ALU_SRC": table != 0 and rng.random() < 0.8,
    }
    return {
        f"{name}_CFG": {key: int(value) for key, value in cfg.items()},
        f"{name}_ALU_CFG": {f"{name}_ALU_OPERAND": operand(rng, 32)},
        f"{name}_MUL_CFG": {
            f"{name}_MUL_OPERAND": operand(rng, 16),
            f"{name}_MUL_SHIFT_VALUE": rng.choice([0, 1, 7, 14, 30, 63]),
            f"{name}_MUL_SRC": int(table != 0 and rng.random() < 0.7),
        },
        f"{name}_RELUX_CMP_VALUE": {f"{name}_RELUX_CMP_DAT": rng.choice([6, 255, 1 << 20, operand(rng, 32)])},
    }


def _ew(rng: random.Random, use_dma: bool, size: int) -> Registers:
    away = rng.random() < 0.5
    cfg = {
        "EW_BYPASS": not use_dma and rng.random() < 0.5,
        "EW_OP_BYPASS": not use_dma and rng.random() < 0.2,
        "EW_OP_SRC": use_dma,
        "EW_OP_CVT_BYPASS": rng.random() < 0.4,
        "EW_CVT_TYPE": rng.random() < 0.5,
        "EW_CVT_ROUND": away,
        "EW_LUT_BYPASS": True,
        "EW_OP_TYPE": rng.random() < 0.4,
        "EW_MUL_PRELU": rng.random() < 0.2,
        "EW_RELU_BYPASS": rng.random() < 0.7,
        "EW_RELUX_EN": rng.random() < 0.5,
        "EW_EQUAL_EN": rng.random() < 0.5,
        "EW_BINARY_EN": rng.random() < 0.3,
        "EW_ALU_ALGO": rng.choice([0, 1, 2, 2, 4, 5, 6]),
        "EW_DATA_MODE": 1,
        "EDATA_SIZE": size if rng.random() < 0.8 else rng.randrange(3),
    }
    result: Registers = {
        "EW_CFG": {key: int(value) for key, value in cfg.items()},
        "EW_CVT_OFFSET_VALUE": {"EW_OP_CVT_OFFSET": operand(rng, 32)},
        "EW_CVT_SCALE_VALUE": {
            "EW_TRUNCATE": rng.choice([0, 1, 8, 14, 63]),
            "EW_OP_CVT_SHIFT": rng.choice([0, 1, 8, 14, 63]),
            "EW_OP_CVT_SCALE": operand(rng, 16),
        },
        "EW_RELUX_CMP_VALUE": {"EW_RELUX_CMP_DAT": operand(rng, 32)},
    }
    for lane in range(8):
        result[f"EW_OP_VALUE_{lane}"] = {f"EW_OPERAND_{lane}": operand(rng, 32)}
    return result


def random_task(
    rng: random.Random,
    *,
    flying: bool | None = None,
    cube: tuple[int, int, int] | None = None,
    main_type: int | None = None,
    lut: bool | None = None,
) -> Task:
    """Draw a task of a small cube; `cube` is (channels, height, width)."""
    layout = Layout()
    flying = rng.random() < 0.5 if flying is None else flying
    depthwise = rng.random() < 0.3
    channels, height, width = cube or (
        rng.choice([rng.randint(1, 40), rng.randint(1, 80), 8 * rng.randint(1, 9)]),
        rng.randint(1, 6),
        rng.choice([1, rng.randint(1, 9), rng.randint(10, 20)]),
    )
    if cube is None and channels * height * width > 4000:
        height = 1
    original = channels - 1 if rng.random() < 0.7 else rng.randint(max(0, channels - 9), channels - 1)
    if main_type is None:
        main_type = rng.choice([INT8, *TYPES])
    floats = main_type in FLOATS
    given = 128 // BITS[main_type]  # channels of an input atom
    # Atoms partly filled with bytes never end where there are several of them.
    out_type = rng.choice([t for t in TYPES if not (flying and t == INT8 and given < 16)])
    per_atom = min(given, 128 // BITS[out_type]) if flying else 128 // BITS[out_type]
    use_lut = rng.random() < 0.3 if lut is None else lut
    conv_mode = 3 if depthwise else 0
    series = written_surfaces(conv_mode, main_type, out_type)
    if flying:
        series = max(1, given * BITS[out_type] // 128)
    od_bypass = int(rng.random() < 0.4 or (series > 8 and not flying))
    size_e = rng.randint(0, 7) if series > 8 else series - 1
    if not flying and not od_bypass and cube is None:  # whole groups
        step = series * (128 // BITS[out_type])
        channels = -(-channels // step) * step

    # Destination: surfaces apart, or side by side with the pixels apart.
    surfaces = -(-channels // per_atom)
    written_series = series
    groups = -(-surfaces // written_series)
    if width == 1 and rng.random() < 0.6:
        stride, notch = 1, surfaces - 1
        jump = written_series
        atoms = width * height * surfaces
    else:
        notch = rng.choice([0, 0, rng.randint(1, 5)])
        stride = (width + notch) * height + rng.choice([0, 0, rng.randint(1, 5)])
        jump = written_series * stride + rng.choice([0, 0, rng.randint(1, 5)])
        atoms = groups * jump
    mode = rng.choice([2, 2, 2, 1, 3, 0])
    if group_channels(conv_mode, main_type) < per_atom:
        mode = 2
    destination = layout.place(16 * (atoms + 2 * surfaces))

    b_use = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 7])
    n_use = rng.choice([0, 0, 1, 4, 5])
    use_ew = rng.random() < 0.5
    ew_size = rng.choice([2, 3] if floats else [0, 1, 2, 3])
    ew_bits = 4 << ew_size
    lut_registers, tables = _lut(rng, floats) if use_lut else ({}, NO_TABLES)
    dpu: Registers = {
        "FEATURE_MODE_CFG": {
            "BURST_LEN": 15,
            "CONV_MODE": conv_mode,
            "OUTPUT_MODE": mode,
            "FLYING_MODE": int(flying),
        },
        "DATA_FORMAT": {
            "OUT_PRECISION": out_type,
            "IN_PRECISION": main_type,
            "PROC_PRECISION": main_type,
            "EW_TRUNCATE_NEG": rng.choice([0, 1, 8, 14, 63]),
            "BN_MUL_SHIFT_VALUE_NEG": rng.choice([0, 1, 7, 14, 63]),
            "BS_MUL_SHIFT_VALUE_NEG": rng.choice([0, 1, 7, 14, 63]),
        },
        "OFFSET_PEND": {"OFFSET_PEND": operand(rng, 16)},
        "DST_BASE_ADDR": {"DST_BASE_ADDR": destination // 16},
        "DST_SURF_STRIDE": {"DST_SURF_STRIDE": stride},
        "SURFACE_ADD": {"SURF_ADD": jump},
        "DATA_CUBE_WIDTH": {"WIDTH": width - 1},
        "DATA_CUBE_HEIGHT": {"HEIGHT": height - 1},
        "DATA_CUBE_NOTCH_ADDR": {"NOTCH_ADDR_0": notch, "NOTCH_ADDR_1": notch},
        "DATA_CUBE_CHANNEL": {"CHANNEL": channels - 1, "ORIG_CHANNEL": original},
        "BS_OW_CFG": {
            "SIZE_E_0": size_e,
            "SIZE_E_1": size_e,
            "SIZE_E_2": size_e,
            "OD_BYPASS": od_bypass,
            "OW_SRC": int(b_use != 0 and rng.random() < 0.5),
        },
        "BS_OW_OP": {"OW_OP": operand(rng, 16)},
        "WDMA_SIZE_0": {"CHANNEL_WDMA": channels - 1, "TP_PRECISION": rng.randrange(2)},
        "WDMA_SIZE_1": {"HEIGHT_WDMA": height - 1, "WIDTH_WDMA": width - 1},
        "OUT_CVT_OFFSET": {"OUT_CVT_OFFSET": operand(rng, 32)},
        "OUT_CVT_SCALE": {
            "OUT_CVT_SCALE": operand(rng, 16),
            "FP32TOFP16_EN": int(rng.random() < (0.7 if out_type == FP16 else 0.2)),
        },
        "OUT_CVT_SHIFT": {
            "OUT_CVT_SHIFT": rng.choice([0, 1, 3, 14, 20, 33, 63]),
            "CVT_ROUND": rng.randrange(2),
            "CVT_TYPE": rng.randrange(2),
            "MINUS_EXP": rng.choice([0, 1, 15, 40, 150, 255]),
        },
        **lut_registers,
        **_stage(rng, "BS", b_use),
        **_stage(rng, "BN", n_use),
        **_ew(rng, use_ew, ew_size),
    }

    if use_lut:
        dpu["EW_CFG"].update(EW_BYPASS=0, EW_LUT_BYPASS=0)
    if floats and not use_lut:
        _floats(rng, dpu)
    elif floats:  # integers from the LUT on
        kept = {name: dict(fields) for name, fields in dpu.items()}
        _floats(rng, dpu)
        dpu |= {name: kept[name] for name in kept if name.startswith(("EW", "OUT"))}

    if use_ew:
        _converter(dpu, floats and not use_lut)
    _known_forms(dpu, floats and not use_lut)

    line_notch = rng.choice([0, rng.randint(1, 4)])
    surface_notch = rng.choice([0, rng.randint(1, 4)])
    ew_notch = rng.choice([0, rng.randint(1, 4)])
    per_channel = rng.random() < 0.3
    main_surfaces = -(-channels * BITS[main_type] // 128)
    source = layout.place(16 * main_surfaces * ((width + line_notch) * height + surface_notch))
    ew_surface = rng.randint(1, 3) if per_channel else (width + ew_notch) * height + rng.randint(0, 3)
    ew_base = layout.place(16 * (-(-channels * ew_bits // 128)) * (ew_surface + 5))
    blocks = -(-channels // (4 if flying and BITS[main_type] == 32 else 8))
    rdma: Registers = {
        "DATA_CUBE_WIDTH": {"WIDTH": width - 1},
        "DATA_CUBE_HEIGHT": {"HEIGHT": height - 1, "EW_LINE_NOTCH_ADDR": ew_notch},
        "DATA_CUBE_CHANNEL": {"CHANNEL": channels - 1},
        "SRC_BASE_ADDR": {"SRC_BASE_ADDR": source},
        "BRDMA_CFG": {"BRDMA_DATA_USE": b_use},
        "BS_BASE_ADDR": {"BS_BASE_ADDR": layout.place(64 * blocks)},
        "NRDMA_CFG": {"NRDMA_DATA_USE": n_use, "NRDMA_DISABLE": int(n_use == 0 and rng.random() < 0.5)},
        "BN_BASE_ADDR": {"BN_BASE_ADDR": layout.place(64 * blocks)},
        "ERDMA_CFG": {
            "ERDMA_DATA_MODE": int(not per_channel),
            "ERDMA_DATA_SIZE": ew_size,
            "ERDMA_DISABLE": int(not use_ew),
        },
        "EW_BASE_ADDR": {"EW_BASE_ADDR": ew_base},
        "EW_SURF_STRIDE": {"EW_SURF_STRIDE": ew_surface},
        "EW_SURF_NOTCH": {"EW_SURF_NOTCH": rng.randint(0, 5)},
        "FEATURE_MODE_CFG": {
            "IN_PRECISION": main_type,
            "PROC_PRECISION": rng.choice([main_type, FP16, BF16] if floats else [main_type]),
            "MRDMA_FP16TOFP32_EN": int(main_type == BF16 or (flying and rng.random() < 0.7)),
            "MRDMA_DISABLE": int(not flying),
            "CONV_MODE": conv_mode,
            "FLYING_MODE": int(flying),
        },
        "SRC_DMA_CFG": {"LINE_NOTCH_ADDR": line_notch},
        "SURF_NOTCH": {"SURF_NOTCH_ADDR": surface_notch},
    }
    salt = rng.getrandbits(32)

    def acc(c: int, y: int, x: int) -> tuple[int, int]:
        own = random.Random((c * 8192 + y) * 8192 + x ^ salt << 40)
        if floats:
            return float_word(own), 0
        return operand(own, rng_bits), operand(own, 32)

    rng_bits = rng.choice([12, 20, 32, 48])
    clip = NO_CLIP if floats else random_clip(rng)
    return Task(dpu, rdma, acc, layout.end + 4096, tables, clip)


def random_clip(rng: random.Random) -> Clip:
    """Draw CLIP_TRUNCATE and ROUND_TYPE."""
    return rng.choice([0, 0, 1, 2, 9, 31]), rng.randrange(2)


def _converter(dpu: Registers, floats: bool) -> None:
    """Set the bypass of EW's converter as required; other settings raise a diagnostic or hang (7.8)."""
    ew, form = dpu["EW_CFG"], dpu["DATA_FORMAT"]
    algo = None if ew["EW_OP_TYPE"] else ew["EW_ALU_ALGO"]
    if floats and algo is None and form["PROC_PRECISION"] != BF16:
        ew["EW_OP_CVT_BYPASS"] = 1
    elif floats and algo in (0, 1, 2, 4) and ew["EDATA_SIZE"] == 2:
        ew["EW_OP_CVT_BYPASS"] = 0
    elif (
        not floats and algo == 2 and ew["EDATA_SIZE"] == 3 and form["OUT_PRECISION"] != form["PROC_PRECISION"]
    ):
        ew["EW_OP_CVT_BYPASS"] = 1


def _known_forms(dpu: Registers, floats: bool) -> None:
    """Restrict EW_BINARY_EN to comparisons of integers, and let no division be narrowed (7.8, 7.10)."""
    ew = dpu["EW_CFG"]
    live = not ew["EW_BYPASS"] and not ew["EW_OP_BYPASS"]
    if floats or not live or ew["EW_OP_TYPE"] or ew["EW_ALU_ALGO"] > 1:
        ew["EW_BINARY_EN"] = 0
    if floats and live and not ew["EW_OP_TYPE"] and ew["EW_ALU_ALGO"] == 3:
        dpu["OUT_CVT_SCALE"]["FP32TOFP16_EN"] = 0


def fill_memory(task: Task, seed: int) -> bytearray:
    """Write random bytes everywhere, so that operand tables have arbitrary values."""
    return bytearray(random.Random(f"{seed} memory").randbytes(task.size))
