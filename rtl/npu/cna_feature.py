"""Feature loader: fetches the input cube of a task and places it in CBUF (docs/hardware.md 1, 2)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from rtl.activity import tell
from rtl.config import NpuConfig
from rtl.npu.cna_argb import ArgbUnpack
from rtl.npu.cna_check import Checker
from rtl.npu.cna_fetch import ATOM_ADDRESS_BITS, BurstReader, loader_members
from rtl.npu.cna_settings import FeatureSettings, Slab
from rtl.npu.cna_types import at_most

GROUP_ROWS = 4
"""Rows of a group with GROUP_LINE_OFF = 0 (H 3.5)."""


class FeatureLoader(wiring.Component):
    """Fetch the rows of a task and write them into CBUF, rows together that are fetched together.

    What would lie in the weights' banks or behind them is fetched, but not stored (docs/hardware.md 2.7).

    The walk is row group (4 rows, or 1 with GROUP_LINE_OFF), surface, row, pixel, in which most of
    memory lies in one piece; two atoms a cycle, one where a row ends between them.  ARGB mode
    fetches one stream and unpacks it.  A cube of width 1 whose surfaces lie together (a row-major
    matrix) is walked as if its surfaces were pixels: memory and CBUF look the same then.

    Members
    -------
    cfg, start, done, busy, read, fill, diag, activity, beats : see `loader_members`; `done`: all rows are
        in CBUF.
    rows_ready : Out(12)     : leading rows of the task that can be read from CBUF.
    asking : Out(1)          : from the cycle after `start` until all rows have been asked for.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(loader_members("CNA_FEATURE") | {"rows_ready": Out(12), "asking": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg = self.cfg
        m.submodules.prepare = self._now = now = FeatureSettings(self._cfg)
        m.submodules.reader = reader = BurstReader(self._cfg)
        m.submodules.unpack = unpack = ArgbUnpack()
        m.submodules.check = check = Checker(cfg, now.checks(cfg))
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, check.diag, wiring.flipped(self.diag))
        m.d.comb += [
            reader.burst_m1.eq(cfg.DMA_CON0.DATA_BURST_LEN),
            check.start.eq(now.checkable),
            now.start.eq(self.start),
        ]
        wiring.connect(m, wiring.flipped(cfg), unpack.cfg)
        wiring.connect(m, wiring.flipped(cfg), now.cfg)

        begin = now.begin
        self._loading = loading = Signal()
        rows_done = Signal()
        self._ask(m, reader, begin)
        self._land(m, reader, unpack, begin)
        m.d.comb += [
            rows_done.eq(self.rows_ready == cfg.DATA_SIZE0.DATAIN_HEIGHT),
            self.done.eq(loading & rows_done & reader.idle & ~self._now.busy & ~check.busy),
            self.busy.eq(self._now.busy | loading),
            self.asking.eq(self._now.busy | (loading & ~reader.asked)),
            self.beats.eq(reader.beats),
        ]
        tell(
            m,
            self.activity,
            ~now.busy & ~loading,
            CBUF=self.fill.valid & ~self.fill.ready,
            # A beat that is being unpacked, the last atoms, and what goes before and after them.
            BUSY=self.fill.valid | unpack.atoms.valid | reader.beat.valid | now.busy | (loading & rows_done),
            MEMORY=loading,
        )
        with m.If(begin):
            m.d.sync += [
                loading.eq(1),
                self.rows_ready.eq(Mux(self._now.nothing, cfg.DATA_SIZE0.DATAIN_HEIGHT, 0)),
            ]
        with m.Elif(self.done):
            m.d.sync += loading.eq(0)
        with m.If(self.start):
            m.d.sync += self.rows_ready.eq(0)
        return m

    # ------------------------------------------------------------------ the walk

    def _ask(self, m: Module, reader: BurstReader, begin: Value) -> None:
        """Offer the runs of the walk: a row of a surface each, or the whole stream in ARGB mode."""
        cfg = self.cfg
        asking = Signal()
        row = Signal(2)  # in the group
        surface = Signal(15, reset_less=True)
        rows_left = Signal(11, reset_less=True)
        row_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        surface_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        group_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        last_row, last_surface, last_group = self._ends(m, "ask", row, surface, rows_left)
        next_surface = Signal(ATOM_ADDRESS_BITS)
        next_group = Signal(ATOM_ADDRESS_BITS)
        m.d.comb += [
            reader.run.valid.eq(asking),
            reader.run.payload.addr.eq(row_addr),
            reader.run.payload.atoms.eq(Mux(self._now.argb, self._now.stream_atoms, self._now.width)),
            next_surface.eq(surface_addr + self._now.surface_pitch),
            next_group.eq(
                group_addr
                + Mux(self._now.grouped, Cat(Const(0, 2), self._now.line_pitch), self._now.line_pitch)
            ),
        ]
        base = cfg.FEATURE_DATA_ADDR.FEATURE_BASE_ADDR[4:]
        with m.If(begin):
            m.d.sync += [
                asking.eq(~self._now.nothing),
                row.eq(0),
                surface.eq(0),
                rows_left.eq(cfg.DATA_SIZE0.DATAIN_HEIGHT),
                row_addr.eq(base),
                surface_addr.eq(base),
                group_addr.eq(base),
            ]
        with m.Elif(asking & reader.run.ready):
            with m.If(self._now.argb):
                m.d.sync += asking.eq(0)
            with m.Elif(~last_row):
                m.d.sync += [row.eq(row + 1), row_addr.eq(row_addr + self._now.line_pitch)]
            with m.Elif(~last_surface):
                m.d.sync += [
                    row.eq(0),
                    surface.eq(surface + 1),
                    row_addr.eq(next_surface),
                    surface_addr.eq(next_surface),
                ]
            with m.Else():
                m.d.sync += [
                    row.eq(0),
                    surface.eq(0),
                    rows_left.eq(rows_left - row - 1),
                    row_addr.eq(next_group),
                    surface_addr.eq(next_group),
                    group_addr.eq(next_group),
                    asking.eq(~last_group),
                ]

    def _ends(self, m: Module, name: str, row: Value, surface: Value, rows_left: Value):
        """Whether a walk is in the last row of its group, its last surface, its last group."""
        last_row = Signal(name=f"{name}_last_row")
        last_surface = Signal(name=f"{name}_last_surface")
        last_group = Signal(name=f"{name}_last_group")
        m.d.comb += [
            last_row.eq(~self._now.grouped | (row == GROUP_ROWS - 1) | (row + 1 == rows_left)),
            last_surface.eq(surface + 1 == self._now.surfaces),
            last_group.eq(rows_left == row + 1),
        ]
        return last_row, last_surface, last_group

    # ------------------------------------------------------------------ placing

    def _sum(self, m: Module, name: str, total: Value) -> Signal:
        """A sum of entries; all sums behind the end of CBUF count as its end, where nothing is stored."""
        entry = Signal(13, name=name)
        m.d.comb += entry.eq(at_most(total, self._cfg.cbuf_entries))
        return entry

    def _land(self, m: Module, reader: BurstReader, unpack: ArgbUnpack, begin: Value) -> None:
        """Place beats, or the atoms of unpacked pixels, and count the rows that are complete."""
        cfg = self.cfg
        fill = self.fill
        fill_pixels = Signal(4, reset_less=True)
        free = Signal()
        m.d.comb += free.eq(~fill.valid | fill.ready)

        # 1. The place of the next atom, in the order of the walk; one pixel row in ARGB mode.
        row = Signal(2)
        surface = Signal(15, reset_less=True)
        rows_left = Signal(11, reset_less=True)
        rows_landed = Signal(11, reset_less=True)  # complete once the fill that waits is taken
        x = Signal(14, reset_less=True)
        entry = Signal(13, reset_less=True)
        row_entry = Signal(13, reset_less=True)
        group_entry = Signal(13, reset_less=True)
        slab_entry = Signal(13, reset_less=True)
        last_row, last_surface, _ = self._ends(m, "land", row, surface, rows_left)
        layout = Signal(Slab)
        m.d.comb += layout.eq(
            Mux(self._now.argb, Slab.ONE, Mux(surface[2:] == self._now.full, self._now.rest, Slab.FULL))
        )
        column, column2 = Signal(2), Signal(2)
        bump, bump2 = Signal(), Signal()  # whether the pixel after the first, second atom starts an entry
        with m.Switch(layout):
            with m.Case(Slab.ONE):
                m.d.comb += [
                    column.eq(x[:2]),
                    column2.eq(x[:2] + 1),
                    bump.eq(x[:2] == 3),
                    bump2.eq(x[:2] == 2),
                ]
            with m.Case(Slab.TWO):
                m.d.comb += [
                    column.eq(Cat(surface[0], x[0])),
                    column2.eq(Cat(surface[0], ~x[0])),
                    bump.eq(x[0]),
                    bump2.eq(~x[0]),
                ]
            with m.Default():
                m.d.comb += [column.eq(surface[:2]), column2.eq(surface[:2]), bump.eq(1), bump2.eq(1)]
        entry2 = self._sum(m, "entry2", entry + bump)
        entry3 = self._sum(m, "entry3", entry2 + bump2)

        # 2. One or two atoms: two when both are in one row.
        half = Signal()
        low = Signal()
        pair = Signal()
        single = Signal()
        placed = Signal()
        row_end = Signal()
        beat = reader.beat.payload
        fits = Signal()
        m.d.comb += [
            low.eq(beat.low & ~half),
            fits.eq(x + 1 != self._now.width),
            pair.eq(low & beat.high & fits),
            single.eq(low & beat.high & ~fits),  # the second half waits for the next cycle
        ]
        with m.If(self._now.argb):
            m.d.comb += [
                unpack.beat.valid.eq(reader.beat.valid),
                reader.beat.ready.eq(unpack.beat.ready),
                unpack.atoms.ready.eq(free),
                placed.eq(free & unpack.atoms.valid),
            ]
        with m.Else():
            m.d.comb += [
                reader.beat.ready.eq(free & ~single),
                placed.eq(free & reader.beat.valid),
                row_end.eq(Mux(pair, x + 2, x + 1) == self._now.width),
            ]
        m.d.comb += [
            unpack.beat.payload.eq(reader.beat.payload),
            unpack.start.eq(begin & self._now.argb & ~self._now.nothing),
            unpack.channels.eq(self._now.channels),
            unpack.wide.eq(self._now.wide),
            unpack.pixels.eq(self._now.pixels),
        ]
        two = Signal()
        m.d.comb += two.eq(Mux(self._now.argb, unpack.atoms.payload.two, pair))
        landing = Signal()  # atoms were placed that have not counted as landed yet, stored or not
        with m.If(free):
            m.d.sync += [landing.eq(placed), fill.valid.eq(placed & (entry < self._now.room))]
        with m.If(placed):
            m.d.sync += [
                half.eq(single & ~self._now.argb),
                fill.payload.entry.eq(entry),
                fill.payload.column.eq(column),
                fill.payload.two.eq(two & (entry2 < self._now.room)),
                fill.payload.entry2.eq(entry2),
                fill.payload.column2.eq(column2),
                fill_pixels.eq(Mux(self._now.argb, unpack.atoms.payload.pixels, 0)),
            ]
            with m.If(self._now.argb):
                m.d.sync += fill.payload.data.eq(unpack.atoms.payload.data)
            with m.Elif(low):
                m.d.sync += fill.payload.data.eq(beat.data)
            with m.Else():
                m.d.sync += fill.payload.data.eq(beat.data[128:])

        # 3. The next place.
        next_row = self._sum(m, "next_row", row_entry + self._now.row_entries)
        new_slab = Signal()
        next_slab = Signal(13)
        m.d.comb += new_slab.eq(surface[:2] == 3)
        slab_sum = self._sum(m, "slab_sum", slab_entry + self._now.slab_entries)
        m.d.comb += next_slab.eq(Mux(new_slab, slab_sum, slab_entry))
        row_start = self._sum(m, "row_start", next_row + slab_entry)
        surface_start = self._sum(m, "surface_start", group_entry + next_slab)
        with m.If(begin):
            m.d.sync += [
                half.eq(0),
                row.eq(0),
                surface.eq(0),
                rows_left.eq(cfg.DATA_SIZE0.DATAIN_HEIGHT),
                rows_landed.eq(0),
                x.eq(0),
                entry.eq(0),
                row_entry.eq(0),
                group_entry.eq(0),
                slab_entry.eq(0),
            ]
        with m.Elif(placed):
            with m.If(~row_end):
                m.d.sync += [x.eq(Mux(two, x + 2, x + 1)), entry.eq(Mux(two, entry3, entry2))]
            with m.Elif(~last_row):
                m.d.sync += [x.eq(0), row.eq(row + 1), row_entry.eq(next_row), entry.eq(row_start)]
            with m.Elif(~last_surface):
                m.d.sync += [
                    x.eq(0),
                    row.eq(0),
                    surface.eq(surface + 1),
                    row_entry.eq(group_entry),
                    slab_entry.eq(next_slab),
                    entry.eq(surface_start),
                ]
            with m.Else():
                m.d.sync += [
                    x.eq(0),
                    row.eq(0),
                    surface.eq(0),
                    rows_left.eq(rows_left - row - 1),
                    rows_landed.eq(rows_landed + row + 1),
                    row_entry.eq(next_row),
                    group_entry.eq(next_row),
                    slab_entry.eq(0),
                    entry.eq(next_row),
                ]

        # 4. Rows count once their last fill is taken; pixel rows may end anywhere in a fill.
        spare = Signal(32, reset_less=True)  # landed pixels of the row that is not complete
        taken = Signal()
        m.d.comb += taken.eq(landing & free)
        with m.If(begin):
            m.d.sync += spare.eq(0)
        with m.Elif(self._now.argb):
            complete = Signal()
            stride = cfg.DMA_CON1.LINE_STRIDE
            m.d.comb += complete.eq(self._loading & (spare >= stride) & ~self._now.nothing)
            with m.If(taken | complete):
                m.d.sync += spare.eq(spare + Mux(taken, fill_pixels, 0) - Mux(complete, stride, 0))
            with m.If(complete):
                m.d.sync += self.rows_ready.eq(self.rows_ready + 1)
        with m.Elif(taken):
            m.d.sync += self.rows_ready.eq(rows_landed)
