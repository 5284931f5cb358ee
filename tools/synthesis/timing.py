"""The longest path of a block, found by OpenSTA in its netlist."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.synthesis.flows import LIBERTY, Bounds
from tools.synthesis.modules import Hierarchy
from tools.synthesis.netlist import FLIP_FLOP, verilog

PERIOD = 1000
"""Period of the clock in ns for which paths are computed; longer than any path."""

COMMANDS = f"""
read_liberty {LIBERTY}
read_verilog {{netlist}}
link_design {{top}}
create_clock -name clk -period {PERIOD} [get_ports clk]
set inputs {{{{}}}}
foreach port [all_inputs] {{{{
  if {{{{[get_property $port full_name] ne "clk"}}}} {{{{ lappend inputs $port }}}}
}}}}
if {{{{[llength $inputs]}}}} {{{{
  set_input_delay 0 -clock clk $inputs
  set_driving_cell -lib_cell BUFX2 $inputs
}}}}
set_output_delay 0 -clock clk [all_outputs]
set_load 0.02 [all_outputs]
report_checks -path_delay max -format full -digits 3
check_setup -verbose -loops
exit
"""
"""Inputs come from buffers at the edge of the clock, and outputs are needed at the next one."""


class TimingError(Exception):
    """OpenSTA is missing or gave no path."""


def longest(hierarchy: Hierarchy, top: str, netlists: Path, bounds: Bounds) -> dict[str, Any]:
    """Return the longest path of a block with all its submodules, as `path` returns it.

    Raises
    ------
    TimingError
        If OpenSTA or a netlist is missing, or the bounds are exceeded.
    """
    program = shutil.which("sta")
    if program is None:
        raise TimingError("OpenSTA is not installed (package opensta)")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="timing-") as name:
        folder = Path(name)
        with (folder / "netlist.v").open("w") as file:
            for module in hierarchy.below(top):
                same = hierarchy.representative(module)
                kept = netlists / f"{same}.json"
                if not kept.is_file():
                    raise TimingError(f"there is no netlist of {same}")
                file.write(verilog(json.loads(kept.read_text()), same, module))
        commands = folder / "run.tcl"
        commands.write_text(COMMANDS.format(netlist=folder / "netlist.v", top=top))
        size = bounds.memory << 30

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        try:
            done = subprocess.run(
                [program, "-no_splash", "-exit", str(commands)],
                capture_output=True,
                text=True,
                timeout=bounds.seconds,
                check=False,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            raise TimingError(f"OpenSTA: more than {bounds.seconds} s") from None
    if "bad_alloc" in done.stdout + done.stderr:
        raise TimingError(f"OpenSTA: more than {bounds.memory} GiB")
    return path(done.stdout + done.stderr) | {"seconds": round(time.monotonic() - start, 1)}


_POINT = re.compile(r"^ *-?\d+\.\d+ +-?\d+\.\d+ [v^] (\S+) \((\w+)\)$", re.MULTILINE)


def path(report: str) -> dict[str, Any]:
    """Return what a report of OpenSTA says about the longest path.

    Returns
    -------
    dict
        `start`, `end` (instance or port), `nanoseconds` (from clock edge to clock edge), `cells` (number of
        gates), `loops` (number of combinational loops).

    Raises
    ------
    TimingError
        If the report has no path.
    """
    start = re.search(r"^Startpoint: (\S+)", report, re.MULTILINE)
    end = re.search(r"^Endpoint: (\S+)", report, re.MULTILINE)
    slack = re.search(r"^ *(-?\d+\.\d+) +slack", report, re.MULTILINE)
    if start is None or end is None or slack is None:
        lines = [line for line in report.splitlines() if "rror" in line]
        raise TimingError(f"OpenSTA found no path: {lines[0] if lines else 'no error'}")
    cells = [kind for _, kind in _POINT.findall(report) if kind not in ("in", "out", FLIP_FLOP)]
    loops = re.search(r"(\d+) combinational loop", report)
    return {
        "start": start[1],
        "end": end[1],
        "nanoseconds": round(PERIOD - float(slack[1]), 2),
        "cells": len(cells),
        "loops": int(loops[1]) if loops else 0,
    }
