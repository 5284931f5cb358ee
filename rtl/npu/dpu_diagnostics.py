"""Settings of the DPU that cause diagnostics; [HW 7] tells what they do instead."""

from typing import Any

from amaranth.hdl import Const, Mux, Value

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.checks import Check
from rkcosim.rtl.npu.dpu_frame import FLOAT_ONLY, HALVES, WORDS, AluAlgo, divides_floats
from rkcosim.rtl.npu.dpu_lut import LARGEST_STEP
from rkcosim.rtl.npu.dpu_modes import (
    PacketSizes,
    atom_width,
    copies_wrong,
    flying_size_wrong,
    flying_stuck,
    group_open,
    half_bytes_stuck,
    makes_packets,
    moves_atoms,
    reduces,
    size_e_wrong,
    surfaces_m1,
)
from rkcosim.rtl.npu.dpu_types import DEPTHWISE, Precision, is_float

HYBRID_MUX = 2
"""The only LUT_LO_LE_MUX with an effect [HW 7.9]."""


def writer_stalls(cfg: Any, copies: Value, packets: PacketSizes) -> Value:
    """Sizes for which the writer never finishes ([HW 7.11], [HW 7.12], [HW 8.7])."""
    flying = flying_stuck(cfg, copies) | half_bytes_stuck(cfg, copies)
    return size_e_wrong(cfg) | group_open(cfg) | copies_wrong(cfg, copies) | packets.hangs | flying


def float_product_stuck(cfg: Any) -> Value:
    """Whether a product of fp16 or fp32 has an operand that goes through the converter: the task hangs
    [HW 7.8]."""
    ew, kind = cfg.EW_CFG, cfg.DATA_FORMAT.PROC_PRECISION
    product = ~ew.EW_BYPASS & ew.EW_LUT_BYPASS & ~ew.EW_OP_BYPASS & ew.EW_OP_TYPE & ew.EW_OP_SRC
    return product & ~ew.EW_OP_CVT_BYPASS & ((kind == Precision.FP16) | (kind == Precision.FP32))


def _unlike_sum(cfg: Any, op: Value, floats: Value) -> Value:
    """Operations of two operands that do not get the operand that programs mean [HW 7.8]."""
    ew, form, algo = cfg.EW_CFG, cfg.DATA_FORMAT, cfg.EW_CFG.EW_ALU_ALGO
    pair = (algo == AluAlgo.MAX) | (algo == AluAlgo.MIN) | (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
    raw = pair & ew.EW_OP_CVT_BYPASS & (ew.EDATA_SIZE == HALVES)
    differ = (form.IN_PRECISION != form.PROC_PRECISION) | (form.OUT_PRECISION != form.PROC_PRECISION)
    words = (algo == AluAlgo.ADD) & ~ew.EW_OP_CVT_BYPASS & (ew.EDATA_SIZE == WORDS) & differ
    return op & ew.EW_OP_SRC & ~ew.EW_OP_TYPE & Mux(floats, raw, words)


def dpu_checks(
    cfg: Any, rdma_comb_use: Value, copies: Value, sizes: PacketSizes, *, floats: bool = True
) -> list[Check]:
    """Checks that depend on the settings alone.

    Parameters
    ----------
    cfg
        Effective settings: for a task that moves atoms those of `rkcosim.rtl.npu.dpu.moved_settings`.
    rdma_comb_use
        Bits of DPU_RDMA's COMB_USE that the DPU's COMB_USE may have as well.
    copies
        Copies of a row that unpooling requires.
    sizes
        Sizes of a task that makes packets.
    floats
        Whether there is floating-point arithmetic; without it, float types are not built.
    """
    feature, form, cube = cfg.FEATURE_MODE_CFG, cfg.DATA_FORMAT, cfg.DATA_CUBE_CHANNEL
    ow, notch, size = cfg.BS_OW_CFG, cfg.DATA_CUBE_NOTCH_ADDR, DiagnosticCode.SIZE_MISMATCH
    turned, out = ow.TP_ORG_EN, form.OUT_PRECISION
    packets, maximum = makes_packets(cfg), reduces(cfg)
    unpooled = feature.FLYING_MODE & (copies != 0)
    other_domain = is_float(form.IN_PRECISION) != is_float(form.PROC_PRECISION)
    reserved = Const(0)
    for kind in (out, form.IN_PRECISION, form.PROC_PRECISION):
        reserved = reserved | (kind == Precision.RESERVED)
    e_differ = (ow.SIZE_E_0 != ow.SIZE_E_1) | (ow.SIZE_E_2 != ow.SIZE_E_1)
    written = atom_width(cfg)
    sizes_e = size_e_wrong(cfg) | copies_wrong(cfg, copies) | flying_size_wrong(cfg, copies)
    missing = Check(
        "DATA_FORMAT",
        is_float(out) | is_float(form.IN_PRECISION) | is_float(form.PROC_PRECISION),
        DiagnosticCode.NOT_BUILT,
    )
    return [
        Check(  # checked first, while DPU_RDMA certainly still runs
            "FEATURE_MODE_CFG",
            (feature.COMB_USE & ~rdma_comb_use)
            | (feature.TP_EN & ~(packets & ~turned))
            | (feature.RGP_TYPE != 0)
            | (feature.NONALIGN & ~maximum)
            | ((feature.SURF_LEN != 0) & ~packets & ~maximum)
            | ((feature.CONV_MODE != 0) & (feature.CONV_MODE != DEPTHWISE))
            | ((packets | unpooled) & feature.OUTPUT_MODE[0])
            | (unpooled & ~moves_atoms(cfg)),
        ),
        *(() if floats else (missing,)),
        Check("DATA_FORMAT", reserved | other_domain | form.MC_SURF_OUT),
        Check("DATA_CUBE_HEIGHT", (cfg.DATA_CUBE_HEIGHT.MINMAX_CTL != 0) & ~maximum),
        Check("DATA_CUBE_NOTCH_ADDR", notch.NOTCH_ADDR_1 != notch.NOTCH_ADDR_0, size),
        Check("DATA_CUBE_CHANNEL", group_open(cfg) | sizes.open_group, size),
        Check("BS_CFG", _odd_algo(cfg.stage("BS").CFG)),
        Check("BS_MUL_CFG", cfg.BS_MUL_CFG.BS_TRUNCATE_SRC),
        Check("BS_OW_CFG", (ow.RGP_CNTER != 0) | (turned & ~packets)),
        Check("BS_OW_CFG", sizes_e | e_differ | sizes.few, size),
        Check(
            "WDMA_SIZE_0",
            half_bytes_stuck(cfg, copies)
            | ~packets
            & (surfaces_m1(cfg.WDMA_SIZE_0.CHANNEL_WDMA, written) != surfaces_m1(cube.CHANNEL, written)),
            size,
        ),
        Check(
            "WDMA_SIZE_1",
            Mux(
                packets,
                sizes.misaligned | sizes.other,
                (cfg.WDMA_SIZE_1.HEIGHT_WDMA != cfg.DATA_CUBE_HEIGHT.HEIGHT)
                | (cfg.WDMA_SIZE_1.WIDTH_WDMA != cfg.DATA_CUBE_WIDTH.WIDTH),
            ),
            size,
        ),
        Check("BN_CFG", _odd_algo(cfg.stage("BN").CFG)),
        Check("BN_MUL_CFG", cfg.BN_MUL_CFG.BN_TRUNCATE_SRC),
        *_late_checks(cfg),
    ]


def _odd_algo(stage: Any) -> Value:
    known = (stage.ALU_ALGO == AluAlgo.ADD) | (stage.ALU_ALGO == AluAlgo.MINUS)
    return ~stage.BYPASS & ~stage.ALU_BYPASS & ~known


def _scales(factor: Any) -> Value:
    """Whether a factor that does nothing to floats is neither 0 nor 1, which programs write."""
    return factor.as_unsigned()[1:] != 0


def _late_checks(cfg: Any) -> list[Check]:
    """Checks of EW, LUT and OUT_CVT, in which an active LUT converts floats to integers."""
    ew, lut, scale = cfg.EW_CFG, cfg.LUT_CFG, cfg.EW_CVT_SCALE_VALUE
    on = ~ew.EW_BYPASS
    live = on & ~ew.EW_LUT_BYPASS
    floats = is_float(cfg.DATA_FORMAT.PROC_PRECISION) & ~live
    op = on & ~ew.EW_OP_BYPASS
    known = Const(0)
    for algo in AluAlgo:
        exists = ew.EW_ALU_ALGO == algo
        known = known | (exists & floats if algo in FLOAT_ONLY else exists)
    converts = op & floats & ew.EW_OP_SRC & ~ew.EW_OP_CVT_BYPASS
    steps = (cfg.LUT_INFO.LUT_LE_INDEX_SELECT, cfg.LUT_INFO.LUT_LO_INDEX_SELECT)
    out, shift = cfg.OUT_CVT_SCALE, cfg.OUT_CVT_SHIFT
    to_half = cfg.DATA_FORMAT.OUT_PRECISION == Precision.FP16
    compares = op & ~floats & ~ew.EW_OP_TYPE & (ew.EW_ALU_ALGO[1:] == 0)  # maximum and minimum
    return [
        Check(
            "EW_CFG",
            (op & ~ew.EW_OP_TYPE & ~known)
            | (on & ew.EW_BINARY_EN & ~compares)
            | _unlike_sum(cfg, op, floats)
            | float_product_stuck(cfg),
        ),
        Check("EW_CVT_OFFSET_VALUE", converts & (cfg.EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET != 0)),
        Check(
            "EW_CVT_SCALE_VALUE", converts & (_scales(scale.EW_OP_CVT_SCALE) | (scale.EW_OP_CVT_SHIFT != 0))
        ),
        Check(
            "LUT_CFG",
            live
            & (lut.LUT_CAL_SEL | lut.LUT_EXPAND_EN | lut.LUT_ROAD_SEL | (lut.LUT_LO_LE_MUX != HYBRID_MUX)),
        ),
        Check("LUT_INFO", live & ((steps[0] > LARGEST_STEP) | (steps[1] > LARGEST_STEP))),
        Check("OUT_CVT_OFFSET", floats & (cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET != 0)),
        Check(
            "OUT_CVT_SCALE",
            (floats & _scales(out.OUT_CVT_SCALE)) | (to_half & divides_floats(cfg) & out.FP32TOFP16_EN),
        ),
        Check("OUT_CVT_SHIFT", floats & (shift.OUT_CVT_SHIFT[:6] != 0)),
    ]
