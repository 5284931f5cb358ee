"""Co-simulation of the RK3588 NPU.

`open_engine` opens an engine, `run_model` runs a network on it, `Stream` is a register-command
stream with its memory image; `with device():` gives this process the device nodes of a board.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Stream", "device", "open_engine", "run_model"]

_HOMES = {
    "Stream": "rkcosim.verify.streams.stream",
    "device": "rkcosim.devices",
    "open_engine": "rkcosim.engines.engine",
    "run_model": "rkcosim.measure.models.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used; the command line stays quick to start."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rkcosim' has no attribute {name!r}")
