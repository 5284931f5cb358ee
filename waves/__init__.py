"""Waveforms and their tools.  The engines write the files (`Engine.trace`); this package reads them."""

from waves.backends import Signal
from waves.errors import WaveError
from waves.reader import Wave
from waves.reader import open_wave as open

__all__ = ["Signal", "Wave", "WaveError", "open"]
