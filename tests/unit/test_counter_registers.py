"""The description of the performance counters: names, places, the page, and sums by name."""

from __future__ import annotations

from pathlib import Path

from rkcosim.engines.block_counters import named
from rkcosim.spec.regs import counter_registers, registers
from rkcosim.spec.regs.counters import BASE_ADDRESS, WINDOW_BYTES, counts, state_blocks, states
from rkcosim.spec.regs.events import COUNTERS, EVENTS, PORT, REASONS, STALLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "counters.md"


def test_window_is_beside_the_cores_and_not_in_them():
    """[HW 1.2]: three windows of 64 KiB from 0xFDAB0000 on."""
    assert BASE_ADDRESS >= 0xFDAB0000 + 3 * 0x10000
    assert not [block for block in registers() if "CYCLES" in block]


def test_no_two_registers_meet():
    taken: set[int] = set()
    for block in counter_registers():
        for register in block:
            words = {register.offset + byte for byte in range(register.width // 8)}
            assert not words & taken, register.path
            assert register.desc and all(field.desc for field in register.fields.values()), register.path
            taken |= words
    assert max(taken) < WINDOW_BYTES


def test_counters_by_name():
    values = {register.path: place for place, register in enumerate(counts())}
    found = named(values)
    assert found.cycles == values["CONTROL.CYCLES"]
    assert sum(len(block) for block in found.states.values()) == len(states())
    assert list(found.states) == [block.name for block in state_blocks()]
    assert found.bytes["dpu_write"] == values["BYTES.DPU_WRITE"]
    assert found.tasks["longest"] == values["TASKS.LONGEST"]
    assert found.waits("CORE") == values["CORE.ARRAY"] + values["CORE.DPU"]
    whole = named(
        {path: 0 for path in values}
        | {"CONTROL.CYCLES": 7}
        | dict.fromkeys((f"{block.name}.IDLE" for block in state_blocks()), 7)
    )
    assert whole.unaccounted() == {}
    less = named({path: 0 for path in values} | {"CONTROL.CYCLES": 7, "CSC.BUSY": 9})
    assert less.unaccounted()["CSC"] == -2 and less.unaccounted()["DPU"] == 7


def test_events_have_one_name_each():
    assert len(PORT) <= 16 and len(set(EVENTS)) == len(EVENTS) and len(set(COUNTERS)) == len(COUNTERS)
    assert all(event.meaning for event in (*PORT, *REASONS))
    assert set(STALLS) < set(EVENTS)
