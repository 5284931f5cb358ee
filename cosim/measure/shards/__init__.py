"""Runs in several processes: shards of a model's tasks in parallel, and sweeps over models and settings.

`run_sharded` divides a run into shards that are simulated at the same time, each from a memory image that
the task-level golden model computes; `run_sweep` runs many points.  Both use a Dask cluster, by
default one on this machine ([docs/shards.md](../../docs/shards.md)).
"""

from __future__ import annotations

from typing import Any

__all__ = ["ClusterError", "Point", "open_cluster", "run_sharded", "run_sweep"]

_HOMES = {
    "ClusterError": "rkcosim.measure.shards.cluster",
    "Point": "rkcosim.measure.shards.sweep",
    "open_cluster": "rkcosim.measure.shards.cluster",
    "run_sharded": "rkcosim.measure.shards.session",
    "run_sweep": "rkcosim.measure.shards.sweep",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rkcosim.measure.shards' has no attribute {name!r}")
