"""The DPU's look-up table: two tables, the choice between them and interpolation (H 5.7, docs 4.12)."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES
from rtl.npu import float32
from rtl.npu.dpu_frame import IDLE, Frame
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp
from rtl.regfile import LutPort, config_signature

WIDTH = 2
"""Elements looked up a cycle (H Q20, 5.12)."""

STEPS = LANES // WIDTH

SEGMENTS = 512
LARGEST_STEP = 22
"""Largest INDEX_SELECT that counts."""


@dataclass(frozen=True)
class _Place:
    """Where an index lies in the range of one table."""

    under: Signal
    over: Signal
    entry: Signal
    """The table's entry to begin from, 10 bits."""
    distance: Signal
    """What is beyond that entry: below the start, above the end, or in the segment; signed, 33 bits."""
    shift: Signal
    slope: Signal
    """Scale of the extrapolation, signed, 16 bits."""


class LutUnit(wiring.Component):
    """Looks `WIDTH` elements up a cycle; the results come in the next.

    Members
    -------
    cfg : configuration of the DPU
    floats : 1, in
        The elements are binary32, else signed integers.
    go : 1, in
        Look the elements up.
    x : 32 bits an element, in
    y : signed 32 bits an element, out
        In the cycle after `go`.
    lut : LutPort, in
        Access to the tables.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "floats": In(1),
                "go": In(1),
                "x": In(32).array(WIDTH),
                "y": Out(signed(32)).array(WIDTH),
                "lut": In(LutPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lut = self.lut
        # One memory holds both tables: bit 10 of the address chooses.
        m.submodules.tables = tables = Memory(shape=16, depth=2048, init=[])
        write, read = tables.write_port(), tables.read_port()
        m.d.comb += [
            write.addr.eq(Cat(lut.entry, lut.table)),
            write.data.eq(lut.data),
            write.en.eq(lut.write),
            read.addr.eq(Cat(lut.entry, lut.table)),
            read.en.eq(lut.read),
            lut.answer.eq(read.data),
        ]
        came = Signal()
        m.d.sync += came.eq(self.go)
        for element in range(WIDTH):
            self._element(m, tables, self.x[element], self.y[element], came)
        return m

    def _place(self, m: Module, name: str, x: Signal) -> _Place:
        cfg = self.cfg
        begin, end = getattr(cfg, f"LUT_{name}_START"), getattr(cfg, f"LUT_{name}_END")
        first, last = begin[f"LUT_{name}_START"], end[f"LUT_{name}_END"]
        scale, shift = getattr(cfg, f"LUT_{name}_SLOPE_SCALE"), getattr(cfg, f"LUT_{name}_SLOPE_SHIFT")
        select = cfg.LUT_INFO[f"LUT_{name}_INDEX_SELECT"]

        def wire(value: Value, shape: object) -> Signal:
            result = Signal(shape, init=IDLE)
            m.d.comb += result.eq(value)
            return result

        step = wire(Mux(select > LARGEST_STEP, LARGEST_STEP, select), 5)
        under, beyond = wire(x < first, 1), wire(x > last, 1)
        inside = wire(x - first, signed(33))
        past = wire((inside.as_unsigned()[:32] >> step), 32)  # whole steps, where not under
        rest = inside.as_unsigned()[:32] & ~((Const(0xFFFFFFFF, 32) << step)[:32])
        far = wire((past > SEGMENTS) | ((past == SEGMENTS) & (rest != 0)), 1)
        over = wire(~under & (beyond | far), 1)
        entry, distance, shown = Signal(10, init=IDLE), Signal(signed(33), init=IDLE), Signal(5, init=IDLE)
        slope = Signal(signed(16), init=IDLE)
        with m.If(under):
            m.d.comb += [entry.eq(0), distance.eq(inside), shown.eq(shift.UFLOW_SHIFT)]
            m.d.comb += slope.eq(scale.UFLOW_SCALE)
        with m.Elif(over):
            m.d.comb += [entry.eq(SEGMENTS), distance.eq(Mux(beyond, x - last, 0))]
            m.d.comb += [shown.eq(shift.OFLOW_SHIFT), slope.eq(scale.OFLOW_SCALE)]
        with m.Else():
            m.d.comb += [entry.eq(past), distance.eq(rest), shown.eq(step), slope.eq(0)]
        return _Place(under, over, entry, distance, shown, slope)

    def _element(self, m: Module, tables: Memory, given: Value, y: Value, came: Signal) -> None:
        cfg = self.cfg.LUT_CFG
        lower, upper = tables.read_port(), tables.read_port()
        hit, shift = Signal(reset_less=True), Signal(5, reset_less=True)
        distance, slope = Signal(signed(33), reset_less=True), Signal(signed(16), reset_less=True)
        m.d.comb += [lower.en.eq(self.go), upper.en.eq(self.go)]
        with m.If(self.go):
            x, use_lo = Signal(signed(32), init=IDLE), Signal(init=IDLE)
            with m.If(self.floats):
                m.d.comb += x.eq(float32.to_int32(m, given))
            with m.Else():
                m.d.comb += x.eq(given)
            le, lo = self._place(m, "LE", x), self._place(m, "LO", x)
            le_hit, lo_hit = ~(le.under | le.over), ~(lo.under | lo.over)
            with m.If(le.under & lo.under):
                m.d.comb += use_lo.eq(cfg.LUT_UFLOW_PRIORITY)
            with m.Elif(le.over & lo.over):
                m.d.comb += use_lo.eq(cfg.LUT_OFLOW_PRIORITY)
            with m.Elif(le_hit ^ lo_hit):
                m.d.comb += use_lo.eq(lo_hit)
            with m.Else():
                m.d.comb += use_lo.eq(cfg.LUT_HYBRID_PRIORITY)
            entry = float32.wire(m, Mux(use_lo, lo.entry, le.entry))
            m.d.comb += [lower.addr.eq(Cat(entry, use_lo)), upper.addr.eq(Cat((entry + 1)[:10], use_lo))]
            m.d.sync += [
                hit.eq(Mux(use_lo, lo_hit, le_hit)),
                shift.eq(Mux(use_lo, lo.shift, le.shift)),
                distance.eq(Mux(use_lo, lo.distance, le.distance)),
                slope.eq(Mux(use_lo, lo.slope, le.slope)),
            ]
        with m.If(came):
            base, next_ = lower.data.as_signed(), upper.data.as_signed()
            factor = float32.wire(m, Mux(hit, next_ - base, slope))
            product = float32.wire(m, distance * factor)
            total = float32.wire(m, base + float32.wire(m, product >> shift))
            m.d.comb += y.eq(clamp(total, LOWEST, HIGHEST))


class LutStage:
    """Replaces the values of the octet in stage 6 by those of the tables, `WIDTH` a cycle.

    The first are looked up while the octet enters the stage (`entering`, what its registers are about to
    hold).  `may_advance` tells whether all are done, or nothing to do.  The last results may be on their
    way into the registers then: `values` are what to go on with.
    """

    def __init__(self, frame: Frame, unit: LutUnit, values: list[Signal], entering: list[Signal]) -> None:
        m = frame.m
        live = frame.flag(frame.lut_live)
        # Elements that are replaced, or about to be, `WIDTH` of them a step.
        step, came, coming = Signal(range(STEPS + 1)), Signal(range(STEPS)), Signal()
        self.may_advance = ~live | ~frame.valid[6] | (step == STEPS)
        ahead = live & frame.advance & frame.valid[5]
        later = live & frame.valid[6] & (step != STEPS)
        m.d.comb += [unit.floats.eq(frame.floats), unit.go.eq(ahead | later)]
        m.d.sync += coming.eq(unit.go)
        with m.If(later):  # an octet that advances has no step left
            m.d.sync += [came.eq(step), step.eq(step + 1)]
            with m.Switch(step):
                for place in range(1, STEPS):
                    with m.Case(place):
                        m.d.comb += [unit.x[k].eq(values[WIDTH * place + k]) for k in range(WIDTH)]
        with m.Elif(ahead):
            m.d.sync += [came.eq(0), step.eq(1)]
            m.d.comb += [unit.x[k].eq(entering[k]) for k in range(WIDTH)]
        with m.Elif(frame.start | frame.advance):
            m.d.sync += step.eq(0)
        with m.If(coming & ~frame.advance):
            for lane, value in enumerate(values):
                with m.If(came == lane // WIDTH):
                    m.d.sync += value.eq(unit.y[lane % WIDTH])
        kept = len(values) - WIDTH
        last = [Mux(coming, unit.y[k], value) for k, value in enumerate(values[kept:])]
        self.values = [*values[:kept], *(frame.wire(value) for value in last)]
