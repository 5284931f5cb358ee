"""Rules about the DPU (docs/hardware.md 4)."""

from __future__ import annotations

from sw.regcmd.lint.rule import ERROR, NOTE, WARNING, Check, rule
from sw.regcmd.lint.shapes import (
    DEPTHWISE,
    ELEMENT_BITS,
    FLOAT_CODES,
    ceil,
    conv_of,
    cut,
    started_dpu,
)

_DPU = ("DPU",)
_MODE = "FEATURE_MODE_CFG"
FP16, ADD, WORDS = 2, 2, 3
"""A type's code, an EW_ALU_ALGO, the EDATA_SIZE of 32 bits."""
_INTEGER_ALGORITHMS, _FLOAT_ALGORITHMS = (0, 1, 2, 4, 5, 6), (0, 1, 2, 3, 4, 5, 6, 7, 8)


@rule(
    "dpu.pixels",
    ERROR,
    "The DPU waits until it has all pixels of its cube; CORE must deliver as many.",
    "docs/hardware.md 4.1, 4.14",
    blocks=_DPU,
)
def _pixels(check: Check) -> None:
    dpu, conv = started_dpu(check), conv_of(check)
    if dpu.flying or conv is None or not conv.pixels:
        return
    if conv.pixels != dpu.pixels:
        message = f"CORE delivers {conv.pixels} pixels, the DPU's cube has {dpu.width} x {dpu.height}"
        if cut("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS", dpu.pixels) == conv.pixels:
            message += f", which does not fit DATAOUT_ATOMICS: {dpu.pixels} was cut"
        wide = conv.out_width == dpu.width
        register, name = ("DATA_CUBE_HEIGHT", "HEIGHT") if wide else ("DATA_CUBE_WIDTH", "WIDTH")
        also = ("CNA.DATA_SIZE3.DATAOUT_ATOMICS", "DPU.DATA_CUBE_WIDTH.WIDTH", "DPU.DATA_CUBE_HEIGHT.HEIGHT")
        check.say(message, "DPU", register, name, also=_others(also, f"DPU.{register}.{name}"))
    elif conv.out_width != dpu.width:
        message = f"CNA's rows have {conv.out_width} pixels, the DPU's {dpu.width}"
        place = ("DPU", "DATA_CUBE_WIDTH", "WIDTH")
        check.say(message, *place, severity=WARNING, also=("CNA.DATA_SIZE2.DATAOUT_WIDTH",))


@rule(
    "dpu.group",
    ERROR,
    "Channels come in groups that follow from type and mode; a DPU that expects other groups never ends.",
    "docs/hardware.md 4.1, 3.8",
    blocks=_DPU,
)
def _group(check: Check) -> None:
    dpu, conv, start = started_dpu(check), conv_of(check), check.start
    assert start is not None
    core = start.view("CORE")
    if dpu.flying or conv is None or core is None:
        return
    wide = bool(core("MISC_CFG", "DW_EN"))
    drained = {0: 32, 6: 64}.get(core("MISC_CFG", "PROC_PRECISION"), 16)
    if core("MISC_CFG", "PROC_PRECISION") in (4, 5):
        drained = 32
    theirs = 64 if wide else drained
    if theirs != dpu.group:
        message = f"CORE delivers groups of {theirs} channels, the DPU's settings say {dpu.group}"
        mode = dpu.depthwise != wide
        also = ("CORE.MISC_CFG.DW_EN",) if mode else ("CORE.MISC_CFG.PROC_PRECISION",)
        place = (_MODE, "CONV_MODE") if mode else ("DATA_FORMAT", "IN_PRECISION")
        check.say(message, "DPU", *place, also=also)
        return
    counted = ceil(core("DATAOUT_SIZE_1", "DATAOUT_CHANNEL") + 1, dpu.group)
    delivered = max(conv.groups, counted)
    source = "CNA.DATA_SIZE1.DATAIN_CHANNEL" if conv.depthwise else "CNA.WEIGHT_SIZE2.WEIGHT_KERNELS"
    if delivered != dpu.groups:
        message = f"CORE delivers {delivered} groups of {dpu.group}, {dpu.channels} channels are {dpu.groups}"
        by_core = ("CORE.DATAOUT_SIZE_1.DATAOUT_CHANNEL",) if counted >= conv.groups else ()
        by_cna = (source,) if conv.groups == delivered else ()
        check.say(message, "DPU", "DATA_CUBE_CHANNEL", "CHANNEL", also=by_cna + by_core)
    elif counted > conv.groups:
        message = f"{counted} groups, of which {conv.groups} have kernels: the others deliver 0 (assumed)"
        check.say(message, "CORE", "DATAOUT_SIZE_1", "DATAOUT_CHANNEL", severity=NOTE, also=(source,))


def _others(paths: tuple[str, ...], named: str) -> tuple[str, ...]:
    return tuple(path for path in paths if path != named)


@rule(
    "dpu.type",
    ERROR,
    "Type codes exist up to 6, and what enters is of the domain, integer or float, that the DPU works in.",
    "docs/hardware.md 0.4",
    blocks=_DPU,
)
def _type(check: Check) -> None:
    dpu, form = started_dpu(check).view, "DATA_FORMAT"
    for name in ("OUT_PRECISION", "IN_PRECISION", "PROC_PRECISION"):
        if dpu(form, name) not in ELEMENT_BITS:
            message = "nothing is written" if name == "OUT_PRECISION" else "counts as int8"
            check.say(f"no such type, {message}", "DPU", form, name)
    differ = (dpu(form, "IN_PRECISION") in FLOAT_CODES) != (dpu(form, "PROC_PRECISION") in FLOAT_CODES)
    if differ and not started_dpu(check).moves:
        message = f"not of the domain of PROC_PRECISION {dpu(form, 'PROC_PRECISION')}"
        check.say(message, "DPU", form, "IN_PRECISION")
    if dpu(_MODE, "CONV_MODE") not in (0, DEPTHWISE):
        check.say("counts as direct", "DPU", _MODE, "CONV_MODE")
    conv = conv_of(check)
    if conv is not None and not dpu(_MODE, "FLYING_MODE"):
        floats = dpu(form, "PROC_PRECISION") in FLOAT_CODES
        if floats != conv.type.is_float:
            kind = "floats" if conv.type.is_float else "integers"
            check.say(f"the convolution delivers {kind}", "DPU", form, "PROC_PRECISION")


@rule(
    "dpu.reserved",
    WARNING,
    "The mode has no known behaviour, real programs leave it 0.",
    "docs/hardware.md 4.5, 4.13, H Q25",
    blocks=_DPU,
)
def _reserved(check: Check) -> None:
    cube, start = started_dpu(check), check.start
    dpu = cube.view
    assert start is not None
    if dpu(_MODE, "SURF_LEN") and not cube.packets:
        check.say("mode without a known behaviour", "DPU", _MODE, "SURF_LEN")
    for register, name in (
        (_MODE, "RGP_TYPE"),
        (_MODE, "NONALIGN"),
        ("DATA_FORMAT", "MC_SURF_OUT"),
        ("DATA_CUBE_HEIGHT", "MINMAX_CTL"),
        ("BS_OW_CFG", "RGP_CNTER"),
        ("BS_MUL_CFG", "BS_TRUNCATE_SRC"),
        ("BN_MUL_CFG", "BN_TRUNCATE_SRC"),
    ):
        if dpu(register, name):
            check.say("mode without a known behaviour", "DPU", register, name)
    rdma = start.view("DPU_RDMA")
    shared = 0 if rdma is None else rdma(_MODE, "COMB_USE")
    if dpu(_MODE, "COMB_USE") > shared & 1:
        check.say(f"repeats bit 0 of DPU_RDMA's, which is {shared & 1}", "DPU", _MODE, "COMB_USE")


@rule(
    "dpu.algorithm",
    ERROR,
    "BS and BN add or subtract; the operations of EW depend on the domain. Another code is no operation.",
    "docs/hardware.md 4.4, 4.7",
    blocks=_DPU,
)
def _algorithm(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    for stage in ("BS", "BN"):
        cfg = f"{stage}_CFG"
        live = not dpu(cfg, f"{stage}_BYPASS") and not dpu(cfg, f"{stage}_ALU_BYPASS")
        if live and dpu(cfg, f"{stage}_ALU_ALGO") not in (2, 4):
            check.say("neither add nor minus", "DPU", cfg, f"{stage}_ALU_ALGO")
    if dpu("EW_CFG", "EW_BYPASS"):
        return
    if dpu("EW_CFG", "EW_BINARY_EN"):
        check.say("has no effect", "DPU", "EW_CFG", "EW_BINARY_EN", severity=WARNING)
    floats = cube.floats and not cube.lut
    known = _FLOAT_ALGORITHMS if floats else _INTEGER_ALGORITHMS
    if cube.operation and not dpu("EW_CFG", "EW_OP_TYPE") and dpu("EW_CFG", "EW_ALU_ALGO") not in known:
        check.say("no such operation for the type", "DPU", "EW_CFG", "EW_ALU_ALGO")
    if floats and cube.needs_element and not dpu("EW_CFG", "EW_OP_CVT_BYPASS"):
        scale = "EW_CVT_SCALE_VALUE"
        for register, name, want in (
            ("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET", 0),
            (scale, "EW_OP_CVT_SCALE", 1),
            (scale, "EW_OP_CVT_SHIFT", 0),
        ):
            if dpu(register, name) != want:
                check.say("floats pass the converter", "DPU", register, name, severity=WARNING)


@rule(
    "dpu.half-product",
    ERROR,
    "A product of fp16 whose operand goes through the operand converter never ends.",
    "docs/hardware.md 4.7",
    blocks=_DPU,
)
def _half_product(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    half = dpu("DATA_FORMAT", "PROC_PRECISION") == FP16 and not cube.lut
    if half and cube.needs_element and dpu("EW_CFG", "EW_OP_TYPE") and not dpu("EW_CFG", "EW_OP_CVT_BYPASS"):
        check.say("1 for a product of fp16", "DPU", "EW_CFG", "EW_OP_CVT_BYPASS")


@rule(
    "dpu.sum",
    WARNING,
    "Boards give unpredictable elements for sums of fp16 whose operand passes the converter by, and for "
    "sums with 32-bit operands through the converter while the types differ.",
    "docs/hardware.md 4.7",
    blocks=_DPU,
)
def _sum(check: Check) -> None:
    cube = started_dpu(check)
    dpu, form = cube.view, "DATA_FORMAT"
    if not cube.needs_element or dpu("EW_CFG", "EW_OP_TYPE") or dpu("EW_CFG", "EW_ALU_ALGO") != ADD:
        return
    bypassed = bool(dpu("EW_CFG", "EW_OP_CVT_BYPASS"))
    types = {dpu(form, f"{name}_PRECISION") for name in ("IN", "PROC", "OUT")}
    if cube.floats and not cube.lut:
        wrong, message = bypassed and dpu(form, "PROC_PRECISION") == FP16, "0 for a sum of fp16"
    else:
        wrong = not bypassed and dpu("EW_CFG", "EDATA_SIZE") == WORDS and len(types) > 1
        message = "1 for a sum with 32-bit operands, or one type all through"
    if wrong:
        check.say(message, "DPU", "EW_CFG", "EW_OP_CVT_BYPASS")


@rule(
    "dpu.operand-never-set",
    WARNING,
    "A live stage or operation works with an operand register that nothing wrote; it is 0 after a reset.",
    "docs/hardware.md 4.4, 7.1",
    blocks=_DPU,
)
def _operand_never_set(check: Check) -> None:
    cube = started_dpu(check)
    dpu, start = cube.view, check.start
    assert start is not None
    wanted: list[str] = []
    for stage in ("BS", "BN"):
        cfg, multiplier = f"{stage}_CFG", f"{stage}_MUL_CFG"
        if dpu(cfg, f"{stage}_BYPASS"):
            continue
        if not dpu(cfg, f"{stage}_ALU_BYPASS") and not dpu(cfg, f"{stage}_ALU_SRC"):
            wanted.append(f"{stage}_ALU_CFG")
        if not dpu(cfg, f"{stage}_MUL_BYPASS"):
            wanted.append(multiplier)
        if dpu(cfg, f"{stage}_RELUX_EN") and not dpu(cfg, f"{stage}_RELU_BYPASS"):
            wanted.append(f"{stage}_RELUX_CMP_VALUE")
    if cube.operation and not cube.needs_element:
        wanted.append("EW_OP_VALUE_0")
    for register in wanted:
        if not dpu.written(register):
            message = f"never written to group {dpu.group} of DPU"
            check.say(message, "DPU", register, word=start.word, value=dpu.raw(register))


@rule(
    "dpu.float-output",
    WARNING,
    "OUT_CVT narrows floats and takes MINUS_EXP off their exponents; its scale is 1, shift and offset 0.",
    "docs/hardware.md 4.8",
    blocks=_DPU,
)
def _float_output(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    if cube.floats and not cube.lut and not cube.moves:
        for register, name, ok in (
            ("OUT_CVT_SCALE", "OUT_CVT_SCALE", dpu.signed("OUT_CVT_SCALE") == 1),
            ("OUT_CVT_SHIFT", "OUT_CVT_SHIFT", dpu("OUT_CVT_SHIFT") % 64 == 0),
            ("OUT_CVT_OFFSET", "OUT_CVT_OFFSET", dpu("OUT_CVT_OFFSET") == 0),
        ):
            if not ok:
                check.say("no effect on floats", "DPU", register, name)
    if not cube.moves and dpu("DATA_FORMAT", "OUT_PRECISION") == 2:
        if not dpu("OUT_CVT_SCALE", "FP32TOFP16_EN"):
            check.say("fp16 is written, narrowed all the same here", "DPU", "OUT_CVT_SCALE", "FP32TOFP16_EN")


@rule(
    "dpu.scale",
    WARNING,
    "An output scale of 0 makes every result the offset.",
    "docs/hardware.md 4.8",
    blocks=_DPU,
)
def _scale(check: Check) -> None:
    cube = started_dpu(check)
    if (not cube.floats or cube.lut) and not cube.view("OUT_CVT_SCALE", "OUT_CVT_SCALE"):
        check.say("every result is 0 times something", "DPU", "OUT_CVT_SCALE", "OUT_CVT_SCALE")


@rule(
    "dpu.lut",
    WARNING,
    "The tables are addressed with steps up to 2^22, and only the plain choice between them is known.",
    "docs/hardware.md 4.12",
    blocks=_DPU,
)
def _lut(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    if not cube.lut:
        return
    for name in ("LUT_CAL_SEL", "LUT_EXPAND_EN", "LUT_ROAD_SEL"):
        if dpu("LUT_CFG", name):
            check.say("mode without a known behaviour", "DPU", "LUT_CFG", name)
    if dpu("LUT_CFG", "LUT_LO_LE_MUX") != 2:
        check.say("real programs write 2", "DPU", "LUT_CFG", "LUT_LO_LE_MUX")
    for table in ("LE", "LO"):
        if dpu("LUT_INFO", f"LUT_{table}_INDEX_SELECT") > 22:
            check.say("counts as 22", "DPU", "LUT_INFO", f"LUT_{table}_INDEX_SELECT")
        start, end = f"LUT_{table}_START", f"LUT_{table}_END"
        if dpu.signed(end) < dpu.signed(start):
            check.say(f"below the start {dpu.signed(start)}", "DPU", end, severity=NOTE)


@rule(
    "dpu.channels",
    NOTE,
    "More channels are written than there are kernels: the rest holds what lanes without a kernel give.",
    "docs/hardware.md 3.8, 4.9",
    blocks=_DPU,
)
def _channels(check: Check) -> None:
    dpu, conv = started_dpu(check), conv_of(check)
    if dpu.flying or conv is None:
        return
    real = conv.channels if conv.depthwise else conv.kernels
    said = dpu.view("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1
    if said > max(real, 1) and ceil(said, 16) > ceil(real, 16):
        check.say(f"{said} channels of {real} kernels", "DPU", "DATA_CUBE_CHANNEL", "ORIG_CHANNEL")
