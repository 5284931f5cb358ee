"""Feature loader: fetches the input cube of a task and places it in CBUF (docs/hardware.md 1, 2)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import CbufFill, DiagnosticCode, DiagnosticPort, ReadPort
from rtl.npu.cna_argb import ArgbUnpack
from rtl.npu.cna_check import Check, Checker
from rtl.npu.cna_fetch import ATOM_ADDRESS_BITS, BurstReader
from rtl.regfile import config_signature
from rtl.regs import registers

GROUP_ROWS = 4
"""Rows of a group with GROUP_LINE_OFF = 0 (H 3.5)."""

DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution; 0 is direct and the others are reserved (H 2.2)."""

RESERVED_PRECISIONS = (4, 5)
"""Precision codes that the CNA reserves (H 3.1)."""


class Slab(enum.IntEnum, shape=2):
    """How the atoms of a pixel lie in entries: a full slab, or a rest of one or two atoms."""

    FULL = 0
    ONE = 1
    TWO = 2


class FeatureLoader(wiring.Component):
    """Fetch the rows of a task and write them into CBUF, rows together that are fetched together.

    The walk is row group (4 rows, or 1 with GROUP_LINE_OFF), surface, row, pixel, in which most of
    memory lies in one piece; two atoms a cycle, one where a row ends between them.  ARGB mode
    fetches one stream and unpacks it.  A cube of width 1 whose surfaces lie together (a row-major
    matrix) is walked as if its surfaces were pixels: memory and CBUF look the same then.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)            : pulse; `cfg` is stable from here to `done`.
    done : Out(1)            : pulse, all rows are in CBUF.
    read : Out(ReadPort())
    fill : Out(stream of CbufFill)
    rows_ready : Out(12)     : leading rows of the task that can be read from CBUF.
    busy : Out(1)
    diag : Out(DiagnosticPort())
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(
            {
                "cfg": In(config_signature("CNA")),
                "start": In(1),
                "done": Out(1),
                "read": Out(ReadPort()),
                "fill": Out(stream.Signature(CbufFill)),
                "rows_ready": Out(12),
                "busy": Out(1),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg = self.cfg
        self._settings(m)
        m.submodules.reader = reader = BurstReader(self._cfg)
        m.submodules.unpack = unpack = ArgbUnpack()
        m.submodules.check = check = Checker(cfg, self._checks())
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, check.diag, wiring.flipped(self.diag))
        m.d.comb += [
            reader.burst_m1.eq(cfg.DMA_CON0.DATA_BURST_LEN),
            check.start.eq(self._prepared),
        ]
        wiring.connect(m, wiring.flipped(cfg), unpack.cfg)

        begin = Signal()
        loading = self._loading
        rows_done = Signal()
        self._prepare(m, begin)
        self._ask(m, reader, begin)
        self._land(m, reader, unpack, begin)
        m.d.comb += [
            rows_done.eq(self.rows_ready == cfg.DATA_SIZE0.DATAIN_HEIGHT),
            self.done.eq(loading & rows_done & reader.idle & ~self._preparing & ~check.busy),
            self.busy.eq(self._preparing | loading),
        ]
        with m.If(begin):
            m.d.sync += [
                loading.eq(1),
                self.rows_ready.eq(Mux(self._nothing, cfg.DATA_SIZE0.DATAIN_HEIGHT, 0)),
            ]
        with m.Elif(self.done):
            m.d.sync += loading.eq(0)
        with m.If(self.start):
            m.d.sync += self.rows_ready.eq(0)
        return m

    # ------------------------------------------------------------------ settings of a task

    def _settings(self, m: Module) -> None:
        """Values that follow from the registers; kept from the start to the end of a task."""
        cfg = self.cfg
        entries = self._cfg.cbuf_entries
        con1 = cfg.CONV_CON1

        def keep(name: str, shape) -> Signal:
            return Signal(shape, name=name, reset_less=True)

        self._argb = keep("argb", 1)
        self._channels = keep("channels", 3)
        self._grouped = keep("grouped", 1)
        self._line_pitch = keep("line_pitch", ATOM_ADDRESS_BITS)
        self._surface_pitch = keep("surface_pitch", ATOM_ADDRESS_BITS)
        self._surfaces = keep("surfaces", 14)
        self._width = keep("width", 14)
        self._full = keep("full_slabs", 13)
        self._rest = keep("rest", Slab)
        self._row_entries = keep("row_entries", 15)
        self._slab_entries = keep("slab_entries", 13)
        self._row_used = keep("row_used", 26)
        self._pixels = keep("pixels", 32)
        self._stream_atoms = keep("stream_atoms", ATOM_ADDRESS_BITS)
        self._footprint = keep("footprint", 40)
        self._nothing = keep("nothing", 1)
        self._preparing = Signal()
        self._prepared = Signal()
        self._loading = Signal()
        self._entries = entries
        self._single_row = (con1.GROUP_LINE_OFF == 1) | (cfg.DATA_SIZE0.DATAIN_HEIGHT == 1)

    def _prepare(self, m: Module, begin: Value) -> None:
        """Set the settings in a few cycles after `start`, then pulse `begin`."""
        cfg = self.cfg
        con1, size = cfg.CONV_CON1, cfg.DATA_SIZE0
        width, height = size.DATAIN_WIDTH, size.DATAIN_HEIGHT
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        surface_stride = Value.cast(cfg.DMA_CON2.SURF_STRIDE).as_unsigned()
        line_stride = cfg.DMA_CON1.LINE_STRIDE
        code = Value.cast(con1.ARGB_IN)
        count = Signal(14, reset_less=True)
        step = Signal(3)
        with m.Switch(step):
            with m.Case(0):
                with m.If(self.start):
                    m.d.sync += [step.eq(1), self._preparing.eq(1)]
            with m.Case(1):
                m.d.sync += [
                    step.eq(2),
                    self._argb.eq((code >= 8) & (code <= 11)),
                    self._channels.eq(code[:2] + 1),
                    self._grouped.eq(~con1.GROUP_LINE_OFF),
                    self._line_pitch.eq(Mux(con1.GROUP_LINE_OFF, line_stride, line_stride >> 2)),
                    self._surface_pitch.eq(line_stride + surface_stride),
                    self._width.eq(width),
                    self._row_entries.eq(cfg.CBUF_CON1.DATA_ENTRIES),
                    self._slab_entries.eq(width),
                    self._pixels.eq(height * line_stride),
                    self._nothing.eq(
                        cfg.CBUF_CON0.DATA_REUSE | (width == 0) | (height == 0) | (channels == 0)
                    ),
                ]
                with m.If(con1.GROUP_LINE_OFF & (surface_stride == 0)):
                    m.d.sync += self._surface_pitch.eq(width)
                with m.Switch(con1.IN_PRECISION):
                    for precision, log2 in ((0, 4), (6, 5), (7, 2)):
                        with m.Case(precision):
                            m.d.sync += self._surfaces.eq((channels + (1 << log2) - 1) >> log2)
                    with m.Default():
                        m.d.sync += self._surfaces.eq((channels + 7) >> 3)
            with m.Case(2):
                # A width of 1 whose surfaces lie together: surfaces take the part of pixels.
                swap = Signal()
                m.d.comb += swap.eq(
                    ~self._argb & self._single_row & (self._width == 1) & (self._surface_pitch == 1)
                )
                m.d.sync += [step.eq(3), count.eq(Mux(swap, 1, self._surfaces))]
                with m.If(swap):
                    m.d.sync += [
                        self._width.eq(self._surfaces),
                        self._slab_entries.eq(self._surfaces),
                        self._surfaces.eq(1),
                    ]
                with m.If(self._pixels == 0):
                    m.d.sync += self._nothing.eq(self._nothing | self._argb)
                m.d.sync += self._stream_atoms.eq((self._pixels * self._channels + 15) >> 4)
            with m.Case(3):
                rest = count[:2]
                m.d.sync += [
                    step.eq(4),
                    self._full.eq(count[2:] + (rest == 3)),
                    self._rest.eq(Mux(rest == 3, 0, rest)),
                ]
            with m.Case(4):
                # Entry counts become remainders of the CBUF size; then the load begins.
                per_atom = Mux(self._rest == Slab.ONE, (self._width + 3) >> 2, (self._width + 1) >> 1)
                rest_used = Mux(self._rest == Slab.FULL, 0, per_atom)
                big_row = self._row_entries >= self._entries
                big_slab = self._slab_entries >= self._entries
                m.d.sync += self._row_used.eq(self._full * self._width + rest_used)
                with m.If(big_row):
                    m.d.sync += self._row_entries.eq(self._row_entries - self._entries)
                with m.If(big_slab):
                    m.d.sync += self._slab_entries.eq(self._slab_entries - self._entries)
                with m.If(~big_row & ~big_slab):
                    m.d.comb += begin.eq(1)
                    m.d.sync += step.eq(5)
            with m.Case(5):
                # What only the checks need.
                slot = Mux(self._channels == 1, 0, Mux(self._channels == 2, 1, 2))
                m.d.sync += [
                    step.eq(6),
                    self._footprint.eq(
                        Mux(
                            self._argb,
                            ((self._pixels << slot) + 15) >> 4,
                            (height - 1)[:11] * cfg.CBUF_CON1.DATA_ENTRIES + self._row_used,
                        )
                    ),
                ]
            with m.Case(6):
                m.d.comb += self._prepared.eq(1)
                m.d.sync += [step.eq(0), self._preparing.eq(0)]

    def _checks(self) -> list[Check]:
        cfg = self.cfg
        con1, banks, size = cfg.CONV_CON1, cfg.CBUF_CON0, cfg.DATA_SIZE0
        argb = self._argb
        code = Value.cast(con1.ARGB_IN)
        precision = Value.cast(con1.IN_PRECISION)
        mode = Value.cast(con1.CONV_MODE)
        R = registers()["CNA"]
        bad_mode = (
            ((code != 0) & ~argb)
            | (argb & ~(con1.NONALIGN_DMA & con1.GROUP_LINE_OFF))
            | (con1.NONALIGN_DMA & ~argb)
            | (argb & (precision != 0))
            | Cat(*(precision == reserved for reserved in RESERVED_PRECISIONS)).any()
            | ((mode != 0) & (mode != DEPTHWISE))
            | con1.DECONV
        )
        uneven = ~argb & self._grouped & (cfg.DMA_CON1.LINE_STRIDE[:2] != 0)
        narrow = argb & (cfg.DMA_CON1.LINE_STRIDE < size.DATAIN_WIDTH)
        available = banks.DATA_BANK * self._cfg.bank_entries
        rows_meet = (size.DATAIN_HEIGHT > 1) & (self._row_used > cfg.CBUF_CON1.DATA_ENTRIES)
        fetched = cfg.FC_DATA_SIZE0
        C = DiagnosticCode
        fetch = ~banks.DATA_REUSE
        return [
            Check((size.DATAIN_WIDTH == 0) | (size.DATAIN_HEIGHT == 0), C.EMPTY_SIZE, R["DATA_SIZE0"]),
            Check(cfg.DATA_SIZE1.DATAIN_CHANNEL == 0, C.EMPTY_SIZE, R["DATA_SIZE1"]),
            Check(bad_mode, C.RESERVED_MODE, R["CONV_CON1"]),
            Check(
                banks.DATA_BANK + banks.WEIGHT_BANK + banks.FC_DATA_BANK > self._cfg.cbuf_banks,
                C.BANK_SUM,
                R["CBUF_CON0"],
            ),
            Check(banks.FC_DATA_BANK != 0, C.RESERVED_MODE, R["CBUF_CON0"]),
            Check(fetch & (self._footprint > available), C.FEATURE_FOOTPRINT, R["CBUF_CON0"]),
            Check(fetch & ~argb & rows_meet, C.FEATURE_FOOTPRINT, R["CBUF_CON1"]),
            Check(
                fetch & (cfg.FEATURE_DATA_ADDR.FEATURE_BASE_ADDR[:4] != 0),
                C.UNALIGNED_ADDRESS,
                R["FEATURE_DATA_ADDR"],
            ),
            Check(fetch & (uneven | narrow), C.SIZE_MISMATCH, R["DMA_CON1"]),
            Check(
                (fetched.DMA_WIDTH != size.DATAIN_WIDTH) | (fetched.DMA_HEIGHT != size.DATAIN_HEIGHT),
                C.SIZE_MISMATCH,
                R["FC_DATA_SIZE0"],
            ),
            Check(
                cfg.FC_DATA_SIZE1.DMA_CHANNEL != cfg.DATA_SIZE1.DATAIN_CHANNEL,
                C.SIZE_MISMATCH,
                R["FC_DATA_SIZE1"],
            ),
            Check(~argb & ~cfg.CVT_CON0.CVT_BYPASS, C.RESERVED_MODE, R["CVT_CON0"]),
            Check(cfg.FC_CON0.FC_SKIP_EN, C.RESERVED_MODE, R["FC_CON0"]),
        ]

    # ------------------------------------------------------------------ the walk

    def _ask(self, m: Module, reader: BurstReader, begin: Value) -> None:
        """Offer the runs of the walk: a row of a surface each, or the whole stream in ARGB mode."""
        cfg = self.cfg
        asking = Signal()
        row = Signal(2)  # in the group
        surface = Signal(14, reset_less=True)
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
            reader.run.payload.atoms.eq(Mux(self._argb, self._stream_atoms, self._width)),
            next_surface.eq(surface_addr + self._surface_pitch),
            next_group.eq(
                group_addr + Mux(self._grouped, Cat(Const(0, 2), self._line_pitch), self._line_pitch)
            ),
        ]
        base = cfg.FEATURE_DATA_ADDR.FEATURE_BASE_ADDR[4:]
        with m.If(begin):
            m.d.sync += [
                asking.eq(~self._nothing),
                row.eq(0),
                surface.eq(0),
                rows_left.eq(cfg.DATA_SIZE0.DATAIN_HEIGHT),
                row_addr.eq(base),
                surface_addr.eq(base),
                group_addr.eq(base),
            ]
        with m.Elif(asking & reader.run.ready):
            with m.If(self._argb):
                m.d.sync += asking.eq(0)
            with m.Elif(~last_row):
                m.d.sync += [row.eq(row + 1), row_addr.eq(row_addr + self._line_pitch)]
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
            last_row.eq(~self._grouped | (row == GROUP_ROWS - 1) | (row + 1 == rows_left)),
            last_surface.eq(surface + 1 == self._surfaces),
            last_group.eq(rows_left == row + 1),
        ]
        return last_row, last_surface, last_group

    # ------------------------------------------------------------------ placing

    def _wrap(self, m: Module, name: str, total: Value) -> Signal:
        """`total` modulo the CBUF size, for totals below twice the size."""
        wrapped = Signal(13, name=name)
        m.d.comb += wrapped.eq(Mux(total >= self._entries, total - self._entries, total))
        return wrapped

    def _land(self, m: Module, reader: BurstReader, unpack: ArgbUnpack, begin: Value) -> None:
        """Place beats, or the atoms of unpacked pixels, and count the rows that are complete."""
        cfg = self.cfg
        fill = self.fill
        fill_rows = Signal(11, reset_less=True)  # rows complete once this fill is taken
        fill_pixels = Signal(4, reset_less=True)
        free = Signal()
        m.d.comb += free.eq(~fill.valid | fill.ready)

        # 1. The place of the next atom, in the order of the walk; one pixel row in ARGB mode.
        row = Signal(2)
        surface = Signal(14, reset_less=True)
        rows_left = Signal(11, reset_less=True)
        rows_landed = Signal(11, reset_less=True)
        x = Signal(14, reset_less=True)
        entry = Signal(13, reset_less=True)
        row_entry = Signal(13, reset_less=True)
        group_entry = Signal(13, reset_less=True)
        slab_entry = Signal(13, reset_less=True)
        last_row, last_surface, last_group = self._ends(m, "land", row, surface, rows_left)
        layout = Signal(Slab)
        m.d.comb += layout.eq(
            Mux(self._argb, Slab.ONE, Mux(surface[2:] == self._full, self._rest, Slab.FULL))
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
        entry2 = self._wrap(m, "entry2", entry + bump)
        entry3 = self._wrap(m, "entry3", entry2 + bump2)

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
            fits.eq(x + 1 != self._width),
            pair.eq(low & beat.high & fits),
            single.eq(low & beat.high & ~fits),  # the second half waits for the next cycle
        ]
        with m.If(self._argb):
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
                row_end.eq(Mux(pair, x + 2, x + 1) == self._width),
            ]
        m.d.comb += [
            unpack.beat.payload.eq(reader.beat.payload),
            unpack.start.eq(begin & self._argb & ~self._nothing),
            unpack.channels.eq(self._channels),
            unpack.pixels.eq(self._pixels),
        ]
        two = Signal()
        m.d.comb += two.eq(Mux(self._argb, unpack.atoms.payload.two, pair))
        with m.If(free):
            m.d.sync += fill.valid.eq(placed)
        with m.If(placed):
            m.d.sync += [
                half.eq(single & ~self._argb),
                fill.payload.entry.eq(entry),
                fill.payload.column.eq(column),
                fill.payload.two.eq(two),
                fill.payload.entry2.eq(entry2),
                fill.payload.column2.eq(column2),
                fill_rows.eq(rows_landed),
                fill_pixels.eq(Mux(self._argb, unpack.atoms.payload.pixels, 0)),
            ]
            with m.If(self._argb):
                m.d.sync += fill.payload.data.eq(unpack.atoms.payload.data)
            with m.Elif(low):
                m.d.sync += fill.payload.data.eq(beat.data)
            with m.Else():
                m.d.sync += fill.payload.data.eq(beat.data[128:])

        # 3. The next place.
        next_row = self._wrap(m, "next_row", row_entry + self._row_entries[:13])
        new_slab = Signal()
        next_slab = Signal(13)
        m.d.comb += new_slab.eq(surface[:2] == 3)
        slab_sum = self._wrap(m, "slab_sum", slab_entry + self._slab_entries)
        m.d.comb += next_slab.eq(Mux(new_slab, slab_sum, slab_entry))
        row_start = self._wrap(m, "row_start", next_row + slab_entry)
        surface_start = self._wrap(m, "surface_start", group_entry + next_slab)
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
                    fill_rows.eq(rows_landed + row + 1),
                    row_entry.eq(next_row),
                    group_entry.eq(next_row),
                    slab_entry.eq(0),
                    entry.eq(next_row),
                ]

        # 4. Rows count once their last fill is taken; pixel rows may end anywhere in a fill.
        spare = Signal(32, reset_less=True)  # landed pixels of the row that is not complete
        taken = Signal()
        m.d.comb += taken.eq(fill.valid & fill.ready)
        with m.If(begin):
            m.d.sync += spare.eq(0)
        with m.Elif(self._argb):
            complete = Signal()
            stride = cfg.DMA_CON1.LINE_STRIDE
            m.d.comb += complete.eq(self._loading & (spare >= stride) & ~self._nothing)
            with m.If(taken | complete):
                m.d.sync += spare.eq(spare + Mux(taken, fill_pixels, 0) - Mux(complete, stride, 0))
            with m.If(complete):
                m.d.sync += self.rows_ready.eq(self.rows_ready + 1)
        with m.Elif(taken):
            m.d.sync += self.rows_ready.eq(fill_rows)
