"""One block alone: CBUF, filled from both sides and read entry by entry, with conflicts.

pytest examples/cocotb/test_cbuf.py
"""

from __future__ import annotations

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from cosim.cocotb import missing, simulate
from cosim.cocotb.pins import Clocking, high

ATOM = 16
ENTRY = 4 * ATOM
BANK_ENTRIES = 32  # of the geometry "small"


class Cbuf:
    """The block's two fill ports and its read ports."""

    def __init__(self, dut):
        self.dut = dut
        for name in ("rst", "feature_fill_valid", "weight_fill_valid", "f_en0", "f_en1", "w_en"):
            getattr(dut, name).value = 0
        self.clocking = Clocking(dut.clk)

    async def fill(self, side, entry, column, data):
        """Write two atoms into one entry; returns the cycles until they were taken."""
        port = {"data": int.from_bytes(data, "little"), "entry": entry, "column": column}
        port |= {"two": 1, "entry2": entry, "column2": column + 1}
        for name, value in port.items():
            getattr(self.dut, f"{side}_fill_payload_{name}").value = value
        getattr(self.dut, f"{side}_fill_valid").value = 1
        begun = self.clocking.cycle
        await RisingEdge(self.dut.clk)  # from here on it is on the pins
        await RisingEdge(self.dut.clk)
        while not high(getattr(self.dut, f"{side}_fill_ready")):
            await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{side}_fill_valid").value = 0
        return self.clocking.cycle - begun

    async def fill_entry(self, side, entry, data):
        """Write the 64 bytes of an entry."""
        for column in (0, 2):
            await self.fill(side, entry, column, data[ATOM * column : ATOM * (column + 2)])

    async def features(self, first, second):
        """Read two entries at once."""
        self.dut.f_en0.value = self.dut.f_en1.value = 1
        self.dut.f_entry0.value, self.dut.f_entry1.value = first, second
        await RisingEdge(self.dut.clk)
        self.dut.f_en0.value = self.dut.f_en1.value = 0
        await RisingEdge(self.dut.clk)  # the read
        await RisingEdge(self.dut.clk)  # its data
        data = int(self.dut.f_data.value).to_bytes(2 * ENTRY, "little")
        return data[:ENTRY], data[ENTRY:]

    async def weights(self, entry, column):
        """Read 64 bytes from an atom on, running on into the next entry."""
        self.dut.w_en.value = 1
        self.dut.w_entry0.value, self.dut.w_entry1.value, self.dut.w_column.value = entry, entry + 1, column
        await RisingEdge(self.dut.clk)
        self.dut.w_en.value = 0
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        return int(self.dut.w_data.value).to_bytes(ENTRY, "little")


@cocotb.test()
async def entries_come_back(dut):
    cbuf = Cbuf(dut)
    await cbuf.clocking.edges(2)
    contents = {entry: random.randbytes(ENTRY) for entry in random.sample(range(BANK_ENTRIES), 8)}
    for entry, data in contents.items():
        await cbuf.fill_entry("feature", entry, data)
    for first in contents:
        for second in contents:  # also two of the same half: even with even, odd with odd
            assert await cbuf.features(first, second) == (contents[first], contents[second])


@cocotb.test()
async def weights_run_on_into_the_next_entry(dut):
    cbuf = Cbuf(dut)
    await cbuf.clocking.edges(2)
    entry = 3 * BANK_ENTRIES + 5
    data = random.randbytes(2 * ENTRY)
    await cbuf.fill_entry("weight", entry, data[:ENTRY])
    await cbuf.fill_entry("weight", entry + 1, data[ENTRY:])
    for column in range(4):
        assert await cbuf.weights(entry, column) == data[ATOM * column : ATOM * column + ENTRY]


@cocotb.test()
async def both_sides_take_turns(dut):
    cbuf = Cbuf(dut)
    await cbuf.clocking.edges(2)
    rounds, taken = 8, {"feature": 0, "weight": 0}

    async def keep_filling(side, entry):
        for n in range(rounds):
            await cbuf.fill(side, entry, 2 * (n % 2), bytes([n]) * 2 * ATOM)
            taken[side] += 1

    begun = cbuf.clocking.cycle
    both = [cocotb.start_soon(keep_filling("feature", 0)), cocotb.start_soon(keep_filling("weight", 64))]
    for task in both:
        await task
        assert abs(taken["feature"] - taken["weight"]) <= 1  # neither is left behind
    print(f"{2 * rounds} fills in {cbuf.clocking.cycle - begun} cycles")
    assert await cbuf.weights(64, 0) == bytes([rounds - 2]) * 2 * ATOM + bytes([rounds - 1]) * 2 * ATOM


SIMULATOR = "icarus" if missing("icarus") is None else "verilator"  # a block alone is quick on both


@pytest.mark.skipif(missing(SIMULATOR) is not None, reason=missing(SIMULATOR) or "")
def test_cbuf():
    simulate(__file__, simulator=SIMULATOR, block="cbuf", geometry="small")
