"""The section about energy: an estimate by block and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkcosim.measure.energy import NotCountedError, RunEnergy, energy_of
from rkcosim.measure.energy.table import LEVELS
from rkcosim.measure.energy.text import NOTE, amount, blocks_of, layer_rows
from rkcosim.measure.report.data import ReportedRun
from rkcosim.measure.report.figures import percent

Cells = Sequence[str]


@dataclass(frozen=True)
class EnergySection:
    """Texts of the section.

    Members
    -------
    lead : what the figures are.
    heads, rows : the table of layers.
    blocks : (block, microjoules, share of the whole).
    ranges : (event, microjoules with its low energy, with its high energy).
    """

    lead: str
    heads: Cells
    rows: list[Cells]
    blocks: list[Cells]
    ranges: list[Cells]


def energy_or_none(run: ReportedRun, clock_ghz: float = 1.0) -> RunEnergy | None:
    """Return the energy of a run; None if its events were not counted."""
    try:
        return energy_of(run, 1000 * clock_ghz)
    except NotCountedError:
        return None


def section(run: ReportedRun, clock_ghz: float) -> EnergySection | None:
    """Return the section; None if the run's events were not counted."""
    found = energy_or_none(run, clock_ghz)
    if found is None or not found.layers:
        return None
    low, typical, high = (amount(found.joules(level)) for level in LEVELS)
    lead = (
        f"{typical} for NPU and DRAM ({low} to {high}), {found.watts():.3g} W while the NPU works: {NOTE}. "
        "Ratios between layers are better than the absolute figures."
    )
    rows: list[Cells] = [
        (str(name), str(op), f"{uj:.2f}", percent(share), *map(percent, shares))  # type: ignore[arg-type]
        for name, op, uj, share, *shares in layer_rows(found)
    ]
    blocks: list[Cells] = [
        (block, f"{part * 1e6:,.2f}", percent(part / found.joules()))
        for block, part in sorted(found.blocks().items(), key=lambda item: -item[1])
    ]
    ranges: list[Cells] = [
        (event, f"{a * 1e6:,.2f}", f"{b * 1e6:,.2f}") for event, a, b in found.sensitivity()
    ]
    return EnergySection(lead, ("layer", "op", "uJ", "share", *blocks_of(found)), rows, blocks, ranges)
