"""The output converter of the DPU's pipe: stages 9 and 10 (docs 4.8, 4.9)."""

from amaranth.hdl import Cat, Const, Mux, Signal, Value, ValueLike, signed

from rtl.layouts import LANES
from rtl.npu import float32
from rtl.npu.dpu_frame import IDLE, Frame
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp, odd_part, round_shift
from rtl.npu.dpu_types import Precision, Width, is_float, width_of

NAN_FP16 = 0x7C01
"""The NaN of fp16 that OUT_CVT writes (docs 4.8)."""


def _limit(kind: Value, values: dict[int, int], default: ValueLike) -> Value:
    """The value for an integer width, `default` for others."""
    width, result = width_of(kind), Value.cast(default)
    for code, value in values.items():
        result = Mux(width == code, Const(value, signed(32)), result)
    return result


def _less(value: Value, minus: Value, mantissa: int) -> Value:
    """A float with `minus` taken off its exponent's field, which wraps; the mantissa's bits are given."""
    field = value[mantissa:-1]
    return Cat(value[:mantissa], (field - minus)[: len(field)], value[-1])


class OutputConverter:
    """Scale; shift, offset and saturation; conversion to the output type and the padding channels.

    `values` are the results, the element in the low bits; `late_offset` is the option that the offset has
    no say in ties.
    """

    def __init__(self, frame: Frame, main: list[Signal], late_offset: Value) -> None:
        m, cfg, valid = frame.m, frame.cfg, frame.valid
        add_first = cfg.OUT_CVT_SHIFT.CVT_TYPE
        offset, scale = cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET, cfg.OUT_CVT_SCALE.OUT_CVT_SCALE
        away = frame.flag(cfg.OUT_CVT_SHIFT.CVT_ROUND)
        before = frame.setting("out_before", Mux(add_first, offset, 0), signed(32))
        late_floats = frame.float_domain & ~frame.lut_live
        after = frame.setting("out_after", Mux(add_first | late_floats, 0, offset), signed(32))
        pend = frame.setting("out_pend", cfg.OFFSET_PEND.OFFSET_PEND, signed(32))
        shift = frame.shift("out", Mux(late_floats, 0, cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT))
        # The offset is there when a tie is looked at: to the even, or away from zero.
        shifts = ~late_floats & (cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT[:6] != 0)
        some, odd = frame.flag(shifts), frame.flag(shifts & ~add_first & ~late_offset & offset[0])
        late = frame.flag(late_offset)
        kind = cfg.DATA_FORMAT.OUT_PRECISION  # floats are made from a 32-bit integer
        to_float = is_float(kind)
        top = _limit(kind, {Width.BITS4: 7, Width.BITS8: 0x7F, Width.BITS16: 0x7FFF}, HIGHEST)
        bottom = _limit(kind, {Width.BITS4: -8, Width.BITS8: -0x80, Width.BITS16: -0x8000}, LOWEST)
        high = frame.setting("out_high", Mux(to_float, HIGHEST, top), signed(32))
        low = frame.setting("out_low", Mux(to_float, LOWEST, bottom), signed(32))
        floats, wide = frame.late_floats, frame.flag(to_float)
        make = frame.flag(to_float & ~late_floats)
        half, brain = frame.flag(kind == Precision.FP16), frame.flag(kind == Precision.BF16)
        minus = frame.setting("out_minus", Mux(frame.float_domain, cfg.OUT_CVT_SHIFT.MINUS_EXP, 0), 8)

        scaled, self.values = frame.lanes("out_scaled", signed(49)), frame.lanes("out", signed(32))
        to_number = frame.gate(valid[8], floats, ~wide)
        makes = frame.gate(valid[9], make)
        halves, brains = frame.gate(valid[9], half), frame.gate(valid[9], brain)
        singles = frame.gate(valid[9], wide)
        for lane in range(LANES):
            multiplied = Signal(signed(49), init=IDLE)
            with m.If(to_number):
                whole = float32.to_int32(m, float32.wire(m, main[lane].as_unsigned(), 32))
            with m.If(valid[8]):
                with m.If(floats):
                    m.d.comb += multiplied.eq(Mux(wide, main[lane], whole))
                with m.Else():
                    m.d.comb += multiplied.eq((main[lane] + before) * scale)
            with frame.into(9):
                m.d.sync += scaled[lane].eq(multiplied)

            number, final = Signal(signed(32), init=IDLE), Signal(signed(32), init=IDLE)
            ties_up = Signal(init=IDLE)
            with m.If(valid[9]):
                with m.If(away):
                    below = frame.wire((scaled[lane] >> shift.count)[:50].as_signed() + after)
                    m.d.comb += ties_up.eq(some & ~Mux(late, scaled[lane][-1], below[-1]))
                with m.Else():
                    m.d.comb += ties_up.eq(odd_part(scaled[lane], shift) ^ odd)
                rounded = frame.wire(round_shift(scaled[lane], shift, ties_up=ties_up)[:50].as_signed())
                m.d.comb += number.eq(clamp(frame.wire(rounded + after), low, high))
            with m.If(makes):
                made = float32.from_int32(m, number)
            with m.If(singles):
                single = float32.wire(m, Mux(make, made, number.as_unsigned()), 32)
            with m.If(halves):
                as_half = float32.narrow_fp16(m, single, NAN_FP16)
            with m.If(brains):
                as_brain = float32.narrow_bf16(m, single)
            with m.If(valid[9]):
                with m.If(frame.tag[9].live <= lane):
                    m.d.comb += final.eq(pend)
                with m.Elif(~wide):
                    m.d.comb += final.eq(number)
                with m.Elif(half):
                    m.d.comb += final.eq(_less(as_half, minus, 10))
                with m.Elif(brain):
                    m.d.comb += final.eq(_less(as_brain, minus, 7))
                with m.Else():
                    m.d.comb += final.eq(_less(single, minus, 23))
            with frame.into(10):
                m.d.sync += self.values[lane].eq(final)
