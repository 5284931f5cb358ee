"""The table of twelve layers: cycles beside the bounds, and what the cycles went on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cosim import progress as under_way
from cosim.engines.engine import open_engine
from cosim.perf.spent import MEANINGS, NAMES, PARTS
from cosim.perf.workloads import LAYERS, Measured

SCHEMA_VERSION = 2
RATIO_LIMIT = 1.3
"""Ratio to the bound above which a layer is explained (and which DESIGN 4.5 wants to be kept)."""

BUSY_TARGET = 0.9
"""Share of the cycles in which the array is to work, in layers marked `busy` (DESIGN 4.5)."""


@dataclass(frozen=True)
class LayerRow:
    """A layer, and whether the array is to be busy in it."""

    measured: Measured
    busy_wanted: bool

    @property
    def excess(self) -> dict[str, int]:
        """Cycles by part that the bound does not count: waits, and slots beyond `formula_npu`."""
        found = {part: cycles for part, cycles in self.measured.spent.items() if part != "busy" and cycles}
        slots = self.measured.spent["busy"] - self.measured.formula_npu
        return found if slots <= 0 else {**found, "busy": slots}

    @property
    def why(self) -> str:
        """What most of the excess goes on; "" up to `RATIO_LIMIT`."""
        if self.measured.ratio <= RATIO_LIMIT:
            return ""
        parts = sorted(self.excess.items(), key=lambda item: -item[1])[:2]
        cycles = self.measured.cycles
        words = [f"{_reason(part)}, {count:,} cycles ({count / cycles:.0%})" for part, count in parts]
        return "; ".join(words)

    @property
    def good(self) -> bool:
        """Whether the layer keeps the limit, the array is as busy as wanted, and no byte was wrong."""
        found = self.measured
        busy = not self.busy_wanted or found.mac_busy >= BUSY_TARGET
        return found.ratio <= RATIO_LIMIT and busy and found.match is not False

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.measured.as_json(), "layer": self.measured.name, "good": self.good, "why": self.why}


def _reason(part: str) -> str:
    if part == "busy":
        return "slots of the array beyond the formula's"
    return f"{NAMES[part]} ({MEANINGS[part].removeprefix('the array waits ')})"


def measure_layers(
    names: Sequence[str] = tuple(LAYERS),
    *,
    engine: str | None = None,
    check: bool = False,
    each: Callable[[LayerRow], None] = lambda row: None,
) -> list[LayerRow]:
    """Run layers of `LAYERS`, each on a fresh engine of one core.

    Parameters
    ----------
    engine : name of an engine; None: the fastest there is.
    check : compare every byte with the golden models.
    each : called with every row.
    """
    rows = []
    with under_way.step("layers", total=len(names)) as step:
        for name in names:
            step.detail = name
            with open_engine(engine, cores=1) as opened:
                rows.append(LayerRow(LAYERS[name].measure(opened, check), LAYERS[name].busy))
            each(rows[-1])
            step.advance()
    return rows


def document(rows: Sequence[LayerRow]) -> dict[str, Any]:
    """JSON of `rkcosim bench --layers`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "bench --layers",
        "ratio_limit": RATIO_LIMIT,
        "rows": [row.as_json() for row in rows],
    }


def markdown(rows: Sequence[LayerRow]) -> str:
    """The section "layers" of docs/performance.md."""
    used = [part for part in PARTS if any(row.measured.spent[part] for row in rows)]
    heads = ["layer", "RTL cycles", "formula_npu", "formula_ddr", "ratio", *(NAMES[part] for part in used)]
    explained = any(row.why for row in rows)
    heads += [f"what a ratio above {RATIO_LIMIT} is spent on"] if explained else []
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for row in rows:
        found = row.measured
        cells = [found.name, f"{found.cycles:,}", f"{found.formula_npu:,}", f"{found.formula_ddr:,}"]
        cells.append(f"{found.ratio:.2f}")
        cells += [f"{found.spent[part] / found.cycles:.1%}" for part in used]
        cells += [row.why] if explained else []
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    if not explained:
        lines.append(f"No layer takes more than {RATIO_LIMIT} times its bound.")
    wanted = [row for row in rows if row.busy_wanted]
    if wanted:
        least = min(row.measured.mac_busy for row in wanted)
        lines.append(
            f"The array is to be busy at least {BUSY_TARGET:.0%} of the time in {len(wanted)} of them, bound "
            f"by the array alone; the least is {least:.1%}."
        )
    return "\n".join(lines)
