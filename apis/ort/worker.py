"""The process of onnxruntime's provider: `python -m rkcosim.apis.ort.worker` (`rkcosim.apis.link.worker`)."""

from __future__ import annotations

from rkcosim.apis.link.protocol import Runtime
from rkcosim.apis.link.worker import calls_for, main

ort_calls = calls_for(Runtime.ONNXRUNTIME, "rkcosim.apis.ort.calls:OrtCalls")

if __name__ == "__main__":
    main(ort_calls)
