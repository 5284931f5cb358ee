"""Settings of the DPU that raise a diagnostic, and hangs (docs/hardware.md section 4)."""

from __future__ import annotations

from cosim.golden.task.context import Context, Finding
from cosim.golden.task.dpu_lut import check_lut
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.rdma import DEPTHWISE, ELEMENT_BITS, FLOAT_CODES
from cosim.golden.task.registers import View

_RESERVED = (
    ("FEATURE_MODE_CFG", "RGP_TYPE"),
    ("FEATURE_MODE_CFG", "NONALIGN"),
    ("DATA_FORMAT", "MC_SURF_OUT"),
    ("DATA_CUBE_HEIGHT", "MINMAX_CTL"),
    ("BS_OW_CFG", "RGP_CNTER"),
    ("BS_MUL_CFG", "BS_TRUNCATE_SRC"),
    ("BN_MUL_CFG", "BN_TRUNCATE_SRC"),
)
_FP16 = 2
_WORDS = 3
"""EDATA_SIZE of 32 bits."""
STAGE_ALGORITHMS = (2, 4)
"""Add and minus, all that the ALU of BS and BN has."""
_INTEGER_ALGORITHMS, _FLOAT_ALGORITHMS = (0, 1, 2, 4, 5, 6), (0, 1, 2, 3, 4, 5, 6, 7, 8)


def hang(
    ctx: Context, dpu: View, message: str, register: str, name: str | None, code: str = ""
) -> GoldenHang:
    """Build the error of a task that never ends."""
    label = register if name is None else f"{register}.{name}"
    value = dpu.get(register, name)
    return GoldenHang(message, task=ctx.report.index, block=dpu.block, register=label, value=value, code=code)


def stop(
    ctx: Context, dpu: View, message: str, register: str, name: str, code: str = "SIZE_MISMATCH"
) -> GoldenHang:
    """Report a setting with a diagnostic and build the error of the task that never ends by it."""
    found = hang(ctx, dpu, message, register, name, code)
    assert found.value is not None
    ctx.findings.append(
        Finding(ctx.report.index, found.code, dpu.block, found.register, found.value, message)
    )
    return found


def check_dpu(ctx: Context, dpu: View, comb_use: int, packets: bool) -> None:
    """Diagnose everything that is known before the first datum.

    Parameters
    ----------
    comb_use
        COMB_USE of DPU_RDMA, whose bit 0 the DPU may repeat.
    packets
        Whether TP_EN or TP_ORG_EN has an effect (docs/hardware.md 4.11).
    """
    for register, name in _RESERVED:
        ctx.require(
            dpu.get(register, name) == 0, "RESERVED_MODE", dpu, register, name, "mode is not supported"
        )
    mode = "FEATURE_MODE_CFG"
    ok = dpu.get(mode, "COMB_USE") <= (comb_use & 1)
    ctx.require(ok, "RESERVED_MODE", dpu, mode, "COMB_USE", "mode is not supported")
    ok = dpu.get(mode, "CONV_MODE") in (0, DEPTHWISE)
    ctx.require(ok, "RESERVED_MODE", dpu, mode, "CONV_MODE", "counts as direct")
    _check_types(ctx, dpu)
    _check_transposition(ctx, dpu, packets)
    _check_sizes(ctx, dpu, packets)
    for stage in ("BS", "BN"):
        cfg = f"{stage}_CFG"
        live = not dpu.get(cfg, f"{stage}_BYPASS") and not dpu.get(cfg, f"{stage}_ALU_BYPASS")
        ok = not live or dpu.get(cfg, f"{stage}_ALU_ALGO") in STAGE_ALGORITHMS
        ctx.require(ok, "RESERVED_MODE", dpu, cfg, f"{stage}_ALU_ALGO", "neither add nor minus")
    floats = dpu.get("DATA_FORMAT", "PROC_PRECISION") in FLOAT_CODES
    if not dpu.get("EW_CFG", "EW_BYPASS"):
        if not dpu.get("EW_CFG", "EW_LUT_BYPASS"):
            check_lut(ctx, dpu)
            floats = False
        _check_element_wise(ctx, dpu, floats)
    if floats:
        for ok, register, name in (
            (dpu.signed("OUT_CVT_SCALE", "OUT_CVT_SCALE") == 1, "OUT_CVT_SCALE", "OUT_CVT_SCALE"),
            (dpu.get("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64 == 0, "OUT_CVT_SHIFT", "OUT_CVT_SHIFT"),
            (dpu.get("OUT_CVT_OFFSET", "OUT_CVT_OFFSET") == 0, "OUT_CVT_OFFSET", "OUT_CVT_OFFSET"),
        ):
            ctx.require(ok, "RESERVED_MODE", dpu, register, name, "no effect on floats")


def _check_element_wise(ctx: Context, dpu: View, floats: bool) -> None:
    """Settings of the live EW stage; `floats` tells whether its operation works on floats."""

    def require(ok: bool, register: str, name: str, message: str) -> None:
        ctx.require(ok, "RESERVED_MODE", dpu, register, name, message)

    cfg = "EW_CFG"
    require(dpu.get(cfg, "EW_BINARY_EN") == 0, cfg, "EW_BINARY_EN", "no effect")
    if dpu.get(cfg, "EW_OP_BYPASS"):
        return
    known = _FLOAT_ALGORITHMS if floats else _INTEGER_ALGORITHMS
    ok = bool(dpu.get(cfg, "EW_OP_TYPE")) or dpu.get(cfg, "EW_ALU_ALGO") in known
    require(ok, cfg, "EW_ALU_ALGO", "no such operation for the type")
    if unpredictable(dpu, floats):
        require(False, cfg, "EW_OP_CVT_BYPASS", "boards give other elements than these")
    if floats and dpu.get(cfg, "EW_OP_SRC") and not dpu.get(cfg, "EW_OP_CVT_BYPASS"):
        message, scale = "floats pass the converter", "EW_CVT_SCALE_VALUE"
        ok = dpu.get("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET") == 0
        require(ok, "EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET", message)
        require(dpu.get(scale, "EW_OP_CVT_SCALE") == 1, scale, "EW_OP_CVT_SCALE", message)
        require(dpu.get(scale, "EW_OP_CVT_SHIFT") == 0, scale, "EW_OP_CVT_SHIFT", message)


def unpredictable(dpu: View, floats: bool) -> bool:
    """Tell whether silicon gives unpredictable elements for an addition (docs/hardware.md 4.7)."""
    cfg, form = "EW_CFG", "DATA_FORMAT"
    if not dpu.get(cfg, "EW_OP_SRC") or dpu.get(cfg, "EW_OP_TYPE") or dpu.get(cfg, "EW_ALU_ALGO") != 2:
        return False
    bypassed = bool(dpu.get(cfg, "EW_OP_CVT_BYPASS"))
    if floats:
        return bypassed and dpu.get(form, "PROC_PRECISION") == _FP16
    types = {dpu.get(form, f"{name}_PRECISION") for name in ("IN", "PROC", "OUT")}
    return not bypassed and dpu.get(cfg, "EDATA_SIZE") == _WORDS and len(types) > 1


def _check_types(ctx: Context, dpu: View) -> None:
    form = "DATA_FORMAT"
    for name in ("OUT_PRECISION", "IN_PRECISION", "PROC_PRECISION"):
        ok = dpu.get(form, name) in ELEMENT_BITS
        message = "no such type, " + ("nothing is written" if name == "OUT_PRECISION" else "counts as int8")
        ctx.require(ok, "RESERVED_MODE", dpu, form, name, message)
    same = (dpu.get(form, "IN_PRECISION") in FLOAT_CODES) == (dpu.get(form, "PROC_PRECISION") in FLOAT_CODES)
    ctx.require(same, "RESERVED_MODE", dpu, form, "IN_PRECISION", "not of the domain of PROC_PRECISION")
    if dpu.get(form, "OUT_PRECISION") == _FP16:
        ok = bool(dpu.get("OUT_CVT_SCALE", "FP32TOFP16_EN"))
        ctx.require(ok, "RESERVED_MODE", dpu, "OUT_CVT_SCALE", "FP32TOFP16_EN", "narrowed all the same")


def _check_transposition(ctx: Context, dpu: View, packets: bool) -> None:
    """Bits that make packets of the output, where that is known (docs/hardware.md 4.11)."""
    mode, turned = "FEATURE_MODE_CFG", dpu.get("BS_OW_CFG", "TP_ORG_EN")
    ok = not dpu.get(mode, "TP_EN") or (packets and not turned)
    ctx.require(ok, "RESERVED_MODE", dpu, mode, "TP_EN", "no effect in this mode")
    ok = not turned or packets
    ctx.require(ok, "RESERVED_MODE", dpu, "BS_OW_CFG", "TP_ORG_EN", "no effect in this mode")
    ok = not dpu.get(mode, "SURF_LEN") or packets
    ctx.require(ok, "RESERVED_MODE", dpu, mode, "SURF_LEN", "mode is not supported")


def _check_sizes(ctx: Context, dpu: View, packets: bool) -> None:
    middle = dpu.get("BS_OW_CFG", "SIZE_E_1")
    repeats = [
        ("BS_OW_CFG", "SIZE_E_0", middle),
        ("BS_OW_CFG", "SIZE_E_2", middle),
        ("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_1", dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")),
    ]
    if not packets:  # whose places go by these sizes
        repeats.append(("WDMA_SIZE_1", "HEIGHT_WDMA", dpu.get("DATA_CUBE_HEIGHT", "HEIGHT")))
        repeats.append(("WDMA_SIZE_1", "WIDTH_WDMA", dpu.get("DATA_CUBE_WIDTH", "WIDTH")))
        per_atom = 128 // ELEMENT_BITS.get(dpu.get("DATA_FORMAT", "OUT_PRECISION"), 8)
        channel = dpu.get("DATA_CUBE_CHANNEL", "CHANNEL")
        ok = dpu.get("WDMA_SIZE_0", "CHANNEL_WDMA") // per_atom == channel // per_atom
        message = f"names other surfaces than {channel}"
        ctx.require(ok, "SIZE_MISMATCH", dpu, "WDMA_SIZE_0", "CHANNEL_WDMA", message)
    for register, name, want in repeats:
        ok = dpu.get(register, name) == want
        ctx.require(ok, "SIZE_MISMATCH", dpu, register, name, f"should be {want}")
