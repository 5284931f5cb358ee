"""The three NPU cores of the RK3588 as one design, for Verilog export and for comparison.

The engines compile one core and instantiate it (DESIGN 5); interconnect and memory are theirs, and the
counters are cosim/harness/counters.h.  Here nothing is shared but the clock, its reset and the window of the
performance counters.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rtl.bus import AxiLite
from rtl.config import RK3588, NpuConfig
from rtl.core import NpuCore
from rtl.counters import WATCHED, CounterWindow

INDEX_PORT = "core_index"
"""The one port of a core that is tied off here."""

COUNTER_PORTS = ("counting", "activity", "levels", "macs", "array_macs")
"""Ports between a core and its counters, which end here."""

COUNTER_PREFIX = "counters_s_axil_"
"""Prefix of the AXI4-Lite ports of the counters' window."""


def core_prefix(core: int) -> str:
    """Prefix of a core's ports."""
    return f"core{core}_"


class NpuSoc(wiring.Component):
    """All cores of the NPU side by side (H1.1), and their performance counters (docs/counters.md).

    Members
    -------
    core0_*, core1_*, ... : the ports of `NpuCore` but for `core_index`, which is the core's number, and those
        that only the counters use.
    counters_s_axil_* : AXI4-Lite slave with the windows of all cores' counters, 4 KiB each.

    Parameters: the geometry, which also says how many cores there are; the others as `NpuCore`.
    """

    def __init__(
        self, config: NpuConfig = RK3588, *, relax_serialisation: bool = False, external_cell: bool = False
    ) -> None:
        self._cores = [
            NpuCore(config, relax_serialisation=relax_serialisation, external_cell=external_cell)
            for _ in range(config.cores)
        ]
        members = {
            core_prefix(number) + name: member
            for number, core in enumerate(self._cores)
            for name, member in core.signature.members.items()
            if name not in (INDEX_PORT, *COUNTER_PORTS)
        }
        for name, member in AxiLite().flip().members.items():
            members[COUNTER_PREFIX + name] = member
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.counters = counters = CounterWindow(len(self._cores))
        for name, member in AxiLite().members.items():
            outside, inside = getattr(self, COUNTER_PREFIX + name), getattr(counters.axil, name)
            m.d.comb += outside.eq(inside) if member.flow == In else inside.eq(outside)
        for number, core in enumerate(self._cores):
            m.submodules[f"core{number}"] = core
            m.d.comb += core.core_index.eq(Const(number, 2))
            watch = getattr(counters, f"core{number}")
            m.d.comb += core.counting.eq(watch.counting)
            m.d.comb += [getattr(watch, name).eq(getattr(core, name)) for name in WATCHED]
            for name, member in core.signature.members.items():
                if name in (INDEX_PORT, *COUNTER_PORTS):
                    continue
                outside, inside = getattr(self, core_prefix(number) + name), getattr(core, name)
                m.d.comb += inside.eq(outside) if member.flow == In else outside.eq(inside)
        return m
