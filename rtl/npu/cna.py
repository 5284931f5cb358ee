"""CNA: loads features and weights into CBUF and feeds the array cell from there [HW 2.2]."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import DiagnosticMerge
from rkcosim.rtl.counters import activity_layout, levels_layout
from rkcosim.rtl.layouts import ControlPort, CorePort, DiagnosticPort, ReadPort, SlotStatus
from rkcosim.rtl.npu.cbuf import Cbuf
from rkcosim.rtl.npu.cna_feature import FeatureLoader
from rkcosim.rtl.npu.cna_weight import WeightLoader
from rkcosim.rtl.npu.csc import SequenceController
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs.options import OPTION_BITS, option_bit


class Cna(wiring.Component):
    """Both loaders, CBUF and the sequence controller; done when loaders and controller have ended.

    Members
    -------
    cfg : In(config_signature("CNA"))
    control : In(ControlPort())
    feature_read, weight_read : Out(ReadPort())
    core : Out(CorePort())
    options : In(8)               : interpretations of the hardware (spec/regs/options.py).
    done_feature, done_weight, done_csc : Out(1)
        pulses at the end of each part's own work (interrupts, [HW 10.2]).
    diag : Out(DiagnosticPort())
    status : Out(SlotStatus())
    feature_activity, weight_activity, csc_activity, levels : Out(layout)
        for the counters (spec/regs/counters.rdl).
    """

    cfg: In(config_signature("CNA"))
    control: In(ControlPort())
    feature_read: Out(ReadPort())
    weight_read: Out(ReadPort())
    core: Out(CorePort())
    options: In(OPTION_BITS)
    done_feature: Out(1)
    done_weight: Out(1)
    done_csc: Out(1)
    diag: Out(DiagnosticPort())
    status: Out(SlotStatus())
    feature_activity: Out(activity_layout("CNA_FEATURE"))
    weight_activity: Out(activity_layout("CNA_WEIGHT"))
    csc_activity: Out(activity_layout("CSC"))
    levels: Out(levels_layout("FEATURE_BEATS", "WEIGHT_BEATS", "WEIGHT_RING"))

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.feature = feature = FeatureLoader(self._config)
        m.submodules.weight = weight = WeightLoader(self._config)
        m.submodules.cbuf = cbuf = Cbuf(self._config)
        m.submodules.csc = csc = SequenceController(self._config)
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(4)

        # 1. Data path: memory, loaders, CBUF, sequence controller, cell.
        wiring.connect(m, feature.read, wiring.flipped(self.feature_read))
        wiring.connect(m, weight.read, wiring.flipped(self.weight_read))
        wiring.connect(m, feature.fill, cbuf.feature_fill)
        wiring.connect(m, weight.fill, cbuf.weight_fill)
        wiring.connect(m, csc.reads, cbuf.reads)
        wiring.connect(m, csc.core, wiring.flipped(self.core))
        wiring.connect(m, csc.status, wiring.flipped(self.status))
        m.d.comb += [
            csc.rows_ready.eq(feature.rows_ready),
            csc.loaded.eq(weight.loaded),
            weight.give_way.eq(feature.asking),
            csc.options.eq(self.options),
            weight.three_atoms.eq(self.options[option_bit("d1_three_atoms_int8")]),
            self.feature_activity.eq(feature.activity),
            self.weight_activity.eq(weight.activity),
            self.csc_activity.eq(csc.activity),
            self.levels.FEATURE_BEATS.eq(feature.beats),
            self.levels.WEIGHT_BEATS.eq(weight.beats),
            self.levels.WEIGHT_RING.eq(weight.held),
        ]

        # 2. Start and end.  Weights that the convolution has not used when it ends are not used any more.
        ended = Signal(3)
        m.d.comb += weight.released.eq(Mux(ended[2], weight.loaded, csc.released))
        for n, (part, done) in enumerate(
            ((feature, self.done_feature), (weight, self.done_weight), (csc, self.done_csc))
        ):
            wiring.connect(m, wiring.flipped(self.cfg), part.cfg)
            wiring.connect(m, part.diag, diagnostics.i[n])
            m.d.comb += [part.start.eq(self.control.start), done.eq(part.done)]
            with m.If(self.control.start):
                m.d.sync += ended[n].eq(0)
            with m.Elif(part.done):
                m.d.sync += ended[n].eq(1)
        wiring.connect(m, weight.code_diag, diagnostics.i[3])
        wiring.connect(m, diagnostics.o, wiring.flipped(self.diag))
        all_ended = Signal()
        m.d.sync += all_ended.eq(~self.control.start & ended.all())
        m.d.comb += self.control.done.eq(ended.all() & ~all_ended)
        assertions.ports(m, platform, self)
        return m
