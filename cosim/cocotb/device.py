"""A core in a cocotb simulation as the device that driver, runtime and `rknn_api` know.

They are ordinary blocking code, so they run in a thread of cocotb's bridge: `NpuAgent.software`.
"""

from __future__ import annotations

from typing import Any

from cocotb.task import resume

from cosim.cocotb import agent as agents


class AgentDevice:
    """`sw.driver.device.Device` on an agent; only for functions that `NpuAgent.software` runs.

    Members
    -------
    cores : 1 more than the number of the agent's core; accesses to other cores are refused.
    memory, cycle : the agent's.
    """

    name = "cocotb"

    def __init__(self, agent: agents.NpuAgent) -> None:
        self._agent = agent
        self.cores = agent.core + 1
        self.memory: Any = agent.memory

    @property
    def cycle(self) -> int:
        """Cycles since the agent was made."""
        return self._agent.cycle

    def read32(self, core: int, offset: int) -> int:
        """Read a register; `BusError` on an error response."""
        self._check(core)
        return resume(self._agent.host.read)(offset)

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register; `BusError` on an error response."""
        self._check(core)
        resume(self._agent.host.write)(offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until the interrupt line is high; 0 when `max_cycles` have passed without it.

        Raises
        ------
        DiagnosticFound
            with the agent's `on_diagnostic` "stop".
        """
        mine = 1 << self._agent.core
        if not core_mask & mine:
            raise ValueError(f"core mask {core_mask:#x}: there is only core {self._agent.core}")
        return mine if resume(self._agent.poll_irq)(max_cycles) else 0

    def reset(self, core_mask: int) -> None:
        """Reset the core."""
        if core_mask >> self._agent.core & 1:
            resume(self._agent.reset)()

    def block_state(self, core: int) -> str:
        """Lines that say which blocks are at work and what they wait for."""
        self._check(core)
        return resume(self._agent.block_state)()

    def _check(self, core: int) -> None:
        if core != self._agent.core:
            raise ValueError(f"core {core}: there is only core {self._agent.core}")
