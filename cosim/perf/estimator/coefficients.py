"""The fitted coefficients, their file, and whether they belong to the present RTL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosim.perf.estimator.memory import Coefficients
from cosim.perf.gate import read_baseline
from cosim.perf.stored import read_stored, write_stored

SCHEMA_VERSION = 1
FILE = Path(__file__).with_name("coefficients.json")
COMMAND = "python -m cosim.perf.estimator.collect && python -m cosim.perf.estimator.fit"


@dataclass(frozen=True)
class Fit:
    """What the file holds.

    Members
    -------
    coefficients : cycles, by name (`MEANINGS`).
    errors : of the fitted and of the held-out layers, each n, median, mean and worst, relative to the RTL.
    kinds, worst : errors of the held-out layers by family and memory; those that are farthest off.
    baseline : cycles of the layers of the regression gate with the RTL that was fitted.
    settings : memory timings of the data set, by name.
    """

    coefficients: dict[str, float]
    errors: dict[str, dict[str, float]]
    kinds: dict[str, dict[str, float]]
    worst: list[dict[str, Any]]
    baseline: dict[str, int]
    settings: dict[str, dict[str, Any]]

    def stale(self, baseline: Mapping[str, Mapping[str, int]] | None = None) -> list[str]:
        """Layers of the gate's baseline whose cycles are not those of the RTL that was fitted."""
        now = read_baseline() if baseline is None else baseline
        return [name for name, row in now.items() if self.baseline.get(name, row["cycles"]) != row["cycles"]]


MEANINGS = {
    "kick": "from a job's start to its first task's, beside the fetch of the words",
    "kick_next": "from one core's start to the next one's of the same job",
    "gap": "from the end of a task to the start of the next one",
    "lut_gap": "the same where tables are loaded, beside their words",
    "conv_start": "from a convolution's start to its first beat of data, beside the latency",
    "weight_start": "from there to its first beat of weights, likewise",
    "row_land": "from the last beat of a row to its first slot",
    "tile": "from the last beat of a weight tile to its first slot",
    "drain": "from the last slot of a stripe to its first octet in the DPU",
    "pipe": "from the last octet of a stripe to its first beat on the bus",
    "write_ask": "from the last beat of a write burst to the first of the next one",
    "write_turn": "between a write burst's response and the request that waited for it",
    "conv_end": "from the last write response of a convolution to its end",
    "flying_start": "the first beat of data of a task of the DPU, beside the latency",
    "flying_fill": "from the last beat of a stripe's input to its first octet in the DPU",
    "flying_end": "from the last write response of a task of the DPU to its end",
    "pool_start": "start and end of a pooling, beside the latencies",
}


@cache
def stored_fit() -> Fit:
    """The checked-in fit."""
    return read_fit()


def stored() -> Coefficients:
    """The checked-in coefficients."""
    return stored_fit().coefficients


def read_fit(path: Path = FILE) -> Fit:
    """Read a file.

    Raises
    ------
    ValueError
        for a file that is damaged or of another version.
    """
    data = read_stored(path, SCHEMA_VERSION, f"make it anew: {COMMAND}")
    members = {name: data.get(name) for name in Fit.__dataclass_fields__}
    missing = [name for name, value in members.items() if value is None]
    missing += [name for name in MEANINGS if name not in (members["coefficients"] or {})]
    if missing:
        raise ValueError(f"{path}: no {', '.join(missing)}; make it anew: {COMMAND}")
    return Fit(**members)  # type: ignore[arg-type]  # looked at above


def write_fit(fit: Fit, path: Path = FILE) -> None:
    """Store a fit."""
    write_stored(path, SCHEMA_VERSION, fit.__dict__)


def warning(fit: Fit | None = None) -> str:
    """What to say of coefficients that belong to another RTL, "" if they do not."""
    changed = (fit or stored_fit()).stale()
    if not changed:
        return ""
    return f"fitted to another RTL (cycles differ now: {', '.join(changed[:3])}): run {COMMAND}"


def said_error(fit: Fit | None = None) -> str:
    """The error against RTL, for people."""
    held = (fit or stored_fit()).errors["held out"]
    return (
        f"error against RTL on {held['n']:.0f} layers not used in the fit: median {held['median']:.2%}, "
        f"mean {held['mean']:.2%}, 95th percentile {held['p95']:.2%}, worst {held['worst']:.2%}"
    )
