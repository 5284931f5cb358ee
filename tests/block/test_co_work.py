"""Synchronised cores: the unit between them in RTL and in C++, and rows of cores with it."""

from __future__ import annotations

import ctypes as ct
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from rkcosim.rtl.co_work import CoreSteps, StepUnit
from rkcosim.spec.co_work import (
    ALONE,
    EXCHANGE_CYCLES,
    GROUP_SIZES,
    JOIN_CYCLES,
    PATIENCE_CYCLES,
    SIZE_BITS,
    STEP_BITS,
    answer_fields,
    report_fields,
)
from tests import seeds

HARNESS = Path(__file__).resolve().parents[2] / "cosim" / "engines" / "harness"
JOIN, PATIENCE = 6 * EXCHANGE_CYCLES, 9 * EXCHANGE_CYCLES


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ct.CDLL:
    """co_work.h as a library."""
    target = tmp_path_factory.mktemp("co_work") / "co_work.so"
    options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-I{HARNESS}"]
    source = Path(__file__).with_name("co_work_shared.cpp")
    subprocess.run(["g++", *options, str(source), "-o", str(target)], check=True)
    functions = ct.CDLL(str(target))
    functions.steps_new.restype = ct.c_void_p
    return functions


def report(step: int, size: int, kick: int) -> int:
    return step | size << STEP_BITS | kick << (STEP_BITS + SIZE_BITS)


def test_constants_of_both() -> None:
    text = (HARNESS / "co_work.h").read_text()
    for line in (
        f"STEP_BITS = {STEP_BITS},",
        f"EXCHANGE = {EXCHANGE_CYCLES};",
        f"JOIN = 1u << {JOIN_CYCLES.bit_length() - 1},",
        f"PATIENCE = 1u << {PATIENCE_CYCLES.bit_length() - 1};",
    ):
        assert line in text
    assert set(GROUP_SIZES.values()) == {2, 3}


class Kick:
    """A kick of a core that follows the rules, at random times."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.size, self.step, self.kick, self.left = rng, 0, 0, 0, 0

    def next(self, answer: int) -> int:
        """The core's report in the next exchange, after it has heard `answer`."""
        rng = self.rng
        floor, kick, present, _ = answer_fields(answer)
        if not self.size:
            if rng.random() < 0.2:
                self.size, self.step, self.left = rng.choice([2, 2, 3]), 1, rng.randrange(1, 9)
                self.kick ^= 1
        elif self.left == 0 or rng.random() < 0.01:
            self.size = self.step = 0
        elif rng.random() < 0.5 and (
            self.step <= 1 or (kick == self.kick and present and floor >= self.step)
        ):
            self.step, self.left = self.step + 1, self.left - 1
        return report(self.step, self.size, self.kick)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_the_same_in_both(library: ct.CDLL, cores: int) -> None:
    """Random kicks: RTL and C++ give the same answers, groups have their size, and every wait ends."""
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng = random.Random(seed)
    unit = ct.c_void_p(library.steps_new(cores, JOIN, PATIENCE))
    dut = StepUnit(cores, JOIN, PATIENCE)
    seen: set[str] = set()

    async def bench(ctx: Any) -> None:
        kicks = [Kick(rng) for _ in range(cores)]
        answers = (ct.c_uint32 * cores)()
        waited = [0] * cores
        for _ in range(700):
            reports = (ct.c_uint32 * cores)(*(kick.next(a) for kick, a in zip(kicks, answers, strict=True)))
            for n in range(cores):
                ctx.set(dut.reports[n].as_value(), reports[n])
            library.steps_exchange(unit, reports, answers)
            for _ in range(EXCHANGE_CYCLES):
                await ctx.tick()
            assert [ctx.get(dut.answers[n].as_value()) for n in range(cores)] == list(answers)
            held = [
                r for r, a in zip(reports, answers, strict=True) if report_fields(r)[0] > answer_fields(a)[0]
            ]
            assert library.steps_wait(unit) or not any(report_fields(report)[0] > 1 for report in held)
            for n, answer in enumerate(answers):
                floor, _, present, missing = answer_fields(answer)
                step, size, _ = report_fields(reports[n])
                held = size and step > 1 and floor < step
                waited[n] = waited[n] + 1 if held else 0
                assert present and waited[n] <= (JOIN + 2 * PATIENCE) // EXCHANGE_CYCLES + 4
                seen.update(("held",) * bool(held) + ("alone",) * (size and floor == ALONE))
                seen.update(("missing",) * bool(missing))

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    library.steps_delete(unit)
    assert seen >= ({"alone"} if cores == 1 else {"held", "alone"})


class Row(wiring.Component):
    """The co-working parts of several cores with the unit."""

    def __init__(self, cores: int, join: int, patience: int) -> None:
        super().__init__({})
        self.unit, self.cores = StepUnit(cores, join, patience), [CoreSteps() for _ in range(cores)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        for n, core in enumerate(self.cores):
            m.submodules[f"core{n}"] = core
            m.d.comb += [self.unit.reports[n].eq(core.report), core.answer.eq(self.unit.answers[n])]
        return m


Task = tuple[int, int]
"""(NN_MODE, cycles of the task); NN_MODE 0 is a task of one core."""


def run_row(chains: list[list[Task]], starts: list[int], join: int = JOIN, patience: int = 1 << 16):
    """Run a chain of tasks on each core; per core the (first, last) cycles of its tasks, and diagnostics."""
    row = Row(len(chains), join, patience)
    spans: list[list[tuple[int, int]]] = [[] for _ in chains]
    told: list[list[int]] = [[] for _ in chains]
    cycle = 0

    async def clock(ctx: Any) -> None:
        nonlocal cycle
        while any(len(s) < len(c) for s, c in zip(spans, chains, strict=True)) and cycle < 60_000:
            await ctx.tick()
            cycle += 1

    def core(n: int):
        async def bench(ctx: Any) -> None:
            part = row.cores[n]

            async def pulse(signal: Any) -> None:
                ctx.set(signal, 1)
                await step()
                ctx.set(signal, 0)

            async def step() -> None:
                *_, lost, value = await ctx.tick().sample(part.diag.valid, part.diag.payload.value)
                if lost:
                    told[n].append(value)

            for _ in range(starts[n]):
                await step()
            await pulse(part.begins)
            for mode, length in chains[n]:
                ctx.set(part.mode, mode)
                ctx.set(part.ready, 1)
                for _ in range(60_000):
                    if ctx.get(part.may_go):
                        break
                    await step()
                else:
                    return
                first = cycle
                await pulse(part.starts)
                ctx.set(part.ready, 0)
                for _ in range(length):
                    await step()
                await pulse(part.finishes)
                spans[n].append((first, cycle))
            await pulse(part.ends)
            for _ in range(2 * EXCHANGE_CYCLES):
                await step()

        return bench

    simulator = Simulator(row)
    simulator.add_clock(1e-9)
    simulator.add_testbench(clock)
    for n in range(len(chains)):
        simulator.add_testbench(core(n))
    simulator.run()
    return spans, told


@pytest.mark.parametrize("mode", [1, 2, 4, 5])
def test_tasks_start_when_all_have_ended(mode: int) -> None:
    rng = random.Random(mode)
    size = GROUP_SIZES[mode]
    chains = [[(mode, rng.randrange(5, 300)) for _ in range(8)] for _ in range(size)]
    spans, told = run_row(chains, [0, 70, 150][:size])
    for task in range(7):
        ended = max(span[task][1] for span in spans)
        for span in spans:
            assert ended <= span[task + 1][0] <= ended + 3 * EXCHANGE_CYCLES
    assert not any(told)


def test_tasks_of_one_core_in_between() -> None:
    """After co-working tasks each core has a task without a convolution, then only core 0 has one: it waits
    for all, and the others' next co-working task waits for it.
    """
    chains: list[list[Task]] = [
        [(2, 100), (2, 400), (0, 10), (0, 900), (2, 50)],
        [(2, 200), (2, 30), (0, 10), (2, 50)],
        [(2, 20), (2, 600), (0, 10), (2, 50)],
    ]
    spans, _ = run_row(chains, [0, 10, 20])
    ended = max(span[1][1] for span in spans)
    assert all(span[2][0] >= ended for span in spans)
    assert all(span[-1][0] >= spans[0][3][1] for span in spans)


def test_one_core_alone() -> None:
    """No core joins: the second task waits at most the time for joining; tasks of one core never wait."""
    spans, told = run_row([[(1, 10), (1, 10), (1, 10)], [(0, 10), (0, 10)]], [0, 3])
    alone, single = spans
    assert alone[1][0] - alone[0][0] <= JOIN + 3 * EXCHANGE_CYCLES
    assert alone[2][0] - alone[1][1] <= 1 and single[1][0] - single[0][1] <= 1
    assert not any(told)
    (long,), _ = run_row([[(1, 2 * JOIN), (1, 10)]], [0])
    assert long[1][0] - long[0][1] <= 1


def test_partner_with_fewer_tasks() -> None:
    spans, told = run_row([[(1, 40)] * 4, [(1, 60)] * 2], [0, 9])
    assert spans[0][1][0] >= spans[1][0][1] and len(spans[0]) == 4
    assert spans[0][3][0] - spans[0][2][1] <= 1 and not any(told)


def test_partner_that_hangs() -> None:
    """After the patience the others continue, and report the missing core."""
    spans, told = run_row(
        [[(2, 40)] * 3, [(2, 40), (2, 50_000)], [(2, 40)] * 3], [0, 5, 9], patience=PATIENCE
    )
    for n in (0, 2):
        assert told[n] == [0b010 | 3 << 8]  # at their third co-working task, without core 1
        assert PATIENCE <= spans[n][2][0] - spans[n][1][1] <= PATIENCE + 4 * EXCHANGE_CYCLES
    assert abs(spans[0][2][0] - spans[2][2][0]) < 2 * EXCHANGE_CYCLES


def test_two_groups_are_not_mixed() -> None:
    """A third core with tasks of the same kind stays alone: the two lowest numbers are a group."""
    spans, _ = run_row([[(1, 50)] * 3, [(4, 300)] * 3, [(1, 20)] * 3], [0, 4, 8])
    assert spans[0][1][0] >= spans[1][0][1] and spans[1][2][0] >= spans[0][1][1]
    assert spans[2][2][1] < spans[0][1][0] + JOIN


class Steps:
    """What a core's part has to show, from the rules of `CoreSteps` [HW 1.9]."""

    def __init__(self) -> None:
        self.step = self.size = self.kick = self.works = self.reported = self.answer = 0

    def shows(self, mode: int, ready: int) -> dict[str, int]:
        """Return the outputs of this cycle."""
        floor, kick, present, missing = answer_fields(self.answer)
        heard, co_works, reached = kick == self.kick, mode in GROUP_SIZES, self.step % 2 == 1
        alone = not present or (heard and floor == ALONE)
        caught_up = heard and floor >= self.step and (not co_works or reached)
        lost = int(heard and bool(missing & ~self.reported))
        return {
            "may_go": int(self.step == 0 or alone or caught_up),
            "arrives": int(ready and co_works and self.step != 0 and not reached),
            "lost": lost,
            "diagnostic": lost,
            "value": missing | (self.step // 2 + reached) << 8,
            "report": report(self.step, self.size, self.kick),
        }

    def cycle(self, given: dict[str, int]) -> None:
        """Go to the next cycle."""
        shown = self.shows(given["mode"], given["ready"])
        missing = answer_fields(self.answer)[3]
        self.reported = self.reported | missing if shown["lost"] else self.reported * (not given["begins"])
        first = given["starts"] and given["mode"] in GROUP_SIZES and self.step == 0
        self.step += bool(shown["arrives"] or (given["finishes"] and self.works))
        self.works = 0 if given["finishes"] else self.works
        if given["starts"]:
            self.works = int(given["mode"] in GROUP_SIZES)
        if first:
            self.step, self.size = 1, GROUP_SIZES[given["mode"]]
        if given["begins"] or given["ends"]:
            self.step = self.size = self.works = 0
        if given["begins"]:
            self.kick ^= 1
        self.answer = given["answer"]


def test_what_a_core_shows_in_each_cycle() -> None:
    """Kicks with random tasks and random answers of the unit: every output in every cycle."""
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng, dut, expected, seen = random.Random(seed), CoreSteps(), Steps(), set()
    running, left, given = False, 0, dict.fromkeys("mode ready begins ends starts finishes answer".split(), 0)

    async def bench(ctx: Any) -> None:
        nonlocal running, left
        for cycle in range(3000):
            given.update(begins=0, ends=0, starts=0, finishes=0)
            if not left and not running:
                given.update(ends=rng.randrange(2), ready=0)
                given.update(begins=1 - given["ends"])
                left = rng.randrange(1, 8) if given["begins"] else 0
            elif running:
                given.update(finishes=int(rng.random() < 0.3), ready=0)
                running = not given["finishes"]
            elif not given["ready"]:
                given.update(ready=1, mode=rng.choice([0, 1, 2, 4, 5, 7]))
            elif expected.shows(given["mode"], 1)["may_go"]:
                given.update(starts=1)
                running, left = True, left - 1
            if rng.random() < 0.3:
                floor, kick = rng.choice([0, expected.step, expected.step + 1, ALONE]), rng.random() < 0.8
                missing = rng.choice([0, 0, 0, 1, 2, 4])
                answer = floor | (expected.kick ^ (not kick)) << STEP_BITS | missing << STEP_BITS + 2
                given.update(answer=answer | int(rng.random() < 0.95) << STEP_BITS + 1)
            for name, value in given.items():
                ctx.set(dut.answer.as_value() if name == "answer" else getattr(dut, name), value)
            outputs = {
                "may_go": dut.may_go,
                "arrives": dut.arrives,
                "lost": dut.lost,
                "diagnostic": dut.diag.valid,
                "value": dut.diag.payload.value,
                "report": dut.report.as_value(),
            }
            shown = expected.shows(given["mode"], given["ready"])
            if not shown["lost"]:
                del outputs["value"]  # it is valid together with the diagnostic
            found = {name: ctx.get(signal) for name, signal in outputs.items()}
            assert found == {name: shown[name] for name in outputs}, f"cycle {cycle}"
            seen.update(name for name, value in found.items() if value)
            expected.cycle(given)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == {"may_go", "arrives", "lost", "diagnostic", "value", "report"}
