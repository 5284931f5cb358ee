"""The DPU's look-up table: two tables, the choice between them and interpolation [HW 7.9]."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE, LANES
from rkcosim.rtl.npu.arith import HIGHEST, LOWEST, clamp, held, wire
from rkcosim.rtl.npu.dpu_frame import PipeFlow, copied, into, lanes, lut_live
from rkcosim.rtl.npu.float32 import to_int32
from rkcosim.rtl.regfile import LutPort, config_signature

WIDTH = 2
"""Number of elements that are looked up per cycle ([HW 13.20], [HW 7.15])."""

STEPS = LANES // WIDTH

SEGMENTS = 512
LARGEST_STEP = 22
"""Larger values of INDEX_SELECT count as this one."""


@dataclass(frozen=True)
class _Place:
    """Place of an index relative to the range of one table."""

    under: Signal
    over: Signal
    entry: Signal
    """First entry of the table to read, 10 bits."""
    distance: Signal
    """Distance of the index from the start (below it), from the end (above it) or from that entry.

    It is signed and has 33 bits.
    """
    shift: Signal
    slope: Signal
    """Scale of the extrapolation, signed, 16 bits."""


class LutUnit(wiring.Component):
    """Look `WIDTH` elements up per cycle; the results are available in the next cycle.

    Parameters
    ----------
    floats : bool
        Whether elements may be binary32; otherwise the port `floats` has no effect.

    Members
    -------
    cfg : registers of the DPU.
    floats : the elements are binary32, otherwise signed integers.
    go : look the elements up.
    x : the elements.
    y : their values, in the cycle after `go`.
    lut : access to the tables.
    """

    cfg: In(config_signature("DPU"))
    floats: In(1)
    go: In(1)
    x: In(32).array(WIDTH)
    y: Out(signed(32)).array(WIDTH)
    lut: In(LutPort())

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lut = self.lut
        # One memory holds both tables; bit 10 of the address selects the table.
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
        table = self.cfg.stage(f"LUT_{name}")
        first, last = table.START.START, table.END.END
        scale, shift, select = table.SLOPE_SCALE, table.SLOPE_SHIFT, table.LUT_INFO.INDEX_SELECT
        step = wire(m, Mux(select > LARGEST_STEP, LARGEST_STEP, select), 5)
        under, beyond = wire(m, x < first), wire(m, x > last)
        inside = wire(m, x - first, signed(33))
        past = wire(m, inside.as_unsigned()[:32] >> step, 32)  # number of whole steps, unless below the range
        rest = inside.as_unsigned()[:32] & ~((Const(0xFFFFFFFF, 32) << step)[:32])
        far = wire(m, (past > SEGMENTS) | ((past == SEGMENTS) & (rest != 0)))
        over = wire(m, ~under & (beyond | far))
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
        m.d.comb += [lower.en.eq(self.go), upper.en.eq(self.go)]
        with m.If(self.go):
            x, use_lo = Signal(signed(32), init=IDLE), Signal(init=IDLE)
            if self._floats:
                with m.If(self.floats):
                    m.d.comb += x.eq(to_int32(m, given))
                with m.Else():
                    m.d.comb += x.eq(given)
            else:
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
            entry = wire(m, Mux(use_lo, lo.entry, le.entry))
            m.d.comb += [lower.addr.eq(Cat(entry, use_lo)), upper.addr.eq(Cat((entry + 1)[:10], use_lo))]
        hit = held(m, self.go, Mux(use_lo, lo_hit, le_hit))
        shift = held(m, self.go, Mux(use_lo, lo.shift, le.shift))
        distance = held(m, self.go, Mux(use_lo, lo.distance, le.distance))
        slope = held(m, self.go, Mux(use_lo, lo.slope, le.slope), signed(16))
        with m.If(came):
            base, next_ = lower.data.as_signed(), upper.data.as_signed()
            factor = wire(m, Mux(hit, next_ - base, slope))
            product = wire(m, distance * factor)
            total = wire(m, base + wire(m, product >> shift))
            m.d.comb += y.eq(clamp(total, LOWEST, HIGHEST))


class LutStage(wiring.Component):
    """Stage 6: passes values, or replaces them by those of the tables, `WIDTH` per cycle.

    The first elements are looked up while the octet enters the stage. The last results may not have reached
    the registers when the octet advances; they are forwarded then.

    Parameters
    ----------
    floats : bool
        As for `LutUnit`.

    Members
    -------
    cfg : registers of the DPU.
    flow : control signals of all stages.
    entering : values that the stage loads with the octet in stage 5, for each lane.
    may_advance : all elements of the octet in stage 6 have been looked up, or there is nothing to do.
    value : results, for each lane.
    lut : access to the tables.
    """

    cfg: In(config_signature("DPU"))
    flow: In(PipeFlow())
    entering: In(signed(32), init=IDLE).array(LANES)
    may_advance: Out(1)
    value: Out(signed(32)).array(LANES)
    lut: In(LutPort())

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = LutUnit(floats=self._floats)
        flow, values = self.flow, lanes("held", signed(32))
        wiring.connect(m, wiring.flipped(self.cfg), unit.cfg)
        wiring.connect(m, wiring.flipped(self.lut), unit.lut)
        live = held(m, flow.start, lut_live(self.cfg))
        # `step` counts groups of `WIDTH` elements that have been, or are being, looked up.
        step, came, coming = Signal(range(STEPS + 1)), Signal(range(STEPS)), Signal()
        ahead, later = live & flow.advance & flow.valid[5], live & flow.valid[6] & (step != STEPS)
        m.d.comb += [
            self.may_advance.eq(~live | ~flow.valid[6] | (step == STEPS)),
            unit.floats.eq(flow.floats),
            unit.go.eq(ahead | later),
        ]
        m.d.sync += coming.eq(unit.go)
        with into(m, flow, 6):
            m.d.sync += copied(values, self.entering)
        with m.If(later):  # this and an advance of the pipe exclude each other
            m.d.sync += [came.eq(step), step.eq(step + 1)]
            with m.Switch(step):
                for place in range(1, STEPS):
                    with m.Case(place):
                        m.d.comb += copied(unit.x, values[WIDTH * place :][:WIDTH])
        with m.Elif(ahead):
            m.d.sync += [came.eq(0), step.eq(1)]
            m.d.comb += copied(unit.x, self.entering[:WIDTH])
        with m.Elif(flow.start | flow.advance):
            m.d.sync += step.eq(0)
        with m.If(coming & ~flow.advance):
            for lane, value in enumerate(values):
                with m.If(came == lane // WIDTH):
                    m.d.sync += value.eq(unit.y[lane % WIDTH])
        kept = LANES - WIDTH
        last = [Mux(coming, unit.y[k], value) for k, value in enumerate(values[kept:])]
        m.d.comb += copied(self.value, [*values[:kept], *last])
        return m
