"""Rules about the DPU, DPU_RDMA, the PPU and PPU_RDMA ([HW 7] to [HW 9])."""

from __future__ import annotations

from rkcosim.golden.task.rules import ERROR, NOTE, WARNING, Check, present, rule
from rkcosim.golden.task.shapes import DIVIDE
from rkcosim.spec.types import (
    ALTERNATE,
    ATOM,
    BF16,
    DEPTHWISE,
    ELEMENT_BITS,
    FLOAT_CODES,
    FP16,
    LUT_MAX_STEP,
    PACKET,
    POOL_BITS,
    POOL_STORED,
    STRIPE,
    SURFACES_NAMED,
    bits_of,
)

_DPU, _RDMA, _PPU = ("DPU",), ("DPU_RDMA",), ("PPU",)
_MODE = "FEATURE_MODE_CFG"
ADD = 2
"""Code of the addition in EW_ALU_ALGO."""
HALVES, WORDS = 2, 3
"""Codes of EDATA_SIZE for 16 and 32 bits."""
COMPARISONS = (0, 1)
"""Codes of maximum and minimum in EW_ALU_ALGO, which EW_BINARY_EN turns into comparisons."""
STAGE_ALGORITHMS = (2, 4)
"""Codes of addition and subtraction, the only operations of the ALU of BS and BN."""
_INTEGER_ALGORITHMS, _FLOAT_ALGORITHMS = (0, 1, 2, 4, 5, 6), (0, 1, 2, 3, 4, 5, 6, 7, 8)
_PAIRS = (0, 1, 2, 4)
"""Operations of two operands, without the division."""


@rule("dpu.reserved", WARNING, "[HW 7.6], [HW 7.13], [HW 13.25]", blocks=_DPU)
def _reserved(check: Check) -> None:
    """The mode has no known behaviour; real programs write 0."""
    cube, code = present(check.dpu), "RESERVED_MODE"
    dpu = cube.view
    if dpu(_MODE, "SURF_LEN") and not cube.packets and not cube.reduces:
        check.say("mode without a known behaviour", "DPU", _MODE, "SURF_LEN", code=code)
    maximum = ((_MODE, "NONALIGN"), ("DATA_CUBE_HEIGHT", "MINMAX_CTL"))
    for register, name in (
        *(() if cube.reduces else maximum),
        (_MODE, "RGP_TYPE"),
        ("DATA_FORMAT", "MC_SURF_OUT"),
        ("BS_OW_CFG", "RGP_CNTER"),
        ("BS_MUL_CFG", "BS_TRUNCATE_SRC"),
        ("BN_MUL_CFG", "BN_TRUNCATE_SRC"),
    ):
        if dpu(register, name):
            check.say("mode without a known behaviour", "DPU", register, name, code=code)
    rdma = check.view("DPU_RDMA")
    shared = 0 if rdma is None else rdma(_MODE, "COMB_USE")
    if dpu(_MODE, "COMB_USE") > shared & 1:
        message = f"repeats bit 0 of DPU_RDMA's, which is {shared & 1}"
        check.say(message, "DPU", _MODE, "COMB_USE", code=code)


@rule("dpu.type", ERROR, "[HW 7.3]", blocks=_DPU)
def _type(check: Check) -> None:
    """Type codes are 0 to 6, and the input must belong to the domain (integer or float) that the DPU works
    in."""
    cube, form, code = present(check.dpu), "DATA_FORMAT", "RESERVED_MODE"
    dpu = cube.view
    for name in ("OUT_PRECISION", "IN_PRECISION", "PROC_PRECISION"):
        if dpu(form, name) not in ELEMENT_BITS and not cube.moves:
            message = "nothing is written" if name == "OUT_PRECISION" else "counts as int8"
            check.say(f"no such type, {message}", "DPU", form, name, code=code)
    differ = (dpu(form, "IN_PRECISION") in FLOAT_CODES) != (dpu(form, "PROC_PRECISION") in FLOAT_CODES)
    if differ and not cube.moves:
        message = f"differs in domain (integer, float) from PROC_PRECISION {dpu(form, 'PROC_PRECISION')}"
        check.say(message, "DPU", form, "IN_PRECISION", code=code)
    if dpu(_MODE, "CONV_MODE") not in (0, DEPTHWISE):
        check.say("counts as direct", "DPU", _MODE, "CONV_MODE", code=code)
    conv = check.conv
    if conv is not None and not dpu(_MODE, "FLYING_MODE"):
        floats = dpu(form, "PROC_PRECISION") in FLOAT_CODES
        if floats != conv.type.is_float:
            kind = "floats" if conv.type.is_float else "integers"
            check.say(f"the convolution delivers {kind}", "DPU", form, "PROC_PRECISION")


@rule("dpu.repeats", WARNING, "[HW 7.11], [HW 2.4]", blocks=_DPU)
def _repeats(check: Check) -> None:
    """Sizes that are written twice are equal in real programs."""
    cube = present(check.dpu)
    dpu = cube.view
    repeats = [
        ("BS_OW_CFG", "SIZE_E_0", "BS_OW_CFG", "SIZE_E_1"),
        ("BS_OW_CFG", "SIZE_E_2", "BS_OW_CFG", "SIZE_E_1"),
        ("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_1", "DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0"),
    ]
    if not cube.packets:
        repeats.append(("WDMA_SIZE_1", "HEIGHT_WDMA", "DATA_CUBE_HEIGHT", "HEIGHT"))
        repeats.append(("WDMA_SIZE_1", "WIDTH_WDMA", "DATA_CUBE_WIDTH", "WIDTH"))
        if cube.told_surfaces != cube.surfaces and not cube.half_bytes_stuck:
            repeats.append(("WDMA_SIZE_0", "CHANNEL_WDMA", "DATA_CUBE_CHANNEL", "CHANNEL"))
    for register, name, other, twin in repeats:
        if dpu(register, name) != dpu(other, twin):
            message = f"{other}.{twin} is {dpu(other, twin)}"
            check.say(message, "DPU", register, name, also=(f"DPU.{other}.{twin}",), code="SIZE_MISMATCH")
    if dpu("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") > dpu("DATA_CUBE_CHANNEL", "CHANNEL"):
        message = f"exceeds the {dpu('DATA_CUBE_CHANNEL', 'CHANNEL') + 1} channels of the cube"
        check.say(message, "DPU", "DATA_CUBE_CHANNEL", "ORIG_CHANNEL")


@rule("dpu.algorithm", ERROR, "[HW 7.5], [HW 7.8]", blocks=_DPU)
def _algorithm(check: Check) -> None:
    """BS and BN add or subtract; the operations of EW depend on the domain. Other codes perform no
    operation."""
    cube, code = present(check.dpu), "RESERVED_MODE"
    dpu = cube.view
    for stage in ("BS", "BN"):
        cfg = f"{stage}_CFG"
        live = not dpu(cfg, f"{stage}_BYPASS") and not dpu(cfg, f"{stage}_ALU_BYPASS")
        if live and dpu(cfg, f"{stage}_ALU_ALGO") not in STAGE_ALGORITHMS:
            check.say("neither add nor minus", "DPU", cfg, f"{stage}_ALU_ALGO", code=code)
    if dpu("EW_CFG", "EW_BYPASS"):
        return
    floats = cube.floats and not cube.lut
    if dpu("EW_CFG", "EW_BINARY_EN"):
        compares = cube.operation and not cube.multiplies and dpu("EW_CFG", "EW_ALU_ALGO") in COMPARISONS
        if not compares or floats:
            message = "gives the integers 0 and 1, not numbers" if compares else "has no effect"
            check.say(message, "DPU", "EW_CFG", "EW_BINARY_EN", severity=WARNING, code=code)
    known = _FLOAT_ALGORITHMS if floats else _INTEGER_ALGORITHMS
    if cube.operation and not dpu("EW_CFG", "EW_OP_TYPE") and dpu("EW_CFG", "EW_ALU_ALGO") not in known:
        check.say("no such operation for the type", "DPU", "EW_CFG", "EW_ALU_ALGO", code=code)
    if floats and cube.needs_element and not dpu("EW_CFG", "EW_OP_CVT_BYPASS"):
        scale = "EW_CVT_SCALE_VALUE"
        for register, name, allowed in (
            ("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET", (0,)),
            (scale, "EW_OP_CVT_SCALE", (0, 1)),
            (scale, "EW_OP_CVT_SHIFT", (0,)),
        ):
            if dpu(register, name) not in allowed:
                check.say("no effect on floats", "DPU", register, name, severity=WARNING, code=code)


@rule("dpu.sum", WARNING, "[HW 7.8]", blocks=_DPU)
def _sum(check: Check) -> None:
    """The operand of a float operation must pass the converter if it has 16 bits, otherwise its bits count
    as they are. Boards return unpredictable elements for integer sums with 32-bit operands that pass the
    converter if the types differ."""
    cube = present(check.dpu)
    dpu, form = cube.view, "DATA_FORMAT"
    if not cube.needs_element or cube.multiplies:
        return
    algorithm = dpu("EW_CFG", "EW_ALU_ALGO")
    bypassed, size = bool(dpu("EW_CFG", "EW_OP_CVT_BYPASS")), dpu("EW_CFG", "EDATA_SIZE")
    types = {dpu(form, f"{name}_PRECISION") for name in ("IN", "PROC", "OUT")}
    if cube.floats and not cube.lut:
        wrong = bypassed and size == HALVES and algorithm in _PAIRS
        message = "must be 0 for operands of 16 bits; their bits are taken as binary32"
    else:
        wrong = algorithm == ADD and not bypassed and size == WORDS and len(types) > 1
        message = "must be 1 for a sum with 32-bit operands, unless all types are equal"
    if wrong:
        check.say(message, "DPU", "EW_CFG", "EW_OP_CVT_BYPASS", code="RESERVED_MODE")


@rule("dpu.register-operands", NOTE, "[HW 7.8]", blocks=_DPU)
def _register_operands(check: Check) -> None:
    """Each of EW_OP_VALUE_0 to 7 is the operand of all lanes of every eighth pixel; boards have shown this
    for the first two pixels only."""
    cube = present(check.dpu)
    dpu = cube.view
    if not cube.operation or cube.needs_element or cube.pixels == 1:
        return
    if not cube.multiplies and dpu("EW_CFG", "EW_ALU_ALGO") not in (*_PAIRS, DIVIDE):
        return
    values = [dpu(f"EW_OP_VALUE_{n}", f"EW_OPERAND_{n}") for n in range(min(8, cube.pixels))]
    for n, value in enumerate(values):
        if value != values[0]:
            message = f"is the operand of other pixels than EW_OP_VALUE_0, which is {values[0]:#x}"
            check.say(message, "DPU", f"EW_OP_VALUE_{n}", f"EW_OPERAND_{n}")
            return


@rule("dpu.lut", WARNING, "[HW 7.9]", blocks=_DPU)
def _lut(check: Check) -> None:
    """The step between table entries is at most 2^22, and only one way of choosing between the tables is
    known."""
    cube = present(check.dpu)
    dpu = cube.view
    if not cube.lut:
        return
    for name in ("LUT_CAL_SEL", "LUT_EXPAND_EN", "LUT_ROAD_SEL"):
        if dpu("LUT_CFG", name):
            check.say("mode without a known behaviour", "DPU", "LUT_CFG", name, code="RESERVED_MODE")
    if dpu("LUT_CFG", "LUT_LO_LE_MUX") != 2:
        check.say("real programs write 2", "DPU", "LUT_CFG", "LUT_LO_LE_MUX", code="RESERVED_MODE")
    for table in ("LE", "LO"):
        name = f"LUT_{table}_INDEX_SELECT"
        if dpu("LUT_INFO", name) > LUT_MAX_STEP:
            check.say(f"counts as {LUT_MAX_STEP}", "DPU", "LUT_INFO", name, code="RESERVED_MODE")
        start, end = f"LUT_{table}_START", f"LUT_{table}_END"
        if dpu.signed(end) < dpu.signed(start):
            check.say(f"below the start {dpu.signed(start)}", "DPU", end, severity=NOTE)


@rule("dpu.float-output", WARNING, "[HW 7.10]", blocks=_DPU)
def _float_output(check: Check) -> None:
    """OUT_CVT narrows floats and subtracts MINUS_EXP from their exponents; shift and offset must be 0. The
    result of a division must not be narrowed, any other fp16 result must be."""
    cube = present(check.dpu)
    dpu = cube.view
    if cube.floats and not cube.lut and not cube.moves:
        for register, name, ok in (
            ("OUT_CVT_SCALE", "OUT_CVT_SCALE", dpu("OUT_CVT_SCALE", "OUT_CVT_SCALE") in (0, 1)),
            ("OUT_CVT_SHIFT", "OUT_CVT_SHIFT", dpu("OUT_CVT_SHIFT") % 64 == 0),
            ("OUT_CVT_OFFSET", "OUT_CVT_OFFSET", dpu("OUT_CVT_OFFSET") == 0),
        ):
            if not ok:
                check.say("no effect on floats", "DPU", register, name, code="RESERVED_MODE")
    if cube.moves or dpu("DATA_FORMAT", "OUT_PRECISION") != FP16.dpu_code:
        return
    narrows = bool(dpu("OUT_CVT_SCALE", "FP32TOFP16_EN"))
    if cube.reduces:
        return
    if cube.divides and narrows:
        message = "must be 0 for a division, whose result is fp16 already"
        check.say(message, "DPU", "OUT_CVT_SCALE", "FP32TOFP16_EN", code="RESERVED_MODE")
    elif cube.floats and not (cube.lut or cube.divides or narrows):
        message = "fp16 output has the low halves of binary32 numbers; real programs write 1"
        check.say(message, "DPU", "OUT_CVT_SCALE", "FP32TOFP16_EN")


@rule("dpu.surfaces-of-group", ERROR, "[HW 7.11], [HW 8.7]", blocks=_DPU)
def _size_e(check: Check) -> None:
    """SIZE_E must be the number of surfaces of a kernel group, or of copies of an unpooled row; otherwise
    the DPU never finishes."""
    dpu = present(check.dpu)
    said, place = dpu.view("BS_OW_CFG", "SIZE_E_1") + 1, ("DPU", "BS_OW_CFG", "SIZE_E_1")
    if dpu.copies and said != dpu.copies:
        code = "" if dpu.packets else "SIZE_MISMATCH"
        message = f"an unpooled row has {dpu.copies} copies, but SIZE_E_1 + 1 is {said}"
        check.say(message, *place, code=code, ends=False)
    elif dpu.grouped and said != dpu.group_surfaces:
        message = f"a group has {dpu.group_surfaces} surfaces of this type, but SIZE_E_1 + 1 is {said}"
        check.say(message, *place, code="SIZE_MISMATCH", ends=False)


@rule("dpu.flying-surfaces", ERROR, "[HW 7.11]", blocks=_DPU)
def _flying_series(check: Check) -> None:
    """SIZE_E of a flying task must be the number of output surfaces of an input surface: with fewer the
    others stay unwritten, with more the DPU never finishes."""
    dpu = present(check.dpu)
    said, series = dpu.view("BS_OW_CFG", "SIZE_E_1") + 1, dpu.flying_series
    if not dpu.flying_surfaces or said == series or series > SURFACES_NAMED:
        return
    ends = said < series
    message = f"an input surface makes {series} of this type, but SIZE_E_1 + 1 is {said}"
    severity, place = WARNING if ends else ERROR, ("DPU", "BS_OW_CFG", "SIZE_E_1")
    check.say(message, *place, severity=severity, code="SIZE_MISMATCH", ends=ends)


@rule("dpu.part-atoms", ERROR, "[HW 7.11]", blocks=_DPU)
def _part_atoms(check: Check) -> None:
    """A flying task that narrows its elements begins an atom for each input atom, and the rest of it is not
    known; one of int8 never finishes if CHANNEL_WDMA names fewer such atoms."""
    dpu = present(check.dpu)
    if dpu.half_bytes_stuck:
        message = f"names fewer atoms than the {dpu.surfaces} of {dpu.per_atom} channels that are made"
        check.say(message, "DPU", "WDMA_SIZE_0", "CHANNEL_WDMA", code="SIZE_MISMATCH", ends=False)
    elif dpu.flying_surfaces and dpu.per_atom * dpu.bits < 8 * ATOM:
        used = dpu.per_atom * dpu.bits // 8
        message = f"bytes {used} to {ATOM - 1} of each output atom are not known (0 here)"
        check.say(message, "DPU", "DATA_FORMAT", "OUT_PRECISION", severity=NOTE)


@rule("dpu.whole-groups", ERROR, "[HW 7.11]", blocks=_DPU)
def _whole_groups(check: Check) -> None:
    """With the zero point term enabled, the cube must end with a whole kernel group, otherwise the DPU
    never finishes; without the term, no board run is known whose cube ends differently."""
    dpu = present(check.dpu)
    if not dpu.grouped or not dpu.surfaces % dpu.group_surfaces:
        return
    message = f"{dpu.surfaces} surfaces are not a multiple of the group size {dpu.group_surfaces}"
    severity, place = ERROR if dpu.converter else NOTE, ("DPU", "DATA_CUBE_CHANNEL", "CHANNEL")
    fits = dpu.view("BS_OW_CFG", "SIZE_E_1") + 1 == dpu.group_surfaces
    code = "SIZE_MISMATCH" if fits and dpu.converter else ""
    check.say(message, *place, severity=severity, code=code, ends=False)


@rule("dpu.packets", ERROR, "[HW 7.12]", blocks=_DPU)
def _packets(check: Check) -> None:
    """Packets of eight atoms are made from int16 data in memory, from int16 convolutions as int32, or from
    fp16 convolutions; their number must match the sizes of WDMA."""
    cube, code, reserved = present(check.dpu), "SIZE_MISMATCH", "RESERVED_MODE"
    dpu = cube.view
    if not cube.packets:
        for register, name in ((_MODE, "TP_EN"), ("BS_OW_CFG", "TP_ORG_EN")):
            if dpu(register, name):
                check.say("no effect in this mode", "DPU", register, name, severity=WARNING, code=reserved)
        return
    place = ("DPU", "WDMA_SIZE_1", "HEIGHT_WDMA")
    said = dpu("BS_OW_CFG", "SIZE_E_1") + 1
    if said != PACKET:
        message, ends = f"names {said} atoms, but a packet has {PACKET}", cube.pixels < STRIPE
        severity = WARNING if ends else ERROR
        check.say(message, "DPU", "BS_OW_CFG", "SIZE_E_1", severity=severity, code=code, ends=ends)
    if not cube.flying and cube.surfaces % cube.packet_atoms:
        message = "channels must be whole kernel groups"
        check.say(message, "DPU", "DATA_CUBE_CHANNEL", "CHANNEL", code=code, ends=False)
    atoms, told = cube.surfaces * cube.pixels, PACKET * cube.packets_told
    if cube.packet_run % cube.packet_block:
        message = f"{cube.packet_run} atoms are not a multiple of the block size {cube.packet_block}"
        check.say(message, *place, code=code, ends=False)
    elif atoms > told:
        message = f"names {told // PACKET} packets, but {atoms // PACKET} are made"
        check.say(message, *place, severity=WARNING, code=code)
    elif atoms < told:
        message = f"names {told // PACKET} packets, but only {atoms // PACKET} are made"
        check.say(message, *place, code=code, ends=False)
    if dpu("BS_OW_CFG", "TP_ORG_EN") and dpu(_MODE, "TP_EN"):
        message = "has no effect together with TP_ORG_EN"
        check.say(message, "DPU", _MODE, "TP_EN", severity=WARNING, code=reserved)
    if cube.output & 1:
        message = "packets are not sent to the PPU"
        check.say(message, "DPU", _MODE, "OUTPUT_MODE", severity=WARNING, code=reserved)


@rule("dpu.live-product", ERROR, "[HW 7.8]", blocks=_DPU)
def _live_product(check: Check) -> None:
    """A product of fp16 or fp32 whose operand passes the operand converter waits for it forever; of bf16 no
    board run is known."""
    cube = present(check.dpu)
    dpu, place = cube.view, ("DPU", "EW_CFG", "EW_OP_CVT_BYPASS")
    floats = cube.floats and not cube.lut
    if not floats or not cube.needs_element or not cube.multiplies or dpu("EW_CFG", "EW_OP_CVT_BYPASS"):
        return
    if dpu("DATA_FORMAT", "PROC_PRECISION") == BF16.dpu_code:
        check.say("is 1 in every known product of floats; fp16 and fp32 hang with 0", *place, severity=NOTE)
    else:
        message = "must be 1 for a product of floats, which otherwise never ends"
        check.say(message, *place, code="RESERVED_MODE", ends=False)


@rule("rdma.type", ERROR, "[HW 8.1] to [HW 8.5]", blocks=_RDMA)
def _rdma_type(check: Check) -> None:
    """Invalid codes of types, modes and operand kinds of the readers are handled like other codes."""
    rdma, code = present(check.rdma), "RESERVED_MODE"
    view = rdma.view
    for name in ("IN_PRECISION", "PROC_PRECISION"):
        if view(_MODE, name) not in ELEMENT_BITS:
            check.say("no such type, counts as int8", "DPU_RDMA", _MODE, name, code=code)
    if view(_MODE, "CONV_MODE") not in (0, DEPTHWISE):
        check.say("counts as direct", "DPU_RDMA", _MODE, "CONV_MODE", code=code)
    combination = view(_MODE, "COMB_USE")
    if rdma.flying and combination & 1 and not rdma.alternate:
        message = "bit 0 keeps a flying task from ending"
        if combination == ALTERNATE:
            message += ", unless COMB_USE of the DPU is 1"
        check.say(message, "DPU_RDMA", _MODE, "COMB_USE", code=code)
    elif combination and not rdma.shared:
        check.say("counts as 0", "DPU_RDMA", _MODE, "COMB_USE", code=code)
    for client, known in (("BRDMA", 0b111), ("NRDMA", 0b101)):
        if rdma.use[client] & ~known:
            message, place = (
                "selects an operand without a known meaning",
                (f"{client}_CFG", f"{client}_DATA_USE"),
            )
            check.say(message, "DPU_RDMA", *place, severity=WARNING, code=code)
    if rdma.element:
        mode = view("ERDMA_CFG", "ERDMA_DATA_MODE")
        if mode > 1 or (rdma.shared and mode != 1):
            check.say("counts as one per pixel", "DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_MODE", code=code)
        narrow = rdma.element_bits < 16 and not rdma.alternate
        if narrow and view(_MODE, "PROC_PRECISION") in FLOAT_CODES:
            check.say("there is no float of this size", "DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_SIZE", code=code)
    dpu, half = check.dpu, view(_MODE, "IN_PRECISION")
    if rdma.main and rdma.flying and half in (FP16.dpu_code, BF16.dpu_code):
        bit, widens = ("DPU_RDMA", _MODE, "MRDMA_FP16TOFP32_EN"), bool(view(_MODE, "MRDMA_FP16TOFP32_EN"))
        if half == BF16.dpu_code and not widens:
            message = "must be set for bf16; this model widens it in any case"
            check.say(message, *bit, severity=WARNING, code=code)
        elif dpu is not None and dpu.flying and half == FP16.dpu_code:
            raw = dpu.divides or dpu.reduces
            message = "must be 0 for a division or maximum over channels"
            if not widens:
                message = "must be 1, except for a division or a maximum over channels"
            plain = dpu.view("BS_CFG", "BS_BYPASS") and dpu.view("BN_CFG", "BN_BYPASS")
            if widens == raw and (plain or not widens):  # BS and BN may make the dividend of widened data
                check.say(f"{message}, which takes fp16 bits", *bit, severity=WARNING)
    if dpu is not None and rdma.main and rdma.flying:
        mine, theirs = (bits_of(code) for code in (half, dpu.type))
        if mine != theirs:
            message = f"the DPU's IN_PRECISION {dpu.type} has {theirs} bits, this one {mine}"
            check.say(message, "DPU_RDMA", _MODE, "IN_PRECISION", severity=WARNING)


@rule("rdma.reserved", WARNING, "[HW 8.4], [HW 8.7], [HW 13.25]", blocks=_RDMA)
def _rdma_reserved(check: Check) -> None:
    """Padding, non-aligned reads and unpooling other than nearest resize of int16 have no known behaviour."""
    rdma, dpu, code = present(check.rdma), check.dpu, "RESERVED_MODE"
    view = rdma.view
    if dpu is not None and dpu.copies:
        if not dpu.moves:
            message, at = "unpooling is only known for whole atoms", ("DPU", _MODE, "FLYING_MODE")
            check.say(message, "DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN", code=code, at=at)
        if dpu.output & 1:
            check.say("unpooled data are not sent to the PPU", "DPU", _MODE, "OUTPUT_MODE", code=code)
    unpooling = (
        "UNPOOLING_EN",
        "POOLING_METHOD",
        "KERNEL_STRIDE_HEIGHT",
        "KERNEL_STRIDE_WIDTH",
        "KERNEL_HEIGHT",
        "KERNEL_WIDTH",
    )
    for register, names in (
        ("ERDMA_CFG", ("ERDMA_SURF_MODE", "ERDMA_NONALIGN")),
        ("SRC_DMA_CFG", () if rdma.unpooled else unpooling),
        ("PAD_CFG", ("PAD_VALUE", "PAD_TOP", "PAD_LEFT")),
    ):
        for name in names:
            if view(register, name):
                check.say("mode without a known behaviour", "DPU_RDMA", register, name, code=code)


@rule("rdma.address", ERROR, "[HW 8.6], [HW 1.10]", blocks=_RDMA)
def _rdma_address(check: Check) -> None:
    """Addresses that the readers read from must be multiples of 16; the low bits are dropped."""
    rdma = present(check.rdma)
    for on, register in (
        (rdma.main, "SRC_BASE_ADDR"),
        (rdma.element, "EW_BASE_ADDR"),
        (rdma.use["BRDMA"], "BS_BASE_ADDR"),
        (rdma.use["NRDMA"], "BN_BASE_ADDR"),
    ):
        if on:
            check.check_address(rdma.view, register)


@rule("pool.type", ERROR, "[HW 9.1], [HW 9.5]", blocks=_PPU)
def _pool_type(check: Check) -> None:
    """The PPU supports int8, int16 and fp16, which PPU_RDMA reads as 8 or 16 bits, and three methods."""
    pool, code = present(check.pool), "RESERVED_MODE"
    ppu, rdma, dpu, mode = pool.view, check.view("PPU_RDMA"), check.dpu, "OPERATION_MODE_CFG"
    if ppu(mode, "POOLING_METHOD") == 3:
        check.say("no such method, counts as min", "PPU", mode, "POOLING_METHOD", code=code)
    if pool.indexed and ppu(mode, "POOLING_METHOD") == 0:
        check.say("an average has no position", "PPU", mode, "INDEX_EN", code=code)
    if pool.type not in POOL_BITS:
        check.say("no such type, counts as int8", "PPU", "DATA_FORMAT", "PROC_PRECISION", code=code)
    elif rdma is not None and not pool.fed:
        if (pool.type, rdma("DATA_FORMAT", "IN_PRECISION")) not in POOL_STORED:
            message = f"the PPU's type has {pool.bits} bits; counts as int8"
            check.say(message, "PPU_RDMA", "DATA_FORMAT", "IN_PRECISION", code=code)
    if pool.fed and dpu is not None and ppu("DATA_FORMAT", "DPU_FLYIN") != int(dpu.flying):
        message = f"the DPU's FLYING_MODE is {int(dpu.flying)}"
        check.say(message, "PPU", "DATA_FORMAT", "DPU_FLYIN", severity=WARNING, code=code)


@rule("pool.reserved", WARNING, "[HW 9.6]", blocks=_PPU)
def _pool_reserved(check: Check) -> None:
    """Non-aligned output and surface series have no known behaviour; real programs write 0."""
    for name in ("NONALIGN", "SURF_LEN", "MC_SURF_OUT"):
        if present(check.view("PPU"))("MISC_CTRL", name):
            check.say("mode without a known behaviour", "PPU", "MISC_CTRL", name, code="RESERVED_MODE")


@rule("pool.channels", WARNING, "[HW 9.1]", blocks=_PPU)
def _pool_channels(check: Check) -> None:
    """The output of pooling has as many channels as the input."""
    ppu = present(check.view("PPU"))
    if ppu("DATA_CUBE_OUT_CHANNEL") != ppu("DATA_CUBE_IN_CHANNEL"):
        message = f"the input's is {ppu('DATA_CUBE_IN_CHANNEL')}"
        check.say(message, "PPU", "DATA_CUBE_OUT_CHANNEL", code="SIZE_MISMATCH")


@rule("pool.address", ERROR, "[HW 9.6], [HW 1.10]", blocks=("PPU_RDMA",))
def _pool_address(check: Check) -> None:
    """The address that PPU_RDMA reads from must be a multiple of 16; the low bits are dropped."""
    if check.pool is None or not check.pool.fed:
        check.check_address(present(check.view("PPU_RDMA")), "SRC_BASE_ADDR")
