"""Tables of the golden DPU: access registers, persistence, the sigmoid of a real program [HW 7.9]."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import GoldenError, GoldenHang, GoldenNpu
from rkcosim.regcmd import register_word
from rkcosim.spec.regs import registers
from tests.makers.golden_bench import MAIN, OUT, device, flying, get, pattern, put

R = registers()


def upload(table: int, entries: list[int], start: int = 0) -> list[int]:
    config, data = R["DPU"]["LUT_ACCESS_CFG"], R["DPU"]["LUT_ACCESS_DATA"]
    words = [register_word(config, config.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table, LUT_ADDR=start))]
    return words + [register_word(data, entry % 65536) for entry in entries]


def read_back(npu: GoldenNpu, table: int, count: int, start: int = 0) -> list[int]:
    config, data = R["DPU"]["LUT_ACCESS_CFG"], R["DPU"]["LUT_ACCESS_DATA"]
    npu.write32(0, config.offset, config.encode(LUT_TABLE_ID=table, LUT_ADDR=start))
    return [npu.read32(0, data.offset) for _ in range(count)]


def test_tables_are_loaded_by_a_list_and_survive_a_reset() -> None:
    npu = GoldenNpu(1)
    dev = npu.devices[0]
    rng = np.random.default_rng(8)
    tables = [rng.integers(-32768, 32768, 513).tolist() for _ in range(2)]
    with pytest.raises(GoldenHang):  # a list without an op-enable word
        dev.run_task([*upload(0, tables[0]), *upload(1, tables[1])])
    npu.reset(1)
    for table in (0, 1):
        assert read_back(npu, table, 513) == [v % 65536 for v in tables[table]]
    config = R["DPU"]["LUT_ACCESS_CFG"]
    assert config.decode(npu.read32(0, config.offset))["LUT_ADDR"] == 513
    assert read_back(npu, 1, 2, 513) == [0, 0]


def test_address_counts_and_bad_accesses_are_told() -> None:
    npu = GoldenNpu(1, strict=False)
    config, data = R["DPU"]["LUT_ACCESS_CFG"], R["DPU"]["LUT_ACCESS_DATA"]
    npu.write32(0, config.offset, config.encode(LUT_ACCESS_TYPE=1, LUT_ADDR=512))
    npu.write32(0, data.offset, 0x1234)
    assert npu.diagnostics() == []
    npu.write32(0, data.offset, 0x5678)  # 513
    assert npu.read32(0, data.offset) == 0  # no read while the type is write
    assert config.decode(npu.read32(0, config.offset))["LUT_ADDR"] == 514
    npu.write32(0, config.offset, config.encode(LUT_ADDR=1023))
    npu.write32(0, data.offset, 9)
    found = [(f.code, f.block, f.register, f.value) for f in npu.diagnostics()]
    assert found == [("RESERVED_MODE", "DPU", "LUT_ACCESS_DATA", v) for v in (0x5678, 9)]
    assert npu.read32(0, data.offset) == 0
    assert npu.read32(0, data.offset) == 0  # entry 0 after the wrap
    assert config.decode(npu.read32(0, config.offset))["LUT_ADDR"] == 1
    assert read_back(npu, 0, 1, 512) == [0x1234]


def test_a_sigmoid_as_real_programs_write_it() -> None:
    """[HW 7.9], [HW 14.3.10]: index scale 2596, tables of Q0.15, result times 2^-15."""
    shape = (8, 1, 25)
    dev, p = device(), flying(shape, 2, 2)
    x = np.linspace(-8, 8, 200).astype(np.float16)
    put(dev, MAIN, 16, shape, lambda c, y, i: int(x.view(np.uint16)[i * 8 + c]), 25, 25)
    index = np.arange(513) * 32
    for table, at in ((0, index - 16384), (1, index)):
        dev.lut.entries[table] = np.clip(np.rint(32768 / (1 + np.exp(-at / 2596))), 0, 32767)
    p.set("DPU", "BN_CFG", BN_BYPASS=0, BN_RELU_BYPASS=1, BN_ALU_ALGO=2)
    p.set("DPU", "BN_ALU_CFG", BN_ALU_OPERAND=0x80000000)
    p.set("DPU", "BN_MUL_CFG", BN_MUL_OPERAND=0x6912)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_LUT_BYPASS=0, EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1)
    p.set("DPU", "LUT_CFG", LUT_HYBRID_PRIORITY=1, LUT_OFLOW_PRIORITY=1, LUT_LO_LE_MUX=2)
    p.set("DPU", "LUT_INFO", LUT_LO_INDEX_SELECT=5, LUT_LE_INDEX_SELECT=5)
    p.set("DPU", "LUT_LE_START", -16384)
    p.set("DPU", "LUT_LO_END", 16384)
    p.set("DPU", "OUT_CVT_SHIFT", CVT_TYPE=1, MINUS_EXP=15)
    p.run(dev)
    raw = [get(dev, OUT, 16, i % 8, 0, i // 8, 25, 25) for i in range(200)]
    y = np.array(raw, np.uint16).view(np.float16).astype(float)
    inside = np.abs(x.astype(float)) < 6.3
    assert np.abs(y - 1 / (1 + np.exp(-x.astype(float))))[inside].max() < 6e-4
    assert np.abs(np.diff(y)).max() < 0.03  # and flat outside


def test_settings_of_a_live_lut_are_told() -> None:
    for register, fields in (
        ("LUT_CFG", {"LUT_CAL_SEL": 1}),
        ("LUT_CFG", {"LUT_EXPAND_EN": 1}),
        ("LUT_CFG", {"LUT_ROAD_SEL": 1}),
        ("LUT_CFG", {"LUT_LO_LE_MUX": 1}),
        ("LUT_INFO", {"LUT_LE_INDEX_SELECT": 23}),
        ("LUT_INFO", {"LUT_LO_INDEX_SELECT": 255}),
    ):
        dev, p = device(), flying((1, 1, 1), 0, 0)
        p.set("DPU", "LUT_CFG", LUT_LO_LE_MUX=2)
        p.set("DPU", register, **fields)
        p.run(dev)  # not live
        p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_LUT_BYPASS=0)
        with pytest.raises(GoldenError, match=f"DPU.{register}.{next(iter(fields))} .*RESERVED_MODE"):
            p.run(device())


def test_steps_above_22_count_as_22() -> None:
    images = []
    for step in (22, 31):
        dev, p = device(strict=False), flying((4, 1, 2), 4, 4)
        dev.lut.entries[:] = np.arange(1026).reshape(2, 513) * 61 % 65536 - 32768
        rng = np.random.default_rng(9)
        put(dev, MAIN, 32, (4, 1, 2), lambda c, y, x, rng=rng: pattern(rng, 4), 2, 2)
        p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_LUT_BYPASS=0, EW_OP_BYPASS=1, EW_RELU_BYPASS=1)
        p.set("DPU", "LUT_CFG", LUT_LO_LE_MUX=2)
        p.set("DPU", "LUT_INFO", LUT_LE_INDEX_SELECT=step, LUT_LO_INDEX_SELECT=step)
        for table in ("LE", "LO"):
            p.set("DPU", f"LUT_{table}_START", -(1 << 30))
            p.set("DPU", f"LUT_{table}_END", 1 << 30)
        p.run(dev)
        images.append(dev.memory.read(OUT, 32))
    assert images[0] == images[1] != bytes(32)


@pytest.mark.parametrize("x", [-1, 0, 511, 512, 513, 600, 601, 700])
@pytest.mark.parametrize("hybrid", [0, 1])
def test_borders_of_a_hit_decide_the_choice(x: int, hybrid: int) -> None:
    """LE ends after 512 steps, LO at LO_END; if exactly one hits, it is used regardless of priority."""
    dev, p = device(), flying((4, 1, 1), 4, 4)
    dev.lut.entries[0], dev.lut.entries[1] = 1000 + np.arange(513), 5000 + np.arange(513)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_LUT_BYPASS=0, EW_OP_BYPASS=1, EW_RELU_BYPASS=1)
    p.set("DPU", "LUT_CFG", LUT_LO_LE_MUX=2, LUT_HYBRID_PRIORITY=hybrid, LUT_UFLOW_PRIORITY=1)
    p.set("DPU", "LUT_LE_END", 10000)
    p.set("DPU", "LUT_LO_START", 512)
    p.set("DPU", "LUT_LO_END", 600)
    p.set("DPU", "LUT_LO_SLOPE_SCALE", OFLOW_SCALE=3, UFLOW_SCALE=2)
    dev.memory.write(MAIN, np.array([x] * 4, "<i4"))
    p.run(dev)
    want = {
        -1: 5000 - 2 * 513,  # both under: LUT_UFLOW_PRIORITY
        0: 1000,
        511: 1511,
        512: (1512, 5000)[hybrid],  # both hit
        513: 5001,
        600: 5088,
        601: 1512,  # both over: LUT_OFLOW_PRIORITY, LE is past its steps but not past its end
        700: 1512,
    }[x]
    assert np.frombuffer(dev.memory.read(OUT, 4), "<i4")[0] == want
    if x > 600:
        p.set("DPU", "LUT_CFG", LUT_OFLOW_PRIORITY=1)
        dev.reset()
        p.run(dev)
        assert np.frombuffer(dev.memory.read(OUT, 4), "<i4")[0] == 5512 + 3 * (x - 600)
