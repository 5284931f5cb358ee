"""Accesses of AXI4-Lite for a timing diagram: a write, a write without all strobes, and a read."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from rkcosim.cocotb import NpuAgent
from rkcosim.spec.regs import registers


@cocotb.test(timeout_time=10, timeout_unit="us")
async def accesses(dut: Any) -> None:
    """Write INTERRUPT_MASK, then one byte of it, then read it."""
    npu = NpuAgent(dut)
    await npu.reset()
    await ClockCycles(dut.clk, 300 - npu.cycle)
    offset = registers()["PC"]["INTERRUPT_MASK"].offset
    await npu.host.master.write(offset, (0x0C00).to_bytes(4, "little"))
    refused = await npu.host.master.write(offset, b"\xff")
    assert int(refused.resp) == 2, "SLVERR"
    answer = await npu.host.master.read(offset, 4)
    assert int.from_bytes(answer.data, "little") == 0x0C00
    await ClockCycles(dut.clk, 4)
