"""Sequence controller: operands of whole tasks, cycle counts, weight ring, banks, diagnostics."""

from __future__ import annotations

import random

import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.csc import SequenceController
from rkcosim.spec.config import RK3588, SMALL
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.conv_bench import Conv, random_conv
from tests.block.csc_bench import LOADED_FIRST, run_task
from tests.simulation import shared, simulation

SEED = seeds.seed(__name__)


def run(tasks, rng=None, *, config=SMALL, **how):
    """Run tasks one after the other on one controller; return the observations of each."""
    rng = rng or random.Random(1)
    dut = shared(SequenceController, config)
    results = []

    async def bench(ctx):
        for conv in tasks:
            results.append(await run_task(ctx, dut, conv, rng, config=config, **how))

    simulation(dut).run(bench)
    return results


CASES = {
    "1x1": Conv(height=4, width=5, channels=32),
    "1x1_one_kernel": Conv(height=3, width=3, channels=16, kernels=1),
    "3x3_pad": Conv(
        height=5, width=6, channels=32, kernels=34, kh=3, kw=3, pad_top=1, pad_left=1, pad_value=5
    ),
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
    "argb_1": Conv(
        height=4, width=6, channels=16, argb=1, pitch=16, kernels=8, kh=3, kw=3, pad_top=1, pad_left=1,
        pad_value=0x11,
    ),
    "argb_2": Conv(height=4, width=6, channels=16, argb=2, pitch=7, kernels=8, kw=2),
    "argb_3": Conv(height=4, width=6, channels=16, argb=3, kernels=32, kh=3, kw=3, stride_y=2, stride_x=2),
    "argb_4": Conv(height=3, width=6, channels=16, argb=4, pitch=9, kernels=34),
    "int4_full": Conv(precision=6, height=4, width=8, channels=64, kernels=64),
    "int4_atoms_of_a_slab": Conv(precision=6, height=3, width=5, channels=130, kernels=65, pad_value=0xA5),
    "int4_rest_of_two": Conv(
        precision=6, height=4, width=5, channels=190, kernels=3, kw=2, pad_left=1, pad_value=9
    ),
    "int4_odd_channels": Conv(
        precision=6, height=3, width=3, channels=45, kernels=7, kh=3, kw=3, pad_top=1, pad_left=1,
        pad_value=0xE,
    ),
    "int16_full": Conv(precision=1, height=4, width=8, channels=64, kernels=32),
    "int16_three_atoms": Conv(
        precision=1, height=3, width=6, channels=20, kernels=5, kh=2, kw=2, pad_top=1, pad_value=0x1234ABCD
    ),
    "fp16_one_atom": Conv(precision=2, height=3, width=7, channels=40, kernels=17),
    "fp16_two_atoms": Conv(precision=2, height=3, width=7, channels=9, kernels=16, kw=3, pad_left=2),
    "bf16": Conv(precision=3, height=5, width=5, channels=57, kernels=33, kw=3, pad_top=1, pad_left=1),
    "tf32_full": Conv(precision=7, height=4, width=8, channels=32, kernels=16),
    "tf32_three_atoms": Conv(
        precision=7, height=3, width=5, channels=27, kernels=20, kh=2, pad_top=1, pad_value=0xDEADBEEF
    ),
    "depthwise_16_bit_one_half": Conv(
        precision=2, height=5, width=5, channels=24, depthwise=True, kh=3, kw=3, pad_top=1, pad_left=1,
        pad_value=0x3C01,
    ),
    "depthwise_16_bit_rest": Conv(
        precision=1, height=4, width=6, channels=64 + 41, depthwise=True, kh=2, kw=3, pad_left=1,
        pad_value=0x8001,
    ),
    "depthwise_16_bit_rest_of_two": Conv(precision=3, height=4, width=5, channels=48, depthwise=True, kw=2),
    "depthwise_atom_of_two_blocks": Conv(
        precision=2, height=4, width=7, channels=40, depthwise=True, kh=3, kw=2, pad_top=1
    ),
    "depthwise_two_atoms": Conv(height=4, width=6, channels=64 + 30, depthwise=True, kh=2, kw=3),
    "depthwise_three_atoms": Conv(height=4, width=6, channels=64 + 45, depthwise=True, kh=3, kw=1, pad_top=1),
    "depthwise_16_bit_one_atom": Conv(precision=1, height=4, width=5, channels=7, depthwise=True, kh=2, kw=3),
    "depthwise_16_bit_full": Conv(precision=2, height=4, width=8, channels=128, depthwise=True, kh=2, kw=2),
    "argb_3_fp16": Conv(
        precision=2, height=4, width=6, channels=8, argb=3, pitch=8, kernels=16, kh=3, kw=3, pad_top=1,
        pad_left=1, pad_value=0x3C00,
    ),
    "argb_1_int16": Conv(precision=1, height=4, width=6, channels=8, argb=1, pitch=7, kernels=3, kw=2),
    "argb_2_bf16": Conv(precision=3, height=4, width=6, channels=8, argb=2, kernels=18),
    "argb_4_depthwise": Conv(
        height=4, width=6, channels=80, argb=4, depthwise=True, kh=2, kw=2, pad_left=1, pad_value=3
    ),
    "transposed_2": Conv(
        height=3, width=4, channels=32, kernels=8, kh=3, kw=3, spread_y=2, spread_x=2, pad_top=2, pad_left=2,
        pad_value=7,
    ),
    "transposed_8_and_1": Conv(
        precision=2, height=2, width=3, channels=16, kernels=4, kh=2, kw=2, spread_y=8, spread_x=1, pad_top=1
    ),
    "transposed_stride_3": Conv(
        precision=1, height=3, width=3, channels=8, kernels=4, kh=4, kw=4, spread_y=4, spread_x=2, pad_top=3,
        pad_left=3, stride_y=3, stride_x=1, dil_y=2, pad_value=0x77,
    ),
    "transposed_depthwise": Conv(
        height=3, width=3, channels=40, depthwise=True, kh=2, kw=2, spread_y=2, spread_x=4, pad_top=1,
        pad_left=1, pad_value=0x2211,
    ),
    "stride_7_dilation_32": Conv(
        height=8, width=60, channels=16, kernels=2, kh=2, kw=2, stride_y=7, stride_x=7, dil_y=5, dil_x=32,
        pad_top=15, pad_left=15, pad_value=0x1F,
    ),
    "kernel_31_high": Conv(
        height=9, width=2, channels=16, kernels=2, kh=31, kw=1, pad_top=15, out_h=9, weight_banks=2
    ),
    "stride_0_of_one_pixel": Conv(
        height=1, width=1, channels=16, kernels=32, stride_y=0, stride_x=0, out_h=4, out_w=18, pad_value=5
    ),
    "stride_0_of_rows": Conv(
        height=3, width=6, channels=16, kernels=4, kh=2, kw=2, stride_y=0, stride_x=2, out_h=3, pad_top=1
    ),
    "more_rows_than_its_bank": Conv(
        height=10, width=4, channels=64, kernels=64, kh=3, weight_banks=11, data_entries=SMALL.bank_entries
    ),
    "1x1_stripes": Conv(height=8, width=8, channels=32, kernels=32),
    "one_pixel": Conv(height=1, width=1, channels=130, kernels=70),
    "wide_row": Conv(height=1, width=40, channels=16, kernels=2),
}  # fmt: skip


ROWS = {
    "one_column": Conv(height=24, width=1, channels=16, kernels=2),
    "3x3": Conv(height=9, width=3, channels=16, kernels=2, kh=3, kw=3, pad_top=1, pad_left=1),
    "stride_2": Conv(height=12, width=4, channels=32, kernels=3, kh=2, stride_y=2, stride_x=2),
    "dilation_3": Conv(height=10, width=4, channels=16, kernels=2, kh=2, dil_y=3),
    "transposed": Conv(height=5, width=3, channels=16, kernels=2, kh=3, spread_y=2, spread_x=2, pad_top=2),
    "between": Conv(
        height=8, width=3, channels=16, kernels=2, kh=2, spread_y=2, spread_x=2, stride_y=2, pad_top=1
    ),
    "depthwise": Conv(height=9, width=4, channels=40, depthwise=True, kh=3, pad_top=1),
    "argb": Conv(height=9, width=4, channels=16, argb=3, kernels=2, kh=3, kw=2, pitch=5),
    "grains": Conv(height=9, width=4, channels=16, kernels=2, grains=4),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_come_one_by_one(name):
    """Rows that come later than their slots could be issued: each slot waits for its row, and no longer."""
    conv = ROWS[name]
    (seen,) = run([conv], random.Random(SEED), row_wait=(60, 120))
    assert seen["done"] and not seen["diagnostics"]
    assert seen["row_waits"] > 40 and seen["at_edge"] >= 2


LOADED = {
    "rows": (Conv(height=4, width=2, channels=16, kernels=2, grains=2), {"row_wait": (10, 20)}),
    "weights": (Conv(height=1, width=4, channels=32, kernels=17), {"slow": 0.9}),
    "more_weights_than_the_ring": (
        Conv(height=1, width=2, channels=32, kernels=96, weight_banks=1),
        {"slow": 0.6},
    ),
    "one_group_larger_than_the_ring": (
        Conv(height=1, width=2, channels=64, kernels=32, kh=2, pad_top=1, weight_banks=1),
        {},
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_rows_and_weights_first(name):
    """With the option, the first slot waits for all rows and for all weights that fit their ring."""
    conv, how = LOADED[name]
    (seen,) = run([conv], random.Random(SEED), options=[LOADED_FIRST], **how)
    assert seen["done"] and not seen["diagnostics"]
    ring = conv.weight_banks * SMALL.bank_entries * 64
    assert (len(conv.weight_stream()) > ring) == name.endswith("ring")
    assert seen["stall_feature" if "row_wait" in how else "stall_weight"] > 20 or not how


@pytest.mark.parametrize(
    ("wants", "slow", "drain"),
    [
        (("stall_feature", "stall_weight"), 0.9, (1, 60)),
        (("stall_acc",), 0.2, (60, 300)),
    ],
)
def test_random_with_stalls(wants, slow, drain):
    """Random tasks in a row on one controller, with slow loaders or a slow drain."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    tasks = [random_conv(rng, SMALL) for _ in range(10)]
    tasks.append(CASES["1x1_stripes"])
    seen = run(tasks, rng, slow=slow, drain=drain)
    for conv, result in zip(tasks, seen, strict=True):
        assert result["done"], conv
        assert result["slot_valid"] == 16 * conv.tiles * conv.stripes * conv.groups
        assert result["slot_real"] == conv.tiles * conv.groups * conv.pixels
    for name in wants:
        assert sum(result[name] for result in seen), name


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    """Directed shapes without waits: correct operands, and no cycle without a slot after the first."""
    conv = CASES[name]
    (seen,) = run([conv])
    assert seen["done"] and not seen["diagnostics"]
    slots = 16 * conv.tiles * conv.stripes * conv.groups
    assert seen["slot_valid"] == slots
    assert seen["slot_real"] == conv.tiles * conv.groups * conv.pixels
    assert seen["last"] - seen["first"] + 1 == slots, "tiles must follow each other without a gap"


@pytest.mark.parametrize("precision", [1, 2, 6, 7])
def test_random_of_a_type(precision):
    """Random tasks of one type."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    tasks = [random_conv(rng, SMALL, precision=precision) for _ in range(5)]
    for conv, result in zip(tasks, run(tasks, rng, slow=rng.choice((0.0, 0.5))), strict=True):
        assert result["done"], conv
        assert result["slot_valid"] == 16 * conv.tiles * conv.stripes * conv.groups


def test_ring_of_blocks():
    """Depthwise of 16-bit types with one stripe: blocks of the first half are released as they are read."""
    shape = {"precision": 1, "height": 4, "width": 4, "depthwise": True, "kh": 5, "kw": 5, "pad_top": 2}
    conv = Conv(channels=160, pad_left=2, weight_banks=1, **shape)
    ring = conv.weight_banks * SMALL.bank_entries * 64
    assert conv.stripes == 1 and conv.group_bytes() > ring
    (seen,) = run([conv], random.Random(SEED), slow=0.5)
    assert seen["done"]


def test_ring_of_several_groups():
    """More weights than the ring holds: a group is loaded while the previous one is in use."""
    conv = Conv(height=3, width=3, channels=70, kernels=128, kh=3, kw=1, pad_top=1, weight_banks=6)
    ring = conv.weight_banks * SMALL.bank_entries * 64
    assert len(conv.weight_stream()) > 2 * ring > 2 * conv.group_bytes() > ring
    (seen,) = run([conv], random.Random(SEED), slow=0.5)
    assert seen["done"]


def test_group_larger_than_its_banks(monkeypatch):
    """One stripe: the ring is released as it is read. Two stripes: the task hangs [HW 4.8]."""
    shape = {"height": 2, "channels": 64, "kernels": 32, "kh": 2, "kw": 2, "weight_banks": 3}
    one, two = Conv(width=8, **shape), Conv(width=18, **shape)
    assert one.stripes == 1 and two.stripes == 2
    assert one.group_bytes() > 3 * SMALL.bank_entries * 64
    (seen,) = run([one])
    assert seen["done"]
    monkeypatch.setattr("tests.block.csc_bench.LIMIT", 3000)
    (seen,) = run([two])
    assert not seen["done"] and seen["stall_weight"] > 1000


def test_full_geometry():
    """Entry addresses of the real buffer size."""
    conv = Conv(height=9, width=9, channels=300, kernels=2, weight_banks=1, spare_entries=600)
    assert conv.footprint() > 5000
    (seen,) = run([conv], config=RK3588)
    assert seen["done"]


EMPTY = DiagnosticCode.EMPTY_SIZE
RESERVED = DiagnosticCode.RESERVED_MODE


@pytest.mark.parametrize(
    ("register", "fields", "code", "ends"),
    [
        ("DATA_SIZE3", {"DATAOUT_ATOMICS": 0}, EMPTY, False),
        ("DATA_SIZE2", {"DATAOUT_WIDTH": 0}, EMPTY, False),
        ("WEIGHT_SIZE2", {"WEIGHT_WIDTH": 0}, EMPTY, False),
        ("WEIGHT_SIZE2", {"WEIGHT_KERNELS": 0}, EMPTY, False),
        ("CONV_CON2", {"CSC_DO_EN": 1}, RESERVED, True),
        ("DATA_SIZE3", {"SURF_MODE": 2}, RESERVED, True),
    ],
)
def test_diagnostics(monkeypatch, register, fields, code, ends):
    """Settings that silicon would not accept: one report with the register's value; without work no end."""
    conv = Conv(height=2, width=2, channels=16, kernels=2)
    values = conv.registers()
    values[register] = values[register] | fields
    monkeypatch.setattr(Conv, "registers", lambda self: values)
    monkeypatch.setattr("tests.block.csc_bench.LIMIT", 300)
    (seen,) = run([conv])
    where = registers()["CNA"][register]
    assert seen["diagnostics"] == [(code, where.offset, where.encode(**values[register]))]
    assert seen["done"] == ends
