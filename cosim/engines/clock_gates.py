"""A clock per group of blocks, in Verilog: an edge is skipped if it would change nothing.

`add_awake` adds an output `awake` to the core, which says before each clock edge which groups need the edge
(rkcosim.engines.clock_groups). `gate_clocks` connects the instances of each group to their bit of a new input
`clk_gates` instead of `clk`; the harness raises the bits of the groups that need the edge together with
`clk`.

`watch_clocks` checks the causes: all blocks keep their clock, and a register that changes while its group
sleeps is reported on the output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rkcosim.engines.clock_groups import CONTROL, ClockGroup
from rkcosim.engines.protocol import BuildError

CLOCKS = "clk_gates"
"""Input of the core: one clock per group, in the order of the groups."""

Groups = Mapping[str, ClockGroup]
"""The groups of a design by name."""


class _Modules:
    """A Verilog text, divided into its modules."""

    def __init__(self, text: str) -> None:
        self.parts = re.split(r"(?<=\nendmodule)\n", text)
        self._at: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            found = re.search(r"^module (\\\S+|\w+) ?\(", part, re.MULTILINE)
            if found:
                self._at[found[1]] = number

    def part(self, module: str) -> str:
        """Return the text of a module; raises BuildError if there is none."""
        if module not in self._at:
            raise BuildError(f"the Verilog has no module {module}: it was cut, or is of another design")
        return self.parts[self._at[module]]

    def find(self, module: str, pattern: str) -> re.Match[str]:
        """Return the first match of `pattern` in a module; raises BuildError if there is none."""
        found = re.search(pattern, self.part(module))
        if found is None:
            raise BuildError(
                f"the Verilog of module {module} has no match of {pattern!r}: its clocks cannot be gated"
            )
        return found

    def change(self, module: str, pattern: str, by: str) -> None:
        """Replace the first match of `pattern` in a module."""
        found, number = self.find(module, pattern), self._at[module]
        part = self.parts[number]
        self.parts[number] = part[: found.start()] + found.expand(by) + part[found.end() :]

    def add_ports(self, module: str, names: str, declaration: str) -> None:
        """Add ports to a module, in front of the existing ones."""
        header = r"(module (?:\\\S+|\w+) ?\()([^;]*;)\n"
        self.change(module, header, rf"\1{names}, \2\n  {declaration}\n")

    def reference(self, module: str, path: str) -> str:
        """Return the hierarchical Verilog name, seen from `module`, of a signal named by its path."""
        *above, last = path.split(".")
        names = []
        for instance in above:
            found = self.find(module, _instance(instance))
            module = found[2]
            names.append(found[3])
        # A port keeps its name; Amaranth numbers other signals whose name is already used.
        part = self.part(module)
        signals = set(re.findall(rf"\n  (?:input|output) (?:\[[^]]*\] )?({last});", part))
        if not signals:
            signals = set(re.findall(rf"\n  (?:wire|reg) (?:\[[^]]*\] )?(\\?{last}(?:\$\d+)? ?)[ ;=]", part))
        if len(signals) != 1:
            raise BuildError(
                f"the Verilog of module {module} has {len(signals)} signals named {last}, not one"
            )
        names.append(signals.pop())
        return ".".join(names)

    def text(self) -> str:
        return "\n".join(self.parts)


_PATH = re.compile(r"[A-Za-z_][\w.]*")


def add_awake(text: str, top: str, groups: Groups) -> str:
    """Add the output `awake` to the top module: one bit per group, high if it needs the next clock edge.

    The group `CONTROL` wakes all others but those that have `with_control` off.

    Raises
    ------
    BuildError
        if a cause names a signal that is not in the Verilog.
    """
    modules = _Modules(text)
    lines = ["  // verilator tracing_off"]
    for name, group in groups.items():
        causes = [_PATH.sub(lambda path: modules.reference(top, path[0]), cause) for cause in group.causes]
        if name != CONTROL and CONTROL in groups and group.with_control:
            causes.insert(0, f"awake_{CONTROL}")
        lines += [
            f"  reg [{group.linger.bit_length() - 1}:0] left_{name} = {group.linger};",
            f"  wire cause_{name} = {' | '.join(causes)};",
            f"  wire awake_{name} = cause_{name} | (left_{name} != 0);",
            "  always @(posedge clk)",
            f"    if (rst | cause_{name}) left_{name} <= {group.linger};",
            f"    else if (left_{name} != 0) left_{name} <= left_{name} - 1;",
        ]
    lines.append(f"  assign awake = {{{', '.join(f'awake_{name}' for name in reversed(list(groups)))}}};")
    lines.append("  // verilator tracing_on")
    modules.add_ports(top, "awake", f"output [{len(groups) - 1}:0] awake;")
    modules.change(top, r"\nendmodule$", "\n".join(["", *lines, "endmodule"]).replace("\\", r"\\"))
    return modules.text()


def gate_clocks(text: str, top: str, groups: Groups) -> str:
    """Connect the instances of each group to their bit of `clk_gates`.

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
            modules.add_ports(module, CLOCKS, f"input [{len(groups) - 1}:0] {CLOCKS};")

    extend(top)
    for bit, group in enumerate(groups.values()):
        for path in group.blocks:
            parent = top
            *above, last = path.split(".")
            for name in above:
                child = modules.find(parent, _instance(name))[2]
                if child not in extended:
                    extend(child)
                    modules.change(parent, _instance(name), rf"\g<1>    .{CLOCKS}({CLOCKS}),\n")
                parent = child
            modules.change(parent, _instance(last) + r"([^;]*?    \.clk\()[^)]*\)", rf"\1\4{CLOCKS}[{bit}])")
    return modules.text()


def watch_clocks(text: str, top: str, groups: Groups) -> str:
    """Report every register and memory of a group that changes although the group is not awake.

    The line consists of "asleep: ", the group and the cell; `awake` (`add_awake`) is found in `core_top`.
    """
    parts = _Modules(text).parts
    names = list(groups)
    places = sorted(
        ((path, name) for name, group in groups.items() for path in group.blocks), key=lambda p: -len(p[0])
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
    """Return a block of Yosys's Verilog and a copy of it that compares where the block assigns."""

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
    """Return whether the triggers in Verilator's output have the form that the harness can set.

    The form is (verilator_model.h): one word of triggers, one function that computes them, one that acts on
    them, and no other code that an edge or a pin makes it evaluate.
    """
    texts = [path.read_text() for path in folder.glob(f"{_ROOT}*") if path.suffix in (".h", ".cpp")]
    return all(any(line in text for text in texts) for line in _TRIGGERS) and not any(
        "___eval_ico(" in text or "___eval_phase__ico(" in text for text in texts
    )


def _instance(name: str) -> str:
    """Return a pattern of an instance's first lines (1), with its module (2) and its Verilog name (3).

    Amaranth also adds a number to a name that is used by a signal.
    """
    return rf"(\n  (\\\S+|\w+) +(\\?{re.escape(name)}(?:\$\d+)? ) *\(\n)"
