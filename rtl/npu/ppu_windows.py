"""Windows of the PPU: which are open along an axis, and what columns and rows of input add to them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import PpuAtom
from rkcosim.rtl.npu.ppu_lanes import IntegerPartial, Partial, PoolTask, Tap, join, partial_of, tap_lanes
from rkcosim.spec.types import OPEN_RESULTS, POOL_ATOM_CYCLES, POOL_RESULT_CYCLES, POOL_SURFACES

ROW_CAPACITY = OPEN_RESULTS
"""Number of partial results of open rows that the PPU holds.

A task needs kernel height x output width, times the surfaces of a group when the DPU feeds the PPU
[HW 9.9]. The capacity is our choice, well above the widths that silicon processes without column tiles
(34 columns at 3x3, [HW 9.9], [HW 13.31]).
"""


class AxisSettings(data.Struct):
    """Kernel, stride and sizes of input and output along an axis, each minus one; padding in front."""

    kernel_m1: 4
    stride_m1: 4
    pad: 3
    in_m1: 13
    out_m1: 13


class Axis(wiring.Component):
    """Position along one axis of the input and the windows that are open at it.

    Window o covers `o*stride - pad + [0, kernel)`. At most one window opens and at most one
    closes at a position, so that counters are sufficient and no division is needed.

    Members
    -------
    settings : constant from `begin` on.
    begin : go to the first position that any window or the input needs.
    advance : go to the next position.
    at : the position, two's complement.
    inside : the position lies in the input.
    opens, closes : a window begins here; the lowest open window ends here.
    open_now : number of windows open here, 0..16.
    lowest : number of the lowest open window.
    finishes : nothing remains to be done after this position.
    """

    settings: In(AxisSettings)
    begin: In(1)
    advance: In(1)
    at: Out(19)
    inside: Out(1)
    opens: Out(1)
    closes: Out(1)
    open_now: Out(5)
    lowest: Out(14)
    finishes: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now, at = self.settings, self.at.as_signed()
        next_begin, low_end = Signal(18, reset_less=True), Signal(18, reset_less=True)
        begun, opened = Signal(14, reset_less=True), Signal(5, reset_less=True)
        m.d.comb += [
            self.inside.eq((at >= 0) & (at <= now.in_m1)),
            self.opens.eq((at == next_begin.as_signed()) & (begun <= now.out_m1)),
            self.open_now.eq(opened + self.opens),
            self.closes.eq((self.open_now != 0) & (at == low_end.as_signed())),
            self.finishes.eq((at >= now.in_m1) & (self.lowest + self.closes > now.out_m1)),
        ]
        with m.If(self.begin):
            first = -now.pad
            m.d.sync += [self.at.eq(first), next_begin.eq(first), low_end.eq(first + now.kernel_m1)]
            m.d.sync += [begun.eq(0), opened.eq(0), self.lowest.eq(0)]
        with m.Elif(self.advance):
            m.d.sync += [self.at.eq(self.at + 1), opened.eq(self.open_now - self.closes)]
            with m.If(self.opens):
                m.d.sync += [begun.eq(begun + 1), next_begin.eq(next_begin + now.stride_m1 + 1)]
            with m.If(self.closes):
                m.d.sync += [self.lowest.eq(self.lowest + 1), low_end.eq(low_end + now.stride_m1 + 1)]
        return m


class ColumnWindows(wiring.Component):
    """One row of the input: every atom is added to the column windows open at it, one per cycle.

    An atom takes `POOL_ATOM_CYCLES`, and `POOL_RESULT_CYCLES` more if it completes an atom of results.  The
    open windows are served meanwhile; an atom takes longer if more windows are open [HW 9.10].

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16.

    Members
    -------
    settings : settings of the axis along the row.
    task : type and method.
    here : number of surfaces that are processed together.
    row : position of the row, for the positions of extrema.
    wanted : there are open rows that need the finished windows.
    results : one of them is complete with this row, so that a finished window is a result.
    begin : go to the beginning of the row.
    run : the row is being processed.
    atom : the input, for each column all surfaces.
    free : a finished window can be accepted.
    emit : `part` is a finished column window of one surface.
    part : the window.
    ends : the row ends with this step.
    starved : there is no atom.
    """

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        partial = partial_of(floats)
        super().__init__(
            {
                "settings": In(AxisSettings),
                "task": In(PoolTask),
                "here": In(4),
                "row": In(3),
                "wanted": In(1),
                "results": In(1),
                "begin": In(1),
                "run": In(1),
                "atom": In(stream.Signature(PpuAtom)),
                "free": In(1),
                "emit": Out(1),
                "part": Out(partial),
                "ends": Out(1),
                "starved": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.axis = axis = Axis()
        m.submodules.windows = windows = Memory(
            shape=partial_of(self._floats), depth=16 * POOL_SURFACES, init=[]
        )
        read, write = windows.read_port(domain="comb"), windows.write_port()
        op_index, surface = Signal(5), Signal(4)
        serves, first, last, needs_emit, step, op_end, column_end = (Signal() for _ in range(7))
        busy, cycles = Signal(4), Signal(5)  # cycles of the atom and its result; of them and the windows
        real, atom = axis.inside, self.atom
        m.d.comb += [
            axis.settings.eq(self.settings),
            axis.begin.eq(self.begin),
            axis.advance.eq(column_end),
            busy.eq(
                Mux(real, POOL_ATOM_CYCLES, 0)
                + Mux(axis.closes & self.wanted & self.results, POOL_RESULT_CYCLES, 0)
            ),
            cycles.eq(Mux(axis.open_now < busy, busy, axis.open_now)),
            serves.eq(op_index < axis.open_now),
            first.eq(axis.opens & (op_index == axis.open_now - 1)),
            last.eq(axis.closes & (op_index == 0)),
            needs_emit.eq(serves & last & self.wanted),
            step.eq(self.run & (~real | atom.valid) & (~needs_emit | self.free)),
            op_end.eq(step & (op_index + 1 >= cycles)),
            column_end.eq(op_end & (surface == self.here - 1)),
            self.emit.eq(step & needs_emit),
            read.addr.eq(Cat((axis.lowest + op_index)[:4], surface[:3])),
            write.addr.eq(read.addr),
            write.en.eq(step & serves),
            atom.ready.eq(op_end & real),
            self.ends.eq(column_end & axis.finishes),
            self.starved.eq(self.run & real & ~atom.valid),
        ]
        with m.If(step & serves):
            lanes = Signal.like(self.part.lanes, init=1)
            with m.If(real):
                index = Cat(axis.at[:3], self.row)
                m.d.comb += lanes.eq(tap_lanes(m, self.task, atom.payload.data, index, floats=self._floats))
            joined = join(m, self.task, first, read.data, Tap(lanes, ~real, real))
            m.d.comb += write.data.eq(joined)
        m.d.comb += self.part.eq(joined)
        with m.If(self.begin):
            m.d.sync += [op_index.eq(0), surface.eq(0)]
        with m.Else():
            with m.If(step):
                m.d.sync += op_index.eq(Mux(op_end, 0, op_index + 1))
            with m.If(op_end):
                m.d.sync += surface.eq(Mux(column_end, 0, surface + 1))
        assertions.ports(m, platform, self)
        return m


class Part(data.Struct):
    """A finished column window of one surface; `place` counts windows and surfaces along the row."""

    window: Partial
    place: range(ROW_CAPACITY)


class IntegerPart(data.Struct):
    """A `Part` in a PPU without floats."""

    window: IntegerPartial
    place: range(ROW_CAPACITY)


def part_of(floats: bool) -> type[data.Struct]:
    """Return the shape of a finished column window in a PPU with or without floats."""
    return Part if floats else IntegerPart


class RowWindows(wiring.Component):
    """Add each finished column window to the open rows: one read-modify-write per cycle.

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16.

    Members
    -------
    task : type and method.
    opens, closes : a row window begins; the lowest open one ends with this row of the input.
    open_now : number of windows open at the row.
    base : first place of the lowest open row.
    places, span : number of places of a row; number of all places, which are used cyclically.
    part : column windows; `ready` in the cycle in which the last row is updated.
    o : finished windows.
    """

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        partial = partial_of(floats)
        part = part_of(floats)
        super().__init__(
            {
                "task": In(PoolTask),
                "opens": In(1),
                "closes": In(1),
                "open_now": In(5),
                "base": In(range(ROW_CAPACITY)),
                "places": In(16),
                "span": In(range(ROW_CAPACITY + 1)),
                "part": In(stream.Signature(part)),
                "o": Out(stream.Signature(partial)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = partial_of(self._floats)
        m.submodules.partial = partial = Memory(shape=shape, depth=ROW_CAPACITY, init=[])
        read, write = partial.read_port(), partial.write_port()
        index = Signal(5)
        base = Signal(range(ROW_CAPACITY), reset_less=True)
        base_now, addr = Signal(range(ROW_CAPACITY)), Signal(range(ROW_CAPACITY))
        valid, go, clash, issue, above = Signal(), Signal(), Signal(), Signal(), Signal(17)
        first, last = Signal(reset_less=True), Signal(reset_less=True)
        at = Signal(range(ROW_CAPACITY), reset_less=True)
        held = Signal(shape, reset_less=True)
        m.d.comb += [
            base_now.eq(Mux(index == 0, self.base, base)),
            addr.eq(base_now + self.part.payload.place),
            above.eq(base_now + self.places),
            go.eq(valid & (~last | self.o.ready)),
            clash.eq(valid & ~last & (at == addr)),
            issue.eq(self.part.valid & (~valid | go) & ~clash),
            read.addr.eq(addr),
            read.en.eq(issue),
            self.part.ready.eq(issue & (index == self.open_now - 1)),
            self.o.valid.eq(valid & last),
            write.addr.eq(at),
            write.en.eq(go & ~last),
        ]
        with m.If(issue):
            m.d.sync += [
                valid.eq(1),
                first.eq(self.opens & (index == self.open_now - 1)),
                last.eq(self.closes & (index == 0)),
                at.eq(addr),
                held.eq(self.part.payload.window),
                index.eq(Mux(self.part.ready, 0, index + 1)),
                base.eq(Mux(above >= self.span, above - self.span, above)),
            ]
        with m.Elif(go):
            m.d.sync += valid.eq(0)
        with m.If(valid):
            joined = join(m, self.task, first, read.data, held)
            m.d.comb += [self.o.payload.eq(joined), write.data.eq(joined)]
        assertions.ports(m, platform, self)
        return m
