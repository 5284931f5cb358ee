"""DPU, the post-processing unit of a core: connects its pipe and its writer [HW 7]."""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import (
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
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.checks import Check, add_checker
from rkcosim.rtl.npu.dpu_diagnostics import dpu_checks, float_product_stuck, writer_stalls
from rkcosim.rtl.npu.dpu_maximum import MaximumRow
from rkcosim.rtl.npu.dpu_modes import (
    PacketSizes,
    area_of,
    atom_log,
    by_surface,
    moves_atoms,
    reduces,
    surfaces_m1,
)
from rkcosim.rtl.npu.dpu_pipe import DpuPipe
from rkcosim.rtl.npu.dpu_types import DEPTHWISE, Precision, group_octets, width_of
from rkcosim.rtl.npu.dpu_writer import StripeWriter
from rkcosim.rtl.regfile import LutPort, config_signature
from rkcosim.spec.regs.options import OPTION_BITS, option_bit


def moved_settings(m: Module, cfg: Any, moved: Value) -> Any:
    """Effective settings: those of a task that only moves atoms become int16 in and out [HW 8.7]."""
    inner = config_signature("DPU").create()
    wiring.connect(m, wiring.flipped(cfg), wiring.flipped(inner))
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
    """Post-process the results of CORE or the data of MRDMA and write them to memory.

    Parameters
    ----------
    floats : bool
        Whether there is floating-point arithmetic.  Without it a task with a float type raises NOT_BUILT; its
        values pass BS, BN and EW unchanged and are converted as integers.
    external_cell : bool
        Whether the stages of the pipe are an instance of `npu_dpu_cell` (`rkcosim.rtl.npu.dpu_cell`).

    Members
    -------
    cfg : registers of the block.
    control : start and end of a task.
    acc : main data from CORE (FLYING_MODE 0).
    main : main data from MRDMA (FLYING_MODE 1).
    bs, bn : operands of BRDMA and NRDMA.
    ew : operands of ERDMA.
    core_octets : octets of a channel group that CORE delivers; 0 while CORE is idle.
    lut : access to the tables: writes while the DPU is idle; reads at any time.
    options : bits of `rkcosim.spec.regs.options`.
    write : port towards the DMA.
    ppu : the output, for OUTPUT_MODE bit 0.
    diag : reports on the settings.
    rdma_busy : a task of DPU_RDMA runs.  The task ends only after that of DPU_RDMA: unused BS and BN data are
        dropped, unused main and EW data keep both tasks from ending.
    rdma_comb_use : bit 0 of DPU_RDMA's COMB_USE while DPU_RDMA runs; the DPU's COMB_USE may have the same
        bit.
    rdma_copies : copies of a row that DPU_RDMA's unpooling is configured to make; 0 without unpooling.
    by_surface : DPU_RDMA is to deliver the data of its 16-bit types surface by surface [HW 7.12].
    busy_octet : an octet enters the pipe in this cycle.
    stall : an octet, or the task, waits for data that DPU_RDMA reads.
    activity : for the counters (spec/regs/counters.rdl).
    """

    cfg: In(config_signature("DPU"))
    control: In(ControlPort())
    acc: In(stream.Signature(AccOctet))
    main: In(stream.Signature(ElementOctet))
    bs: In(stream.Signature(BsOctet))
    bn: In(stream.Signature(BsOctet))
    ew: In(stream.Signature(ElementOctet))
    core_octets: In(4)
    lut: In(LutPort())
    options: In(OPTION_BITS)
    write: Out(WritePort())
    ppu: Out(stream.Signature(PpuAtom))
    diag: Out(DiagnosticPort())
    rdma_busy: In(1)
    rdma_comb_use: In(1)
    rdma_copies: In(4)
    by_surface: Out(1)
    busy_octet: Out(1)
    stall: Out(1)
    activity: Out(activity_layout("DPU"))

    def __init__(self, *, floats: bool = True, external_cell: bool = False) -> None:
        self._floats, self._external_cell = floats, external_cell
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control
        copies = Signal(4)
        unpools = self.cfg.FEATURE_MODE_CFG.FLYING_MODE & ~reduces(self.cfg)
        m.d.comb += copies.eq(Mux(unpools, self.rdma_copies, 0))
        cfg = moved_settings(m, self.cfg, (copies != 0) & moves_atoms(self.cfg))
        m.submodules.pipe = pipe = DpuPipe(floats=self._floats, external=self._external_cell)
        m.submodules.row = row = MaximumRow()
        m.submodules.writer = writer = StripeWriter()
        start = Signal()
        feeding, running, stuck, strange = Signal(), Signal(), Signal(reset_less=True), Signal()
        wiring.connect(m, cfg, pipe.cfg, row.cfg, writer.cfg)
        for mine, given in ((self.bs, pipe.bs), (self.bn, pipe.bn), (self.lut, pipe.lut)):
            wiring.connect(m, wiring.flipped(mine), given)
        wiring.connect(m, pipe.result, row.source)
        wiring.connect(m, row.result, writer.source)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, writer.ppu, wiring.flipped(self.ppu))

        # One cycle to derive the group size, which the other settings depend on.
        m.d.sync += start.eq(control.start)
        flying = held(m, control.start, cfg.FEATURE_MODE_CFG.FLYING_MODE)
        group = group_octets(cfg.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE, cfg.DATA_FORMAT.IN_PRECISION)
        octets = held(m, control.start, Mux(by_surface(cfg), 1, group), 4)
        area = held(m, control.start, area_of(cfg))
        lines = (cfg.WDMA_SIZE_0.SIZE_C_WDMA + 1) * (cfg.WDMA_SIZE_1.HEIGHT_WDMA + 1)
        packets = PacketSizes(cfg, area, held(m, control.start, lines, name="packet_lines"))
        with m.If(start):
            stalls = writer_stalls(cfg, copies, packets)
            m.d.sync += [running.eq(1), feeding.eq(1), stuck.eq(stalls)]
        m.d.comb += [
            pipe.start.eq(start),
            pipe.active.eq(running),
            pipe.options.eq(self.options),
            pipe.octets.eq(octets),
            self.stall.eq(pipe.stall | (feeding & flying & ~self.main.valid)),
            row.start.eq(start),
            writer.start.eq(start),
            writer.octets.eq(octets),
            writer.copies.eq(copies),
            self.by_surface.eq(by_surface(cfg)),
        ]
        # CORE reports how it groups channels; data with another grouping are not accepted [HW 7.2].
        m.d.comb += strange.eq(
            feeding & ~flying & self.acc.valid & (self.core_octets != 0) & (self.core_octets != octets)
        )
        with m.If(strange):
            m.d.sync += stuck.eq(1)
        self._operand(m, cfg, pipe, start, area, octets)
        stuck_product = float_product_stuck(cfg) if self._floats else Const(0)
        starved = held(m, control.start, stuck_product)  # the product waits for its operand
        fed = self._feed(m, cfg, pipe, start, area, octets, flying, feeding & ~strange & ~starved)
        with m.If(fed | strange):
            m.d.sync += feeding.eq(0)

        # Unused data of MRDMA or ERDMA keep DPU_RDMA, and thereby the task, from ending [HW 8.6].
        m.d.comb += control.done.eq(running & ~feeding & writer.finished & ~stuck & ~self.rdma_busy)
        with m.If(control.done):
            m.d.sync += running.eq(0)
        drive_activity(
            m,
            platform,
            "Dpu",
            self.activity,
            ~start & ~running,
            OPERAND=self.stall,
            WRITE=(pipe.result.valid & ~pipe.result.ready) | (running & ~feeding & ~writer.finished),
            BUSY=start | (feeding & Mux(flying, self.main.valid, self.acc.valid)),
            INPUT=feeding & ~flying,
            END=running & ~feeding,
        )
        late = Check("DATA_FORMAT", strange, DiagnosticCode.SIZE_MISMATCH)
        checks = dpu_checks(cfg, self.rdma_comb_use, copies, packets, floats=self._floats)
        checker = add_checker(m, "DPU", self.cfg, start, self.diag, checks, late=late)
        m.d.comb += checker.late.eq(strange)
        assertions.ports(m, platform, self)
        return m

    def _real_channels(self, m: Module, cfg: Any) -> Value:
        """Number of channels that are written as computed, before those that are OFFSET_PEND [HW 7.11]."""
        channel, original = cfg.DATA_CUBE_CHANNEL.CHANNEL, cfg.DATA_CUBE_CHANNEL.ORIG_CHANNEL
        log, flying = atom_log(cfg), cfg.FEATURE_MODE_CFG.FLYING_MODE
        whole, earlier = Signal(13), Signal()  # the last channel of ORIG_CHANNEL's atom; not the last atom
        for lanes in (2, 3, 4, 5):
            with m.If(log == lanes):
                m.d.comb += [
                    whole.eq(original | (1 << lanes) - 1),
                    earlier.eq(original[lanes:] < channel[lanes:]),
                ]
        anywhere = self.options[option_bit("r2_pend_never_inside_atoms")]
        last = Signal(13)
        m.d.comb += last.eq(Mux(flying & (earlier | anywhere), whole, original))
        return Mux(last < channel, last, channel) + 1

    def _operand(
        self, m: Module, cfg: Any, pipe: DpuPipe, start: Signal, area: Signal, octets: Signal
    ) -> None:
        """Pass ERDMA's operand on; with an option it is 0 for channels past ORIG_CHANNEL [HW 7.11]."""
        anywhere = self.options[option_bit("r2_pend_never_inside_atoms")]
        channel, original = cfg.DATA_CUBE_CHANNEL.CHANNEL, cfg.DATA_CUBE_CHANNEL.ORIG_CHANNEL
        cuts = held(m, start, anywhere & cfg.FEATURE_MODE_CFG.FLYING_MODE)
        end = held(m, start, channel >> 3, 10, name="operand_end")
        limit = held(m, start, original + 1, 14, name="operand_limit")
        left = Signal(26, reset_less=True)
        base, octet, here = Signal(10), Signal(3), Signal(11)
        taken, last = Signal(), Signal()
        m.d.comb += [
            pipe.ew.valid.eq(self.ew.valid),
            pipe.ew.payload.eq(self.ew.payload),
            self.ew.ready.eq(pipe.ew.ready),
            taken.eq(self.ew.valid & self.ew.ready & cuts),
            here.eq(base + octet),
            last.eq((octet == octets - 1) | (here == end)),
        ]
        with m.If(cuts):
            for lane in range(LANES):
                with m.If((here << 3) + lane >= limit):
                    m.d.comb += pipe.ew.payload.data[lane].eq(0)
        with m.If(taken):
            m.d.sync += octet.eq(octet + 1)
            with m.If(last):
                m.d.sync += [octet.eq(0), left.eq(left - 1)]
                with m.If(left == 0):
                    m.d.sync += [left.eq(area - 1), base.eq(base + octets)]
        with m.If(start):
            m.d.sync += [left.eq(area - 1), base.eq(0), octet.eq(0)]

    def _feed(
        self,
        m: Module,
        cfg: Any,
        pipe: DpuPipe,
        start: Signal,
        area: Signal,
        octets: Signal,
        flying: Signal,
        feeding: Value,
    ) -> Signal:
        """Tag the octets in their order: group, pixel, octet; drop those after the last channel.

        Returns the strobe of the last octet.
        """
        pixels_left = Signal(26, reset_less=True)
        base, octet, slot = Signal(10), Signal(3), Signal(4)
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        last_octet = held(m, start, channel >> 3, 10)  # octets of the cube
        limit = held(m, start, self._real_channels(m, cfg), 14)
        with m.If(start):
            m.d.sync += [pixels_left.eq(area - 1), base.eq(0), octet.eq(0), slot.eq(0)]

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
                    m.d.sync += [slot.eq(0), pixels_left.eq(area - 1), base.eq(base + octets)]
                    with m.If(base + octets > last_octet):
                        m.d.comb += fed.eq(1)
        return fed
