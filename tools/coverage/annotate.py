"""What is counted in the generated Verilog: branches with statements, and signals where they are driven."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.coverage.statements import MARK

OURS = "rtl/"
"""Folder of the sources that are counted; Amaranth's library is not."""


@dataclass(frozen=True)
class Signal:
    """A signal of a module, where it is driven.

    Members
    -------
    module : module of the Verilog; equal modules of the RTL are one module.
    name : its name there.
    place : "file:line" of its declaration in the sources.
    bits : numbers of the bits that are counted: those that are computed here, and not constant or another
        signal's.
    line : line of the declaration in the Verilog.
    """

    module: str
    name: str
    place: str
    bits: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class Annotated:
    """The Verilog for Verilator, and what is counted in it.

    Members
    -------
    text : the Verilog, in which the marks have their positions as comments, and signals that are not counted
        are excluded from the toggle coverage.
    statements : name of a branch and positions of its statements, by a line of the Verilog in that branch.
    signals : the signals that are counted.
    """

    text: str
    statements: dict[int, tuple[str, tuple[str, ...]]]
    signals: list[Signal]


def annotate(text: str, places: Sequence[Sequence[str]]) -> Annotated:
    """Find statements and signals in Verilog with marks.

    Parameters
    ----------
    text : Verilog with the attributes `src`, made of RTLIL with marks (`tools.coverage.statements`).
    places : positions by number of the mark.
    """
    lines = text.split("\n")
    modules = list(_modules(lines))
    outputs = {module.name: module.outputs() for module in modules}
    statements: dict[int, tuple[str, tuple[str, ...]]] = {}
    name, count = "", 0
    for number, line in enumerate(lines):
        if begin := _MODULE.match(line):
            name, count = begin[1], 0
        if found := _MARK.match(line):
            ours = tuple(place for place in places[int(found[2])] if place.startswith(OURS))
            count += 1
            if ours:
                statements[number + 1] = (f"{name}:{count}", ours)
            lines[number] = f"{line}  // src = {'|'.join(ours)}"
    signals = []
    for module in modules:
        counted = list(module.signals(outputs))
        signals += counted
        names = {signal.name for signal in counted}
        for number, name in module.declared:
            if name not in names:
                lines[number] = f"/*verilator coverage_off*/{lines[number]}/*verilator coverage_on*/"
    return Annotated("\n".join(lines), statements, signals)


_MODULE = re.compile(r"^module (\w+)\(")
_MARK = re.compile(rf"^( +){MARK}_(\d+)_\d+ = 1'h1;$")
_SOURCE = re.compile(r'^  \(\* src = "([^"]*)" \*\)$')
_DECLARED = re.compile(r"^  (input|output|wire|reg) (?:\[(\d+):(\d+)\] )?(\w+)( \[\d+:\d+\])?(?: = .*)?;$")
_INSTANCE = re.compile(r"^  (\w+) \w+ \($")
_CONNECTION = re.compile(r"^    \.(\w+)\((.*)\),?$")
_ASSIGN = re.compile(r"^  assign (\w+)(?:\[(\d+)(?::(\d+))?\])? = (.*);$")
_STORED = re.compile(r"^ +(\w+)(?:\[(\d+)(?::(\d+))?\])? (?:=|<=) (.*);$")
_CONSTANT = re.compile(r"^(\d+)'([bdh])([0-9a-fxz_]+)$")
_WORD = re.compile(r"(?<![\w'])[a-zA-Z]\w*")


@dataclass
class _Module:
    name: str
    first: int
    lines: list[str]

    def __post_init__(self) -> None:
        self.declared: list[tuple[int, str]] = []  # line number from 0, name
        self.places: dict[str, tuple[str, int]] = {}
        self.widths: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.memories: set[str] = set()
        source = ""
        for offset, line in enumerate(self.lines):
            if found := _SOURCE.match(line):
                source = found[1]
                continue
            if found := _DECLARED.match(line):
                kind, high, low, name, rows = found.groups()
                self.declared.append((self.first + offset, name))
                self.widths[name] = int(high) - int(low) + 1 if high else 1
                self.kinds.setdefault(name, kind)
                if rows:
                    self.memories.add(name)
                if source:
                    self.places[name] = (source, self.first + offset + 1)
            if not line.startswith("  (*"):
                source = ""

    def outputs(self) -> set[str]:
        return {name for name, kind in self.kinds.items() if kind == "output"}

    def signals(self, outputs: dict[str, set[str]]) -> Iterator[Signal]:
        """Yield the signals that this module drives."""
        below = self._driven_below(outputs)
        moving = self._moving_bits()
        for name, (source, line) in self.places.items():
            place = source.split("|")[0]
            if not place.startswith(OURS) or name.startswith("_") or name in below | self.memories:
                continue
            if self.kinds[name] == "input":
                continue
            bits = moving.get(name, set())
            if bits:
                yield Signal(self.name, name, place, tuple(sorted(bits)), line)

    def _driven_below(self, outputs: dict[str, set[str]]) -> set[str]:
        found: set[str] = set()
        ports: set[str] = set()
        for line in self.lines:
            if instance := _INSTANCE.match(line):
                ports = outputs.get(instance[1], set())
            elif (connection := _CONNECTION.match(line)) and connection[1] in ports:
                found.update(_WORD.findall(connection[2]))
        return found

    def _moving_bits(self) -> dict[str, set[int]]:
        """Return the bits that are computed here, by signal."""
        found: dict[str, set[int]] = {}
        for line in self.lines:
            match = _ASSIGN.match(line)
            stored = None if match else _STORED.match(line)
            if match is None and stored is None:
                continue
            name, high, low, value = (match or stored).groups()  # type: ignore[union-attr]
            if name not in self.widths:
                continue
            first = int(low or high or 0)
            width = int(high) - first + 1 if high else self.widths[name]
            bits = found.setdefault(name, set())
            if stored:  # a branch: a constant there is a change
                bits.update(range(first, first + width))
            else:
                bits.update(first + bit for bit in self._computed(value, width))
        return found

    def _computed(self, value: str, width: int) -> Iterator[int]:
        """Yield the numbers of the bits of a value that are neither constant nor only another signal's."""
        parts = value[2:-2].split(", ") if value.startswith("{ ") and value.endswith(" }") else [value]
        at = 0
        for part in reversed(parts):
            if constant := _CONSTANT.match(part):
                at += int(constant[1])
                continue
            name, size = self._part(part)
            if size is None:  # an expression
                yield from range(at, width)
                return
            if name.startswith("_"):  # the output of a cell without a name
                yield from range(at, min(at + size, width))
            at += size

    def _part(self, part: str) -> tuple[str, int | None]:
        """Return name and width of a signal or a part of one; no width for an expression."""
        found = _PART.match(part)
        if not found or found[1] not in self.widths:
            return "", None
        if found[2] is None:
            return found[1], self.widths[found[1]]
        return found[1], int(found[2]) - int(found[3] or found[2]) + 1


_PART = re.compile(r"^(\w+)(?:\[(\d+)(?::(\d+))?\])?$")


def _modules(lines: Sequence[str]) -> Iterator[_Module]:
    first, name = 0, ""
    for number, line in enumerate(lines):
        if found := _MODULE.match(line):
            first, name = number, found[1]
        elif line == "endmodule":
            yield _Module(name, first, list(lines[first:number]))
