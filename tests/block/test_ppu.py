"""PPU with PPU_RDMA, or with a model of the DPU: random pools of every type against the naive model."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, ReadPort, WritePort
from rkcosim.rtl.npu.ppu import ROW_CAPACITY, Ppu
from rkcosim.rtl.npu.ppu_rdma import PpuRdma
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import SMALL
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.dpu_bench import Bench
from tests.extent import extent
from tests.simulation import shared
from tests.twins.ppu_model import AVERAGE, FP16, INT8, INT16, MAX, MIN, Pool

GUARD = 0xA5
SOURCE, TARGET = 0x1010, 0x8010
MEMORY = 1 << 19  # the largest draw: two tensors of 16 surfaces of 25 x 28 atoms
RESERVED, SIZE, FOOTPRINT = (
    DiagnosticCode.RESERVED_MODE,
    DiagnosticCode.SIZE_MISMATCH,
    DiagnosticCode.FEATURE_FOOTPRINT,
)


COUNTED = data.StructLayout({"atom": 1, "stall": 1, "input": 1, "offered": 1, "taken": 1})
"""What counters see of a cycle, and the atoms of PPU_RDMA in it: there is one, it is taken."""


class Pair(wiring.Component):
    """PPU_RDMA feeding the PPU, as in the core; the DPU's stream and registers from the test."""

    def __init__(self, floats: bool = True) -> None:
        self._floats = floats
        super().__init__(
            {
                "ppu_cfg": In(config_signature("PPU")),
                "rdma_cfg": In(config_signature("PPU_RDMA")),
                "dpu_cfg": In(config_signature("DPU")),
                "ppu_control": In(ControlPort()),
                "rdma_control": In(ControlPort()),
                "dpu": In(stream.Signature(PpuAtom)),
                "read": Out(ReadPort()),
                "write": Out(WritePort()),
                "diag": Out(DiagnosticPort()),
                "rdma_diag": Out(DiagnosticPort()),
                "counted": Out(COUNTED),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ppu = ppu = Ppu(floats=self._floats)
        m.submodules.rdma = rdma = PpuRdma(SMALL)
        wiring.connect(m, rdma.atoms, ppu.atoms)
        for outer, inner in (
            (self.read, rdma.read),
            (self.write, ppu.write),
            (self.diag, ppu.diag),
            (self.rdma_diag, rdma.diag),
            (self.ppu_cfg, ppu.cfg),
            (self.ppu_cfg, rdma.ppu_cfg),
            (self.rdma_cfg, ppu.rdma_cfg),
            (self.rdma_cfg, rdma.cfg),
            (self.dpu_cfg, ppu.dpu_cfg),
            (self.dpu, ppu.dpu),
            (self.ppu_control, ppu.control),
            (self.rdma_control, rdma.control),
        ):
            wiring.connect(m, wiring.flipped(outer), inner)
        m.d.comb += [
            self.counted.atom.eq(ppu.busy_atom),
            self.counted.stall.eq(ppu.stall),
            self.counted.input.eq(ppu.activity.INPUT),
            self.counted.offered.eq(rdma.atoms.valid),
            self.counted.taken.eq(rdma.atoms.valid & rdma.atoms.ready),
        ]
        return m


@dataclass(frozen=True)
class Task:
    """A pool of a cube of `size` rows and columns; `group` surfaces per group, 0 without the DPU."""

    pool: Pool
    size: tuple[int, int]
    channels: int
    line_gap: int = 0
    notch: int = 0
    index: bool = False
    group: int = 0

    @property
    def lanes(self) -> int:
        return 16 if self.pool.kind == INT8 else 8

    @property
    def surfaces(self) -> int:
        return -(-self.channels // self.lanes)


GROUPS = {
    # (kind is 16 bit, surfaces of a group): CONV_MODE and IN_PRECISION of the DPU
    (False, 4): (3, 0),
    (False, 2): (0, 0),
    (False, 1): (0, 2),
    (True, 8): (0, 6),
    (True, 4): (0, 0),
    (True, 2): (0, 2),
}


def _reciprocal(kernel: int, kind: int) -> int:
    if kind == FP16:
        return (int(np.float16(65536 / kernel).view(np.uint16))) if kernel > 1 else 0x7C00
    return round(65536 / kernel)


def _draw(rng: random.Random, kind: int, method: int, from_dpu: bool) -> Task:
    while True:
        kernel = (rng.randint(1, 4), rng.randint(1, 4)) if rng.random() < 0.8 else (rng.randint(5, 16),) * 2
        stride = (rng.randint(1, 4), rng.randint(1, 4)) if rng.random() < 0.8 else (16, 5)
        pad = (rng.choice((0, 0, 1, 2, 7)), rng.choice((0, 0, 1, 3, 7)))
        size = (rng.randint(1, 12), rng.randint(1, 12))
        trail = (rng.choice((0, 0, 1, 7)), rng.choice((0, 0, 1, 7)))
        out = tuple((size[i] + pad[i] + trail[i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
        if min(out) < 1 or any(size[i] + pad[i] + trail[i] < kernel[i] for i in (0, 1)):
            continue
        break
    group = 0
    if from_dpu:
        group = rng.choice([g for wide, g in GROUPS if wide == (kind != INT8)])
    lanes = 16 if kind == INT8 else 8
    surfaces = rng.randint(1, 3) if not group else rng.randint(1, 2 * group)
    pads = (0xFC00, 0x7BFF, 0, 0x8000, 0x7E01) if kind == FP16 else (-128, 0, 7, -32768, 0x3FFFF, -0x40000)
    recip = tuple(_reciprocal(k, kind) for k in kernel)
    if kind == FP16 and rng.random() < 0.3:
        recip = (rng.randrange(1 << 17), rng.randrange(1 << 17))
    return Task(
        Pool(kind, method, kernel, stride, pad, out, rng.choice(pads) & (1 << 19) - 1, recip),
        size,
        lanes * surfaces - rng.choice((0, 0, lanes - 1)),
        rng.choice((0, 0, 1, 5)),
        rng.choice((0, 0, 3)),
        method != AVERAGE and rng.random() < 0.6,
        group,
    )  # fmt: skip


def _values(rng: random.Random, task: Task) -> np.ndarray:
    count = task.size[0] * task.size[1] * task.surfaces * task.lanes
    kind = task.pool.kind
    if kind == FP16:
        special = (0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x8000, 0, 1, 0x83FF, 0x7BFF, 0xFBFF)
        wild = rng.random() < 0.5
        draw = [
            rng.choice(special) if wild and rng.random() < 0.1
            else (rng.randrange(0x7C00) | rng.randrange(2) << 15 if rng.random() < 0.3
                  else int(np.float16(rng.gauss(0, 4)).view(np.uint16)))
            for _ in range(count)
        ]  # fmt: skip
    else:
        limit = 127 if kind == INT8 else 32767
        few = rng.random() < 0.3  # ties
        draw = [rng.randint(-2, 2) if few else rng.randint(-limit - 1, limit) for _ in range(count)]
    return np.array(draw, np.int64).reshape(*task.size, task.surfaces * task.lanes)


def _atom(task: Task, cube: np.ndarray, s: int, y: int, x: int) -> bytes:
    part = cube[y, x, s * task.lanes : (s + 1) * task.lanes]
    return part.astype(np.int8 if task.pool.kind == INT8 else np.int16).tobytes()


def _dpu_order(task: Task, cube: np.ndarray) -> list[bytes]:
    (height, width), order = task.size, []
    for first in range(0, task.surfaces, task.group):
        for stripe in range(0, height * width, 16):
            for s in range(first, min(first + task.group, task.surfaces)):
                for pixel in range(stripe, min(stripe + 16, height * width)):
                    order.append(_atom(task, cube, s, pixel // width, pixel % width))
    return order


def _settings(task: Task) -> dict:
    """Registers of the three blocks, by the name of the configuration's member."""
    pool, (height, width) = task.pool, task.size
    line = width + task.line_gap
    settings = {
        "ppu_cfg": {
            "DATA_CUBE_IN_WIDTH": width - 1,
            "DATA_CUBE_IN_HEIGHT": height - 1,
            "DATA_CUBE_IN_CHANNEL": task.channels - 1,
            "DATA_CUBE_OUT_WIDTH": pool.out[1] - 1,
            "DATA_CUBE_OUT_HEIGHT": pool.out[0] - 1,
            "DATA_CUBE_OUT_CHANNEL": task.channels - 1,
            "OPERATION_MODE_CFG": {
                "POOLING_METHOD": pool.method,
                "FLYING_MODE": not task.group,
                "NOTCH_ADDR": task.notch,
                "INDEX_EN": task.index,
            },
            "POOLING_KERNEL_CFG": {
                "KERNEL_HEIGHT": pool.kernel[0] - 1,
                "KERNEL_WIDTH": pool.kernel[1] - 1,
                "KERNEL_STRIDE_HEIGHT": pool.stride[0] - 1,
                "KERNEL_STRIDE_WIDTH": pool.stride[1] - 1,
            },
            "POOLING_PADDING_CFG": {"PAD_TOP": pool.pad[0], "PAD_LEFT": pool.pad[1]},
            "PADDING_VALUE_1_CFG": pool.pad_value | 0xABC00000,
            "RECIP_KERNEL_HEIGHT": pool.recip[0],
            "RECIP_KERNEL_WIDTH": pool.recip[1],
            "DST_BASE_ADDR": TARGET >> 4,
            "DST_SURF_STRIDE": _out_surface(task),
            "DATA_FORMAT": {
                "PROC_PRECISION": pool.kind,
                "INDEX_ADD": _out_surface(task) * task.surfaces + 3,
            },
        },
        "rdma_cfg": {
            "CUBE_IN_WIDTH": width - 1,
            "CUBE_IN_HEIGHT": height - 1,
            "CUBE_IN_CHANNEL": task.channels - 1,
            "SRC_BASE_ADDR": SOURCE,
            "SRC_LINE_STRIDE": line,
            "SRC_SURF_STRIDE": line * height + 2,
            "DATA_FORMAT": 1 if pool.kind == INT8 else 2,
        },
        "dpu_cfg": {},
    }
    if task.group:
        conv, precision = GROUPS[pool.kind != INT8, task.group]
        settings["dpu_cfg"] = {
            "FEATURE_MODE_CFG": {"CONV_MODE": conv, "OUTPUT_MODE": 1},
            "DATA_FORMAT": {"IN_PRECISION": precision, "OUT_PRECISION": pool.kind},
            "DATA_CUBE_WIDTH": {"WIDTH": width - 1},
            "DATA_CUBE_HEIGHT": {"HEIGHT": height - 1},
            "DATA_CUBE_CHANNEL": {"CHANNEL": task.channels - 1},
        }
    return settings


def _out_surface(task: Task) -> int:
    return (task.pool.out[1] + task.notch) * task.pool.out[0] + 1


def _apply(ctx, dut: Pair, settings: dict) -> None:
    for member, values in settings.items():
        for register, value in values.items():
            port = getattr(getattr(dut, member), register)
            if isinstance(value, dict):
                for name, field in value.items():
                    ctx.set(port[name], field)
            else:
                ctx.set(port.as_value(), value)


def _memory(task: Task, cube: np.ndarray) -> tuple[bytearray, bytearray]:
    """Return the memory before the task, and the expected memory after it."""
    memory = bytearray([GUARD]) * MEMORY
    (height, width), pool = task.size, task.pool
    line = width + task.line_gap
    for s in range(task.surfaces):
        for y in range(height):
            for x in range(width):
                at = SOURCE + 16 * (s * (line * height + 2) + y * line + x)
                memory[at : at + 16] = _atom(task, cube, s, y, x)
    expected = bytearray(memory)
    tensors = pool.run(cube)
    offsets = (0, 16 * (_out_surface(task) * task.surfaces + 3))
    for tensor, offset in list(zip(tensors, offsets, strict=True))[: 2 if task.index else 1]:
        for s in range(task.surfaces):
            for y, x in np.ndindex(pool.out):
                at = TARGET + offset + 16 * (s * _out_surface(task) + y * (pool.out[1] + task.notch) + x)
                expected[at : at + 16] = _atom(task, tensor, s, y, x)
    assert len(expected) == len(memory) == MEMORY, f"the task does not fit into the memory: {task}"
    return memory, expected


def _run(
    tasks: list[Task],
    rng: random.Random,
    stall: float,
    change=None,
    ends: bool = True,
    *,
    floats: bool = True,
    compare: bool = True,
) -> tuple[int, set]:
    """Run tasks one after the other; return the cycles and the (block, code, register) of the diagnostics.

    `change` may alter the settings of each; with `ends` False the (last) task must hang; without `compare`
    the memory may be any.
    """
    dut = shared(Pair, floats)
    bench = Bench(dut, rng.randrange(1 << 32), stall)
    memory = bytearray(MEMORY)
    writes = bench.write_memory(dut.write, memory)
    bench.read_memory(dut.read, memory)
    told: dict[str, list] = {"PPU": [], "PPU_RDMA": []}
    bench.collect(dut.diag, told["PPU"])
    bench.collect(dut.rdma_diag, told["PPU_RDMA"])
    order: list[bytes] = []

    async def feed(ctx):
        while True:
            if not order or not bench.flows():
                await ctx.tick()
            else:
                ctx.set(dut.dpu.payload, {"data": int.from_bytes(order.pop(0), "little")})
                ctx.set(dut.dpu.valid, 1)
                taken = False
                while not taken:  # `until` leaves an open generator when the simulation ends first
                    _, _, taken = await ctx.tick().sample(dut.dpu.ready)
                ctx.set(dut.dpu.valid, 0)

    bench.add(feed)
    atoms, flying = 0, False

    async def count(ctx):
        nonlocal atoms
        async for _, _, now in ctx.tick().sample(dut.counted):
            atoms += now["atom"]
            assert now["atom"] == now["taken"] or not flying, "an atom is counted when it is taken"
            waits = now["input"] and not now["offered"] and flying and ends
            assert now["stall"] == waits or not ends, "a stall is a cycle that waits for PPU_RDMA"

    bench.add(count)
    cycles = 0

    async def main(ctx):
        nonlocal atoms, cycles, flying
        for task in tasks:
            atoms, flying = 0, not task.group
            cube = _values(rng, task)
            memory[:], expected = _memory(task, cube)
            settings = _settings(task)
            if change is not None:
                change(settings)
            _apply(ctx, dut, settings)
            begin = bench.cycle
            order.extend(_dpu_order(task, cube) if task.group else [])
            controls = [dut.ppu_control] if task.group else [dut.ppu_control, dut.rdma_control]
            for control in controls:
                ctx.set(control.start, 1)
            await ctx.tick()
            for control in controls:
                ctx.set(control.start, 0)
            seen = [False] * len(controls)
            while not all(seen):
                _, _, *now = await ctx.tick().sample(*(control.done for control in controls))
                assert not any(a and b for a, b in zip(seen, now, strict=True)), "the end is a pulse"
                seen = [a or bool(b) for a, b in zip(seen, now, strict=True)]
                if not ends and bench.cycle - begin > 600:
                    return
                assert bench.cycle - begin < 20000, f"no end: {task}"
            assert ends, f"the task ended: {task}"
            cycles = bench.cycle - begin
            assert writes.quiet and not order
            assert atoms == task.size[0] * task.size[1] * task.surfaces or not compare
            assert memory == expected or not compare, task
            for _ in range(8):
                _, _, *now = await ctx.tick().sample(*(control.done for control in controls))
                assert not any(now), "the end is a pulse"

    bench.run(main)
    table = registers()
    found = {
        (block, DiagnosticCode(code), table.at(register).name)
        for block, events in told.items()
        for code, register, _ in events
    }
    return cycles, found


@pytest.mark.parametrize("kind", (INT8, INT16, FP16), ids=("int8", "int16", "fp16"))
def test_random_pools(kind: int):
    seed = seeds.seed(f"{__name__} {kind}")
    print("seed", seed)
    rng = random.Random(seed)
    draws = [(method, from_dpu) for method in (AVERAGE, MAX, MIN) for from_dpu in (False, True)]
    tasks = [_draw(rng, kind, method, from_dpu) for method, from_dpu in draws]
    _, told = _run(rng.sample(tasks, len(tasks)), rng, stall=rng.choice((0.0, 0.3)))
    assert not told


def test_without_floats():
    """Integers are right without floating-point arithmetic; tasks of fp16 end with NOT_BUILT."""
    seed = seeds.seed(f"{__name__} no floats")
    print("seed", seed)
    rng = random.Random(seed)
    draws = [(kind, method) for kind in (INT8, INT16) for method in (AVERAGE, MAX, MIN)]
    tasks = [_draw(rng, kind, method, rng.random() < 0.5) for kind, method in draws]
    _, told = _run(tasks, rng, 0.1, floats=False)
    assert not told
    for method in (AVERAGE, MAX, MIN):
        task = _draw(rng, FP16, method, method == MAX)
        told = _run([task], rng, 0.1, floats=False, compare=False)[1]
        assert told == {("PPU", DiagnosticCode.NOT_BUILT, "DATA_FORMAT")}, task


PLAIN = Task(Pool(INT8, MAX, (2, 2), (2, 2), (0, 0), (2, 2), 0), (4, 4), 32)


LATENCY = 200
"""Most cycles of a task in addition to those of its atoms and results."""


def test_two_by_two_pools_at_the_rate_of_boards():
    """2x2 pools of stride 2 take 4.25 cycles an input atom of any type, boards 4.3 to 4.5 [HW 9.10]."""
    for kind, method in ((INT8, MAX), (FP16, AVERAGE))[: extent(1, 2)]:
        pool = Pool(kind, method, (2, 2), (2, 2), (0, 0), (4, 16), 0, (0x7800, 0x7800))
        cycles = _run([Task(pool, (8, 32), 8)], random.Random(1), stall=0.0)[0]
        print(f"{cycles} cycles for {8 * 32} atoms")
        assert 0 <= cycles - 4.25 * 8 * 32 < LATENCY


def test_five_windows_fit_in_the_cycles_of_atom_and_result():
    """A column of a 5x5 pool of stride 1 has five open windows, and completes a result; it takes 5 cycles."""
    pool = Pool(INT8, MAX, (5, 5), (1, 1), (2, 2), (1, 32), 0)
    cycles = _run([Task(pool, (3, 32), 16)], random.Random(3), stall=0.0)[0]
    rows = 3 * 5 * 30
    print(f"{cycles} cycles, {rows} of the columns with five windows")
    assert 0 <= cycles - rows < LATENCY


def test_a_group_of_the_dpu_streams_too():
    pool = Pool(INT8, MAX, (2, 2), (2, 2), (0, 0), (2, 8), 0)
    cycles = _run([Task(pool, (4, 16), 64, group=4)], random.Random(2), stall=0.0)[0]
    print(f"{cycles} cycles for {4 * 16 * 4} atoms")
    assert 0 <= cycles - 4.25 * 4 * 16 * 4 < LATENCY


def _with(register: str, block: str = "ppu_cfg", **fields: int):
    def change(settings: dict) -> None:
        value = settings[block].get(register, {})
        settings[block][register] = value | fields if isinstance(value, dict) else fields

    return change


def test_settings_without_effect_are_told():
    def change(settings: dict) -> None:
        for register, fields in (
            ("MISC_CTRL", {"NONALIGN": 1, "SURF_LEN": 1, "MC_SURF_OUT": 1}),
            ("DATA_FORMAT", {"PROC_PRECISION": 5}),
            ("DATA_CUBE_OUT_CHANNEL", {"DATA_CUBE_OUT_CHANNEL": 3}),
        ):
            _with(register, **fields)(settings)

    _, told = _run([PLAIN], random.Random(3), 0.0, change)
    assert told == {
        ("PPU", RESERVED, "MISC_CTRL"),
        ("PPU", RESERVED, "DATA_FORMAT"),
        ("PPU", SIZE, "DATA_CUBE_OUT_CHANNEL"),
    }


def test_method_three_is_min_and_an_average_has_no_positions():
    least = replace(PLAIN, pool=replace(PLAIN.pool, method=MIN), index=True)
    told = _run([least], random.Random(4), 0.0, _with("OPERATION_MODE_CFG", POOLING_METHOD=3))[1]
    assert told == {("PPU", RESERVED, "OPERATION_MODE_CFG")}
    mean = replace(PLAIN, pool=replace(PLAIN.pool, method=AVERAGE, recip=(32768, 32768)))
    told = _run([mean], random.Random(5), 0.0, _with("OPERATION_MODE_CFG", INDEX_EN=1))[1]
    assert told == {("PPU", RESERVED, "OPERATION_MODE_CFG")}


def test_types_that_do_not_belong_together_count_as_int8():
    told = _run([PLAIN], random.Random(6), 0.0, _with("DATA_FORMAT", "rdma_cfg", IN_PRECISION=2))[1]
    assert told == {("PPU_RDMA", RESERVED, "DATA_FORMAT")}


def test_cubes_that_differ_hang():
    for block, register, field in (
        ("rdma_cfg", "CUBE_IN_WIDTH", "CUBE_IN_WIDTH"),
        ("ppu_cfg", "DATA_CUBE_IN_HEIGHT", "DATA_CUBE_IN_HEIGHT"),
    ):
        told = _run([PLAIN], random.Random(7), 0.0, _with(register, block, **{field: 7}), ends=False)[1]
        assert told == {("PPU", SIZE, "DATA_CUBE_IN_WIDTH")}
    fed = replace(PLAIN, group=2)
    for register, fields in (
        ("DATA_CUBE_HEIGHT", {"HEIGHT": 6}),
        ("DATA_CUBE_CHANNEL", {"CHANNEL": 32}),
        ("DATA_FORMAT", {"OUT_PRECISION": 1}),
    ):
        told = _run([fed], random.Random(8), 0.0, _with(register, "dpu_cfg", **fields), ends=False)[1]
        assert told == {("PPU", SIZE, "DATA_CUBE_IN_WIDTH")}


def test_dpu_flyin_is_only_compared():
    fed = replace(PLAIN, group=2)
    told = _run([fed], random.Random(9), 0.0, _with("DATA_FORMAT", DPU_FLYIN=1))[1]
    assert told == {("PPU", RESERVED, "DATA_FORMAT")}
    assert not _run([PLAIN], random.Random(9), 0.0, _with("DATA_FORMAT", DPU_FLYIN=1))[1]


def test_partial_results_over_the_capacity_hang():
    width = ROW_CAPACITY // 2
    wide = Task(Pool(INT8, MAX, (2, 2), (2, 1), (0, 0), (1, width + 1), 0), (2, width + 2), 16)
    assert _run([wide], random.Random(10), 0.0, ends=False)[1] == {("PPU", FOOTPRINT, "DATA_CUBE_OUT_WIDTH")}
    fed = replace(wide, pool=replace(wide.pool, out=(1, 600)), size=(2, 601), channels=32, group=2)
    assert _run([fed], random.Random(10), 0.0, ends=False)[1] == {("PPU", FOOTPRINT, "DATA_CUBE_OUT_WIDTH")}
