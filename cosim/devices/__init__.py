"""The simulated device for programs: in this process, or for other processes over a socket.

`with device(engine="golden"):` makes os.open, fcntl.ioctl, mmap.mmap and related functions reach a simulated
RK3588; `rkcosim device -- PROGRAM` and `rkcosim serve` do so for native programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.devices.simulated import MachineOptions, Report, SimulatedMachine

__all__ = ["Report", "SimulatedMachine", "device"]

__getattr__ = lazy(__name__, {name: "rkcosim.devices.simulated" for name in ("Report", "SimulatedMachine")})


@contextmanager
def device(engine: str | None = None, **options: Unpack[MachineOptions]) -> Iterator[SimulatedMachine]:
    """Give this Python process the NPU's device nodes within a `with` block.

    Parameters
    ----------
    engine : "verilator", "cxxrtl", "amaranth", "changes", "fast", "golden" or None for Verilator, and CXXRTL
        without it.
    options : as for `SimulatedMachine`.

    Yields
    ------
    The machine; `report()` returns its account, `kernel.log` is its log.

    Raises
    ------
    RuntimeError
        if this process already has a device.
    ValueError, rkcosim.engines.EngineError
        see `SimulatedMachine`.
    """
    from rkcosim.devices.simulated import SimulatedMachine
    from rkcosim.driver.hooks import Hooks

    with SimulatedMachine(engine, **options) as machine, Hooks(machine.kernel):
        machine.start_clock()
        yield machine
