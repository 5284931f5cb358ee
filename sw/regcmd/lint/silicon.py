"""Notes on what boards were seen to do and the model does not, as its cause is unknown ([HW 13])."""

from __future__ import annotations

from rkcosim.golden.task.rules import NOTE, present
from rkcosim.golden.task.shapes import ceil
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.machine import Start, View
from rkcosim.spec.types import ATOM_BYTES, BANK_BYTES, FP16, INT8, INT32

_CLEAN_BYTES = 128 << 10
"""Output of an fp16 convolution up to which boards ended it behind one with int32 output."""

_DEPTHWISE = 3
_WIDEST = 15


def _convolution(start: Start) -> View | None:
    """The DPU's registers of a start with CORE, None for another."""
    return start.view("DPU") if "CORE" in start.blocks else None


def _bytes(dpu: View) -> int:
    surfaces = ceil(dpu("DATA_CUBE_CHANNEL", "CHANNEL") + 1, FP16.per_atom)
    area = (dpu("DATA_CUBE_WIDTH", "WIDTH") + 1) * (dpu("DATA_CUBE_HEIGHT", "HEIGHT") + 1)
    return surfaces * area * ATOM_BYTES


@rule("silicon.int32-output", NOTE, "[HW 13.40]", blocks=("DPU",))
def _int32_output(check: Check) -> None:
    """A large fp16 convolution behind an int8 one with int32 output never ended on a board."""
    dpu = _convolution(check.here)
    if dpu is None or dpu("DATA_FORMAT", "OUT_PRECISION") != FP16.dpu_code or _bytes(dpu) <= _CLEAN_BYTES:
        return
    for start in check.before:
        other = _convolution(start)
        if other is None or other("DATA_FORMAT", "IN_PRECISION") != INT8.dpu_code:
            continue
        if other("DATA_FORMAT", "OUT_PRECISION") == INT32.dpu_code:
            message = f"{_bytes(dpu)} bytes of fp16 behind task {start.task}, whose output is int32"
            return check.say(message, "DPU", "DATA_FORMAT", "OUT_PRECISION")


@rule("silicon.depthwise-last", NOTE, "[HW 13.39]", whole=True)
def _depthwise_last(check: Check) -> None:
    """A dense job at once behind a depthwise one on the same core wrote only 16 channels now and then on a
    board; a pause of 1 ms cured it."""
    last = next((start for start in reversed(check.before) if _convolution(start) is not None), None)
    dpu = None if last is None else _convolution(last)
    if last is not None and dpu is not None and dpu("FEATURE_MODE_CFG", "CONV_MODE") == _DEPTHWISE:
        message = "the last convolution of the program is depthwise: a dense job may follow at once"
        check.say(message, "DPU", "FEATURE_MODE_CFG", "CONV_MODE", task=last.task, value=_DEPTHWISE)


@rule("silicon.one-bank-ring", NOTE, "[HW 13.41]", blocks=("CNA",))
def _one_bank(check: Check) -> None:
    """fp16 products with one weight bank and one or two groups of kernels that fill it hung on a board."""
    conv = present(check.conv)
    cna = conv.view
    if conv.type is not FP16 or conv.depthwise or conv.argb or cna("CBUF_CON0", "WEIGHT_BANK") != 1:
        return
    group = ceil(cna("WEIGHT_SIZE0", "WEIGHT_BYTES"), max(conv.groups, 1))
    if conv.groups <= 2 and group == BANK_BYTES:
        message = f"{conv.groups} groups of kernels of a bank each"
        check.say(message, "CNA", "CBUF_CON0", "WEIGHT_BANK")


@rule("silicon.wide-window", NOTE, "[HW 13.42]", blocks=("PPU",))
def _wide_window(check: Check) -> None:
    """fp16 pools with windows of 16 columns were wrong or timed out on a board."""
    pool = present(check.pool)
    if pool.type == FP16.dpu_code and pool.view("POOLING_KERNEL_CFG", "KERNEL_WIDTH") == _WIDEST:
        check.say("a window of 16 columns", "PPU", "POOLING_KERNEL_CFG", "KERNEL_WIDTH")
