"""cocotb testbench of one core in generated Verilog; `test_core_verilog.py` runs it."""

from __future__ import annotations

import logging
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import First, RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiResp

from cosim.golden.task import GoldenDevice, Memory
from rtl.regs import registers
from sw.regcmd import TaskBuilder, words_to_bytes
from tests.models.small_tasks import add_task, pool_task

R = registers()
PC = R["PC"]
PERIOD_NS = 2
RAM_BYTES = 1 << 16
COMMANDS, SOURCE, TARGET = 0x1000, 0x4000, 0x8000
IRQ_CYCLES = 3000


class Core:
    """The core with a host on its register bus and memory on its AXI port."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        logging.getLogger("cocotb.core").setLevel(logging.WARNING)  # one line per access otherwise
        cocotb.start_soon(Clock(dut.clk, PERIOD_NS, "ns").start())
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=RAM_BYTES)

    async def reset(self) -> None:
        self.dut.core_index.value = 0
        self.dut.rst.value = 1
        await self.cycles(8)
        self.dut.rst.value = 0
        await self.cycles(4)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def read(self, block: str, register: str) -> int:
        answer = await self.host.read(R[block][register].offset, 4)
        assert answer.resp == AxiResp.OKAY, f"{block}.{register}: {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, block: str, register: str, value: int) -> None:
        answer = await self.host.write(R[block][register].offset, value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, f"{block}.{register}: {answer.resp!r}"

    async def wait_irq(self) -> None:
        """Wait for the interrupt line, or fail after `IRQ_CYCLES`."""
        if not int(self.dut.irq.value):
            bound = Timer(IRQ_CYCLES * PERIOD_NS, "ns")
            fired = await First(RisingEdge(self.dut.irq), bound)
            assert fired is not bound, f"no interrupt within {IRQ_CYCLES} cycles"

    async def commit(self, task: TaskBuilder, event: int) -> None:
        """Start one task as a driver does (H1.9)."""
        for block in ("CNA", "CORE"):
            flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
            await self.write(block, "S_POINTER", R[block]["S_POINTER"].encode(CORE_INDEX=0, **flags))
        base = PC["BASE_ADDRESS"]
        await self.write("PC", "BASE_ADDRESS", base.encode(PC_SEL="SLAVE_MODE"))
        await self.write("PC", "BASE_ADDRESS", base.encode(PC_SOURCE_ADDR=COMMANDS // 16))
        await self.write("PC", "REGISTER_AMOUNTS", PC["REGISTER_AMOUNTS"].encode(PC_DATA_AMOUNT=task.amount))
        await self.write("PC", "INTERRUPT_MASK", event)
        await self.write("PC", "INTERRUPT_CLEAR", event)
        control = PC["TASK_CON"].encode(RESERVED_14=1, TASK_COUNT_CLEAR=1, TASK_PP_EN=1, TASK_NUMBER=1)
        await self.write("PC", "TASK_CON", control)
        await self.write("PC", "TASK_DMA_BASE_ADDR", 0)
        await self.write("PC", "OPERATION_ENABLE", PC["OPERATION_ENABLE"].encode(OP_EN=1))
        await self.write("PC", "OPERATION_ENABLE", 0)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def registers_answer(dut: Any) -> None:
    core = Core(dut)
    await core.reset()
    assert await core.read("PC", "VERSION") == PC["VERSION"].reset
    mask = PC["INTERRUPT_MASK"].fields["int_mask"].mask & 0x5A5A5A5A
    for value in (mask, 0):
        await core.write("PC", "INTERRUPT_MASK", value)
        assert await core.read("PC", "INTERRUPT_MASK") == value
    assert (await core.host.read(0x2000, 4)).resp == AxiResp.SLVERR
    assert await core.read("PC", "INTERRUPT_STATUS") == 0
    assert not int(dut.irq.value)


def events(block: str) -> int:
    """Both events of a block."""
    names = PC["INTERRUPT_MASK"].fields["int_mask"].enum
    return names[f"{block}_0"] | names[f"{block}_1"]


async def matches_golden(core: Core, task: TaskBuilder, block: str, written: int) -> None:
    """Run a task on random memory and compare all of it with the golden model."""
    image = np.random.default_rng(written).integers(0, 256, RAM_BYTES, np.uint8)
    words = task.words()
    raw = np.frombuffer(words_to_bytes(words), np.uint8)
    image[COMMANDS : COMMANDS + raw.size] = raw
    core.ram.write(0, image.tobytes())
    memory = Memory()
    memory.map(0, RAM_BYTES)[:] = image
    GoldenDevice(memory).run_task(words)
    expected = memory.read(0, RAM_BYTES)
    assert sum(a != b for a, b in zip(expected, image.tobytes(), strict=True)) > written // 2

    await core.commit(task, events(block))
    assert core.ram.read(TARGET, written) == image[TARGET : TARGET + written].tobytes()  # not done yet
    await core.wait_irq()
    status = await core.read("PC", "INTERRUPT_STATUS")
    assert status and not status & ~events(block), f"status 0x{status:X}"
    assert core.ram.read(0, RAM_BYTES) == expected
    await core.write("PC", "INTERRUPT_CLEAR", status)
    assert await core.read("PC", "INTERRUPT_STATUS") == 0
    await core.cycles(4)
    assert not int(core.dut.irq.value)
    assert not int(core.dut.busy_blocks.value)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def tasks_match_the_golden_model(dut: Any) -> None:
    core = Core(dut)
    await core.reset()
    await matches_golden(core, pool_task(SOURCE, TARGET, 5, 6), "PPU", 4 * 5 * 16)
    await matches_golden(core, add_task(SOURCE, SOURCE + 0x1000, TARGET, 3, 4), "DPU", 3 * 4 * 32)
