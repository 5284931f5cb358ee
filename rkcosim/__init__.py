"""Co-simulation of the RK3588 NPU.

`load` makes a `Model` of a network, `open_engine` opens an engine, `TaskList` is a list of tasks written by
register names, `Stream` a register-command stream with its memory image, `run_model` runs a network through
rknn_api; `with device():` gives this process the device nodes of a board; `example` returns the path of an
example.  Errors are of the class `Error`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.base import Error
    from rkcosim.base.examples import example
    from rkcosim.compiler.graph import ModelError
    from rkcosim.devices import device
    from rkcosim.driver.check import DriverError
    from rkcosim.engines.engine import open_engine
    from rkcosim.engines.protocol import EngineError
    from rkcosim.measure.models.run import run_model
    from rkcosim.model.model import Model, load
    from rkcosim.verify.streams.stream import Stream
    from rkcosim.verify.streams.task_list import TaskList

__all__ = [
    "DriverError",
    "EngineError",
    "Error",
    "Model",
    "ModelError",
    "Stream",
    "TaskList",
    "device",
    "example",
    "load",
    "open_engine",
    "run_model",
]

__getattr__ = lazy(
    __name__,
    {
        "DriverError": "rkcosim.driver.check",
        "EngineError": "rkcosim.engines.protocol",
        "Error": "rkcosim.base",
        "Model": "rkcosim.model.model",
        "ModelError": "rkcosim.compiler.graph",
        "Stream": "rkcosim.verify.streams.stream",
        "TaskList": "rkcosim.verify.streams.task_list",
        "device": "rkcosim.devices",
        "example": "rkcosim.base.examples",
        "load": "rkcosim.model.model",
        "open_engine": "rkcosim.engines.engine",
        "run_model": "rkcosim.measure.models.run",
    },
)
