"""One task: a 2x2 max pool; its memory is compared with the golden model, and its work is monitored.

pytest examples/cocotb/test_task.py
"""

from __future__ import annotations

import cocotb
import numpy as np
import pytest

from rkcosim.cocotb import (
    BurstMonitor,
    CommandMonitor,
    NpuAgent,
    PacketMonitor,
    Scoreboard,
    missing,
    simulate,
)
from rkcosim.regcmd import TaskBuilder

SOURCE, TARGET = 0x0010_0000, 0x0010_4000
HEIGHT, WIDTH, ATOM = 12, 16, 16


def pool() -> TaskBuilder:
    """A max pool with stride 2 of an int8 cube [12, 16, 16], set by the names of the registers."""
    task = TaskBuilder("pool").enable("PPU", "PPU_RDMA")
    for block in ("PPU", "PPU_RDMA"):
        task.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    task.set("PPU", "DATA_CUBE_IN_WIDTH", DATA_CUBE_IN_WIDTH=WIDTH - 1)
    task.set("PPU", "DATA_CUBE_IN_HEIGHT", DATA_CUBE_IN_HEIGHT=HEIGHT - 1)
    task.set("PPU", "DATA_CUBE_IN_CHANNEL", DATA_CUBE_IN_CHANNEL=ATOM - 1)
    task.set("PPU", "DATA_CUBE_OUT_WIDTH", DATA_CUBE_OUT_WIDTH=WIDTH // 2 - 1)
    task.set("PPU", "DATA_CUBE_OUT_HEIGHT", DATA_CUBE_OUT_HEIGHT=HEIGHT // 2 - 1)
    task.set("PPU", "DATA_CUBE_OUT_CHANNEL", DATA_CUBE_OUT_CHANNEL=ATOM - 1)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD="MAX")
    window = {"KERNEL_HEIGHT": 1, "KERNEL_WIDTH": 1, "KERNEL_STRIDE_HEIGHT": 1, "KERNEL_STRIDE_WIDTH": 1}
    task.set("PPU", "POOLING_KERNEL_CFG", **window)
    task.set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=TARGET // ATOM)
    task.set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=HEIGHT * WIDTH // 4)
    task.set("PPU", "DATA_FORMAT", INDEX_ADD=HEIGHT * WIDTH // 4)
    task.set("PPU", "MISC_CTRL", BURST_LEN="BEATS4")
    task.set("PPU_RDMA", "CUBE_IN_WIDTH", CUBE_IN_WIDTH=WIDTH - 1)
    task.set("PPU_RDMA", "CUBE_IN_HEIGHT", CUBE_IN_HEIGHT=HEIGHT - 1)
    task.set("PPU_RDMA", "CUBE_IN_CHANNEL", CUBE_IN_CHANNEL=ATOM - 1)
    task.set_word("PPU_RDMA", "SRC_BASE_ADDR", SOURCE)
    task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=WIDTH)
    task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=HEIGHT * WIDTH)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    return task


@cocotb.test()
async def pools_like_the_golden_model(dut):
    npu = NpuAgent(dut)
    commands, packets = CommandMonitor(npu), PacketMonitor(npu)
    reads = BurstMonitor(npu, direction="read", clients=("PPU",))
    await npu.reset()

    cube = np.random.default_rng(1).integers(-128, 128, (HEIGHT, WIDTH, ATOM), np.int8)
    npu.memory.map(SOURCE, 0x5000)
    npu.memory.write(SOURCE, cube.tobytes())
    checked = await Scoreboard(npu).run(pool().words())
    print(f"{checked.run.tasks[0].cycles} cycles, {checked.bytes} bytes equal, {checked.run.events}")

    # The scoreboard has compared all memory already; numpy gives the same result.
    pooled = cube.reshape(HEIGHT // 2, 2, WIDTH // 2, 2, ATOM).max((1, 3))
    assert npu.memory.read(TARGET, pooled.size) == pooled.tobytes()

    [write] = commands.writes("PPU.DST_BASE_ADDR")
    assert write.reason == "stream" and write.fields["DST_BASE_ADDR"] == TARGET // ATOM
    assert sum(packet.bytes for packet in packets.events) == pooled.size
    assert sum(burst.bytes for burst in reads.events) == cube.size


@pytest.mark.skipif(missing("verilator") is not None, reason=missing("verilator") or "")
def test_task():
    simulate(__file__)
