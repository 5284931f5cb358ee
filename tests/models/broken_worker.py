"""The process of a plug-in in which every call after the first raises an exception, for tests of errors."""

from __future__ import annotations

from rkcosim.plugins import worker
from rkcosim.plugins.protocol import Message, Runtime
from rkcosim.running.machine import Machine


def real_calls(runtime: Runtime, machine: Machine) -> worker.Calls:
    """Return the calls of each runtime."""
    if runtime == Runtime.HEXAGON:
        from rkcosim.frontends.hexagon_nn.worker import hexagon_calls

        return hexagon_calls(runtime, machine)
    if runtime == Runtime.NNAPI:
        from rkcosim.frontends.nnapi.ndk.worker import nnapi_calls

        return nnapi_calls(runtime, machine)
    return worker.plugin_calls(runtime, machine)


class Broken:
    """Calls that greet as the real ones and then fail."""

    def __init__(self, runtime: Runtime, machine: Machine) -> None:
        self.greeting = real_calls(runtime, machine).greeting

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Raise an error that nobody foresees."""
        raise LookupError("lost")


if __name__ == "__main__":
    worker.main(Broken)
