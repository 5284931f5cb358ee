"""Draws of DPU and DPU_RDMA settings: destination, CPEND, BS, BN, output converter, main data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rkcosim.spec.types import ATOM, BF16, FLOAT_CODES, FLOATS, FP16, FP32, INT8, INT16, INT32, ElementType
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import Arena
from rkcosim.verify.conformance.choices import Chooser
from rkcosim.verify.conformance.dpu import Dpu, Operand
from rkcosim.verify.conformance.draw_element import draw_alternate, draw_element


@dataclass(frozen=True)
class DpuWish:
    """Requirements of a group on the DPU; everything else is drawn."""

    out: tuple[ElementType, ...] = ()
    """Output types to choose from."""
    element: str = "some"
    """EW: "some", "none", "register", "memory", "combined" (COMB_USE 5), "lut"; "alternate": both readers
    deliver the main data (COMB_USE 3)."""
    padded: bool = False
    matrix: bool = False
    """Rows of a matrix as output (NHWC), or gaps between lines."""
    to_ppu: bool = False
    tiles: bool = False
    """The cube is divided into channel tiles later, which the pitches must permit."""


def draw_dpu(
    ch: Chooser,
    arena: Arena,
    size: tuple[int, int, int],
    source: ElementType,
    spread: float,
    wish: DpuWish,
    *,
    depthwise: bool = False,
    flying: bool = False,
) -> Dpu:
    """Draw settings for a cube.

    Parameters
    ----------
    ch, arena : source of the choices; memory for destination and operands.
    size : width, height, channels.
    source : type of the main data.
    spread : their typical magnitude.
    wish : requirements of the group.
    depthwise, flying : origin of the main data.
    """
    width, height, channels = size
    group = source.flying_group if flying else source.kernels
    d = Dpu(width, height, channels, source, _out_type(ch, source, wish), depthwise, flying)
    d.group = 64 if depthwise else group
    d.float_domain = source.is_float
    family = FLOAT_CODES if d.float_domain else (0, 1, 4, 6)
    d.proc = source.dpu_code if ch.chance("dpu.proc_same", 0.8) else ch.pick("dpu.proc", family)
    d.to_ppu = wish.to_ppu
    d.to_memory = not wish.to_ppu or ch.chance("dpu.memory_too", 0.4)
    element = wish.element
    if flying and (element == "alternate" or (element == "some" and ch.chance("dpu.alternate", 0.08))):
        d.alternate, element = True, "alternate"
    d.orig = channels
    channels = _group(ch, d)
    d.orig = min(d.orig, channels)
    if wish.padded or ch.chance("dpu.padded", 0.15):
        d.orig = ch.integer("dpu.orig", 1, channels, channels)
    if d.orig < channels or ch.chance("dpu.pend", 0.5):
        d.set("DPU", OFFSET_PEND=ch.word("dpu.pend_value", 16))
    _destination(ch, arena, d, wish)
    spread = _cpend(ch, d, spread)
    spread = _stage(ch, arena, d, "BS", "BRDMA", spread)
    spread = _stage(ch, arena, d, "BN", "NRDMA", spread)
    lut, spread = draw_element(ch, arena, d, spread, element)
    _output(ch, d, spread, lut)
    if flying:
        if d.alternate:
            draw_alternate(ch, arena, d)
        else:
            d.main = place_operand(ch, arena, d, "MRDMA input", source, width, height)
        raw = source is FP16 and ch.chance("dpu.unwidened", 0.85 if d.divides else 0.05)
        if not raw and (source.name in ("fp16", "bf16") or ch.chance("dpu.widen", 0.5)):
            d.set("DPU_RDMA", MRDMA_FP16TOFP32_EN=1)
    d.rdma = d.rdma or flying or ch.chance("dpu.idle_rdma", 0.2)
    return d


def _out_type(ch: Chooser, source: ElementType, wish: DpuWish) -> ElementType:
    if wish.out:
        return ch.pick("dpu.out", wish.out)
    same = {5: FP32}.get(source.dpu_code, source)
    if source.is_float:
        return ch.pick("dpu.out", (same, same, FP32, FP16, BF16))
    return ch.pick("dpu.out", (INT8, INT8, INT16, INT32, same))


def _group(ch: Chooser, d: Dpu) -> int:
    """Draw SIZE_E and whether the converter is active, which needs whole groups; return the channels."""
    group = 32 if d.depthwise and d.source.bits == 16 else d.group
    full = max(1, group // d.out.per_atom)
    if d.flying:
        d.group_surfaces = max(1, d.given // d.out.per_atom)
        d.size_e = min(d.group_surfaces, 8) - 1
        if d.out is INT8 and d.per_atom < d.out.per_atom:  # more atoms than CHANNEL_WDMA names never end
            d.channels = min(d.channels, d.per_atom)
        d.bypass_cpend = bool(ch.integer("dst.bypass_cpend", 0, 1, 1))
        return d.channels
    d.group_surfaces = full
    d.bypass_cpend = full > 8 or not ch.chance("cpend.live", 0.4)
    d.size_e = full - 1 if full <= 8 else ch.integer("dst.size_e", 0, 7)
    if not d.bypass_cpend and d.out.surfaces(d.channels) % full:
        d.channels = -(-d.channels // group) * group
    return d.channels


def _destination(ch: Chooser, arena: Arena, d: Dpu, wish: DpuWish) -> None:
    surfaces = d.surfaces
    if d.width == 1 and ch.chance("dst.matrix", 0.9 if wish.matrix else 0.3):  # rows of a matrix [HW 7.11]
        d.surface, d.notch = 1, surfaces - 1 + ch.integer("dst.row_gap", 0, 2)
        d.surface_add = d.group_surfaces
        span = d.height * (1 + d.notch) + d.group_surfaces
        d.notes.append("matrix out")
    else:
        gap = 0.8 if wish.matrix else 0.3
        d.notch = ch.integer("dst.notch", 0, 5) if ch.chance("dst.notched", gap) else 0
        line = d.width + d.notch
        d.surface = line * d.height + (ch.integer("dst.gap", 0, 5) if ch.chance("dst.gaps", 0.4) else 0)
        more = ch.integer("dst.group_gap", 0, 5) if ch.chance("dst.group_gaps", 0.3) else 0
        d.surface_add = d.group_surfaces * d.surface + more
        span = -(-surfaces // d.group_surfaces) * d.surface_add + d.surface
    d.address = arena.alloc(span * ATOM, "output")
    if ch.chance("dst.descending", 0.12):  # the last surface first: pitches that wrap at 4 GiB
        z = d.group_surfaces
        last = max(s // z * d.surface_add + s % z * d.surface for s in range(surfaces))
        d.address += ATOM * last
        d.surface, d.surface_add = -d.surface, -d.surface_add
    if wish.tiles or d.surface < 0 or (d.width == 1 and d.surface == 1):
        return
    if d.height == 1 and ch.chance("dst.far_lines", 0.15):  # pitches that are not used
        d.notch = ch.word("dst.far_notch", 13)
    if surfaces == 1 and ch.chance("dst.far_surfaces", 0.15):
        d.surface = ch.word("dst.far_surface", 28)
    if surfaces <= d.group_surfaces and ch.chance("dst.far_groups", 0.15):
        d.surface_add = ch.word("dst.far_group", 28)


def _cpend(ch: Chooser, d: Dpu, spread: float) -> float:
    if d.bypass_cpend and not ch.chance("cpend.idle", 0.2):
        return spread
    if not d.flying and not d.float_domain and not d.bypass_cpend and ch.chance("cpend.table", 0.5):
        d.set("DPU", OW_SRC=1)
    else:
        d.set("DPU", OW_OP=ch.corner("cpend.value", -32768, 32767, 0) % 65536)
    d.notes.append("CPEND")
    return spread if d.bypass_cpend or d.flying else spread * 4


def factor(ch: Chooser, label: str, spread: float, aim: float, table: bool = False) -> tuple[int, int, float]:
    """Draw a signed multiplier and a shift so that the result has a useful magnitude.

    With `table` the multipliers come from memory and have any magnitude, and the shift fits a typical one.
    """
    scale = 16384
    if not table:
        scale = ch.integer(f"{label}.factor", 1, 32767) * (-1 if ch.chance(f"{label}.negative", 0.2) else 1)
        if ch.chance(f"{label}.corner", 0.05):
            scale = ch.pick(f"{label}.corner_factor", (1, -32768, 0, -1, 32767))
    shift = int(np.clip(round(np.log2(max(abs(scale) * spread / aim, 1.0))), 0, 63))
    if ch.chance(f"{label}.any_shift", 0.07):
        shift = ch.corner(f"{label}.shift", 0, 63)
    return scale, shift, max(abs(scale) * spread / 2.0**shift, 1.0)


def _stage(ch: Chooser, arena: Arena, d: Dpu, stage: str, client: str, spread: float) -> float:
    """Draw BS or BN."""
    name = stage.lower()
    cpend = stage == "BS" and bool(d.preset.get("DPU", "OW_SRC"))
    alu_table = mul_table = False
    if ch.shared("dpu.moves_only", 0.12) or not ch.chance(f"{name}.on", 0.75 if stage == "BS" else 0.5):
        d.set("DPU", **{f"{stage}_BYPASS": 1})
    else:
        alu, mul = ch.chance(f"{name}.alu", 0.7), ch.chance(f"{name}.mul", 0.6)
        alu_table = alu and ch.chance(f"{name}.alu_table", 0.6)
        mul_table = mul and ch.chance(f"{name}.mul_table", 0.5)
        relu = ch.chance(f"{name}.relu", 0.4)
        limited = ch.chance(f"{name}.relux", 0.5 if relu else 0.1)
        settings = {
            "ALU_BYPASS": int(not alu),
            "ALU_ALGO": ch.pick(f"{name}.algo", (2, 2, 4)),
            "ALU_SRC": int(alu_table),
            "MUL_BYPASS": int(not mul),
            "MUL_PRELU": int(mul and ch.chance(f"{name}.prelu", 0.2)),
            "RELU_BYPASS": int(not relu),
            "RELUX_EN": int(limited),
        }
        d.set("DPU", **{f"{stage}_{key}": value for key, value in settings.items()})
        after = _stage_values(ch, d, stage, spread, mul, mul_table)
        spread = after if mul else spread
        d.notes.append(f"{stage} {'add ' if alu else ''}{'mul ' if mul else ''}{'relu' if relu else ''}")
    use = int(alu_table) | 2 * int(cpend) | 4 * int(mul_table)
    if use or ch.chance(f"{name}.idle_table", 0.1):
        more = 7 if stage == "BS" else 5
        use |= ch.integer(f"{name}.use", 0, 7) & more if ch.chance(f"{name}.more", 0.4) else 0
        _table(ch, arena, d, stage, client, use, spread)
    return min(spread, 2.0**31)


def _stage_values(ch: Chooser, d: Dpu, stage: str, spread: float, mul: bool, table: bool) -> float:
    """Draw the register operands of BS or BN."""
    name = stage.lower()
    if d.float_domain:
        operand = values.float_bits(ch, f"{name}.operand", FP32, spread)
        limit = values.float_bits(ch, f"{name}.limit", FP32, spread) & 0x7FFFFFFF
        scale = values.float_bits(ch, f"{name}.mul", BF16 if d.proc == BF16.dpu_code else FP16)
        shift, negative = ch.integer(f"{name}.no_shift", 0, 63), ch.integer(f"{name}.no_neg", 0, 63)
        after = spread
    else:
        bound = int(min(spread, 2.0**31 - 8)) + 4
        operand = ch.corner(f"{name}.operand", -bound, bound, 0)
        if ch.chance(f"{name}.any_operand", 0.1):
            operand = ch.corner(f"{name}.operand_word", -(1 << 31), (1 << 31) - 1, 0)
        scale, shift, after = factor(ch, name, spread, 2.0 ** ch.real(f"{name}.aim", 4, 24), table)
        negative = shift
        if ch.chance(f"{name}.slope", 0.3):
            negative = min(63, shift + ch.integer(f"{name}.slope_shift", 0, 3))
        reach = (after if mul else spread) * ch.real(f"{name}.limit", 0.2, 1.5)
        limit = int(min(reach, 2.0**31 - 1))
        if ch.chance(f"{name}.any_limit", 0.1):
            limit = ch.corner(f"{name}.limit_word", -(1 << 31), (1 << 31) - 1)
    settings = {"ALU_OPERAND": operand, "RELUX_CMP_DAT": limit}
    if mul:
        settings |= {"MUL_OPERAND": scale, "MUL_SHIFT_VALUE": shift, "MUL_SHIFT_VALUE_NEG": negative}
        settings["MUL_SRC"] = int(table)
    d.set("DPU", **{f"{stage}_{key}": value for key, value in settings.items()})
    return after


def _table(ch: Chooser, arena: Arena, d: Dpu, stage: str, client: str, use: int, spread: float) -> None:
    """Place operands per channel (5.3)."""
    if not use:
        return
    blocks = -(-d.channels // d.block)
    rng = ch.rng(f"{stage} table")
    parts = []
    bound = int(min(spread, 2.0**30)) + 8
    if use & 1:
        if d.float_domain:
            parts.append(values.floats(ch, f"{stage} table", FP32, 8 * blocks, spread))
        else:
            parts.append(rng.integers(-bound, bound, 8 * blocks).astype(np.int32).view(np.uint8))
    if use & 2:
        parts.append(rng.integers(-130, 130, 8 * blocks).astype(np.int16).view(np.uint8))
    if use & 4:
        if d.float_domain:
            kind = BF16 if d.proc == BF16.dpu_code else FP16
            parts.append(values.floats(ch, f"{stage} factors", kind, 8 * blocks))
        else:
            parts.append(rng.integers(-32768, 32768, 8 * blocks).astype(np.int16).view(np.uint8))
    table = np.concatenate([p.reshape(blocks, -1) for p in parts], axis=1)
    place = (arena.place(table.ravel(), f"{client} table"), table.shape[1])
    if stage == "BS":
        d.bs = place
    else:
        d.bn = place
    d.set("DPU_RDMA", **{f"{client}_DATA_USE": use})
    d.rdma = True
    d.notes.append(f"{client} use {use}")


def place_operand(
    ch: Chooser, arena: Arena, d: Dpu, name: str, kind: ElementType, width: int, height: int
) -> Operand:
    """Place a cube for a reader, sometimes with gaps between lines and surfaces."""
    surfaces = kind.surfaces(d.channels)
    line = width + (ch.integer(f"{name} gap", 0, 3) if ch.chance(f"{name} gaps", 0.4) else 0)
    surface = line * height + (ch.integer(f"{name} more", 0, 6) if ch.chance(f"{name} wide", 0.4) else 0)
    raw = values.elements(ch, name, kind, (surfaces * surface + line) * kind.per_atom)
    place = arena.place(raw, name)
    if height == 1 and ch.chance(f"{name} far lines", 0.15):
        line = width + ch.word(f"{name} far notch", 13)
    elif surfaces > 1 and ch.chance(f"{name} descending", 0.12):
        place += ATOM * (surfaces - 1) * surface
        surface = -surface
    if surfaces == 1 and ch.chance(f"{name} far surfaces", 0.15):
        surface = ch.word(f"{name} far surface", 28)
    return Operand(place, kind.bits, line, surface)


def _output(ch: Chooser, d: Dpu, spread: float, lut: bool) -> None:
    """Draw OUT_CVT (4.8)."""
    narrows = not d.divides and ch.chance("out.narrow", 0.85 if d.out is FP16 else 0.3)
    widen = {"FP32TOFP16_EN": 1} if narrows else {}
    d.set("DPU", CVT_ROUND=int(ch.chance("out.away", 0.4)))
    if d.float_domain and not lut:
        d.set("DPU", OUT_CVT_SCALE=1, **widen)
        d.set("DPU", CVT_TYPE=int(ch.chance("out.add_first", 0.3)))
        if ch.chance("out.minus", 0.25):
            d.set("DPU", MINUS_EXP=ch.corner("out.minus_exp", 0, 255, 0))
        return
    bits = 24 if d.out in FLOATS else d.out.bits
    aim = 2.0 ** (bits - 1) * ch.real("out.aim", 0.2, 2.0)
    if ch.chance("out.one", 0.15):
        scale, shift = 1, 0
    else:
        scale, shift, _ = factor(ch, "out", spread, aim)
    offset = ch.corner("out.offset", -128, 127, 0) if ch.chance("out.shifted", 0.7) else 0
    if ch.chance("out.any_offset", 0.07):
        offset = ch.corner("out.offset_word", -(1 << 31), (1 << 31) - 1, 0)
    d.set("DPU", OUT_CVT_SCALE=scale % 65536, **widen)
    d.set("DPU", OUT_CVT_OFFSET=offset % (1 << 32))
    upper = ch.integer("out.upper_shift", 0, 63) << 6 if ch.chance("out.upper", 0.1) else 0
    d.set("DPU", OUT_CVT_SHIFT=shift | upper, CVT_TYPE=int(ch.chance("out.add_first", 0.25)))
    if d.float_domain or ch.chance("out.exponent", 0.2):
        d.set("DPU", MINUS_EXP=ch.corner("out.minus_exp", 0, 255, 0))
