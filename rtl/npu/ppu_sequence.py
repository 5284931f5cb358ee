"""Course of a PPU task: groups of surfaces, rows, and the column windows of a row with their places."""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.npu.ppu_lanes import partial_of
from rkcosim.rtl.npu.ppu_windows import ROW_CAPACITY, part_of


class PoolSequence(wiring.Component):
    """States of a task: wait for the first atom, check the settings, then the rows of each group.

    Members
    -------
    start : pulse, the task starts.
    fed : the first atom has arrived.
    refuse : in the cycle after `check`: the task cannot be processed and never ends. Input that is too wide
        hangs on silicon as well [HW 9.9].
    row_ends : with `row`: the last window of the row is emitted, or the row has none.
    emptied : no window waits in front of the open rows.
    finishes : the row is the last one of its group.
    last_group : the group is the last one.
    written : all results have been written.
    check, begin : pulses: the settings are evaluated; one cycle later, if they allow it, the task begins.
    group : pulse, a group of surfaces begins.
    row : level, the windows of a row are emitted.
    row_done : pulse, the windows of a row have reached the open rows.
    advance : with `row_done`: the next row of the group follows.
    group_done : with `row_done`: the group is finished.
    done : pulse, the task has ended.
    idle, waits, prepares, hangs, completes, drains : levels of the other states, for events and counters: no
        task; waits for the first atom; settings or sizes are evaluated; the task was refused; waits for the
        open rows; waits for the writes.
    """

    start: In(1)
    fed: In(1)
    refuse: In(1)
    row_ends: In(1)
    emptied: In(1)
    finishes: In(1)
    last_group: In(1)
    written: In(1)
    check: Out(1)
    begin: Out(1)
    group: Out(1)
    row: Out(1)
    row_done: Out(1)
    advance: Out(1)
    group_done: Out(1)
    done: Out(1)
    idle: Out(1)
    waits: Out(1)
    prepares: Out(1)
    hangs: Out(1)
    completes: Out(1)
    drains: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.start):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += [self.waits.eq(1), self.check.eq(self.fed)]
                with m.If(self.fed):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += [self.prepares.eq(1), self.begin.eq(~self.refuse)]
                m.next = "GROUP"
                with m.If(self.refuse):
                    m.next = "HANG"
            with m.State("HANG"):
                m.d.comb += self.hangs.eq(1)
            with m.State("GROUP"):
                m.d.comb += [self.prepares.eq(1), self.group.eq(1)]
                m.next = "ROW"
            with m.State("ROW"):
                m.d.comb += self.row.eq(1)
                with m.If(self.row_ends):
                    m.next = "ROW_END"
            with m.State("ROW_END"):
                m.d.comb += self.completes.eq(1)
                with m.If(self.emptied):
                    m.d.comb += [
                        self.row_done.eq(1),
                        self.advance.eq(~self.finishes),
                        self.group_done.eq(self.finishes),
                    ]
                    with m.If(~self.finishes):
                        m.next = "ROW"
                    with m.Elif(self.last_group):
                        m.next = "DRAIN"
                    with m.Else():
                        m.next = "GROUP"
            with m.State("DRAIN"):
                m.d.comb += self.drains.eq(1)
                with m.If(self.written):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m


class RowPlaces(wiring.Component):
    """Places of the column windows in the memory of the open rows, which is used cyclically.

    Members
    -------
    group : pulse, a group of surfaces begins; the three sizes are taken over.
    windows, surfaces : number of windows of a row, minus one, and of surfaces of the group.
    new_span : number of places that the open rows of the group need together.
    step : pulse, a column window of one surface is emitted.
    row_done : pulse, all windows of a row have been added.
    closes : with `row_done`: the lowest open row is finished, so its places are free.
    place : place of the next column window, counted along the row.
    last : it is the last one of the row.
    base : first place of the lowest open row.
    places, span : number of places of a row; number of all places.
    """

    group: In(1)
    windows: In(13)
    surfaces: In(4)
    new_span: In(22)
    step: In(1)
    row_done: In(1)
    closes: In(1)
    place: Out(range(ROW_CAPACITY))
    last: Out(1)
    base: Out(range(ROW_CAPACITY))
    places: Out(16)
    span: Out(range(ROW_CAPACITY + 1))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        base, places = Signal(range(ROW_CAPACITY), reset_less=True), Signal(16, reset_less=True)
        span = Signal(range(ROW_CAPACITY + 1), reset_less=True)
        m.d.comb += [
            self.last.eq(self.place == places - 1),
            self.base.eq(base),
            self.places.eq(places),
            self.span.eq(span),
        ]
        with m.If(self.group):
            m.d.sync += [places.eq((self.windows + 1) * self.surfaces), span.eq(self.new_span), base.eq(0)]
        with m.If(self.row_done & self.closes):
            next_base = Signal(17)
            m.d.comb += next_base.eq(base + places)
            m.d.sync += base.eq(Mux(next_base >= span, next_base - span, next_base))
        with m.If(self.group | self.row_done):
            m.d.sync += self.place.eq(0)
        with m.Elif(self.step):
            m.d.sync += self.place.eq(self.place + 1)
        return m


class PartRegister(wiring.Component):
    """Column windows on their way to the open rows: those of the input, or of a row of padding.

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16.

    Members
    -------
    row : level, the windows of a row are emitted.
    inside : the row is one of the input, so its windows come from `columns_emit` and `column`.
    wanted : there are open rows, which need the windows of a row of padding.
    columns_emit, column, columns_end : output of `ColumnWindows`: `column` is a window; the row ends.
    taps : padded taps of each window in a row of padding.
    place, last : place of the next window; it is the last one of the row.
    free : a window can be accepted.
    emit : pulse, a window is accepted.
    ends : with `row`: the row ends with this step.
    full : a window waits in `part`.
    part : the windows.
    """

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        partial = partial_of(floats)
        part = part_of(floats)
        super().__init__(
            {
                "row": In(1),
                "inside": In(1),
                "wanted": In(1),
                "columns_emit": In(1),
                "column": In(partial),
                "columns_end": In(1),
                "taps": In(5),
                "place": In(range(ROW_CAPACITY)),
                "last": In(1),
                "free": Out(1),
                "emit": Out(1),
                "ends": Out(1),
                "full": Out(1),
                "part": Out(stream.Signature(part)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        payload = Signal(part_of(self._floats), reset_less=True)
        m.d.comb += [
            self.part.valid.eq(self.full),
            self.part.payload.eq(payload),
            self.free.eq(~self.full | self.part.ready),
        ]
        with m.If(self.row & self.inside):
            m.d.comb += [self.emit.eq(self.columns_emit), self.ends.eq(self.columns_end)]
            with m.If(self.emit):
                m.d.sync += payload.window.eq(self.column)
        with m.Elif(self.row):
            # Every window of a row of padding has the same number of padded taps.
            m.d.comb += [
                self.emit.eq(self.free & self.wanted),
                self.ends.eq((self.emit & self.last) | ~self.wanted),
            ]
            with m.If(self.emit):
                m.d.sync += [payload.window.real.eq(0), payload.window.padded.eq(self.taps)]
        with m.If(self.emit):
            m.d.sync += [payload.place.eq(self.place), self.full.eq(1)]
        with m.Elif(self.part.ready):
            m.d.sync += self.full.eq(0)
        assertions.ports(m, platform, self)
        return m
