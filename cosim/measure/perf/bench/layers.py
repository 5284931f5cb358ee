"""The table of twelve layers: cycles compared with the bounds, and the parts of the cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rkcosim.base import progress as under_way
from rkcosim.engines.engine import open_engine
from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.perf.page import table
from rkcosim.measure.perf.workloads import LAYERS, MEMORY, Measured

SCHEMA_VERSION = 2
RATIO_LIMIT = 1.3
"""Ratio to the bound that should not be exceeded; a layer above it gets an explanation."""

BUSY_TARGET = 0.9
"""Share of the cycles in which the array should work, in layers marked `busy`."""


@dataclass(frozen=True)
class LayerRow:
    """A layer, and whether its array should be busy."""

    measured: Measured
    busy_wanted: bool

    @property
    def excess(self) -> dict[str, int]:
        """Cycles by cause that the bound does not include, those of the array in excess of `formula_npu`."""
        spent = self.measured.spent
        found = {str(cause): spent[cause] for cause in CAUSES if cause is not Cause.ARRAY and spent[cause]}
        slots = spent[Cause.ARRAY] - self.measured.formula_npu
        return found if slots <= 0 else {**found, str(Cause.ARRAY): slots}

    @property
    def why(self) -> str:
        """The two largest parts of the excess; "" if the ratio does not exceed `RATIO_LIMIT`."""
        if self.measured.ratio <= RATIO_LIMIT:
            return ""
        parts = sorted(self.excess.items(), key=lambda item: -item[1])[:2]
        cycles = self.measured.cycles
        words = [f"{_reason(Cause(part))}, {count:,} cycles ({count / cycles:.0%})" for part, count in parts]
        return "; ".join(words)

    @property
    def good(self) -> bool:
        """Whether the ratio is within the limit, the array busy if required, and all bytes correct."""
        found = self.measured
        busy = not self.busy_wanted or found.mac_busy >= BUSY_TARGET
        return found.ratio <= RATIO_LIMIT and busy and found.match is not False

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.measured.as_json(), "layer": self.measured.name, "good": self.good, "why": self.why}


def _reason(cause: Cause) -> str:
    if cause is Cause.ARRAY:
        return "slots of the array in excess of the formula"
    return f"{cause.label} ({cause.meaning})"


def measure_layers(
    names: Sequence[str] = tuple(LAYERS), *, engine: str | None = None, check: bool = False
) -> list[LayerRow]:
    """Run layers of `LAYERS`, each on a fresh engine of one core.

    Parameters
    ----------
    engine : name of an engine; None: the fastest available.
    check : compare every byte with the golden models.
    """
    rows = []
    with under_way.step("layers", total=len(names)) as step:
        for name in names:
            step.detail = name
            with open_engine(engine, cores=1, dram=MEMORY) as opened:
                rows.append(LayerRow(LAYERS[name].measure(opened, check), LAYERS[name].busy))
            step.advance()
    return rows


def document(rows: Sequence[LayerRow]) -> dict[str, Any]:
    """Return the JSON of `rkcosim bench --layers`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "bench --layers",
        "ratio_limit": RATIO_LIMIT,
        "rows": [row.as_json() for row in rows],
    }


def markdown(rows: Sequence[LayerRow]) -> str:
    """Return the section "layers" of docs/results/performance.md."""
    used = [cause for cause in CAUSES if any(row.measured.spent[cause] for row in rows)]
    heads = ["layer", "RTL cycles", "formula_npu", "formula_ddr", "ratio", *(cause.label for cause in used)]
    explained = any(row.why for row in rows)
    heads += [f"what a ratio above {RATIO_LIMIT} is spent on"] if explained else []
    cells = []
    for row in rows:
        found = row.measured
        counts = (f"{count:,}" for count in (found.cycles, found.formula_npu, found.formula_ddr))
        parts = (f"{found.spent[cause] / found.cycles:.1%}" for cause in used)
        cells.append([found.name, *counts, f"{found.ratio:.2f}", *parts, *([row.why] if explained else [])])
    lines = [*table(heads, cells), ""]
    if not explained:
        lines.append(f"No layer takes more than {RATIO_LIMIT} times its bound.")
    wanted = [row for row in rows if row.busy_wanted]
    if wanted:
        least = min(row.measured.mac_busy for row in wanted)
        lines.append(
            f"{len(wanted)} of them, bound by the array alone, should keep it busy {BUSY_TARGET:.0%} "
            f"of the time or more; the lowest is {least:.1%}."
        )
    return "\n".join(lines)
