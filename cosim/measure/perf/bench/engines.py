"""The engines that are compared, the way each is opened, and the flags it was built with."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rkcosim.engines import build, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.cache import Progress, say
from rkcosim.engines.engine import open_engine
from rkcosim.engines.fast import CELL
from rkcosim.engines.protocol import CHANGES, FAST
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source
from rkcosim.measure.perf.workloads import MEMORY
from rkcosim.spec.config import RK3588

BOUND = "bound"
"""Name of the program that only does the multiply-accumulates."""

BOUND_FLAGS = ("-std=c++17", "-O3", "-march=native")
BOUND_CYCLES = 10_000_000


@dataclass(frozen=True)
class Contender:
    """An engine in the comparison.

    Members
    -------
    name : name on the command line and in the rows.
    title : description for people.
    flags : compiler flags.
    open : opens it with one core, and builds it first if it is not in the cache.  The bound has none.
    slow : opening it takes long, so one instance is used for all workloads.
    """

    name: str
    title: str
    flags: str
    open: Callable[[Progress], SocEngine]
    slow: bool = False


def _open(
    name: Literal["verilator", "cxxrtl", "amaranth", "changes", "fast"], exact: bool = False
) -> Callable[[Progress], SocEngine]:
    return lambda progress: open_engine(name, exact=exact, cores=1, dram=MEMORY, threads=1, progress=progress)


def open_plain(progress: Progress = say, design: Any = None) -> SocEngine:
    """Open the core as plain Verilog in Verilator with its usual flags (`rkcosim.engines.build.PLAIN_FLAGS`).

    Parameters
    ----------
    design : another core, as for `rkcosim.engines.open_engine`.
    """
    described = verilog.npu_design(RK3588) if design is None else verilog.as_design(design)
    variant = Variant("plain")
    source = Source(lambda traced: build.build(described, variant, progress))
    return SocEngine("plain", variant.cell, source, cores=1, dram=MEMORY, threads=1)


def _flags(engine: str, cell: str = "rtl") -> str:
    words = build.flags_in_words(Variant(engine, cell))
    return f"{words}, the cell -O3" if cell == "cpp" else words


SIMULATOR = "Amaranth's simulator"
_CELL, _EXACT = "array cell in C++", "array cell as RTL"

ENGINES: dict[str, Contender] = {
    name: Contender(name, title, flags, opened, slow=title == SIMULATOR)
    for name, title, flags, opened in (
        (
            "verilator",
            f"default: Verilator, {_CELL}, clock gates",
            _flags("verilator", "cpp"),
            _open("verilator", False),
        ),
        (
            "verilator-exact",
            f"`--exact`: Verilator, {_EXACT}",
            f"{_flags('verilator')}, float parts -O1",
            _open("verilator", True),
        ),
        (FAST, "`--fast`: the timing model alone, without bytes", _flags("timing", CELL), _open(FAST)),
        (CHANGES, f"the RTL as C++ that follows changes, {_CELL}", _flags("timing", "cpp"), _open(CHANGES)),
        ("plain", "plain Verilog in Verilator at its usual flags", _flags("plain"), open_plain),
        ("cxxrtl", f"CXXRTL, {_CELL}", _flags("cxxrtl", "cpp"), _open("cxxrtl", False)),
        ("cxxrtl-exact", f"CXXRTL, {_EXACT}", _flags("cxxrtl"), _open("cxxrtl", True)),
        ("amaranth", SIMULATOR, "none", _open("amaranth", True)),
    )
}
"""The engines by name, the fastest first."""

DEFAULT_ENGINES = tuple(name for name in (*ENGINES, BOUND) if name != "cxxrtl-exact")
"""All engines but CXXRTL with the cell's RTL, which takes very long to build."""


def bound_rate(progress: Progress = say) -> float:
    """Return the cycles per second of the multiply-accumulates alone, in processor time of one thread.

    Raises
    ------
    BuildError
        If there is no compiler.
    """
    progress("compiling the bound")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("bound.cpp")
        toolchain.compiler().run([*BOUND_FLAGS, str(source), "-o", "bound"], folder)
        command = [os.fspath(folder / "bound"), str(BOUND_CYCLES)]
        rates = []
        for _ in range(3):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rates.append(float(done.stdout.split()[0]))
    return max(rates)
