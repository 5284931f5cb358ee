"""Clocks of their own for groups of blocks, in Verilog: an edge is left out where nothing would change.

`rtl.core.NpuCore` says ahead of each clock edge which groups need it (rtl/clock_groups.py).  Here the
instances of each group get a bit of a new input `clk_gates` of the core in place of `clk`; the harness
raises the bits of those groups that need the edge together with `clk`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cosim.engines.errors import BuildError

CLOCKS = "clk_gates"
"""Input of the core: a clock for each group, in their order."""

Groups = Mapping[str, Sequence[str]]
"""Name of a group to the paths of its instances, below the top module."""


class _Modules:
    """Verilog cut into its modules."""

    def __init__(self, text: str) -> None:
        self.parts = re.split(r"(?<=\nendmodule)\n", text)
        self._at: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            found = re.search(r"^module (\\\S+|\w+) ?\(", part, re.MULTILINE)
            if found:
                self._at[found[1]] = number

    def find(self, module: str, pattern: str) -> re.Match[str]:
        """The first match of `pattern` in a module."""
        found = re.search(pattern, self.parts[self._at[module]])
        if found is None:
            raise BuildError(f"the Verilog of module {module} has nothing like {pattern!r}: clocks not gated")
        return found

    def change(self, module: str, pattern: str, by: str) -> None:
        """Replace the first match of `pattern` in a module."""
        found, number = self.find(module, pattern), self._at[module]
        part = self.parts[number]
        self.parts[number] = part[: found.start()] + found.expand(by) + part[found.end() :]

    def text(self) -> str:
        return "\n".join(self.parts)


def gate_clocks(text: str, top: str, groups: Groups) -> str:
    """Give the instances of each group their bit of `clk_gates`.

    Raises
    ------
    BuildError
        if the Verilog has no such instance, or one without a clock.
    """
    modules = _Modules(text)
    extended: set[str] = set()

    def extend(module: str) -> None:
        if module not in extended:
            extended.add(module)
            ports = rf"\1{CLOCKS}, \2\n  input [{len(groups) - 1}:0] {CLOCKS};\n"
            modules.change(module, r"(module (?:\\\S+|\w+) ?\()([^;]*;)\n", ports)

    extend(top)
    for bit, paths in enumerate(groups.values()):
        for path in paths:
            parent = top
            *above, last = path.split(".")
            for name in above:
                child = modules.find(parent, _instance(name))[2]
                if child not in extended:
                    extend(child)
                    modules.change(parent, _instance(name), rf"\g<1>    .{CLOCKS}({CLOCKS}),\n")
                parent = child
            modules.change(parent, _instance(last) + r"([^;]*?    \.clk\()[^)]*\)", rf"\1\3{CLOCKS}[{bit}])")
    return modules.text()


def _instance(name: str) -> str:
    """Pattern of an instance's first lines; Amaranth adds a number to a name that a signal has, too."""
    return rf"(\n  (\\\S+|\w+) +\\?{re.escape(name)}(?:\$\d+)? +\(\n)"
