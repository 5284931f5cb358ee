"""The output converter of the DPU's pipe: stages 9 and 10 ([HW 7.10], [HW 7.11.1])."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE, LANES
from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.arith import (
    HIGHEST,
    LOWEST,
    clamp,
    held,
    held_flags,
    held_shift,
    odd_part,
    round_shift,
    wire,
)
from rkcosim.rtl.npu.dpu_frame import PipeFlow, copied, float_domain, into, lanes, lut_live
from rkcosim.rtl.npu.dpu_types import Precision, Width, is_float, width_of
from rkcosim.rtl.regfile import config_signature

NAN_FP16 = 0x7C01
"""The NaN of fp16 that OUT_CVT writes, with the sign of the number [HW 7.10]."""


def _limit(kind: Value, values: dict[int, int], default: ValueLike) -> Value:
    """The value for an integer width, or `default` for other types."""
    width, result = width_of(kind), Value.cast(default)
    for code, value in values.items():
        result = Mux(width == code, Const(value, signed(32)), result)
    return result


def _less(value: Value, minus: Value, mantissa: int) -> Value:
    """A float with `minus` subtracted from its exponent field, modulo its width; `mantissa` is its width."""
    field = value[mantissa:-1]
    return Cat(value[:mantissa], (field - minus)[: len(field)], value[-1])


class OutputConverter(wiring.Component):
    """Output converter: scale; shift, offset and saturation; conversion to the output type; padding channels.

    Parameters
    ----------
    floats : bool
        Whether there are conversions from and to floats; otherwise float types are those integers that have
        as many bits.

    Members
    -------
    cfg : registers of the DPU.
    flow : control signals of all stages.
    main : values in stage 8, for each lane.
    live : number of lanes of the octet in stage 9 that are real channels.
    late_offset : option: the offset does not affect how ties are rounded.
    value : results, for each lane; the element in the low bits.
    """

    cfg: In(config_signature("DPU"))
    flow: In(PipeFlow())
    main: In(signed(32)).array(LANES)
    live: In(4)
    late_offset: In(1)
    value: Out(32).array(LANES)

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, flow, valid, start = self.cfg, self.flow, self.flow.valid, self.flow.start
        add_first = cfg.OUT_CVT_SHIFT.CVT_TYPE
        offset, scale = cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET, cfg.OUT_CVT_SCALE.OUT_CVT_SCALE
        domain = float_domain(cfg) if self._floats else Const(0)
        late_floats = domain & ~lut_live(cfg)
        before = held(m, start, Mux(add_first, offset, 0), signed(32))
        after = held(m, start, Mux(add_first | late_floats, 0, offset), signed(32))
        pend = held(m, start, cfg.OFFSET_PEND.OFFSET_PEND, signed(32))
        shift = held_shift(m, start, "shift", Mux(late_floats, 0, cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT))
        shifts = ~late_floats & (cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT[:6] != 0)
        kind = cfg.DATA_FORMAT.OUT_PRECISION  # floats are converted from a 32-bit integer
        to_float = is_float(kind) if self._floats else Const(0)
        top = _limit(kind, {Width.BITS4: 7, Width.BITS8: 0x7F, Width.BITS16: 0x7FFF}, HIGHEST)
        bottom = _limit(kind, {Width.BITS4: -8, Width.BITS8: -0x80, Width.BITS16: -0x8000}, LOWEST)
        high = held(m, start, Mux(to_float, HIGHEST, top), signed(32))
        low = held(m, start, Mux(to_float, LOWEST, bottom), signed(32))
        minus = held(m, start, Mux(domain, cfg.OUT_CVT_SHIFT.MINUS_EXP, 0), 8)
        on = held_flags(
            m,
            start,
            away=cfg.OUT_CVT_SHIFT.CVT_ROUND,
            # By default, a tie is rounded (to even, or away from zero) with the offset included.
            some=shifts,
            odd=shifts & ~add_first & ~self.late_offset & offset[0],
            late=self.late_offset,
            wide=to_float,
            make=to_float & ~late_floats,
            half=kind == Precision.FP16,
            brain=kind == Precision.BF16,
            raw=late_floats & ~cfg.OUT_CVT_SCALE.FP32TOFP16_EN,  # the low half as it is
        )
        floats = flow.late_floats

        products, values = lanes("scaled", signed(49)), lanes("held", 32)
        m.d.comb += copied(self.value, values)
        # One bit for all lanes that tells whether a float conversion is evaluated.
        to_number, makes, halves, brains, singles = (
            Signal(name=f"gate_{name}") for name in ("number", "make", "half", "brain", "single")
        )
        m.d.comb += [
            to_number.eq(valid[8] & floats & ~on.wide),
            makes.eq(valid[9] & on.make),
            halves.eq(valid[9] & on.half),
            brains.eq(valid[9] & on.brain),
            singles.eq(valid[9] & on.wide),
        ]
        for lane, main in enumerate(self.main):
            multiplied = Signal(signed(49), init=IDLE)
            if self._floats:
                with m.If(to_number):
                    whole = float32.to_int32(m, wire(m, main.as_unsigned(), 32))
            with m.If(valid[8]):
                if self._floats:
                    with m.If(floats):
                        m.d.comb += multiplied.eq(Mux(on.wide, main, whole))
                    with m.Else():
                        m.d.comb += multiplied.eq((main + before) * scale)
                else:
                    m.d.comb += multiplied.eq((main + before) * scale)
            with into(m, flow, 9):
                m.d.sync += products[lane].eq(multiplied)

            product = products[lane]
            number, final = Signal(signed(32), init=IDLE), Signal(32, init=IDLE)
            ties_up = Signal(init=IDLE)
            with m.If(valid[9]):
                with m.If(on.away):
                    below = wire(m, (product >> shift.count)[:50].as_signed() + after)
                    m.d.comb += ties_up.eq(on.some & ~Mux(on.late, product[-1], below[-1]))
                with m.Else():
                    m.d.comb += ties_up.eq(odd_part(product, shift) ^ on.odd)
                rounded = wire(m, round_shift(product, shift, ties_up=ties_up)[:50].as_signed())
                m.d.comb += number.eq(clamp(wire(m, rounded + after), low, high))
            if self._floats:
                with m.If(makes):
                    made = float32.from_int32(m, number)
                with m.If(singles):
                    single = wire(m, Mux(on.make, made, number.as_unsigned()), 32)
                with m.If(halves):
                    nan = Cat(Const(NAN_FP16, 15), single[31])
                    as_half = float32.narrow_fp16(m, single, nan)
                with m.If(brains):
                    as_brain = float32.narrow_bf16(m, single)
            with m.If(valid[9]):
                with m.If(self.live <= lane):
                    m.d.comb += final.eq(pend)
                with m.Elif(~on.wide if self._floats else Const(1)):
                    m.d.comb += final.eq(number)
                if self._floats:
                    with m.Elif(on.half):
                        m.d.comb += final.eq(_less(Mux(on.raw, single[:16], as_half), minus, 10))
                    with m.Elif(on.brain):
                        m.d.comb += final.eq(_less(as_brain, minus, 7))
                    with m.Else():
                        m.d.comb += final.eq(_less(single, minus, 23))
            with into(m, flow, 10):
                m.d.sync += values[lane].eq(final)
        return m
