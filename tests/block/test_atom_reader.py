"""AtomReader: runs of every length and start, and what it says about itself in each cycle."""

from __future__ import annotations

import random

import pytest

from rkcosim.rtl.npu.atom_reader import AtomReader
from tests.block.dpu_bench import Bench
from tests.simulation import shared

BEATS = 32
LIMIT = 20_000
SIZE = 32 * 1024


def reader() -> AtomReader:
    return AtomReader(BEATS)


class Account:
    """What the reader holds, from its streams alone: atoms that are to be requested, and beats."""

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self.runs = iter(runs)
        self.asks = 0
        self.atoms: list[bool] = []  # of the beats that are requested or buffered: whether an atom ends one
        self.level = 0
        self.busy = False
        self.seen = 0

    def after(self, accepted: bool, beats: int, delivered: bool) -> None:
        """Count the transfers of one cycle: a run, a request of so many beats, an atom."""
        if accepted:
            self.start, count = next(self.runs)
            self.asks, self.busy = count, count != 0
        if beats:
            odd = self.start % 2
            count = min(self.asks, 32 - odd)
            assert beats == (count + odd + 1) // 2, "a request of another length"
            places = range(self.start, self.start + count)
            self.atoms += [place % 2 == 1 or place == places[-1] for place in places]
            self.level += beats
            self.start, self.asks = self.start + count, self.asks - count
            self.busy = self.asks != 0
        if delivered:
            self.level -= self.atoms.pop(0)


def drive(seed: int, runs: list[tuple[int, int]], stall: float) -> None:
    """Read runs of (first atom, atoms); compare the atoms, and `idle` and `beats` in every cycle."""
    memory = bytearray(random.Random(seed).randbytes(SIZE))
    dut = shared(reader)
    bench = Bench(dut, seed, stall)
    got: list[int] = []
    bench.source(dut.run, [{"addr": 16 * start, "atoms": count} for start, count in runs])
    bench.sink(dut.atoms, lambda payload: got.append(payload.data))
    bench.read_memory(dut.read, memory, (1, 40))
    wanted = [
        int.from_bytes(memory[16 * place : 16 * place + 16], "little")
        for start, count in runs
        for place in range(start, start + count)
    ]
    account = Account(runs)
    levels, idles = set(), set()

    async def main(ctx: object) -> None:
        members = (
            *(dut.run.valid, dut.run.ready, dut.read.req.valid, dut.read.req.ready),
            *(dut.read.req.payload.beats_m1, dut.atoms.valid, dut.atoms.ready, dut.idle, dut.beats),
        )
        for _ in range(LIMIT):
            (
                _,
                _,
                offered,
                ready,
                asks,
                taken,
                beats_m1,
                shown,
                accepted,
                idle,
                level,
            ) = await ctx.tick().sample(*members)
            assert level == account.level, "beats that are requested or buffered"
            assert ready == (not account.busy), "a run is accepted when the previous one is requested"
            assert idle == (not account.busy and not offered and not account.atoms and not account.level)
            levels.add(level)
            idles.add(idle)
            account.after(offered and ready, beats_m1 + 1 if asks and taken else 0, shown and accepted)
            if len(got) == len(wanted) and idle:
                return
        raise AssertionError(f"{len(got)} of {len(wanted)} atoms in {LIMIT} cycles")

    bench.run(main)
    assert got == wanted
    assert idles == {0, 1} and max(levels) > BEATS // 2


@pytest.mark.parametrize("seed", range(4))
def test_random_runs(seed: int) -> None:
    rng = random.Random(seed)
    runs = [(rng.randrange(1800), rng.choice([0, 1, 2, 3, 15, 16, 31, 32, 33, 64, 200])) for _ in range(30)]
    drive(seed, [*runs, (5, 100)], [0.0, 0.2, 0.5, 0.8][seed])


def test_every_length_at_both_halves() -> None:
    drive(9, [(40 * count + odd, count) for count in range(1, 36) for odd in (0, 1)], 0.2)
