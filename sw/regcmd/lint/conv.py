"""Rules about CNA and CORE: types, sizes, CBUF, weights (docs/hardware.md 0 to 3)."""

from __future__ import annotations

from collections.abc import Iterator

from sw.regcmd.lint.rule import ERROR, NOTE, WARNING, Check, rule
from sw.regcmd.lint.shapes import (
    ATOM,
    BANK_ENTRIES,
    BANKS,
    CONV_TYPES,
    DEPTHWISE,
    ENTRY_BYTES,
    PLAIN_ONLY,
    SPREADS,
    STRIPE,
    Conv,
    ceil,
    conv_of,
    cut,
)
from sw.regcmd.machine import Start, View

_CNA = ("CNA",)


def _conv(check: Check) -> Conv:
    conv = conv_of(check)
    assert conv is not None
    return conv


@rule("conv.empty", ERROR, "A size of zero: the loops never end.", "docs/hardware.md 2.4", blocks=_CNA)
def _empty(check: Check) -> None:
    conv = _conv(check)
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
        if conv.view(register, name) == 0 and not (name == "WEIGHT_KERNELS" and conv.depthwise):
            check.say("the size is zero", "CNA", register, name)


@rule(
    "conv.type",
    ERROR,
    "Types of memory, array and CORE are one, of a code that exists; depthwise and first-layer modes "
    "have no int4 and tf32.",
    "docs/hardware.md 0.2, 1.5, 3.1, 3.8",
    blocks=_CNA,
)
def _type(check: Check) -> None:
    cna, con1 = _conv(check).view, "CONV_CON1"
    code, mode = cna(con1, "IN_PRECISION"), cna(con1, "CONV_MODE")
    if code not in CONV_TYPES:
        check.say("no such type, counts as int8", "CNA", con1, "IN_PRECISION")
    if cna(con1, "PROC_PRECISION") != code:
        message = f"differs from IN_PRECISION {code}"
        check.say(message, "CNA", con1, "PROC_PRECISION", also=(f"CNA.{con1}.IN_PRECISION",))
    if mode not in (0, DEPTHWISE):
        check.say("neither direct nor depthwise", "CNA", con1, "CONV_MODE")
    elif mode == DEPTHWISE and code in PLAIN_ONLY:
        check.say("no depthwise layout of this type", "CNA", con1, "CONV_MODE")
    first = cna(con1, "ARGB_IN")
    argb = bool(_conv(check).argb)
    if first and not argb:
        check.say("no such input of this type, counts as 0", "CNA", con1, "ARGB_IN")
    for name in ("NONALIGN_DMA", "GROUP_LINE_OFF"):
        if argb and not cna(con1, name):
            check.say("first-layer input needs it", "CNA", con1, name)
    if not argb and cna(con1, "NONALIGN_DMA"):
        check.say("only for first-layer input", "CNA", con1, "NONALIGN_DMA", severity=WARNING)
    core = check.start.view("CORE") if check.start else None
    if core is not None:
        effective = code if code in CONV_TYPES else 0
        if core("MISC_CFG", "PROC_PRECISION") != effective:
            also = (f"CNA.{con1}.IN_PRECISION",)
            check.say(f"CNA's type is {code}", "CORE", "MISC_CFG", "PROC_PRECISION", also=also)
        if bool(core("MISC_CFG", "DW_EN")) != (mode == DEPTHWISE):
            message = f"CNA's CONV_MODE is {mode}"
            check.say(message, "CORE", "MISC_CFG", "DW_EN", also=(f"CNA.{con1}.CONV_MODE",))


@rule(
    "conv.gating",
    ERROR,
    "MAC_GATING bit 24 clocks the array, bits 11 and 23 the even and odd octets of its results.",
    "docs/hardware.md 3.8, H 2.3",
    blocks=("CORE",),
)
def _gating(check: Check) -> None:
    core = check.start.view("CORE") if check.start else None
    assert core is not None
    gates = core("MAC_GATING", "SLCG_OP_EN")
    if not gates >> 24 & 1:
        check.say("bit 24 is clear: the task never ends", "CORE", "MAC_GATING", "SLCG_OP_EN")
    elif not gates >> 11 & gates >> 23 & 1:
        check.say("bit 11 or 23 is clear: half of the channels read 0", "CORE", "MAC_GATING", "SLCG_OP_EN")


@rule(
    "conv.stride",
    ERROR,
    "Strides are 1 to 7; a transposed convolution spreads its pixels by 1, 2, 4 or 8.",
    "docs/hardware.md 3.4",
    blocks=_CNA,
)
def _stride(check: Check) -> None:
    cna = _conv(check).view
    for name in ("CONV_Y_STRIDE", "CONV_X_STRIDE"):
        if not cna("CONV_CON3", name):
            check.say("a stride of 0 counts as 1", "CNA", "CONV_CON3", name)
    for name in ("DECONV_Y_STRIDE", "DECONV_X_STRIDE") if cna("CONV_CON1", "DECONV") else ():
        if cna("CONV_CON3", name) not in SPREADS:
            check.say("neither 0, 1, 3 nor 7, counts as 0", "CNA", "CONV_CON3", name)


@rule(
    "conv.reserved",
    WARNING,
    "The mode has no known behaviour, real programs leave it 0.",
    "docs/hardware.md 3.11, H Q25, H Q26",
    blocks=_CNA,
)
def _reserved(check: Check) -> None:
    cna = _conv(check).view
    for register, name in (
        ("CONV_CON2", "CSC_WO_EN"),
        ("CONV_CON2", "CSC_DO_EN"),
        ("FC_CON0", "FC_SKIP_EN"),
        ("CBUF_CON0", "FC_DATA_BANK"),
    ):
        if cna(register, name):
            check.say("mode without a known behaviour", "CNA", register, name)
    if cna("DCOMP_CTRL", "DECOMP_CONTROL") and not cna("DCOMP_CTRL", "WT_DEC_BYPASS"):
        check.say("weight decompression is not known", "CNA", "DCOMP_CTRL", "DECOMP_CONTROL")
    if cna("DATA_SIZE3", "SURF_MODE") > 1:
        check.say("counts as one series of surfaces", "CNA", "DATA_SIZE3", "SURF_MODE")


@rule(
    "conv.converter",
    WARNING,
    "The input converter works on first-layer input of integers only.",
    "docs/hardware.md 1.6",
    blocks=_CNA,
)
def _converter(check: Check) -> None:
    conv = _conv(check)
    if not conv.view("CVT_CON0", "CVT_BYPASS") and (not conv.argb or conv.type.is_float):
        check.say("the converter is on, but does nothing", "CNA", "CVT_CON0", "CVT_BYPASS")


@rule(
    "conv.fetch-size",
    WARNING,
    "FC_DATA_SIZE repeats width, rows and channels; real programs write them the same.",
    "docs/hardware.md 1.4",
    blocks=_CNA,
)
def _fetch_size(check: Check) -> None:
    cna = _conv(check).view
    for register, name, other, twin in (
        ("FC_DATA_SIZE0", "DMA_WIDTH", "DATA_SIZE0", "DATAIN_WIDTH"),
        ("FC_DATA_SIZE0", "DMA_HEIGHT", "DATA_SIZE0", "DATAIN_HEIGHT"),
        ("FC_DATA_SIZE1", "DMA_CHANNEL", "DATA_SIZE1", "DATAIN_CHANNEL"),
    ):
        if cna(register, name) != cna(other, twin):
            message = f"{other}.{twin} is {cna(other, twin)}"
            if cut("CNA", register, name, cna(other, twin)) == cna(register, name):
                message += ", which was cut to fit the field"
            check.say(message, "CNA", register, name, also=(f"CNA.{other}.{twin}",))


# -- CBUF ------------------------------------------------------------------------------------------


@rule(
    "cbuf.bank-sum",
    ERROR,
    "CBUF has 12 banks for features, weights and skip data together.",
    "docs/hardware.md 2.4, H 3.8",
    blocks=_CNA,
)
def _bank_sum(check: Check) -> None:
    cna = _conv(check).view
    data, weight, skip = (cna("CBUF_CON0", name) for name in ("DATA_BANK", "WEIGHT_BANK", "FC_DATA_BANK"))
    if data + weight + skip > BANKS:
        more = f" and {skip} skip" if skip else ""
        message = f"{data} feature{more} and {weight} weight banks are more than {BANKS}"
        check.say(message, "CNA", "CBUF_CON0", "DATA_BANK" if data >= weight else "WEIGHT_BANK")


@rule(
    "cbuf.no-bank",
    ERROR,
    "Without a bank for weights, or for features, the task never gets what it needs.",
    "docs/hardware.md 2.4",
    blocks=_CNA,
)
def _no_bank(check: Check) -> None:
    cna = _conv(check).view
    if not cna("CBUF_CON0", "WEIGHT_BANK"):
        check.say("no bank for weights: the task never ends", "CNA", "CBUF_CON0", "WEIGHT_BANK")
    if not cna("CBUF_CON0", "DATA_BANK") and not cna("CBUF_CON0", "DATA_REUSE"):
        check.say("no bank for features", "CNA", "CBUF_CON0", "DATA_BANK")


@rule(
    "cbuf.features",
    ERROR,
    "All feature rows of a task lie in its feature banks at once, DATA_ENTRIES apart.",
    "docs/hardware.md 2.2 to 2.4, 2.7, H 3.8",
    blocks=_CNA,
)
def _features(check: Check) -> None:
    conv, start = _conv(check), check.start
    assert start is not None
    cna = conv.view
    if cna("CBUF_CON0", "DATA_REUSE") or not conv.height or not conv.width:
        return
    data, weight = cna("CBUF_CON0", "DATA_BANK"), cna("CBUF_CON0", "WEIGHT_BANK")
    pitch = cna("CBUF_CON1", "DATA_ENTRIES")
    if not conv.argb and conv.height > 1 and pitch < conv.row_entries:
        message = f"a row of {conv.width} pixels takes {conv.row_entries} entries: rows overlap"
        check.say(message, "CNA", "CBUF_CON1", "DATA_ENTRIES")
    if data and conv.entries > data * BANK_ENTRIES:
        message = f"the features take {conv.entries} entries, {data} banks have {data * BANK_ENTRIES}"
        check.say(message, "CNA", "CBUF_CON0", "DATA_BANK")
    free = (BANKS - weight) * BANK_ENTRIES
    if data + weight <= BANKS and conv.entries > free:
        message = f"features to entry {conv.entries} reach the weights at entry {free} and are lost there"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_BANK")


@rule(
    "cbuf.entries",
    NOTE,
    "DATA_ENTRIES is what a row takes in all real programs; more only leaves room unused.",
    "H 3.8",
    blocks=_CNA,
)
def _entries(check: Check) -> None:
    conv = _conv(check)
    pitch = conv.view("CBUF_CON1", "DATA_ENTRIES")
    if not conv.argb and conv.width and conv.channels and pitch > conv.row_entries:
        check.say(f"a row takes {conv.row_entries} entries", "CNA", "CBUF_CON1", "DATA_ENTRIES")


@rule(
    "cbuf.weights",
    ERROR,
    "The kernels of a group must fit the weight banks, unless one stripe uses each of them only once.",
    "docs/hardware.md 2.4, 3.3",
    blocks=_CNA,
)
def _weights(check: Check) -> None:
    conv = _conv(check)
    cna = conv.view
    ring = cna("CBUF_CON0", "WEIGHT_BANK") * BANK_ENTRIES * ENTRY_BYTES
    size, reuse = cna("WEIGHT_SIZE0", "WEIGHT_BYTES"), bool(cna("CBUF_CON0", "WEIGHT_REUSE"))
    if reuse and size > ring:
        message = f"{size} bytes are said to be there, the banks hold {ring}"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_REUSE")
    needed = max(conv.group_bytes, default=0)
    if conv.pixels <= STRIPE:
        halves = conv.depthwise and conv.type.bits > 8 and conv.channels > 32
        needed = 64 * conv.kernel[0] * conv.kernel[1] if halves else 0
    if ring and needed > ring:
        message = f"a kernel group needs {needed} bytes at once, its banks hold {ring}"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_BANK", severity=WARNING if reuse else ERROR)


@rule(
    "cbuf.weight-bytes",
    ERROR,
    "The loops read a number of weight bytes that follows from kernels, taps and channels; fewer "
    "never arrive.",
    "docs/hardware.md 2.4, 3.3",
    blocks=_CNA,
)
def _weight_bytes(check: Check) -> None:
    conv = _conv(check)
    size, needed = conv.view("WEIGHT_SIZE0", "WEIGHT_BYTES"), sum(conv.group_bytes)
    if not size or not needed:
        return
    place = ("CNA", "WEIGHT_SIZE0", "WEIGHT_BYTES")
    shape = ("WEIGHT_SIZE2.WEIGHT_WIDTH", "WEIGHT_SIZE2.WEIGHT_HEIGHT", "WEIGHT_SIZE2.WEIGHT_KERNELS")
    also = tuple(f"CNA.{name}" for name in (*shape, "DATA_SIZE1.DATAIN_CHANNEL"))
    if ceil(size, ATOM) * ATOM < needed:
        check.say(f"the loops read {needed} bytes: the task never ends", *place, also=also)
    elif size < needed:
        check.say(f"the loops read {needed} bytes", *place, severity=WARNING, also=also)
    elif size >= needed + ATOM:
        message = f"the loops read {needed} bytes, the rest is fetched in vain"
        check.say(message, *place, severity=WARNING, also=also)


@rule(
    "cbuf.kernel-bytes",
    NOTE,
    "WEIGHT_BYTES_PER_KERNEL repeats what follows from taps and channels; nothing reads it here.",
    "H 2.2",
    blocks=_CNA,
)
def _kernel_bytes(check: Check) -> None:
    conv = _conv(check)
    cna = conv.view
    said, kernels = cna("WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL"), max(conv.kernels, 1)
    if said and not conv.depthwise and said * kernels != cna("WEIGHT_SIZE0", "WEIGHT_BYTES"):
        message = f"{said} x {kernels} kernels are not the WEIGHT_BYTES {cna('WEIGHT_SIZE0', 'WEIGHT_BYTES')}"
        real = cna("WEIGHT_SIZE0", "WEIGHT_BYTES") // kernels
        if cut("CNA", "WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL", real) == said:
            message += f": {real} was cut to fit the field"
        check.say(message, "CNA", "WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL")


def _convolutions(check: Check) -> Iterator[Start]:
    """Starts of CNA ahead of this one, the latest first."""
    return (start for start in reversed(check.before) if "CNA" in start.blocks)


@rule(
    "cbuf.reuse",
    WARNING,
    "What is reused must be there: weights or features that an earlier task of the same kind left in CBUF.",
    "docs/hardware.md 2.6, H 3.8",
    blocks=_CNA,
)
def _reuse(check: Check) -> None:
    cna = _conv(check).view
    for flag, registers in (
        ("WEIGHT_REUSE", (("CBUF_CON0", "WEIGHT_BANK"), ("CONV_CON1", "IN_PRECISION"))),
        (
            "DATA_REUSE",
            (
                ("DATA_SIZE0", "DATAIN_WIDTH"),
                ("DATA_SIZE1", "DATAIN_CHANNEL"),
                ("CBUF_CON1", "DATA_ENTRIES"),
                ("CONV_CON1", "IN_PRECISION"),
            ),
        ),
    ):
        if not cna("CBUF_CON0", flag):
            continue
        loaded = next(_convolutions(check), None)
        if loaded is None:
            check.say("no task before it has loaded anything", "CNA", "CBUF_CON0", flag)
            continue
        old = loaded.views["CNA"]
        for register, name in registers:
            if old(register, name) != cna(register, name):
                message = f"task {loaded.task} left them with {old(register, name)}"
                check.say(message, "CNA", register, name)


# -- geometry --------------------------------------------------------------------------------------


@rule(
    "conv.output",
    WARNING,
    "Output pixels whose whole window lies in the padding, or that end inside a row: input, kernel, "
    "stride and output do not belong together.",
    "docs/hardware.md 3.2, 3.4, H 3.1",
    blocks=_CNA,
)
def _output(check: Check) -> None:
    conv = _conv(check)
    if not conv.out_width or not conv.pixels or not conv.width or not conv.height:
        return
    place = ("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS")
    rows, rest = divmod(conv.pixels, conv.out_width)
    if rest:
        check.say(f"no multiple of the output width {conv.out_width}", *place)
    size = (conv.height - 1) * conv.spread[0] + 1, (conv.width - 1) * conv.spread[1] + 1
    last = (
        (rows - (not rest)) * conv.stride[0] - conv.pads[0],
        (conv.out_width - 1) * conv.stride[1] - conv.pads[1],
    )
    if last[1] >= size[1]:
        message = f"the last column starts at {last[1]} of {size[1]}: nothing but padding"
        check.say(message, "CNA", "DATA_SIZE2", "DATAOUT_WIDTH")
    if last[0] >= size[0]:
        check.say(f"the last row starts at {last[0]} of {size[0]}: nothing but padding", *place)
    for axis, name in enumerate(("PAD_TOP", "PAD_LEFT")):
        if conv.pads[axis] >= (conv.kernel[axis] - 1) * conv.dilation[axis] + 1:
            message = "more padding than the kernel reaches: the first window holds nothing else"
            check.say(message, "CNA", "PAD_CON0", name)


@rule(
    "conv.core-size",
    NOTE,
    "CORE repeats the output's size; nothing reads it here, silicon may.",
    "H 2.3",
    blocks=("CORE",),
)
def _core_size(check: Check) -> None:
    conv = conv_of(check)
    core = check.start.view("CORE") if check.start else None
    if conv is None or core is None or not conv.out_width or not core.written("DATAOUT_SIZE_0"):
        return
    for name, want in (
        ("DATAOUT_WIDTH", conv.out_width - 1),
        ("DATAOUT_HEIGHT", ceil(conv.pixels, conv.out_width) - 1),
    ):
        if core("DATAOUT_SIZE_0", name) != want:
            check.say(f"CNA's output says {want}", "CORE", "DATAOUT_SIZE_0", name)


@rule(
    "conv.pitch",
    WARNING,
    "Lines and surfaces in memory that are closer than they are long share data.",
    "docs/hardware.md 1.1, 1.2, H 3.5",
    blocks=_CNA,
)
def _pitch(check: Check) -> None:
    conv = _conv(check)
    cna = conv.view
    if cna("CBUF_CON0", "DATA_REUSE"):
        return
    stride = cna("DMA_CON1", "LINE_STRIDE")
    place = ("CNA", "DMA_CON1", "LINE_STRIDE")
    if conv.argb:
        if stride < conv.width:
            check.say(f"below the width of {conv.width} pixels", *place)
        return
    if not cna("CONV_CON1", "GROUP_LINE_OFF") and stride % 4:
        check.say("no multiple of four lines, the quotient is floored", *place)
    line, surface = conv.pitches
    if conv.height > 1 and line < conv.width:
        check.say(f"lines of {conv.width} atoms are {line} apart", *place)
    elif conv.surfaces > 1 and 0 <= surface < (conv.height - 1) * line + conv.width and not _rows(conv):
        length = (conv.height - 1) * line + conv.width
        message = f"surfaces of {length} atoms are {surface} apart"
        check.say(message, "CNA", "DMA_CON2", "SURF_STRIDE")


def _rows(conv: Conv) -> bool:
    """Whether the surfaces of a line lie side by side in memory: channels last (row-major)."""
    line, surface = conv.pitches
    return surface * conv.surfaces <= line and surface >= conv.width


@rule(
    "conv.address",
    ERROR,
    "Feature and weight addresses are multiples of 16; the low bits are dropped.",
    "docs/hardware.md 1.3, 1.5, H 1.12",
    blocks=_CNA,
)
def _address(check: Check) -> None:
    cna: View = _conv(check).view
    if not cna("CBUF_CON0", "DATA_REUSE") and cna("FEATURE_DATA_ADDR", "FEATURE_BASE_ADDR") % ATOM:
        check.say("not a multiple of 16", "CNA", "FEATURE_DATA_ADDR", "FEATURE_BASE_ADDR")


@rule(
    "conv.window-sums",
    NOTE,
    "The DPU's zero point term needs the window sums, which CORE only forms with QD_EN.",
    "docs/hardware.md 3.8, 4.3, H 5.2",
    blocks=("CORE",),
)
def _sums(check: Check) -> None:
    start = check.start
    assert start is not None
    core, dpu = start.view("CORE"), start.view("DPU")
    if core is None or dpu is None or dpu("FEATURE_MODE_CFG", "FLYING_MODE"):
        return
    live = not dpu("BS_OW_CFG", "OD_BYPASS") and (dpu("BS_OW_CFG", "OW_SRC") or dpu("BS_OW_OP", "OW_OP"))
    if live and not core("MISC_CFG", "QD_EN") and not _conv_floats(check):
        check.say("the zero point term is on, but the sums are 0", "CORE", "MISC_CFG", "QD_EN")


def _conv_floats(check: Check) -> bool:
    conv = conv_of(check)
    return conv is not None and conv.type.is_float
