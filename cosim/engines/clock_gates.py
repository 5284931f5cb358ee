"""Clocks of their own for groups of blocks, in Verilog: an edge is left out where nothing would change.

`rtl.core.NpuCore` says ahead of each clock edge which groups need it (rtl/clock_groups.py).  Here the
instances of each group get a bit of a new input `clk_gates` of the core in place of `clk`; the harness
raises the bits of those groups that need the edge together with `clk`.

`watch_clocks` is the check of that: all keep their clock, and a register that changes while its group is
said to sleep is named on the output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

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


def watch_clocks(text: str, top: str, groups: Groups) -> str:
    """Let every register and memory of a group tell when it changes although the group need not be awake.

    The line is "asleep: ", the group, the cell; `awake` is found in `core_top`.
    """
    parts = _Modules(text).parts
    names = list(groups)
    places = sorted(
        ((path, group) for group, paths in groups.items() for path in paths), key=lambda p: -len(p[0])
    )
    for number, part in enumerate(parts):
        header = re.search(r"^module (\\\S+|\w+) ?\(", part, re.MULTILINE)
        if header is None:
            continue
        path = re.sub(r"\$\d+", "", header[1].removeprefix("\\"))
        found = [group for place, group in places if f"{path}.".startswith(f"{top}.{place}.")]
        if found:
            awake = f"{top}_top.{top}.awake[{names.index(found[0])}]"
            parts[number] = _CLOCKED.sub(partial(_watched, awake=awake, group=found[0]), part)
    return "\n".join(parts)


_CLOCKED = re.compile(r"  always @\(posedge clk\)(?: begin\n(?:    .*\n)*  end|\n    [^;]*;)")
_ASSIGNED = re.compile(r"(^ +)((?:\\\S+ ?|\w+)(?:\[[^;]*?\])*) <= ([^;]*);", re.MULTILINE)


def _watched(block: re.Match[str], awake: str, group: str) -> str:
    """A block of Yosys's Verilog with a copy of it that compares where the block assigns."""

    def compare(assigned: re.Match[str]) -> str:
        indent, target, value = assigned.groups()
        name = target.strip().replace("\\", "")
        changes = f"!{awake} && {target} !== ({value})"
        return f'{indent}if ({changes}) $display("asleep: {group} %m {name}");'

    return f"{block[0]}\n{_ASSIGNED.sub(compare, block[0])}"


_ROOT = "Vcore___024root"
_TRIGGERS = (
    "VlUnpacked<QData/*63:0*/, 1> __VactTriggered;",
    "VlUnpacked<QData/*63:0*/, 1> __VnbaTriggered;",
    f"void {_ROOT}___eval_triggers_vec__act({_ROOT}* vlSelf) {{",
    f"void {_ROOT}___eval_nba({_ROOT}* vlSelf) {{",
)


def sets_triggers(folder: Path) -> bool:
    """Whether Verilator's output is of the form whose triggers the harness can set itself.

    That is (verilator_model.h) one word of triggers, one function that computes them, one that acts on
    them, and nothing else that an edge or a pin makes it evaluate.
    """
    texts = [path.read_text() for path in folder.glob(f"{_ROOT}*") if path.suffix in (".h", ".cpp")]
    return all(any(line in text for text in texts) for line in _TRIGGERS) and not any(
        "___eval_ico(" in text or "___eval_phase__ico(" in text for text in texts
    )


def _instance(name: str) -> str:
    """Pattern of an instance's first lines; Amaranth adds a number to a name that a signal has, too."""
    return rf"(\n  (\\\S+|\w+) +\\?{re.escape(name)}(?:\$\d+)? +\(\n)"
