"""The process in which the models of a program run: `python -m rkcosim.frontends.nnapi.ndk.worker`.

`libneuralnetworks.so` starts it; `rkcosim.plugins.worker` describes its life.
"""

from __future__ import annotations

from rkcosim.plugins.protocol import ProtocolError, Runtime
from rkcosim.plugins.worker import Calls, main
from rkcosim.running.machine import Machine


def nnapi_calls(runtime: Runtime, machine: Machine) -> Calls:
    """Return the calls of the library; raises ProtocolError for another runtime."""
    from rkcosim.frontends.nnapi.ndk.calls import NdkCalls

    if runtime != Runtime.NNAPI:
        raise ProtocolError(f"runtime {runtime} in a process for NNAPI")
    return NdkCalls(machine)


if __name__ == "__main__":
    main(nnapi_calls)
