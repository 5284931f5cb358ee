"""Explanation of lines in the log of a driver or runtime.

Interrupt events and registers come from the register description, job flags from the kernel
interface, codes from the header and the system's table of errors; the lines are those of the vendor's
driver and library (uapi 1.11; rknn_api reference 4.6).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rkcosim.regcmd import disassemble, format_command
from rkcosim.regcmd.job import fold_interrupts, interrupt_names
from rkcosim.rknn_api import types as t
from rkcosim.spec.regs import Register, registers

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


@dataclass
class Explanation:
    """A recognised piece of text, its kind, and its meaning line by line."""

    text: str
    title: str
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.text}", f"  {self.title}", *(f"    {line}" for line in self.lines)])


def explain(text: str) -> list[Explanation]:
    """Explain every line of a text that is about an NPU.

    Returns
    -------
    One explanation for each recognised piece of text, in order; empty if nothing was recognised.
    """
    found = []
    for line in text.splitlines():
        line = line.strip()
        if not line:
            continue
        for pattern, build in RULES.items():
            if match := re.search(pattern, line):
                found.append(build(match))
                break
    return found


def events(status: int) -> list[str]:
    """Events of an interrupt status, one line each, from the register description."""
    names = interrupt_names(status)
    lines = [_event(name) for name in names]
    rest = status
    for name in names:
        rest &= ~_bits()[name]
    if rest:
        lines.append(f"0x{rest:X}: bits without a known event")
    return lines or ["no event"]


def _bits() -> dict[str, int]:
    return dict(registers()["PC"]["INTERRUPT_RAW_STATUS"].fields["int_raw_st"].enum or {})


def _event(name: str) -> str:
    bit = _bits()[name].bit_length() - 1
    block, _, group = name.rpartition("_")
    if group in ("0", "1"):
        what = {"CNA_FEATURE": "CNA has read its features", "CNA_WEIGHT": "CNA has read its weights"}
        text = (
            what.get(block, f"{block.removeprefix('CNA_')} has done its task") + f" (register group {group})"
        )
    else:
        text = f"a DMA {'read' if 'READ' in name else 'write'} returned an error: a wrong address in the task"
    return f"bit {bit} {name}: {text}"


def _status(value: int, what: str = "int status") -> list[str]:
    return [f"{what} 0x{value:X}:", *(f"  {line}" for line in events(value))]


def _number(text: str) -> int:
    return int(text, 0)


def _flags(value: int) -> str:
    from rkcosim.driver.kernel import structs

    names = [name for name in vars(structs) if name.startswith("JOB_") and value & getattr(structs, name)]
    return ", ".join(name.removeprefix("JOB_") for name in names) or "none"


def _pairs(text: str) -> dict[str, str]:
    """`key: value` pairs in a line."""
    return {key.strip(): value.strip() for key, value in re.findall(r"([a-z][a-z ]*?): ([^,]+)", text)}


def _submit(match: re.Match[str]) -> Explanation:
    pairs = _pairs(match["rest"])
    made = Explanation(match[0], "the runtime submitted a job to the driver, which returned an error")
    if "op name" in pairs or "op id" in pairs:
        made.lines.append(f"operator {pairs.get('op id', '?')}, {pairs.get('op name', 'without a name')}")
    if "flags" in pairs:
        made.lines.append(f"job flags {pairs['flags']}: {_flags(_number(pairs['flags']))}")
    if {"task start", "task number", "run task counter"} <= pairs.keys():
        start, number = _number(pairs["task start"]), _number(pairs["task number"])
        counter = _number(pairs["run task counter"])
        if counter < number:
            made.lines.append(f"{counter} of {number} tasks ended: task {start + counter} hangs")
        else:
            made.lines.append(f"all {number} tasks ended: the final interrupt is missing or does not match")
    if "int status" in pairs:
        status = _number(pairs["int status"])
        made.lines += _status(status)
        made.lines.append(_verdict(status))
    return made


def _verdict(status: int) -> str:
    names = interrupt_names(status)
    if any(name.startswith("DMA") for name in names):
        return "the results may be wrong: a buffer is missing, freed or too small for the task's sizes"
    if not status:
        return "nothing has ended: a block waits for data, or the command list is wrong"
    if any(name.startswith(("DPU", "PPU")) for name in names):
        return "the output stage has ended: the required mask contains other events"
    return "the task has not got beyond these blocks: the blocks after them wait"


def _waited(match: re.Match[str]) -> Explanation:
    result = "the time-out expired" if match["ret"] == "0" else _errno_text(_number(match["ret"]))
    return Explanation(
        match[0],
        "the driver gave up waiting for a job",
        [
            f"{match['counter']} tasks of the last kick had ended, so task {match['counter']} of it hangs",
            f"job flags {match['flags']}: {_flags(_number(match['flags']))}",
            f"ret {match['ret']}: {result}; the program gets ETIMEDOUT",
            f"after {match['us']} us; a soft reset of the NPU follows",
        ],
    )


def _core(match: re.Match[str]) -> Explanation:
    irq, raw, mask = (_number(match[name]) for name in ("irq", "raw", "mask"))
    title = (
        f"core {match['core']} at that moment" if match["core"] else "an interrupt that did not end its kick"
    )
    lines = [*_status(raw, "raw status"), *_status(irq, "irq status (raw status after the mask)")]
    lines.append(f"require mask 0x{mask:X}: {', '.join(interrupt_names(mask)) or 'nothing'}")
    if fold_interrupts(irq) == fold_interrupts(mask):
        lines.append("the status matches the mask: the job was complete")
    else:
        missing = fold_interrupts(mask) & ~fold_interrupts(raw)
        lines.append(f"missing events: {', '.join(interrupt_names(missing)) or 'nothing'}")
    lines.append(f"tasks ended: {_number(match['counter'])}")
    return Explanation(match[0], title, lines)


def _fault(match: re.Match[str]) -> Explanation:
    address = _number(match["address"] if match["address"].startswith("0x") else "0x" + match["address"])
    return Explanation(
        match[0],
        f"the NPU tried to {match['type']} at 0x{address:08X}, where no buffer is mapped",
        [
            "an address register of the task is wrong, or a size or stride exceeds its buffer",
            "addresses in a task are relative to TASK_DMA_BASE_ADDR where that is not 0",
        ],
    )


def _code(match: re.Match[str]) -> Explanation:
    if match.groupdict().get("name"):
        name = match["name"]
        code = getattr(t, name)
    else:
        code = _number(match["code"])
        name = next(n for n in t.__all__ if n.startswith(("RKNN_ERR", "RKNN_SUCC")) and getattr(t, n) == code)
    return Explanation(match[0], f"{name} ({code}): {MEANINGS[code]}")


def _errno_text(number: int) -> str:
    number = abs(number)
    name = errno.errorcode.get(number)
    if name is None:
        return f"{number} is not an error number of this system"
    return f"{name} ({os.strerror(number)}): {DRIVER_ERRNO.get(number, 'not a code of the NPU drivers')}"


def _errno(match: re.Match[str]) -> Explanation:
    text = match["errno"]
    number = _number(text) if text.lstrip("-").isdigit() else int(getattr(errno, text))
    return Explanation(match[0], _errno_text(number))


def _bare(match: re.Match[str]) -> Explanation:
    value = _number(match["value"])
    made = Explanation(match[0], "a number; it can be")
    if 0 <= value < 1 << 17:
        made.lines += _status(value, "an interrupt status")
    if -14 < value < 0:
        made.lines.append(f"a code of rknn_api: {MEANINGS[value]}")
    if -200 < value < 0 or value in DRIVER_ERRNO:
        made.lines.append(f"an error number: {_errno_text(value)}")
    if value >= 1 << 32:
        made.lines += ["a command word:", *(f"  {format_command(c)}" for c in disassemble([value]))]
    return made


def _register(match: re.Match[str]) -> Explanation:
    described = _find(match["register"])
    if described is None:
        return Explanation(match[0], f"there is no register {match['register']}")
    value = _number(match["value"])
    lines = []
    for name, content in described.decode(value).items():
        label = described.fields[name].label(content)
        lines.append(f"{name} = {content}" + (f" ({label})" if label else ""))
    return Explanation(match[0], f"{described.path} at 0x{described.offset:04X}: {described.desc}", lines)


def _find(name: str) -> Register | None:
    if name.lower().startswith("0x"):
        return registers().at(int(name, 0))
    block, _, register = name.upper().partition(".")
    try:
        return registers()[block][register]
    except KeyError:
        return None


def _known(title: str, *lines: str) -> Callable[[re.Match[str]], Explanation]:
    return lambda match: Explanation(match[0], match.expand(title), [match.expand(line) for line in lines])


_HEX = r"(?:0x)?[0-9a-fA-F]+"
RULES: dict[str, Callable[[re.Match[str]], Explanation]] = {
    r"failed to submit!?,?(?P<rest>.*)": _submit,
    (
        r"failed to wait job, task counter: (?P<counter>\d+), flags: (?P<flags>0x[0-9a-f]+|\d+), "
        r"ret = (?P<ret>-?\d+), elapsed time: (?P<us>\d+)us"
    ): _waited,
    (
        r"(?:core (?P<core>\d) |invalid )irq status: (?P<irq>0x[0-9a-fA-F]+|\d+), "
        r"raw status: (?P<raw>0x[0-9a-fA-F]+|\d+), require mask: (?P<mask>0x[0-9a-fA-F]+|\d+), "
        r"task counter: (?P<counter>0x[0-9a-fA-F]+|\d+)"
    ): _core,
    r"[Pp]age fault at (?P<address>" + _HEX + r") of type (?P<type>read|write)": _fault,
    r"wait_count: (\d+), continue wait: (\d), .*timeout: (\d+)us": _known(
        "a wait for a job timed out; 'continue wait' 1 waits again, as the job was started late or never",
        r"wait \1 of at most 3, continue \2, timeout \3 us",
    ),
    r"job timeout, flags: \S+": _known("a job timed out; its cores follow, one per line"),
    r"(?:(?P<node>\S+): )?NPU job timed out": lambda m: Explanation(
        m[0],
        "rocket ended a job that had not finished after 500 ms",
        [
            *([f"{m['node']} is the core"] if m["node"] else []),
            "its core is reset and the next queued jobs continue; its buffers become idle, so a wait for "
            "them (PREP_BO) succeeds although the outputs are incomplete",
            "one of its tasks raised no DPU interrupt: a block waits for data, or the command list or "
            "regcmd_count is wrong",
        ],
    ),
    r"DMA error, raw status: (?P<raw>0x[0-9a-fA-F]+|\d+)": lambda m: Explanation(
        m[0],
        "rocket saw a DMA error of a task, which continues",
        [*_status(_number(m["raw"]), "raw status"), _verdict(_number(m["raw"]))],
    ),
    r"job abort, flags: \S+, ret: (-?\d+)": lambda m: Explanation(
        m[0], f"a job was aborted: {_errno_text(int(m[1]))}"
    ),
    r"soft reset, num: (\d+)": _known(r"the NPU was reset", r"\1 reset lines, bus and core of each NPU core"),
    r"job commit failed": _known("the job was never started: its core mask has no core that starts"),
    r"invalid rknpu task number!": _known("task_number of the submit structure is 0 (EINVAL)"),
    r"(?:invalid rknpu core mask|Unknown core mask): (\S+)": _known(
        r"core_mask \1: 0 (automatic), 1, 2, 4, 3 and 7 start; 5 and 6 are accepted and never start"
    ),
    r"invalid fence in fd, fd: (-?\d+)": _known(r"descriptor \1 is not a fence (sync file) (EINVAL)"),
    r"param input size\((\d+)\) < model input size\((\d+)\)": _known(
        "rknn_inputs_set: the buffer is too small (RKNN_ERR_PARAM_INVALID)",
        r"\1 bytes given, \2 needed: elements times the size of the rknn_input's `type` (0 is FLOAT32)",
    ),
    r"(input|output) memory size\((\d+)\) < model \w+ size\((\d+)\)": _known(
        r"rknn_set_io_mem: the \1 memory is too small (RKNN_ERR_PARAM_INVALID)",
        r"\2 bytes given, \3 needed: size_with_stride of the attribute",
    ),
    r"info_len\((\d+)\) < sizeof\((\w+)\)\((\d+)\)": _known(
        r"rknn_query: program and library were built with different headers (RKNN_ERR_PARAM_INVALID)",
        r"\2 has \3 bytes, the program passes \1",
    ),
    r"Invalid RKNN model version (\d+)": _known(
        r"the .rknn file has format \1, newer than the library (RKNN_ERR_MODEL_INVALID)"
    ),
    r"Meet unsupported src layout for normalize": _known(
        "rknn_inputs_set: fmt NCHW cannot be used where mean and std are applied; use NHWC"
    ),
    r"core mode (\d+) is not supported": _known(
        r"rknn_set_core_mask: \1 is none of 0, 1, 2, 4, 3, 7, 0xffff"
    ),
    r"Not support core mask: (\d+)": _known(
        r"matrix products run on one core; mask \1 was rejected (RKNN_ERR_FAIL)"
    ),
    r"failed to convert fd\S* .*to handle": _known(
        "a buffer cannot be mapped for the NPU: its 4 GiB of addresses are full, or fd is not a dma-buf"
    ),
    r"fence fd = -1 is invalid": _known(
        "rknn_wait or rknn_run requires a fence, and none was given (extend.fence_fd)"
    ),
    r"\b(?P<name>RKNN_(?:ERR_[A-Z_]+[A-Z]|SUCC))\b": _code,
    r"\b(?:rknn_\w+\b.*?(?:ret|error|returned|fail\w*)\D*?|ret ?= ?)(?P<code>-(?:1[0-3]|[1-9])|0)\b": _code,
    r"\b(?P<errno>E(?:INVAL|FAULT|NOMEM|TIMEDOUT|BUSY|BADF|ACCES|NOENT|INTR|AGAIN|PERM|NODEV))\b": _errno,
    r"(?:ioctl|submit)\b.*?(?:returned|ret ?=|:)\s*(?P<errno>-\d+)\b": _errno,
    r"\b[Ee]rrno:? ?=? ?(?P<errno>-?\d+)\b": _errno,
    r"^(?P<register>[A-Za-z_]+\.\w+|0x[0-9a-fA-F]{4})\s*[:=]?\s+(?P<value>0x[0-9a-fA-F]+|\d+)$": _register,
    r"^(?:int[_ ]status|irq[_ ]status|raw[_ ]status)\D*(?P<value>0x[0-9a-fA-F]+|\d+)$": lambda m: Explanation(
        m[0], "an interrupt status", _status(_number(m["value"]))[1:]
    ),
    r"^(?P<value>-?(?:0x[0-9a-fA-F]+|\d+))$": _bare,
}
"""Patterns in the order in which they are tried on a line, and functions that explain a match."""
