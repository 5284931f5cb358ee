"""Runs past one process: shards of a model's tasks in parallel, and sweeps over models and settings.

`run_sharded` cuts a run into shards that are simulated at the same time, each from the memory image that
the task-level golden model gives for it; `run_sweep` runs many points.  Both work on a Dask cluster, by
default one on this machine ([docs/shards.md](../../docs/shards.md)).
"""

from __future__ import annotations

from typing import Any

__all__ = ["ClusterError", "Point", "open_cluster", "run_sharded", "run_sweep"]

_HOMES = {
    "ClusterError": "cosim.shards.errors",
    "Point": "cosim.shards.sweep",
    "open_cluster": "cosim.shards.cluster",
    "run_sharded": "cosim.shards.session",
    "run_sweep": "cosim.shards.sweep",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cosim.shards' has no attribute {name!r}")
