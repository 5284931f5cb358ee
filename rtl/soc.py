"""The three NPU cores of the RK3588 as one design, for Verilog export and for comparison.

The engines compile one core and instantiate it several times. The interconnect, the memory, the
counters (cosim/engines/harness/counters.h) and the lock step (co_work.h) belong to the engines. In this
design the cores share only the clock, the reset, the window of the performance counters and the unit that
keeps co-working cores in step.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rkcosim.rtl.bus import AxiLite, connect_flat, flat_members
from rkcosim.rtl.co_work import StepUnit
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.counters import WATCHED, CounterWindow
from rkcosim.spec.config import RK3588, NpuConfig

INDEX_PORT = "core_index"
"""The only port of a core that is tied to a constant here."""

COUNTER_PORTS = ("counting", "activity", "levels", "macs", "array_macs")
"""Ports between a core and its counters, which are not ports of the SoC."""

STEP_PORTS = ("step_report", "step_answer")
"""Ports between a core and the unit that synchronises co-working cores; they are not ports of the SoC."""

INNER_PORTS = (INDEX_PORT, *COUNTER_PORTS, *STEP_PORTS)
"""Ports of a core that the SoC does not have."""

COUNTER_PREFIX = "counters_s_axil_"
"""Prefix of the AXI4-Lite ports of the counter window."""


def core_prefix(core: int) -> str:
    """Prefix of a core's ports."""
    return f"core{core}_"


class NpuSoc(wiring.Component):
    """All cores of the NPU [HW 1.1] and their performance counters (docs/counters.md).

    Parameters
    ----------
    config
        Geometry, which includes the number of cores.
    relax_serialisation, external_cell : bool
        As for `NpuCore`.

    Members
    -------
    core0_*, core1_*, ... : the ports of `NpuCore` except `core_index`, which is the number of the core, and
        those that only the counters and the lock step use.
    counters_s_axil_* : AXI4-Lite slave with the counter windows of all cores, 4 KiB each.
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
            if name not in INNER_PORTS
        }
        super().__init__(members | flat_members(COUNTER_PREFIX, AxiLite().flip()))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counters = counters = CounterWindow(len(self._cores))
        connect_flat(m, COUNTER_PREFIX, self, counters.axil)
        m.submodules.steps = steps = StepUnit(len(self._cores))
        for number, core in enumerate(self._cores):
            m.submodules[f"core{number}"] = core
            m.d.comb += core.core_index.eq(Const(number, 2))
            m.d.comb += [
                steps.reports[number].eq(core.step_report),
                core.step_answer.eq(steps.answers[number]),
            ]
            watch = getattr(counters, f"core{number}")
            m.d.comb += core.counting.eq(watch.counting)
            m.d.comb += [getattr(watch, name).eq(getattr(core, name)) for name in WATCHED]
            for name, member in core.signature.members.items():
                if name in INNER_PORTS:
                    continue
                outside, inside = getattr(self, core_prefix(number) + name), getattr(core, name)
                m.d.comb += inside.eq(outside) if member.flow == In else outside.eq(inside)
        return m
