"""Small tasks with their memory as streams, used to compare all engines and simulators."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.regcmd import TaskBuilder, words_to_bytes
from rkcosim.regcmd.job import interrupt_bits
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.streams.stream import Region, Stream
from tests.makers.small_tasks import add_task, conv_task, pool_task

BASE = 0x0020_0000
COMMANDS, SOURCE, OTHER, TARGET = BASE, BASE + 0x1000, BASE + 0x2000, BASE + 0x3000


def stream_of(task: TaskBuilder, seed: int = 0) -> Stream:
    """Return a task at `COMMANDS` with random bytes in the three pages after it."""
    memory = np.random.default_rng(seed).integers(0, 256, 0x3000, np.uint8)
    blocks = task.blocks
    last = "PPU" if "PPU" in blocks else "DPU"
    kick = Kick(COMMANDS, task.amount, 1, interrupt_bits(f"{last}_0", f"{last}_1"))
    words = np.frombuffer(words_to_bytes(task.words()), np.uint8)
    return Stream(kick, [Region("words", COMMANDS, words), Region("data", SOURCE, memory)])


def streams() -> dict[str, Stream]:
    """A pool, an addition by the DPU alone, a convolution."""
    return {
        "pool": stream_of(pool_task(SOURCE, TARGET, 5, 6), 1),
        "add": stream_of(add_task(SOURCE, OTHER, TARGET, 3, 4), 2),
        "conv": stream_of(conv_task(SOURCE, OTHER, TARGET, 4, 5), 3),
    }


def counted_run(device: Any, stream: Stream) -> dict[str, Any]:
    """Run a stream on an engine like `NpuAgent.run_stream`; return cycles of start, interrupt and task."""
    pc = registers()["PC"]
    if stream.regions[0].address not in device.memory.ranges:
        stream.load_into(device.memory)
    for region in stream.regions:
        device.memory.write(region.address, region.data)
    begun = start(device, stream.kick, 0)
    if not device.run_until_irq(1, 100_000):
        raise AssertionError(f"no interrupt: {device.block_state(0)}")
    irq = device.cycle
    status = device.read32(0, pc["INTERRUPT_STATUS"].offset)
    device.write32(0, pc["INTERRUPT_CLEAR"].offset, pc["INTERRUPT_CLEAR"].mask)
    record = device.task_log()[-1]
    return {"start": begun, "irq": irq, "status": status, "task": [record.start, record.end]}


def memory_hash(memory: Any) -> str:
    """Hash of the pages of the streams of this file."""
    return hashlib.sha256(memory.read(BASE, 0x1000) + memory.read(SOURCE, 0x3000)).hexdigest()
