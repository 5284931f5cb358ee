"""What can go wrong when a waveform is read."""

from __future__ import annotations


class WaveError(ValueError):
    """A waveform cannot be read or lacks a signal; the text names the file and what to do."""
