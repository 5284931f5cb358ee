"""The three NPU cores of the RK3588 as one design, for Verilog export and for comparison.

The engines compile one core and instantiate it (DESIGN 5); interconnect and memory are theirs.
Here nothing is shared but the clock and its reset.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rtl.config import RK3588, NpuConfig
from rtl.core import NpuCore

INDEX_PORT = "core_index"
"""The one port of a core that is tied off here."""


def core_prefix(core: int) -> str:
    """Prefix of a core's ports."""
    return f"core{core}_"


class NpuSoc(wiring.Component):
    """All cores of the NPU side by side (H1.1).

    Members
    -------
    core0_*, core1_*, ... : the ports of `NpuCore` but for `core_index`, which is the core's number.

    Parameters: the geometry, which also says how many cores there are; the others as `NpuCore`.
    """

    def __init__(
        self, config: NpuConfig = RK3588, *, relax_serialisation: bool = False, external_cell: bool = False
    ) -> None:
        self._cores = [
            NpuCore(config, relax_serialisation=relax_serialisation, external_cell=external_cell)
            for _ in range(config.cores)
        ]
        super().__init__(
            {
                core_prefix(number) + name: member
                for number, core in enumerate(self._cores)
                for name, member in core.signature.members.items()
                if name != INDEX_PORT
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for number, core in enumerate(self._cores):
            m.submodules[f"core{number}"] = core
            m.d.comb += core.core_index.eq(Const(number, 2))
            for name, member in core.signature.members.items():
                if name == INDEX_PORT:
                    continue
                outside, inside = getattr(self, core_prefix(number) + name), getattr(core, name)
                m.d.comb += inside.eq(outside) if member.flow == In else outside.eq(inside)
        return m
