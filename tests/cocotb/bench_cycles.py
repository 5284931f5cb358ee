"""Cycles of tasks, compared with those of the compiled engine; run by `test_cycles.py`."""

from __future__ import annotations

import json
import os

import cocotb

from rkcosim.cocotb import NpuAgent
from rkcosim.engines.library import DramConfig
from tests.makers.small_streams import memory_hash, streams

EXPECTED = json.loads(os.environ.get("RKCOSIM_EXPECTED", "[]"))


@cocotb.test()
@cocotb.parametrize(number=range(len(EXPECTED)))
async def whole_runs_agree(dut, number):
    """With the engine's host every cycle of a run equals the engine's, for any timing of memory."""
    case = EXPECTED[number]
    npu = NpuAgent(dut, host="engine", dram=DramConfig(**case["dram"]))
    await npu.reset()
    assert npu.cycle == case["cycle"]
    for name, wanted in case["runs"].items():
        result = await npu.run_stream(streams()[name])
        [task] = result.tasks
        found = {"start": result.start, "irq": result.irq, "status": result.status}
        found["task"] = [task.start, task.end]
        assert found == wanted, f"{name} with {case['dram']}: {found}, engine {wanted}"
    assert npu.cycle == case["end"]
    assert memory_hash(npu.memory) == case["memory"]
    assert npu.dram.bytes_read == case["bytes_read"]
    assert npu.dram.bytes_written == case["bytes_written"]


@cocotb.test()
async def tasks_agree_behind_another_host(dut):
    """cocotbext-axi's master needs other cycles for an access; a task takes the same from start to end."""
    npu = NpuAgent(dut)
    await npu.reset()
    for name, wanted in EXPECTED[0]["runs"].items():
        result = await npu.run_stream(streams()[name])
        start, end = wanted["task"]
        assert result.tasks[0].cycles == end - start, name
        assert result.irq - result.tasks[0].start == wanted["irq"] - start, name
    assert memory_hash(npu.memory) == EXPECTED[0]["memory"]
