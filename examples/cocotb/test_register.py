"""One register: its value after reset, the values it keeps, and the answer where there is no register.

pytest examples/cocotb/test_register.py
"""

from __future__ import annotations

import cocotb
import pytest

from rkcosim.cocotb import NpuAgent, missing, simulate
from rkcosim.engines.protocol import BusError


@cocotb.test()
async def the_version_is_there(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    assert await npu.read("PC.VERSION") == 0x46495245


@cocotb.test()
async def the_interrupt_mask_keeps_its_field(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    await npu.write("PC.INTERRUPT_MASK", int_mask=0x300)  # by field
    mask = await npu.read("PC.INTERRUPT_MASK")
    assert mask["int_mask"] == 0x300
    await npu.write("PC.INTERRUPT_MASK", 0xFFFF_FFFF)  # or the whole word
    assert await npu.read("PC.INTERRUPT_MASK") == 0x1_FFFF  # reserved bits read as 0


@cocotb.test()
async def a_hole_answers_with_an_error(dut):
    npu = NpuAgent(dut, on_diagnostic="go on")  # the access also raises a diagnostic
    await npu.reset()
    with pytest.raises(BusError, match="SLVERR"):
        await npu.read(0x2000)
    await npu.cycles(10)  # diagnostics need a few cycles to reach the pins
    assert [found.code for found in npu.log.diagnostics] == ["UNDECODED_ACCESS"]


@pytest.mark.skipif(missing("verilator") is not None, reason=missing("verilator") or "")
def test_register():
    simulate(__file__)
