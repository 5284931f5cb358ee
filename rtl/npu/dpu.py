"""DPU, the post-processing unit of a core: face of its pipe and writer (H 5, docs section 4)."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, tell
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
from rtl.npu.dpu_diagnostics import dpu_checks, float_product_stuck, writer_stalls
from rtl.npu.dpu_modes import by_surface, moves_atoms, surfaces_m1
from rtl.npu.dpu_pipe import DpuPipe
from rtl.npu.dpu_types import DEPTHWISE, Precision, group_octets, width_of
from rtl.npu.dpu_writer import StripeWriter
from rtl.regfile import LutPort, config_signature
from rtl.regs.options import OPTION_BITS


def moved_settings(m: Module, cfg: Any, moved: Value) -> Any:
    """Settings in force: those of a task that only moves atoms become int16 in and out (docs 5.7)."""
    signature = config_signature("DPU")
    inner = signature.create()
    m.d.comb += [getattr(inner, name).eq(getattr(cfg, name)) for name in signature.members]
    kind = width_of(cfg.DATA_FORMAT.OUT_PRECISION)
    channel, written = cfg.DATA_CUBE_CHANNEL.CHANNEL, cfg.WDMA_SIZE_0.CHANNEL_WDMA
    whole = (surfaces_m1(channel, kind) << 3) | 7
    with m.If(moved):
        m.d.comb += [
            inner.DATA_FORMAT.OUT_PRECISION.eq(Precision.INT16),
            inner.DATA_FORMAT.PROC_PRECISION.eq(Precision.INT16),
            inner.DATA_CUBE_CHANNEL.CHANNEL.eq(whole),
            inner.DATA_CUBE_CHANNEL.ORIG_CHANNEL.eq(whole),
            inner.WDMA_SIZE_0.CHANNEL_WDMA.eq((surfaces_m1(written, kind) << 3) | 7),
            inner.OUT_CVT_SCALE.OUT_CVT_SCALE.eq(1),
            inner.OUT_CVT_SHIFT.OUT_CVT_SHIFT.eq(0),
            inner.OUT_CVT_OFFSET.OUT_CVT_OFFSET.eq(0),
        ]
    return inner


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
    options : 8, in
        Options of `rtl.regs.options`.
    write : WritePort, out
    ppu : stream of PpuAtom, out
        The output, for OUTPUT_MODE bit 0.
    diag : DiagnosticPort, out
    rdma_busy : 1, in
        DpuRdma.busy.  The task ends only when DPU_RDMA has: BS and BN data that it does not use are
        dropped meanwhile, main and EW data that it does not use keep it from ending.
    rdma_comb_use : 1, in
        Bit 0 of DPU_RDMA's COMB_USE while that runs; COMB_USE of the DPU may repeat it.
    rdma_copies : 4, in
        Copies of a row that DPU_RDMA's unpooling is set to make; 0 without it.
    by_surface : 1, out
        DPU_RDMA is to deliver the data of its 16-bit types surface by surface (docs 4.11).
    busy_octet : 1, out
        An octet enters the pipe in this cycle.
    lacks : 1, out
        An octet, or the task, waits for data that DPU_RDMA reads.
    activity : struct, out
        What it does, for the counters (rtl/regs/counters.rdl).
    moves, writer_moves, float_task : 1, out
        A register of the DPU but for its writer, one of the writer, one of the float unit may change
        (rtl/clock_groups.py).
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
                "options": In(OPTION_BITS),
                "write": Out(WritePort()),
                "ppu": Out(stream.Signature(PpuAtom)),
                "diag": Out(DiagnosticPort()),
                "rdma_busy": In(1),
                "rdma_comb_use": In(1),
                "rdma_copies": In(4),
                "by_surface": Out(1),
                "busy_octet": Out(1),
                "lacks": Out(1),
                "activity": Out(activity_layout("DPU")),
                "moves": Out(1),
                "writer_moves": Out(1),
                "float_task": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control
        copies = Signal(4)
        m.d.comb += copies.eq(Mux(self.cfg.FEATURE_MODE_CFG.FLYING_MODE, self.rdma_copies, 0))
        cfg = moved_settings(m, self.cfg, (copies != 0) & moves_atoms(self.cfg))
        m.submodules.pipe = pipe = DpuPipe()
        m.submodules.writer = writer = StripeWriter()
        start, octets = Signal(), Signal(4, reset_less=True)
        flying = Signal(reset_less=True)
        feeding, running, stuck, strange = Signal(), Signal(), Signal(reset_less=True), Signal()
        wiring.connect(m, cfg, pipe.cfg)
        wiring.connect(m, cfg, writer.cfg)
        for name in ("bs", "bn", "ew", "lut"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(pipe, name))
        wiring.connect(m, pipe.result, writer.source)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, writer.ppu, wiring.flipped(self.ppu))

        # One cycle to derive the group size, on which the other settings rest.
        m.d.sync += start.eq(control.start)
        with m.If(control.start):
            m.d.sync += [
                flying.eq(cfg.FEATURE_MODE_CFG.FLYING_MODE),
                octets.eq(
                    Mux(
                        by_surface(cfg),
                        1,
                        group_octets(
                            cfg.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE, cfg.DATA_FORMAT.IN_PRECISION
                        ),
                    )
                ),
            ]
        with m.If(start):
            stalls = writer_stalls(cfg, copies) | float_product_stuck(cfg)
            m.d.sync += [running.eq(1), feeding.eq(1), stuck.eq(stalls)]
        m.d.comb += [
            pipe.start.eq(start),
            pipe.active.eq(running),
            pipe.options.eq(self.options),
            pipe.octets.eq(octets),
            self.moves.eq(pipe.moves | self.acc.valid | self.main.valid | self.ew.valid),
            self.writer_moves.eq(writer.moves),
            self.float_task.eq(pipe.float_task),
            self.lacks.eq(pipe.lacks | (feeding & flying & ~self.main.valid)),
            writer.start.eq(start),
            writer.octets.eq(octets),
            writer.copies.eq(copies),
            self.by_surface.eq(by_surface(cfg)),
        ]
        # CORE tells how it groups channels; data of another grouping are not looked at (docs 4.1).
        m.d.comb += strange.eq(
            feeding & ~flying & self.acc.valid & (self.core_octets != 0) & (self.core_octets != octets)
        )
        with m.If(strange):
            m.d.sync += stuck.eq(1)
        fed = self._feed(m, cfg, pipe, start, octets, flying, feeding & ~strange)
        with m.If(fed | strange):
            m.d.sync += feeding.eq(0)

        # Data of MRDMA or ERDMA that nobody takes keeps DPU_RDMA, and so the task, from ending (H5.10).
        m.d.comb += control.done.eq(running & ~feeding & writer.finished & ~stuck & ~self.rdma_busy)
        with m.If(control.done):
            m.d.sync += running.eq(0)
        tell(
            m,
            self.activity,
            ~start & ~running,
            OPERAND=self.lacks,
            WRITE=(pipe.result.valid & ~pipe.result.ready) | (running & ~feeding & ~writer.finished),
            BUSY=start | (feeding & Mux(flying, self.main.valid, self.acc.valid)),
            INPUT=feeding & ~flying,
            END=running & ~feeding,
        )
        late = Check("DATA_FORMAT", strange, DiagnosticCode.SIZE_MISMATCH)
        checks = dpu_checks(cfg, self.rdma_comb_use, copies)
        emit_checks(m, "DPU", self.cfg, start, self.diag, checks, late)
        return m

    def _feed(
        self,
        m: Module,
        cfg: Any,
        pipe: DpuPipe,
        start: Signal,
        octets: Signal,
        flying: Signal,
        feeding: Value,
    ) -> Signal:
        """Tag the octets in their order: group, pixel, octet; drop those past the last channel.

        Returns the strobe of the last one.
        """
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

        valid, keep, take, fed = Signal(), Signal(), Signal(), Signal()
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
            pipe.source.payload.clip.eq(self.acc.payload.clip),
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
            for lane in range(LANES):
                acc = self.acc.payload.acc[lane]
                m.d.comb += [
                    pipe.source.payload.main[lane].eq(acc[:32]),
                    pipe.source.payload.high[lane].eq(acc[32:]),
                ]
        with m.If(take):
            m.d.sync += octet.eq(octet + 1)
            # CORE sends every octet of a group, MRDMA only those with channels.
            with m.If(last_sent | (flying & last_kept)):
                m.d.sync += [octet.eq(0), slot.eq(slot + 1), pixels_left.eq(pixels_left - 1)]
                with m.If(last_pixel):
                    m.d.sync += [slot.eq(0), pixels_left.eq(pixels), base.eq(base + octets)]
                    with m.If(base + octets > last_octet):
                        m.d.comb += fed.eq(1)
        return fed
