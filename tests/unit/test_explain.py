"""`rkcosim explain`: explanations of log lines, codes, statuses and registers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import rkcosim.rknn_api.types as t
from rkcosim.cli.main import app
from rkcosim.rknn_api.explain import MEANINGS, events, explain
from rkcosim.spec.regs import registers

CASES = {
    "E RKNN: [11:22:33.123] failed to submit!, op id: 1, op name: Conv:conv1, flags: 0x5, task start: 3, "
    "task number: 24, run task counter: 2, int status: 0, please try updating": (
        "operator 1, Conv:conv1",
        "PC, PINGPONG",
        "2 of 24 tasks ended: task 5 hangs",
        "no event",
    ),
    "failed to submit!, op id: 0, int status: 4096": ("DMA_READ_ERROR", "results may be wrong"),
    "[ 12.5] RKNPU: failed to wait job, task counter: 2, flags: 0x5, ret = 0, elapsed time: 6012345us": (
        "task 2 of it hangs",
        "the time-out expired",
        "ETIMEDOUT",
    ),
    "RKNPU: failed to wait job, task counter: 0, flags: 0x1, ret = -512, elapsed time: 1us": ("512",),
    "RKNPU: job timeout, flags: 0x0:": ("a job timed out",),
    "\tcore 1 irq status: 0x0, raw status: 0x15, require mask: 0x300, task counter: 0x2, elapsed time: 6us": (
        "core 1",
        "CNA has read its features",
        "bit 4 CNA_CSC_0",
        "missing events: DPU_0, DPU_1",
        "tasks ended: 2",
    ),
    "invalid irq status: 0x100, raw status: 0x115, require mask: 0x300, task counter: 0x1": (
        "did not end its kick",
        "the status matches the mask",
    ),
    "rocket fdab0000.npu: NPU job timed out": (
        "rocket ended a job that had not finished after 500 ms",
        "fdab0000.npu is the core",
        "regcmd_count",
    ),
    "[  9.1] rocket fdac0000.npu: WARNING: DMA error, raw status: 0x1115": (
        "DMA_READ_ERROR",
        "results may be wrong",
    ),
    "RKNPU: job abort, flags: 0x0, ret: -22, elapsed time: 10us": ("EINVAL",),
    "RKNPU: soft reset, num: 6": ("6 reset lines",),
    "RKNPU: job commit failed": ("never started",),
    "RKNPU: invalid rknpu task number!": ("task_number",),
    "RKNPU: Unknown core mask: 6": ("core_mask 6",),
    "RKNPU: invalid fence in fd, fd: -1": ("-1 is not a fence",),
    "RKNPU: job: 0x1, mask: 0x1, wait_count: 1, continue wait: 1, commit elapse time: 3us, wait time: 3us, "
    "timeout: 6000000us": ("wait 1 of at most 3",),
    "rk_iommu fdab9000.iommu: Page fault at 0x00000000ffe00000 of type write": ("write at 0xFFE00000",),
    "rknn_init fail! ret=-6": ("RKNN_ERR_MODEL_INVALID (-6)",),
    "RKNN_ERR_CTX_INVALID": ("(-7)", "never created or has been destroyed"),
    "rknn_run returned -1": ("RKNN_ERR_FAIL",),
    "OSError: [Errno 110] Connection timed out": ("ETIMEDOUT",),
    "ioctl(DRM_IOCTL_RKNPU_SUBMIT) returned -22": ("EINVAL",),
    "ENOENT": ("no buffer has this handle",),
    "-5": ("an argument is wrong", "error number"),
    "0x300": ("bit 8 DPU_0", "bit 9 DPU_1"),
    "int status 0x1300": ("DMA_READ_ERROR",),
    "CNA.CONV_CON1 0x20000000": ("0x100C", "GROUP_LINE_OFF = 1", "IN_PRECISION = 0 (INT8)"),
    "0x100C = 0x20000000": ("CNA.CONV_CON1",),
    "param input size(432) < model input size(1728)": ("432 bytes given, 1728 needed",),
    "info_len(372) < sizeof(rknn_tensor_attr)(376)!": (
        "rknn_tensor_attr has 376 bytes, the program passes 372",
    ),
    "input memory size(287) < model input size(288)": ("the input memory is too small",),
    "Invalid RKNN model version 6": ("format 6",),
    "Not support core mask: 3, fallback to single core auto mode": ("mask 3 was rejected",),
    "the core mode 6 is not supported currently": ("6 is none of",),
}


@pytest.mark.parametrize("line", CASES, ids=range(len(CASES)))
def test_lines(line: str) -> None:
    found = explain(line)
    assert len(found) == 1
    for wanted in CASES[line]:
        assert wanted in str(found[0])


def test_a_pasted_log_is_explained_line_by_line() -> None:
    log = "\n".join([*CASES, "", "nothing of interest", "eth0: link is up"])
    assert len(explain(log)) == len(CASES)


def test_every_event_and_every_code_has_words() -> None:
    described = registers()["PC"]["INTERRUPT_RAW_STATUS"].fields["int_raw_st"].enum or {}
    for name, bit in described.items():
        (line,) = events(bit)
        assert name in line and line.startswith(f"bit {bit.bit_length() - 1} ")
    assert events(0) == ["no event"] and "without a known event" in events(1 << 15)[0]
    codes = {getattr(t, n) for n in t.__all__ if re.match(r"RKNN_(ERR|SUCC)", n)}
    assert codes == set(MEANINGS)
    for code in codes:
        assert str(code) in str(explain(f"rknn_query error ret={code}")[0])


def test_a_command_word() -> None:
    from rkcosim.regcmd import register_word

    word = register_word(registers()["CNA"]["CONV_CON1"], 0x20000000)
    assert "CNA.CONV_CON1" in str(explain(f"0x{word:016x}")[0])


def test_command_line(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["explain", "int", "status", "0x300", "--json", str(tmp_path / "e.json")])
    assert result.exit_code == 0 and "DPU_0" in result.output
    data = json.loads((tmp_path / "e.json").read_text())
    assert data["schema_version"] == 1 and data["explanations"][0]["title"] == "an interrupt status"
    piped = runner.invoke(app, ["explain"], input="rknn_init fail! ret=-6\nRKNPU: soft reset, num: 6\n")
    assert piped.exit_code == 0 and "MODEL_INVALID" in piped.output and "reset lines" in piped.output
    assert runner.invoke(app, ["explain", "0x300", "-5"]).output.count("a number") == 2
    assert runner.invoke(app, ["explain", "hello", "world"]).exit_code == 2
