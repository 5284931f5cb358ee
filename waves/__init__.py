"""Waveforms and their tools. The engines write the files (`Engine.trace`); this package reads them."""

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.waves.accesses import Access
    from rkcosim.waves.backends import Signal
    from rkcosim.waves.bursts import Burst, Region
    from rkcosim.waves.decode import DiagnosticSeen, Irq, MacActivity, RegisterWrite, Stall, Wave, WaveTask
    from rkcosim.waves.decode import open_wave as open
    from rkcosim.waves.files import WaveError
    from rkcosim.waves.jobs import Job, JobTask
    from rkcosim.waves.portmap import PortMap

__all__ = [
    "Access",
    "Burst",
    "DiagnosticSeen",
    "Irq",
    "Job",
    "JobTask",
    "MacActivity",
    "PortMap",
    "Region",
    "RegisterWrite",
    "Signal",
    "Stall",
    "Wave",
    "WaveError",
    "WaveTask",
    "open",
]

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.waves")

__getattr__ = lazy(
    __name__,
    {
        "Access": "rkcosim.waves.accesses",
        "Signal": "rkcosim.waves.backends",
        "Burst": "rkcosim.waves.bursts",
        "Region": "rkcosim.waves.bursts",
        "DiagnosticSeen": "rkcosim.waves.decode",
        "Irq": "rkcosim.waves.decode",
        "MacActivity": "rkcosim.waves.decode",
        "RegisterWrite": "rkcosim.waves.decode",
        "Stall": "rkcosim.waves.decode",
        "Wave": "rkcosim.waves.decode",
        "WaveTask": "rkcosim.waves.decode",
        "open": "rkcosim.waves.decode:open_wave",
        "WaveError": "rkcosim.waves.files",
        "Job": "rkcosim.waves.jobs",
        "JobTask": "rkcosim.waves.jobs",
        "PortMap": "rkcosim.waves.portmap",
    },
)
