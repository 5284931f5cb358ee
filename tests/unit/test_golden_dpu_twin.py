"""The golden DPU against the plain model of the RTL's DPU tests, on the random tasks of the RTL."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from rkcosim.golden.task import Memory
from rkcosim.golden.task.context import Context, Finding, TaskReport
from rkcosim.golden.task.core import Clip
from rkcosim.golden.task.dpu import Dpu
from rkcosim.golden.task.dpu_lut import LutTables
from rkcosim.golden.task.rdma import fetch
from rkcosim.golden.task.registers import View
from rkcosim.spec.regs import registers
from tests.block.dpu_tasks import Task, fill_memory, random_task
from tests.twins.dpu_model import (
    run_dpu,
)
from tests.twins.rdma_model import (
    run_rdma,
)

R = registers()


def view(block: str, fields: dict[str, dict[str, int]]) -> View:
    """Registers of a block by field names."""
    values = {}
    for name, wanted in fields.items():
        r = R[block][name]
        values[r.offset] = r.encode(**{n: v % (1 << r.fields[n].width) for n, v in wanted.items()})
    return View(block, values)


def run_golden(task: Task, image: bytearray) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the memory after the task, and its diagnostics."""
    memory, told = Memory(), list[Finding]()
    memory.map(0, -(-len(image) // 16) * 16)
    memory.write(0, bytes(image))
    dpu, rdma = view("DPU", task.dpu), view("DPU_RDMA", task.rdma)
    ctx = Context(memory, 0, TaskReport(0), told, False)
    tables = LutTables(lambda *_: None)
    tables.entries[:] = task.tables
    block = Dpu(ctx, dpu, tables, rdma)
    conv = None
    if not block.flying:
        groups = -(-block.channels // block.group)
        acc = np.zeros((block.height * block.width, groups * block.group), np.int64)
        window = np.zeros_like(acc)
        for pixel in range(acc.shape[0]):
            for c in range(block.channels):
                acc[pixel, c], window[pixel, c] = task.acc(c, *divmod(pixel, block.width))
        bits = 32 if block.float_domain else 48
        acc, window = (
            (v + (1 << (n - 1))) % (1 << n) - (1 << (n - 1)) for v, n in ((acc, bits), (window, 32))
        )
        shape = SimpleNamespace(pixels=acc.shape[0], groups=groups, delivered_groups=groups)
        conv = SimpleNamespace(shape=shape, acc=acc, sum=window, clip=Clip(task.clip[0], bool(task.clip[1])))
    block.run(fetch(ctx, rdma), conv)
    return memory.read(0, len(image)), [(f.code, f.register) for f in told]


@pytest.mark.parametrize("seed", range(60))
def test_golden_and_plain_model_agree(seed: int) -> None:
    task = random_task(random.Random(seed))
    image = fill_memory(task, seed)
    got, told = run_golden(task, image)
    data = run_rdma(task.rdma, bytes(image))
    flying = task.dpu["FEATURE_MODE_CFG"]["FLYING_MODE"]
    run_dpu(task.dpu, image, data, None if flying else task.acc, task.tables, task.clip)
    same = np.frombuffer(got, np.uint8) == np.frombuffer(bytes(image), np.uint8)
    assert same.all(), f"seed {seed}: {np.count_nonzero(~same)} bytes, first at {np.argmin(same):#x}, {told}"
