"""The energy of a run in words and tables: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rkcosim.base.tables import shortened, table
from rkcosim.measure.energy.estimate import BLOCKS, RunEnergy
from rkcosim.measure.energy.table import LEVELS, events, sources
from rkcosim.measure.perf.page import table as markdown

SHOWN = 4
"""Events whose range is printed."""

NOTE = "estimated from published energies of single operations, not measured (docs/energy.md)"


def amount(joules: float) -> str:
    """Return an energy in millijoules, or in microjoules if it is less than one."""
    return f"{joules * 1e3:,.3g} mJ" if joules >= 1e-3 else f"{joules * 1e6:,.3g} uJ"


def blocks_of(found: RunEnergy) -> list[str]:
    """Return the blocks that have energy, in the order of tables."""
    known = found.blocks()
    return [block for block in BLOCKS if block in known]


def layer_rows(found: RunEnergy) -> Iterator[tuple[object, ...]]:
    """Yield (name, operator, microjoules, share of the whole, share of each block) of each layer."""
    whole = found.joules() or 1.0
    for layer in found.layers:
        own = layer.blocks
        shares = (own.get(block, 0.0) / layer.joules for block in blocks_of(found))
        yield layer.layer.name, layer.layer.op, layer.joules * 1e6, layer.joules / whole, *shares


def summary(found: RunEnergy) -> Iterator[str]:
    """Yield joules and watts, the blocks, and the events whose range changes the total most."""
    low, typical, high = (amount(found.joules(level)) for level in LEVELS)
    yield f"energy of NPU and DRAM: {typical} ({low} to {high}), {NOTE}"
    yield (
        f"while the NPU works at {found.clock_mhz:g} MHz: {found.watts():.3g} W ({found.watts('low'):.3g} to "
        f"{found.watts('high'):.3g})"
    )
    ranked = sorted(found.blocks().items(), key=lambda item: -item[1])
    yield "of it " + ", ".join(f"{block} {part / found.joules():.1%}" for block, part in ranked)
    ranges = found.sensitivity()[:SHOWN]
    yield "range of one energy alone: " + ", ".join(
        f"{event} {amount(least)} to {amount(most)}" for event, least, most in ranges
    )


def print_energy(console: Any, found: RunEnergy) -> None:
    """Print the table of layers, and the summary."""
    heads = ("layer", "op", "uJ|.2f", "share|.1%", *(f"{block}|.0%" for block in blocks_of(found)))
    rows = [(shortened(str(row[0]), console), *row[1:]) for row in layer_rows(found)]
    console.print(table(f"{found.title}: estimated energy", heads, rows))
    for line in summary(found):
        console.print(line, markup=False, soft_wrap=True)


def events_page() -> str:
    """Return the table of energies as Markdown."""
    rows = []
    for one in events().values():
        numbers = tuple(f"{one.picojoules(level):.3g}" for level in LEVELS)
        rows.append(
            (f"`{one.name}`", one.block or "all", one.meaning, *numbers, one.kind, ", ".join(one.sources))
        )
    heads = ("event", "block", "one of", "low", "typical", "high", "kind", "sources")
    return "\n".join(markdown(heads, rows))


def basis_page() -> str:
    """Return the calculations and the sources as Markdown."""
    rows = [(f"`{one.name}`", *(f"`{text}`" for text in one.basis)) for one in events().values()]
    lines = [*markdown(("event", "low", "typical", "high"), rows), ""]
    lines += markdown(("key", "source"), [(source.key, str(source)) for source in sources().values()])
    return "\n".join(lines)
