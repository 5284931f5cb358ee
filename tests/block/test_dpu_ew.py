"""The element-wise stage alone: every operation and mode, and the timing of its operand."""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import LANES, ElementOctet
from rkcosim.rtl.npu.dpu_ew import EwOperand, EwStage
from rkcosim.rtl.npu.dpu_frame import AluAlgo, PipeFlow, float_domain, into, lut_live
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.dpu_bench import Bench
from tests.block.test_dpu import configure
from tests.simulation import shared
from tests.twins.dpu_model import ew_value
from tests.twins.rdma_model import Fields, Registers
from tests.twins.rdma_model import signed as signed_of

pytestmark = pytest.mark.withdraws("elements that no octet uses are withdrawn at the end of a task")

SEED = seeds.seed(__name__)
FIRST, LAST = 5, 8
"""Stage ahead of the one that uses the operand, and stage with the result."""
LIMIT = 600
"""Cycles after which a task counts as hung."""

INT8, FP16 = 0, 2


class EwPipe(wiring.Component):
    """Operand and stage, with the part of the pipe around them: an octet enters stage 5 and leaves stage 8.

    In the float domain without a table, octets pass unchanged, and `float_*` use the operand in their place.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    active: In(1)
    source: In(stream.Signature(data.StructLayout({"main": data.ArrayLayout(signed(32), LANES), "slot": 4})))
    ew: In(stream.Signature(ElementOctet))
    result: Out(stream.Signature(data.ArrayLayout(signed(32), LANES)))
    take: Out(1)
    float_take: In(1)
    float_enters: In(1)
    float_slot: In(4)
    operand_ready: Out(1)
    operand_value: Out(signed(32)).array(LANES)
    waits: Out(1)  # an octet that needs its operand is in front of the stage
    may_advance: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.operand = operand = EwOperand()
        m.submodules.ew = ew = EwStage()
        flow = PipeFlow().create(path=("stages",))
        wiring.connect(m, flow, ew.flow)
        wiring.connect(m, wiring.flipped(self.cfg), operand.cfg, ew.cfg)
        wiring.connect(m, wiring.flipped(self.ew), operand.ew)
        late_floats, floats = Signal(), Signal()
        with m.If(self.start):
            m.d.sync += [
                floats.eq(float_domain(self.cfg)),
                late_floats.eq(float_domain(self.cfg) & ~lut_live(self.cfg)),
            ]
        at_first, at_main = Signal(self.source.payload.shape()), Signal(self.source.payload.shape())
        m.d.comb += [
            flow.start.eq(self.start),
            flow.floats.eq(floats),
            flow.late_floats.eq(late_floats),
            flow.advance.eq((~flow.valid[LAST] | self.result.ready) & ew.may_advance),
            self.source.ready.eq(flow.advance),
            operand.start.eq(self.start),
            operand.active.eq(self.active),
            operand.take.eq(Mux(late_floats, self.float_take, ew.take)),
            operand.enters.eq(Mux(late_floats, self.float_enters, flow.advance & flow.valid[FIRST])),
            operand.slot.eq(Mux(late_floats, self.float_slot, at_first.slot)),
            ew.operand_ready.eq(operand.operand_ready),
            self.take.eq(ew.take),
            self.operand_ready.eq(operand.operand_ready),
            self.waits.eq(~late_floats & flow.valid[FIRST + 1]),
            self.may_advance.eq(ew.may_advance),
            self.result.valid.eq(flow.valid[LAST]),
            self.result.payload.as_value().eq(Cat(*ew.value)),
        ]
        for lane in range(LANES):
            m.d.comb += [
                ew.main[lane].eq(at_main.main[lane]),
                ew.operand[lane].eq(operand.value[lane]),
                self.operand_value[lane].eq(operand.value[lane]),
            ]
        with m.If(self.result.ready):
            m.d.sync += flow.valid[LAST].eq(0)
        with m.If(flow.advance):
            m.d.sync += [flow.valid[FIRST].eq(self.source.valid), at_first.eq(self.source.payload)]
            m.d.sync += [flow.valid[k + 1].eq(flow.valid[k]) for k in range(FIRST, LAST)]
        with into(m, flow, FIRST + 1):
            m.d.sync += at_main.eq(at_first)
        return m


@dataclass
class Job:
    """A task: its registers, its octets as (values, place in the stripe), and the elements offered."""

    dpu: Registers
    octets: list[tuple[list[int], int]]
    elements: list[list[int]]
    fields: Fields = field(init=False)

    def __post_init__(self) -> None:
        self.fields = Fields(self.dpu)

    @property
    def operation(self) -> bool:
        return not self.fields("EW_CFG", "EW_BYPASS") and not self.fields("EW_CFG", "EW_OP_BYPASS")

    @property
    def fetches(self) -> bool:
        """Whether each octet uses an element of ERDMA."""
        return self.operation and bool(self.fields("EW_CFG", "EW_OP_SRC"))

    @property
    def late_floats(self) -> bool:
        lut = not self.fields("EW_CFG", "EW_BYPASS") and not self.fields("EW_CFG", "EW_LUT_BYPASS")
        return self.fields("DATA_FORMAT", "PROC_PRECISION") == FP16 and not lut

    def operand(self, place: int) -> list[int]:
        """Words of the second operand of an octet, before the converter."""
        if self.fields("EW_CFG", "EW_OP_SRC"):
            return self.elements[place] if place < len(self.elements) else [0] * LANES
        number = self.octets[place][1] % 8
        return [self.fields(f"EW_OP_VALUE_{number}", f"EW_OPERAND_{number}")] * LANES

    def expected(self) -> list[list[int]]:
        if self.late_floats:
            return [values for values, _ in self.octets]
        return [
            [ew_value(self.fields, v, e) for v, e in zip(values, self.operand(place), strict=True)]
            for place, (values, _) in enumerate(self.octets)
        ]


EDGES = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    5,
    -5,
    0x7FFF,
    -0x8000,
    0x8000,
    (1 << 31) - 1,
    -(1 << 31),
    -(1 << 31) + 1,
    1 << 30,
]


def number(rng: random.Random, bits: int = 32) -> int:
    """Draw a signed number of any size, or a limit."""
    if rng.random() < 0.3:
        return signed_of(rng.choice(EDGES), bits)
    return signed_of(rng.getrandbits(bits), bits) >> rng.randrange(bits)


def draw(rng: random.Random, *, octets: int = 12, spare: int = 0, **ew: int) -> Job:
    """Draw a task; `ew` sets fields of EW_CFG, `spare` is the number of elements beyond the octets."""
    config = {name: rng.randrange(1 << f.width) for name, f in registers()["DPU"]["EW_CFG"].fields.items()}
    config |= {"EW_BYPASS": 0, "EW_OP_BYPASS": 0, "EW_ALU_ALGO": rng.randrange(7), "EW_LUT_BYPASS": 1} | ew
    dpu: Registers = {
        "EW_CFG": config,
        "EW_RELUX_CMP_VALUE": {"EW_RELUX_CMP_DAT": number(rng)},
        "EW_CVT_OFFSET_VALUE": {"EW_OP_CVT_OFFSET": number(rng)},
        "EW_CVT_SCALE_VALUE": {
            "EW_OP_CVT_SCALE": number(rng, 16),
            "EW_OP_CVT_SHIFT": rng.choice([0, 1, 2, 8, 15, rng.randrange(64)]),
            "EW_TRUNCATE": rng.choice([0, 1, 3, 15, rng.randrange(64)]),
        },
        "DATA_FORMAT": {"EW_TRUNCATE_NEG": rng.choice([0, 1, 2, 14, rng.randrange(64)])},
        "FEATURE_MODE_CFG": {"FLYING_MODE": rng.randrange(2)},
    }
    for n in range(8):
        dpu[f"EW_OP_VALUE_{n}"] = {f"EW_OPERAND_{n}": number(rng)}
    begin = rng.randrange(16)
    values = [([number(rng) for _ in range(LANES)], (begin + n) % 16) for n in range(octets)]
    elements = [[number(rng) for _ in range(LANES)] for _ in range(octets + spare)]
    for (main, _), element in zip(values, elements, strict=False):
        if rng.random() < 0.3:  # equal operands, and neighbours
            main[rng.randrange(LANES)] = element[rng.randrange(LANES)] = number(rng)
    return Job(dpu, values, elements)


def run(jobs: list[Job], stalls: tuple[float, float, float] | None, seed: int = SEED) -> list[int]:
    """Run the tasks one after the other and compare each octet; return the cycles of each.

    `stalls` are the probabilities with which octets, elements and results pause; None: drawn for each task.
    """
    dut = shared(EwPipe)
    bench = Bench(dut, seed)
    rng = bench.random
    pauses = [0.0, 0.0, 0.0]
    octets: deque[Any] = deque()
    elements: deque[Any] = deque()
    got: list[list[int]] = []
    taken: list[list[int]] = []
    takes: list[int] = []
    cycles: list[int] = []
    now: list[Job] = []

    def feed(port: Any, queue: deque[Any], which: int) -> None:
        async def serve(ctx: Any) -> None:
            shown = None
            while True:
                if queue and shown is not queue[0] and rng.random() >= pauses[which]:
                    shown = queue[0]
                    ctx.set(port.payload, shown)
                valid_now = bool(queue) and shown is queue[0]
                ctx.set(port.valid, valid_now)
                _, _, ready = await ctx.tick().sample(port.ready)
                if valid_now and ready and queue and shown is queue[0]:
                    queue.popleft()
                    shown = None

        bench.add(serve)

    async def collect(ctx: Any) -> None:
        waiting = None
        while True:
            ready = rng.random() >= pauses[2]
            ctx.set(dut.result.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(dut.result.valid, dut.result.payload)
            values = list(payload)
            assert waiting is None or (valid and values == waiting), (
                f"{waiting} became {values} while it waited"
            )
            waiting = values if valid and not ready else None
            if valid and ready:
                got.append(values)

    async def watch(ctx: Any) -> None:
        first, second = False, False  # whether the two stages of the operand have an element
        signals = (dut.start, dut.active, dut.ew.valid, dut.ew.ready, dut.take, dut.float_take)
        ports = (dut.operand_ready, dut.waits, dut.may_advance)
        async for _, _, *seen in ctx.tick().sample(*signals, *ports):
            start, active, valid, ready, take, float_take, has, waits, may_advance = map(bool, seen)
            assert active or not ready, "elements are read outside of a task"
            assert may_advance == (has or not waits), "the stage waits for its operand, and for nothing else"
            assert start or not now or has == (second or not now[0].fetches), "an element takes two cycles"
            takes.append(take)
            used = float_take if now and now[0].late_floats else take
            moves = used or not second
            first, second = (
                (valid and ready and now[0].fetches) if moves or not first else first,
                first if moves else second,
            )
            if start:
                first = second = False

    async def floats(ctx: Any, job: Job) -> None:
        """Use the operands as the float unit does: one per octet, when it is valid."""
        for place in range(len(job.octets)):
            ctx.set(dut.float_slot, job.octets[place][1])
            ctx.set(dut.float_enters, 1)
            await ctx.tick()
            ctx.set(dut.float_enters, 0)
            for _ in range(LIMIT):
                if ctx.get(dut.operand_ready) and rng.random() >= pauses[2]:
                    break
                await ctx.tick()
            taken.append([ctx.get(value) for value in dut.operand_value])
            ctx.set(dut.float_take, 1)
            await ctx.tick()
            ctx.set(dut.float_take, 0)

    async def main(ctx: Any) -> None:
        for index, job in enumerate(jobs):
            pauses[:] = stalls if stalls is not None else [rng.choice((0.0, 0.0, 0.4, 0.8)) for _ in range(3)]
            case = f"task {index} with pauses {pauses}: {job.dpu}"
            got.clear()
            taken.clear()
            takes.clear()
            configure(ctx, dut.cfg, "DPU", job.dpu)
            pause = pauses[1]
            now.clear()
            if job.late_floats:  # octets pass without any element
                pauses[1] = 1.0
            elements.extend({"data": [v % (1 << 32) for v in octet]} for octet in job.elements)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            now.append(job)
            for _ in range(rng.randrange(4)):  # elements may be offered before the task is active
                await ctx.tick()
            ctx.set(dut.active, 1)
            octets.extend({"main": values, "slot": slot} for values, slot in job.octets)
            begin = bench.cycle
            for _ in range(LIMIT):
                if len(got) == len(job.octets):
                    break
                await ctx.tick()
            pauses[1] = pause
            if job.late_floats and job.operation:
                await floats(ctx, job)
            cycles.append(bench.cycle - begin)
            ahead = min(len(job.elements) - len(job.octets), 2)  # in the two stages ahead
            flying = job.fields("FEATURE_MODE_CFG", "FLYING_MODE")
            left = len(job.elements) - (len(job.octets) + ahead)
            left = left if job.fetches else 0 if flying else len(job.elements)
            for _ in range(LIMIT):
                if len(elements) <= left:
                    break
                await ctx.tick()
            await ctx.tick().repeat(20)
            ctx.set(dut.active, 0)
            assert len(elements) == left, f"{len(elements)} elements were not read, {left} expected; {case}"
            assert got == job.expected(), f"{got}, expected {job.expected()}; {case}"
            if job.late_floats and job.operation:
                assert taken == [[signed_of(e) for e in job.operand(n)] for n in range(len(job.octets))], case
            assert sum(takes) == (0 if job.late_floats else len(job.octets)), case
            elements.clear()
            await ctx.tick().repeat(3)

    feed(dut.source, octets, 0)
    feed(dut.ew, elements, 1)
    bench.add(collect)
    bench.add(watch)
    bench.run(main)
    return cycles


OPERATIONS = [*((0, algo) for algo in range(16)), (1, 0)]


@pytest.mark.parametrize(("kind", "algo"), OPERATIONS)
def test_every_operation(kind: int, algo: int) -> None:
    """Each ALU function, also unknown ones, and the multiplier; operands of both sources, ReLU on and off."""
    rng = random.Random(SEED + 100 * kind + algo)
    modes = [(source, relu) for source in (0, 1) for relu in (0, 1)]
    jobs = [
        draw(
            rng,
            EW_OP_TYPE=kind,
            EW_ALU_ALGO=algo,
            EW_OP_SRC=source,
            EW_RELU_BYPASS=1 - relu,
            EW_RELUX_EN=relu and rng.randrange(2),
            EW_BINARY_EN=binary,
            EW_OP_CVT_BYPASS=rng.randrange(2),
        )
        for source, relu in modes
        for binary in ((0, 1) if (kind, algo) in ((0, AluAlgo.MAX), (0, AluAlgo.MIN)) else (0,))
    ]
    run(jobs, None)


def test_the_multiplier() -> None:
    """PReLU, shifts of both signs with ties, saturation, and operands of more than 16 bits."""
    rng = random.Random(SEED + 1)
    run(
        [
            draw(rng, EW_OP_TYPE=1, EW_MUL_PRELU=n % 2, EW_RELU_BYPASS=1, EW_RELUX_EN=0, EW_OP_CVT_BYPASS=1)
            for n in range(16)
        ],
        None,
    )


def test_the_converter() -> None:
    """Offset before or after the scale, both rules of rounding, shifts 0 to 63, saturation."""
    rng = random.Random(SEED + 2)
    jobs = []
    for n in range(24):
        job = draw(
            rng, EW_OP_TYPE=0, EW_ALU_ALGO=AluAlgo.ADD, EW_OP_SRC=1, EW_OP_CVT_BYPASS=0, EW_CVT_TYPE=n % 2,
            EW_CVT_ROUND=n // 2 % 2, EW_RELU_BYPASS=1, EW_RELUX_EN=0,
        )  # fmt: skip
        for values, _ in job.octets:
            values[:] = [v >> 16 for v in values]  # so that the sum shows the operand
        if n % 3 == 0:  # ties
            job.dpu["EW_CVT_OFFSET_VALUE"]["EW_OP_CVT_OFFSET"] = rng.choice([0, 1, -1, 2])
            job.dpu["EW_CVT_SCALE_VALUE"].update(
                EW_OP_CVT_SCALE=rng.choice([1, -1, 2]), EW_OP_CVT_SHIFT=rng.choice([1, 2])
            )
            for element in job.elements:
                element[:] = [rng.randint(-9, 9) for _ in element]
        jobs.append(job)
    run(jobs, None)


def test_stages_that_are_off() -> None:
    """Stage or operation bypassed: no operand is used, and in flying mode the elements are dropped."""
    rng = random.Random(SEED + 3)
    jobs = []
    plain = {"EW_RELU_BYPASS": 1, "EW_RELUX_EN": 0, "EW_MUL_PRELU": 0}
    operations = [(0, AluAlgo.MAX), (0, AluAlgo.MINUS), (0, AluAlgo.NEG), (1, AluAlgo.ADD)]
    for number_of, off in enumerate(({"EW_BYPASS": 1}, {"EW_OP_BYPASS": 1}) * 2):
        for source, (kind, algo) in enumerate(operations):
            job = draw(
                rng, octets=6, EW_OP_SRC=source % 2, EW_OP_TYPE=kind, EW_ALU_ALGO=algo, **(plain | off)
            )
            job.dpu["FEATURE_MODE_CFG"]["FLYING_MODE"] = number_of // 2
            jobs += [
                draw(rng, octets=2, EW_OP_SRC=1 - source % 2),
                job,
            ]  # the first one leaves operands behind
    jobs += [draw(rng, EW_OP_SRC=0) for _ in range(4)]
    run(jobs, None)


def test_floats_pass_and_use_the_operand_elsewhere() -> None:
    """In the float domain the stage leaves octets alone, unless a table made integers of them."""
    rng = random.Random(SEED + 4)
    jobs = []
    for n in range(12):
        job = draw(rng, EW_LUT_BYPASS=n % 2, EW_OP_SRC=n // 2 % 2, EW_OP_CVT_BYPASS=n // 4 % 2)
        job.dpu["DATA_FORMAT"]["PROC_PRECISION"] = FP16
        jobs.append(job)
    run(jobs, None)


def test_elements_of_a_task_are_not_left_to_the_next() -> None:
    """Elements beyond the octets of a task wait in the two stages ahead; a start drops them."""
    rng = random.Random(SEED + 5)
    jobs = [draw(rng, EW_OP_SRC=n % 4 != 3, spare=4 if n % 2 else 0) for n in range(10)]
    run(jobs, None)


@pytest.mark.parametrize("pauses", [(0.0, 0.9, 0.0), (0.9, 0.0, 0.0), (0.0, 0.0, 0.9), (0.5, 0.5, 0.5)])
def test_waits(pauses: tuple[float, float, float]) -> None:
    """Octets, elements or results that pause: octets wait for operands, and operands for octets."""
    rng = random.Random(SEED + 6)
    run([draw(rng, octets=20, EW_OP_SRC=source) for source in (1, 0, 1)], pauses)


def test_rate() -> None:
    """Without pauses an octet per cycle, with operands of both sources."""
    rng = random.Random(SEED + 7)
    for cycles in run([draw(rng, octets=40, EW_OP_SRC=source) for source in (1, 0)], (0.0, 0.0, 0.0)):
        assert cycles <= 40 + 8
