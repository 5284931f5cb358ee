"""DPU, the post-processing unit of a core: face of its pipe and writer (H 5, docs section 4)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import (
    LANES,
    AccOctet,
    BsOctet,
    ControlPort,
    DiagnosticCode,
    DiagnosticPort,
    ElementOctet,
    PpuAtom,
    WritePort,
)
from rtl.npu.dpu_checks import Check, emit_checks
from rtl.npu.dpu_pipe import AluAlgo, DpuPipe, Precision
from rtl.npu.dpu_writer import StripeWriter
from rtl.regfile import LutPort, config_signature

DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution (H 2.4)."""


def group_octets(depthwise: Value, flying: Value, precision: Value) -> Value:
    """Octets of a channel group: 64 channels depthwise, 16 of wider flying data, else 32 (docs 4.1)."""
    return Mux(depthwise, 8, Mux(flying & (precision != Precision.INT8), 2, 4))


class Dpu(wiring.Component):
    """Post-processes the results of CORE or the data of MRDMA and writes them to memory.

    Members
    -------
    cfg : configuration registers, in
    control : ControlPort, in
    acc : stream of AccOctet, in
        Main data from CORE (FLYING_MODE 0).
    main : stream of ElementOctet, in
        Main data from MRDMA (FLYING_MODE 1).
    bs, bn : streams of BsOctet, in
        Operands of BRDMA and NRDMA.
    ew : stream of ElementOctet, in
        Operands of ERDMA.
    core_octets : 4, in
        Octets of a channel group that CORE delivers; 0 while it does not run.
    lut : LutPort, in
        Access to the tables while the DPU is idle; reads at any time.
    write : WritePort, out
    ppu : stream of PpuAtom, out
        The output, for OUTPUT_MODE bit 0.
    diag : DiagnosticPort, out
    rdma_busy : 1, in
        DpuRdma.busy.  The task ends only when DPU_RDMA has: BS and BN data that it does not use are
        dropped meanwhile, main and EW data that it does not use keep it from ending.
    busy_octet : 1, out
        An octet enters the pipe in this cycle.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self.geometry = cfg
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "control": In(ControlPort()),
                "acc": In(stream.Signature(AccOctet)),
                "main": In(stream.Signature(ElementOctet)),
                "bs": In(stream.Signature(BsOctet)),
                "bn": In(stream.Signature(BsOctet)),
                "ew": In(stream.Signature(ElementOctet)),
                "core_octets": In(4),
                "lut": In(LutPort()),
                "write": Out(WritePort()),
                "ppu": Out(stream.Signature(PpuAtom)),
                "diag": Out(DiagnosticPort()),
                "rdma_busy": In(1),
                "busy_octet": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, control = self.cfg, self.control
        m.submodules.pipe = pipe = DpuPipe()
        m.submodules.writer = writer = StripeWriter()
        start, octets = Signal(), Signal(4, reset_less=True)
        flying = Signal(reset_less=True)
        feeding, running, stuck = Signal(), Signal(), Signal(reset_less=True)
        wiring.connect(m, wiring.flipped(cfg), pipe.cfg)
        wiring.connect(m, wiring.flipped(cfg), writer.cfg)
        for name in ("bs", "bn", "ew"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(pipe, name))
        wiring.connect(m, pipe.result, writer.source)
        wiring.connect(m, writer.write, wiring.flipped(self.write))

        # One cycle to derive the group size, on which the other settings rest.
        m.d.sync += start.eq(control.start)
        with m.If(control.start):
            m.d.sync += [
                flying.eq(cfg.FEATURE_MODE_CFG.FLYING_MODE),
                octets.eq(
                    group_octets(
                        cfg.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE,
                        cfg.FEATURE_MODE_CFG.FLYING_MODE,
                        cfg.DATA_FORMAT.IN_PRECISION,
                    )
                ),
            ]
        with m.If(start):
            m.d.sync += [running.eq(1), feeding.eq(1), stuck.eq(self._size_e_wrong(octets))]
        m.d.comb += [
            pipe.start.eq(start),
            pipe.active.eq(running),
            pipe.octets.eq(octets),
            writer.start.eq(start),
            writer.octets.eq(octets),
        ]
        self._feed(m, pipe, start, octets, flying, feeding)

        # Data of MRDMA or ERDMA that nobody takes keeps DPU_RDMA, and so the task, from ending (H5.10).
        m.d.comb += control.done.eq(running & ~feeding & writer.finished & ~stuck & ~self.rdma_busy)
        with m.If(control.done):
            m.d.sync += running.eq(0)
        emit_checks(m, "DPU", cfg, start, self.diag, self._checks(octets))
        return m

    def _feed(
        self, m: Module, pipe: DpuPipe, start: Signal, octets: Signal, flying: Signal, feeding: Signal
    ) -> None:
        """Tag the octets in their order: group, pixel, octet; drop those past the last channel."""
        cfg = self.cfg
        pixels, pixels_left = Signal(26, reset_less=True), Signal(26, reset_less=True)
        last_octet = Signal(10, reset_less=True)  # of the cube
        limit = Signal(14, reset_less=True)  # real channels
        base, octet, slot = Signal(10), Signal(3), Signal(4)
        channel, original = cfg.DATA_CUBE_CHANNEL.CHANNEL, cfg.DATA_CUBE_CHANNEL.ORIG_CHANNEL
        area = (cfg.DATA_CUBE_WIDTH.WIDTH + 1) * (cfg.DATA_CUBE_HEIGHT.HEIGHT + 1)
        with m.If(start):
            m.d.sync += [
                pixels.eq(area - 1),
                pixels_left.eq(area - 1),
                last_octet.eq(channel >> 3),
                limit.eq(Mux(original < channel, original, channel) + 1),
                base.eq(0),
                octet.eq(0),
                slot.eq(0),
            ]

        valid, keep, take = Signal(), Signal(), Signal()
        here, last_kept, last_sent, last_pixel = Signal(11), Signal(), Signal(), Signal()
        room = Signal(range(-8 * 1025, 8 * 1025))
        tag, sums = pipe.source.payload.tag, pipe.source.payload.sum
        m.d.comb += [
            valid.eq(feeding & Mux(flying, self.main.valid, self.acc.valid)),
            here.eq(base + octet),
            keep.eq(here <= last_octet),
            last_sent.eq(octet == octets - 1),
            last_kept.eq(last_sent | (here == last_octet)),
            last_pixel.eq(pixels_left == 0),
            pipe.source.valid.eq(valid & keep),
            take.eq(valid & (pipe.source.ready | ~keep)),
            self.busy_octet.eq(pipe.source.valid & pipe.source.ready),
            self.main.ready.eq(feeding & flying & pipe.source.ready),
            self.acc.ready.eq(feeding & ~flying & (pipe.source.ready | ~keep)),
            sums.eq(self.acc.payload.sum),
            room.eq(limit - (here << 3)),
            tag.octet.eq(octet),
            tag.slot.eq(slot),
            tag.live.eq(Mux(room < 0, 0, Mux(room > LANES, LANES, room))),
            tag.stripe_last.eq(last_kept & (last_pixel | (slot == 15))),
            tag.group_last.eq(last_kept & last_pixel),
            tag.task_last.eq((here == last_octet) & last_pixel),
        ]
        with m.If(flying):
            m.d.comb += pipe.source.payload.main.eq(self.main.payload.data)
        with m.Else():
            m.d.comb += pipe.source.payload.main.eq(self.acc.payload.acc)
        with m.If(take):
            m.d.sync += octet.eq(octet + 1)
            # CORE sends every octet of a group, MRDMA only those with channels.
            with m.If(last_sent | (flying & last_kept)):
                m.d.sync += [octet.eq(0), slot.eq(slot + 1), pixels_left.eq(pixels_left - 1)]
                with m.If(last_pixel):
                    m.d.sync += [slot.eq(0), pixels_left.eq(pixels), base.eq(base + octets)]
                    with m.If(base + octets > last_octet):
                        m.d.sync += feeding.eq(0)

    def _size_e_wrong(self, octets: Signal) -> Value:
        """The live converter needs SIZE_E_1 to match the surfaces of a group (docs 4.10)."""
        cfg = self.cfg
        kind = cfg.DATA_FORMAT.OUT_PRECISION
        surfaces = Mux(
            kind == Precision.INT32, octets << 1, Mux(kind == Precision.INT16, octets, octets >> 1)
        )
        live = ~cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE
        return live & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != surfaces)

    def _checks(self, octets: Signal) -> list[Check]:
        """Settings to be told about; without effect unless docs section 4 says so."""
        cfg = self.cfg
        feature, form, cube = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT, cfg.DATA_CUBE_CHANNEL
        bs, bn, ew = cfg.BS_CFG, cfg.BN_CFG, cfg.EW_CFG
        notch = cfg.DATA_CUBE_NOTCH_ADDR

        def integer(value: Value) -> Value:
            return (value == Precision.INT8) | (value == Precision.INT16) | (value == Precision.INT32)

        def odd_algo(stage: object, name: str) -> Value:
            algo = stage[f"{name}_ALU_ALGO"]
            known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
            return ~stage[f"{name}_BYPASS"] & ~stage[f"{name}_ALU_BYPASS"] & ~known

        ew_on = ~ew.EW_BYPASS
        ew_alu = ew_on & ~ew.EW_OP_BYPASS & ~ew.EW_OP_TYPE
        ew_known = Const(0)
        for algo in AluAlgo:
            ew_known = ew_known | (ew.EW_ALU_ALGO == algo)
        size = DiagnosticCode.SIZE_MISMATCH
        return [
            Check(
                "FEATURE_MODE_CFG",
                feature.COMB_USE
                | feature.TP_EN
                | (feature.RGP_TYPE != 0)
                | feature.NONALIGN
                | ((feature.CONV_MODE != 0) & (feature.CONV_MODE != DEPTHWISE))
                | feature.OUTPUT_MODE[0],
            ),
            Check(
                "DATA_FORMAT",
                ~integer(form.OUT_PRECISION)
                | ~integer(form.IN_PRECISION)
                | ~integer(form.PROC_PRECISION)
                | form.MC_SURF_OUT,
            ),
            Check("DATA_CUBE_HEIGHT", cfg.DATA_CUBE_HEIGHT.MINMAX_CTL != 0),
            Check("DATA_CUBE_NOTCH_ADDR", notch.NOTCH_ADDR_1 != notch.NOTCH_ADDR_0, size),
            Check("BS_CFG", odd_algo(bs, "BS")),
            Check("BS_MUL_CFG", ~bs.BS_BYPASS & ~bs.BS_MUL_BYPASS & cfg.BS_MUL_CFG.BS_TRUNCATE_SRC),
            Check("BS_OW_CFG", (cfg.BS_OW_CFG.RGP_CNTER != 0) | cfg.BS_OW_CFG.TP_ORG_EN),
            Check("BS_OW_CFG", self._size_e_wrong(octets), size),
            Check("WDMA_SIZE_0", cfg.WDMA_SIZE_0.CHANNEL_WDMA != cube.CHANNEL, size),
            Check(
                "WDMA_SIZE_1",
                (cfg.WDMA_SIZE_1.HEIGHT_WDMA != cfg.DATA_CUBE_HEIGHT.HEIGHT)
                | (cfg.WDMA_SIZE_1.WIDTH_WDMA != cfg.DATA_CUBE_WIDTH.WIDTH),
                size,
            ),
            Check("BN_CFG", odd_algo(bn, "BN")),
            Check("BN_MUL_CFG", ~bn.BN_BYPASS & ~bn.BN_MUL_BYPASS & cfg.BN_MUL_CFG.BN_TRUNCATE_SRC),
            Check("EW_CFG", (ew_alu & ~ew_known) | (ew_on & (~ew.EW_LUT_BYPASS | ew.EW_BINARY_EN))),
        ]
