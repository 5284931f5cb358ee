"""The process of NNAPI's library: `python -m rkcosim.apis.nnapi.ndk.worker` (`rkcosim.apis.link.worker`)."""

from __future__ import annotations

from rkcosim.apis.link.protocol import Runtime
from rkcosim.apis.link.worker import calls_for, main

nnapi_calls = calls_for(Runtime.NNAPI, "rkcosim.apis.nnapi.ndk.calls:NdkCalls")

if __name__ == "__main__":
    main(nnapi_calls)
