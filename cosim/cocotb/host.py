"""Register accesses: cocotbext-axi's AXI-Lite master, or a host with the engines' own timing."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from cocotb.triggers import RisingEdge

from cosim.cocotb.pins import Bundle, Clocking, high
from cosim.engines.diagnostics import register_name
from cosim.engines.errors import BusError
from rtl.bus import Response

ACCESS_CYCLES = 1 << 16
"""Bound of one register access: longer than a write that waits for its register group may take."""


class Host(Protocol):
    """Who accesses registers."""

    async def read(self, offset: int) -> int: ...
    async def write(self, offset: int, value: int) -> None: ...


def _check(what: str, offset: int, response: int, cycle: int) -> None:
    if response != Response.OKAY:
        name = Response(response).name
        raise BusError(f"{what} of {register_name(offset)} ({offset:#06x}) at cycle {cycle}: {name}")


class AxiHost:
    """Accesses through cocotbext-axi's `AxiLiteMaster`, which is there as `master`."""

    def __init__(self, dut: Any, clocking: Clocking) -> None:
        from cocotbext.axi import AxiLiteBus, AxiLiteMaster

        # One line per access otherwise, which a monitor says better.
        logging.getLogger(f"cocotb.{dut._name}.s_axil").setLevel(logging.WARNING)
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self._clocking = clocking

    async def read(self, offset: int) -> int:
        """Read 32 bits; `BusError` on an error response."""
        answer = await self.master.read(offset, 4)
        _check("read", offset, int(answer.resp), self._clocking.cycle)
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int) -> None:
        """Write 32 bits; `BusError` on an error response."""
        answer = await self.master.write(offset, value.to_bytes(4, "little"))
        _check("write", offset, int(answer.resp), self._clocking.cycle)


class EngineHost:
    """Accesses that take the cycles they take on the compiled engines (cosim/harness/soc.h)."""

    def __init__(self, dut: Any, clocking: Clocking) -> None:
        self._clk, self._clocking = dut.clk, clocking
        self._s = Bundle(dut, "s_axil_")
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            getattr(self._s, name).value = 0

    async def read(self, offset: int) -> int:
        """Read 32 bits; `BusError` on an error response, or none within `ACCESS_CYCLES`."""
        edge = RisingEdge(self._clk)
        self._s.araddr.value = offset
        self._s.arvalid.value = self._s.rready.value = 1
        await edge
        for _ in range(ACCESS_CYCLES):
            if high(self._s.arready):
                self._s.arvalid.value = 0
            if high(self._s.rvalid):
                data, response = int(self._s.rdata.value), int(self._s.rresp.value)
                self._s.arvalid.value = self._s.rready.value = 0
                await edge
                _check("read", offset, response, self._clocking.cycle)
                return data
            await edge
        raise self._late("read", offset)

    async def write(self, offset: int, value: int) -> None:
        """Write 32 bits; raises as `read`."""
        edge = RisingEdge(self._clk)
        self._s.awaddr.value, self._s.wdata.value, self._s.wstrb.value = offset, value, 0xF
        self._s.awvalid.value = self._s.wvalid.value = self._s.bready.value = 1
        await edge
        for _ in range(ACCESS_CYCLES):
            if high(self._s.awready):
                self._s.awvalid.value = 0
            if high(self._s.wready):
                self._s.wvalid.value = 0
            if high(self._s.bvalid):
                response = int(self._s.bresp.value)
                for name in ("awvalid", "wvalid", "bready"):
                    getattr(self._s, name).value = 0
                await edge
                _check("write", offset, response, self._clocking.cycle)
                return
            await edge
        raise self._late("write", offset)

    def _late(self, what: str, offset: int) -> BusError:
        place = f"{register_name(offset)} ({offset:#06x})"
        return BusError(
            f"{what} of {place} at cycle {self._clocking.cycle}: no response within {ACCESS_CYCLES} cycles"
        )
