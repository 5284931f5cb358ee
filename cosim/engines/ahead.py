"""Background builds: when the first engine was built, its variant with or without waveforms is built too.

The two variants are separate libraries, since the code that writes waveforms slows every cycle down by 6 %
(busy, dma and network alike) even if no waveform is written. To avoid waiting for the second
library, a command that had to build one of them starts the build of the other when it ends. The Verilog of
the first is kept for it.

One library for both was measured. Without Verilator's activity flags, in place of which the harness knows the
clock triggers of a cycle, it was still 4 % (busy) and 6 % (DMA) slower than the one without waveforms: what
costs time is that more signals are stored. Exempting helper signals did not make the code smaller.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace

from rkcosim.engines import build, cache, verilog
from rkcosim.engines.toolchain import PYTHON
from rkcosim.spec.config import RK3588

VARIABLE = "RKCOSIM_AHEAD"
"""Environment variable that disables background builds if it is 0."""

NICE = 19


def start() -> None:
    """Start low-priority processes that build the other variants of the engines built here, and report it."""
    built = [v for v in build.built_here if v.engine == "verilator" and not (v.probed or v.watched)]
    wanted = [replace(variant, traced=not variant.traced) for variant in built]
    wanted = [variant for variant in wanted if variant not in built]
    build.built_here.clear()
    if not wanted or os.environ.get(VARIABLE, "") == "0":
        return
    for variant in wanted:
        words = [
            word
            for word, given in (("--exact", variant.cell == "rtl"), ("--traced", variant.traced))
            if given
        ]
        try:
            subprocess.Popen(
                [*PYTHON, "-m", "rkcosim.engines.ahead", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return  # a failure only means that the build happens later
        cache.say(f"the {variant} is being built in the background ({VARIABLE}=0 prevents this)")


def main(arguments: list[str] | None = None) -> int:
    """Build one engine of the RK3588's core."""
    parser = argparse.ArgumentParser(description="Build an engine of the RK3588's core.")
    parser.add_argument("--exact", action="store_true", help="the array cell as RTL")
    parser.add_argument("--traced", action="store_true", help="with the code that writes waveforms")
    given = parser.parse_args(arguments)
    os.nice(NICE)
    variant = build.Variant("verilator", "rtl" if given.exact else "cpp", given.traced)
    build.build(verilog.as_design(verilog.npu_design(RK3588)), variant)
    return 0


if __name__ == "__main__":
    sys.exit(main())
