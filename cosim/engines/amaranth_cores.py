"""Cores in Amaranth's simulator, advanced by one clock edge per call."""

from __future__ import annotations

import contextlib
import ctypes as ct
from typing import Any

from rkcosim.engines import library as lib
from rkcosim.engines.protocol import AssertionFailed
from rkcosim.engines.verilog import Design

_PERIOD = 1e-9  # seconds


_BUSES = {"s": "s_axil", "m": "m_axi"}


def _port(name: str) -> str:
    """Return the port of the core for a member of `CoreIn` or `CoreOut`."""
    prefix, _, rest = name.partition("_")
    return f"{_BUSES[prefix]}_{rest}" if prefix in ("s", "m") else name


_PORT_INPUTS = {name: _port(name) for name, *_ in lib.CoreIn._fields_ if name not in ("rst", "m_rdata")}
_PORT_OUTPUTS = {
    name: _port(name)
    for name, *_ in lib.CoreOut._fields_
    if name not in ("pad", "pad2", "pad3", "m_wdata", "levels")
}


class _Core:
    """One core; `edge()` takes the pins of a cycle and returns those of the next one."""

    def __init__(self, design: Design, index: int, vcd: str | None, assertions: bool) -> None:
        from amaranth.hdl import ClockDomain, Fragment, Module
        from amaranth.sim import Simulator

        from rkcosim.rtl.assertions import Assertions

        self.core = design.make(external_cell=False)
        self.domain = ClockDomain("sync")
        top = Module()
        top.domains += self.domain
        setattr(top.submodules, f"core{index}", self.core)
        self.simulator = Simulator(Fragment.get(top, Assertions() if assertions else None))
        self.simulator.add_clock(_PERIOD)
        self.simulator.add_testbench(self._bench)
        self.pins_in, self.pins_out = lib.CoreIn(), lib.CoreOut()
        self.last_in: dict[str, int] = {}
        self.edges = 0
        self.ended = self.left = False
        self.end = contextlib.ExitStack()
        if vcd is not None:
            self.end.enter_context(self.simulator.write_vcd(vcd))

    async def _bench(self, ctx: Any) -> None:
        core, last = self.core, self.last_in
        while not self.ended:
            pins = self.pins_in
            values = {port: getattr(pins, name) for name, port in _PORT_INPUTS.items()}
            values["m_axi_rdata"] = int.from_bytes(pins.m_rdata, "little")
            for port, value in values.items():
                if last.get(port) != value:
                    last[port] = value
                    ctx.set(getattr(core, port), value)
            if last.get("rst") != pins.rst:
                last["rst"] = pins.rst
                ctx.set(self.domain.rst, pins.rst)
            await ctx.tick()
            out = self.pins_out
            for name, port in _PORT_OUTPUTS.items():
                setattr(out, name, int(ctx.get(getattr(core, port))))
            if out.m_wvalid:
                data = int(ctx.get(core.m_axi_wdata)).to_bytes(32, "little")
                ct.memmove(out.m_wdata, data, 32)
            if pins.counting:
                held = int(ctx.get(core.levels)).to_bytes(ct.sizeof(out.levels), "little")
                ct.memmove(out.levels, held, len(held))
            self.edges += 1
            # This waits at a time between clock edges; when it resumes, the next pins are set.
            await ctx.delay(_PERIOD / 4)
        self.left = True

    def close(self) -> None:
        """Let the testbench return, and end the waveform."""
        self.ended = True
        for _ in range(4):
            if not self.left:
                self.simulator.advance()
        self.end.close()

    def edge(self, pins_in: Any, pins_out: Any) -> None:
        ct.pointer(self.pins_in)[0] = pins_in
        before = self.edges
        while self.edges == before:
            self.simulator.advance()
        pins_out[0] = self.pins_out


class AmaranthCores:
    """The callback that steps cores in Amaranth's simulator, and the state of these cores."""

    def __init__(self, design: Design, cores: int, assertions: bool = False) -> None:
        self._design, self._count, self._assertions = design, cores, assertions
        self._vcd: str | None = None
        self._cores: list[_Core] = []
        self.failure: BaseException | None = None
        self.step = lib.STEP(self._step)

    def _name(self, index: int) -> str | None:
        if self._vcd is None or index == 0:
            return self._vcd
        return f"{self._vcd}.core{index}"

    def trace(self, path: str) -> None:
        """Restart with a waveform (core 0 in `path`, other cores in files next to it)."""
        self.close()
        self._vcd = path

    def _step(self, core: int, pins_in: Any, pins_out: Any) -> int:
        # An exception cannot pass through the library: it is kept for the engine to raise.
        try:
            if not self._cores:
                self._cores = [
                    _Core(self._design, n, self._name(n), self._assertions) for n in range(self._count)
                ]
            self._cores[core].edge(pins_in[0], pins_out)
        except AssertionError as error:
            place = f"clock edge {self._cores[core].edges}, core {core}"
            self.failure = AssertionFailed(f"an assertion of the RTL failed in {place}: {error}")
            return 1
        except BaseException as error:
            self.failure = error
            return 1
        return 0

    def close(self) -> None:
        """End the simulations and their waveforms."""
        for core in self._cores:
            core.close()
        self._cores = []
