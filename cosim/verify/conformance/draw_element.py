"""Draws of the element-wise stage: operands from registers, from memory, in two streams; the LUT."""

from __future__ import annotations

import numpy as np

from rkcosim.spec.types import ATOM, BF16, FP16, FP32, INT4, INT8, INT16, INT32, ElementType
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import UNMAPPED, Arena
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.dpu import STORAGE, Dpu, Operand

MAX, MIN, ADD, DIVIDE, MINUS = 0, 1, 2, 3, 4
"""Codes of EW_ALU_ALGO."""
INTEGER_ALU = (2, 0, 1, 2, 4, 5, 6)
FLOAT_ALU = (2, 0, 1, 2, 4, 5, 6, 3, 3, 7, 8)
HALVES = 2
"""Code of EDATA_SIZE for 16 bits."""
LUT_ENTRIES = 513


def draw_element(ch: Chooser, arena: Arena, d: Dpu, spread: float, wish: str) -> tuple[bool, float]:
    """Draw EW.

    Parameters
    ----------
    ch, arena : source of the choices; memory for operands.
    d : settings to extend.
    spread : typical magnitude of the input data.
    wish : see `DpuWish.element`.

    Returns
    -------
    Whether the LUT is active, and the magnitude of the results.
    """
    idle = ch.shared("dpu.moves_only", 0.12) or not ch.chance("ew.on", 0.25)
    if wish == "none" or (wish == "some" and idle):
        d.set("DPU", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_RELU_BYPASS=1, EW_OP_BYPASS=1)
        return False, spread
    lut = wish == "lut"
    if lut:
        spread = draw_lut(ch, d, spread)
    live = not lut or ch.chance("ew.after_lut", 0.4)
    allowed = wish not in ("register", "alternate")
    memory = live and (wish in ("memory", "combined") or (allowed and ch.chance("ew.memory", 0.4)))
    floating = d.float_domain and not lut
    multiply = ch.chance("ew.mul", 0.3)
    relu = ch.chance("ew.relu", 0.4)
    limited = ch.chance("ew.relux", 0.5 if relu else 0.1)
    algorithm = ch.pick("ew.algorithm", FLOAT_ALU if floating else INTEGER_ALU)
    convert = memory and ch.chance("ew.convert", 0.5 if not floating else 0.3)
    compares = not floating and not multiply and algorithm in (MAX, MIN)
    d.divides = live and floating and not multiply and algorithm == DIVIDE
    d.set(
        "DPU",
        EW_LUT_BYPASS=int(not lut),
        EW_OP_BYPASS=int(not live),
        EW_OP_SRC=int(memory),
        EW_OP_TYPE=int(multiply),
        EW_ALU_ALGO=algorithm,
        EW_OP_CVT_BYPASS=int(not convert),
        EW_CVT_TYPE=ch.integer("ew.cvt_type", 0, 1),
        EW_CVT_ROUND=ch.integer("ew.cvt_round", 0, 1),
        EW_BINARY_EN=int(live and compares and ch.chance("ew.binary", 0.3)),
        EW_MUL_PRELU=int(multiply and ch.chance("ew.prelu", 0.3)),
        EW_RELU_BYPASS=int(not relu),
        EW_RELUX_EN=int(limited),
    )
    if floating:
        limit = values.float_bits(ch, "ew.limit", FP32, spread) & 0x7FFFFFFF
    else:
        limit = int(min(spread * ch.real("ew.limit", 0.2, 1.0), 2.0**31 - 1))
        if ch.chance("ew.any_limit", 0.1):
            limit = ch.corner("ew.limit_word", -(1 << 31), (1 << 31) - 1)
    d.set("DPU", EW_RELUX_CMP_DAT=limit % (1 << 32))
    d.notes.append(f"EW {'lut ' if lut else ''}{('mul' if multiply else algorithm) if live else 'no op'}")
    if not live:
        return lut, spread
    size = 16
    if memory:
        size = _memory(ch, arena, d, wish == "combined", floating)
        if floating and multiply and d.proc != BF16.dpu_code:
            convert = False  # otherwise it never ends (7.8)
        elif floating and algorithm in (MAX, MIN, ADD, MINUS) and d.preset.get("DPU", "EDATA_SIZE") == HALVES:
            convert = True  # otherwise a diagnostic is raised (7.8)
        elif not floating and algorithm == ADD and not multiply and size == 32:
            convert = False
        d.set("DPU", EW_OP_CVT_BYPASS=int(not convert))
        if convert:
            _operand_converter(ch, d, spread, size, floating)
    else:
        _registers(ch, d, spread, multiply, floating)
    if multiply and floating and ch.chance("ew.float_shift", 0.2):
        for name in ("EW_TRUNCATE", "EW_TRUNCATE_NEG"):
            d.set("DPU", **{name: ch.corner(f"ew.{name}", 0, 1023, 0)})
    if multiply and not floating:
        shift = int(np.clip(ch.integer("ew.shift", -2, 8) + min(size, 16), 0, 63))
        d.set("DPU", EW_TRUNCATE=shift | ch.integer("ew.shift_upper", 0, 15) << 6)
        negative = min(63, shift + ch.integer("ew.shift_negative", 0, 2))
        d.set("DPU", EW_TRUNCATE_NEG=negative | ch.integer("ew.negative_upper", 0, 15) << 6)
    return lut, min(spread * 2, 2.0**31)


def _registers(ch: Chooser, d: Dpu, spread: float, multiply: bool, floating: bool) -> None:
    """Draw operands in EW_OP_VALUE_0..7, one per lane."""
    for lane in range(8):
        if floating:
            half = multiply or d.divides
            short = BF16 if multiply and d.proc == BF16.dpu_code else FP16
            value = values.float_bits(ch, "ew.value", short if half else FP32, 1.0 if half else spread)
            if half:
                value |= ch.integer("ew.value_upper", 0, 65535) << 16
        else:
            bound = 2**31 - 1 if ch.chance("ew.any_value", 0.1) else int(min(spread, 2.0**30)) + 2
            value = ch.corner("ew.value", -bound, bound, 1) % (1 << 32)
        d.set("DPU", **{f"EW_OPERAND_{lane}": value})
    d.notes.append("register operand")


def _memory(ch: Chooser, arena: Arena, d: Dpu, combined: bool, floating: bool) -> int:
    """Place an operand for ERDMA (or MRDMA and ERDMA, COMB_USE 5); return the bits of an element."""
    if d.float_domain:
        half = BF16 if d.proc == BF16.dpu_code and not d.divides else FP16
        kind: ElementType = ch.pick("erdma.type", (half, FP32))
    else:
        kind = ch.pick("erdma.type", (INT8, INT8, INT16, INT32, INT4))
    surfaces = kind.surfaces(d.channels)
    per_pixel = combined or ch.chance("erdma.per_pixel", 0.75)
    line, surface = 0, ch.integer("erdma.surface", 1, 4)
    if per_pixel:
        line = d.width + (ch.integer("erdma.gap", 0, 3) if ch.chance("erdma.gaps", 0.4) else 0)
        surface = line * d.height + (ch.integer("erdma.more", 0, 6) if ch.chance("erdma.wide", 0.4) else 0)
    scale = 1.0
    raw = values.elements(ch, "erdma", kind, (surfaces * surface + line * d.height) * kind.per_atom, scale)
    mode = int(per_pixel)
    if combined:
        _combined(ch, arena, d, kind, raw, line, surface)
    else:
        place = arena.place(raw, "ERDMA operand")
        if per_pixel and d.height == 1 and ch.chance("erdma.far_lines", 0.2):  # pitches that are not used
            line = d.width + ch.word("erdma.far_notch", 13)
        if surfaces == 1 and ch.chance("erdma.far_surfaces", 0.15):
            surface = ch.word("erdma.far_surface", 28)
        idle = surface if ch.chance("erdma.pitch_twice", 0.5) else ch.word("erdma.idle_pitch", 28)
        d.ew = Operand(place, kind.bits, line, surface, per_pixel, idle)
    code = STORAGE[kind.bits]
    d.set("DPU_RDMA", ERDMA_DATA_MODE=mode, ERDMA_DATA_SIZE=code)
    d.set("DPU", EW_DATA_MODE=mode, EDATA_SIZE=code)
    if floating and ch.chance("erdma.other_size", 0.1):  # only the converter of floats reads it (7.8)
        d.set("DPU", EDATA_SIZE=ch.integer("erdma.told_size", 0, 3))
    d.rdma = True
    d.notes.append(f"ERDMA {kind.name} {'combined' if combined else 'pixel' if mode else 'channel'}")
    return kind.bits


def _combined(
    ch: Chooser, arena: Arena, d: Dpu, kind: ElementType, raw: values.Bytes, line: int, surface: int
) -> None:
    """Draw COMB_USE 5: even surfaces from MRDMA, odd ones from ERDMA (5.5)."""
    if d.flying:
        raise Refused("COMB_USE 5 needs a convolution")
    d.combined = True
    if ch.chance("comb.both", 0.5):
        d.set("DPU", COMB_USE=1)
    _two_readers(ch, arena, d, kind, raw, line, surface, "operand")


def _two_readers(
    ch: Chooser,
    arena: Arena,
    d: Dpu,
    kind: ElementType,
    raw: values.Bytes,
    line: int,
    surface: int,
    name: str,
) -> None:
    """Place a cube of which MRDMA reads the even surfaces and ERDMA the odd ones (5.5)."""
    if ch.chance("comb.mesa", 0.5):  # one tensor: ERDMA begins one surface after MRDMA
        base = arena.place(raw, f"combined {name}")
        step, other = 2 * surface, base + ATOM * surface
    else:
        base, other = arena.place(raw, f"MRDMA {name}"), arena.place(raw[::-1].copy(), f"ERDMA {name}")
        step = surface
    if kind.surfaces(d.channels) == 1:  # ERDMA reads nothing
        other = UNMAPPED
    d.main = Operand(base, kind.bits, line, step)
    d.ew = Operand(other, kind.bits, line, step, idle=ch.word("comb.idle_pitch", 28))


def draw_alternate(ch: Chooser, arena: Arena, d: Dpu) -> None:
    """Draw COMB_USE 3 of a flying task: even surfaces of the main data by MRDMA, odd ones by ERDMA (5.5)."""
    line = d.width + (ch.integer("comb.gap", 0, 3) if ch.chance("comb.gaps", 0.4) else 0)
    surface = line * d.height + (ch.integer("comb.more", 0, 6) if ch.chance("comb.wide", 0.4) else 0)
    atoms = d.source.surfaces(d.channels) * surface + line * d.height
    raw = values.elements(ch, "alternate input", d.source, atoms * d.source.per_atom)
    d.set("DPU", COMB_USE=1)
    _two_readers(ch, arena, d, d.source, raw, line, surface, "input")
    size = ch.integer("comb.size", 2 if d.float_domain else 0, 3)
    d.set("DPU_RDMA", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=size)  # the size has no effect
    d.notes.append("two readers")


def _operand_converter(ch: Chooser, d: Dpu, spread: float, bits: int, floating: bool) -> None:
    if floating:  # it passes the element; other values raise a diagnostic (4.7)
        d.set("DPU", EW_OP_CVT_SCALE=1)
        return
    scale = ch.integer("ew.cvt_scale", 1, 32767) * (-1 if ch.chance("ew.cvt_negative", 0.2) else 1)
    aim = min(max(spread, 4.0), 2.0**28) * 2.0 ** ch.real("ew.cvt_aim", -3, 1)
    if ch.chance("ew.cvt_overflow", 0.15):
        aim = 2.0**32
    shift = int(np.clip(round(np.log2(max(abs(scale) * 2.0 ** (bits - 1.5) / aim, 1.0))), 0, 63))
    if ch.chance("ew.cvt_any_shift", 0.07):
        shift = ch.corner("ew.cvt_shift", 0, 63)
    offset = ch.corner("ew.cvt_offset", -200, 200, 0)
    if ch.chance("ew.cvt_any_offset", 0.07):
        offset = ch.corner("ew.cvt_offset_word", -(1 << 31), (1 << 31) - 1, 0)
    d.set("DPU", EW_OP_CVT_OFFSET=offset % (1 << 32), EW_OP_CVT_SCALE=scale % 65536, EW_OP_CVT_SHIFT=shift)


def draw_lut(ch: Chooser, d: Dpu, spread: float) -> float:
    """Draw ranges, slopes and priorities of the LUT (4.12); return the magnitude of its results."""
    d.set(
        "DPU",
        LUT_LO_LE_MUX=2,
        LUT_HYBRID_PRIORITY=ch.integer("lut.hybrid", 0, 1),
        LUT_OFLOW_PRIORITY=ch.integer("lut.overflow", 0, 1),
        LUT_UFLOW_PRIORITY=ch.integer("lut.underflow", 0, 1),
    )
    for table in ("LE", "LO"):
        name = f"lut.{table.lower()}"
        ideal = round(np.log2(max(spread * ch.real(f"{name}_reach", 0.3, 3.0) / 512, 1.0)))
        select = int(np.clip(ideal, 0, 22))
        if ch.chance(f"{name}_any_select", 0.1):
            select = ch.corner(f"{name}_select", 0, 22)
        span = 512 << select
        start = -span if table == "LE" else 0
        end = start + span
        form = ch.integer(f"{name}_form", 0, 7)
        if form > 5:  # a table that ends within the data, and a range that continues after it
            bound = int(min(spread, 2.0**30))
            start = ch.integer(f"{name}_edge", -bound, bound, 0) - span
            end = start + span + ch.corner(f"{name}_more", 1, span + 2)
        if form == 4:  # shorter than the table
            end = start + ch.integer(f"{name}_short", 0, span)
        elif form == 5:  # anywhere, with the ends in any order
            bound = int(min(4 * spread, 2.0**31 - 1)) + 1
            start, end = (ch.corner(f"{name}_edge", -bound, bound, 0) for _ in range(2))
        limit = 1 << 31
        start, end = (min(max(v, -limit), limit - 1) for v in (start, end))
        values = {"INDEX_SELECT": select, "START": start, "END": end}
        d.set("DPU", **{f"LUT_{table}_{key}": value for key, value in values.items()})
        for kind in ("OFLOW", "UFLOW"):
            scale = ch.corner(f"{name}_{kind.lower()}_scale", -32768, 32767, 0) % 65536
            shift = ch.corner(f"{name}_{kind.lower()}_shift", 0, 31)
            d.set("DPU", f"LUT_{table}_SLOPE_SCALE", **{f"{kind}_SCALE": scale})
            d.set("DPU", f"LUT_{table}_SLOPE_SHIFT", **{f"{kind}_SHIFT": shift})
    return 20000.0


def lut_tables(ch: Chooser) -> np.ndarray:
    """Draw the entries of both tables, int64 [2, 513]: smooth, random or with steps."""
    rng = ch.rng("lut tables")
    form = ch.integer("lut.tables", 0, 2)
    if form == 0:
        x = np.linspace(-6, 6, 2 * LUT_ENTRIES - 1)
        y = np.round(32767 * np.tanh(x * ch.real("lut.slope", 0.1, 3.0))).astype(np.int64)
        return np.stack([y[:LUT_ENTRIES], y[LUT_ENTRIES - 1 :]])
    if form == 1:
        return rng.integers(-32768, 32768, (2, LUT_ENTRIES))
    return rng.choice(np.array([-32768, -1, 0, 1, 32767]), (2, LUT_ENTRIES))
