"""CNA: loads features and weights into CBUF and feeds the array cell from there (H 2.2, DESIGN 4)."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, levels_layout
from rtl.bus import DiagnosticMerge
from rtl.config import NpuConfig
from rtl.layouts import CellIn, ControlPort, DiagnosticPort, ReadPort, StripeDone, TaskSize
from rtl.npu.cbuf import Cbuf
from rtl.npu.cna_feature import FeatureLoader
from rtl.npu.cna_weight import WeightLoader
from rtl.npu.csc import SequenceController
from rtl.regfile import config_signature
from rtl.regs.options import OPTION_BITS, option_bit

CBUF_READS = ("f_en0", "f_entry0", "f_en1", "f_entry1", "w_en", "w_entry0", "w_entry1", "w_column")
EVENTS = ("stall_feature", "stall_weight", "stall_acc", "slot_valid", "slot_real")


class Cna(wiring.Component):
    """Both loaders, CBUF and the sequence controller; done when all three have ended.

    Members
    -------
    cfg : In(config_signature("CNA"))
    control : In(ControlPort())
    feature_read, weight_read : Out(ReadPort())
    cell : Out(CellIn)
    stripe : Out(stream of StripeDone)
    size : Out(TaskSize)
    bank_free : In(2)             : accumulator banks that may be filled.
    options : In(8)               : readings of the hardware (rtl/regs/options.py).
    done_feature, done_weight, done_csc : Out(1)
        pulses at the end of each part's own work (interrupts, docs/hardware.md 7.4).
    diag : Out(DiagnosticPort())
    stall_feature, stall_weight, stall_acc, slot_valid, slot_real : Out(1)
        levels of the sequence controller.
    macs, array_macs : Out(12) : as of the sequence controller.
    feature_activity, weight_activity, csc_activity, levels : Out(layout)
        for the counters (rtl/regs/counters.rdl).
    feature_moves, weight_moves, releases : Out(1)
        a register of the loader, what is released may change (rtl/clock_groups.py).
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                "cfg": In(config_signature("CNA")),
                "control": In(ControlPort()),
                "feature_read": Out(ReadPort()),
                "weight_read": Out(ReadPort()),
                "cell": Out(CellIn),
                "stripe": Out(stream.Signature(StripeDone)),
                "size": Out(TaskSize),
                "bank_free": In(2),
                "options": In(OPTION_BITS),
                "done_feature": Out(1),
                "done_weight": Out(1),
                "done_csc": Out(1),
                "diag": Out(DiagnosticPort()),
                "feature_moves": Out(1),
                "weight_moves": Out(1),
                "macs": Out(12),
                "array_macs": Out(12),
                "feature_activity": Out(activity_layout("CNA_FEATURE")),
                "weight_activity": Out(activity_layout("CNA_WEIGHT")),
                "csc_activity": Out(activity_layout("CSC")),
                "levels": Out(levels_layout("FEATURE_BEATS", "WEIGHT_BEATS", "WEIGHT_RING")),
                "releases": Out(1),
                **{name: Out(1) for name in EVENTS},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.feature = feature = FeatureLoader(self._config)
        m.submodules.weight = weight = WeightLoader(self._config)
        m.submodules.cbuf = cbuf = Cbuf(self._config)
        m.submodules.csc = csc = SequenceController(self._config)
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(3)

        # 1. The way of the data: memory, loaders, CBUF, sequence controller, cell.
        wiring.connect(m, feature.read, wiring.flipped(self.feature_read))
        wiring.connect(m, weight.read, wiring.flipped(self.weight_read))
        wiring.connect(m, feature.fill, cbuf.feature_fill)
        wiring.connect(m, weight.fill, cbuf.weight_fill)
        wiring.connect(m, csc.stripe, wiring.flipped(self.stripe))
        m.d.comb += [getattr(cbuf, name).eq(getattr(csc, name)) for name in CBUF_READS]
        m.d.comb += [getattr(self, name).eq(getattr(csc, name)) for name in EVENTS]
        m.d.comb += [
            csc.f_data.eq(cbuf.f_data),
            csc.w_data.eq(cbuf.w_data),
            csc.rows_ready.eq(feature.rows_ready),
            csc.loaded.eq(weight.loaded),
            weight.give_way.eq(feature.asking),
            csc.bank_free.eq(self.bank_free),
            csc.options.eq(self.options),
            weight.three_atoms.eq(self.options[option_bit("d1_three_atoms_int8")]),
            self.cell.eq(csc.cell),
            self.size.eq(csc.size),
            self.feature_moves.eq(feature.busy),
            self.weight_moves.eq(weight.busy),
            self.feature_activity.eq(feature.activity),
            self.weight_activity.eq(weight.activity),
            self.csc_activity.eq(csc.activity),
            self.macs.eq(csc.macs),
            self.array_macs.eq(csc.array_macs),
            self.levels.FEATURE_BEATS.eq(feature.beats),
            self.levels.WEIGHT_BEATS.eq(weight.beats),
            self.levels.WEIGHT_RING.eq(weight.held),
            self.releases.eq(csc.releases),
        ]

        # 2. Start and end. What the convolution has not used when it ends is used no more.
        parts = (feature, weight, csc)
        ended = Signal(len(parts))
        m.d.comb += weight.released.eq(Mux(ended[2], weight.loaded, csc.released))
        for n, (part, name) in enumerate(zip(parts, ("feature", "weight", "csc"), strict=True)):
            wiring.connect(m, wiring.flipped(self.cfg), part.cfg)
            wiring.connect(m, part.diag, diagnostics.i[n])
            m.d.comb += [part.start.eq(self.control.start), getattr(self, f"done_{name}").eq(part.done)]
            with m.If(self.control.start):
                m.d.sync += ended[n].eq(0)
            with m.Elif(part.done):
                m.d.sync += ended[n].eq(1)
        wiring.connect(m, diagnostics.o, wiring.flipped(self.diag))
        all_ended = Signal()
        m.d.sync += all_ended.eq(~self.control.start & ended.all())
        m.d.comb += self.control.done.eq(ended.all() & ~all_ended)
        return m
