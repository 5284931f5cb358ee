"""The process of LiteRT's delegate: `python -m rkcosim.apis.litert.worker` (`rkcosim.apis.link.worker`)."""

from __future__ import annotations

from rkcosim.apis.link.protocol import Runtime
from rkcosim.apis.link.worker import calls_for, main

litert_calls = calls_for(Runtime.LITERT, "rkcosim.apis.litert.calls:LiteRtCalls")

if __name__ == "__main__":
    main(litert_calls)
