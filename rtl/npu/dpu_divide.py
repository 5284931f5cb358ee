"""The DPU's divider: fp16 bits in and out, with its own special values [HW 7.8.10]."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.arith import wire

INFINITY, NAN = 0x7C00, 0x7C01


class HalfDivider(wiring.Component):
    """Divide `lanes` pairs of fp16 at the same time.

    The quotient is formed in binary32 and narrowed. It has so few bits that the second rounding never
    differs from a single one.

    Members
    -------
    start : begin a division; one in progress is aborted.
    use : the results are used.
    a, b : operands, for each lane; they do not change from the start on while the results are used.
    done : the results are valid until the next start; low before the first.
    result : `a / b`, for each lane.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "use": In(1),
                "a": In(16).array(lanes),
                "b": In(16).array(lanes),
                "done": Out(1),
                "result": Out(16).array(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.divider = divider = float32.Divider(self._lanes)
        m.d.comb += [divider.start.eq(self.start), self.done.eq(divider.done)]
        for lane in range(self._lanes):
            a, b = self.a[lane], self.b[lane]
            with m.If(self.start):
                m.d.comb += [
                    divider.a[lane].eq(float32.widen_fp16(m, a)),
                    divider.b[lane].eq(float32.widen_fp16(m, b)),
                ]
            with m.If(self.use):
                quotient = float32.narrow_fp16(m, wire(m, divider.result[lane], 32), NAN)
                above, below = wire(m, a[:15], 15), wire(m, b[:15], 15)
                nan = (above > INFINITY) | (below > INFINITY) | (Cat(a, b) == 0)
                to_infinity = (above == INFINITY) | (below == 0)
                to_zero = (above == 0) | (below == INFINITY)
                nan, infinite, zero = wire(m, Cat(nan, to_infinity, to_zero), 3)
                # A zero or infinite result of such operands has the sign of the dividend.
                signed = Cat(Mux(infinite, Const(INFINITY, 15), 0)[:15], a[15])
                m.d.comb += self.result[lane].eq(Mux(nan, NAN, Mux(infinite | zero, signed, quotient)))
        return m
