"""ListFetcher: lists of every length and half, and what it says about itself in each cycle."""

from __future__ import annotations

import random

import pytest

from rkcosim.rtl.list_fetch import FIFO_BEATS, MAX_BURST, ListFetcher
from tests.block.dpu_bench import Bench
from tests.simulation import shared

SIZE = 64 * 1024
LIMIT = 20_000
QUEUE = 2
"""Lists that wait behind the one whose words are delivered."""


class Account:
    """What the fetcher holds, from its transfers: beats to be requested, beats that come, lists that wait."""

    def __init__(self) -> None:
        self.left = self.coming = self.waiting = self.reserved = 0
        self.delivering = False

    @property
    def ready(self) -> bool:
        return not self.left and self.waiting < QUEUE

    @property
    def fetching(self) -> bool:
        return bool(self.left or self.coming)

    @property
    def asks(self) -> bool:
        return bool(self.left) and self.reserved + min(self.left, MAX_BURST) <= FIFO_BEATS

    def cycle(self, *, started: int, asked: int, came: bool, freed: bool, ended: bool) -> None:
        """Go to the next cycle: beats of a list that starts, of a request, of memory, of words; an end."""
        taken = not self.delivering and self.waiting > 0
        self.waiting += bool(started) - taken
        self.delivering = taken or (self.delivering and not ended)
        self.left = started or self.left - asked
        self.coming += asked - came
        self.reserved += asked - freed


def drive(seed: int, lists: list[tuple[int, int]], stall: float) -> None:
    """Fetch lists of (unit of 16 bytes, units); compare words and every output in every cycle."""
    rng = random.Random(seed)
    memory = bytearray(rng.randbytes(SIZE))
    dut = shared(ListFetcher)
    bench = Bench(dut, seed, stall)
    got: list[tuple[int, int]] = []
    bench.sink(dut.words, lambda payload: got.append((payload.word, payload.last)))
    bench.read_memory(dut.read, memory, (1, 30))
    wanted, frees = [], []
    for base, units in lists:
        for place in range(2 * base, 2 * (base + units)):
            last = place == 2 * (base + units) - 1
            wanted.append((int.from_bytes(memory[8 * place : 8 * place + 8], "little"), int(last)))
            frees.append(last or place % 4 == 3)
    account, queue = Account(), iter(lists)

    async def main(ctx: object) -> None:
        request, words = dut.read.req, dut.words
        members = (dut.start, dut.ready, dut.fetching, request.valid, request.ready)
        members += (request.payload.beats_m1, dut.read.rsp.valid, words.valid, words.ready)
        units = 0
        for _ in range(LIMIT):
            start = rng.random() >= stall and ctx.get(dut.ready)
            entry = next(queue, None) if start else None
            ctx.set(dut.start, entry is not None)
            if entry is not None:
                ctx.set(dut.base, entry[0])
                ctx.set(dut.amount, entry[1] - 1)
            _, _, started, *found = await ctx.tick().sample(*members)
            ready, fetching, asks, accepted, beats_m1, came, shown, taken = found
            assert (ready, fetching, asks) == (account.ready, account.fetching, account.asks)
            delivered = shown and taken
            account.cycle(
                started=(entry[1] + entry[0] % 2 + 1) // 2 if started else 0,
                asked=beats_m1 + 1 if asks and accepted else 0,
                came=came,
                freed=delivered and frees[units],
                ended=delivered and bool(wanted[units][1]),
            )
            units += delivered
            if units == len(wanted):
                ctx.set(dut.start, 0)
                break
        await ctx.tick().repeat(20)
        assert not ctx.get(words.valid) and not ctx.get(dut.fetching), "words behind the last list"

    bench.run(main)
    assert got == wanted


@pytest.mark.parametrize("seed", range(4))
def test_random_lists(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [1, 2, 3, 4, 31, 32, 33, 34, 64, 100]
    drive(seed, [(rng.randrange(3000), rng.choice(lengths)) for _ in range(25)], [0.0, 0.2, 0.5, 0.8][seed])


def test_every_length_at_both_halves() -> None:
    drive(7, [(100 * units + half, units) for units in range(1, 37) for half in (0, 1)], 0.2)
