"""AtomWriter against a memory image: both start halves, all lengths, one and two atoms per cycle."""

from __future__ import annotations

import random

import pytest

from rkcosim.rtl.npu.atom_writer import AtomWriter
from tests.block.dpu_bench import Bench
from tests.simulation import shared

LIMIT = 20000


def _run(
    seed: int, runs: list[tuple[int, int]], pairs: float, stall: float, masked: bool = False
) -> tuple[int, Bench]:
    """Write `runs` of (atom address, atoms); `pairs`: share of two-atom transfers, `masked` omits bytes."""
    rng = random.Random(seed)
    size = 16 * 1024
    expected = bytearray(rng.randbytes(size))
    memory = bytearray(expected)
    atoms, masks, wanted = [], [], 0
    for start, count in runs:
        content = rng.randbytes(16 * count)
        mask = rng.choice([0, 0xFF00, 0x00FF, 0xFFF0, rng.randrange(0xFFFF)]) if masked else 0
        masks.append(mask)
        for index, byte in enumerate(content):
            if not mask >> index % 16 & 1:
                expected[16 * start + index] = byte
                wanted += 1
        while content:
            two = len(content) >= 32 and rng.random() < pairs
            piece, content = content[: 16 + 16 * two], content[16 + 16 * two :]
            junk = b"" if two else rng.randbytes(16)
            atoms.append({"data": int.from_bytes(piece + junk, "little"), "two": int(two)})
    dut = shared(AtomWriter)
    bench = Bench(dut, seed, stall)
    bench.source(
        dut.run,
        [
            {"addr": 16 * start, "atoms": count, "masked": mask}
            for (start, count), mask in zip(runs, masks, strict=True)
        ],
    )
    bench.source(dut.atoms, atoms)
    model = bench.write_memory(dut.write, memory)
    finished = []

    handshakes = [(s.valid, s.ready) for s in (dut.run, dut.write.req, dut.write.data)]
    lengths = [(count + start % 2 + 1) // 2 for start, count in runs]

    async def main(ctx: object) -> None:
        accepted = beats = requests = open_requests = 0
        members = (dut.idle, dut.write.done, *(signal for pair in handshakes for signal in pair))
        for _ in range(LIMIT):
            _, _, idle, done, *pairs = await ctx.tick().sample(*members)
            quiet = not beats and not requests and not open_requests
            assert idle == quiet, "idle while nothing is open, and only then"
            run, request, beat = (
                valid and ready for valid, ready in zip(pairs[::2], pairs[1::2], strict=True)
            )
            if run:
                beats += lengths[accepted]
                requests += 1 + (lengths[accepted] > 16)
                accepted += 1
            beats, requests = beats - beat, requests - request
            open_requests += request - done
            if model.written == wanted and not finished:
                finished.append(bench.cycle)
            if idle and finished:
                assert model.quiet, "idle before the last write response"
                return
        raise AssertionError(f"not idle after {LIMIT} cycles, {model.written} of {wanted} bytes")

    bench.run(main)
    assert memory == expected
    return finished[0], bench


@pytest.mark.parametrize("seed", range(4))
def test_random_runs(seed: int) -> None:
    rng = random.Random(seed)
    starts = list(range(0, 1024 - 32, 33))
    rng.shuffle(starts)
    runs = [(start + rng.randint(0, 1), rng.choice([1, 2, 3, 16, 31, 32])) for start in starts]
    _run(seed, runs, pairs=[0.0, 0.5, 0.9, 1.0][seed], stall=[0.0, 0.3, 0.5, 0.3][seed])


@pytest.mark.parametrize("seed", range(3))
def test_masked_bytes(seed: int) -> None:
    """Runs that do not write some bytes of their atoms, mixed with complete ones."""
    rng = random.Random(seed)
    runs = [(33 * k + rng.randint(0, 1), rng.choice([1, 1, 2, 3, 16, 32])) for k in range(30)]
    _run(seed, runs, pairs=[0.0, 0.6, 1.0][seed], stall=[0.0, 0.3, 0.5][seed], masked=True)


def test_every_length_at_both_halves() -> None:
    runs, place = [], 0
    for count in range(1, 33):
        for odd in (0, 1):
            runs.append((place + odd, count))
            place += 34
    # the image holds 1024 atoms: two halves of the list
    _run(7, [(start % 1020, count) for start, count in runs[:30]], pairs=1.0, stall=0.2)
    _run(8, [(start - 34 * 34, count) for start, count in runs[34:]], pairs=0.7, stall=0.2)


def test_rate_of_aligned_runs() -> None:
    """16-atom runs in pairs are written at one beat per cycle, single atoms at one atom per cycle."""
    cycles, _ = _run(1, [(16 * i, 16) for i in range(30)], pairs=1.0, stall=0.0)
    assert cycles <= 240 + 12
    cycles, _ = _run(1, [(8 * i + 1, 1) for i in range(60)], pairs=1.0, stall=0.0)
    assert cycles <= 60 + 12
