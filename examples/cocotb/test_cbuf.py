"""A single block: CBUF, filled from both sides and read entry by entry, with conflicts.

pytest examples/cocotb/test_cbuf.py
"""

from __future__ import annotations

import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from rkcosim.cocotb import missing, simulate
from rkcosim.cocotb.pins import Clocking, high

ATOM = 16
ENTRY = 4 * ATOM
BANK_ENTRIES = 32  # of the geometry "small"


class Cbuf:
    """The block's two fill ports and its read ports."""

    def __init__(self, dut):
        self.dut = dut
        reads = ("reads_feature0_en", "reads_feature1_en", "reads_weights_en")
        for name in ("rst", "feature_fill_valid", "weight_fill_valid", *reads):
            getattr(dut, name).value = 0
        self.clocking = Clocking(dut.clk)

    async def fill(self, side, entry, column, data):
        """Write two atoms into one entry."""
        port = {"data": int.from_bytes(data, "little"), "entry": entry, "column": column}
        port |= {"two": 1, "entry2": entry, "column2": column + 1}
        for name, value in port.items():
            getattr(self.dut, f"{side}_fill_payload_{name}").value = value
        getattr(self.dut, f"{side}_fill_valid").value = 1
        await RisingEdge(self.dut.clk)  # after this edge the values are on the pins
        await RisingEdge(self.dut.clk)
        while not high(getattr(self.dut, f"{side}_fill_ready")):
            await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{side}_fill_valid").value = 0

    async def fill_entry(self, side, entry, data):
        """Write the 64 bytes of an entry."""
        for column in (0, 2):
            await self.fill(side, entry, column, data[ATOM * column : ATOM * (column + 2)])

    async def features(self, first, second):
        """Read two entries at once."""
        dut = self.dut
        dut.reads_feature0_en.value = dut.reads_feature1_en.value = 1
        dut.reads_feature0_entry.value, dut.reads_feature1_entry.value = first, second
        await RisingEdge(dut.clk)
        dut.reads_feature0_en.value = dut.reads_feature1_en.value = 0
        await RisingEdge(dut.clk)  # the read
        await RisingEdge(dut.clk)  # its data
        ports = (dut.reads_feature0_data, dut.reads_feature1_data)
        return tuple(int(port.value).to_bytes(ENTRY, "little") for port in ports)

    async def weights(self, entry, column):
        """Read 64 bytes from an atom on, continuing in the next entry."""
        dut = self.dut
        dut.reads_weights_en.value, dut.reads_weights_column.value = 1, column
        dut.reads_weights_entry0.value, dut.reads_weights_entry1.value = entry, entry + 1
        await RisingEdge(dut.clk)
        dut.reads_weights_en.value = 0
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        return int(dut.reads_weights_data.value).to_bytes(ENTRY, "little")


@cocotb.test()
async def entries_come_back(dut):
    cbuf = Cbuf(dut)
    await ClockCycles(dut.clk, 2)
    contents = {entry: random.randbytes(ENTRY) for entry in random.sample(range(BANK_ENTRIES), 8)}
    for entry, data in contents.items():
        await cbuf.fill_entry("feature", entry, data)
    for first in contents:
        for second in contents:  # includes pairs of the same half: even with even, odd with odd
            assert await cbuf.features(first, second) == (contents[first], contents[second])


@cocotb.test()
async def weights_run_on_into_the_next_entry(dut):
    cbuf = Cbuf(dut)
    await ClockCycles(dut.clk, 2)
    entry = 3 * BANK_ENTRIES + 5
    data = random.randbytes(2 * ENTRY)
    await cbuf.fill_entry("weight", entry, data[:ENTRY])
    await cbuf.fill_entry("weight", entry + 1, data[ENTRY:])
    for column in range(4):
        assert await cbuf.weights(entry, column) == data[ATOM * column : ATOM * column + ENTRY]


@cocotb.test()
async def both_sides_take_turns(dut):
    cbuf = Cbuf(dut)
    await ClockCycles(dut.clk, 2)
    rounds, taken = 8, {"feature": 0, "weight": 0}

    async def keep_filling(side, entry):
        for n in range(rounds):
            await cbuf.fill(side, entry, 2 * (n % 2), bytes([n]) * 2 * ATOM)
            taken[side] += 1

    begun = cbuf.clocking.cycle
    both = [cocotb.start_soon(keep_filling("feature", 0)), cocotb.start_soon(keep_filling("weight", 64))]
    for task in both:
        await task
        assert abs(taken["feature"] - taken["weight"]) <= 1  # both sides progress equally
    print(f"{2 * rounds} fills in {cbuf.clocking.cycle - begun} cycles")
    assert await cbuf.weights(64, 0) == bytes([rounds - 2]) * 2 * ATOM + bytes([rounds - 1]) * 2 * ATOM


SIMULATOR = "icarus" if missing("icarus") is None else "verilator"  # a single block is fast on both


@pytest.mark.skipif(missing(SIMULATOR) is not None, reason=missing(SIMULATOR) or "")
def test_cbuf():
    simulate(__file__, simulator=SIMULATOR, block="cbuf", geometry="small")
