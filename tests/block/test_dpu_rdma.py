"""DpuRdma alone: the octets of each reader against the model's cubes, with slow and stalled partners."""

import random
from typing import Any

import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.dpu_rdma import DpuRdma
from rkcosim.spec.regs import registers
from tests.block.dpu_bench import Bench
from tests.block.dpu_tasks import Task, fill_memory, random_task
from tests.block.test_dpu import READERS, configure
from tests.simulation import shared
from tests.twins.rdma_model import (
    INT8,
    Fields,
    group_channels,
    run_rdma,
    signed,
)

LIMIT = 30_000


def _expected(task: Task, memory: bytes) -> dict[str, list[list[int]]]:
    """Return the octets of each stream in the order of the DPU; lanes past the last channel are None."""
    f, data = Fields(task.rdma), run_rdma(task.rdma, memory)
    width, height = f("DATA_CUBE_WIDTH", "WIDTH") + 1, f("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = f("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    mode = "FEATURE_MODE_CFG"
    group = group_channels(f(mode, "CONV_MODE"), f(mode, "IN_PRECISION"))
    result: dict[str, list[list[int]]] = {"main": [], "ew": [], "bs": [], "bn": []}
    for name, cube in (("main", data.main), ("ew", data.ew)):
        if cube is None:
            continue
        for first in range(0, channels, group):
            for pixel in range(width * height):
                y, x = divmod(pixel, width)
                for octet in range(first, min(first + group, channels), 8):
                    lanes = [signed(cube(c, y, x)) if c < channels else None for c in range(octet, octet + 8)]
                    result[name].append(lanes)
    for name, table in (("bs", data.bs), ("bn", data.bn)):
        for octet in range(0, channels, 8) if table else ():
            for kind in (table.alu, table.cpend, table.mul):
                result[name].append([kind.get(c, 0) for c in range(octet, octet + 8)])
    return result


def _signed(values: Any, bits: int) -> list[int]:
    return [(v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for v in values]


def _run(
    task: Task,
    seed: int,
    stall: float,
    latency: tuple[int, int],
    times: int = 1,
    told: tuple[tuple[int, int, int], ...] = (),
) -> Bench:
    """Run a task so often; `told` are the diagnostics of each time. `bench.cycles` has the time of each."""
    memory = fill_memory(task, seed)
    dut = shared(DpuRdma)
    bench = Bench(dut, seed, stall)
    for name in READERS:
        bench.read_memory(getattr(dut, name), memory, latency)
    got: dict[str, list[list[int]]] = {"main": [], "ew": [], "bs": [], "bn": []}
    for name in ("main", "ew"):
        bench.sink(getattr(dut, name), lambda p, name=name: got[name].append(_signed(p.data, 32)))
    for name in ("bs", "bn"):

        def take(p: Any, name: str = name) -> None:
            got[name] += [_signed(p.alu, 32), _signed(p.cpend, 16), _signed(p.mul, 16)]

        bench.sink(getattr(dut, name), take)
    complaints: list[tuple[int, int, int]] = []
    bench.collect(dut.diag, complaints)
    expected = {name: times * octets for name, octets in _expected(task, memory).items()}
    bench.cycles = []

    async def main(ctx: Any) -> None:
        configure(ctx, dut.cfg, "DPU_RDMA", task.rdma)
        for _ in range(times):
            ctx.set(dut.control.start, 1)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            begin = bench.cycle
            for _ in range(LIMIT):
                _, _, done = await ctx.tick().sample(dut.control.done)
                if done:
                    break
            counts = {name: (len(got[name]), len(expected[name])) for name in got}
            assert done, f"not done after {LIMIT} cycles: octets taken and expected {counts}"
            bench.cycles.append(bench.cycle - begin)
            assert not ctx.get(dut.copies), "no row is copied without unpooling"
            await ctx.tick().repeat(30 // times)

    bench.run(main)
    assert complaints == times * list(told)
    for name in got:
        assert len(got[name]) == len(expected[name]), name
        for index, (have, want) in enumerate(zip(got[name], expected[name], strict=True)):
            # lanes past the last channel are don't care: the DPU replaces them
            have = [h if w is not None else None for h, w in zip(have, want, strict=True)]
            assert have == want, f"{name} octet {index} of {task.rdma}"
    return bench


@pytest.mark.parametrize("seed", range(10))
def test_random_readers(seed: int) -> None:
    rng = random.Random(500 + seed)
    _run(random_task(rng), seed, stall=rng.choice([0.0, 0.3, 0.6]), latency=rng.choice([(1, 3), (1, 200)]))


def test_nothing_to_read_is_done_at_once() -> None:
    task = random_task(random.Random(1), flying=False)
    task.rdma["ERDMA_CFG"]["ERDMA_DISABLE"] = 1
    task.rdma["BRDMA_CFG"]["BRDMA_DATA_USE"] = 0
    task.rdma["NRDMA_CFG"]["NRDMA_DISABLE"] = 1
    bench = _run(task, 1, 0.0, (1, 1))
    assert bench.cycles[0] <= 4


def test_octet_a_cycle_at_dram_latency() -> None:
    """Main data and EW operand together reach one octet per cycle with 150 cycles of latency."""
    task = random_task(random.Random(2), flying=True, cube=(64, 7, 7))
    for block in (task.dpu, task.rdma):
        block["FEATURE_MODE_CFG"]["CONV_MODE"] = 0
    task.rdma["FEATURE_MODE_CFG"]["IN_PRECISION"] = 0
    task.rdma["SRC_DMA_CFG"]["LINE_NOTCH_ADDR"] = 0
    task.rdma["ERDMA_CFG"].update(ERDMA_DISABLE=0, ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    task.rdma["DATA_CUBE_HEIGHT"]["EW_LINE_NOTCH_ADDR"] = 0
    task.size += 64 * 1024
    bench = _run(task, 2, 0.0, (150, 150))
    octets = 49 * 8
    (cycles,) = bench.cycles
    print(f"{octets} octets in {cycles} cycles")
    assert cycles <= octets + 150 + 40


def test_the_same_task_takes_the_same_time() -> None:
    """Nine small tasks with all readers; each is told once that padding has no effect."""
    task = random_task(random.Random(4), flying=True, cube=(16, 1, 2), main_type=INT8)
    task.rdma["ERDMA_CFG"].update(ERDMA_DISABLE=0, ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    task.rdma["BRDMA_CFG"] = {"BRDMA_DATA_USE": 5}
    task.rdma["NRDMA_CFG"] = {"NRDMA_DATA_USE": 5}
    task.rdma["PAD_CFG"] = {"PAD_VALUE": 1}
    place = registers()["DPU_RDMA"]["PAD_CFG"]
    told = (int(DiagnosticCode.RESERVED_MODE), place.offset, place.encode(PAD_VALUE=1))
    bench = _run(task, 4, 0.0, (9, 9), 9, (told,))
    assert len(set(bench.cycles)) == 1, bench.cycles


@pytest.mark.parametrize(
    ("register", "field", "value", "code"),
    [
        ("FEATURE_MODE_CFG", "COMB_USE", 5, DiagnosticCode.RESERVED_MODE),
        ("SRC_DMA_CFG", "UNPOOLING_EN", 1, DiagnosticCode.RESERVED_MODE),
        ("BRDMA_CFG", "BRDMA_DATA_USE", 15, DiagnosticCode.RESERVED_MODE),
        ("BS_BASE_ADDR", "BS_BASE_ADDR", 0x208, DiagnosticCode.UNALIGNED_ADDRESS),
        ("ERDMA_CFG", "ERDMA_DATA_MODE", 2, DiagnosticCode.RESERVED_MODE),
    ],
)
def test_diagnostics(register: str, field: str, value: int, code: DiagnosticCode) -> None:
    task = random_task(random.Random(3), flying=True, cube=(16, 1, 2))
    task.rdma["BRDMA_CFG"] = {"BRDMA_DATA_USE": 7}
    task.rdma["ERDMA_CFG"]["ERDMA_DISABLE"] = 0
    task.rdma[register][field] = value
    dut = shared(DpuRdma)
    bench = Bench(dut, 3, 0.0)
    complaints: list[tuple[int, int, int]] = []
    bench.collect(dut.diag, complaints)

    async def main(ctx: Any) -> None:
        configure(ctx, dut.cfg, "DPU_RDMA", task.rdma)
        ctx.set(dut.control.start, 1)
        await ctx.tick()
        ctx.set(dut.control.start, 0)
        await ctx.tick().repeat(30)

    bench.run(main)
    place = registers()["DPU_RDMA"][register]
    assert complaints == [(int(code), place.offset, place.encode(**task.rdma[register]))]
