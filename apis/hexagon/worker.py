"""The process of `libhexagon_nn.so`: `python -m rkcosim.apis.hexagon.worker` (`rkcosim.apis.link.worker`)."""

from __future__ import annotations

from rkcosim.apis.link.protocol import Runtime
from rkcosim.apis.link.worker import calls_for, main

hexagon_calls = calls_for(Runtime.HEXAGON, "rkcosim.apis.hexagon.calls:HexagonCalls")

if __name__ == "__main__":
    main(hexagon_calls)
