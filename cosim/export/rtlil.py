"""The RTLIL text that Amaranth writes, as objects.

Only what Amaranth writes is understood (one statement a line, names without blanks); anything else is an
`ExportError` and never guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class ExportError(ValueError):
    """A design that cannot be written as Verilog; the text says which construct of which module."""


class Ref(NamedTuple):
    """Bits `high` down to `low` of a wire."""

    name: str
    high: int
    low: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1


Chunk: TypeAlias = Ref | str  # a string is a constant, its digits with the highest bit first
Bits: TypeAlias = tuple[Chunk, ...]  # highest chunk first


def width_of(bits: Bits) -> int:
    """Number of bits."""
    return sum(len(chunk) if isinstance(chunk, str) else chunk.width for chunk in bits)


@dataclass
class Wire:
    """A wire; `direction` is "input", "output" or None, `init` the digits of a register's start."""

    name: str
    width: int
    direction: str | None = None
    init: str | None = None
    src: str = ""


@dataclass
class Cell:
    """An operator, register, memory port or instance; `kind` starts with `$` unless it is an instance."""

    kind: str
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, Bits] = field(default_factory=dict)
    src: str = ""

    def number(self, parameter: str) -> int:
        """A parameter that is a number."""
        text = self.parameters[parameter]
        return int(text.split("'")[1] or "0", 2) if "'" in text else int(text)


@dataclass
class Assign:
    """`target = value`."""

    target: Ref
    value: Bits


@dataclass
class Switch:
    """Take the body of the first case of which a pattern (digits and `-`) fits, or that has none."""

    value: Bits
    cases: list[tuple[list[str], list[Statement]]] = field(default_factory=list)


Statement: TypeAlias = Assign | Switch


@dataclass
class Process:
    """Assignments in order, the last one counts."""

    body: list[Statement]
    src: str = ""


@dataclass
class Module:
    """One module; `connects` are pairs of a wire's name and what it equals."""

    name: str
    wires: dict[str, Wire] = field(default_factory=dict)
    memories: dict[str, tuple[int, int]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    connects: list[tuple[str, Bits]] = field(default_factory=list)


_WIRE = re.compile(r"wire width (\d+)(?: (input|output) \d+)?\s+(?:signed\s+)?(\S+)$")


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = [line for raw in text.split("\n") if (line := raw.strip())]
        self._at = 0
        self._module = Module("")

    def _next(self) -> str:
        line = self._lines[self._at]
        self._at += 1
        return line

    def _fail(self, what: str) -> ExportError:
        return ExportError(f"module {self._module.name}: cannot read {what!r}")

    def modules(self) -> list[Module]:
        found = []
        while self._at < len(self._lines):
            line = self._next()
            if line.startswith("attribute "):
                continue
            if not line.startswith("module "):
                raise self._fail(line)
            self._module = Module(line[7:])
            self._read_module()
            found.append(self._module)
        return found

    def _read_module(self) -> None:
        module = self._module
        init: str | None = None
        src = ""
        while (line := self._next()) != "end":
            word = line.split(" ", 1)[0]
            if word == "attribute":
                if line.startswith("attribute \\init "):
                    init = line.rsplit("'", 1)[1]
                elif line.startswith("attribute \\src "):
                    src = line.split('"')[1]
                continue
            if word == "wire":
                found = _WIRE.match(line)
                if found is None:
                    raise self._fail(line)
                name = found[3]
                module.wires[name] = Wire(name, int(found[1]), found[2], init, src)
            elif word == "cell":
                module.cells.append(self._cell(line, src))
            elif word == "process":
                module.processes.append(Process(self._body(), src))
                self._at += 1  # its `end`
            elif word == "connect":
                name, value = line[8:].split(" ", 1)
                module.connects.append((name, self.bits(value)))
            elif word == "memory":
                _, _, width, _, size, name = line.split()
                module.memories[name] = (int(width), int(size))
            else:
                raise self._fail(line)
            init, src = None, ""

    def _cell(self, line: str, src: str) -> Cell:
        _, kind, name = line.split()
        cell = Cell(kind, name, src=src)
        while (line := self._next()) != "end":
            word, rest = line.split(" ", 1)
            name, value = rest.split(" ", 1)
            if word == "connect":
                cell.ports[name[1:]] = self.bits(value)
            elif word == "parameter" and name.startswith("\\"):
                cell.parameters[name[1:]] = value.strip('"').replace("\\\\", "\\")
            else:
                raise self._fail(line)
        return cell

    def _body(self) -> list[Statement]:
        """Statements up to the `end` or `case` that closes them, which stays."""
        body: list[Statement] = []
        while (line := self._lines[self._at]) != "end" and not line.startswith("case"):
            self._at += 1
            if line.startswith("assign "):
                target, value = self._two(line[7:])
                if len(target) != 1 or not isinstance(target[0], Ref):
                    if width_of(target) == 0:
                        continue
                    raise self._fail(line)
                body.append(Assign(target[0], value))
            elif line.startswith("switch "):
                switch = Switch(self.bits(line[7:]))
                while (line := self._next()) != "end":
                    if not line.startswith("case"):
                        raise self._fail(line)
                    patterns = [p.strip().split("'")[1] for p in line[4:].split(",") if p.strip()]
                    switch.cases.append((patterns, self._body()))
                body.append(switch)
            elif not line.startswith("attribute "):
                raise self._fail(line)
        return body

    def bits(self, text: str) -> Bits:
        tokens = text.split()
        value, rest = self._take(tokens)
        if rest:
            raise self._fail(text)
        return value

    def _two(self, text: str) -> tuple[Bits, Bits]:
        first, rest = self._take(text.split())
        second, rest = self._take(rest)
        if rest:
            raise self._fail(text)
        return first, second

    def _take(self, tokens: list[str]) -> tuple[Bits, list[str]]:
        if tokens[0] == "{}":
            return (), tokens[1:]
        if tokens[0] == "{":
            end = tokens.index("}")
            inner, rest = tokens[1:end], tokens[end + 1 :]
        else:
            end = 2 if len(tokens) > 1 and tokens[1][0] == "[" else 1
            inner, rest = tokens[:end], tokens[end:]
        chunks: list[Chunk] = []
        for token in inner:
            if token[0] == "[":
                last = chunks[-1]
                high, _, low = token[1:-1].partition(":")
                if not isinstance(last, Ref):
                    raise self._fail(token)
                chunks[-1] = Ref(last.name, int(high), int(low or high))
            elif token[0] in "\\$":
                wire = self._module.wires.get(token)
                if wire is None:
                    raise self._fail(token)
                if wire.width:
                    chunks.append(Ref(token, wire.width - 1, 0))
            else:
                digits = token.partition("'")[2]
                if digits:
                    chunks.append(digits)
        return tuple(chunks), rest


def parse(text: str) -> list[Module]:
    """Modules of an RTLIL text that Amaranth wrote, the top module first.

    Raises
    ------
    ExportError
        for anything that Amaranth is not known to write.
    """
    return _Parser(text).modules()
