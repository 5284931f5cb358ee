"""The groups of a conformance run: each draws legal kicks, or (where stated) faulty ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rkcosim.spec.types import (
    BF16,
    CONV_TYPES,
    FP16,
    FP32,
    INT4,
    INT8,
    INT16,
    INT32,
    TF32,
    ElementType,
)
from rkcosim.verify.conformance import (
    codes,
    draw_packed,
    draw_writer,
    faults,
    limits,
    noise,
    overlaps,
    register_draws,
    settings,
)
from rkcosim.verify.conformance.arena import BASE, Arena
from rkcosim.verify.conformance.case import Case, Plan, build
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.draw_conv import ConvWish
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draws import COMMON, Draw, conv_of, fly

ATTEMPTS = 400
"""Number of consecutive draws that may break a rule before the group counts as broken."""


@dataclass(frozen=True)
class Group:
    """One group: its draw, and its share of the tasks relative to the other groups."""

    name: str
    draw: Callable[[Draw], Plan]
    share: float = 1.0


def _either(
    types: tuple[ElementType, ...], more: tuple[ElementType, ...], dpu: DpuWish
) -> Callable[[Draw], Plan]:
    """Return the draw of a convolution, or of data from memory, with the same requirements on the DPU."""

    def draw(d: Draw) -> Plan:
        if d.ch.chance("either.flying", 0.5):
            return d.flying(d.any_type(more), dpu)
        depthwise = d.ch.chance("either.depthwise", 0.2)
        kinds = tuple(t for t in types if t.name not in ("int4", "tf32")) if depthwise else types
        return d.conv(
            ConvWish(d.any_type(kinds or types), depthwise=depthwise and bool(kinds), budget=800), dpu
        )

    return draw


_INT = (INT8, INT16, INT4)
_FLOAT = (FP16, BF16, TF32)
_FLY_INT = (INT8, INT16, INT32, INT4)
_FLY_FLOAT = (FP16, FP32, BF16)


def _to_ppu(d: Draw) -> Plan:
    kind = d.any_type(COMMON)
    dpu = DpuWish(out=(kind,), to_ppu=True, element="some")
    if d.ch.chance("ppu.flying", 0.5):
        return d.flying(d.any_type(_FLY_FLOAT if kind is FP16 else (INT8, INT16, INT32)), dpu)
    source = d.any_type((FP16, TF32, INT8) if kind is FP16 else _INT)
    return d.conv(ConvWish(source, budget=800), dpu)


_GROUPS = (
    Group("conv int8", conv_of((INT8,)), 2),
    Group("conv int4", conv_of((INT4,))),
    Group("conv int16", conv_of((INT16,))),
    Group("conv fp16", conv_of((FP16,)), 2),
    Group("conv bf16", conv_of((BF16,))),
    Group("conv tf32", conv_of((TF32,))),
    Group("depthwise int8", conv_of((INT8,), depthwise=True)),
    Group("depthwise int16", conv_of((INT16,), depthwise=True)),
    Group("depthwise fp16", conv_of((FP16,), depthwise=True)),
    Group("depthwise bf16", conv_of((BF16,), depthwise=True)),
    Group("argb int8", conv_of((INT8,), argb=True)),
    Group("argb 16 bit", conv_of((INT16, FP16, BF16), argb=True)),
    Group("deconvolution", conv_of(CONV_TYPES, deconv=True)),
    Group("matrix", conv_of(dpu=DpuWish(matrix=True), row_major=True)),
    Group("dilation", conv_of(CONV_TYPES, dilated=True)),
    Group("large kernels", conv_of(CONV_TYPES, large=True)),
    Group("large depthwise kernels", conv_of((INT8, INT16, FP16, BF16), depthwise=True, large=True), 0.5),
    Group("large maps", conv_of(wide=True, budget=10000), 0.3),
    Group("streamed weights", conv_of(streamed=True, budget=5000), 0.5),
    Group("compressed weights", draw_packed.draw),
    Group("weight reuse", Draw.weight_reuse),
    Group("data reuse", Draw.data_reuse),
    Group("row tiles", Draw.row_tiles),
    Group("kernel tiles", Draw.kernel_tiles),
    Group("flying integers", fly((INT8, INT16, INT32), "some")),
    Group("flying int4", fly((INT4,), "some")),
    Group("flying floats", fly(_FLY_FLOAT, "some")),
    Group("ew integers, registers", _either(_INT, _FLY_INT, DpuWish(element="register"))),
    Group("ew integers, memory", _either(_INT, _FLY_INT, DpuWish(element="memory"))),
    Group("ew floats, registers", _either(_FLOAT, _FLY_FLOAT, DpuWish(element="register"))),
    Group("ew floats, memory", _either(_FLOAT, _FLY_FLOAT, DpuWish(element="memory"))),
    Group("residual in two streams", conv_of(dpu=DpuWish(element="combined"), budget=800)),
    Group("main data in two streams", fly((*_FLY_INT, *_FLY_FLOAT), "alternate")),
    Group("lut integers", _either(_INT, (INT16, INT32, INT8), DpuWish(element="lut")), 0.7),
    Group("lut floats", _either(_FLOAT, _FLY_FLOAT, DpuWish(element="lut")), 0.7),
    Group("integers to floats", _either(_INT, _FLY_INT, DpuWish(out=(FP16, FP32, BF16)))),
    Group("integers to integers", _either(_INT, _FLY_INT, DpuWish(out=(INT4, INT8, INT16, INT32)))),
    Group("floats to integers", _either(_FLOAT, _FLY_FLOAT, DpuWish(out=(INT8, INT16, INT32, INT4)))),
    Group("floats to floats", _either(_FLOAT, _FLY_FLOAT, DpuWish(out=(FP16, BF16, FP32)))),
    Group("padded channels", _either(CONV_TYPES, (*_FLY_INT, *_FLY_FLOAT), DpuWish(padded=True))),
    Group("matrix output", _either(CONV_TYPES, (*_FLY_INT, *_FLY_FLOAT), DpuWish(matrix=True))),
    Group("overlapping outputs", overlaps.draw, 1.5),
    Group("packets", draw_writer.packets),
    Group("packets of convolutions", draw_writer.products, 0.5),
    Group("unpooling", draw_writer.unpooling, 0.7),
    Group("maximum over channels", draw_writer.maximum, 0.7),
    Group("flying, other rows", draw_writer.other_rows, 0.7),
    Group("pool int8", lambda d: d.pool(INT8)),
    Group("pool int16", lambda d: d.pool(INT16)),
    Group("pool fp16", lambda d: d.pool(FP16)),
    Group("pool limits", lambda d: d.pool(d.any_type(COMMON), large=True)),
    Group("pool index", lambda d: d.pool(d.any_type(COMMON), index=True)),
    Group("dpu to ppu", _to_ppu),
    Group("slave mode", Draw.slave),
    Group("chains", Draw.chain, 1.5),
    Group("field limits", limits.draw, 0.3),
    Group("registers", register_draws.draw, 0.6),
    Group("reserved fields", lambda d: d.reserved(noise.RESERVED)),
    Group("contradictory sizes", lambda d: d.reserved(noise.REPEATS)),
    Group("reserved codes", codes.CODES, 2.5),
    Group("contradictions", settings.SETTINGS, 1.5),
    Group("hangs", faults.HANGS, 0.3),
    Group("waits", faults.WAITS, 0.4),
    Group("writer waits", draw_writer.HANGS, 0.4),
    Group("unknown compression", draw_packed.UNKNOWN, 0.4),
    Group("unknown headers", draw_packed.HEADERS, 0.4),
    Group("unmapped addresses", faults.unmapped, 0.4),
    Group("malformed lists", faults.malformed, 0.4),
)

GROUPS: dict[str, Group] = {group.name: group for group in _GROUPS}


def draw_case(
    group: str,
    seed: int,
    index: int,
    forced: Mapping[str, int] | None = None,
    attempt: int | None = None,
    base: int = BASE,
) -> Case:
    """Draw case `index` of a group; equal arguments always give the same case.

    Parameters
    ----------
    group : name in `GROUPS`.
    seed, index : seed of the run, and number of the case in it.
    forced : choices to change (see `Chooser`).
    attempt : only this attempt of the draw; None: the first one that breaks no rule.
    base : first address of its memory.

    Raises
    ------
    ValueError
        for an unknown group.
    Refused
        if the attempt breaks a rule, or `ATTEMPTS` in a row do.
    """
    if group not in GROUPS:
        raise ValueError(f"unknown group {group!r}; known: {', '.join(GROUPS)}")
    reason = ""
    for number in range(ATTEMPTS) if attempt is None else (attempt,):
        ch = Chooser((seed, group, index, number), forced)
        arena = Arena(ch, base)
        try:
            plan = GROUPS[group].draw(Draw(ch, arena, index))
            return build(group, f"{seed}/{index}", ch, arena, plan, number)
        except Refused as refused:
            reason = str(refused)
            if attempt is not None:
                raise
    raise Refused(f"{ATTEMPTS} draws of {group} in a row broke a rule, the last: {reason}")
