"""Codes of rknn_api, error numbers of the system and bare numbers."""

from __future__ import annotations

import errno
import os
import re

from rkcosim.regcmd import disassemble, format_command
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.explain.explanation import Explanation, Rules, integer, status_lines
from rkcosim.rknn_api.explain.words import register_title
from rkcosim.spec.regs import registers

MEANINGS = {
    t.RKNN_SUCC: "success",
    t.RKNN_ERR_FAIL: "general failure; with a job: it failed or timed out, see the lines before",
    t.RKNN_ERR_TIMEOUT: "a run took longer than its timeout",
    t.RKNN_ERR_DEVICE_UNAVAILABLE: "the NPU cannot be opened (driver not loaded, or no permission)",
    t.RKNN_ERR_MALLOC_FAIL: "no memory, often no room in the NPU's 4 GiB of addresses",
    t.RKNN_ERR_PARAM_INVALID: "an argument is wrong: a null pointer, a size below what is needed, a bad code",
    t.RKNN_ERR_MODEL_INVALID: "the model cannot be read, or the query does not fit this kind of model",
    t.RKNN_ERR_CTX_INVALID: "the context was never created or has been destroyed",
    t.RKNN_ERR_INPUT_INVALID: "an input is wrong: index, type, layout, or it was not set",
    t.RKNN_ERR_OUTPUT_INVALID: "an output is wrong: index, or its buffer is too small",
    t.RKNN_ERR_DEVICE_UNMATCH: "library and driver do not match: update them",
    t.RKNN_ERR_INCOMPATILE_PRE_COMPILE_MODEL: "the model was compiled beforehand for another version",
    t.RKNN_ERR_INCOMPATILE_OPTIMIZATION_LEVEL_VERSION: "the model's optimisation level needs another version",
    t.RKNN_ERR_TARGET_PLATFORM_UNMATCH: "the model or the request is for another chip",
}

DRIVER_ERRNO = {
    errno.EINVAL: "the driver refused the request: a field of the structure is out of range (task_number 0, "
    "core_mask above 7, unknown action), the job was never started, or the NPU was reset",
    errno.ETIMEDOUT: "the job was started and did not end within its timeout; the NPU has been reset",
    errno.EFAULT: "the driver cannot read or write the memory that the request points to",
    errno.ENOMEM: "no memory for a buffer or a job",
    errno.ENOENT: "no buffer has this handle in this file",
    errno.EBADF: "the descriptor is not open",
    errno.EACCES: "the buffer belongs to another file, or the node may not be opened",
    errno.EBUSY: "the buffer is still in use (rocket: its job has not ended)",
}


ERESTARTSYS = 512
"""Linux's number for a wait that a signal interrupted; programs see EINTR, or the call is made again."""


def errno_text(value: int) -> str:
    """Return name and meaning of an error number, of either sign."""
    value = abs(value)
    if value == ERESTARTSYS:
        return "ERESTARTSYS: a signal interrupted the wait"
    name = errno.errorcode.get(value)
    if name is None:
        return f"{value} is not an error number of this system"
    return f"{name} ({os.strerror(value)}): {DRIVER_ERRNO.get(value, 'not a code of the NPU drivers')}"


def _code(match: re.Match[str]) -> Explanation:
    if match.groupdict().get("name"):
        name = match["name"]
        code = getattr(t, name)
    else:
        code = integer(match["code"])
        name = next(n for n in t.__all__ if n.startswith(("RKNN_ERR", "RKNN_SUCC")) and getattr(t, n) == code)
    return Explanation(match[0], f"{name} ({code}): {MEANINGS[code]}")


def _errno(match: re.Match[str]) -> Explanation:
    text = match["errno"]
    number = integer(text) if text.lstrip("-").isdigit() else int(getattr(errno, text))
    return Explanation(match[0], errno_text(number))


def _bare(match: re.Match[str]) -> Explanation:
    value = integer(match["value"])
    made = Explanation(match[0], "a number; it can be")
    if 0 <= value < 1 << 17:
        made.lines += status_lines(value, "an interrupt status")
    if -14 < value < 0:
        made.lines.append(f"a code of rknn_api: {MEANINGS[value]}")
    if -200 < value < 0 or value in DRIVER_ERRNO:
        made.lines.append(f"an error number: {errno_text(value)}")
    register = registers().at(value) if 0 <= value < 1 << 16 and value % 4 == 0 else None
    if register is not None:
        made.lines += ["a register:", f"  {register_title(register)}"]
        made.lines += [
            f"    bits {one.msb}:{one.lsb} {one.name}: {one.desc}" for one in register.fields.values()
        ]
    if value >= 1 << 32:
        made.lines += ["a command word:", *(f"  {format_command(c)}" for c in disassemble([value]))]
    return made


RULES: Rules = {
    r"\b(?P<name>RKNN_(?:ERR_[A-Z_]+[A-Z]|SUCC))\b": _code,
    r"\b(?:rknn_\w+\b.*?(?:ret|error|returned|fail\w*)\D*?|ret ?= ?)(?P<code>-(?:1[0-3]|[1-9])|0)\b": _code,
    r"\b(?P<errno>E(?:INVAL|FAULT|NOMEM|TIMEDOUT|BUSY|BADF|ACCES|NOENT|INTR|AGAIN|PERM|NODEV))\b": _errno,
    r"(?:ioctl|submit)\b.*?(?:returned|ret ?=|:)\s*(?P<errno>-\d+)\b": _errno,
    r"\b[Ee]rrno:? ?=? ?(?P<errno>-?\d+)\b": _errno,
    r"^(?:int[_ ]status|irq[_ ]status|raw[_ ]status)\D*(?P<value>0x[0-9a-fA-F]+|\d+)$": lambda m: Explanation(
        m[0], "an interrupt status", status_lines(integer(m["value"]))[1:]
    ),
    r"^(?P<value>-?(?:0x[0-9a-fA-F]+|\d+))$": _bare,
}
