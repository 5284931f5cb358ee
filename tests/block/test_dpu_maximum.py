"""The row of maxima against numpy: groups of 16 channels, stripes of 16 pixels, padding lanes, stalls."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rkcosim.rtl.npu.dpu_maximum import MaximumRow
from rkcosim.spec.types import FP16, LANES, STRIPE
from tests import seeds
from tests.block.cna_bench import configure
from tests.simulation import shared, simulation

Row = np.ndarray


def settings(pixels: int, **mode: int) -> dict[str, dict[str, int]]:
    """Registers of a reducing task, as far as they decide about the form [HW 7.16]."""
    code = FP16.dpu_code
    return {
        "FEATURE_MODE_CFG": {"FLYING_MODE": 1, "OUTPUT_MODE": 2, "NONALIGN": 1, "SURF_LEN": -(-pixels // 8)}
        | mode,
        "DATA_FORMAT": {"IN_PRECISION": code, "PROC_PRECISION": code, "OUT_PRECISION": code},
        "DATA_CUBE_HEIGHT": {"MINMAX_CTL": 7},
        "DATA_CUBE_WIDTH": {"WIDTH": pixels - 1},
    }


def octets(data: Row, rng: random.Random) -> list[dict]:
    """The octets of fp16 bits [pixels, channels] in the order of the DPU."""
    pixels, channels = data.shape
    out = []
    for group in range(0, channels, 16):
        here = range(group, min(group + 16, channels), LANES)
        for pixel in range(pixels):
            for at in here:
                last = at == here[-1]
                ends = last and pixel == pixels - 1
                tag = {
                    "octet": (at - group) // LANES,
                    "slot": pixel % STRIPE,
                    "live": LANES,
                    "stripe_last": int(last and (pixel % STRIPE == STRIPE - 1 or ends)),
                    "group_last": int(ends),
                    "task_last": int(ends and group + 16 >= channels),
                }
                noise = [rng.getrandbits(16) << 16 for _ in range(LANES)]
                lanes = [int(v) | n for v, n in zip(data[pixel, at : at + LANES], noise, strict=True)]
                out.append({"data": lanes, "tag": tag})
    return out


def run(tasks: list[tuple[dict, list[dict], int]], rng: random.Random, stall: float) -> list[list]:
    """Run (settings, octets, number of results) one after the other; return the results."""
    dut, results = shared(MaximumRow), []

    async def main(ctx):
        for values, given, count in tasks:
            configure(ctx, dut.cfg, values)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            waiting, found, offers = list(given), [], False
            for _ in range(40 * len(given) + 400):
                if not waiting and len(found) == count:
                    break
                offers = bool(waiting) and (offers or rng.random() >= stall)  # an offer stays
                takes = rng.random() >= stall
                ctx.set(dut.source.valid, offers)
                if offers:
                    ctx.set(dut.source.payload, waiting[0])
                ctx.set(dut.result.ready, takes)
                parts = dut.result.valid, dut.result.payload, dut.source.ready
                *_, valid, payload, ready = await ctx.tick().sample(*parts)
                if valid and takes:
                    found.append(([int(v) for v in payload.data], int(payload.tag.slot), payload.tag))
                if offers and ready:
                    waiting.pop(0)
                    offers = False
            ctx.set(dut.source.valid, 0)
            results.append(found)

    simulation(dut).run(main)
    return results


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_rows_of_maxima(stall: float) -> None:
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng = random.Random(seed)
    jobs = []
    for pixels, channels in ((1, 8), (41, 24), (128, 16), (9, 40), (16, 8), (1, 48), (17, 32)):
        values = np.random.default_rng(seed).normal(-2, 9, (pixels, channels)).astype(np.float16)
        values[-1] = -np.abs(values[-1]) - np.float16(1)
        jobs.append(values)
    tasks = [(settings(len(d)), octets(d.view(np.uint16), rng), -(-len(d) // 8)) for d in jobs]
    for data, found in zip(jobs, run(tasks, rng, stall), strict=True):
        row = np.array([lanes for lanes, *_ in found], np.uint16).reshape(-1)
        np.testing.assert_array_equal(row[: len(data)].view(np.float16), data.max(1))
        assert not row[len(data) :].any()
        assert [slot for _, slot, _ in found] == list(range(len(found)))
        assert [int(tag.task_last) for *_, tag in found] == [0] * (len(found) - 1) + [1]


def test_other_tasks_pass() -> None:
    data = np.arange(40 * 8, dtype=np.uint16).reshape(40, 8)
    given = octets(data, random.Random(seeds.seed("maximum")))
    (found,) = run([(settings(40, NONALIGN=0), given, 40)], random.Random(1), 0.3)
    assert [lanes for lanes, *_ in found] == [one["data"] for one in given]
