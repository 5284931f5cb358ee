"""Draws of convolutions with compressed weights, of known and of unknown codes [HW 4.13]."""

from __future__ import annotations

import numpy as np

from rkcosim.spec.layouts.compressed import SegmentCode, compress_weights
from rkcosim.spec.types import ATOM, FP16, INT8
from rkcosim.spec.weight_code import (
    HEADER_BYTES,
    HEADER_CLASSES,
    HEADER_FLAGS,
    HEADER_RUNS,
    HEADER_ZERO,
    MOST_UNITS,
    REGNUM,
    SEGMENT_ALIGN,
    SEGMENTS,
)
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import Bytes
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Chooser
from rkcosim.verify.conformance.draw_conv import ConvWish
from rkcosim.verify.conformance.draws import NONE, Draw, endless


def _stream(ch: Chooser, size: int) -> Bytes:
    """Draw weights of one of several distributions, uint8 [size]."""
    rng = ch.rng("packed.weights")
    kind = ch.pick("packed.kind", ("any", "narrow", "sparse", "same"))
    if kind == "any":
        return values.elements(ch, "packed", INT8, size)
    if kind == "narrow":
        middle, width = ch.integer("packed.middle", -128, 127, 0), ch.integer("packed.width", 1, 30)
        return (np.round(rng.laplace(middle, width, size)).astype(np.int64) % 256).astype(np.uint8)
    few = rng.random(size) < (0.15 if kind == "sparse" else 0.01)
    return np.where(few, rng.integers(0, 256, size), ch.integer("packed.rest", 0, 255, 0)).astype(np.uint8)


def _codes(ch: Chooser) -> list[SegmentCode] | None:
    """Draw the codes of the segments; None lets the encoder choose."""
    if ch.chance("packed.best", 0.3):
        return None
    rng = ch.rng("packed.codes")
    runs = ch.integer("packed.runs", 0, 2)  # none, all, some
    out = []
    for _ in range(SEGMENTS):
        classes = tuple(int(kind) for kind in rng.permutation(8))
        lengths = (1, *(int(length) for length in rng.permutation([2, 3, 4])))
        mode = bool(runs == 1 or (runs == 2 and rng.random() < 0.5))
        out.append(SegmentCode(mode, int(rng.integers(-128, 256)), classes, lengths))
    return out


def _packed(d: Draw, *, broken: bool = False) -> tuple[Plan, int]:
    """Draw a convolution with compressed weights.

    Parameters
    ----------
    d
        Source of random choices.
    broken
        Make the header of one segment invalid.

    Returns
    -------
    The plan, and the number of the segment with the invalid header (-1 if there is none).
    """
    ch = d.ch
    argb = ch.chance("packed.argb", 0.2)
    plan = d.conv(ConvWish(INT8, argb=argb, packed=True, budget=800), NONE)
    task = plan.task
    content, amounts = compress_weights(_stream(ch, task.get("CNA", "WEIGHT_BYTES")), _codes(ch))
    content, segment = content.copy(), -1
    if broken:
        segment = ch.integer("packed.segment", 0, SEGMENTS - 1)
        at = sum(-(-(a + 1) * ATOM // SEGMENT_ALIGN) * SEGMENT_ALIGN for a in amounts[:segment])
        header = content[at : at + HEADER_BYTES]
        kind = ch.integer("packed.fault", 0, 3)
        if kind == 0:
            header[HEADER_FLAGS] = ch.integer("packed.flags", 1, 16)
        elif kind == 1:
            header[HEADER_ZERO] = ch.integer("packed.zero", 1, 255)
        elif kind == 2:
            header[HEADER_FLAGS] = 0x11
            header[HEADER_RUNS + ch.integer("packed.upper", 0, 1)] = ch.integer("packed.length", 5, 255)
        else:
            header[HEADER_CLASSES : HEADER_CLASSES + 4] = 0x11 * ch.integer("packed.class", 8, 15)
    task.set("CNA", DECOMP_CONTROL=1, WT_DEC_BYPASS=0, DCOMP_REGNUM=REGNUM)
    task.set("CNA", **{f"DCOMP_AMOUNT{n}": amount for n, amount in enumerate(amounts)})
    task.address("CNA", "DCOMP_ADDR0", d.arena.place(content, "compressed weights"))
    task.description += "; compressed weights"
    return plan, segment


def draw(d: Draw) -> Plan:
    """Draw a convolution with compressed weights of a known code."""
    return _packed(d)[0]


HEADERS = endless()
"""Draws of segments with unknown headers, which only reading memory reveals: the task never ends."""

UNKNOWN = endless()
"""Draws of unknown settings of the registers for compressed weights: the task never ends."""


@HEADERS.draws
def _headers(d: Draw) -> Plan:
    plan, segment = _packed(d, broken=True)
    plan.note = f"the header of segment {segment}"
    return plan


@UNKNOWN.draws
def _registers(d: Draw) -> Plan:
    plan, _ = _packed(d)
    task, ch = plan.task, d.ch
    kind = ch.pick("packed.register", ("control", "regnum", "bytes", "amount"))
    if kind == "control":
        task.set("CNA", DECOMP_CONTROL=ch.integer("packed.control", 2, 7))
    elif kind == "regnum":
        task.set("CNA", DCOMP_REGNUM=REGNUM ^ 1 << ch.integer("packed.bit", 0, 31))
    elif kind == "bytes":
        more = ch.pick("packed.bytes", (-48, -16, 1, 16, 32))
        task.set("CNA", WEIGHT_BYTES=task.get("CNA", "WEIGHT_BYTES") + more)
    else:
        large = ch.corner("packed.amount", MOST_UNITS, (1 << 32) - 1)
        task.set("CNA", **{f"DCOMP_AMOUNT{ch.integer('packed.segment', 0, SEGMENTS - 1)}": large})
    plan.note = f"registers of compressed weights: {kind}"
    return plan


@UNKNOWN.draws
def _other_types(d: Draw) -> Plan:
    """Draw a convolution whose registers request decompression for an unknown shape or type."""
    kind = d.ch.pick("packed.type", (INT8, FP16))
    depthwise = kind is INT8 or d.ch.chance("packed.depthwise", 0.4)
    plan = d.conv(ConvWish(kind, depthwise=depthwise, budget=400), NONE)
    plan.task.set("CNA", DECOMP_CONTROL=1, WT_DEC_BYPASS=0, DCOMP_REGNUM=REGNUM)
    plan.note = f"compressed weights of {kind.name}"
    return plan
