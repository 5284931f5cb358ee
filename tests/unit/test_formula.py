"""The cycle formula against rows of the vendor's own tables [HW 12.6] and tasks of the golden model."""

from __future__ import annotations

import pytest

from rkcosim.engines.library import DramConfig
from rkcosim.golden.task import GoldenDevice
from rkcosim.measure.perf.formula import conv_npu, ddr, formula_npu
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.groups import draw_case
from tests.makers.jobs import memory_of

VENDOR_ROWS = [
    # pixels, kernels, channels, taps, depthwise, NPU cycles
    (960 * 960, 16, 3, 9, False, 8_294_400),
    (480 * 480, 32, 16, 9, False, 2_073_600),
    (480 * 480, 32, 32, 1, False, 921_600),
    (240 * 240, 64, 32, 9, False, 1_036_800),
    (240 * 240, 64, 64, 1, False, 460_800),
    (120 * 120, 64, 64, 9, False, 518_400),
    (60 * 60, 64, 256, 9, False, 518_400),
    (60 * 60, 256, 512, 1, False, 460_800),
    (240 * 240, 1, 3, 1, False, 230_400),
    (20 * 20, 512, 256, 1, False, 51_200),
    (20 * 20, 256, 256, 9, True, 14_400),
    (40 * 40, 128, 128, 9, True, 28_800),
]

FP16_ROWS = [
    (256 * 256, 64, 64, 9, False, 4_718_592),
    (128 * 128, 64, 128, 9, False, 2_359_296),
    (32 * 32, 64, 64, 9, False, 73_728),
    (1, 40, 128, 1, False, 192),
    (1, 4, 64, 1, False, 32),
    (5 * 5, 64, 64, 49, True, 1_568),
    (37 * 37, 128, 128, 49, True, 134_848),
]


@pytest.mark.parametrize("row", FP16_ROWS)
def test_vendor_rows_in_fp16(row: tuple) -> None:
    pixels, kernels, channels, taps, depthwise, npu = row
    assert conv_npu(pixels, kernels, channels, taps, depthwise, 2) == npu


@pytest.mark.parametrize("row", VENDOR_ROWS)
def test_vendor_rows(row: tuple) -> None:
    pixels, kernels, channels, taps, depthwise, npu = row
    assert conv_npu(pixels, kernels, channels, taps, depthwise) == npu


def test_ddr_of_a_vendor_row() -> None:
    # 32x480x480 -> 32x480x480, 1x1: reads and writes 7 372 800 bytes each, plus weights and bias.
    moved = 480 * 480 * 32
    # The vendor's formula lets one core have all of DRAM.
    assert ddr(moved + 1024 + 128, moved, DramConfig().unshared) == pytest.approx(623_442, rel=3e-4)


def test_each_direction_is_limited_by_the_port() -> None:
    wide = DramConfig(peak_bytes_per_cycle=1000.0).unshared
    assert ddr(3200, 0, wide) == 100
    assert ddr(0, 640, wide) == 20
    assert ddr(3200, 3200, wide) == 100
    assert ddr(100, 136, DramConfig(peak_bytes_per_cycle=23.6).unshared) == 10


def test_cores_move_what_each_can_and_dram_has() -> None:
    dram = DramConfig(peak_bytes_per_cycle=20.0, core_bytes_per_cycle=8.0)
    assert [ddr(300, 340, dram, cores) for cores in (1, 2, 3)] == [80, 40, 32]


def test_formula_from_registers() -> None:
    cna = registers()["CNA"]
    values = {
        "CORE": {},
        "CNA": {
            "CONV_CON1": cna["CONV_CON1"].encode(CONV_MODE=0),
            "DATA_SIZE1": cna["DATA_SIZE1"].encode(DATAIN_CHANNEL=64),
            "DATA_SIZE3": cna["DATA_SIZE3"].encode(DATAOUT_ATOMICS=120 * 120),
            "WEIGHT_SIZE2": cna["WEIGHT_SIZE2"].encode(WEIGHT_WIDTH=3, WEIGHT_HEIGHT=3, WEIGHT_KERNELS=64),
        },
    }
    assert formula_npu(values) == 518_400
    for precision, rate in ((6, 2048), (1, 512), (2, 512), (3, 512), (7, 256)):
        values["CNA"]["CONV_CON1"] = cna["CONV_CON1"].encode(IN_PRECISION=precision)
        assert formula_npu(values) == 14400 * 9 * 64 * 64 // rate
    values["CNA"]["CONV_CON1"] = cna["CONV_CON1"].encode(CONV_MODE=3)
    assert formula_npu(values) == 14400 * 9
    assert formula_npu({"PPU": {}}) == 0


@pytest.mark.parametrize("group", ["conv int8", "depthwise int8", "pool int8", "flying integers"])
def test_formula_of_golden_tasks(group: str) -> None:
    case = draw_case(group, 1, 0)
    device = GoldenDevice(memory_of(case))
    device.run_kick(case.chain.base, case.chain.amount, case.chain.tasks, dma_base=case.kick.dma_base)
    (report,) = device.reports
    npu, moved = formula_npu(report.registers), (report.bytes_read, report.bytes_written)
    assert max(npu, ddr(*moved)) > 0
    assert (npu > 0) == (report.macs > 0) == (group in ("conv int8", "depthwise int8"))
    assert report.macs <= 1024 * npu
