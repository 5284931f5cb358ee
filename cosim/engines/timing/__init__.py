"""The timing model: the part of a core that determines its cycles, as C++ that follows changes.

With its data, the same program is the whole core (the engine "changes").

cone : which bits of the netlist determine cycles.
nodes : the netlist as small pieces of combinational logic, registers and memories.
clusters : pieces that are evaluated together.
branches : pieces that only one case of a choice needs.
state : the structure of the program's state.
expressions, functions : the C++ of terms and nodes, and of clusters.
cpp : the C++ program.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

__all__ = ["fingerprint", "write"]


def write(elaboratable: Any, folder: Path, *, data: bool = False) -> list[Path]:
    """Write the timing model of a core into `folder` as C++, and return the source files.

    Parameters
    ----------
    elaboratable : component with the ports of `rkcosim.rtl.core.NpuCore`.
    data : write the whole core, with its array cell in C++.

    Raises
    ------
    BuildError
        if its netlist has something that the timing model does not know.
    """
    from rkcosim.engines import quick_rtlil
    from rkcosim.engines.timing.cone import timing_netlist
    from rkcosim.engines.timing.cpp import write_program
    from rkcosim.engines.timing.nodes import program_of

    with quick_rtlil.quickly():
        return write_program(program_of(timing_netlist(elaboratable, "core", data=data)), folder)


def fingerprint() -> bytes:
    """Return a hash of the sources of this package, which determine the model besides the design."""
    paths = (path for path in Path(__file__).parent.iterdir() if path.suffix in (".py", ".h"))
    texts = (path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(b"".join(texts)).digest()
