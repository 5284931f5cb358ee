"""Sequence controller: operands of whole tasks, cycle counts, weight ring, banks, diagnostics."""

from __future__ import annotations

import os
import random

import pytest
from amaranth.sim import Simulator

from rtl.config import RK3588, SMALL
from rtl.layouts import DiagnosticCode
from rtl.npu.csc import SequenceController
from rtl.regs import registers
from tests.block.conv_bench import Conv, random_conv
from tests.block.csc_bench import run_task

SEED = int(os.environ.get("TEST_SEED", random.SystemRandom().getrandbits(32)))


def run(tasks, rng=None, *, config=SMALL, **how):
    """Run tasks one after the other on one controller; returns what was seen of each."""
    rng = rng or random.Random(1)
    dut = SequenceController(config)
    results = []

    async def bench(ctx):
        for conv in tasks:
            results.append(await run_task(ctx, dut, conv, rng, config=config, **how))

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    return results


CASES = {
    "1x1": Conv(height=4, width=5, channels=32),
    "1x1_one_kernel": Conv(height=3, width=3, channels=16, kernels=1),
    "3x3_pad": Conv(height=5, width=6, channels=32, kernels=34, kh=3, kw=3, pad_top=1, pad_left=1, pad_value=0x05),
    "rest_of_one_atom": Conv(height=3, width=7, channels=80, kernels=16),
    "rest_of_two_atoms": Conv(height=3, width=7, channels=96, kernels=33),
    "rest_of_three_atoms": Conv(height=3, width=4, channels=100, kernels=16),
    "half_tile_2_taps": Conv(height=3, width=5, channels=40, kernels=6, kw=2),
    "odd_channels": Conv(height=3, width=5, channels=19, kernels=5),
    "stride_2_dilation_3": Conv(
        height=8, width=9, channels=16, kernels=8, kh=2, kw=2, stride_y=2, stride_x=2, dil_y=3, dil_x=3,
        pad_top=2, pad_left=3, pad_value=0x80808080,
    ),
    "depthwise_3x3": Conv(
        height=5, width=5, channels=100, depthwise=True, kh=3, kw=3, pad_top=1, pad_left=1, pad_value=0x7F80
    ),
    "depthwise_16": Conv(height=4, width=6, channels=16, depthwise=True, kh=2, kw=1),
    "argb_1": Conv(height=4, width=6, channels=16, argb=1, pitch=16, kernels=8, kh=3, kw=3, pad_top=1, pad_left=1,
                   pad_value=0x11),
    "argb_2": Conv(height=4, width=6, channels=16, argb=2, pitch=7, kernels=8, kw=2),
    "argb_3": Conv(height=4, width=6, channels=16, argb=3, kernels=32, kh=3, kw=3, stride_y=2, stride_x=2),
    "argb_4": Conv(height=3, width=6, channels=16, argb=4, pitch=9, kernels=34),
    "one_pixel": Conv(height=1, width=1, channels=130, kernels=70),
    "wide_row": Conv(height=1, width=40, channels=16, kernels=2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    """Directed shapes, nothing waits: right operands, and no cycle without a slot after the first."""
    conv = CASES[name]
    (seen,) = run([conv])
    assert seen["done"] and not seen["diagnostics"]
    slots = 16 * conv.tiles * conv.stripes * conv.groups
    assert seen["slot_valid"] == slots
    assert seen["slot_real"] == conv.tiles * conv.groups * conv.pixels
    assert seen["last"] - seen["first"] + 1 == slots, "tiles must follow each other without a gap"


def test_random_with_stalls():
    """Random tasks in a row on one controller; slow loaders, slow drain."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    tasks = [random_conv(rng, SMALL) for _ in range(12)]
    seen = run(tasks, rng, slow=0.6, drain=(1, 60))
    for conv, result in zip(tasks, seen, strict=True):
        assert result["done"], conv
        assert result["slot_valid"] == 16 * conv.tiles * conv.stripes * conv.groups
    assert all(sum(result[name] for result in seen) for name in ("stall_feature", "stall_weight", "stall_acc"))
