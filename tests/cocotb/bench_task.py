"""One task with its events in a file; `test_kit.py` runs it and reads its waveform."""

from __future__ import annotations

import json
from pathlib import Path

import cocotb

from rkcosim.cocotb import Monitors, NpuAgent
from tests.makers.small_streams import streams


@cocotb.test()
async def conv(dut):
    npu = NpuAgent(dut)
    seen = Monitors(npu)
    await npu.reset()
    await npu.run_stream(streams()["conv"])
    bursts = sorted(seen.reads.events + seen.packets.events, key=lambda event: event.cycle)
    found = {
        "tasks": [(task.start, task.end) for task in npu.log.tasks],
        "writes": len(seen.commands),
        "bursts": [(event.client, event.address, event.bytes) for event in bursts],
    }
    Path("seen.json").write_text(json.dumps(found), encoding="utf-8")
