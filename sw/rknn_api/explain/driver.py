"""Lines of the kernel drivers (uapi 1.11; the vendor's rknpu_job.c and the mainline driver rocket)."""

from __future__ import annotations

import re

from rkcosim.regcmd.job import fold_interrupts
from rkcosim.rknn_api.explain.codes import ERESTARTSYS, errno_text
from rkcosim.rknn_api.explain.explanation import (
    HEX,
    Explanation,
    Rules,
    integer,
    known,
    status_lines,
    verdict,
)
from rkcosim.spec.interrupts import interrupt_names


def flags(value: int) -> str:
    """Return the names of the flags of a job."""
    from rkcosim.driver.kernel import structs

    names = [name for name in vars(structs) if name.startswith("JOB_") and value & getattr(structs, name)]
    return ", ".join(name.removeprefix("JOB_") for name in names) or "none"


def _waited(match: re.Match[str]) -> Explanation:
    """Explain the end of a wait: ret is 0 after a time-out, and negative if the wait itself failed."""
    ret, counter = integer(match["ret"]), match["counter"]
    lines = [f"job flags {match['flags']}: {flags(integer(match['flags']))}"]
    if ret < 0:
        title = "the wait for a job ended early, and nothing says that the job hangs"
        lines.append(f"ret {ret}: {errno_text(ret)}; it is not a time-out")
        if -ret == ERESTARTSYS:
            lines.append(
                "the program was stopped or killed (Ctrl-C, a debugger, a timer), after "
                f"{match['us']} us; a program that goes on submits the job again or gets EINTR"
            )
        lines.append(
            f"{counter} tasks of the kick had ended by then; the driver forgets the job without a reset"
        )
    else:
        title = "the driver gave up waiting for a job"
        lines += [
            f"{counter} tasks of the last kick had ended, so task {counter} of it hangs",
            f"ret {ret}: the time-out expired; the program gets ETIMEDOUT",
            f"after {match['us']} us; a soft reset of the NPU follows",
        ]
    return Explanation(match[0], title, lines)


def _aborted(match: re.Match[str]) -> Explanation:
    """Explain the abort of a job that did not time out."""
    ret = integer(match["ret"])
    lines = ["a job that timed out has the line 'job timeout' instead; here no reset of the NPU follows"]
    if ret == 0:
        title = "the driver removed a job that had not failed"
        lines.append(
            "ret is the job's own result: 0 says that no error was noted before its program stopped waiting "
            "(a signal, see 'failed to wait job' before it)"
        )
    else:
        title = f"a job was aborted: {errno_text(ret)}"
    return Explanation(match[0], title, lines)


def _core(match: re.Match[str]) -> Explanation:
    irq, raw, mask = (integer(match[name]) for name in ("irq", "raw", "mask"))
    title = (
        f"core {match['core']} at that moment" if match["core"] else "an interrupt that did not end its kick"
    )
    lines = [*status_lines(raw, "raw status"), *status_lines(irq, "irq status (raw status after the mask)")]
    lines.append(f"require mask 0x{mask:X}: {', '.join(interrupt_names(mask)) or 'nothing'}")
    if fold_interrupts(irq) == fold_interrupts(mask):
        lines.append("the status matches the mask: the job was complete")
    else:
        missing = fold_interrupts(mask) & ~fold_interrupts(raw)
        lines.append(f"missing events: {', '.join(interrupt_names(missing)) or 'nothing'}")
    lines.append(f"tasks ended: {integer(match['counter'])}")
    return Explanation(match[0], title, lines)


def _fault(match: re.Match[str]) -> Explanation:
    address = integer(match["address"] if match["address"].startswith("0x") else "0x" + match["address"])
    return Explanation(
        match[0],
        f"the NPU tried to {match['type']} at 0x{address:08X}, where no buffer is mapped",
        [
            "an address register of the task is wrong, or a size or stride exceeds its buffer",
            "addresses in a task are relative to TASK_DMA_BASE_ADDR where that is not 0",
        ],
    )


RULES: Rules = {
    (
        r"failed to wait job, task counter: (?P<counter>\d+), flags: (?P<flags>0x[0-9a-f]+|\d+), "
        r"ret = (?P<ret>-?\d+), elapsed time: (?P<us>\d+)us"
    ): _waited,
    (
        r"(?:core (?P<core>\d) |invalid )irq status: (?P<irq>0x[0-9a-fA-F]+|\d+), "
        r"raw status: (?P<raw>0x[0-9a-fA-F]+|\d+), require mask: (?P<mask>0x[0-9a-fA-F]+|\d+), "
        r"task counter: (?P<counter>0x[0-9a-fA-F]+|\d+)"
    ): _core,
    r"[Pp]age fault at (?P<address>" + HEX + r") of type (?P<type>read|write)": _fault,
    r"wait_count: (\d+), continue wait: (\d), .*timeout: (\d+)us": known(
        "a wait for a job timed out; 'continue wait' 1 waits again, as the job was started late or never",
        r"wait \1 of at most 3, continue \2, timeout \3 us",
    ),
    r"job timeout, flags: \S+": known("a job timed out; its cores follow, one per line"),
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
        [*status_lines(integer(m["raw"]), "raw status"), verdict(integer(m["raw"]))],
    ),
    r"job abort, flags: \S+, ret: (?P<ret>-?\d+)": _aborted,
    r"soft reset, num: (\d+)": known(r"the NPU was reset", r"\1 reset lines, bus and core of each NPU core"),
    r"job commit failed": known("the job was never started: its core mask has no core that starts"),
    r"invalid rknpu task number!": known("task_number of the submit structure is 0 (EINVAL)"),
    r"(?:invalid rknpu core mask|Unknown core mask): (\S+)": known(
        r"core_mask \1: 0 (automatic), 1, 2, 4, 3 and 7 start; 5 and 6 are accepted and never start"
    ),
    r"invalid fence in fd, fd: (-?\d+)": known(r"descriptor \1 is not a fence (sync file) (EINVAL)"),
}
