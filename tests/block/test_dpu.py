"""Dpu alone and with DpuRdma: random tasks against tests/twins/dpu_model.py; the whole image is compared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, ReadPort, WritePort
from rkcosim.rtl.npu.dpu import Dpu
from rkcosim.rtl.npu.dpu_rdma import DpuRdma
from rkcosim.rtl.regfile import LutPort, config_signature, pack_fields
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.dpu_bench import Bench
from tests.block.dpu_tasks import INTEGERS, Task, fill_memory, random_task
from tests.extent import extent
from tests.simulation import shared
from tests.twins.dpu_model import (
    NO_TABLES,
    Tables,
    run_dpu,
)
from tests.twins.rdma_model import (
    FLOATS,
    INT8,
    INT32,
    Registers,
    group_channels,
    run_rdma,
)

LIMIT = 60_000
SMALL_TASK = 9000
"""Bytes of memory of a task that takes little time."""

SEED = seeds.seed(__name__)
READERS = ("mrdma", "brdma", "nrdma", "erdma")


class Pair(wiring.Component):
    """DPU and DPU_RDMA connected as in the core."""

    def __init__(self, floats: bool = True) -> None:
        self.dpu, self.rdma = Dpu(floats=floats), DpuRdma(floats=floats)
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "rdma_cfg": In(config_signature("DPU_RDMA")),
                "control": In(ControlPort()),
                "rdma_control": In(ControlPort()),
                "acc": In(self.dpu.acc.signature.flip()),
                "lut": In(LutPort()),
                "ppu": Out(self.dpu.ppu.signature),
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
        for name in ("cfg", "control", "acc", "lut", "write", "ppu", "diag"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(dpu, name))
        for outer, inner in (("rdma_cfg", "cfg"), ("rdma_control", "control"), ("rdma_diag", "diag")):
            wiring.connect(m, wiring.flipped(getattr(self, outer)), getattr(rdma, inner))
        for name in READERS:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(rdma, name))
        for name in ("bs", "bn", "main", "ew"):
            wiring.connect(m, getattr(rdma, name), getattr(dpu, name))
        m.d.comb += dpu.rdma_busy.eq(rdma.busy)
        m.d.comb += dpu.rdma_comb_use.eq(rdma.busy & self.rdma_cfg.FEATURE_MODE_CFG.COMB_USE[0])
        m.d.comb += rdma.dpu_comb_use.eq(self.cfg.FEATURE_MODE_CFG.COMB_USE)
        m.d.comb += self.busy_octet.eq(dpu.busy_octet)
        return m


def configure(ctx: Any, port: Any, block: str, fields: Registers) -> None:
    """Set a configuration port like the register file."""
    table = registers()[block]
    for name in port.signature.members:
        register = table[name]
        word = register.encode(**fields.get(name, {}))
        ctx.set(Value.cast(getattr(port, name)), ctx.get(pack_fields(register, Value.cast(word))))


async def load_tables(ctx: Any, lut: Any, tables: Tables) -> None:
    """Write both tables like the register file."""
    for table, entries in enumerate(tables):
        for entry, value in enumerate(entries):
            ctx.set(lut.write, 1)
            ctx.set(lut.table, table)
            ctx.set(lut.entry, entry)
            ctx.set(lut.data, value % 65536)
            await ctx.tick()
    ctx.set(lut.write, 0)


def acc_octets(task: Task) -> list[dict[str, Any]]:
    """Return what CORE sends: every octet of every group, including those past the last channel."""
    dpu = task.dpu
    width, height = dpu["DATA_CUBE_WIDTH"]["WIDTH"] + 1, dpu["DATA_CUBE_HEIGHT"]["HEIGHT"] + 1
    channels = dpu["DATA_CUBE_CHANNEL"]["CHANNEL"] + 1
    group = group_channels(dpu["FEATURE_MODE_CFG"]["CONV_MODE"], dpu["DATA_FORMAT"]["IN_PRECISION"])
    result = []
    for first in range(0, channels, group):
        for pixel in range(width * height):
            y, x = divmod(pixel, width)
            for octet in range(first, first + group, 8):
                pairs = [task.acc(c, y, x) for c in range(octet, octet + 8)]
                clip = {"shift": task.clip[0], "half_up": task.clip[1]}
                acc, total = [p[0] % 2**48 for p in pairs], [p[1] % 2**32 for p in pairs]
                result.append({"acc": acc, "sum": total, "clip": clip})
    return result


def run_tasks(
    tasks: list[Task],
    seed: int,
    stall: float,
    latency: tuple[int, int] = (2, 60),
    *,
    floats: bool = True,
    told: list[set[tuple[int, int]]] | None = None,
    together: bool = False,
) -> Bench:
    """Run `tasks` one after the other on the RTL and on the model; compare the whole image.

    With `together`, both blocks start in the same cycle, as in a core, and writes take as long as reads.
    `bench.cycles` has the cycles of each task.

    With `told`, the tasks only have to end, and code and register of their diagnostics are appended.
    """
    memory = fill_memory(max(tasks, key=lambda task: task.size), seed)
    expected = bytearray(memory)
    pair = shared(Pair, floats)
    bench = Bench(pair, seed, stall)
    model = bench.write_memory(pair.write, memory, *([latency] if together else []))
    for name in READERS:
        bench.read_memory(getattr(pair, name), memory, latency)
    octets, atoms, wanted_atoms = [], [], []
    bench.sink(pair.ppu, lambda p: atoms.append(p.data))
    for task in tasks:
        data = run_rdma(task.rdma, expected, task.dpu["FEATURE_MODE_CFG"].get("COMB_USE", 0))
        wanted_atoms += run_dpu(task.dpu, expected, data, task.acc, task.tables, task.clip)
        if not task.dpu["FEATURE_MODE_CFG"]["FLYING_MODE"]:
            octets += acc_octets(task)
    bench.source(pair.acc, octets)
    complaints: list[tuple[int, int, int]] = []
    bench.collect(pair.diag, complaints)
    bench.collect(pair.rdma_diag, complaints)
    bench.busy, bench.cycles = 0, []

    async def watch(ctx: Any) -> None:
        async for _, _, stall, counted in ctx.tick().sample(pair.dpu.stall, pair.dpu.activity.OPERAND):
            assert stall == counted, "the port and the counters tell different stalls"

    bench.add(watch)

    async def main(ctx: Any) -> None:
        for index, task in enumerate(tasks):
            await one(ctx, index, task)
            if told is not None:
                await ctx.tick().repeat(40)
                told.append({(code, register) for code, register, _ in complaints})
                complaints.clear()
        await ctx.tick().repeat(40)

    async def one(ctx: Any, index: int, task: Task) -> None:
        configure(ctx, pair.cfg, "DPU", task.dpu)
        configure(ctx, pair.rdma_cfg, "DPU_RDMA", task.rdma)
        if task.tables is not NO_TABLES:
            await load_tables(ctx, pair.lut, task.tables)
        await ctx.tick()
        missing = {"dpu", "rdma"}
        order = [pair.control, pair.rdma_control]
        bench.random.shuffle(order)
        for control in order:
            ctx.set(control.start, 1)
            if not together or control is order[-1]:
                await ctx.tick()
                for begun in order:
                    ctx.set(begun.start, 0)
        bench.begin = bench.cycle
        for _ in range(LIMIT):
            done = await ctx.tick().sample(pair.control.done, pair.rdma_control.done, pair.busy_octet)
            bench.busy += done[4]
            if done[2]:
                assert model.quiet, "done before the last write response"
                missing.remove("dpu")
                bench.end = bench.cycle
            if done[3]:
                missing.remove("rdma")
            if not missing:
                bench.cycles.append(bench.cycle - bench.begin)
                _, _, *again = await ctx.tick().sample(pair.control.done, pair.rdma_control.done)
                assert not any(again), "the end is a pulse"
                return
        raise AssertionError(f"task {index}: {missing} not done after {LIMIT} cycles; {task}")

    bench.run(main)
    if told is not None:
        return bench
    assert complaints == []
    assert atoms == wanted_atoms, f"{len(atoms)} atoms, expected {len(wanted_atoms)}; {tasks}"
    wrong = [at for at in range(len(memory)) if memory[at] != expected[at]]
    assert not wrong, (
        f"{len(wrong)} bytes differ, first at {wrong[0]:#x}: {memory[wrong[0]]:#x}, "
        f"expected {expected[wrong[0]]:#x}; {tasks}"
    )
    return bench


@pytest.mark.parametrize("seed", range(7))
def test_random_tasks(seed: int) -> None:
    """Two tasks in sequence, so that state left by the first one would be found."""
    rng = random.Random(seed)
    run_tasks([random_task(rng), random_task(rng)], seed, stall=rng.choice([0.0, 0.1, 0.4]))


def test_without_floats() -> None:
    """Integer tasks are right without floating-point arithmetic; all others end with NOT_BUILT."""
    rng = random.Random(SEED)

    def drawn(main_type: int, floats_out: bool) -> Task:
        while True:
            task = random_task(rng, main_type=main_type)
            small = task.size < SMALL_TASK and task.tables is NO_TABLES
            if small and (task.dpu["DATA_FORMAT"]["OUT_PRECISION"] in FLOATS) == floats_out:
                return task

    run_tasks([drawn(kind, False) for kind in INTEGERS], SEED, 0.1, floats=False)
    told: list[set[tuple[int, int]]] = []
    tasks = [drawn(kind, True) for kind in (*FLOATS, INT8)]
    run_tasks(tasks, SEED, 0.1, floats=False, told=told)
    for task, found in zip(tasks, told, strict=True):
        places = {"DPU": "DATA_FORMAT", "DPU_RDMA": "FEATURE_MODE_CFG"}
        if task.dpu["DATA_FORMAT"]["IN_PRECISION"] not in FLOATS:
            del places["DPU_RDMA"]
        missing = {(DiagnosticCode.NOT_BUILT, registers()[b][name].offset) for b, name in places.items()}
        assert {(code, at) for code, at in found if code == DiagnosticCode.NOT_BUILT} == missing, task.dpu


def simple_task(
    channels: int,
    height: int,
    width: int,
    *,
    flying: bool,
    out: int = INT8,
    overwrite: Registers | None = None,
) -> Task:
    """Contiguous cubes, all stages bypassed, output converter as identity; `overwrite` sets DPU fields."""
    cube = (channels, height, width)
    task = random_task(random.Random(0), flying=flying, cube=cube, main_type=INT8, lut=False)
    dpu, rdma = task.dpu, task.rdma
    atoms = height * width
    size_e = ((16 if flying else 32) * {INT8: 1, INT32: 4}[out]) // 16 - 1
    changes: Registers = {
        "FEATURE_MODE_CFG": {"CONV_MODE": 0, "OUTPUT_MODE": 2},
        "DATA_FORMAT": {"OUT_PRECISION": out, "IN_PRECISION": INT8, "PROC_PRECISION": INT8},
        "DST_BASE_ADDR": {"DST_BASE_ADDR": 0x1000},
        "DST_SURF_STRIDE": {"DST_SURF_STRIDE": atoms},
        "SURFACE_ADD": {"SURF_ADD": (size_e + 1) * atoms},
        "DATA_CUBE_NOTCH_ADDR": {"NOTCH_ADDR_0": 0, "NOTCH_ADDR_1": 0},
        "DATA_CUBE_CHANNEL": {"ORIG_CHANNEL": channels - 1},
        "BS_OW_CFG": {
            "SIZE_E_0": size_e,
            "SIZE_E_1": size_e,
            "SIZE_E_2": size_e,
            "OD_BYPASS": 0,
            "OW_SRC": 0,
        },
        "BS_OW_OP": {"OW_OP": 0},
        "BS_CFG": {"BS_BYPASS": 1},
        "BN_CFG": {"BN_BYPASS": 1},
        "EW_CFG": {"EW_BYPASS": 1},
        "OUT_CVT_OFFSET": {"OUT_CVT_OFFSET": 0},
        "OUT_CVT_SCALE": {"OUT_CVT_SCALE": 1},
        "OUT_CVT_SHIFT": {"OUT_CVT_SHIFT": 0, "CVT_TYPE": 0, "CVT_ROUND": 0},
        **(overwrite or {}),
    }
    for register, fields in changes.items():
        dpu[register].update(fields)
    rdma["FEATURE_MODE_CFG"].update(CONV_MODE=0, IN_PRECISION=INT8, PROC_PRECISION=INT8)
    rdma["SRC_BASE_ADDR"]["SRC_BASE_ADDR"] = 0x100
    rdma["SRC_DMA_CFG"]["LINE_NOTCH_ADDR"] = 0
    rdma["SURF_NOTCH"]["SURF_NOTCH_ADDR"] = 0
    rdma["ERDMA_CFG"] = {"ERDMA_DISABLE": 1}
    rdma["BRDMA_CFG"] = {"BRDMA_DISABLE": 1}
    rdma["NRDMA_CFG"] = {"NRDMA_DISABLE": 1}
    task.size = 0x11000 + 4 * channels * atoms
    return task


def test_flying_add() -> None:
    """The requantised int8 addition of two cubes, and its rate: one octet per cycle with fast memory."""
    height, width = 3, 9
    task = simple_task(
        64,
        height,
        width,
        flying=True,
        overwrite={
            "BS_CFG": {"BS_BYPASS": 0, "BS_ALU_ALGO": 2, "BS_ALU_SRC": 0, "BS_ALU_BYPASS": 0},
            "EW_CFG": {
                **{
                    "EW_BYPASS": 0,
                    "EW_OP_BYPASS": 0,
                    "EW_OP_SRC": 1,
                    "EW_OP_CVT_BYPASS": 0,
                    "EW_CVT_TYPE": 1,
                },
                **{
                    "EW_CVT_ROUND": 0,
                    "EW_OP_TYPE": 0,
                    "EW_ALU_ALGO": 2,
                    "EW_RELU_BYPASS": 1,
                    "EW_LUT_BYPASS": 1,
                },
            },
            "EW_CVT_OFFSET_VALUE": {"EW_OP_CVT_OFFSET": -7},
            "EW_CVT_SCALE_VALUE": {"EW_OP_CVT_SCALE": 21000, "EW_OP_CVT_SHIFT": 14},
            "OUT_CVT_OFFSET": {"OUT_CVT_OFFSET": -11},
            "OUT_CVT_SCALE": {"OUT_CVT_SCALE": 0x4ABD},
            "OUT_CVT_SHIFT": {"OUT_CVT_SHIFT": 15, "CVT_TYPE": 0, "CVT_ROUND": 0},
        },
    )
    task.dpu["BS_CFG"].update(BS_MUL_BYPASS=0, BS_MUL_PRELU=0, BS_RELU_BYPASS=1)
    task.dpu["BS_MUL_CFG"] = {"BS_MUL_OPERAND": 0x4000, "BS_MUL_SHIFT_VALUE": 14}
    task.dpu["DATA_FORMAT"]["BS_MUL_SHIFT_VALUE_NEG"] = 14
    task.dpu["BS_ALU_CFG"] = {"BS_ALU_OPERAND": 5}
    task.rdma["ERDMA_CFG"] = {"ERDMA_DATA_MODE": 1, "ERDMA_DATA_SIZE": 1}
    task.rdma["DATA_CUBE_HEIGHT"]["EW_LINE_NOTCH_ADDR"] = 0
    task.rdma["EW_BASE_ADDR"]["EW_BASE_ADDR"] = 0x9000
    task.rdma["EW_SURF_STRIDE"]["EW_SURF_STRIDE"] = height * width
    task.rdma["EW_SURF_NOTCH"]["EW_SURF_NOTCH"] = 0
    bench = run_tasks([task], 1, 0.0, (150, 150))
    octets, cycles = bench.busy, bench.end - bench.begin
    print(f"{octets} octets in {cycles} cycles")
    assert octets == height * width * 8
    assert cycles <= octets + 150 + 80


def test_octet_a_cycle_to_int32() -> None:
    """CORE to int32 as a row-major matrix, 32 bytes per cycle."""
    height, width = 16, 1
    place: Registers = {
        "DST_SURF_STRIDE": {"DST_SURF_STRIDE": 1},
        "SURFACE_ADD": {"SURF_ADD": 8},
        "DATA_CUBE_NOTCH_ADDR": {"NOTCH_ADDR_0": 15, "NOTCH_ADDR_1": 15},
    }
    task = simple_task(64, height, width, flying=False, out=INT32, overwrite=place)
    bench = run_tasks([task], 1, 0.0)
    octets, cycles = bench.busy, bench.end - bench.begin
    print(f"{octets} octets in {cycles} cycles")
    assert octets == height * width * 8
    assert cycles <= octets + 130


def test_bs_operands_overlap_groups() -> None:
    """Operands of the next channel group are loaded while one is in use, without a gap between groups."""
    task = simple_task(128, 4, 8, flying=False)
    task.dpu["BS_CFG"] = {"BS_ALU_ALGO": 2, "BS_ALU_SRC": 1, "BS_MUL_BYPASS": 0, "BS_RELU_BYPASS": 1}
    task.dpu["BS_MUL_CFG"] = {"BS_MUL_SRC": 1, "BS_MUL_SHIFT_VALUE": 14}
    task.rdma["BRDMA_CFG"] = {"BRDMA_DATA_USE": 7}
    bench = run_tasks([task], 1, 0.0, (60, 60))
    assert bench.end - bench.begin <= 4 * 4 * 32 + 60 + 100


def test_the_same_task_takes_the_same_time() -> None:
    """Small tasks with all readers, and with operands for more groups than the tables hold."""
    flying = simple_task(16, 1, 2, flying=True)
    direct = simple_task(96, 1, 2, flying=False)
    for task in (flying, direct):
        for stage in ("BS", "BN"):
            fields = {"ALU_ALGO": 2, "ALU_SRC": 1, "MUL_BYPASS": 1, "RELU_BYPASS": 1}
            task.dpu[f"{stage}_CFG"] = {f"{stage}_{name}": value for name, value in fields.items()}
        task.rdma["BRDMA_CFG"] = {"BRDMA_DATA_USE": 1}
        task.rdma["NRDMA_CFG"] = {"NRDMA_DATA_USE": 1}
    bench = run_tasks([flying] * 5 + [direct] * 2, 1, 0.0, (9, 9), together=True)
    assert len(set(bench.cycles[:5])) == len(set(bench.cycles[5:])) == 1, bench.cycles
    assert bench.busy == 5 * 2 * 2 + 2 * 12 * 2


def _control(
    tasks: list[Task], cycles: int, core_octets: tuple[int, ...] = ()
) -> list[tuple[list[tuple[int, int, int]], bool]]:
    """Run tasks on the DPU alone; return the diagnostics of each, and whether it ended within `cycles`."""
    dpu = shared(Dpu)
    result: list[tuple[list[tuple[int, int, int]], bool]] = []
    complaints: list[tuple[int, int, int]] = []

    async def main(ctx: Any) -> None:
        for index in range(len(result), len(tasks)):
            ctx.set(dpu.core_octets, core_octets[index] if core_octets else 0)
            configure(ctx, dpu.cfg, "DPU", tasks[index].dpu)
            ctx.set(dpu.control.start, 1)
            await ctx.tick()
            ctx.set(dpu.control.start, 0)
            pulses = 0
            for _ in range(cycles):
                _, _, done = await ctx.tick().sample(dpu.control.done)
                pulses += done
            assert pulses <= 1
            result.append((complaints.copy(), pulses == 1))
            complaints.clear()
            if not pulses:  # what a task that hangs offers does not stay when its registers change
                return

    while len(result) < len(tasks):  # from reset
        bench = Bench(dpu, 0, 0.0)
        bench.write_memory(dpu.write, fill_memory(tasks[0], 0))
        bench.source(dpu.acc, [octet for task in tasks[len(result) :] for octet in acc_octets(task)])
        bench.sink(dpu.ppu, lambda p: None)
        bench.collect(dpu.diag, complaints)
        bench.run(main)
    return result


MISMATCH, RESERVED = DiagnosticCode.SIZE_MISMATCH, DiagnosticCode.RESERVED_MODE
FLOAT = {
    "DATA_FORMAT": {"IN_PRECISION": 2, "PROC_PRECISION": 5, "OUT_PRECISION": 5},
    "BS_OW_CFG": {"OD_BYPASS": 1, "SIZE_E_0": 3, "SIZE_E_1": 3, "SIZE_E_2": 3},
}
LUT = {"EW_CFG": {"EW_BYPASS": 0, "EW_OP_BYPASS": 1, "EW_LUT_BYPASS": 0}, "LUT_CFG": {"LUT_LO_LE_MUX": 2}}
EW_LIVE = {"EW_BYPASS": 0, "EW_OP_BYPASS": 0, "EW_LUT_BYPASS": 1}
CONVERTER = {**EW_LIVE, "EW_OP_SRC": 1, "EW_OP_CVT_BYPASS": 0, "EW_ALU_ALGO": 2}
OPERAND = {**CONVERTER, "EDATA_SIZE": 3}
HALF = {**FLOAT, "DATA_FORMAT": {"IN_PRECISION": 2, "PROC_PRECISION": 2, "OUT_PRECISION": 5}}
WORDS = {
    "DATA_FORMAT": {"IN_PRECISION": 1, "PROC_PRECISION": 4, "OUT_PRECISION": 4},
    "BS_OW_CFG": {"OD_BYPASS": 1, "SIZE_E_0": 3, "SIZE_E_1": 3, "SIZE_E_2": 3},
}
DIVISION = {
    "DATA_FORMAT": {"IN_PRECISION": 2, "PROC_PRECISION": 2, "OUT_PRECISION": 2},
    "BS_OW_CFG": {"OD_BYPASS": 1, "SIZE_E_0": 1, "SIZE_E_1": 1, "SIZE_E_2": 1},
    "EW_CFG": {**EW_LIVE, "EW_ALU_ALGO": 3},
}
CORRECT = [
    {},
    FLOAT,
    LUT,
    {**FLOAT, "EW_CFG": {**EW_LIVE, "EW_ALU_ALGO": 8}},
    {**FLOAT, "OUT_CVT_SCALE": {"OUT_CVT_SCALE": 0}},
    {"EW_CFG": {**EW_LIVE, "EW_ALU_ALGO": 1, "EW_BINARY_EN": 1}},
]
WRONG = [
    ({}, "WDMA_SIZE_0", {"CHANNEL_WDMA": 63}, MISMATCH, True),
    ({}, "WDMA_SIZE_1", {"WIDTH_WDMA": 63}, MISMATCH, True),
    ({}, "DATA_CUBE_NOTCH_ADDR", {"NOTCH_ADDR_1": 1}, MISMATCH, True),
    ({}, "DATA_CUBE_HEIGHT", {"MINMAX_CTL": 1}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"TP_EN": 1}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"COMB_USE": 1}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"RGP_TYPE": 2}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"NONALIGN": 1}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"SURF_LEN": 1}, RESERVED, True),
    ({}, "FEATURE_MODE_CFG", {"CONV_MODE": 1}, RESERVED, True),
    ({}, "BS_CFG", {"BS_BYPASS": 0, "BS_ALU_ALGO": 3}, RESERVED, True),
    ({}, "BS_MUL_CFG", {"BS_TRUNCATE_SRC": 1}, RESERVED, True),
    ({}, "BN_CFG", {"BN_BYPASS": 0, "BN_ALU_BYPASS": 0, "BN_ALU_ALGO": 3, "BN_ALU_SRC": 0}, RESERVED, True),
    ({}, "BN_MUL_CFG", {"BN_TRUNCATE_SRC": 1}, RESERVED, True),
    ({}, "EW_CFG", {**EW_LIVE, "EW_ALU_ALGO": 3}, RESERVED, True),
    (LUT, "LUT_CFG", {"LUT_LO_LE_MUX": 0}, RESERVED, True),
    (LUT, "LUT_CFG", {"LUT_EXPAND_EN": 1}, RESERVED, True),
    (LUT, "LUT_INFO", {"LUT_LO_INDEX_SELECT": 23}, RESERVED, True),
    ({}, "DATA_FORMAT", {"PROC_PRECISION": 2}, RESERVED, True),
    ({}, "DATA_FORMAT", {"OUT_PRECISION": 7}, RESERVED, True),
    ({}, "DATA_FORMAT", {"MC_SURF_OUT": 1}, RESERVED, True),
    ({}, "BS_OW_CFG", {"RGP_CNTER": 1}, RESERVED, True),
    ({}, "BS_OW_CFG", {"SIZE_E_2": 7}, MISMATCH, True),
    (FLOAT, "EW_CFG", {**EW_LIVE, "EW_ALU_ALGO": 9}, RESERVED, True),
    (FLOAT, "OUT_CVT_OFFSET", {"OUT_CVT_OFFSET": 1}, RESERVED, True),
    (FLOAT, "OUT_CVT_SCALE", {"OUT_CVT_SCALE": 2}, RESERVED, True),
    (FLOAT, "EW_CFG", {**EW_LIVE, "EW_ALU_ALGO": 1, "EW_BINARY_EN": 1}, RESERVED, True),
    ({}, "EW_CFG", {**EW_LIVE, "EW_ALU_ALGO": 2, "EW_BINARY_EN": 1}, RESERVED, True),
    (FLOAT, "OUT_CVT_SHIFT", {"OUT_CVT_SHIFT": 1}, RESERVED, True),
    ({**FLOAT, "EW_CFG": CONVERTER}, "EW_CVT_OFFSET_VALUE", {"EW_OP_CVT_OFFSET": 1}, RESERVED, False),
    ({**FLOAT, "EW_CFG": CONVERTER}, "EW_CVT_SCALE_VALUE", {"EW_OP_CVT_SCALE": 2}, RESERVED, False),
    (HALF, "EW_CFG", {**OPERAND, "EW_OP_CVT_BYPASS": 1, "EDATA_SIZE": 2}, RESERVED, False),
    (FLOAT, "EW_CFG", {**OPERAND, "EW_OP_CVT_BYPASS": 1, "EDATA_SIZE": 2, "EW_ALU_ALGO": 1}, RESERVED, False),
    (HALF, "EW_CFG", {**OPERAND, "EW_OP_TYPE": 1, "EW_OP_CVT_BYPASS": 0}, RESERVED, False),
    (FLOAT, "EW_CFG", {**OPERAND, "EW_OP_TYPE": 1, "EW_OP_CVT_BYPASS": 0}, RESERVED, False),
    (WORDS, "EW_CFG", OPERAND, RESERVED, False),
]


def _wrong_task(*changes: Registers) -> Task:
    """Three pixels of 20 channels with every stage off, and the settings that must be reported."""
    task = simple_task(20, 1, 3, flying=False)
    task.dpu["BS_CFG"].update(BS_ALU_BYPASS=0, BS_ALU_SRC=0, BS_MUL_BYPASS=1)
    task.dpu["BN_CFG"].update(BN_MUL_BYPASS=1)
    task.dpu["EW_CFG"].update(EW_OP_BYPASS=0, EW_OP_TYPE=0, EW_OP_SRC=0, EW_LUT_BYPASS=1)
    task.dpu["EW_CVT_OFFSET_VALUE"] = {}
    task.dpu["EW_CVT_SCALE_VALUE"] = {"EW_OP_CVT_SCALE": 1}
    task.dpu["OUT_CVT_SHIFT"]["MINUS_EXP"] = 0
    for registers_ in changes:
        for register, fields in registers_.items():
            task.dpu.setdefault(register, {}).update(fields)
    return task


def test_diagnostics() -> None:
    """Every suspicious setting is reported once, with its register, and ends or hangs as documented."""
    tasks = [_wrong_task(base) for base in CORRECT]
    expected = [([], True)] * len(CORRECT)
    for base, register, fields, code, ends in WRONG[:: extent(2, 1)]:
        task = _wrong_task(base, {register: fields})
        place = registers()["DPU"][register]
        tasks.append(task)
        expected.append(([(int(code), place.offset, place.encode(**task.dpu[register]))], ends))
    got = _control(tasks, extent(110, 150))
    for task, have, want in zip(tasks, got, expected, strict=True):
        assert have == want, task.dpu


def test_narrowed_division() -> None:
    """A division must not be narrowed; it takes longer than the other tasks."""
    tasks = [_wrong_task(DIVISION), _wrong_task(DIVISION, {"OUT_CVT_SCALE": {"FP32TOFP16_EN": 1}})]
    place = registers()["DPU"]["OUT_CVT_SCALE"]
    told = (int(RESERVED), place.offset, place.encode(**tasks[1].dpu["OUT_CVT_SCALE"]))
    assert _control(tasks, 500) == [([], True), ([told], True)]


def test_group_of_core() -> None:
    """int8 comes in groups of four octets; a CORE with another grouping is reported and hangs the task."""
    task = simple_task(20, 1, 3, flying=False)
    place = registers()["DPU"]["DATA_FORMAT"]
    told = (int(MISMATCH), place.offset, place.encode(**task.dpu["DATA_FORMAT"]))
    assert _control([task, task], 150, (4, 8)) == [([], True), ([told], False)]


def test_hangs() -> None:
    """A wrong SIZE_E_1 is reported; a BS that waits for BRDMA, which does not run, writes nothing."""
    wrong = _wrong_task({"BS_OW_CFG": {"SIZE_E_0": 3, "SIZE_E_1": 3, "SIZE_E_2": 3}})
    place = registers()["DPU"]["BS_OW_CFG"]
    told = (int(MISMATCH), place.offset, place.encode(**wrong.dpu["BS_OW_CFG"]))
    waits = simple_task(32, 1, 1, flying=False)
    waits.dpu["BS_CFG"] = {"BS_ALU_ALGO": 2, "BS_ALU_SRC": 1, "BS_MUL_BYPASS": 1}
    assert _control([wrong, waits], 400) == [([told], False), ([], False)]
