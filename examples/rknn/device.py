"""The simulated device of these examples, chosen on the command line."""

from __future__ import annotations

import argparse
from typing import Any

import rkcosim.rknn_api as rk


def open_device(description: str | None) -> Any:
    """Parse `--engine` and open that device for rknn_api; it is closed at exit."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--engine", help="an engine, as golden or fast; default: verilator")
    name = parser.parse_args().engine
    from rkcosim import open_engine
    from rkcosim.running.meter import meter

    device = open_engine(name, cores=1)
    rk.use_device(device, meter=meter(device) if device.has_cycles else None)
    return device
