"""Memory behind a core's AXI port, driven by the engines' DRAM model (cosim/engines/harness/dram.h)."""

from __future__ import annotations

import ctypes as ct
from typing import Any

import cocotb
from cocotb.triggers import First, RisingEdge, Timer

from rkcosim.cocotb.pins import Clocking, high
from rkcosim.engines.diagnostics import Fault
from rkcosim.engines.dram import Dram
from rkcosim.engines.library import DramConfig
from rkcosim.waves.pins import BEAT_BYTES

_REQUESTS = ("id", "addr", "len", "size", "burst")
_DRIVEN = ("arready", "awready", "wready", "rvalid", "rid", "rresp", "rlast", "bvalid", "bid", "bresp")
_LOOK_AHEAD = 8
"""Minimum number of idle cycles ahead for which sleeping is worth its triggers."""


class DramSlave:
    """AXI4 memory on the `m_axi` port of a core, cycle for cycle that of the compiled engines with one core.

    Parameters
    ----------
    dut : handle of the core.
    clocking : its clock.
    config : timing; the engines' default if None.

    Members
    -------
    memory : `rkcosim.engines.memory.DeviceMemory`: map, read, write, view; initially empty. Bursts outside of
        the mapped ranges end in DECERR, as on the engines.

    Raises
    ------
    BuildError
        if the model cannot be compiled; the message says what to install.
    """

    def __init__(self, dut: Any, clocking: Clocking, config: DramConfig | None = None) -> None:
        self._dut, self._clocking = dut, clocking
        self._model = Dram(config)
        self.config, self.memory = self._model.config, self._model.memory
        self._faults: list[Fault] = []
        self._shown: dict[str, int] = {}
        """The present values of the pins, which are written only when they change."""
        self._drive()
        cocotb.start_soon(self._run())

    def reset(self) -> None:
        """Write the data that the core has sent and drop other transfers.

        Call at both ends of a core's reset.
        """
        self._model.reset(0)
        self._drive()

    @property
    def faults(self) -> list[Fault]:
        """Return the refused accesses, oldest first."""
        self._faults += self._model.faults(len(self._faults))
        return self._faults

    @property
    def bytes_read(self) -> dict[str, int]:
        """Bytes that the core has read, by name of the AXI client."""
        return self._model.counters(0).bytes_read

    @property
    def bytes_written(self) -> dict[str, int]:
        """Bytes that the core has written, by name of the AXI client."""
        return self._model.counters(0).bytes_written

    @property
    def open_bursts(self) -> dict[str, int]:
        """Number of open bursts by name, as "reads of FEATURE"."""
        return self._model.open_bursts(0)

    async def _run(self) -> None:
        requests = [self._pin(f"{channel}valid") for channel in ("ar", "aw", "w")]
        wake, edge = [RisingEdge(pin) for pin in requests], RisingEdge(self._dut.clk)
        while True:
            await edge
            now = self._clocking.cycle
            self._sample()
            self._model.edge(now)
            self._drive()
            if any(map(high, requests)):
                continue
            due = self._model.wakes(0)
            if due is None:
                await First(*wake)
            elif due - now >= _LOOK_AHEAD:
                # Half a cycle early, so that the edge itself is seen.
                period = self._clocking.period_ps
                await First(*wake, Timer((due - now) * period - period // 2, "ps"))

    def _pin(self, name: str) -> Any:
        return getattr(self._dut, f"m_axi_{name}")

    def _sample(self) -> None:
        """Sample the core's outputs at this edge; payloads only if they are valid."""
        out = self._model.pins_out[0]
        for channel, payload in (("ar", _REQUESTS), ("aw", _REQUESTS), ("w", ("last", "strb"))):
            valid = high(self._pin(f"{channel}valid"))
            setattr(out, f"m_{channel}valid", valid)
            for name in payload if valid else ():
                setattr(out, f"m_{channel}{name}", int(self._pin(channel + name).value))
        if out.m_wvalid:
            ct.memmove(out.m_wdata, int(self._pin("wdata").value).to_bytes(BEAT_BYTES, "little"), BEAT_BYTES)
        out.m_rready, out.m_bready = high(self._pin("rready")), high(self._pin("bready"))

    def _drive(self) -> None:
        """Drive the core's inputs from the model after this edge."""
        pins = self._model.pins_in[0]
        wanted = {name: getattr(pins, f"m_{name}") for name in _DRIVEN}
        if wanted["rvalid"]:
            wanted["rdata"] = int.from_bytes(bytes(pins.m_rdata), "little")
        for name, value in wanted.items():
            if self._shown.get(name) != value:
                self._shown[name] = value
                self._pin(name).value = value
