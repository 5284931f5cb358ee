"""The engines that are compared, how each is opened, and at what flags it was built."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosim.engines import build, toolchain, verilog
from cosim.engines.build import Variant
from cosim.engines.cache import Progress, say
from cosim.engines.engine import open_engine
from cosim.engines.soc import SocEngine, Source

BOUND = "bound"
"""Name of the loop that does nothing but the multiply-accumulates."""

BOUND_FLAGS = ("-std=c++17", "-O3", "-march=native")
BOUND_CYCLES = 10_000_000


@dataclass(frozen=True)
class Contender:
    """An engine that takes part.

    Members
    -------
    name : as on the command line and in the rows.
    title : what it is, for people.
    flags : what it is compiled with.
    open : opens it with one core; builds it first where it is not in the cache.
    slow : opening it takes long as well, so that one is opened for all workloads.
    """

    name: str
    title: str
    flags: str
    open: Callable[[Progress], SocEngine]
    slow: bool = False


def _open(name: str, exact: bool) -> Callable[[Progress], SocEngine]:
    return lambda progress: open_engine(name, exact=exact, cores=1, threads=1, progress=progress)


def open_plain(progress: Progress = say, design: Any = None) -> SocEngine:
    """Open the core as plain Verilog in Verilator at its usual flags (`cosim.engines.plain_verilog`).

    Parameters
    ----------
    design : another core, as of `cosim.engines.open_engine`.
    """
    from rtl.config import RK3588

    described = verilog.npu_design(RK3588) if design is None else verilog.as_design(design)
    source = Source(lambda traced: build.build(described, Variant("plain"), progress))
    return SocEngine("plain", "rtl", source, cores=1, threads=1)


def _flags(engine: str, cell: str = "rtl") -> str:
    words = build.flags_in_words(Variant(engine, cell))
    return f"{words}, the cell -O3" if cell == "cpp" else words


ENGINES: dict[str, Contender] = {
    one.name: one
    for one in (
        Contender(
            "verilator",
            "default: Verilator, array cell in C++, clock gates",
            _flags("verilator", "cpp"),
            _open("verilator", False),
        ),
        Contender(
            "verilator-exact",
            "`--exact`: Verilator, array cell as RTL",
            f"{_flags('verilator')}, float parts -O1",
            _open("verilator", True),
        ),
        Contender("plain", "plain Verilog in Verilator at its usual flags", _flags("plain"), open_plain),
        Contender(
            "cxxrtl",
            "CXXRTL, array cell in C++",
            _flags("cxxrtl", "cpp"),
            _open("cxxrtl", False),
        ),
        Contender(
            "cxxrtl-exact",
            "CXXRTL, array cell as RTL",
            _flags("cxxrtl"),
            _open("cxxrtl", True),
        ),
        Contender("amaranth", "Amaranth's simulator", "none", _open("amaranth", True), slow=True),
    )
}
"""By name, the fastest first."""

DEFAULT_ENGINES = ("verilator", "verilator-exact", "plain", "cxxrtl", "amaranth", BOUND)
"""CXXRTL with the cell's RTL takes longer to build than anybody waits."""


def bound_rate(progress: Progress = say) -> float:
    """Cycles a second of the multiply-accumulates alone, in processor time of one thread.

    Raises
    ------
    BuildError
        without a compiler.
    """
    import subprocess

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
