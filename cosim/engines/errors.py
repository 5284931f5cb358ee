"""What an engine raises."""

from __future__ import annotations


class EngineError(Exception):
    """Base of everything an engine raises on purpose."""


class BuildError(EngineError):
    """A compiled model could not be made; the text says what to install or change."""


class BusError(EngineError):
    """A register access ended in an error response or not at all; the text names the register."""


class MemoryAccessError(EngineError):
    """The host touched memory outside every mapped range, or mapped a bad range."""


class DiagnosticError(EngineError):
    """The core raised a diagnostic and the engine was told to stop on it.

    Parameters
    ----------
    diagnostics : the diagnostics not yet reported, oldest first; at least one.
    """

    def __init__(self, diagnostics: list) -> None:
        self.diagnostics = list(diagnostics)
        text = str(self.diagnostics[0])
        if len(self.diagnostics) > 1:
            text += f" (and {len(self.diagnostics) - 1} more)"
        super().__init__(text)
