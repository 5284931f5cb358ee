"""The table of operations on the page of Hexagon NN, between two comments of the page.

`python -m rkcosim.apis.hexagon.table docs/hexagon.md` writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rkcosim.apis.hexagon.execution import MODULES
from rkcosim.apis.hexagon.graph import CONST, OWN
from rkcosim.apis.hexagon.names import NAMES
from rkcosim.apis.hexagon.operations import OPERATIONS, Place

BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"

PLACES: dict[Place | str, str] = {
    "layer": "NPU: with the operations behind them as one layer if that is exact, else their sums",
    "pool": "NPU: as a layer of their own",
    "sums": "NPU: their sums; bias and requantisation on the host",
    "host": "host",
    "check": "host: comparisons and prints of test graphs",
    "graph": "part of the graph itself",
    "": "not there: `append_node` returns -1, and the log names the operation",
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
    rows = ["| where | operations | number |", "| --- | --- | --- |"]
    for place, text in PLACES.items():
        names = [f"{name} ({number})" for number, name in enumerate(NAMES) if place_of(number) == place]
        rows.append(f"| {text} | {', '.join(names)} | {len(names)} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """Return a page with the table of today.

    Raises
    ------
    ValueError
        if the page has not both comments.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Write the table into a page."""
    parser = argparse.ArgumentParser(prog="python -m rkcosim.apis.hexagon.table", description=__doc__)
    parser.add_argument("page", type=Path, help="Markdown page with the comments around the table")
    page: Path = parser.parse_args().page
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
