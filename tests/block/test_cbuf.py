"""CBUF against an array of entries: fills of both sides, both read ports, all in one cycle."""

from __future__ import annotations

import random

import numpy as np
import pytest
from amaranth.sim import Simulator

from rkcosim.rtl.npu.cbuf import Cbuf, FillTurn
from rkcosim.spec.config import SMALL

ENTRIES = SMALL.cbuf_entries


def random_fill(rng: random.Random, low: int, high: int) -> dict:
    """A fill of one or two atoms within entries [low, high)."""
    entry = rng.randrange(low, high)
    column, column2 = rng.sample(range(4), 2)
    entry2 = entry
    if rng.random() < 0.5:
        entry2 = min(entry + 1, high - 1)
        column2 = rng.randrange(4) if entry2 != entry else column2
    return {
        "data": rng.getrandbits(256),
        "entry": entry,
        "column": column,
        "two": rng.randint(0, 1),
        "entry2": entry2,
        "column2": column2,
    }


def test_fills_of_both_sides_take_turns():
    """The side that was not served last goes first, whatever else happens in between."""
    rng = random.Random(4)
    dut = FillTurn()

    async def bench(ctx):
        weight = 0
        for _ in range(400):
            valid, take = rng.randrange(2), rng.randrange(2)
            ctx.set(dut.valid, valid)
            ctx.set(dut.take_weight, take)
            *_, seen = await ctx.tick().sample(dut.weight)
            assert seen == weight
            weight = 1 - take if valid else weight

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


def apply(model: np.ndarray, fill: dict) -> None:
    data = np.frombuffer(fill["data"].to_bytes(32, "little"), dtype=np.uint8)
    model[fill["entry"], fill["column"]] = data[:16]
    if fill["two"]:
        model[fill["entry2"], fill["column2"]] = data[16:]


def number(data: np.ndarray) -> int:
    return int.from_bytes(data.tobytes(), "little")


@pytest.mark.parametrize("seed", range(3))
def test_random_traffic(seed):
    """A fill can be read from the next cycle on; read data are held while reads are disabled."""
    rng = random.Random(seed)
    print("seed", seed)
    dut = Cbuf(SMALL)
    model = np.zeros((ENTRIES, 4, 16), dtype=np.uint8)
    spread = rng.choice([4, 12, ENTRIES // 2])  # few entries make write-then-read cases frequent
    split = ENTRIES // 2
    busy = rng.choice([0.3, 1.0])

    features, weights = (dut.reads.feature0, dut.reads.feature1), dut.reads.weights

    async def bench(ctx):
        waiting = {"feature_fill": None, "weight_fill": None}
        taken = {"feature_fill": 0, "weight_fill": 0}
        f_want, w_want = [None, None], None
        for _ in range(1500):
            for side, low in (("feature_fill", 0), ("weight_fill", split)):
                if waiting[side] is None and rng.random() < busy:
                    waiting[side] = random_fill(rng, low, low + spread)
                port = getattr(dut, side)
                ctx.set(port.valid, waiting[side] is not None)
                if waiting[side]:
                    ctx.set(port.payload, waiting[side])
            f_next, w_next = list(f_want), None
            for n in range(2):
                enable, entry = rng.random() < 0.7, rng.randrange(spread)
                ctx.set(features[n].en, enable)
                ctx.set(features[n].entry, entry)
                if enable:
                    f_next[n] = number(model[entry])
            if rng.random() < 0.7:
                first, column = split + rng.randrange(spread), rng.randrange(4)
                # the next entry, or the other end of a ring of even length
                second = first + 1 if rng.random() < 0.7 else split + 1 - first % 2
                ctx.set(weights.en, 1)
                ctx.set(weights.entry0, first)
                ctx.set(weights.entry1, second)
                ctx.set(weights.column, column)
                both = np.concatenate([model[first], model[second % ENTRIES]])
                w_next = number(both[column : column + 4])
            else:
                ctx.set(weights.en, 0)
            *_, f_data0, f_data1, w_data, f_ready, w_ready = await ctx.tick().sample(
                *(port.data for port in (*features, weights)), dut.feature_fill.ready, dut.weight_fill.ready
            )
            for f_data, want in zip((f_data0, f_data1), f_want, strict=True):
                assert want is None or f_data == want
            assert w_want is None or w_data == w_want
            f_want, w_want = f_next, w_next
            accepted = 0
            for side, ready in (("feature_fill", f_ready), ("weight_fill", w_ready)):
                if waiting[side] and ready:
                    apply(model, waiting[side])
                    waiting[side] = None
                    taken[side] += 1
                    accepted += 1
            assert accepted <= 1
            if busy == 1.0:
                assert accepted == 1, "a fill waits while the port is free"
        if busy == 1.0:
            assert abs(taken["feature_fill"] - taken["weight_fill"]) <= 1, "sides do not take turns"

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
