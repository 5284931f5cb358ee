"""What an engine raises."""

from __future__ import annotations

from collections.abc import Iterable


class EngineError(Exception):
    """Base of everything an engine raises on purpose."""


class BuildError(EngineError):
    """A compiled model could not be made; the text says what to install or change."""


class WaveformError(EngineError, ValueError):
    """A waveform cannot be written as asked for: by this engine, in this format, to this file, so late."""


class SnapshotError(EngineError, ValueError):
    """A snapshot cannot be saved, read or gone on with; the text says what differs."""


class BusError(EngineError):
    """A register access ended in an error response or not at all; the text names the register."""


class MemoryAccessError(EngineError):
    """The host touched memory outside every mapped range, or mapped a bad range."""


class DiagnosticError(EngineError):
    """The core raised a diagnostic and the engine was told to stop on it.

    Parameters
    ----------
    diagnostics : the diagnostics not yet reported, oldest first; at least one.
    faults : accesses that memory refused, oldest first; the first of the core is named.
    """

    def __init__(self, diagnostics: list, faults: Iterable = ()) -> None:
        self.diagnostics = list(diagnostics)
        text = str(self.diagnostics[0])
        refused = [fault for fault in faults if fault.core == self.diagnostics[0].core]
        if refused:
            text += f"; {refused[0].client} at {refused[0].address:#x}: {refused[0].text}"
        if len(self.diagnostics) > 1:
            text += f" (and {len(self.diagnostics) - 1} more)"
        super().__init__(text)
