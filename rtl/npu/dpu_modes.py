"""Modes of the writer that follow from the settings of the DPU and of DPU_RDMA ([HW 7], [HW 8])."""

from typing import Any

from amaranth.hdl import Cat, Mux, Value

from rkcosim.rtl.npu.dpu_types import (
    DEPTHWISE,
    Precision,
    Width,
    is_float,
    lanes_log,
    width_of,
    written_surfaces,
)
from rkcosim.spec.types import LANES, MAXIMUM, PACKET, STRIPE

PACKET_M1 = PACKET - 1
"""Atoms of a packet minus one: the required value of SIZE_E_1 when packets are made."""

INT32_ATOMS, FP16_ATOMS = 4, 2
"""Atoms per pixel of 16 channels of int32, and of fp16."""


def makes_packets(cfg: Any) -> Value:
    """Whether TP_EN or TP_ORG_EN has an effect [HW 7.12]."""
    feature, form, ew = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT, cfg.EW_CFG
    flying = feature.FLYING_MODE
    asked = cfg.BS_OW_CFG.TP_ORG_EN | (feature.TP_EN & flying & cfg.WDMA_SIZE_0.TP_PRECISION)
    operand = ~ew.EW_BYPASS & ~ew.EW_OP_BYPASS & ew.EW_OP_SRC
    integers = (form.IN_PRECISION == Precision.INT16) & ~is_float(form.PROC_PRECISION)
    out = form.OUT_PRECISION == Mux(flying, Precision.INT16, Precision.INT32)
    halves = ~flying & cfg.WDMA_SIZE_0.TP_PRECISION & _all_halves(form)
    return asked & ((integers & out) | halves) & (feature.CONV_MODE != DEPTHWISE) & ~operand


def _all_halves(form: Any) -> Value:
    types = (form.IN_PRECISION, form.PROC_PRECISION, form.OUT_PRECISION)
    return Cat(kind == Precision.FP16 for kind in types).all()


def by_surface(cfg: Any) -> Value:
    """Whether the data of a flying task come surface by surface, as packets require it."""
    return makes_packets(cfg) & cfg.FEATURE_MODE_CFG.FLYING_MODE


def reduces(cfg: Any) -> Value:
    """Whether the task writes one number for each pixel, the maximum over the channels [HW 7.16]."""
    feature, form, size = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT, cfg.DATA_CUBE_WIDTH.WIDTH
    asked = (cfg.DATA_CUBE_HEIGHT.MINMAX_CTL == MAXIMUM) & feature.NONALIGN
    halves = _all_halves(form) & ~cfg.OUT_CVT_SCALE.FP32TOFP16_EN
    alone = feature.FLYING_MODE & (feature.OUTPUT_MODE == 2) & ~feature.COMB_USE
    row = (cfg.DATA_CUBE_HEIGHT.HEIGHT == 0) & (size < STRIPE * LANES)
    told = feature.SURF_LEN == (size >> LANES.bit_length() - 1) + 1
    return asked & halves & alone & (feature.CONV_MODE != DEPTHWISE) & row & told


def moves_atoms(cfg: Any) -> Value:
    """Whether a task with unpooling by DPU_RDMA leaves its atoms unchanged [HW 8.7]."""
    stages = cfg.BS_CFG.BS_BYPASS & cfg.BN_CFG.BN_BYPASS & cfg.EW_CFG.EW_BYPASS
    form = cfg.DATA_FORMAT
    narrow = width_of(form.OUT_PRECISION) != Width.BITS32
    return stages & (form.IN_PRECISION == Precision.INT16) & narrow


def unpooled_copies(rdma: Any) -> Value:
    """Number of copies of a row that the settings of DPU_RDMA require; 0 without unpooling [HW 8.7]."""
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
    """Number of surfaces, minus one, of `channel` + 1 channels whose elements have the `Width` `kind`."""
    narrow = Mux(kind == Width.BITS8, channel >> 4, channel >> 5)
    return Mux(kind == Width.BITS32, channel >> 2, Mux(kind == Width.BITS16, channel >> 3, narrow))


def _input_log(cfg: Any) -> Value:
    """Log2 of the channels of an input atom of a flying task, of two with COMB_USE ([HW 7.11]: g)."""
    return lanes_log(width_of(cfg.DATA_FORMAT.IN_PRECISION)) + cfg.FEATURE_MODE_CFG.COMB_USE


def atom_log(cfg: Any) -> Value:
    """Log2 of the channels of an output atom: in flying mode at most those of an input atom [HW 7.11]."""
    out, given = lanes_log(width_of(cfg.DATA_FORMAT.OUT_PRECISION)), _input_log(cfg)
    return Mux(cfg.FEATURE_MODE_CFG.FLYING_MODE & (given < out), given, out)


def atom_width(cfg: Any) -> Value:
    """`Width` whose elements fill an atom with as many channels as an output atom holds."""
    log = atom_log(cfg)
    return Mux(log == 2, Width.BITS32, Mux(log == 3, Width.BITS16, Mux(log == 4, Width.BITS8, Width.BITS4)))


def flying_series(cfg: Any) -> Value:
    """Number of output surfaces of an input surface of a flying task ([HW 7.11]: Z)."""
    out, given = lanes_log(width_of(cfg.DATA_FORMAT.OUT_PRECISION)), _input_log(cfg)
    return Mux(given > out, 1 << (given - out)[:3], 1)


def _flying_surfaces(cfg: Any, copies: Value) -> Value:
    """Whether a flying task writes surfaces, each of them once."""
    feature = cfg.FEATURE_MODE_CFG
    return feature.OUTPUT_MODE[1] & feature.FLYING_MODE & ~makes_packets(cfg) & (copies == 0)


def flying_size_wrong(cfg: Any, copies: Value) -> Value:
    """Whether SIZE_E_1 of a flying task differs from its series; some surfaces are missing, or it hangs."""
    series = flying_series(cfg)
    named = series <= PACKET_M1 + 1  # SIZE_E can express it
    return _flying_surfaces(cfg, copies) & named & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != series)


def flying_stuck(cfg: Any, copies: Value) -> Value:
    """Whether a flying task waits for surfaces that SIZE_E_1 names and that no input surface makes."""
    return _flying_surfaces(cfg, copies) & (cfg.BS_OW_CFG.SIZE_E_1 + 1 > flying_series(cfg))


def half_bytes_stuck(cfg: Any, copies: Value) -> Value:
    """Whether a flying task makes more atoms, partly filled with int8, than CHANNEL_WDMA names: it hangs."""
    narrow, width = cfg.DATA_FORMAT.OUT_PRECISION == Precision.INT8, atom_width(cfg)
    made = surfaces_m1(cfg.DATA_CUBE_CHANNEL.CHANNEL, width)
    told = surfaces_m1(cfg.WDMA_SIZE_0.CHANNEL_WDMA, Width.BITS8)
    return _flying_surfaces(cfg, copies) & narrow & (width != Width.BITS8) & (made > told)


def group_surfaces(cfg: Any) -> Value:
    """Number of written surfaces of a kernel group: Gw / C2' [HW 7.11]."""
    feature, form = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT
    return written_surfaces(feature.CONV_MODE == DEPTHWISE, form.IN_PRECISION, form.OUT_PRECISION)


def fixed_series(cfg: Any) -> Value:
    """Whether the writer ignores SIZE_E: MC_SURF_OUT, or more surfaces than it can express [HW 7.11]."""
    unnamed = group_surfaces(cfg) > PACKET_M1 + 1
    bypassed = cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE
    return bypassed & (cfg.DATA_FORMAT.MC_SURF_OUT | unnamed)


def _grouped(cfg: Any) -> Value:
    """Whether the writer waits for as many surfaces of each kernel group as SIZE_E specifies."""
    feature = cfg.FEATURE_MODE_CFG
    return feature.OUTPUT_MODE[1] & ~feature.FLYING_MODE & ~makes_packets(cfg) & ~fixed_series(cfg)


def size_e_wrong(cfg: Any) -> Value:
    """Whether SIZE_E_1 differs from the surfaces of a kernel group; the task hangs then [HW 7.11]."""
    return _grouped(cfg) & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != group_surfaces(cfg))


def group_open(cfg: Any) -> Value:
    """Whether the converter is active and the cube ends inside a kernel group: the task hangs [HW 7.11]."""
    last = surfaces_m1(cfg.DATA_CUBE_CHANNEL.CHANNEL, width_of(cfg.DATA_FORMAT.OUT_PRECISION))
    missing = (last & (group_surfaces(cfg) - 1)) != group_surfaces(cfg) - 1
    return _grouped(cfg) & ~cfg.BS_OW_CFG.OD_BYPASS & ~size_e_wrong(cfg) & missing


def copies_wrong(cfg: Any, copies: Value) -> Value:
    """Whether SIZE_E_1 differs from the copies of an unpooled row; the task hangs then [HW 8.7]."""
    return cfg.FEATURE_MODE_CFG.FLYING_MODE & (copies != 0) & (cfg.BS_OW_CFG.SIZE_E_1 + 1 != copies)


def area_of(cfg: Any) -> Value:
    """Number of pixels of a surface."""
    return (cfg.DATA_CUBE_WIDTH.WIDTH + 1) * (cfg.DATA_CUBE_HEIGHT.HEIGHT + 1)


class PacketSizes:
    """Whether the sizes of a task that makes packets are consistent [HW 7.12].

    Parameters
    ----------
    cfg
        Settings of the DPU.
    area, lines
        (WIDTH + 1) * (HEIGHT + 1), and (SIZE_C_WDMA + 1) * (HEIGHT_WDMA + 1) of WDMA_SIZE. They are given,
        because a cycle has time for only one further product.

    Members
    -------
    open_group : the cube ends inside a kernel group.
    misaligned : the atoms do not make whole blocks; nothing is written.
    other, missing : the number of packets differs from the sizes of WDMA; it is smaller.
    few : SIZE_E_1 specifies another number of atoms, in a task of at least one full stripe.
    hangs : any of those conditions that keep the task from ending.
    """

    def __init__(self, cfg: Any, area: Value, lines: Value) -> None:
        flying = cfg.FEATURE_MODE_CFG.FLYING_MODE
        on = makes_packets(cfg)
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        half = cfg.DATA_FORMAT.OUT_PRECISION == Precision.FP16  # of packets only those of CORE
        last = Mux(flying | half, channel >> 3, channel >> 2)
        told = Cat(0, 0, 0, lines * (cfg.WDMA_SIZE_1.WIDTH_WDMA + 1)).as_unsigned()
        atoms = area * (last + 1)
        bytes_ = cfg.BS_OW_CFG.TP_ORG_EN & ~cfg.WDMA_SIZE_0.TP_PRECISION
        # Blocks of data from memory run through all surfaces, those of CORE through a group of channels.
        of_group = Mux(half, Cat(0, area[:3]), Cat(0, 0, area[:2])).as_unsigned()
        rest = Mux(flying, atoms[:4], of_group)
        whole = Mux(half, last[:1] == FP16_ATOMS - 1, last[:2] == INT32_ATOMS - 1)
        self.open_group = on & ~flying & ~whole
        self.misaligned = on & (Mux(bytes_, rest, rest[:3]) != 0)
        self.other = on & ~self.misaligned & (atoms != told)
        self.missing = on & ~self.misaligned & (atoms < told)
        self.few = on & (cfg.BS_OW_CFG.SIZE_E_1 != PACKET_M1)
        full = area >= STRIPE
        self.hangs = self.open_group | self.misaligned | self.missing | (self.few & full)
