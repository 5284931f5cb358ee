"""What the settings of the DPU and of DPU_RDMA make the writer do (docs 4.10, 4.11, 5.7)."""

from typing import Any

from amaranth.hdl import Cat, Mux, Value

from rtl.npu.dpu_types import DEPTHWISE, Precision, Width, is_float, width_of, written_surfaces

PACKET_M1 = 7
"""Atoms of a packet, minus one: what SIZE_E_1 says when packets are made."""

STRIPE = 16
"""Pixels that the writer takes together."""

INT32_ATOMS = 4
"""Atoms of int32 that 16 channels of a pixel take."""


def makes_packets(cfg: Any) -> Value:
    """TP_EN or TP_ORG_EN has an effect (docs 4.11)."""
    feature, form, ew = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT, cfg.EW_CFG
    flying = feature.FLYING_MODE
    asked = cfg.BS_OW_CFG.TP_ORG_EN | (feature.TP_EN & flying & cfg.WDMA_SIZE_0.TP_PRECISION)
    operand = ~ew.EW_BYPASS & ~ew.EW_OP_BYPASS & ew.EW_OP_SRC
    integers = (form.IN_PRECISION == Precision.INT16) & ~is_float(form.PROC_PRECISION)
    out = form.OUT_PRECISION == Mux(flying, Precision.INT16, Precision.INT32)
    return asked & integers & out & (feature.CONV_MODE != DEPTHWISE) & ~operand


def by_surface(cfg: Any) -> Value:
    """The data of a flying task come surface by surface, so that packets follow each other."""
    return makes_packets(cfg) & cfg.FEATURE_MODE_CFG.FLYING_MODE


def moves_atoms(cfg: Any) -> Value:
    """A task of DPU_RDMA's unpooling leaves its atoms as they are (docs 5.7)."""
    stages = cfg.BS_CFG.BS_BYPASS & cfg.BN_CFG.BN_BYPASS & cfg.EW_CFG.EW_BYPASS
    form = cfg.DATA_FORMAT
    narrow = width_of(form.OUT_PRECISION) != Width.BITS32
    return stages & (form.IN_PRECISION == Precision.INT16) & narrow


def unpooled_copies(rdma: Any) -> Value:
    """Copies of a row that the settings of DPU_RDMA ask for; 0 without unpooling (docs 5.7)."""
    source, pad, feature = rdma.SRC_DMA_CFG, rdma.PAD_CFG, rdma.FEATURE_MODE_CFG
    known = (
        source.UNPOOLING_EN
        & ~source.POOLING_METHOD
        & (source.KERNEL_STRIDE_HEIGHT == source.KERNEL_HEIGHT)
        & (source.KERNEL_STRIDE_WIDTH == source.KERNEL_WIDTH)
        & (pad.PAD_VALUE == 0)
        & (pad.PAD_TOP == 0)
        & (pad.PAD_LEFT == 0)
        & feature.FLYING_MODE
        & ~feature.MRDMA_DISABLE
        & rdma.ERDMA_CFG.ERDMA_DISABLE
        & (feature.CONV_MODE != DEPTHWISE)
        & (feature.IN_PRECISION == Precision.INT16)
    )
    return Mux(known, source.KERNEL_HEIGHT + 1, 0)[:4]


def surfaces_m1(channel: Value, kind: Value) -> Value:
    """Surfaces of `channel` + 1 channels whose elements are of a `Width`, minus one."""
    narrow = Mux(kind == Width.BITS8, channel >> 4, channel >> 5)
    return Mux(kind == Width.BITS32, channel >> 2, Mux(kind == Width.BITS16, channel >> 3, narrow))


def group_surfaces(cfg: Any) -> Value:
    """Surfaces of a kernel group as they are written: Gw / C2' (docs 4.10)."""
    feature, form = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT
    return written_surfaces(feature.CONV_MODE == DEPTHWISE, form.IN_PRECISION, form.OUT_PRECISION)


def fixed_series(cfg: Any) -> Value:
    """The writer does not look at SIZE_E: MC_SURF_OUT or more surfaces than it can name (docs 4.10)."""
    unnamed = group_surfaces(cfg) > PACKET_M1 + 1
    bypassed = cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE
    return bypassed & (cfg.DATA_FORMAT.MC_SURF_OUT | unnamed)


def _grouped(cfg: Any) -> Value:
    """The writer waits for the surfaces that SIZE_E names, of each kernel group."""
    feature = cfg.FEATURE_MODE_CFG
    return feature.OUTPUT_MODE[1] & ~feature.FLYING_MODE & ~makes_packets(cfg) & ~fixed_series(cfg)


def size_e_wrong(cfg: Any) -> Value:
    """SIZE_E_1 does not name the surfaces of a kernel group; the task hangs (docs 4.10)."""
    return _grouped(cfg) & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != group_surfaces(cfg))


def group_open(cfg: Any) -> Value:
    """The converter is live and the cube ends inside a kernel group; the task hangs (docs 4.10)."""
    last = surfaces_m1(cfg.DATA_CUBE_CHANNEL.CHANNEL, width_of(cfg.DATA_FORMAT.OUT_PRECISION))
    missing = (last & (group_surfaces(cfg) - 1)) != group_surfaces(cfg) - 1
    return _grouped(cfg) & ~cfg.BS_OW_CFG.OD_BYPASS & ~size_e_wrong(cfg) & missing


def copies_wrong(cfg: Any, copies: Value) -> Value:
    """SIZE_E_1 does not name the copies of an unpooled row; the task hangs (docs 5.7)."""
    return cfg.FEATURE_MODE_CFG.FLYING_MODE & (copies != 0) & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != copies)


class PacketSizes:
    """Whether the sizes of a task that makes packets fit (docs 4.11).

    Members
    -------
    open_group : the cube ends inside a kernel group.
    misaligned : a surface's atoms do not make whole blocks; nothing is written.
    other, missing : the packets are not as many, are fewer than the sizes of WDMA name.
    few : SIZE_E_1 names another number of atoms, in a task of at least one full stripe.
    hangs : any of those that keep the task from ending.
    """

    def __init__(self, cfg: Any) -> None:
        flying = cfg.FEATURE_MODE_CFG.FLYING_MODE
        on = makes_packets(cfg)
        area = (cfg.DATA_CUBE_WIDTH.WIDTH + 1) * (cfg.DATA_CUBE_HEIGHT.HEIGHT + 1)
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        last = Mux(flying, channel >> 3, channel >> 2)
        lines = (cfg.WDMA_SIZE_0.SIZE_C_WDMA + 1) * (cfg.WDMA_SIZE_1.HEIGHT_WDMA + 1)
        told = Cat(0, 0, 0, lines * (cfg.WDMA_SIZE_1.WIDTH_WDMA + 1)).as_unsigned()
        atoms = area * (last + 1)
        bytes_ = cfg.BS_OW_CFG.TP_ORG_EN & ~cfg.WDMA_SIZE_0.TP_PRECISION
        rest = Mux(flying, area[:4], Cat(0, 0, area[:2]).as_unsigned())
        self.open_group = on & ~flying & (last[:2] != INT32_ATOMS - 1)
        self.misaligned = on & (Mux(bytes_, rest, rest[:3]) != 0)
        self.other = on & ~self.misaligned & (atoms != told)
        self.missing = on & ~self.misaligned & (atoms < told)
        self.few = on & (cfg.BS_OW_CFG.SIZE_E_1 != PACKET_M1)
        full = area >= STRIPE
        self.hangs = self.open_group | self.misaligned | self.missing | (self.few & full)
