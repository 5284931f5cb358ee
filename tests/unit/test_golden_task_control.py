"""Command lists, register groups, reuse, reports and bad registers of the task-level golden model."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenError, GoldenHang, GoldenNpu, Memory
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.crosscheck.program import Task, link
from tests.makers.int8_tasks import (
    COMMANDS,
    FEATURES,
    OPERANDS,
    OUT,
    device,
    loaded,
    read_out,
    run,
    small_conv,
)


def test_weight_and_data_reuse_read_what_cbuf_holds() -> None:
    dev, first, acc = loaded()
    second, _, _ = small_conv()
    second.set("CNA", "CBUF_CON0", WEIGHT_REUSE=1, DATA_REUSE=1)
    second.address("CNA", "FEATURE_DATA_ADDR", 0x7000000)  # not mapped: nothing may be fetched
    second.address("CNA", "DCOMP_ADDR0", 0x7000000)
    second.address("DPU", "DST_BASE_ADDR", OUT + 0x4000)
    run(dev, first, second)
    assert dev.memory.read(OUT, 256) == dev.memory.read(OUT + 0x4000, 256)
    assert read_out(dev, (4, 4, 4), 4) == acc
    assert [t.client for t in dev.reports[1].reads] == []


def test_delta_task_inherits_the_group_of_two_tasks_before() -> None:
    dev, first, acc = loaded()
    tasks = [first] + [small_conv()[0] for _ in range(3)]
    for i, task in enumerate(tasks):
        task.address("DPU", "DST_BASE_ADDR", OUT + 0x1000 * i)
    tasks[1].set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=1)
    tasks[3].set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=1)
    run(dev, *tasks, delta=True)
    lists = link(tasks, COMMANDS, delta=True).lists
    assert len(lists[2][1]) < 12 and len(lists[3][1]) < 12
    images = [np.frombuffer(dev.memory.read(OUT + 0x1000 * i, 256), "<i4") for i in range(4)]
    assert (images[2] == images[0]).all() and (images[3] == images[1]).all()
    assert (images[1] == images[0] + 1).all()
    assert [r.groups["CNA"] for r in dev.reports] == [0, 1, 0, 1]
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_report_says_what_was_done() -> None:
    dev, task, _ = loaded()
    run(dev, task)
    report = dev.reports[0]
    assert report.kind == "conv" and report.macs == 16 * 4 * 16
    assert {t.client: t.bytes for t in report.reads} == {"feature": 256, "weight": 64}
    assert report.bytes_written == 256


def test_interrupt_bits_follow_the_group() -> None:
    dev, task, _ = loaded()
    run(dev, task)
    assert dev.raw == 0b01_0101_0101
    run(dev, task)
    assert dev.raw == 0b11_1111_1111


def test_dma_base_is_added_to_data_but_not_to_commands() -> None:
    dev, task, acc = loaded()
    chain = link([task], COMMANDS, dma_base=0x100)
    dev.memory.write(COMMANDS, np.array(chain.lists[0][1], "<u8"))
    dev.run_kick(chain.base, chain.amount, 1, dma_base=0x100)
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_wrong_core_index_hangs() -> None:
    dev, task, _ = loaded()
    with pytest.raises(GoldenHang, match=r"task 0: CNA.S_POINTER.CORE_INDEX = 0x1: .*WRONG_CORE"):
        run(dev, task, core_index=1)


def test_list_without_op_enable_hangs() -> None:
    dev = device()
    with pytest.raises(GoldenHang, match="no op-enable word"):
        dev.run_kick(COMMANDS, 3, 1)


@pytest.mark.parametrize("left_over", ["MRDMA", "ERDMA", "SIZE_E"])
def test_blocks_that_end_before_the_dpu_hangs_are_idle(left_over: str) -> None:
    """The DPU waits for all of CORE's results and never ends; CNA and CORE have ended, with their events."""
    dev, task, _ = loaded()
    npu = GoldenNpu(1, strict=False, memory=dev.memory)
    task.blocks = (*task.blocks, "DPU_RDMA")
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=int(left_over != "MRDMA"))
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=int(left_over != "ERDMA"), ERDMA_DATA_SIZE=1)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=3)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=3)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=3)
    for register in ("SRC_BASE_ADDR", "EW_BASE_ADDR"):
        task.address("DPU_RDMA", register, OPERANDS)
    if left_over == "SIZE_E":
        task.set("DPU", "BS_OW_CFG", OD_BYPASS=0, SIZE_E_0=1, SIZE_E_1=1, SIZE_E_2=1)
    chain = link([task], COMMANDS)
    npu.memory.write(COMMANDS, np.array(chain.lists[0][1], "<u8"))
    start(npu, Kick(chain.base, chain.amount, 1, 0x300))
    assert npu.irq == 0 and left_over in npu.block_state(0)
    states = {b: npu.read32(0, registers()[b]["S_STATUS"].offset) for b in ("CNA", "CORE", "DPU", "DPU_RDMA")}
    assert states == {"CNA": 0, "CORE": 0, "DPU": 1, "DPU_RDMA": 1}
    assert npu.read32(0, registers()["PC"]["INTERRUPT_RAW_STATUS"].offset) == 0b0101_0101


def change(task: Task, block: str, register: str, **values: int) -> Task:
    task.set(block, register, **values)
    return task


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        (("CNA", "CBUF_CON0", {"DATA_BANK": 5}), GoldenError, "CNA.CBUF_CON0.DATA_BANK = 0x5: .*BANK_SUM"),
        (("CNA", "CBUF_CON1", {"DATA_ENTRIES": 1000}), GoldenError, "4 banks have 2048 .*FEATURE_FOOTPRINT"),
        (("CNA", "WEIGHT_SIZE0", {"WEIGHT_BYTES": 32}), GoldenHang, "the loops read 64 bytes"),
        (("CNA", "CONV_CON1", {"CONV_MODE": 1}), GoldenError, "RESERVED_MODE"),
        (("CNA", "CONV_CON1", {"IN_PRECISION": 2}), GoldenError, "CONV_CON1.PROC_PRECISION = 0x0"),
        (("DPU", "DATA_CUBE_WIDTH", {"WIDTH": 2}), GoldenError, "SIZE_MISMATCH"),
        (
            ("DPU", "BS_OW_CFG", {"OD_BYPASS": 0, "SIZE_E_0": 1, "SIZE_E_1": 1, "SIZE_E_2": 1}),
            GoldenHang,
            r"a group has 8 surfaces of this type, but SIZE_E_1 \+ 1 is 2",
        ),
        (("DPU", "FEATURE_MODE_CFG", {"OUTPUT_MODE": 3}), GoldenHang, "the PPU does not accept"),
        (
            ("DPU", "BS_CFG", {"BS_BYPASS": 0, "BS_ALU_SRC": 1, "BS_ALU_ALGO": 2}),
            GoldenHang,
            "waits for BRDMA",
        ),
        (("DPU", "EW_CFG", {"EW_BYPASS": 0, "EW_OP_SRC": 1}), GoldenHang, "waits for ERDMA"),
        (("DPU", "EW_CFG", {"EW_BYPASS": 0, "EW_LUT_BYPASS": 0}), GoldenError, "LUT_LO_LE_MUX"),
        (("CNA", "DATA_SIZE0", {"DATAIN_HEIGHT": 0}), GoldenError, "EMPTY_SIZE"),
        (("CNA", "CONV_CON2", {"CSC_DO_EN": 1}), GoldenError, "CSC_DO_EN"),
    ],
)
def test_bad_registers_are_named(where: tuple, error: type, text: str) -> None:
    dev, task, _ = loaded()
    block, register, values = where
    with pytest.raises(error, match=text):
        run(dev, change(task, block, register, **values))


def test_access_outside_memory_is_named() -> None:
    dev, task, _ = loaded()
    task.address("CNA", "FEATURE_DATA_ADDR", FEATURES + 0x8000 - 16)
    with pytest.raises(
        GoldenError, match=r"task 0: CNA.FEATURE_DATA_ADDR = 0x18000: feature read .*READ_ERROR"
    ):
        run(dev, task)


def test_go_on_instead_of_stop_collects_findings() -> None:
    dev, task, acc = loaded()
    dev.strict = False
    run(dev, change(task, "CNA", "CONV_CON2", CSC_DO_EN=1))
    assert [f.code for f in dev.findings] == ["RESERVED_MODE"]
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_memory_refuses_overlaps_and_gaps() -> None:
    memory = Memory()
    memory.map(0x1000, 0x1000)
    with pytest.raises(ValueError, match="overlaps"):
        memory.map(0x1800, 0x1000)
    with pytest.raises(Exception, match="outside every mapped range"):
        memory.read(0x1FFF, 2)
