"""Registers of CNA that raise a diagnostic or stop a task (docs/hardware.md sections 0 to 3)."""

from __future__ import annotations

from cosim.golden.task.context import Context, Finding
from cosim.golden.task.conv_types import BY_CODE, INT4, TF32
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.registers import View

DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution."""

SPREADS = {0: 1, 1: 2, 3: 4, 7: 8}
"""Distance of input pixels by DECONV stride field (docs/hardware.md 3.4)."""

_PLAIN_ONLY = (INT4.code, TF32.code)
"""Types without depthwise and first-layer modes."""


def stop(ctx: Context, view: View, code: str, register: str, name: str | None, message: str) -> GoldenHang:
    """Record a diagnostic and build (when strict: raise) the error of a task that never ends for it."""
    label = register if name in (None, register) else f"{register}.{name}"
    value = view.get(register, name)
    ctx.findings.append(Finding(ctx.report.index, code, view.block, label, value, message))
    hang = GoldenHang(
        message, task=ctx.report.index, block=view.block, register=label, value=value, code=code
    )
    if ctx.strict:
        raise hang
    return hang


def is_argb(cna: View) -> bool:
    """Whether a task has first-layer input (docs/hardware.md 1.5)."""
    code = cna.get("CONV_CON1", "IN_PRECISION")
    return 8 <= cna.get("CONV_CON1", "ARGB_IN") <= 11 and code not in _PLAIN_ONLY


def is_depthwise(cna: View) -> bool:
    """Whether a task is depthwise, of a type that has a layout for it (docs/hardware.md 3.1)."""
    return (
        cna.get("CONV_CON1", "CONV_MODE") == DEPTHWISE
        and cna.get("CONV_CON1", "IN_PRECISION") not in _PLAIN_ONLY
    )


def check_cna(ctx: Context, cna: View) -> list[GoldenHang]:
    """Diagnose modes, types and sizes; return why the task never ends, if so: its sizes of zero."""
    stops = []
    _check_modes(ctx, cna)
    _check_types(ctx, cna)
    for register, name in (
        ("DATA_SIZE0", "DATAIN_WIDTH"),
        ("DATA_SIZE0", "DATAIN_HEIGHT"),
        ("DATA_SIZE1", "DATAIN_CHANNEL"),
        ("DATA_SIZE2", "DATAOUT_WIDTH"),
        ("DATA_SIZE3", "DATAOUT_ATOMICS"),
        ("WEIGHT_SIZE0", "WEIGHT_BYTES"),
        ("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
        ("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
        ("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
    ):
        if cna.get(register, name) == 0 and not (name == "WEIGHT_KERNELS" and is_depthwise(cna)):
            stops.append(stop(ctx, cna, "EMPTY_SIZE", register, name, "size is zero"))
    for register, name, other, twin in (
        ("FC_DATA_SIZE0", "DMA_WIDTH", "DATA_SIZE0", "DATAIN_WIDTH"),
        ("FC_DATA_SIZE0", "DMA_HEIGHT", "DATA_SIZE0", "DATAIN_HEIGHT"),
        ("FC_DATA_SIZE1", "DMA_CHANNEL", "DATA_SIZE1", "DATAIN_CHANNEL"),
    ):
        same = cna.get(register, name) == cna.get(other, twin)
        ctx.require(same, "SIZE_MISMATCH", cna, register, name, f"differs from {other}.{twin}")
    return stops


def _check_modes(ctx: Context, cna: View) -> None:
    for register, name in (
        ("CONV_CON2", "CSC_WO_EN"),
        ("CONV_CON2", "CSC_DO_EN"),
        ("FC_CON0", "FC_SKIP_EN"),
        ("CBUF_CON0", "FC_DATA_BANK"),
    ):
        ctx.require(
            cna.get(register, name) == 0, "RESERVED_MODE", cna, register, name, "mode is not supported"
        )
    packed = cna.get("DCOMP_CTRL", "DECOMP_CONTROL") and not cna.get("DCOMP_CTRL", "WT_DEC_BYPASS")
    ctx.require(not packed, "RESERVED_MODE", cna, "DCOMP_CTRL", "DECOMP_CONTROL", "mode is not supported")
    surfaces = cna.get("DATA_SIZE3", "SURF_MODE")
    ctx.require(surfaces < 2, "RESERVED_MODE", cna, "DATA_SIZE3", "SURF_MODE", "counts as one series")
    for name in ("CONV_Y_STRIDE", "CONV_X_STRIDE"):
        ctx.require(
            cna.get("CONV_CON3", name) > 0, "RESERVED_MODE", cna, "CONV_CON3", name, "stride 0 counts as 1"
        )
    if cna.get("CONV_CON1", "DECONV"):
        for name in ("DECONV_Y_STRIDE", "DECONV_X_STRIDE"):
            ok = cna.get("CONV_CON3", name) in SPREADS
            ctx.require(ok, "RESERVED_MODE", cna, "CONV_CON3", name, "neither 0, 1, 3 nor 7, counts as 0")


def _check_types(ctx: Context, cna: View) -> None:
    con1 = "CONV_CON1"
    code, mode = cna.get(con1, "IN_PRECISION"), cna.get(con1, "CONV_MODE")
    ctx.require(code in BY_CODE, "RESERVED_MODE", cna, con1, "IN_PRECISION", "no such type, counts as int8")
    same = code == cna.get(con1, "PROC_PRECISION")
    ctx.require(same, "RESERVED_MODE", cna, con1, "PROC_PRECISION", "differs from IN_PRECISION")
    ctx.require(
        mode in (0, DEPTHWISE), "RESERVED_MODE", cna, con1, "CONV_MODE", "neither direct nor depthwise"
    )
    no_layout = mode == DEPTHWISE and code in _PLAIN_ONLY
    ctx.require(not no_layout, "RESERVED_MODE", cna, con1, "CONV_MODE", "no depthwise of this type")
    argb = is_argb(cna)
    wanted = cna.get(con1, "ARGB_IN") != 0
    ctx.require(
        argb or not wanted, "RESERVED_MODE", cna, con1, "ARGB_IN", "no such input of this type, counts as 0"
    )
    for name in ("NONALIGN_DMA", "GROUP_LINE_OFF") if argb else ():
        ctx.require(bool(cna.get(con1, name)), "RESERVED_MODE", cna, con1, name, "ARGB input needs it")
    stray = bool(cna.get(con1, "NONALIGN_DMA")) and not argb
    ctx.require(not stray, "RESERVED_MODE", cna, con1, "NONALIGN_DMA", "only for ARGB input")
    converted = not cna.get("CVT_CON0", "CVT_BYPASS")
    useless = converted and (not argb or (code in BY_CODE and BY_CODE[code].is_float))
    ctx.require(
        not useless,
        "RESERVED_MODE",
        cna,
        "CVT_CON0",
        "CVT_BYPASS",
        "converter is on outside ARGB mode or for a float type",
    )
