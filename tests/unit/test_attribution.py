"""Causes of cycles: every cycle has one, the busiest resource decides, and words are the same everywhere."""

from __future__ import annotations

from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.attribution import (
    CAUSES,
    MEMORY,
    Attribution,
    Cause,
    Ran,
    attribute,
    ends_of,
    together,
)
from rkcosim.spec.octets import OctetRate, octet_rate
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.events import ARRAY_STATES, COUNTERS, ENDS, OUTPUT_STATES

LUT = OctetRate(4, "lut")


def known(found: Attribution) -> dict[str, int]:
    return {str(cause): count for cause, count in found.cycles.items() if count}


def test_every_cause_has_its_words() -> None:
    assert len({cause.label for cause in CAUSES}) == len({cause.meaning for cause in CAUSES}) == len(CAUSES)
    assert all(cause.counted for cause in CAUSES) and set(MEMORY) < set(CAUSES)
    assert len(ENDS) == len(ARRAY_STATES) * len(OUTPUT_STATES) - 1 and set(ENDS) < set(COUNTERS)
    assert ends_of({"cycles_array_work": 3, "mac_slots": 3}) == {("array", "work"): 3.0}


def test_the_end_that_is_occupied_longer_has_the_cycles_of_both() -> None:
    """A convolution whose DPU takes 100 cycles a stripe, of which the array works 60 and waits 40."""
    slow = attribute({("array", "work"): 600, ("none", "work"): 400}, 1010, {}, octet=LUT)
    assert known(slow) == {"lut": 1000, "task": 10} and slow.bound == "DPU (LUT, 2 elements a cycle)"
    fast = attribute({("array", "work"): 600, ("array", "none"): 400, ("none", "work"): 50}, 1060, {})
    assert known(fast) == {"array": 1000, "dpu": 50, "task": 10} and fast.bound == "array"


def test_memory_that_is_occupied_longest_has_the_cycles_of_work() -> None:
    """An array that works 550 of 1000 cycles and otherwise waits, while 940 cycles of beats arrive."""
    dram = DramConfig()
    moved = {Cause.FEATURES: 940 * dram.bandwidth(1)}
    found = attribute({("array", "none"): 550, ("feature", "none"): 450}, 1000, moved, dram=dram)
    assert known(found) == {"array": 60, "features": 940} and found.bound == "features"
    less = attribute({("array", "none"): 550, ("feature", "none"): 450}, 1000, {}, dram=dram)
    assert known(less) == {"array": 550, "features": 450}


def test_an_octet_is_as_long_as_its_stage_takes() -> None:
    """Beats of the writer are refused while the tables work: that is no wait of the writer."""
    ends = {("none", "work"): 370, ("none", "write"): 40}
    assert known(attribute(ends, 410, {}, octet=LUT, octets=100)) == {"lut": 400, "writer": 10}
    assert known(attribute(ends, 410, {}, octets=100)) == {"dpu": 370, "writer": 40}
    assert known(attribute(ends, 410, {}, pooling=True)) == {"ppu": 370, "writer": 40}


def test_cores_of_a_layer_have_all_its_cycles() -> None:
    """The second core starts 5 cycles later and ends 395 earlier; 20 cycles pass before the first task."""
    tasks = [
        Ran(attribute({("array", "none"): 1000}, 1000, {}), 0, 20),
        Ran(attribute({("array", "none"): 600}, 600, {}), 1, 25),
    ]
    found = together(tasks, 1020)
    assert known(found) == {"array": 1600, "task": 20 + 25, "cores": 395} and found.total == 2 * 1020
    assert known(together(tasks[:1])) == {"array": 1000}


def test_a_task_that_has_not_ended_has_no_bound() -> None:
    found = attribute({("none", "operand"): 500}, 500, {}, ended=False)
    assert found.bound == "not ended" and found.share(Cause.OPERANDS) == 1.0
    assert Attribution().bound == "" and Attribution().sentence() == ""
    assert attribute({("array", "none"): 3}, 4, {}).sentence() == "array 75%, start and end 25%"


def test_rates_of_the_dpu() -> None:
    """[HW 7.15]: two look-ups a cycle; in binary32 one operation a cycle."""
    dpu = registers()["DPU"]

    def rate(precision: int, **fields: dict[str, int]) -> OctetRate:
        off = {name: {f"{name[:2]}_BYPASS": 1} for name in ("EW_CFG", "BS_CFG", "BN_CFG")}
        words = {name: dpu[name].encode(**off[name] | fields.get(name, {})) for name in off}
        return octet_rate(words | {"DATA_FORMAT": dpu["DATA_FORMAT"].encode(PROC_PRECISION=precision)})

    assert rate(0) == OctetRate(1, "") and rate(0, EW_CFG={"EW_BYPASS": 0}) == LUT
    both = {"BS_BYPASS": 0, "BS_RELU_BYPASS": 1}
    assert rate(2, BS_CFG=both) == OctetRate(2, "floats") and rate(0, BS_CFG=both) == OctetRate(1, "")
    assert rate(2, BS_CFG=both | {"BS_MUL_BYPASS": 1}) == OctetRate(1, "")
