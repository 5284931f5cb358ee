"""Elements out of atoms: MRDMA's and ERDMA's types widened to the 32 bits of the DPU (docs 5.2, 5.4)."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import enum

from rtl.layouts import LANES
from rtl.npu.dpu_types import Precision, Width
from rtl.npu.float32 import IDLE, widen_bf16, widen_fp16


class Half(enum.IntEnum, shape=2):
    """What 16-bit elements are."""

    INTEGER = 0
    FP16 = 1
    BF16 = 2


def half_of(code: Value) -> Value:
    """The `Half` of a precision; integer for those of other widths."""
    return Mux(code == Precision.FP16, Half.FP16, Mux(code == Precision.BF16, Half.BF16, Half.INTEGER))


def unpack(
    m: Module, lanes: Sequence[Value], low: Value, high: Value, width: Value, half: Value, part: Value
) -> None:
    """Drive eight lanes of 32 bits from atoms, under the conditions around the call.

    Parameters
    ----------
    lanes : sequence of 8 Value, 32 bits each
    low, high : Value
        128 bits each; `high` is the next surface's atom, for elements of 32 bits.
    width, half : Value
        `Width` and `Half` of the elements.
    part : Value
        2 bits: the octet's place in the atom, for elements of 8 bits (0, 1) and 4 bits (0..3).
    """
    with m.Switch(width):
        with m.Case(Width.BITS8):
            octet = Signal(64, init=IDLE)
            m.d.comb += octet.eq(Mux(part[0], low[64:], low[:64]))
            for lane, target in enumerate(lanes):
                m.d.comb += target.eq(octet.word_select(lane, 8).as_signed())
        with m.Case(Width.BITS16):
            with m.Switch(half):
                with m.Case(Half.FP16):
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(widen_fp16(m, low.word_select(lane, 16)))
                with m.Case(Half.BF16):
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(widen_bf16(low.word_select(lane, 16)))
                with m.Default():
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(low.word_select(lane, 16).as_signed())
        with m.Case(Width.BITS32):
            for lane, target in enumerate(lanes):
                word = (low if lane < LANES // 2 else high).word_select(lane % (LANES // 2), 32)
                m.d.comb += target.eq(word)
        with m.Case(Width.BITS4):
            nibbles = Signal(32, init=IDLE)
            m.d.comb += nibbles.eq(low.word_select(part, 32))
            for lane, target in enumerate(lanes):
                m.d.comb += target.eq(nibbles.word_select(lane, 4).as_signed())
