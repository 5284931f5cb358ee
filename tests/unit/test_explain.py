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
from rkcosim.spec.interrupts import masked
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
    "RKNPU: failed to wait job, task counter: 74, flags: 0x1, ret = -512, elapsed time: 13624us": (
        "ERESTARTSYS: a signal interrupted the wait",
        "not a time-out",
        "nothing says that the job hangs",
    ),
    "RKNPU: job abort, flags: 0x1, ret: 0, elapsed time: 121694us": ("had not failed", "no reset"),
    "E RKNN: [08:13:21.262] REGTASK: The bit width of field value exceeds the limit, target: v2, "
    "offset: 0x5048, shift = 19, limit: 0x1fff, value: 0x4210": (
        "DPU_RDMA.SRC_DMA_CFG.LINE_NOTCH_ADDR",
        "13 bits, so it holds at most 8191; the layer needs 16912",
        "3 or more parts",
    ),
    "E RKNN: [16:50:20.958] REGTASK: The bit width of field value exceeds the limit, target: v2, "
    "offset: 0x4030, shift = 0, limit: 0x1fff, value: 0x3fff": (
        "DPU.DATA_CUBE_WIDTH.WIDTH",
        "width as the compiler laid it out is 16384, and a task takes at most 8192",
        "2 or more parts",
    ),
    "E RKNN: REGTASK: The bit width of field value exceeds the limit, target: v1, offset: 0x4030, shift = 5, "
    "limit: 0x1fff, value: 0x3fff": ("no field at bit 5 of 0x4030",),
    "W RKNN: [01:23:24.855] emitUnpackRegtasks: align_surf(4) > notch_limit(8192)": ("8191 atoms",),
    "W RKNN: [01:23:24.855] emitCHW_C1HWC2_regtasks: align_surf overflow!": ("C1, H, W, C2", "NOTCH_ADDR_0"),
    "E RKNN: [02:20:21.409] emitCHW_C1HWC2_regtasks: not aligned": ("16 int8 or 8 fp16 channels",),
    "W RKNN: [13:38:22.316] emitABC_T_BAC_regtask notch_addr overflow": ("transpose of three dimensions",),
    "W RKNN: [01:23:24.854] Pad: mode constant unsupport pads[5] = 0": ("pads[5] is 0",),
    "D RKNN: [07:38:33.456] DatainEntries overflow, need to tiling more, datain_entries: 2100, "
    "limitation: 2048": ("2100 entries of the CBUF", "no error"),
    "E RKNN: [09:47:19.149] failed to config argb mode layer!": ("input of 1 to 4 channels",),
    "E RKNN: [11:31:01.895] channel is too large, may produce thousands of regtask, fallback to cpu!": (
        "runs on the CPU",
    ),
    "E RKNN: [16:50:26.190] invalid tensor malloc size, tensor name: , target: CPU, size: 0": (
        "without elements",
    ),
    "W RKNN: Failed to config layer: 'Conv:a' using 3Core fallback to single core mode,": (
        "layer Conv:a cannot be divided among 3 cores",
    ),
    "E RKNN: [07:24:10.076] Meet unsupported split": ("operator split",),
    "E RKNN: [10:47:25.873] ERROR: unsupport Einsum op in current": ("operator Einsum",),
    "Unsupport CPU op: GatherND in this librknnrt.so, please try updating": ("operator GatherND",),
    "E RKNN: unsupport cpu ArgMax op, op name: ArgMax:ArgMax in current, please try": ("operator ArgMax",),
    "E RKNN: [03:29:25.255] parseRKNN: invalid RKNN_MAGIC!": ("no .rknn file, or it is damaged",),
    "The rknn model does not match the RKNPU hardware version!": ("compiled for another chip",),
    "E RKNN: [03:51:51.071] rknn_set_input_shapes error, input name = input supported input shapes are": (
        "none of those that the model was built for",
    ),
    "ValueError: Invalid quantized_dtype 'float16', expect in ['w8a8', 'w8a16']!": ("'float16'", "'w8a8'"),
    "[ 1.0] RKNPU: 0x02010000000e1004 ( op: 0201 )": ("CNA.S_POINTER", "POINTER_PP_EN=1"),
    "core 0 regs: PC_OP_EN=0x1 PC_DATA_ADDR=0xfff00010 INT_MASK=0x300": (
        "PC.BASE_ADDRESS = 0xfff00010",
        "PC.INTERRUPT_MASK = 0x300",
    ),
    "[0x1010]: 0x00000300 [0x4030]: 0x0000001f": ("DPU.DATA_CUBE_WIDTH", "WIDTH = 31"),
    "0x5048": ("DPU_RDMA.SRC_DMA_CFG", "bits 31:19 LINE_NOTCH_ADDR"),
    "raw status: 0xc0000300": ("bit 8 DPU_0", "0xC0000000: bits without a known event"),
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


RUNS = {
    "rkcosim: no interrupt within 60000 cycles:": ("exit code 3", "--max-cycles"),
    "CNA: group 1 OPERATING": ("CNA is at work on the task of register group 1",),
    "task 1, interrupt low, not idle, now: stall_acc": ("have not ended", "stall_acc: CORE's accumulators"),
    "CNA waits for CORE, which is not at work": ("CNA cannot go on",),
    "task 1: CNA: waits for CORE, not running": ("CNA cannot go on",),
    "task 1: DPU.BS_OW_CFG.OW_SRC = 0x1: waits for BRDMA operands": ("golden model", "DPU.BS_OW_CFG at 0x"),
    "core 0, task 3, cycle 7865: PPU.DATA_CUBE_IN_WIDTH: two sizes that must be equal differ "
    "(SIZE_MISMATCH, 0x0)": ("refuses a setting of task 3", "PPU.DATA_CUBE_IN_WIDTH at 0x600C"),
    "lint: error: task 2, word 4: DPU.S_POINTER = 14: group 0 of DPU is enabled, follows from task 1, word 4 "
    "[group.other]": ("rule group.other", "correct task 1, word 4 first"),
}


@pytest.mark.parametrize("line", RUNS)
def test_lines_of_runs_of_this_project(line: str):
    (found,) = explain(line)
    assert all(part in str(found) for part in RUNS[line]), str(found)


def test_the_line_about_a_masked_event_is_explained():
    """The line itself, as a run prints it."""
    names = registers()["PC"]["INTERRUPT_RAW_STATUS"].fields["int_raw_st"].enum
    (line,) = masked(names["DPU_0"] | names["PPU_0"], names["PPU_0"], 10, 10)
    (found,) = explain(line)
    assert "suppresses" in found.title and "PPU_0" in found.lines[0]
