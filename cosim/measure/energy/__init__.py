"""Energy of a run, estimated from counted events and published energies; nothing here was measured."""

from rkcosim.measure.energy.counts import LayerCounts, NotCountedError
from rkcosim.measure.energy.estimate import LayerEnergy, RunEnergy, energy_of
from rkcosim.measure.energy.table import Event, Level, Source, events, sources

__all__ = [
    "Event",
    "LayerCounts",
    "LayerEnergy",
    "Level",
    "NotCountedError",
    "RunEnergy",
    "Source",
    "energy_of",
    "events",
    "sources",
]
