"""Joules of a run by layer, block and event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rkcosim.measure.energy.counts import Counts, LayerCounts, counts_of
from rkcosim.measure.energy.table import LEVELS, Level, events
from rkcosim.measure.report.data import ReportedRun

BLOCKS = ("array", "CBUF", "CNA", "DPU", "DPU_RDMA", "PPU", "DMA", "static", "DRAM")
"""Blocks in the order of tables; "static" is the leakage of the whole NPU."""

SCHEMA_VERSION = 1
"""Version of the JSON form of `RunEnergy`."""

PICO = 1e-12


def joules(counts: Counts, level: Level = "typical", changed: Mapping[str, Level] | None = None) -> float:
    """Return the energy of events in joules; `changed` has other levels for single events."""
    levels = changed or {}
    return PICO * sum(
        number * events()[event].picojoules(levels.get(event, level)) for (event, _), number in counts.items()
    )


def joules_by_block(counts: Counts, level: Level = "typical") -> dict[str, float]:
    """Return the energy of each block in joules."""
    return {
        block: joules({key: number for key, number in counts.items() if key[1] == block}, level)
        for block in BLOCKS
        if any(key[1] == block for key in counts)
    }


@dataclass(frozen=True)
class LayerEnergy:
    """Estimated energy of a layer.

    Members
    -------
    layer : its name, operator, cycles and events.
    """

    layer: LayerCounts

    @property
    def joules(self) -> float:
        """Typical energy in joules."""
        return joules(self.layer.counts)

    @property
    def blocks(self) -> dict[str, float]:
        """Typical joules of each block."""
        return joules_by_block(self.layer.counts)

    def as_json(self) -> dict[str, Any]:
        """Return the energies in joules, and the counts as `counts[block][event]`."""
        counts: dict[str, dict[str, float]] = {}
        for (event, block), number in self.layer.counts.items():
            counts.setdefault(block, {})[event] = number
        return {
            "name": self.layer.name,
            "op": self.layer.op,
            "joules": {level: joules(self.layer.counts, level) for level in LEVELS},
            "blocks": self.blocks,
            "counts": counts,
        }


@dataclass(frozen=True)
class RunEnergy:
    """Estimated energy of one inference (or of one sample of it, or of a stream).

    It is the energy of the NPU and of the DRAM; hosts, regulators and the rest of a board are not in it.

    Members
    -------
    title : name of the model or stream.
    cycles : of the NPU.
    clock_mhz : clock of the NPU in MHz.
    layers : the layers that the NPU computes; leakage is divided by their cycles.
    """

    title: str
    cycles: int
    clock_mhz: float
    layers: list[LayerEnergy]

    @property
    def counts(self) -> Counts:
        """The events of all layers."""
        found: Counts = {}
        for layer in self.layers:
            for key, number in layer.layer.counts.items():
                found[key] = found.get(key, 0.0) + number
        return found

    @property
    def seconds(self) -> float:
        """Time of the NPU in seconds."""
        return self.cycles / self.clock_mhz / 1e6

    def joules(self, level: Level = "typical") -> float:
        """Return the energy in joules, with the low, typical or high energy of every event."""
        return joules(self.counts, level)

    def watts(self, level: Level = "typical") -> float:
        """Return the mean power in watts while the NPU works."""
        return self.joules(level) / self.seconds

    def blocks(self, level: Level = "typical") -> dict[str, float]:
        """Return the joules of each block."""
        return joules_by_block(self.counts, level)

    def sensitivity(self) -> list[tuple[str, float, float]]:
        """Return (event, low, high): the whole energy in joules with that event low or high, others typical.

        The event with the widest range is first.
        """
        counts = self.counts
        found = [
            (event, joules(counts, changed={event: "low"}), joules(counts, changed={event: "high"}))
            for event in dict.fromkeys(key[0] for key in counts)
        ]
        return sorted(found, key=lambda one: one[1] - one[2])

    def as_json(self) -> dict[str, Any]:
        """Return everything in joules and watts, for `json.dump`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "estimate": True,
            "model": self.title,
            "cycles": self.cycles,
            "clock_mhz": self.clock_mhz,
            "joules": {level: self.joules(level) for level in LEVELS},
            "watts": {level: self.watts(level) for level in LEVELS},
            "blocks": self.blocks(),
            "sensitivity": [{"event": event, "low": a, "high": b} for event, a, b in self.sensitivity()],
            "layers": [layer.as_json() for layer in self.layers],
        }


def energy_of(run: ReportedRun, clock_mhz: float = 1000.0) -> RunEnergy:
    """Estimate the energy of a run or of an estimate.

    Parameters
    ----------
    run
        The run, as `rkcosim.measure.report.read` returns it.
    clock_mhz
        Clock of the NPU in MHz; only leakage depends on it.

    Raises
    ------
    NotCountedError
        If no engine counted cycles, or the NPU computes nothing.
    ValueError
        If the clock is not positive.
    """
    if not clock_mhz > 0:
        raise ValueError(f"the clock must be above 0 MHz, not {clock_mhz}")
    layers = counts_of(run)
    for layer in layers:
        layer.add("static", "static", layer.cycles * 1000 / clock_mhz)
    cycles = run.cycles or sum(layer.cycles for layer in layers)
    return RunEnergy(run.title, cycles, clock_mhz, [LayerEnergy(layer) for layer in layers])
