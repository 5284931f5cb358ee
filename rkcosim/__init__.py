"""Co-simulation of the RK3588 NPU.

`open_engine` opens an engine, `run_model` runs a network on it, `Stream` is a register-command
stream with its memory image; `with device():` gives this process the device nodes of a board.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.devices import device
    from rkcosim.engines.engine import open_engine
    from rkcosim.measure.models.run import run_model
    from rkcosim.verify.streams.stream import Stream

__all__ = ["Stream", "device", "open_engine", "run_model"]

__getattr__ = lazy(
    __name__,
    {
        "Stream": "rkcosim.verify.streams.stream",
        "device": "rkcosim.devices",
        "open_engine": "rkcosim.engines.engine",
        "run_model": "rkcosim.measure.models.run",
    },
)
