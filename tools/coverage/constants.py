"""Bits that can never move: those that Yosys proves constant, whatever the inputs of their module are."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from rkcosim.engines import toolchain
from rkcosim.engines.protocol import BuildError

SCRIPT = (
    "read_verilog design.v",
    "proc -noopt",
    *(("opt_expr -fine", "opt_reduce -fine") * 2),
    "opt_expr -fine",
    "opt_clean",
    "delete */c:*",
    "write_json constants.json",
)
"""Constants are propagated through every operator, bit by bit, but not through registers or between modules.

No pass is used that changes what no reader of a signal sees, as `opt_muxtree` and `opt_expr -mux_undef` do.
"""

_SWITCHES = re.compile(r"/\*verilator coverage_o\w+\*/")


def constant_bits(text: str) -> dict[tuple[str, str], set[int]]:
    """Return the numbers of the bits that are constant, by module and signal.

    Parameters
    ----------
    text : Verilog.

    Raises
    ------
    BuildError
        if there is no Yosys, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="rkcosim-constants-") as name:
        folder = Path(name)
        (folder / "design.v").write_text(_SWITCHES.sub("", text))
        (folder / "constants.ys").write_text("\n".join(SCRIPT) + "\n")
        toolchain.yosys().run(["constants.ys"], folder)
        design = json.loads((folder / "constants.json").read_text())
    found: dict[tuple[str, str], set[int]] = {}
    for module, kept in design["modules"].items():
        for signal, net in kept["netnames"].items():
            constant = {number for number, bit in enumerate(net["bits"]) if bit in ("0", "1")}
            if constant:
                found[module, signal] = constant
    if not design["modules"]:
        raise BuildError("Yosys has read no module of the Verilog")
    return found
