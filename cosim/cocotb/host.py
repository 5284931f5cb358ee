"""Register accesses: cocotbext-axi's AXI-Lite master, or a host with the engines' timing."""

from __future__ import annotations

import logging
from typing import Any

from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from rkcosim.cocotb.pins import Clocking, high
from rkcosim.engines.diagnostics import register_name
from rkcosim.engines.protocol import BusError
from rkcosim.rtl.bus import Response

ACCESS_CYCLES = 1 << 16
"""Maximum number of cycles of one register access; a write may wait for its register group."""


def _check(what: str, offset: int, response: int, cycle: int) -> None:
    if response != Response.OKAY:
        name = Response(response).name
        raise BusError(f"{what} of {register_name(offset)} ({offset:#06x}) at cycle {cycle}: {name}")


class AxiHost:
    """Accesses to 32-bit registers by cocotbext-axi's `AxiLiteMaster`, the member `master`.

    Raises `BusError` for an error response.
    """

    def __init__(self, dut: Any, clocking: Clocking) -> None:
        # Otherwise it logs one line per access, which a monitor does better.
        logging.getLogger(f"cocotb.{dut._name}.s_axil").setLevel(logging.WARNING)
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self._clocking = clocking

    async def read(self, offset: int) -> int:
        answer = await self.master.read(offset, 4)
        _check("read", offset, int(answer.resp), self._clocking.cycle)
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int) -> None:
        answer = await self.master.write(offset, value.to_bytes(4, "little"))
        _check("write", offset, int(answer.resp), self._clocking.cycle)


class EngineHost:
    """Accesses that take the same cycles as on the compiled engines (cosim/engines/harness/soc.h).

    Raises `BusError` for an error response, or for an access without a response within `ACCESS_CYCLES`.
    """

    def __init__(self, dut: Any, clocking: Clocking) -> None:
        self._dut, self._clocking = dut, clocking

    async def read(self, offset: int) -> int:
        self._drive(araddr=offset)
        return await self._access("read", offset, ("ar",), "r")

    async def write(self, offset: int, value: int) -> None:
        self._drive(awaddr=offset, wdata=value, wstrb=0xF)
        await self._access("write", offset, ("aw", "w"), "b")

    def _pin(self, name: str) -> Any:
        return getattr(self._dut, f"s_axil_{name}")

    def _drive(self, **pins: int) -> None:
        for name, value in pins.items():
            self._pin(name).value = value

    async def _access(self, what: str, offset: int, requests: tuple[str, ...], answer: str) -> int:
        """Send on some channels and wait for the response on another; return 0, or the data of a read."""
        edge = RisingEdge(self._dut.clk)
        valid = {f"{channel}valid": 1 for channel in requests}
        self._drive(**valid, **{f"{answer}ready": 1})
        await edge
        for _ in range(ACCESS_CYCLES):
            for channel in requests:
                if high(self._pin(f"{channel}ready")):
                    self._pin(f"{channel}valid").value = 0
            if high(self._pin(f"{answer}valid")):
                response = int(self._pin(f"{answer}resp").value)
                data = int(self._dut.s_axil_rdata.value) if answer == "r" else 0
                self._drive(**dict.fromkeys(valid, 0), **{f"{answer}ready": 0})
                await edge
                _check(what, offset, response, self._clocking.cycle)
                return data
            await edge
        raise BusError(
            f"{what} of {register_name(offset)} ({offset:#06x}) at cycle {self._clocking.cycle}: "
            f"no response within {ACCESS_CYCLES} cycles"
        )
