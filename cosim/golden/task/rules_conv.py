"""Rules about CNA and CORE: types, sizes, CBUF, weights ([HW 3] to [HW 6])."""

from __future__ import annotations

from collections.abc import Iterator

from rkcosim.golden.task.packed_weights import amounts, is_packed
from rkcosim.golden.task.rules import ERROR, NOTE, WARNING, Check, present, rule
from rkcosim.golden.task.shapes import BLOCK_ATOMS, ConvShape, ceil, cut
from rkcosim.spec import weight_code as form
from rkcosim.spec.types import (
    ATOM,
    BANK_ENTRIES,
    BANKS,
    CONV_CODES,
    DEPTHWISE,
    ENTRY_ATOMS,
    INT8,
    PLAIN_ONLY,
    SPREADS,
    STRIPE,
)

_CNA = ("CNA",)
_RUN_BIT = 24
"""Bit of MAC_GATING without which the array does not operate [HW 6.3]."""
HALF_BITS = (11, 23)
"""Bits of MAC_GATING that enable the clocks of the even and the odd octets."""


@rule("conv.reserved", WARNING, "[HW 5.1.1], [HW 13.25]", blocks=_CNA)
def _reserved(check: Check) -> None:
    """The mode has no known behaviour; real programs write 0."""
    cna, code = present(check.view("CNA")), "RESERVED_MODE"
    for register, name in (
        ("CONV_CON2", "CSC_WO_EN"),
        ("CONV_CON2", "CSC_DO_EN"),
        ("FC_CON0", "FC_SKIP_EN"),
        ("CBUF_CON0", "FC_DATA_BANK"),
    ):
        if cna(register, name):
            check.say("mode without a known behaviour", "CNA", register, name, code=code)
    if cna("DATA_SIZE3", "SURF_MODE") > 1:
        check.say("counts as one series of surfaces", "CNA", "DATA_SIZE3", "SURF_MODE", code=code)


def unknown_compression(conv: ConvShape) -> Iterator[tuple[str, str, str, str]]:
    """Yield message, register, field and code of the diagnostic of each setting of compressed weights with
    which they never come; nothing if they are not compressed."""
    cna = conv.view
    if not is_packed(cna):
        return
    size = ceil(cna("WEIGHT_SIZE0", "WEIGHT_BYTES"), ATOM) * ATOM
    other_type = cna("CONV_CON1", "IN_PRECISION") != INT8.code
    depthwise = cna("CONV_CON1", "CONV_MODE") == DEPTHWISE
    reserved = "RESERVED_MODE"
    refused = False
    for wrong, what, register, name, code in (
        (cna("DCOMP_CTRL", "DECOMP_CONTROL") != form.CONTROL, "", "DCOMP_CTRL", "DECOMP_CONTROL", reserved),
        (cna("DCOMP_REGNUM", "DCOMP_REGNUM") != form.REGNUM, "", "DCOMP_REGNUM", "DCOMP_REGNUM", reserved),
        (other_type, "int8", "CONV_CON1", "IN_PRECISION", reserved),
        (depthwise and not other_type, "direct kernels", "CONV_CON1", "CONV_MODE", reserved),
        (size % form.WHOLE, f"multiples of {form.WHOLE}", "WEIGHT_SIZE0", "WEIGHT_BYTES", "SIZE_MISMATCH"),
    ):
        if wrong:
            known = f"only {what} are known of compressed weights" if what else "no known compression"
            yield f"{known}: they never come", register, name, code
            refused = True
    large = next(((n, size) for n, size in enumerate(amounts(cna)) if size >= form.MOST_UNITS), None)
    if large and not refused:
        name = f"DCOMP_AMOUNT{large[0]}"
        yield f"no segment has {large[1] + 1} units: the weights never come", name, name, "SIZE_MISMATCH"


@rule("conv.compression", ERROR, "[HW 4.13]", blocks=_CNA)
def _compression(check: Check) -> None:
    """Compressed weights are known in one form only: for direct int8 layers, in 16 segments."""
    for message, register, name, code in unknown_compression(present(check.conv)):
        check.say(message, "CNA", register, name, code=code, ends=False)


@rule("conv.stride", ERROR, "[HW 5.4]", blocks=_CNA)
def _stride(check: Check) -> None:
    """A transposed convolution spreads its pixels by 1, 2, 4 or 8."""
    cna, code = present(check.view("CNA")), "RESERVED_MODE"
    for name in ("DECONV_Y_STRIDE", "DECONV_X_STRIDE") if cna("CONV_CON1", "DECONV") else ():
        if cna("CONV_CON3", name) not in SPREADS:
            check.say("neither 0, 1, 3 nor 7, counts as 0", "CNA", "CONV_CON3", name, code=code)


@rule("conv.type", ERROR, "[HW 3.1.2], [HW 4.2], [HW 5.2], [HW 6.3]", blocks=_CNA)
def _type(check: Check) -> None:
    """The types of memory, array and CORE must be equal and have a valid code; depthwise and first-layer
    modes do not support int4 and tf32."""
    conv, con1, reserved = present(check.conv), "CONV_CON1", "RESERVED_MODE"
    cna = conv.view
    code, mode = cna(con1, "IN_PRECISION"), cna(con1, "CONV_MODE")
    if code not in CONV_CODES:
        check.say("no such type, counts as int8", "CNA", con1, "IN_PRECISION", code=reserved)
    if cna(con1, "PROC_PRECISION") != code:
        message, also = f"differs from IN_PRECISION {code}", (f"CNA.{con1}.IN_PRECISION",)
        check.say(message, "CNA", con1, "PROC_PRECISION", also=also, code=reserved)
    if mode not in (0, DEPTHWISE):
        check.say("neither direct nor depthwise", "CNA", con1, "CONV_MODE", code=reserved)
    elif mode == DEPTHWISE and code in PLAIN_ONLY:
        check.say("there is no depthwise mode for this type", "CNA", con1, "CONV_MODE", code=reserved)
    if cna(con1, "ARGB_IN") and not conv.argb:
        check.say("there is no such input for this type, counts as 0", "CNA", con1, "ARGB_IN", code=reserved)
    for name in ("NONALIGN_DMA", "GROUP_LINE_OFF"):
        if conv.argb and not cna(con1, name):
            check.say("must be set for first-layer input", "CNA", con1, name, code=reserved)
    if not conv.argb and cna(con1, "NONALIGN_DMA"):
        message = "must only be set for first-layer input"
        check.say(message, "CNA", con1, "NONALIGN_DMA", severity=WARNING, code=reserved)
    core = check.view("CORE")
    if core is not None:
        if core("MISC_CFG", "PROC_PRECISION") != conv.type.code:
            also = (f"CNA.{con1}.IN_PRECISION",)
            check.say(f"CNA's type is {code}", "CORE", "MISC_CFG", "PROC_PRECISION", also=also, code=reserved)
        if bool(core("MISC_CFG", "DW_EN")) != (mode == DEPTHWISE):
            message, also = f"CNA's CONV_MODE is {mode}", (f"CNA.{con1}.CONV_MODE",)
            check.say(message, "CORE", "MISC_CFG", "DW_EN", also=also, code=reserved)


@rule("conv.converter", WARNING, "[HW 4.3]", blocks=_CNA)
def _converter(check: Check) -> None:
    """The input converter only works for first-layer input of integers, and for int8."""
    conv = present(check.conv)
    if not conv.view("CVT_CON0", "CVT_BYPASS") and not conv.converts:
        message = "the converter is enabled, but has no effect"
        check.say(message, "CNA", "CVT_CON0", "CVT_BYPASS", code="RESERVED_MODE")


SIZES = (
    ("DATA_SIZE0", "DATAIN_WIDTH"),
    ("DATA_SIZE0", "DATAIN_HEIGHT"),
    ("DATA_SIZE1", "DATAIN_CHANNEL"),
    ("DATA_SIZE2", "DATAOUT_WIDTH"),
    ("DATA_SIZE3", "DATAOUT_ATOMICS"),
    ("WEIGHT_SIZE0", "WEIGHT_BYTES"),
    ("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
    ("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
    ("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
)
"""CNA's (register, field) of every size that must not be zero [HW 4.8]."""


@rule("conv.empty", ERROR, "[HW 4.8]", blocks=_CNA)
def _empty(check: Check) -> None:
    """With a size of zero the loops never end."""
    conv = present(check.conv)
    for register, name in SIZES:
        if conv.view(register, name) == 0 and not (name == "WEIGHT_KERNELS" and conv.depthwise):
            check.say("the size is zero", "CNA", register, name, code="EMPTY_SIZE", ends=False)


@rule("conv.fetch-size", WARNING, "[HW 4.1.4]", blocks=_CNA)
def _fetch_size(check: Check) -> None:
    """FC_DATA_SIZE repeats width, rows and channels; real programs write equal values."""
    cna = present(check.view("CNA"))
    for register, name, other, twin in (
        ("FC_DATA_SIZE0", "DMA_WIDTH", "DATA_SIZE0", "DATAIN_WIDTH"),
        ("FC_DATA_SIZE0", "DMA_HEIGHT", "DATA_SIZE0", "DATAIN_HEIGHT"),
        ("FC_DATA_SIZE1", "DMA_CHANNEL", "DATA_SIZE1", "DATAIN_CHANNEL"),
    ):
        if cna(register, name) != cna(other, twin):
            message = f"{other}.{twin} is {cna(other, twin)}"
            if cut("CNA", register, name, cna(other, twin)) == cna(register, name):
                message += ", which was truncated to fit the field"
            check.say(message, "CNA", register, name, also=(f"CNA.{other}.{twin}",), code="SIZE_MISMATCH")


@rule("cbuf.bank-sum", ERROR, "[HW 4.8], [HW 4.4]", blocks=_CNA)
def _bank_sum(check: Check) -> None:
    """CBUF has 12 banks in total for features, weights and skip data."""
    cna = present(check.view("CNA"))
    data, weight, skip = (cna("CBUF_CON0", name) for name in ("DATA_BANK", "WEIGHT_BANK", "FC_DATA_BANK"))
    if data + weight + skip > BANKS:
        more = f" and {skip} skip" if skip else ""
        message = f"{data} feature{more} and {weight} weight banks are more than {BANKS}"
        name = "DATA_BANK" if data >= weight else "WEIGHT_BANK"
        check.say(message, "CNA", "CBUF_CON0", name, code="BANK_SUM", at=("CNA", "CBUF_CON0", "DATA_BANK"))


@rule("conv.address", ERROR, "[HW 4.1.3], [HW 4.2], [HW 1.10]", blocks=_CNA)
def _address(check: Check) -> None:
    """Feature and weight addresses must be multiples of 16; the low bits are dropped."""
    cna = present(check.view("CNA"))
    if not cna("CBUF_CON0", "DATA_REUSE"):
        check.check_address(cna, "FEATURE_DATA_ADDR")


@rule("conv.pitch", WARNING, "[HW 4.1.1], [HW 4.1.2]", blocks=_CNA)
def _pitch(check: Check) -> None:
    """Lines or surfaces in memory whose distance is less than their length overlap."""
    conv = present(check.conv)
    cna = conv.view
    if cna("CBUF_CON0", "DATA_REUSE"):
        return
    stride = cna("DMA_CON1", "LINE_STRIDE")
    place = ("CNA", "DMA_CON1", "LINE_STRIDE")
    if conv.argb:
        if stride < conv.width:
            check.say(f"below the width of {conv.width} pixels", *place, code="SIZE_MISMATCH")
        return
    if not cna("CONV_CON1", "GROUP_LINE_OFF") and stride % 4:
        check.say("not a multiple of four; the line pitch is rounded down", *place, code="SIZE_MISMATCH")
    line, surface = conv.pitches
    length = (conv.height - 1) * line + conv.width
    if conv.height > 1 and line < conv.width:
        check.say(f"lines of {conv.width} atoms are {line} apart", *place)
    elif conv.surfaces > 1 and 0 <= surface < length and not _channels_last(conv):
        check.say(f"surfaces of {length} atoms are {surface} apart", "CNA", "DMA_CON2", "SURF_STRIDE")


def _channels_last(conv: ConvShape) -> bool:
    """Whether the surfaces of a line are contiguous in memory (row-major input)."""
    line, surface = conv.pitches
    return surface * conv.surfaces <= line and surface >= conv.width


@rule("cbuf.features", ERROR, "[HW 4.5] to [HW 4.8], [HW 4.10], [HW 4.4]", blocks=_CNA)
def _features(check: Check) -> None:
    """All feature rows that windows read must fit the feature banks, at a distance of DATA_ENTRIES."""
    conv, code = present(check.conv), "FEATURE_FOOTPRINT"
    cna = conv.view
    if cna("CBUF_CON0", "DATA_REUSE"):
        return
    data, weight = cna("CBUF_CON0", "DATA_BANK"), cna("CBUF_CON0", "WEIGHT_BANK")
    if not conv.argb and conv.height != 1 and cna("CBUF_CON1", "DATA_ENTRIES") < conv.row_entries:
        message = f"a row of {conv.width} pixels takes {conv.row_entries} entries: rows overlap"
        check.say(message, "CNA", "CBUF_CON1", "DATA_ENTRIES", code=code)
    spare = ", but no output needs the last rows"

    def said(message: str, name: str, room: int, code: str) -> None:
        unread = conv.entries_read <= room
        severity = NOTE if unread else ERROR
        check.say(message + spare * unread, "CNA", "CBUF_CON0", name, severity=severity, code=code)

    if data and conv.entries > data * BANK_ENTRIES:
        message = f"the features take {conv.entries} entries, {data} banks have {data * BANK_ENTRIES}"
        said(
            message,
            "DATA_BANK",
            data * BANK_ENTRIES,
            code if conv.entries_counted > data * BANK_ENTRIES else "",
        )
    free = (BANKS - weight) * BANK_ENTRIES
    if conv.height and conv.width and data + weight <= BANKS and conv.entries > free:
        message = f"features to entry {conv.entries} reach the weights at entry {free} and are lost there"
        said(message, "WEIGHT_BANK", free, "")


@rule("cbuf.no-bank", ERROR, "[HW 4.8]", blocks=_CNA)
def _no_bank(check: Check) -> None:
    """Without a bank for weights or for features, the task never receives its operands."""
    conv = present(check.conv)
    cna = conv.view
    if not cna("CBUF_CON0", "WEIGHT_BANK"):
        message, code = "no bank for weights: the task never ends", "WEIGHT_FOOTPRINT"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_BANK", code=code, ends=False)
    if not cna("CBUF_CON0", "DATA_BANK") and not cna("CBUF_CON0", "DATA_REUSE"):
        code = "FEATURE_FOOTPRINT" if conv.entries else ""
        check.say("no bank for features", "CNA", "CBUF_CON0", "DATA_BANK", code=code)


@rule("cbuf.weight-bytes", ERROR, "[HW 4.8], [HW 3.6]", blocks=_CNA)
def _weight_bytes(check: Check) -> None:
    """The loops read a number of weight bytes that follows from kernels, taps and channels; with fewer
    bytes they wait forever."""
    conv, code = present(check.conv), "SIZE_MISMATCH"
    size, needed = conv.view("WEIGHT_SIZE0", "WEIGHT_BYTES"), sum(conv.group_bytes)
    if not needed:
        return
    place = ("CNA", "WEIGHT_SIZE0", "WEIGHT_BYTES")
    shape = ("WEIGHT_SIZE2.WEIGHT_WIDTH", "WEIGHT_SIZE2.WEIGHT_HEIGHT", "WEIGHT_SIZE2.WEIGHT_KERNELS")
    also = tuple(f"CNA.{name}" for name in (*shape, "DATA_SIZE1.DATAIN_CHANNEL"))
    if ceil(size, ATOM) * ATOM < needed:
        message = f"the loops read {needed} bytes: the task never ends"
        check.say(message, *place, also=also, code=code, ends=False)
    elif size < needed:
        check.say(f"the loops read {needed} bytes", *place, severity=WARNING, also=also, code=code)
    elif size >= needed + ATOM:
        message = f"the loops read {needed} bytes; the rest is fetched without use"
        check.say(message, *place, severity=WARNING, also=also)


@rule("cbuf.weights", ERROR, "[HW 4.8], [HW 3.6]", blocks=_CNA)
def _weights(check: Check) -> None:
    """The kernels of a group must fit the weight banks, unless a single stripe uses each of them only
    once."""
    conv = present(check.conv)
    cna = conv.view
    ring = cna("CBUF_CON0", "WEIGHT_BANK") * BANK_ENTRIES * ENTRY_ATOMS * ATOM
    size, reuse = cna("WEIGHT_SIZE0", "WEIGHT_BYTES"), bool(cna("CBUF_CON0", "WEIGHT_REUSE"))
    if reuse and size > ring:
        message = f"{size} bytes are to be reused, but the banks hold {ring}"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_REUSE", code="REUSE_FOOTPRINT")
    needed = max(conv.group_bytes, default=0)
    if conv.pixels <= STRIPE:
        # The only stripe releases each tile at once; the halves of a depthwise group are a whole block apart.
        halves = conv.depthwise and conv.type is not INT8 and conv.surfaces > BLOCK_ATOMS
        needed = BLOCK_ATOMS * ATOM * conv.taps if halves else 0
    if needed > ring:
        message = f"a kernel group needs {needed} bytes at the same time, but the banks hold {ring}"
        severity, at = WARNING if reuse else ERROR, ("CNA", "WEIGHT_SIZE2", "WEIGHT_KERNELS")
        place, code = ("CNA", "CBUF_CON0", "WEIGHT_BANK"), "WEIGHT_FOOTPRINT"
        check.say(message, *place, severity=severity, code=code, at=at, ends=reuse)


@rule("conv.gating", ERROR, "[HW 6.4], [HW 2.3]", blocks=("CORE",))
def _gating(check: Check) -> None:
    """MAC_GATING bit 24 enables the clock of the array, bits 11 and 23 those of the even and odd result
    octets."""
    gates, place = present(check.view("CORE"))("MAC_GATING", "SLCG_OP_EN"), ("MAC_GATING", "SLCG_OP_EN")
    if not gates >> _RUN_BIT & 1:
        message = "bit 24 is clear: the array is not clocked, the task never ends"
        check.say(message, "CORE", *place, code="RESERVED_MODE", ends=False)
    elif not all(gates >> bit & 1 for bit in HALF_BITS):
        message = "bit 11 or 23 is clear: half of the channels read 0"
        check.say(message, "CORE", *place, code="RESERVED_MODE")
