"""Waveforms and their tools.  The engines write the files (`Engine.trace`); this package reads them."""

from waves.reader import Trace, open_trace

__all__ = ["Trace", "open_trace"]
