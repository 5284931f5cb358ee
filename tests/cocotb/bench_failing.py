"""One test that fails and one that passes; `test_kit.py` runs it."""

from __future__ import annotations

import cocotb

from rkcosim.cocotb import NpuAgent


@cocotb.test()
async def fails_on_purpose(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    version = await npu.read("PC.VERSION")
    assert version == 0, f"the version is {version!r}"


@cocotb.test()
async def passes(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    assert await npu.read("PC.VERSION")
