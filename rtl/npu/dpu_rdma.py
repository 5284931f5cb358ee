"""DPU_RDMA, the read side of the DPU: connects its four readers [HW 8.6]."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity, levels_layout
from rkcosim.rtl.layouts import (
    LANES,
    BsOctet,
    ControlPort,
    DiagnosticCode,
    DiagnosticPort,
    ElementOctet,
    ReadPort,
)
from rkcosim.rtl.npu.checks import Check, add_checker
from rkcosim.rtl.npu.dpu_modes import surfaces_m1, unpooled_copies
from rkcosim.rtl.npu.dpu_rdma_operands import OperandReader
from rkcosim.rtl.npu.dpu_rdma_stripes import CubeShape, Half, StripeReader, half_of
from rkcosim.rtl.npu.dpu_types import (
    DEPTHWISE,
    Precision,
    Width,
    atoms_of,
    group_octets,
    is_float,
    width_of,
)
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.types import ALTERNATE, RESIDUAL

MUL_ONLY = 0b100
"""DATA_USE of BRDMA and NRDMA with multipliers only."""


class DpuRdma(wiring.Component):
    """Read main data, BS and BN operands and the EW operand for the DPU.

    Parameters
    ----------
    floats : bool
        Whether fp16 and bf16 elements are widened.  Without it they are delivered as int16, and a task that
        reads a float type raises NOT_BUILT.

    Members
    -------
    cfg : registers of the block.
    control : start and end of a task; `done` comes when the DPU has accepted everything that was read.
    mrdma, brdma, nrdma, erdma : ports towards the DMA.
    bs, bn : operands of BS and BN.
    main, ew : main data and the EW operand.
    by_surface : main data of 16 and more bits are sent surface by surface [HW 7.12]; sampled at the start.
    dpu_comb_use : COMB_USE of the DPU, without which both readers cannot deliver main data [HW 8.5].
    copies : copies of a row that unpooling is configured to make; 0 without unpooling.
    busy : a task runs.
    activity, levels : for the counters (spec/regs/counters.rdl).
    diag : reports on the settings.
    """

    cfg: In(config_signature("DPU_RDMA"))
    control: In(ControlPort())
    mrdma: Out(ReadPort())
    brdma: Out(ReadPort())
    nrdma: Out(ReadPort())
    erdma: Out(ReadPort())
    bs: Out(stream.Signature(BsOctet))
    bn: Out(stream.Signature(BsOctet))
    main: Out(stream.Signature(ElementOctet))
    ew: Out(stream.Signature(ElementOctet))
    by_surface: In(1)
    dpu_comb_use: In(1)
    copies: Out(4)
    busy: Out(1)
    activity: Out(activity_layout("DPU_RDMA"))
    levels: Out(levels_layout("MRDMA_STRIPES", "ERDMA_STRIPES", "BRDMA_BEATS"))
    diag: Out(DiagnosticPort())

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, feature = self.cfg, self.cfg.FEATURE_MODE_CFG
        m.submodules.m = main = StripeReader(floats=self._floats)
        m.submodules.e = ew = StripeReader(floats=self._floats)
        m.submodules.b = bs = OperandReader()
        m.submodules.n = bn = OperandReader()
        for reader, port in ((main, self.mrdma), (ew, self.erdma), (bs, self.brdma), (bn, self.nrdma)):
            wiring.connect(m, reader.port, wiring.flipped(port))
        for operands, octets in ((bs, self.bs), (bn, self.bn)):
            wiring.connect(m, operands.octets, wiring.flipped(octets))
        endless = Signal(reset_less=True)  # no main data are delivered [HW 8.5]
        self._elements(m, main, ew, endless)

        # The products of the sizes are computed in the cycle between the start and that of the readers.
        start, running = Signal(), Signal()
        m.d.sync += start.eq(self.control.start)
        with m.If(start):
            m.d.sync += running.eq(1)
        use_b = ~cfg.BRDMA_CFG.BRDMA_DISABLE & (cfg.BRDMA_CFG.BRDMA_DATA_USE[:3] != 0)
        use_n = ~cfg.NRDMA_CFG.NRDMA_DISABLE & (cfg.NRDMA_CFG.NRDMA_DATA_USE[:3] != 0)
        # With a second operand, which BRDMA reads, NRDMA reads nothing [HW 8.3].
        use_n = use_n & ~(cfg.NRDMA_CFG.NRDMA_DATA_USE[1] & ~is_float(feature.PROC_PRECISION))
        # A beat of a flying task takes a block; of 32-bit elements it has four channels [HW 8.3].
        channel, given = cfg.DATA_CUBE_CHANNEL.CHANNEL, width_of(feature.IN_PRECISION)
        quads = feature.FLYING_MODE & (given == Width.BITS32) & ~self.dpu_comb_use
        blocks = Mux(quads, channel >> 2, channel >> 3) + 1
        rest = (channel >= LANES) & (channel[:3] != LANES - 1)  # the last block has fewer channels
        rest = rest & feature.FLYING_MODE & (given == Width.BITS16)
        m.d.comb += [
            main.start.eq(start & ~feature.MRDMA_DISABLE),
            ew.start.eq(start & ~cfg.ERDMA_CFG.ERDMA_DISABLE),
            bs.start.eq(start & use_b),
            bs.base.eq(cfg.BS_BASE_ADDR.BS_BASE_ADDR[4:]),
            bs.blocks.eq(blocks),
            bs.use.eq(cfg.BRDMA_CFG.BRDMA_DATA_USE[:3]),
            bs.quads.eq(quads),
            bs.void.eq(rest & (cfg.BRDMA_CFG.BRDMA_DATA_USE[:3] == MUL_ONLY)),
            bn.start.eq(start & use_n),
            bn.base.eq(cfg.BN_BASE_ADDR.BN_BASE_ADDR[4:]),
            bn.blocks.eq(blocks),
            bn.use.eq(cfg.NRDMA_CFG.NRDMA_DATA_USE[:3]),
            bn.quads.eq(quads),
            bn.void.eq(rest & (cfg.NRDMA_CFG.NRDMA_DATA_USE[:3] == MUL_ONLY)),
        ]
        m.d.comb += self.copies.eq(unpooled_copies(cfg))
        self._cubes(m, main, ew)
        with m.If(start):
            m.d.sync += endless.eq(feature.FLYING_MODE & feature.COMB_USE[0] & ~self._alternate())
        m.d.comb += self.control.done.eq(running & ~endless & main.idle & ew.idle & bs.idle & bn.idle)
        m.d.comb += self.busy.eq(start | running)
        with m.If(self.control.done):
            m.d.sync += running.eq(0)
        streams = (self.main, self.ew, self.bs, self.bn)
        readers = (main, ew, bs, bn)
        drive_activity(
            m,
            platform,
            "DpuRdma",
            self.activity,
            ~self.busy,
            BUSY=start | Cat(s.valid & s.ready for s in streams).any() | self.control.done,
            MEMORY=Cat(~reader.idle & ~reader.octets.valid for reader in (main, ew)).any()
            | (self.busy & ~Cat(reader.octets.valid for reader in readers).any()),
            DPU=Cat(reader.octets.valid for reader in readers).any(),
        )
        m.d.comb += [
            self.levels.MRDMA_STRIPES.eq(main.stripes),
            self.levels.ERDMA_STRIPES.eq(ew.stripes),
            self.levels.BRDMA_BEATS.eq(bs.beats),
        ]
        levels = ((main, main.stripes), (ew, ew.stripes), (bs, bs.beats), (bn, bn.beats))
        for reader, level in levels:
            empty = ~reader.idle | (level == 0)
            assertions.always(m, platform, empty, "DpuRdma.levels: a reader that is idle holds something")
        add_checker(m, "DPU_RDMA", cfg, start, self.diag, self._checks())
        assertions.ports(m, platform, self)
        return m

    def _residual(self) -> Value:
        """Whether MRDMA and ERDMA deliver the EW operand together."""
        feature = self.cfg.FEATURE_MODE_CFG
        return (feature.COMB_USE == RESIDUAL) & ~feature.FLYING_MODE

    def _alternate(self) -> Value:
        """Whether MRDMA and ERDMA deliver the main data together."""
        feature = self.cfg.FEATURE_MODE_CFG
        return (feature.COMB_USE == ALTERNATE) & feature.FLYING_MODE & self.dpu_comb_use

    def _shared(self) -> Value:
        """Whether MRDMA and ERDMA each read every second surface of one cube."""
        return self._residual() | self._alternate()

    def _elements(self, m: Module, main: StripeReader, ew: StripeReader, endless: Signal) -> None:
        """Connect the readers to their streams; a shared cube takes octets of both in the same cycle."""
        shared, alternate = Signal(reset_less=True), Signal(reset_less=True)
        both, taken = Signal(), Signal()
        with m.If(self.control.start):
            m.d.sync += [shared.eq(self._shared()), alternate.eq(self._alternate())]
        m.d.comb += [self.main.payload.eq(main.octets.payload), self.ew.payload.eq(ew.octets.payload)]
        with m.If(shared):
            m.d.comb += [
                both.eq(main.octets.valid & ew.octets.valid),
                self.main.valid.eq(both & alternate),
                self.ew.valid.eq(both & ~alternate),
                taken.eq(both & Mux(alternate, self.main.ready, self.ew.ready)),
                main.octets.ready.eq(taken),
                ew.octets.ready.eq(taken),
            ]
            for lane in range(LANES):
                half = lane // (LANES // 2)
                with m.If(main.mine[half]):
                    m.d.comb += self.ew.payload.data[lane].eq(main.octets.payload.data[lane])
                with m.If(ew.mine[half]):
                    m.d.comb += self.main.payload.data[lane].eq(ew.octets.payload.data[lane])
        with m.Else():
            m.d.comb += [
                self.main.valid.eq(main.octets.valid & ~endless),
                main.octets.ready.eq(self.main.ready & ~endless),
                self.ew.valid.eq(ew.octets.valid),
                ew.octets.ready.eq(self.ew.ready),
            ]

    def _cubes(self, m: Module, main: StripeReader, ew: StripeReader) -> None:
        """Shapes of the two cubes, registered from the configuration."""
        cfg, feature = self.cfg, self.cfg.FEATURE_MODE_CFG
        given = width_of(feature.IN_PRECISION)
        channel, rows_m1 = cfg.DATA_CUBE_CHANNEL.CHANNEL, cfg.DATA_CUBE_HEIGHT.HEIGHT
        start = self.control.start
        width, height = cfg.DATA_CUBE_WIDTH.WIDTH + 1, rows_m1 + 1
        octets, shared, residual, alternate, per_channel = Signal(4), Signal(), Signal(), Signal(), Signal()
        m_kind, e_kind, m_half, e_half = Signal(Width), Signal(Width), Signal(2), Signal(2)
        operand_kind, main_half = Signal(Width), Signal(2)
        m_line, e_line, e_surface = Signal(15), Signal(15), Signal(28)
        with m.If(start):
            m.d.comb += [
                octets.eq(group_octets(feature.CONV_MODE == DEPTHWISE, feature.IN_PRECISION)),
                residual.eq(self._residual()),
                alternate.eq(self._alternate()),
                shared.eq(residual | alternate),
                per_channel.eq((cfg.ERDMA_CFG.ERDMA_DATA_MODE == 0) & ~shared),
                # Codes of sizes start with 4 bits and are one above those of Width, whose last code is 4
                # bits.
                operand_kind.eq(cfg.ERDMA_CFG.ERDMA_DATA_SIZE - 1),
                main_half.eq(half_of(feature.IN_PRECISION, feature.MRDMA_FP16TOFP32_EN)),
                m_kind.eq(Mux(residual, operand_kind, given)),
                e_kind.eq(Mux(alternate, given, operand_kind)),
                # The DPU makes floats of an operand [HW 8.4].
                m_half.eq(Mux(residual, Half.INTEGER, main_half)),
                e_half.eq(Mux(alternate, main_half, Half.INTEGER)),
                m_line.eq(width + cfg.SRC_DMA_CFG.LINE_NOTCH_ADDR),
                e_line.eq(width + cfg.DATA_CUBE_HEIGHT.EW_LINE_NOTCH_ADDR),
                e_surface.eq(
                    Mux(
                        per_channel,
                        cfg.EW_SURF_STRIDE.EW_SURF_STRIDE,
                        e_line * rows_m1 + width + cfg.EW_SURF_NOTCH.EW_SURF_NOTCH,
                    )
                ),
            ]
        # Main data may be sent one surface at a time, and each column more than once.
        alone = self.by_surface & ((given == Width.BITS16) | (given == Width.BITS32))
        both_alone = alone & self._alternate()
        times_m1 = Mux(self.copies != 0, cfg.SRC_DMA_CFG.KERNEL_WIDTH, 0)
        m_surface = m_line * rows_m1 + width + cfg.SURF_NOTCH.SURF_NOTCH_ADDR
        m_cube, e_cube = Signal(CubeShape, reset_less=True), Signal(CubeShape, reset_less=True)
        m.d.comb += [main.cube.eq(m_cube), ew.cube.eq(e_cube)]
        with m.If(start):
            m.d.sync += [
                m_cube.base.eq(cfg.SRC_BASE_ADDR.SRC_BASE_ADDR[4:]),
                m_cube.line_pitch.eq(m_line),
                m_cube.surface_pitch.eq(m_surface),
                m_cube.octets.eq(Mux(alone, 1, octets)),
                m_cube.half.eq(m_half),
                m_cube.per_channel.eq(0),
                m_cube.times_m1.eq(times_m1),
                e_cube.base.eq(cfg.EW_BASE_ADDR.EW_BASE_ADDR[4:]),
                e_cube.line_pitch.eq(e_line),
                e_cube.surface_pitch.eq(e_surface),
                e_cube.octets.eq(Mux(both_alone, 1, octets)),
                e_cube.half.eq(e_half),
                e_cube.per_channel.eq(per_channel),
                e_cube.times_m1.eq(0),
            ]
            for cube, kind, eight in ((m_cube, m_kind, alone), (e_cube, e_kind, both_alone)):
                thin = (kind == Width.BITS4) & ~octets[2:].any()
                m.d.sync += [
                    cube.width.eq(width),
                    cube.pixels_m1.eq(width * height - 1),
                    cube.last_octet.eq(channel >> 3),
                    cube.surfaces.eq(surfaces_m1(channel, kind) + 1),
                    cube.group.eq(atoms_of(Mux(eight, 1, octets), kind) | thin),
                    cube.thin.eq(thin),
                    cube.kind.eq(kind),
                    cube.shared.eq(shared),
                    cube.parity.eq(cube is e_cube),
                ]

    def _checks(self) -> list[Check]:
        """Checks of settings that cause diagnostics; [HW 8] tells what they do instead."""
        cfg, feature, source = self.cfg, self.cfg.FEATURE_MODE_CFG, self.cfg.SRC_DMA_CFG
        main_on = ~feature.MRDMA_DISABLE
        ew_on = ~cfg.ERDMA_CFG.ERDMA_DISABLE
        b_on = ~cfg.BRDMA_CFG.BRDMA_DISABLE & (cfg.BRDMA_CFG.BRDMA_DATA_USE != 0)
        n_on = ~cfg.NRDMA_CFG.NRDMA_DISABLE & (cfg.NRDMA_CFG.NRDMA_DATA_USE != 0)
        narrow = ~cfg.ERDMA_CFG.ERDMA_DATA_SIZE[1]  # 4 or 8 bits
        unaligned = DiagnosticCode.UNALIGNED_ADDRESS
        missing = Check("FEATURE_MODE_CFG", is_float(feature.IN_PRECISION), DiagnosticCode.NOT_BUILT)
        return [
            *(() if self._floats else (missing,)),
            Check(
                "FEATURE_MODE_CFG",
                ((feature.COMB_USE != 0) & ~self._shared())
                | (feature.IN_PRECISION == Precision.RESERVED)
                | (feature.PROC_PRECISION == Precision.RESERVED)
                | (
                    main_on
                    & feature.FLYING_MODE
                    & (feature.IN_PRECISION == Precision.BF16)
                    & ~feature.MRDMA_FP16TOFP32_EN
                )
                | ((feature.CONV_MODE != 0) & (feature.CONV_MODE != DEPTHWISE)),
            ),
            Check("SRC_BASE_ADDR", main_on & (cfg.SRC_BASE_ADDR.SRC_BASE_ADDR[:4] != 0), unaligned),
            Check(
                "SRC_DMA_CFG",
                (self.copies == 0)
                & (
                    source.UNPOOLING_EN
                    | source.POOLING_METHOD
                    | (source.KERNEL_STRIDE_HEIGHT != 0)
                    | (source.KERNEL_STRIDE_WIDTH != 0)
                    | (source.KERNEL_HEIGHT != 0)
                    | (source.KERNEL_WIDTH != 0)
                ),
            ),
            Check(
                "PAD_CFG",
                (cfg.PAD_CFG.PAD_VALUE != 0) | (cfg.PAD_CFG.PAD_TOP != 0) | (cfg.PAD_CFG.PAD_LEFT != 0),
            ),
            Check("BRDMA_CFG", b_on & cfg.BRDMA_CFG.BRDMA_DATA_USE[3]),
            Check("BS_BASE_ADDR", b_on & (cfg.BS_BASE_ADDR.BS_BASE_ADDR[:4] != 0), unaligned),
            Check("NRDMA_CFG", n_on & (cfg.NRDMA_CFG.NRDMA_DATA_USE[3] | cfg.NRDMA_CFG.NRDMA_DATA_USE[1])),
            Check("BN_BASE_ADDR", n_on & (cfg.BN_BASE_ADDR.BN_BASE_ADDR[:4] != 0), unaligned),
            Check(
                "ERDMA_CFG",
                cfg.ERDMA_CFG.ERDMA_SURF_MODE
                | cfg.ERDMA_CFG.ERDMA_NONALIGN
                | (ew_on & cfg.ERDMA_CFG.ERDMA_DATA_MODE[1])
                | (ew_on & self._shared() & (cfg.ERDMA_CFG.ERDMA_DATA_MODE == 0))
                | (ew_on & ~self._alternate() & is_float(feature.PROC_PRECISION) & narrow),
            ),
            Check("EW_BASE_ADDR", ew_on & (cfg.EW_BASE_ADDR.EW_BASE_ADDR[:4] != 0), unaligned),
        ]
