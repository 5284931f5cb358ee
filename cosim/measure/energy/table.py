"""The table of energies: picojoules of each event in three levels, each with its sources.

`events.csv` has the energies as products of published numbers, so that each can be looked up where it was
published; `sources.csv` has the publications, `registers.csv` the flip-flops of the blocks.
"""

from __future__ import annotations

import ast
import csv
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Level = Literal["low", "typical", "high"]
LEVELS: tuple[Level, ...] = get_args(Level)

Kind = Literal["published", "derived", "assumed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FOLDER = Path(__file__).parent

VOLTS = 0.8
"""Supply at which energies of two processes are compared; 0.9 V for the published ones of 45 nm."""

NODES: Mapping[int, tuple[float, float, float]] = {
    45: (1.103, -0.362, 0.2767),
    14: (0.2363, -0.09675, 0.02239),
    10: (0.2068, -0.09311, 0.02375),
    7: (0.1776, -0.09097, 0.02447),
}
"""Process in nm -> coefficients of the energy of an operation over the supply (`stillmaker2017`, table 5)."""


def relative_energy(node: int, volts: float) -> float:
    """Return the energy of an operation in a process, relative to the other processes of `NODES`."""
    a, b, c = NODES[node]
    return a * volts * volts + b * volts + c


def scales() -> dict[str, float]:
    """Return the factors to the process of the RK3588 (8 nm, derived by its foundry from one of 10 nm).

    `from45` and `from7` lead from published energies of 45 and 7 nm to 10 nm, `from7high` to 14 nm.
    """
    seven = relative_energy(7, VOLTS)
    return {
        "from45": relative_energy(10, VOLTS) / relative_energy(45, 0.9),
        "from7": relative_energy(10, VOLTS) / seven,
        "from7high": relative_energy(14, VOLTS) / seven,
    }


@dataclass(frozen=True)
class Source:
    """A publication: authors, year, title, and the place with what was taken from it."""

    key: str
    authors: str
    year: int
    title: str
    place: str

    def __str__(self) -> str:
        return f"{self.authors}, {self.title}, {self.place} ({self.year})"


@dataclass(frozen=True)
class Event:
    """A kind of event.

    Members
    -------
    name, block : its name; the block in which it happens, "" for one that happens in every block.
    low, typical, high : picojoules of one event.
    kind : "published": the published energy of the event, scaled to the process; "derived": calculated from
        energies of other events; "assumed": nobody published it.
    sources : keys of the sources.
    meaning : what is counted.
    basis : the three calculations as they are in the file.
    """

    name: str
    block: str
    low: float
    typical: float
    high: float
    kind: Kind
    sources: tuple[str, ...]
    meaning: str
    basis: tuple[str, str, str]

    def picojoules(self, level: Level) -> float:
        """Return the energy of one event."""
        return {"low": self.low, "typical": self.typical, "high": self.high}[level]


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(text: str) -> float:
    """Return the value of sums, products and quotients of numbers and of the names of `scales`.

    Raises
    ------
    ValueError
        If the text has anything else.
    """
    names = scales()

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return float(node.value)
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        raise ValueError(f"{text!r} is no calculation of numbers and {', '.join(names)}")

    try:
        return value(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{text!r} is no calculation of numbers and {', '.join(names)}") from None


@cache
def sources() -> dict[str, Source]:
    """Return the publications by their keys."""
    with (FOLDER / "sources.csv").open(newline="", encoding="utf-8") as file:
        return {
            row["key"]: Source(row["key"], row["authors"], int(row["year"]), row["title"], row["place"])
            for row in csv.DictReader(file)
        }


@cache
def events() -> dict[str, Event]:
    """Return the events by their names.

    Raises
    ------
    ValueError
        If a row of the file has an unknown kind or source, or energies that do not increase.
    """
    found = {}
    with (FOLDER / "events.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            basis = row["low"], row["typical"], row["high"]
            low, typical, high = map(calculate, basis)
            keys = tuple(row["sources"].split())
            kind: Kind = next((one for one in KINDS if one == row["kind"]), "assumed")
            if kind != row["kind"] or not keys or not set(keys) <= set(sources()):
                raise ValueError(f"events.csv: {row['event']} has an unknown kind or source")
            if not 0 < low <= typical <= high:
                raise ValueError(f"events.csv: {row['event']}: {low}, {typical}, {high} do not increase")
            found[row["event"]] = Event(
                row["event"], row["block"], low, typical, high, kind, keys, row["meaning"], basis
            )
    return found


@cache
def registers() -> dict[str, int]:
    """Return the number of flip-flops of each block (`synthesis`)."""
    with (FOLDER / "registers.csv").open(newline="", encoding="utf-8") as file:
        return {row["block"]: int(row["registers"]) for row in csv.DictReader(file)}
