"""The modules of a design: their texts in RTLIL, their places in the hierarchy, and parts that are equal.

The core is too large to be synthesised as a whole. Each module is synthesised by itself, its submodules being
black boxes, and what a module needs is multiplied by the number of its instances.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

_PORT = re.compile(r"^  wire (?:width (\d+) )?(input|output|inout) (\d+) +\\(\S+)$", re.MULTILINE)
_CELL = re.compile(r"^ +cell (\S+) \S+\n", re.MULTILINE)
_CHILD = re.compile(r"^ +cell \\(\S+) \\(\S+)$", re.MULTILINE)
_MEMORY = re.compile(r"^ +memory (?:width (\d+) )?size (\d+) \\(\S+)$", re.MULTILINE)
_MEMORY_PORT = re.compile(r"^ +cell \$mem(rd|wr)_v2 \S+\n((?:    .*\n)*)", re.MULTILINE)
_OPERATOR = re.compile(
    r"^  cell \$(mul|add) (\S+)\n((?:    parameter .*\n)+)((?:    connect .*\n)+)  end\n", re.MULTILINE
)
_PARAMETER = re.compile(r"^    parameter (?:signed )?\\(\w+) (\S+)$", re.MULTILINE)
_CONSTANT = re.compile(r"\d+'[01xz]")
_SOURCE = re.compile(r'^attribute \\src "([^"]*)"$', re.MULTILINE)

ALIKE_BYTES = 100_000
"""Modules with shorter texts are synthesised even if they are alike."""


@dataclass(frozen=True)
class MemoryUse:
    """A memory of a module.

    Members
    -------
    name, width, depth : its name, bits of a row and number of rows.
    reads, writes : number of ports.
    asynchronous : read ports whose data follow the address in the same cycle.
    """

    name: str
    width: int
    depth: int
    reads: int
    writes: int
    asynchronous: int

    @property
    def bits(self) -> int:
        """Number of bits."""
        return self.width * self.depth


@dataclass(frozen=True)
class Unit:
    """A module of RTLIL.

    Members
    -------
    name : name of the module.
    text : its text in RTLIL, from its attributes to `end`.
    """

    name: str
    text: str = field(repr=False)

    @cached_property
    def ports(self) -> Sequence[tuple[str, str, int]]:
        """Name, direction and width of each port."""
        return [(name, way, int(width or 1)) for width, way, _, name in _PORT.findall(self.text)]

    @cached_property
    def children(self) -> Counter[str]:
        """Number of instances of each submodule."""
        return Counter(kind for kind, _ in _CHILD.findall(self.text))

    @cached_property
    def cells(self) -> Counter[str]:
        """Number of operators and registers of each type, with whole words as one."""
        return Counter(kind for kind in _CELL.findall(self.text) if kind.startswith("$"))

    @cached_property
    def source(self) -> str:
        """The source file of the module, or nothing."""
        found = _SOURCE.search(self.text.partition("\nmodule ")[0])
        return found[1].rpartition(":")[0] if found else ""

    @cached_property
    def memories(self) -> Sequence[MemoryUse]:
        """The memories with the numbers of their ports."""
        counts: dict[str, Counter[str]] = {}
        for way, body in _MEMORY_PORT.findall(self.text):
            parameters = dict(_PARAMETER.findall(body))
            count = counts.setdefault(parameters["MEMID"].strip('"').lstrip("\\"), Counter())
            count[way] += 1
            count["asynchronous"] += way == "rd" and parameters["CLK_ENABLE"] in ("0", "1'0")
        found = []
        for width, size, name in _MEMORY.findall(self.text):
            count = counts.get(name, Counter())
            ports = (count["rd"], count["wr"], count["asynchronous"])
            found.append(MemoryUse(name, int(width or 1), int(size), *ports))
        return found

    def stub(self) -> str:
        """Return the module as a black box."""
        ports = "".join(
            f"  wire width {width} {way} {place} \\{name}\n"
            for place, (name, way, width) in enumerate(self.ports)
        )
        return f"attribute \\blackbox 1\nmodule \\{self.name}\n{ports}end\n"

    def alike(self, other: Unit) -> bool:
        """Whether another module has the same source, ports and number of operators of each type."""
        return (
            self.source == other.source
            and self.ports == other.ports
            and self.children == other.children
            and self.cells == other.cells
        )


class Hierarchy:
    """The modules of a design below a top module.

    Parameters
    ----------
    rtlil : text of all modules; equal modules exist once.
    top : name of the top module.

    Members
    -------
    units : the modules by name.
    top : name of the top module.
    """

    def __init__(self, rtlil: str, top: str) -> None:
        self.top = top
        self.units: dict[str, Unit] = {}
        self._representatives: dict[str, str] = {}
        for part in rtlil.split("\nend\n")[:-1]:
            found = re.search(r"^module \\(\S+)$", part, re.MULTILINE)
            if found is None:
                raise ValueError("the text is not RTLIL: a part has no module")
            self.units[found[1]] = Unit(found[1], f"{part.lstrip()}\nend\n")
        if top not in self.units:
            raise ValueError(f"the text has no module {top}")

    def instances(self, top: str | None = None) -> Counter[str]:
        """Number of instances of each module below one (by default the top), itself included."""
        counts: Counter[str] = Counter()
        counts[top or self.top] = 1
        for name in self.below(top or self.top):
            for child, times in self.units[name].children.items():
                counts[child] += counts[name] * times
        return counts

    def below(self, top: str) -> Sequence[str]:
        """The modules below one, itself first, parents before their children."""
        done: list[str] = []

        def visit(name: str) -> None:
            if name not in done:
                for child in self.units[name].children:
                    visit(child)
                done.append(name)

        visit(top)
        return done[::-1]

    def source(self, *names: str) -> str:
        """The modules that are needed to read some: themselves, and other submodules as black boxes."""
        children = {child for name in names for child in self.units[name].children} - set(names)
        stubs = "".join(self.units[child].stub() for child in sorted(children))
        return stubs + "".join(self.units[name].text for name in names)

    def representative(self, name: str) -> str:
        """The first module that is alike; the module itself if there is none, or if it is small."""
        unit = self.units[name]
        if len(unit.text) < ALIKE_BYTES:
            return name
        if name not in self._representatives:
            alike = next(other.name for other in self.units.values() if unit.alike(other))
            self._representatives[name] = alike
        return self._representatives[name]


def divided(text: str, prefix: str) -> tuple[str, Mapping[str, str]]:
    """Make each multiplication and addition of two variables in a module an instance of a module.

    Many of them are equal, and each kind is then synthesised once.

    Parameters
    ----------
    text : the module, behind `wreduce`, without processes.
    prefix : begins the names of the new modules.

    Returns
    -------
    str, mapping
        The module with instances, and the new modules by their names.
    """
    made: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        kind, name, parameters, connects = found.groups()
        if any(_CONSTANT.search(line) for line in connects.splitlines() if "\\Y" not in line):
            return found[0]
        given = dict(_PARAMETER.findall(parameters))
        sign = "s" if given["A_SIGNED"] != "0" else "u"
        widths = [int(given[f"{port}_WIDTH"]) for port in "ABY"]
        module = f"{prefix}_{kind}_{sign}{'_'.join(map(str, widths))}"
        made.setdefault(module, _operator(module, kind, parameters, widths))
        return f"  cell \\{module} \\{_plain(name)}\n{connects}  end\n"

    return _OPERATOR.sub(replace, text), made


def _plain(name: str) -> str:
    return "op_" + re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")


def _operator(module: str, kind: str, parameters: str, widths: Sequence[int]) -> str:
    a, b, y = widths
    return (
        f"module \\{module}\n"
        f"  wire width {a} input 0 \\A\n  wire width {b} input 1 \\B\n  wire width {y} output 2 \\Y\n"
        f"  cell ${kind} ${kind}\n{parameters}"
        "    connect \\A \\A\n    connect \\B \\B\n    connect \\Y \\Y\n  end\nend\n"
    )
