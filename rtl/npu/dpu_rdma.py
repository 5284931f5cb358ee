"""DPU_RDMA, the read side of the DPU: face of its four readers (H 5.10, docs section 5)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import BsOctet, ControlPort, DiagnosticCode, DiagnosticPort, ElementOctet, ReadPort
from rtl.npu.dpu import DEPTHWISE, group_octets
from rtl.npu.dpu_checks import Check, emit_checks
from rtl.npu.dpu_pipe import Precision
from rtl.npu.dpu_rdma_operands import OperandReader
from rtl.npu.dpu_rdma_stripes import StripeReader
from rtl.regfile import config_signature


class DpuRdma(wiring.Component):
    """Reads main data, BS and BN operands and the EW operand for the DPU.

    Members
    -------
    cfg : configuration registers, in
    control : ControlPort, in
        `done` comes when the DPU has taken everything that was read.
    mrdma, brdma, nrdma, erdma : ReadPort, out
    bs, bn : streams of BsOctet, out
    main, ew : streams of ElementOctet, out
    busy : 1, out
        A task runs.
    diag : DiagnosticPort, out
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self.geometry = cfg
        super().__init__(
            {
                "cfg": In(config_signature("DPU_RDMA")),
                "control": In(ControlPort()),
                "mrdma": Out(ReadPort()),
                "brdma": Out(ReadPort()),
                "nrdma": Out(ReadPort()),
                "erdma": Out(ReadPort()),
                "bs": Out(stream.Signature(BsOctet)),
                "bn": Out(stream.Signature(BsOctet)),
                "main": Out(stream.Signature(ElementOctet)),
                "ew": Out(stream.Signature(ElementOctet)),
                "busy": Out(1),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, feature = self.cfg, self.cfg.FEATURE_MODE_CFG
        m.submodules.m = main = StripeReader()
        m.submodules.e = ew = StripeReader()
        m.submodules.b = bs = OperandReader()
        m.submodules.n = bn = OperandReader()
        for reader, port, octets in (
            (main, self.mrdma, self.main),
            (ew, self.erdma, self.ew),
            (bs, self.brdma, self.bs),
            (bn, self.nrdma, self.bn),
        ):
            wiring.connect(m, reader.port, wiring.flipped(port))
            wiring.connect(m, reader.octets, wiring.flipped(octets))

        # The products of the sizes take the cycle between the start and that of the readers.
        start, running = Signal(), Signal()
        m.d.sync += start.eq(self.control.start)
        with m.If(start):
            m.d.sync += running.eq(1)
        use_b = ~cfg.BRDMA_CFG.BRDMA_DISABLE & (cfg.BRDMA_CFG.BRDMA_DATA_USE[:3] != 0)
        use_n = ~cfg.NRDMA_CFG.NRDMA_DISABLE & (cfg.NRDMA_CFG.NRDMA_DATA_USE[:3] != 0)
        blocks = (cfg.DATA_CUBE_CHANNEL.CHANNEL >> 3) + 1
        m.d.comb += [
            main.start.eq(start & ~feature.MRDMA_DISABLE),
            ew.start.eq(start & ~cfg.ERDMA_CFG.ERDMA_DISABLE),
            bs.start.eq(start & use_b),
            bs.base.eq(cfg.BS_BASE_ADDR.BS_BASE_ADDR[4:]),
            bs.blocks.eq(blocks),
            bs.use.eq(cfg.BRDMA_CFG.BRDMA_DATA_USE[:3]),
            bn.start.eq(start & use_n),
            bn.base.eq(cfg.BN_BASE_ADDR.BN_BASE_ADDR[4:]),
            bn.blocks.eq(blocks),
            bn.use.eq(cfg.NRDMA_CFG.NRDMA_DATA_USE[:3]),
        ]
        self._cubes(m, main, ew)
        m.d.comb += self.control.done.eq(running & main.idle & ew.idle & bs.idle & bn.idle)
        m.d.comb += self.busy.eq(start | running)
        with m.If(self.control.done):
            m.d.sync += running.eq(0)
        emit_checks(m, "DPU_RDMA", cfg, start, self.diag, self._checks())
        return m

    def _cubes(self, m: Module, main: StripeReader, ew: StripeReader) -> None:
        """Shapes of the two cubes, registered from the configuration."""
        cfg, feature = self.cfg, self.cfg.FEATURE_MODE_CFG
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        width = Signal(14)
        height = Signal(14)
        octets = Signal(4)
        m.d.comb += [
            width.eq(cfg.DATA_CUBE_WIDTH.WIDTH + 1),
            height.eq(cfg.DATA_CUBE_HEIGHT.HEIGHT + 1),
            octets.eq(
                group_octets(feature.CONV_MODE == DEPTHWISE, feature.FLYING_MODE, feature.IN_PRECISION)
            ),
        ]
        m_wide, e_wide, per_channel = Signal(2), Signal(2), Signal()
        m_line, e_line, e_surface = Signal(15), Signal(15), Signal(28)
        m.d.comb += [
            m_wide.eq(
                Mux(
                    feature.IN_PRECISION == Precision.INT32,
                    2,
                    Mux(feature.IN_PRECISION == Precision.INT16, 1, 0),
                )
            ),
            e_wide.eq(Mux(cfg.ERDMA_CFG.ERDMA_DATA_SIZE == 0, 0, cfg.ERDMA_CFG.ERDMA_DATA_SIZE - 1)),
            per_channel.eq(cfg.ERDMA_CFG.ERDMA_DATA_MODE == 0),
            m_line.eq(width + cfg.SRC_DMA_CFG.LINE_NOTCH_ADDR),
            e_line.eq(width + cfg.DATA_CUBE_HEIGHT.EW_LINE_NOTCH_ADDR),
            e_surface.eq(
                cfg.EW_SURF_STRIDE.EW_SURF_STRIDE + Mux(per_channel, 0, cfg.EW_SURF_NOTCH.EW_SURF_NOTCH)
            ),
        ]
        for reader, wide, line, base, one in (
            (main, m_wide, m_line, cfg.SRC_BASE_ADDR.SRC_BASE_ADDR, Const(0)),
            (ew, e_wide, e_line, cfg.EW_BASE_ADDR.EW_BASE_ADDR, per_channel),
        ):
            shape = Signal.like(reader.cube, name="m_cube" if reader is main else "e_cube", reset_less=True)
            surface = m_line * height + cfg.SURF_NOTCH.SURF_NOTCH_ADDR if reader is main else e_surface
            m.d.comb += reader.cube.eq(shape)
            with m.If(self.control.start):
                m.d.sync += [
                    shape.base.eq(base[4:]),
                    shape.line_pitch.eq(line),
                    shape.surface_pitch.eq(surface),
                    shape.width.eq(width),
                    shape.pixels_m1.eq(width * height - 1),
                    shape.octets.eq(octets),
                    shape.last_octet.eq(channel >> 3),
                    shape.surfaces.eq(
                        Mux(wide == 2, channel >> 2, Mux(wide == 1, channel >> 3, channel >> 4)) + 1
                    ),
                    shape.wide.eq(wide),
                    shape.per_channel.eq(one),
                ]

    def _checks(self) -> list[Check]:
        """Settings to be told about; what they do instead is in docs section 5."""
        cfg, feature = self.cfg, self.cfg.FEATURE_MODE_CFG
        main_on = ~feature.MRDMA_DISABLE
        ew_on = ~cfg.ERDMA_CFG.ERDMA_DISABLE
        b_on = ~cfg.BRDMA_CFG.BRDMA_DISABLE & (cfg.BRDMA_CFG.BRDMA_DATA_USE != 0)
        n_on = ~cfg.NRDMA_CFG.NRDMA_DISABLE & (cfg.NRDMA_CFG.NRDMA_DATA_USE != 0)
        unaligned = DiagnosticCode.UNALIGNED_ADDRESS

        def integer(value: Value) -> Value:
            return (value == Precision.INT8) | (value == Precision.INT16) | (value == Precision.INT32)

        return [
            Check(
                "FEATURE_MODE_CFG",
                (feature.COMB_USE != 0)
                | ~integer(feature.IN_PRECISION)
                | ~integer(feature.PROC_PRECISION)
                | feature.MRDMA_FP16TOFP32_EN
                | ((feature.CONV_MODE != 0) & (feature.CONV_MODE != DEPTHWISE)),
            ),
            Check("SRC_BASE_ADDR", main_on & (cfg.SRC_BASE_ADDR.SRC_BASE_ADDR[:4] != 0), unaligned),
            Check("SRC_DMA_CFG", cfg.SRC_DMA_CFG.UNPOOLING_EN),
            Check("BRDMA_CFG", b_on & cfg.BRDMA_CFG.BRDMA_DATA_USE[3]),
            Check("BS_BASE_ADDR", b_on & (cfg.BS_BASE_ADDR.BS_BASE_ADDR[:4] != 0), unaligned),
            Check("NRDMA_CFG", n_on & (cfg.NRDMA_CFG.NRDMA_DATA_USE[3] | cfg.NRDMA_CFG.NRDMA_DATA_USE[1])),
            Check("BN_BASE_ADDR", n_on & (cfg.BN_BASE_ADDR.BN_BASE_ADDR[:4] != 0), unaligned),
            Check(
                "ERDMA_CFG",
                ew_on
                & (
                    cfg.ERDMA_CFG.ERDMA_DATA_MODE[1]
                    | (cfg.ERDMA_CFG.ERDMA_DATA_SIZE == 0)
                    | cfg.ERDMA_CFG.ERDMA_SURF_MODE
                    | cfg.ERDMA_CFG.ERDMA_NONALIGN
                ),
            ),
            Check("EW_BASE_ADDR", ew_on & (cfg.EW_BASE_ADDR.EW_BASE_ADDR[:4] != 0), unaligned),
        ]
