"""Dpu alone and with DpuRdma: random tasks against tests/models/dpu_model.py, whole image compared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.config import RK3588
from rtl.layouts import ControlPort, DiagnosticPort, ReadPort, WritePort
from rtl.npu.dpu import Dpu
from rtl.npu.dpu_rdma import DpuRdma
from rtl.regfile import config_signature, pack_fields
from rtl.regs import registers
from tests.block.dpu_bench import Bench
from tests.block.dpu_tasks import Task, fill_memory, random_task
from tests.models.dpu_model import INT8, Registers, group_channels, run_dpu, run_rdma

LIMIT = 60_000
READERS = ("mrdma", "brdma", "nrdma", "erdma")


class Pair(wiring.Component):
    """DPU and DPU_RDMA joined as in the core."""

    def __init__(self) -> None:
        self.dpu, self.rdma = Dpu(RK3588), DpuRdma(RK3588)
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "rdma_cfg": In(config_signature("DPU_RDMA")),
                "control": In(ControlPort()),
                "rdma_control": In(ControlPort()),
                "acc": In(self.dpu.acc.signature.flip()),
                "write": Out(WritePort()),
                "diag": Out(DiagnosticPort()),
                "rdma_diag": Out(DiagnosticPort()),
                "busy_octet": Out(1),
                **{name: Out(ReadPort()) for name in READERS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dpu, m.submodules.rdma = dpu, rdma = self.dpu, self.rdma
        for name in ("cfg", "control", "acc", "write", "diag"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(dpu, name))
        for outer, inner in (("rdma_cfg", "cfg"), ("rdma_control", "control"), ("rdma_diag", "diag")):
            wiring.connect(m, wiring.flipped(getattr(self, outer)), getattr(rdma, inner))
        for name in READERS:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(rdma, name))
        for name in ("bs", "bn", "main", "ew"):
            wiring.connect(m, getattr(rdma, name), getattr(dpu, name))
        m.d.comb += dpu.rdma_busy.eq(rdma.busy)
        m.d.comb += self.busy_octet.eq(dpu.busy_octet)
        return m


def configure(ctx: Any, port: Any, block: str, fields: Registers) -> None:
    """Set a configuration port as the register file would."""
    table = registers()[block]
    for name in port.signature.members:
        register = table[name]
        word = register.encode(**fields.get(name, {}))
        ctx.set(Value.cast(getattr(port, name)), ctx.get(pack_fields(register, Value.cast(word))))


def acc_octets(task: Task) -> list[dict[str, Any]]:
    """What CORE sends: every octet of every group, also past the last channel."""
    dpu = task.dpu
    width, height = dpu["DATA_CUBE_WIDTH"]["WIDTH"] + 1, dpu["DATA_CUBE_HEIGHT"]["HEIGHT"] + 1
    channels = dpu["DATA_CUBE_CHANNEL"]["CHANNEL"] + 1
    group = group_channels(dpu["FEATURE_MODE_CFG"]["CONV_MODE"], 0, INT8)
    result = []
    for first in range(0, channels, group):
        for pixel in range(width * height):
            y, x = divmod(pixel, width)
            for octet in range(first, first + group, 8):
                pairs = [task.acc(c, y, x) for c in range(octet, octet + 8)]
                result.append({"acc": [p[0] % 2**32 for p in pairs], "sum": [p[1] % 2**32 for p in pairs]})
    return result


def run_task(task: Task, seed: int, stall: float, latency: tuple[int, int] = (2, 60)) -> Bench:
    """Run `task` on the RTL and on the model; compare the whole image."""
    memory = fill_memory(task, seed)
    expected = bytearray(memory)
    run_dpu(task.dpu, expected, run_rdma(task.rdma, memory), task.acc)
    pair = Pair()
    bench = Bench(pair, seed, stall)
    model = bench.write_memory(pair.write, memory)
    for name in READERS:
        bench.read_memory(getattr(pair, name), memory, latency)
    if not task.dpu["FEATURE_MODE_CFG"]["FLYING_MODE"]:
        bench.source(pair.acc, acc_octets(task))
    complaints: list[tuple[int, int, int]] = []
    bench.collect(pair.diag, complaints)
    bench.collect(pair.rdma_diag, complaints)
    bench.busy = 0

    async def main(ctx: Any) -> None:
        configure(ctx, pair.cfg, "DPU", task.dpu)
        configure(ctx, pair.rdma_cfg, "DPU_RDMA", task.rdma)
        await ctx.tick()
        missing = {"dpu": pair.control, "rdma": pair.rdma_control}
        order = [pair.control, pair.rdma_control]
        bench.random.shuffle(order)
        for control in order:
            ctx.set(control.start, 1)
            await ctx.tick()
            ctx.set(control.start, 0)
        bench.begin = bench.cycle
        for _ in range(LIMIT):
            done = await ctx.tick().sample(pair.control.done, pair.rdma_control.done, pair.busy_octet)
            bench.busy += done[4]
            if done[2]:
                assert model.quiet, "done before the last write response"
                missing.pop("dpu")
                bench.end = bench.cycle
            if done[3]:
                missing.pop("rdma")
            if not missing:
                break
        assert not missing, f"{list(missing)} not done after {LIMIT} cycles"
        await ctx.tick().repeat(40)

    bench.run(main)
    assert complaints == []
    wrong = [at for at in range(len(memory)) if memory[at] != expected[at]]
    where = 16 * task.dpu["DST_BASE_ADDR"]["DST_BASE_ADDR"]
    assert not wrong, (
        f"{len(wrong)} bytes differ, first at {wrong[0]:#x} (destination {where:#x}): "
        f"{memory[wrong[0]]:#x}, expected {expected[wrong[0]]:#x}; {task}"
    )
    return bench


@pytest.mark.parametrize("seed", range(16))
def test_random_task(seed: int) -> None:
    task = random_task(random.Random(seed))
    run_task(task, seed, stall=random.Random(seed).choice([0.0, 0.1, 0.4]))
