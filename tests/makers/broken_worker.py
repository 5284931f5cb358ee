"""The process of a plug-in in which every call after the first raises an exception, for tests of errors."""

from __future__ import annotations

from pkgutil import resolve_name

from rkcosim.apis.link import worker
from rkcosim.apis.link.protocol import Message, Runtime
from rkcosim.running.machine import Machine

WORKERS = {
    Runtime.LITERT: "rkcosim.apis.litert.worker:litert_calls",
    Runtime.ONNXRUNTIME: "rkcosim.apis.ort.worker:ort_calls",
    Runtime.HEXAGON: "rkcosim.apis.hexagon.worker:hexagon_calls",
    Runtime.NNAPI: "rkcosim.apis.nnapi.ndk.worker:nnapi_calls",
}


class Broken:
    """Calls that greet as the real ones and then fail."""

    def __init__(self, runtime: Runtime, machine: Machine) -> None:
        self.greeting = resolve_name(WORKERS[runtime])(runtime, machine).greeting

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Raise an error that nobody foresees."""
        raise LookupError("lost")


if __name__ == "__main__":
    worker.main(Broken)
