"""Make `pool.json`: a 2x2 max pool of a 16x12x16 int8 cube as a stream that any engine can run.

python examples/streams/make_pool.py
rkcosim regcmd run examples/streams/pool.json --check --trace build/pool.vcd
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.regcmd import TaskBuilder, amount_code, words_to_bytes
from rkcosim.regcmd.job import interrupt_bits
from rkcosim.verify.streams.stream import Region, Stream

COMMANDS, SOURCE, TARGET = 0x0010_0000, 0x0010_2000, 0x0010_4000
HEIGHT, WIDTH, CHANNELS = 12, 16, 16
ATOM = 16


def pool_words() -> list[int]:
    """Return the task's register words, including its tail [HW 14.3.8]."""
    task = TaskBuilder()
    toggling = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
    for block in ("PPU", "PPU_RDMA"):
        task.set(block, "S_POINTER", **toggling)
    for register, value in (
        ("DATA_CUBE_IN_WIDTH", WIDTH),
        ("DATA_CUBE_IN_HEIGHT", HEIGHT),
        ("DATA_CUBE_IN_CHANNEL", CHANNELS),
        ("DATA_CUBE_OUT_WIDTH", WIDTH // 2),
        ("DATA_CUBE_OUT_HEIGHT", HEIGHT // 2),
        ("DATA_CUBE_OUT_CHANNEL", CHANNELS),
    ):
        task.set("PPU", register, **{register: value - 1})
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD="MAX")
    task.set(
        "PPU",
        "POOLING_KERNEL_CFG",
        KERNEL_WIDTH=1,
        KERNEL_HEIGHT=1,
        KERNEL_STRIDE_WIDTH=1,
        KERNEL_STRIDE_HEIGHT=1,
    )
    task.set("PPU", "RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=65536 // 2)
    task.set("PPU", "RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=65536 // 2)
    task.set("PPU", "POOLING_PADDING_CFG")
    task.set("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=0x7FF80)
    task.set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=TARGET // ATOM)
    task.set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=HEIGHT * WIDTH // 4)
    task.set("PPU", "DATA_FORMAT", INDEX_ADD=HEIGHT * WIDTH // 4)
    task.set("PPU", "MISC_CTRL", BURST_LEN=3)
    for register, value in (
        ("CUBE_IN_WIDTH", WIDTH),
        ("CUBE_IN_HEIGHT", HEIGHT),
        ("CUBE_IN_CHANNEL", CHANNELS),
    ):
        task.set("PPU_RDMA", register, **{register: value - 1})
    task.set("PPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=SOURCE)
    task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=WIDTH)
    task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=WIDTH * HEIGHT)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    return task.enable("PPU", "PPU_RDMA").words()


def main() -> None:
    """Write `pool.json` to the folder of this file."""
    words = pool_words()
    cube = np.random.default_rng(1).integers(-128, 128, HEIGHT * WIDTH * CHANNELS).astype(np.int8)
    stream = Stream(
        Kick(COMMANDS, amount_code(len(words)), 1, interrupt_bits("PPU_0", "PPU_1")),
        [
            Region("commands", COMMANDS, np.frombuffer(words_to_bytes(words), np.uint8)),
            Region("input cube", SOURCE, cube.view(np.uint8)),
            Region("output cube", TARGET, np.zeros(HEIGHT * WIDTH // 4 * ATOM, np.uint8)),
        ],
    )
    stream.save(Path(__file__).with_name("pool.json"))


if __name__ == "__main__":
    main()
