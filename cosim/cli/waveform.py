"""What a command says of the waveform it was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def closing_traced(device: Any) -> Iterator[Any]:
    """Close a device at the end, whatever happens, and tell what became of its waveform."""
    try:
        yield device
    finally:
        device.close()
        tell(device)


def tell(device: Any) -> None:
    """Say what became of a closed device's waveform, if it has one."""
    result = getattr(device, "trace_result", lambda: None)()
    if result is not None:
        print(result.text, file=sys.stderr)
