"""The simulated device of these examples, chosen on the command line."""

from __future__ import annotations

import argparse
from typing import Any

import sw.rknn_api as rk


def open_device(description: str | None) -> Any:
    """Parse `--engine` and open that device for rknn_api; close it at the end."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--engine", help="golden, verilator, cxxrtl; default: the fastest RTL there is")
    name = parser.parse_args().engine
    if name == "golden":
        from cosim.golden.task import GoldenNpu

        device: Any = GoldenNpu(1)
        rk.use_device(device)
        return device
    from cosim.engines.engine import open_engine
    from cosim.perf.measure import meter

    device = open_engine(name, cores=1)
    rk.use_device(device, meter=meter(device))
    return device
