"""The table of operations on the page of Hexagon NN, docs/hexagon.md."""

from __future__ import annotations

from rkcosim.apis.hexagon.execution import MODULES
from rkcosim.apis.hexagon.graph import CONST, OWN
from rkcosim.apis.hexagon.names import NAMES
from rkcosim.apis.hexagon.operations import OPERATIONS, Place
from rkcosim.measure.perf.page import table as lines_of

PLACES: dict[Place | str, str] = {
    "layer": "NPU: with the operations behind them as one layer if that is exact, else their sums",
    "pool": "NPU: as a layer of their own",
    "sums": "NPU: their sums; bias and requantisation on the host",
    "host": "host",
    "check": "host: comparisons and prints of test graphs",
    "graph": "part of the graph itself",
    "": "not supported: `append_node` returns -1, and the log names the operation",
}
"""Headings of the table, in its order."""


def place_of(number: int) -> str:
    """Return the key of `PLACES` for an operation."""
    assert MODULES
    if number in OWN or number == CONST:
        return "graph"
    known = OPERATIONS.get(number)
    return known.place if known else ""


def table() -> str:
    """Return the table as Markdown: where the operations run, with their numbers."""
    rows = []
    for place, text in PLACES.items():
        names = [f"{name} ({number})" for number, name in enumerate(NAMES) if place_of(number) == place]
        rows.append((text, ", ".join(names), len(names)))
    return "\n".join(lines_of(("where", "operations", "number"), rows))
