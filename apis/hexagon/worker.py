"""The process in which the graphs of a program run: `python -m rkcosim.frontends.hexagon_nn.worker`.

`libhexagon_nn.so` starts it; `rkcosim.plugins.worker` describes its life.
"""

from __future__ import annotations

from rkcosim.plugins.protocol import ProtocolError, Runtime
from rkcosim.plugins.worker import Calls, main
from rkcosim.running.machine import Machine


def hexagon_calls(runtime: Runtime, machine: Machine) -> Calls:
    """Return the calls of the library; raises ProtocolError for another runtime."""
    from rkcosim.frontends.hexagon_nn.calls import HexagonCalls

    if runtime != Runtime.HEXAGON:
        raise ProtocolError(f"runtime {runtime} in a process for Hexagon NN")
    return HexagonCalls(machine)


if __name__ == "__main__":
    main(hexagon_calls)
