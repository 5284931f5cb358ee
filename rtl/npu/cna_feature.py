"""Feature loader: fetches the input cube of a task and stores it in CBUF [HW 4]."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import drive_activity
from rkcosim.rtl.npu.checks import SPACING, add_checker
from rkcosim.rtl.npu.cna_argb import ArgbUnpack
from rkcosim.rtl.npu.cna_convert import AtomConverter
from rkcosim.rtl.npu.cna_fetch import ATOM_ADDRESS_BITS, AtomBeat, BurstReader, loader_members
from rkcosim.rtl.npu.cna_settings import BEGIN_LATENCY, CHECK_LATENCY, FeatureSettings, Slab
from rkcosim.rtl.npu.cna_types import at_most
from rkcosim.spec.config import NpuConfig

GROUP_ROWS = 4
"""Rows of a row group with GROUP_LINE_OFF = 0 [HW 4.1]."""


class CubeWalk(wiring.Component):
    """Order in which the rows of a cube are fetched: row group, surface, row.

    Members
    -------
    start : In(1)        : pulse, go to the first row; the next three are valid from this cycle on.
    grouped : In(1)      : groups have `GROUP_ROWS` rows, otherwise one.
    surfaces : In(15)    : number of surfaces, at least one.
    rows : In(11)        : number of rows of a surface.
    step : In(1)         : go to the next row, unless `start` is high.
    row, surface : Out(2), Out(15) : row in the group, and surface.
    last_row, last_surface, last_group : Out(1) : the row is the last one of its group in this surface; the
        surface is the last one; the group is the last one.
    """

    start: In(1)
    grouped: In(1)
    surfaces: In(15)
    rows: In(11)
    step: In(1)
    row: Out(2)
    surface: Out(15)
    last_row: Out(1)
    last_surface: Out(1)
    last_group: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(11, reset_less=True)  # rows from the first row of the group on
        m.d.comb += [
            self.last_row.eq(~self.grouped | (self.row == GROUP_ROWS - 1) | self.last_group),
            self.last_surface.eq(self.surface + 1 == self.surfaces),
            self.last_group.eq(left == self.row + 1),
        ]
        with m.If(self.start):
            m.d.sync += [self.row.eq(0), self.surface.eq(0), left.eq(self.rows)]
        with m.Elif(self.step):
            m.d.sync += self.row.eq(Mux(self.last_row, 0, self.row + 1))
            with m.If(self.last_row):
                m.d.sync += self.surface.eq(Mux(self.last_surface, 0, self.surface + 1))
                with m.If(self.last_surface):
                    m.d.sync += left.eq(left - self.row - 1)
        return m


class FeatureLoader(wiring.Component):
    """Fetch the rows of a task and write them into CBUF.

    The order is row group (4 rows, or 1 with GROUP_LINE_OFF), surface, row, pixel, in which most of the data
    is contiguous in memory. Two atoms are written per cycle, or one where a row ends between them. Data that
    would lie in or behind the banks of the weights are fetched, but not stored [HW 4.10].
    ARGB mode fetches one stream and unpacks it. A cube of width 1 with contiguous surfaces (a row-major
    matrix) is read as if its surfaces were pixels, because memory and CBUF have the same contents then.

    Members
    -------
    cfg, start, done, read, fill, diag, activity, beats : see `loader_members`; `done`: all rows are
        in CBUF.
    rows_ready : Out(12)     : number of leading rows of the task that can be read from CBUF.
    asking : Out(1)          : from the cycle after `start` until all rows have been requested.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(loader_members("CNA_FEATURE") | {"rows_ready": Out(12), "asking": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg = self.cfg
        m.submodules.prepare = now = FeatureSettings(self._cfg)
        m.submodules.reader = reader = BurstReader(self._cfg)
        m.submodules.unpack = unpack = ArgbUnpack()
        m.submodules.convert = convert = AtomConverter()
        check = add_checker(m, "CNA", cfg, now.checkable, self.diag, now.checks(cfg), spacing=SPACING)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        m.d.comb += [
            reader.burst_m1.eq(cfg.DMA_CON0.DATA_BURST_LEN),
            now.start.eq(self.start),
        ]
        wiring.connect(m, wiring.flipped(cfg), unpack.cfg, convert.cfg)
        wiring.connect(m, wiring.flipped(cfg), now.cfg)

        begin = now.begin
        loading = Signal()
        rows_done = Signal()
        self._ask(m, now, reader)
        self._land(m, now, reader, unpack, convert, loading)
        m.d.comb += [
            rows_done.eq(self.rows_ready == cfg.DATA_SIZE0.DATAIN_HEIGHT),
            self.done.eq(loading & rows_done & reader.idle & ~now.busy & ~check.busy),
            self.asking.eq(now.busy | (loading & ~reader.asked)),
            self.beats.eq(reader.beats),
        ]
        drive_activity(
            m,
            platform,
            "FeatureLoader",
            self.activity,
            ~now.busy & ~loading,
            CBUF=self.fill.valid & ~self.fill.ready,
            # A beat that is being unpacked, the last atoms, and the steps before and after the load.
            BUSY=Cat(self.fill.valid, unpack.atoms.valid, convert.result.valid, reader.beat.valid).any()
            | now.busy
            | (loading & rows_done),
            MEMORY=loading,
        )
        with m.If(begin):
            m.d.sync += [
                loading.eq(1),
                self.rows_ready.eq(Mux(now.nothing, cfg.DATA_SIZE0.DATAIN_HEIGHT, 0)),
            ]
        with m.Elif(self.done):
            m.d.sync += loading.eq(0)
        with m.If(self.start):
            m.d.sync += self.rows_ready.eq(0)
        for pulse, cycles in (("begin", BEGIN_LATENCY), ("checkable", CHECK_LATENCY)):
            name = f"FeatureLoader.settings.{pulse}"
            assertions.behind(m, platform, getattr(now, pulse), self.start, cycles, name)
        names = ("converts", "argb", "wide", "grouped", "nothing")
        settings = {f"settings.{name}": Value.cast(getattr(now, name)) for name in names}
        assertions.stable(m, platform, settings, "FeatureLoader", after=self.start | now.busy)
        assertions.ports(m, platform, self)
        return m

    # ------------------------------------------------------------------ requests

    def _walk(self, m: Module, name: str, now: FeatureSettings) -> CubeWalk:
        """Walk over the rows of the task, which starts with the load."""
        m.submodules[name] = walk = CubeWalk()
        m.d.comb += [
            walk.start.eq(now.begin),
            walk.grouped.eq(now.grouped),
            walk.surfaces.eq(now.surfaces),
            walk.rows.eq(self.cfg.DATA_SIZE0.DATAIN_HEIGHT),
        ]
        return walk

    def _ask(self, m: Module, now: FeatureSettings, reader: BurstReader) -> None:
        """Offer the runs of the walk: one row of a surface each, or the whole stream in ARGB mode."""
        walk = self._walk(m, "asked", now)
        asking, taken = Signal(), Signal()
        row_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        surface_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        group_addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        next_surface = Signal(ATOM_ADDRESS_BITS)
        next_group = Signal(ATOM_ADDRESS_BITS)
        four_lines = Cat(Const(0, 2), now.line_pitch)
        m.d.comb += [
            taken.eq(asking & reader.run.ready),
            walk.step.eq(taken & ~now.argb),
            reader.run.valid.eq(asking),
            reader.run.payload.addr.eq(row_addr),
            reader.run.payload.atoms.eq(Mux(now.argb, now.stream_atoms, now.width)),
            next_surface.eq(surface_addr + now.surface_pitch),
            next_group.eq(group_addr + Mux(now.grouped, four_lines, now.line_pitch)),
        ]
        base = self.cfg.FEATURE_DATA_ADDR.FEATURE_BASE_ADDR[4:]
        with m.If(now.begin):
            m.d.sync += [
                asking.eq(~now.nothing),
                row_addr.eq(base),
                surface_addr.eq(base),
                group_addr.eq(base),
            ]
        with m.Elif(taken):
            with m.If(now.argb):
                m.d.sync += asking.eq(0)
            with m.Elif(~walk.last_row):
                m.d.sync += row_addr.eq(row_addr + now.line_pitch)
            with m.Elif(~walk.last_surface):
                m.d.sync += [row_addr.eq(next_surface), surface_addr.eq(next_surface)]
            with m.Else():
                m.d.sync += [
                    row_addr.eq(next_group),
                    surface_addr.eq(next_group),
                    group_addr.eq(next_group),
                    asking.eq(~walk.last_group),
                ]

    # ------------------------------------------------------------------ storing

    def _sum(self, m: Module, name: str, total: Value) -> Signal:
        """A sum of entries, limited to the end of CBUF, where nothing is stored."""
        entry = Signal(13, name=name)
        m.d.comb += entry.eq(at_most(total, self._cfg.cbuf_entries))
        return entry

    def _land(
        self,
        m: Module,
        now: FeatureSettings,
        reader: BurstReader,
        unpack: ArgbUnpack,
        convert: AtomConverter,
        loading: Signal,
    ) -> None:
        """Store beats, converted or not, or the atoms of pixels; count the rows that are complete."""
        cfg, fill, begin = self.cfg, self.fill, now.begin
        walk = self._walk(m, "landed", now)
        surface = walk.surface
        fill_pixels = Signal(4, reset_less=True)
        free = Signal()
        m.d.comb += free.eq(~fill.valid | fill.ready)

        # 1. Place of the next atom, in the order of the walk; one row of pixels in ARGB mode.
        rows_landed = Signal(11, reset_less=True)  # complete once the waiting fill is accepted
        x = Signal(14, reset_less=True)
        entry = Signal(13, reset_less=True)
        row_entry = Signal(13, reset_less=True)
        group_entry = Signal(13, reset_less=True)
        slab_entry = Signal(13, reset_less=True)
        layout = Signal(Slab)
        m.d.comb += layout.eq(Mux(now.argb, Slab.ONE, Mux(surface[2:] == now.full, now.rest, Slab.FULL)))
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

        # 2. One or two atoms: two if both are in the same row.
        half = Signal()
        low = Signal()
        pair = Signal()
        single = Signal()
        placed = Signal()
        row_end = Signal()
        beat, beat_valid = Signal(AtomBeat), Signal()
        fits = Signal()
        m.d.comb += [
            low.eq(beat.low & ~half),
            fits.eq(x + 1 != now.width),
            pair.eq(low & beat.high & fits),
            single.eq(low & beat.high & ~fits),  # the second half waits for the next cycle
        ]
        with m.If(now.argb):
            m.d.comb += [
                unpack.beat.valid.eq(reader.beat.valid),
                reader.beat.ready.eq(unpack.beat.ready),
                unpack.atoms.ready.eq(free),
                placed.eq(free & unpack.atoms.valid),
            ]
        with m.Else():
            m.d.comb += [
                placed.eq(free & beat_valid),
                row_end.eq(Mux(pair, x + 2, x + 1) == now.width),
            ]
            with m.If(now.converts):
                m.d.comb += [
                    convert.beat.valid.eq(reader.beat.valid),
                    reader.beat.ready.eq(convert.beat.ready),
                    convert.result.ready.eq(free & ~single),
                    beat_valid.eq(convert.result.valid),
                    beat.eq(convert.result.payload),
                ]
            with m.Else():
                m.d.comb += [
                    reader.beat.ready.eq(free & ~single),
                    beat_valid.eq(reader.beat.valid),
                    beat.eq(reader.beat.payload),
                ]
        m.d.comb += [
            convert.start.eq(begin),
            convert.beat.payload.eq(reader.beat.payload),
            unpack.beat.payload.eq(reader.beat.payload),
            unpack.start.eq(begin & now.argb & ~now.nothing),
            unpack.channels.eq(now.channels),
            unpack.wide.eq(now.wide),
            unpack.pixels.eq(now.pixels),
        ]
        two = Signal()
        m.d.comb += two.eq(Mux(now.argb, unpack.atoms.payload.two, pair))
        landing = Signal()  # atoms that were processed, stored or not, and are not counted yet
        with m.If(free):
            m.d.sync += [landing.eq(placed), fill.valid.eq(placed & (entry < now.room))]
        with m.If(placed):
            m.d.sync += [
                half.eq(single & ~now.argb),
                fill.payload.entry.eq(entry),
                fill.payload.column.eq(column),
                fill.payload.two.eq(two & (entry2 < now.room)),
                fill.payload.entry2.eq(entry2),
                fill.payload.column2.eq(column2),
                fill_pixels.eq(Mux(now.argb, unpack.atoms.payload.pixels, 0)),
            ]
            with m.If(now.argb):
                m.d.sync += fill.payload.data.eq(unpack.atoms.payload.data)
            with m.Elif(low):
                m.d.sync += fill.payload.data.eq(beat.data)
            with m.Else():
                m.d.sync += fill.payload.data.eq(beat.data[128:])

        # 3. The next place.
        next_row = self._sum(m, "next_row", row_entry + now.row_entries)
        new_slab = Signal()
        next_slab = Signal(13)
        m.d.comb += new_slab.eq(surface[:2] == 3)
        slab_sum = self._sum(m, "slab_sum", slab_entry + now.slab_entries)
        m.d.comb += next_slab.eq(Mux(new_slab, slab_sum, slab_entry))
        row_start = self._sum(m, "row_start", next_row + slab_entry)
        surface_start = self._sum(m, "surface_start", group_entry + next_slab)
        m.d.comb += walk.step.eq(placed & row_end)
        with m.If(begin):
            m.d.sync += [half.eq(0), Cat(rows_landed, x, entry, row_entry, group_entry, slab_entry).eq(0)]
        with m.Elif(placed):
            with m.If(~row_end):
                m.d.sync += [x.eq(Mux(two, x + 2, x + 1)), entry.eq(Mux(two, entry3, entry2))]
            with m.Else():
                m.d.sync += x.eq(0)
            with m.If(row_end & ~walk.last_row):
                m.d.sync += [row_entry.eq(next_row), entry.eq(row_start)]
            with m.Elif(row_end & ~walk.last_surface):
                m.d.sync += [
                    row_entry.eq(group_entry),
                    slab_entry.eq(next_slab),
                    entry.eq(surface_start),
                ]
            with m.Elif(row_end):
                m.d.sync += [
                    rows_landed.eq(rows_landed + walk.row + 1),
                    row_entry.eq(next_row),
                    group_entry.eq(next_row),
                    slab_entry.eq(0),
                    entry.eq(next_row),
                ]

        # 4. Rows count once their last fill is accepted; rows of pixels may end anywhere in a fill.
        spare = Signal(32, reset_less=True)  # pixels counted of the row that is not complete
        taken = Signal()
        m.d.comb += taken.eq(landing & free)
        with m.If(begin):
            m.d.sync += spare.eq(0)
        with m.Elif(now.argb):
            complete = Signal()
            stride = cfg.DMA_CON1.LINE_STRIDE
            m.d.comb += complete.eq(loading & (spare >= stride) & ~now.nothing)
            with m.If(taken | complete):
                m.d.sync += spare.eq(spare + Mux(taken, fill_pixels, 0) - Mux(complete, stride, 0))
            with m.If(complete):
                m.d.sync += self.rows_ready.eq(self.rows_ready + 1)
        with m.Elif(taken):
            m.d.sync += self.rows_ready.eq(rows_landed)
