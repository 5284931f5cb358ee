"""Settings of the feature loader, derived from the registers once per task, and the checks on them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.checks import Check
from rkcosim.rtl.npu.cna_fetch import ATOM_ADDRESS_BITS
from rkcosim.rtl.npu.cna_types import DEPTHWISE, RESERVED, TypeOf, at_most, feature_entries, is_argb, one_of
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig


class Slab(enum.IntEnum, shape=2):
    """How the atoms of a pixel lie in entries: a full slab, or a remainder of one or two atoms."""

    FULL = 0
    ONE = 1
    TWO = 2


BEGIN_LATENCY = 4
"""Cycles from the start of a task until its settings are valid and the load begins."""

CHECK_LATENCY = 6
"""Cycles from the start of a task until its settings can be checked."""


class FeatureSettings(wiring.Component):
    """Settings of a task, available four cycles after its start.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)          : pulse.
    begin : Out(1)         : pulse, the settings are valid from this cycle until the next start.
    checkable : Out(1)     : pulse, `checks` may be evaluated.
    busy : Out(1)          : from the cycle after `start` until after `checkable`.
    converts : Out(1)      : the elements of atoms pass the input converter.
    argb : Out(1)          : first-layer input; `channels` of a pixel, `wide` (16-bit elements), `pixels`
        of the whole stream and `stream_atoms` to fetch are valid in this mode.
    grouped : Out(1)       : rows are fetched in groups of four.
    line_pitch, surface_pitch : Out(28) : pitches in atoms ([HW 4.1.1], [HW 4.1.2]).
    width, surfaces : Out(15) : pixels of a row and atoms of a pixel; exchanged for a row-major
        matrix (see FeatureLoader).
    full : Out(13), rest : Out(Slab) : number of full slabs of a pixel, and form of the remainder.
    row_entries, slab_entries : Out(13) : entries from row to row and from slab to slab, at most all of CBUF.
    room : Out(13)         : entries that can hold features [HW 4.10].
    nothing : Out(1)       : nothing is to be fetched.
    row_used, footprint : Out : entries that one row and the rows of the windows occupy; for the checks.
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    begin: Out(1)
    checkable: Out(1)
    busy: Out(1)
    converts: Out(1)
    argb: Out(1)
    channels: Out(3)
    wide: Out(1)
    pixels: Out(32)
    stream_atoms: Out(ATOM_ADDRESS_BITS)
    grouped: Out(1)
    line_pitch: Out(ATOM_ADDRESS_BITS)
    surface_pitch: Out(ATOM_ADDRESS_BITS)
    width: Out(15)
    surfaces: Out(15)
    full: Out(13)
    rest: Out(Slab)
    row_entries: Out(13)
    slab_entries: Out(13)
    room: Out(13)
    nothing: Out(1)
    row_used: Out(26)
    footprint: Out(40)

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = self._cfg.cbuf_entries
        cfg = self.cfg
        con1, size = cfg.CONV_CON1, cfg.DATA_SIZE0
        width, height = size.DATAIN_WIDTH, size.DATAIN_HEIGHT
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        surface_stride = Value.cast(cfg.DMA_CON2.SURF_STRIDE).as_unsigned()
        line_stride = cfg.DMA_CON1.LINE_STRIDE
        code = Value.cast(con1.ARGB_IN)
        of = TypeOf(con1.IN_PRECISION)
        count = Signal(15, reset_less=True)
        step = Signal(3)
        single_row = con1.GROUP_LINE_OFF | (height == 1)
        with m.Switch(step):
            with m.Case(0):
                with m.If(self.start):
                    m.d.sync += [step.eq(1), self.busy.eq(1)]
            with m.Case(1):
                m.d.sync += [
                    step.eq(2),
                    self.argb.eq(is_argb(con1)),
                    self.converts.eq(~is_argb(con1) & of.int8 & ~cfg.CVT_CON0.CVT_BYPASS),
                    self.wide.eq(of.half_word),
                    self.surfaces.eq(of.atoms(channels)),
                    self.channels.eq(code[:2] + 1),
                    self.grouped.eq(~con1.GROUP_LINE_OFF),
                    self.line_pitch.eq(Mux(con1.GROUP_LINE_OFF, line_stride, line_stride >> 2)),
                    self.surface_pitch.eq(Mux(con1.GROUP_LINE_OFF, width, width << 2) + surface_stride),
                    self.width.eq(width),
                    self.row_entries.eq(at_most(cfg.CBUF_CON1.DATA_ENTRIES, entries)),
                    self.slab_entries.eq(width),
                    self.room.eq(feature_entries(cfg.CBUF_CON0, self._cfg)),
                    self.pixels.eq(height * line_stride),
                    self.nothing.eq(
                        cfg.CBUF_CON0.DATA_REUSE | (width == 0) | (height == 0) | (channels == 0)
                    ),
                ]
            with m.Case(2):
                # Width 1 and contiguous surfaces: surfaces are treated as pixels.
                swap = Signal()
                m.d.comb += swap.eq(~self.argb & single_row & (self.width == 1) & (self.surface_pitch == 1))
                m.d.sync += [step.eq(3), count.eq(Mux(swap, 1, self.surfaces))]
                with m.If(swap):
                    m.d.sync += [
                        self.width.eq(self.surfaces),
                        self.slab_entries.eq(at_most(self.surfaces, entries)),
                        self.surfaces.eq(1),
                    ]
                with m.If(self.pixels == 0):
                    m.d.sync += self.nothing.eq(self.nothing | self.argb)
                m.d.sync += self.stream_atoms.eq((((self.pixels * self.channels) << self.wide) + 15) >> 4)
            with m.Case(3):
                rest = count[:2]
                m.d.sync += [
                    step.eq(4),
                    self.full.eq(count[2:] + (rest == 3)),
                    self.rest.eq(Mux(rest == 3, 0, rest)),
                ]
            with m.Case(4):
                # The load begins in this cycle.
                per_atom = Mux(self.rest == Slab.ONE, (self.width + 3) >> 2, (self.width + 1) >> 1)
                rest_used = Mux(self.rest == Slab.FULL, 0, per_atom)
                m.d.comb += self.begin.eq(1)
                m.d.sync += [step.eq(5), self.row_used.eq(self.full * self.width + rest_used)]
            with m.Case(5):
                # Values that only the checks need.
                slot = Mux(self.channels == 1, 0, Mux(self.channels == 2, 1, 2)) + self.wide
                stride = Value.cast(cfg.CONV_CON3.CONV_Y_STRIDE)
                # Fewer rows than a stride may lie behind the last window.
                behind, spare = Signal(3), Signal(3)
                m.d.comb += [
                    behind.eq(Mux(stride == 0, 0, stride - 1)),
                    spare.eq(Mux(height > behind, behind, 0)),
                ]
                rows_m1 = (height - (height != 0) - spare)[:11]
                m.d.sync += [
                    step.eq(6),
                    self.footprint.eq(
                        Mux(
                            self.argb,
                            (((self.pixels - spare * line_stride)[:32] << slot) + 15) >> 4,
                            rows_m1 * cfg.CBUF_CON1.DATA_ENTRIES + self.row_used,
                        )
                    ),
                ]
            with m.Case(6):
                m.d.comb += self.checkable.eq(1)
                m.d.sync += [step.eq(0), self.busy.eq(0)]
        return m

    def checks(self, cfg: Any) -> list[Check]:
        """Checks on a task, from the configuration and from these settings."""
        con1, banks, size = cfg.CONV_CON1, cfg.CBUF_CON0, cfg.DATA_SIZE0
        argb = self.argb
        code = Value.cast(con1.ARGB_IN)
        of = TypeOf(con1.IN_PRECISION)
        mode = Value.cast(con1.CONV_MODE)
        no_convert = Mux(argb, of.is_float, ~of.int8)
        bad_mode = (
            ((code != 0) & ~argb)
            | (argb & ~(con1.NONALIGN_DMA & con1.GROUP_LINE_OFF))
            | (con1.NONALIGN_DMA & ~argb)
            | one_of(con1.IN_PRECISION, *RESERVED)
            | (Value.cast(con1.IN_PRECISION) != Value.cast(con1.PROC_PRECISION))
            | ((mode != 0) & (mode != DEPTHWISE))
            | ((mode == DEPTHWISE) & (of.int4 | of.tf32))
        )
        uneven = ~argb & self.grouped & (cfg.DMA_CON1.LINE_STRIDE[:2] != 0)
        narrow = argb & (cfg.DMA_CON1.LINE_STRIDE < size.DATAIN_WIDTH)
        available = banks.DATA_BANK * self._cfg.bank_entries
        rows_meet = (size.DATAIN_HEIGHT > 1) & (self.row_used > cfg.CBUF_CON1.DATA_ENTRIES)
        fetched = cfg.FC_DATA_SIZE0
        C = DiagnosticCode
        fetch = ~banks.DATA_REUSE
        return [
            Check("DATA_SIZE0", (size.DATAIN_WIDTH == 0) | (size.DATAIN_HEIGHT == 0), C.EMPTY_SIZE),
            Check("DATA_SIZE1", cfg.DATA_SIZE1.DATAIN_CHANNEL == 0, C.EMPTY_SIZE),
            Check("CONV_CON1", bad_mode),
            Check(
                "CBUF_CON0",
                banks.DATA_BANK + banks.WEIGHT_BANK + banks.FC_DATA_BANK > self._cfg.cbuf_banks,
                C.BANK_SUM,
            ),
            Check("CBUF_CON0", banks.FC_DATA_BANK != 0),
            Check("CBUF_CON0", fetch & (self.footprint > available), C.FEATURE_FOOTPRINT),
            Check("CBUF_CON1", fetch & ~argb & rows_meet, C.FEATURE_FOOTPRINT),
            Check(
                "FEATURE_DATA_ADDR",
                fetch & (cfg.FEATURE_DATA_ADDR.FEATURE_BASE_ADDR[:4] != 0),
                C.UNALIGNED_ADDRESS,
            ),
            Check("DMA_CON1", fetch & (uneven | narrow), C.SIZE_MISMATCH),
            Check(
                "FC_DATA_SIZE0",
                (fetched.DMA_WIDTH != size.DATAIN_WIDTH) | (fetched.DMA_HEIGHT != size.DATAIN_HEIGHT),
                C.SIZE_MISMATCH,
            ),
            Check(
                "FC_DATA_SIZE1",
                cfg.FC_DATA_SIZE1.DMA_CHANNEL != cfg.DATA_SIZE1.DATAIN_CHANNEL,
                C.SIZE_MISMATCH,
            ),
            Check("CVT_CON0", no_convert & ~cfg.CVT_CON0.CVT_BYPASS),
            Check("FC_CON0", cfg.FC_CON0.FC_SKIP_EN),
        ]
