"""The DPU's arithmetic: shift, rounding and saturation at the limits; the pipeline with random settings."""

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.hdl import signed as signed_shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rkcosim.rtl.npu.arith import clamp, rectifier_limits, round_shift, shift_of
from rkcosim.rtl.npu.dpu_pipe import DpuPipe
from tests.block.dpu_bench import Bench
from tests.block.dpu_tasks import (
    FLOAT_SPECIALS,
    HALF_SPECIALS,
    INTEGERS,
    Task,
    float_word,
    half_word,
    operand,
    random_task,
)
from tests.block.test_dpu import configure, load_tables
from tests.extent import extent
from tests.simulation import shared
from tests.twins.dpu_model import (
    NO_TABLES,
    element_value,
)
from tests.twins.rdma_model import (
    BITS,
    FLOATS,
    FP32,
    Fields,
    Operands,
    RdmaData,
    group_channels,
    shift_round,
    signed,
)

pytestmark = pytest.mark.withdraws("what a task leaves over is withdrawn at its end")

LIMIT = 3000


class Rounder(wiring.Component):
    """The functions of dpu_math as one component."""

    value: In(signed_shape(63))
    shift: In(6)
    away: In(1)
    even: Out(signed_shape(64))
    either: Out(signed_shape(64))
    sat8: Out(signed_shape(32))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = shift_of(self.shift)
        m.d.comb += [
            self.even.eq(round_shift(self.value, shift)),
            self.either.eq(round_shift(self.value, shift, self.away)),
            self.sat8.eq(clamp(self.either, -128, 127)),
        ]
        return m


def _clamp(value: int, bits: int) -> int:
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def test_rounding_at_every_shift() -> None:
    """Ties, their neighbours, limits and both signs at shifts 0 to 63, both rounding rules."""
    rng = random.Random(5)
    top = (1 << 62) - 2
    dut = Rounder()
    sim = Simulator(dut)

    async def main(ctx: Any) -> None:
        for shift in range(64):
            half, unit = (1 << shift) >> 1, 1 << shift
            values = {0, 1, -1, top, -top - 1, top - 1, -top, 1 << 31, -(1 << 31) - 1, 127, -129}
            for count in (0, 1, 2, 3, 126, 127, 128, (1 << 31) - 1, 1 << 31):
                for near in (-1, 0, 1):
                    values |= {count * unit + half + near, -(count * unit + half) + near, count * unit + near}
            values |= {rng.randint(-top, top) >> rng.randrange(62) for _ in range(8)}
            for value in values:
                if abs(value) > top:
                    continue
                for away in (False, True):
                    ctx.set(dut.value, value)
                    ctx.set(dut.shift, shift)
                    ctx.set(dut.away, away)
                    wanted = shift_round(value, shift, away)
                    got = ctx.get(dut.even), ctx.get(dut.either), ctx.get(dut.sat8)
                    case = f"value {value} shift {shift} away {away}"
                    assert got == (shift_round(value, shift), wanted, _clamp(wanted, 8)), case

    sim.add_testbench(main)
    sim.run()


def test_rounding_rules_of_the_model() -> None:
    """The reference itself with known values: 2.5, 3.5 and their negatives, one above and below."""
    assert [shift_round(v, 1) for v in (5, 7, -5, -7)] == [2, 4, -2, -4]
    assert [shift_round(v, 1, True) for v in (5, 7, -5, -7)] == [3, 4, -3, -4]
    assert [shift_round(v, 2) for v in (9, 10, 11, -9, -10, -11)] == [2, 2, 3, -2, -2, -3]
    assert shift_round(-7, 0) == -7


def test_rectify() -> None:
    """Saturation, ReLU and ReLUX with a limit of either sign in one clamp."""

    class Unit(wiring.Component):
        value: In(signed_shape(64))
        limit: In(signed_shape(32))
        relu: In(1)
        relux: In(1)
        out: Out(signed_shape(32))

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.out.eq(clamp(self.value, *rectifier_limits(self.relu, self.relux, self.limit)))
            return m

    dut = Unit()
    sim = Simulator(dut)

    async def main(ctx: Any) -> None:
        limits = [-(1 << 31), -6, -1, 0, 1, 5, 6, 7, (1 << 31) - 1]
        for value in [*limits, -(1 << 31) - 1, 1 << 31, -(1 << 61), 1 << 61]:
            for limit in limits:
                for relu, relux in ((0, 0), (1, 0), (1, 1)):
                    for port, to in ((dut.value, value), (dut.limit, limit), (dut.relu, relu)):
                        ctx.set(port, to)
                    ctx.set(dut.relux, relux)
                    wanted = max(_clamp(value, 32), 0) if relu else _clamp(value, 32)
                    wanted = min(wanted, limit) if relux else wanted
                    assert ctx.get(dut.out) == wanted, (value, limit, relu, relux)

    sim.add_testbench(main)
    sim.run()


def _operands(rng: random.Random, use: int, floats: bool) -> tuple[Operands, list[dict[str, list[int]]]]:
    """Draw operands of one group of 64 channels, 0 if `use` lacks their kind, and their octets."""
    kinds: dict[str, dict[int, int]] = {}
    for bit, (name, bits) in enumerate((("alu", 32), ("cpend", 16), ("mul", 16))):
        values = [0] * 64
        if use >> bit & 1 and not floats:
            values = [operand(rng, bits) for _ in values]
        elif use >> bit & 1:
            values = [
                signed({"alu": float_word, "mul": half_word, "cpend": half_word}[name](rng), bits)
                for _ in values
            ]
        kinds[name] = dict(enumerate(values))
    octets = [
        {
            name: [values[c] % (1 << (32 if name == "alu" else 16)) for c in range(first, first + 8)]
            for name, values in kinds.items()
        }
        for first in range(0, 64, 8)
    ]
    return Operands(**kinds), octets


@dataclass
class Job:
    """A task with the inputs of the pipeline and the expected outputs."""

    task: Task
    octets: int
    out_bits: int
    queues: dict[str, list[Any]]
    expected: list[list[int]]


def _job(rng: random.Random, task: Task, pixels: int = 5, groups: int = 1) -> Job:
    """Draw random octets of channel groups, and compute the model's result."""
    job = _group(rng, task, pixels)
    for _ in range(groups - 1):
        other = _group(rng, task, pixels)
        job.expected += other.expected
        for name, queue in other.queues.items():
            job.queues[name] += queue
    return job


def _group(rng: random.Random, task: Task, pixels: int) -> Job:
    """Draw random octets of one group, and compute the model's result."""
    f = Fields(task.dpu)
    kind = f("DATA_FORMAT", "IN_PRECISION")
    floats = kind in FLOATS
    octets = group_channels(f("FEATURE_MODE_CFG", "CONV_MODE"), kind) // 8
    out_bits = BITS[f("DATA_FORMAT", "OUT_PRECISION")]
    bs, bs_octets = _operands(rng, Fields(task.rdma)("BRDMA_CFG", "BRDMA_DATA_USE"), floats)
    bn, bn_octets = _operands(rng, Fields(task.rdma)("NRDMA_CFG", "NRDMA_DATA_USE"), floats)
    data = RdmaData(bs=bs, bn=bn)
    source, expected, ew = [], [], []
    width = 32 if f("FEATURE_MODE_CFG", "FLYING_MODE") else 48
    begin = rng.randrange(16)
    for pixel in range(pixels):
        for octet in range(octets):
            if floats:
                main, sums = [float_word(rng) for _ in range(8)], [0] * 8
                second = [rng.choice([float_word(rng), rng.choice(main)]) for _ in range(8)]
            else:
                main, sums, second = ([operand(rng, bits) for _ in range(8)] for bits in (width, 32, 32))
            if floats and rng.random() < 0.2:  # pairs of special values
                main = [rng.choice(FLOAT_SPECIALS) for _ in range(8)]
                second = [rng.choice([*FLOAT_SPECIALS, *HALF_SPECIALS]) for _ in range(8)]
            live = rng.choice([8, 8, rng.randrange(9)])
            last = octet == octets - 1 and pixel == pixels - 1
            slot = (begin + pixel) % 16
            tag = {"octet": octet, "slot": slot, "live": live, "group_last": last}
            low, high = [v % 2**32 for v in main], [v >> 32 & 0xFFFF for v in main]
            words = [[v % 2**32 for v in values] for values in (sums, second)]
            clip = {"shift": task.clip[0], "half_up": task.clip[1]}
            source.append({"main": low, "high": high, "sum": words[0], "tag": tag, "clip": clip})
            ew.append({"data": words[1]})
            values = [
                element_value(f, a, s, 8 * octet + lane, data, e, task.tables, task.clip, slot)
                if lane < live
                else f("OFFSET_PEND", "OFFSET_PEND")
                for lane, (a, s, e) in enumerate(zip(main, sums, second, strict=True))
            ]
            expected.append([v % (1 << out_bits) for v in values])
    queues = {"source": source, "bs": bs_octets[:octets], "bn": bn_octets[:octets], "ew": ew}
    return Job(task, octets, out_bits, queues, expected)


def _feed(bench: Bench, port: Any, queue: deque[Any]) -> None:
    """Offer the head of `queue` until it is accepted; a task's end empties the queue."""

    async def run(ctx: Any) -> None:
        shown = None
        while True:
            if queue and (shown is queue[0] or bench.flows()):
                if shown is not queue[0]:
                    shown = queue[0]
                    ctx.set(port.payload, shown)
                ctx.set(port.valid, 1)
            else:
                ctx.set(port.valid, 0)
            _, _, valid, ready = await ctx.tick().sample(port.valid, port.ready)
            if valid and ready and queue and shown is queue[0]:
                queue.popleft()
                shown = None

    bench.add(run)


def _run_pipe(seed: int, jobs: list[Job], stalls: tuple[float, ...]) -> list[int]:
    """Run the jobs one after the other, each against the model; return the cycles of each."""
    dut = shared(DpuPipe)
    bench = Bench(dut, seed)
    got: list[list[int]] = []
    cycles: list[int] = []
    queues: dict[str, deque[Any]] = {name: deque() for name in jobs[0].queues}
    bench.sink(dut.result, lambda p: got.append(list(p.data)))
    for name, queue in queues.items():
        _feed(bench, getattr(dut, name), queue)
    running: list[Job] = []

    async def watch(ctx: Any) -> None:
        """An octet that waits for an operand stalls, and no octet is taken then; tables also make it wait."""
        ports = (dut.stall, dut.source.valid, dut.source.ready, dut.result.valid, dut.result.ready)
        async for _, _, *seen in ctx.tick().sample(*ports):
            stall, valid, ready, shown, taken = map(bool, seen)
            if running and running[0].task.tables is NO_TABLES:
                assert not (stall and valid and ready), "an octet is taken while one stalls"
                waits = valid and not ready and (taken or not shown)
                floats = Fields(running[0].task.dpu)("DATA_FORMAT", "PROC_PRECISION") in FLOATS
                assert stall or not waits or floats, "an octet waits for nothing"

    bench.add(watch)

    async def one(ctx: Any, index: int, job: Job) -> None:
        bench.stall = bench.random.choice(stalls)
        got.clear()
        configure(ctx, dut.cfg, "DPU", job.task.dpu)
        if job.task.tables is not NO_TABLES and (not index or job.task.tables != jobs[index - 1].task.tables):
            await load_tables(ctx, dut.lut, job.task.tables)
        ctx.set(dut.octets, job.octets)
        for name in ("bs", "bn", "ew"):  # they may be offered before the task starts
            queues[name].extend(job.queues[name])
        for _ in range(bench.random.randrange(6) if bench.stall else 0):
            await ctx.tick()
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.active, 1)
        queues["source"].extend(job.queues["source"])
        running.append(job)
        begin = bench.cycle
        for _ in range(LIMIT):
            await ctx.tick()
            if len(got) == len(job.expected):
                break
        case = f"task {index} at stall {bench.stall}: {job.task.dpu}"
        assert len(got) == len(job.expected), f"{len(got)} of {len(job.expected)} octets, {case}"
        cycles.append(bench.cycle - begin)
        running.clear()
        ctx.set(dut.active, 0)
        for queue in queues.values():
            queue.clear()
        await ctx.tick().repeat(3)
        for place, (have, want) in enumerate(zip(got, job.expected, strict=True)):
            assert [v % (1 << job.out_bits) for v in have] == want, (
                f"octet {place}: {[hex(v) for v in have]}, expected {[hex(v) for v in want]}; main "
                f"{job.queues['source'][place]}, operand {job.queues['ew'][place]}, {case}"
            )

    async def main(ctx: Any) -> None:
        for index, job in enumerate(jobs):
            await one(ctx, index, job)

    bench.run(main)
    return cycles


STALLS = (0.0, 0.3, 0.6)


def _task(rng: random.Random, kinds: tuple[int, ...], lut: bool) -> Task:
    """Draw a task, also with settings that raise a diagnostic and have an effect."""
    task = _plain_task(rng, kinds, lut)
    ew, scale = task.dpu["EW_CFG"], task.dpu["OUT_CVT_SCALE"]
    ew.update(EW_BINARY_EN=rng.randrange(2), EDATA_SIZE=rng.choice([ew["EDATA_SIZE"], 2]))
    scale["FP32TOFP16_EN"] = rng.randrange(2)
    return task


def _plain_task(rng: random.Random, kinds: tuple[int, ...], lut: bool) -> Task:
    return random_task(rng, flying=rng.random() < 0.3, cube=(32, 1, 1), main_type=rng.choice(kinds), lut=lut)


def test_random_integers() -> None:
    """Eight lanes of extreme values through random settings, stalled on every stream."""
    rng = random.Random(1000)
    _run_pipe(1, [_job(rng, _task(rng, INTEGERS, lut=False)) for _ in range(extent(6, 16))], STALLS)


def test_random_floats() -> None:
    """The same in binary32, including subnormals, infinities and NaNs."""
    rng = random.Random(2000)
    _run_pipe(2, [_job(rng, _task(rng, FLOATS, lut=False)) for _ in range(extent(6, 16))], STALLS)


def test_every_float_operation() -> None:
    """Each EW algorithm and the multiplication, with operands of both sources."""
    rng = random.Random(2500)
    jobs = []
    for algo in range(10):
        for source in (0, 1):
            task = _task(rng, FLOATS, lut=False)
            task.dpu["EW_CFG"].update(
                EW_BYPASS=0, EW_OP_BYPASS=0, EW_OP_TYPE=int(algo == 9), EW_OP_SRC=source
            )
            task.dpu["EW_CFG"].update(EW_ALU_ALGO=algo, EW_RELU_BYPASS=1, EW_RELUX_EN=0, EW_OP_CVT_BYPASS=1)
            task.dpu["BS_CFG"], task.dpu["BN_CFG"] = {"BS_BYPASS": 1}, {"BN_BYPASS": 1}
            task.dpu["DATA_FORMAT"]["OUT_PRECISION"] = FP32
            jobs.append(_job(rng, task, pixels=3))
    _run_pipe(3, jobs, STALLS)


def test_random_tables() -> None:
    """The LUT before the EW operation, in both domains."""
    rng = random.Random(3000)
    jobs = []
    for index in range(extent(4, 8)):
        task = _task(rng, FLOATS if index % 2 else INTEGERS, lut=True)
        if index % 4 < 2:  # what BS and BN make of the values is rarely near the tables
            task.dpu["BS_CFG"], task.dpu["BN_CFG"] = {"BS_BYPASS": 1}, {"BN_BYPASS": 1}
        if index % 4:  # loading them takes the simulator longer than using them
            task.tables = jobs[-1].task.tables
        jobs.append(_job(rng, task))
    _run_pipe(4, jobs, STALLS)


def test_operands_of_several_groups() -> None:
    """Integers with and without operands in turn; those of two groups are in the tables, others wait."""
    rng = random.Random(4500)
    jobs: list[Job] = []
    for index in range(8):
        task = random_task(rng, flying=False, cube=(32, 1, 1), main_type=1, lut=False)
        task.dpu["FEATURE_MODE_CFG"]["CONV_MODE"] = 0
        for stage in ("BS", "BN"):
            fields = {"ALU_ALGO": 2, "ALU_SRC": 1, "MUL_BYPASS": 1, "RELU_BYPASS": 1, "BYPASS": index % 2}
            task.dpu[f"{stage}_CFG"] = {f"{stage}_{name}": value for name, value in fields.items()}
        task.rdma["BRDMA_CFG"] = {"BRDMA_DATA_USE": 1}
        task.rdma["NRDMA_CFG"] = {"NRDMA_DATA_USE": 1}
        task.dpu["EW_CFG"] |= {"EW_BYPASS": 0, "EW_OP_BYPASS": 0, "EW_OP_SRC": int(index % 3 == 0)}
        jobs.append(_job(rng, task, pixels=3, groups=3))
    _run_pipe(6, jobs, (0.0, 0.3))


def test_rates() -> None:
    """One octet per cycle; with the LUT one in four cycles."""
    rng = random.Random(4000)
    for lut, cycles_per_octet in ((False, 1), (True, 4)):
        task = random_task(rng, flying=False, cube=(32, 1, 1), main_type=0, lut=lut)
        task.dpu["EW_CFG"]["EW_OP_SRC"] = 0
        if lut:  # what BS and BN make of the values is rarely near the tables
            task.dpu["BS_CFG"], task.dpu["BN_CFG"] = {"BS_BYPASS": 1}, {"BN_BYPASS": 1}
        job = _job(rng, task, pixels=8)
        (cycles,) = _run_pipe(5, [job], (0.0,))
        octets = len(job.expected)
        print(f"{octets} octets in {cycles} cycles")
        assert octets * cycles_per_octet <= cycles <= octets * cycles_per_octet + 16
