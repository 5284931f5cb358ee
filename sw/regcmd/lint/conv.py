"""Rules about CNA and CORE beyond those of the golden model ([HW 3] to [HW 6])."""

from __future__ import annotations

from collections.abc import Iterator

from rkcosim.golden.task.rules import NOTE, WARNING, present
from rkcosim.golden.task.shapes import ceil, cut
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.machine import Start

_CNA = ("CNA",)


@rule("cbuf.entries", NOTE, "[HW 4.4]", blocks=_CNA)
def _entries(check: Check) -> None:
    """DATA_ENTRIES equals the entries of a row in all real programs; a larger value leaves space unused."""
    conv = present(check.conv)
    pitch = conv.view("CBUF_CON1", "DATA_ENTRIES")
    if not conv.argb and conv.width and conv.channels and pitch > conv.row_entries:
        check.say(f"a row takes {conv.row_entries} entries", "CNA", "CBUF_CON1", "DATA_ENTRIES")


@rule("cbuf.kernel-bytes", NOTE, "[HW 2.2]", blocks=_CNA)
def _kernel_bytes(check: Check) -> None:
    """WEIGHT_BYTES_PER_KERNEL repeats a size that follows from taps and channels; this model does not read
    it."""
    conv = present(check.conv)
    cna = conv.view
    said, kernels = cna("WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL"), max(conv.kernels, 1)
    if said and not conv.depthwise and said * kernels != cna("WEIGHT_SIZE0", "WEIGHT_BYTES"):
        message = f"{said} x {kernels} kernels are not the WEIGHT_BYTES {cna('WEIGHT_SIZE0', 'WEIGHT_BYTES')}"
        real = cna("WEIGHT_SIZE0", "WEIGHT_BYTES") // kernels
        if cut("CNA", "WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL", real) == said:
            message += f": {real} was truncated to fit the field"
        check.say(message, "CNA", "WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL")


def _convolutions(check: Check) -> Iterator[Start]:
    """Starts of CNA before this one, the most recent first."""
    return (start for start in reversed(check.before) if "CNA" in start.blocks)


@rule("cbuf.reuse", WARNING, "[HW 4.9], [HW 4.4]", blocks=_CNA)
def _reuse(check: Check) -> None:
    """Reused data must be present: weights or features that an earlier task of the same kind left in CBUF."""
    cna = present(check.conv).view
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
            check.say("no earlier task has loaded anything", "CNA", "CBUF_CON0", flag)
            continue
        old = loaded.views["CNA"]
        for register, name in registers:
            if old(register, name) != cna(register, name):
                message = f"task {loaded.task} left them with {old(register, name)}"
                check.say(message, "CNA", register, name)


# -- geometry --------------------------------------------------------------------------------------


@rule("conv.output", WARNING, "[HW 5.3], [HW 5.4], [HW 3.1]", blocks=_CNA)
def _output(check: Check) -> None:
    """Output pixels whose whole window lies in the padding, or that end inside a row, show that input,
    kernel, stride and output do not match."""
    conv = present(check.conv)
    if not conv.out_width or not conv.pixels or not conv.width or not conv.height:
        return
    place = ("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS")
    rows, rest = divmod(conv.pixels, conv.out_width)
    if rest:
        check.say(f"not a multiple of the output width {conv.out_width}", *place)
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


@rule("conv.core-size", NOTE, "[HW 2.3]", blocks=("CORE",))
def _core_size(check: Check) -> None:
    """CORE repeats the size of the output; this model does not read it, silicon may."""
    conv = check.conv
    core = check.start.view("CORE") if check.start else None
    if conv is None or core is None or not conv.out_width or not core.written("DATAOUT_SIZE_0"):
        return
    for name, want in (
        ("DATAOUT_WIDTH", conv.out_width - 1),
        ("DATAOUT_HEIGHT", ceil(conv.pixels, conv.out_width) - 1),
    ):
        if core("DATAOUT_SIZE_0", name) != want:
            check.say(f"the output of CNA has {want}", "CORE", "DATAOUT_SIZE_0", name)


@rule("conv.window-sums", NOTE, "[HW 6.3], [HW 7.4]", blocks=("CORE",))
def _sums(check: Check) -> None:
    """The DPU's zero point term needs the window sums, which CORE computes only with QD_EN."""
    start = check.here
    core, dpu = start.view("CORE"), start.view("DPU")
    if core is None or dpu is None or dpu("FEATURE_MODE_CFG", "FLYING_MODE"):
        return
    live = not dpu("BS_OW_CFG", "OD_BYPASS") and (dpu("BS_OW_CFG", "OW_SRC") or dpu("BS_OW_OP", "OW_OP"))
    if live and not core("MISC_CFG", "QD_EN") and not _conv_floats(check):
        check.say("the zero point term is enabled, but the sums are 0", "CORE", "MISC_CFG", "QD_EN")


def _conv_floats(check: Check) -> bool:
    conv = check.conv
    return conv is not None and conv.type.is_float
