"""The core as anybody would compile it: `rkcosim verilog` and Verilator, both as they come.

A reference point for `rkcosim bench`.  None of what makes the other engines fast is in it: no clock
gates, no registers before the inputs, no C++ cell, no options of Verilator, no `-march=native`.  Harness
and memory model are the same ones, compiled as always.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cosim.engines import toolchain, verilog

TOP = "npu_core"
VERILATOR_FLAGS = ("--cc", "--top-module", TOP, "--prefix", "Vcore", "-Wno-fatal")
"""Nothing but what names the model: optimisation levels are Verilator's defaults."""

OPT_FAST = OPT_GLOBAL = "-Os"
OPT_SLOW = "-O0"
"""Of the makefile that Verilator brings (verilated.mk; no level at all is -O0)."""


@dataclass(frozen=True)
class Generated:
    """A C++ file and the level it is compiled at."""

    path: Path
    optimise: str


def fingerprint() -> bytes:
    """Hash of what a library depends on beside the design: the exporter, the flags."""
    import cosim.export

    digest = hashlib.sha256(" ".join([*VERILATOR_FLAGS, OPT_FAST, OPT_SLOW]).encode())
    for path in sorted(Path(next(iter(cosim.export.__path__))).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def generate(design: verilog.Design, tool: toolchain.Tool, work: Path) -> list[Generated]:
    """Write a design's Verilog into `work` and its C++ into `work/obj`."""
    from cosim.export.export import verilog_text  # slow to import

    text = verilog_text(design.make(external_cell=False), TOP)
    (work / f"{TOP}.v").write_text(text)
    tool.run([*VERILATOR_FLAGS, "--Mdir", "obj", f"{TOP}.v"], work)
    files = sorted((work / "obj").glob("*.cpp"))
    return [Generated(path, OPT_SLOW if path.stem.endswith("__Slow") else OPT_FAST) for path in files]
