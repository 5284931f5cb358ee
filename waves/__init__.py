"""Waveforms and their tools.  The engines write the files (`Engine.trace`); this package reads them."""

from waves.backends import Signal
from waves.bursts import Burst
from waves.decode import DiagnosticSeen, Irq, MacActivity, RegisterWrite, Stall, WaveTask
from waves.errors import WaveError
from waves.reader import Wave
from waves.reader import open_wave as open

__all__ = [
    "Burst",
    "DiagnosticSeen",
    "Irq",
    "MacActivity",
    "RegisterWrite",
    "Signal",
    "Stall",
    "Wave",
    "WaveError",
    "WaveTask",
    "open",
]
