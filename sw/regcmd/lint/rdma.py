"""Rules about DPU_RDMA, alone and beside the DPU (docs/hardware.md 5)."""

from __future__ import annotations

from sw.regcmd.lint.rule import ERROR, NOTE, WARNING, Check, rule
from sw.regcmd.lint.shapes import (
    ATOM,
    DEPTHWISE,
    ELEMENT_BITS,
    FLOAT_CODES,
    RESIDUAL,
    DpuCube,
    RdmaCube,
    ceil,
    dpu_of,
    rdma_of,
)

_DPU, _RDMA = ("DPU",), ("DPU_RDMA",)
_MODE = "FEATURE_MODE_CFG"


def _dpu(check: Check) -> DpuCube:
    dpu = dpu_of(check)
    assert dpu is not None
    return dpu


def _rdma(check: Check) -> RdmaCube:
    rdma = rdma_of(check)
    assert rdma is not None
    return rdma


@rule(
    "rdma.cube",
    ERROR,
    "DPU and DPU_RDMA must go through the same cube, else one waits for the other for ever.",
    "docs/hardware.md 5.1, 5.6, H 5.10",
    blocks=_RDMA,
)
def _cube(check: Check) -> None:
    rdma, dpu = _rdma(check), dpu_of(check)
    if dpu is None:
        return
    severity = ERROR if rdma.anything else WARNING
    width, channels, theirs_of = rdma.width, rdma.channels, dpu.channels
    if rdma.unpooled:
        width *= rdma.unpooled[1]
    if dpu.moves:  # counted in atoms
        channels, theirs_of = ceil(channels, 8), dpu.surfaces
    for register, name, mine, theirs in (
        ("DATA_CUBE_WIDTH", "WIDTH", width, dpu.width),
        ("DATA_CUBE_HEIGHT", "HEIGHT", rdma.height, dpu.height),
        ("DATA_CUBE_CHANNEL", "CHANNEL", channels, theirs_of),
    ):
        if mine != theirs:
            message = f"{mine} here, {theirs} in the DPU"
            also: tuple[str, ...] = (f"DPU.{register}.{name}",)
            check.say(message, "DPU_RDMA", register, name, severity=severity, also=also)
    if rdma.flying != dpu.flying:
        message = f"the DPU's is {int(dpu.flying)}"
        also = (f"DPU.{_MODE}.FLYING_MODE",)
        check.say(message, "DPU_RDMA", _MODE, "FLYING_MODE", severity=WARNING, also=also)
    if rdma.group != dpu.group and (rdma.main or rdma.element):
        message = f"groups of {rdma.group} channels here, of {dpu.group} in the DPU: the order differs"
        also = ("DPU.DATA_FORMAT.IN_PRECISION", f"DPU.{_MODE}.CONV_MODE", f"DPU_RDMA.{_MODE}.CONV_MODE")
        check.say(message, "DPU_RDMA", _MODE, "IN_PRECISION", severity=WARNING, also=also)


@rule(
    "rdma.main",
    ERROR,
    "MRDMA is on exactly when the DPU takes its main data from memory; otherwise the task hangs.",
    "docs/hardware.md 5.2, 5.6, H 5.10",
    blocks=_DPU,
)
def _main(check: Check) -> None:
    dpu, rdma = _dpu(check), rdma_of(check)
    if rdma is None or rdma.shared:
        return
    place, also = ("DPU_RDMA", _MODE, "MRDMA_DISABLE"), (f"DPU.{_MODE}.FLYING_MODE",)
    if dpu.flying and not rdma.main:
        check.say("the DPU waits for the main data", *place, also=also)
    if rdma.main and not dpu.flying:
        check.say("nobody takes the main data in a convolution", *place, also=also)


@rule(
    "rdma.element",
    ERROR,
    "ERDMA is on exactly when the EW operation takes its operand from memory; otherwise the task hangs, or "
    "reads in vain.",
    "docs/hardware.md 4.7, 5.4, 5.6",
    blocks=_DPU,
)
def _element(check: Check) -> None:
    dpu, rdma = _dpu(check), rdma_of(check)
    offered = rdma is not None and (rdma.element or (rdma.shared and rdma.main))
    if dpu.needs_element and not offered:
        also: tuple[str, ...] = ("DPU_RDMA.ERDMA_CFG.ERDMA_DISABLE",)
        check.say("waits for an operand that nothing reads", "DPU", "EW_CFG", "EW_OP_SRC", also=also)
    elif rdma is not None and rdma.shared and (rdma.element != rdma.main):
        missing = ("ERDMA_CFG", "ERDMA_DISABLE") if rdma.main else (_MODE, "MRDMA_DISABLE")
        check.say("COMB_USE 5 needs both readers", "DPU_RDMA", *missing)
    elif offered and not dpu.needs_element:
        also = ("DPU.EW_CFG.EW_OP_SRC", "DPU.EW_CFG.EW_BYPASS", "DPU.EW_CFG.EW_OP_BYPASS")
        severity = WARNING if dpu.flying else ERROR  # flying, the data are dropped
        message = "no operation takes the operand"
        check.say(message, "DPU_RDMA", "ERDMA_CFG", "ERDMA_DISABLE", also=also, severity=severity)


@rule(
    "rdma.operands",
    ERROR,
    "A stage that takes its operands from memory waits for the reader that delivers them.",
    "docs/hardware.md 4.4 to 4.6, 5.3",
    blocks=_DPU,
)
def _operands(check: Check) -> None:
    dpu, rdma = _dpu(check), rdma_of(check)
    view = dpu.view
    for stage, client in (("BS", "BRDMA"), ("BN", "NRDMA")):
        use = 0 if rdma is None else rdma.use[client]
        cfg, wanted = f"{stage}_CFG", []
        if not view(cfg, f"{stage}_BYPASS"):
            if not view(cfg, f"{stage}_ALU_BYPASS") and view(cfg, f"{stage}_ALU_SRC"):
                wanted.append((0, cfg, f"{stage}_ALU_SRC"))
            if not view(cfg, f"{stage}_MUL_BYPASS") and view(f"{stage}_MUL_CFG", f"{stage}_MUL_SRC"):
                wanted.append((2, f"{stage}_MUL_CFG", f"{stage}_MUL_SRC"))
        corrects = dpu.converter or (dpu.flying and not view("BS_OW_CFG", "OD_BYPASS"))
        if stage == "BS" and corrects and view("BS_OW_CFG", "OW_SRC") and not dpu.floats:
            wanted.append((1, "BS_OW_CFG", "OW_SRC"))
        for bit, register, name in wanted:
            if not use & 7:
                check.say(f"waits for {client}, which is off", "DPU", register, name)
            elif client == "NRDMA" and use & 2 and rdma is not None and not rdma.floats:
                check.say("NRDMA reads nothing for integers with bit 1 of its use", "DPU", register, name)
            elif not use >> bit & 1:
                message = f"{client} does not read this operand ({client}_DATA_USE {use}): it is 0"
                check.say(message, "DPU", register, name, severity=WARNING)


@rule(
    "rdma.type",
    ERROR,
    "Codes of types, modes and operand kinds of the readers that do not exist count as others.",
    "docs/hardware.md 5.1 to 5.5",
    blocks=_RDMA,
)
def _rdma_type(check: Check) -> None:
    rdma = _rdma(check)
    view = rdma.view
    for name in ("IN_PRECISION", "PROC_PRECISION"):
        if view(_MODE, name) not in ELEMENT_BITS:
            check.say("no such type, counts as int8", "DPU_RDMA", _MODE, name)
    if view(_MODE, "CONV_MODE") not in (0, DEPTHWISE):
        check.say("counts as direct", "DPU_RDMA", _MODE, "CONV_MODE")
    if rdma.flying and view(_MODE, "COMB_USE") & 1:
        check.say("never ends while flying", "DPU_RDMA", _MODE, "COMB_USE")
    elif view(_MODE, "COMB_USE") not in (0, RESIDUAL) or (view(_MODE, "COMB_USE") and rdma.flying):
        check.say("counts as 0", "DPU_RDMA", _MODE, "COMB_USE")
    for client, known in (("BRDMA", 0b111), ("NRDMA", 0b101)):
        if rdma.use[client] & ~known:
            message = "names an operand without a known meaning"
            check.say(message, "DPU_RDMA", f"{client}_CFG", f"{client}_DATA_USE", severity=WARNING)
    if rdma.element:
        mode = view("ERDMA_CFG", "ERDMA_DATA_MODE")
        if mode > 1 or (rdma.shared and mode != 1):
            check.say("counts as per pixel", "DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_MODE")
        if rdma.element_bits < 16 and view(_MODE, "PROC_PRECISION") in FLOAT_CODES:
            check.say("no float of this size", "DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_SIZE")
    if rdma.main and rdma.flying and view(_MODE, "IN_PRECISION") in (2, 3):
        if not view(_MODE, "MRDMA_FP16TOFP32_EN"):
            message = "16-bit floats are widened all the same here"
            check.say(message, "DPU_RDMA", _MODE, "MRDMA_FP16TOFP32_EN", severity=WARNING)
    dpu = dpu_of(check)
    if dpu is not None and rdma.main and rdma.flying and view(_MODE, "IN_PRECISION") != dpu.type:
        message = f"the DPU's IN_PRECISION is {dpu.type}"
        check.say(message, "DPU_RDMA", _MODE, "IN_PRECISION", severity=WARNING)


@rule(
    "rdma.reserved",
    WARNING,
    "Other unpooling than nearest resize of int16, padding and non-aligned reads have no known behaviour.",
    "docs/hardware.md 5.4, 5.7, H Q25",
    blocks=_RDMA,
)
def _rdma_reserved(check: Check) -> None:
    rdma, dpu = _rdma(check), dpu_of(check)
    view = rdma.view
    unpooling = (
        "UNPOOLING_EN",
        "POOLING_METHOD",
        "KERNEL_STRIDE_HEIGHT",
        "KERNEL_STRIDE_WIDTH",
        "KERNEL_HEIGHT",
        "KERNEL_WIDTH",
    )
    if dpu is not None and dpu.copies:
        if not dpu.moves:
            check.say("only whole atoms are known to be unpooled", "DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN")
        if dpu.output & 1:
            check.say("the PPU gets no unpooled data", "DPU", _MODE, "OUTPUT_MODE")
    for register, names in (
        ("ERDMA_CFG", ("ERDMA_SURF_MODE", "ERDMA_NONALIGN")),
        ("SRC_DMA_CFG", () if rdma.unpooled else unpooling),
        ("PAD_CFG", ("PAD_VALUE", "PAD_TOP", "PAD_LEFT")),
    ):
        for name in names:
            if view(register, name):
                check.say("mode without a known behaviour", "DPU_RDMA", register, name)


@rule(
    "rdma.address",
    ERROR,
    "What the readers read starts at multiples of 16; the low bits are dropped.",
    "docs/hardware.md 5.6, H 1.12",
    blocks=_RDMA,
)
def _rdma_address(check: Check) -> None:
    rdma = _rdma(check)
    for on, register in (
        (rdma.main, "SRC_BASE_ADDR"),
        (rdma.element, "EW_BASE_ADDR"),
        (rdma.use["BRDMA"], "BS_BASE_ADDR"),
        (rdma.use["NRDMA"], "BN_BASE_ADDR"),
    ):
        if on and rdma.view(register) % ATOM:
            check.say("not a multiple of 16", "DPU_RDMA", register, register)


@rule(
    "rdma.element-type",
    NOTE,
    "EW_CFG repeats size and shape of the operand; nothing reads it here.",
    "docs/hardware.md 5.4",
    blocks=_RDMA,
)
def _element_type(check: Check) -> None:
    rdma, dpu = _rdma(check), dpu_of(check)
    if dpu is None or not rdma.element or not dpu.needs_element:
        return
    for name, twin in (("EDATA_SIZE", "ERDMA_DATA_SIZE"), ("EW_DATA_MODE", "ERDMA_DATA_MODE")):
        if dpu.view("EW_CFG", name) != rdma.view("ERDMA_CFG", twin):
            check.say(f"ERDMA_CFG.{twin} is {rdma.view('ERDMA_CFG', twin)}", "DPU", "EW_CFG", name)
