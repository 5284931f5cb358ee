"""The fitted coefficients, their file, and the check whether they belong to the present RTL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rkcosim.measure.perf.estimator.accesses import Coefficients
from rkcosim.measure.perf.estimator.features import CONV, FLYING, POOL
from rkcosim.measure.perf.gate import read_baseline
from rkcosim.measure.perf.page import read_stored, write_stored

SCHEMA_VERSION = 1
FILE = Path(__file__).with_name("coefficients.json")
COMMAND = "python -m tools.estimator.collect && python -m tools.estimator.fit"


@dataclass(frozen=True)
class Fit:
    """Contents of the file.

    Members
    -------
    coefficients : cycles by name (`DELAYS`).
    errors : errors of the fitted and of the held-out layers relative to the RTL: n, median, mean and worst.
    kinds, worst : errors of the held-out layers by family and memory, and the layers with the largest ones.
    baseline : cycles of the layers of the regression gate on the RTL that was used for the fit.
    settings : memory timings of the data set by name.
    """

    coefficients: dict[str, float]
    errors: dict[str, dict[str, float]]
    kinds: dict[str, dict[str, float]]
    worst: list[dict[str, Any]]
    baseline: dict[str, int]
    settings: dict[str, dict[str, Any]]

    def stale(self, baseline: Mapping[str, Mapping[str, int]] | None = None) -> list[str]:
        """Return the layers of the gate's baseline whose cycles have changed since the fit."""
        now = read_baseline() if baseline is None else baseline
        return [name for name, row in now.items() if self.baseline.get(name, row["cycles"]) != row["cycles"]]


@dataclass(frozen=True)
class Delay:
    """A coefficient in cycles.

    Members
    -------
    start : initial value of the search, read from the RTL.
    meaning : description for people.
    kind : kind of the tasks whose cycles it is fitted to; "" for a median of the gaps before tasks.
    """

    start: float
    meaning: str
    kind: str = ""


DELAYS = {
    "kick": Delay(56, "from a job's start to its first task's, in addition to the fetch of the words"),
    "kick_next": Delay(44, "from one core's start to the next one's of the same job"),
    "gap": Delay(1, "from the end of a task to the start of the next one"),
    "lut_gap": Delay(3, "the same before a task that loads tables, in addition to their words"),
    "conv_start": Delay(16, "from a convolution's start to its first beat of data, less the latency", CONV),
    "weight_start": Delay(9, "from there to its first beat of weights, less the latency", CONV),
    "row_land": Delay(16, "from the last beat of a row to its first slot", CONV),
    "tile": Delay(5, "from the last beat of a weight tile to its first slot", CONV),
    "drain": Delay(6, "from the last slot of a stripe to its first octet in the DPU", CONV),
    "pipe": Delay(9, "from the last octet of a stripe to its first beat on the bus", CONV),
    "write_ask": Delay(3, "from the last beat of a write burst to the first of the next one", CONV),
    "write_turn": Delay(4, "between a write burst's response and the request that waited for it", CONV),
    "conv_end": Delay(5, "from the last write response of a convolution to its end", CONV),
    "flying_start": Delay(5, "to the first beat of data of a task of the DPU, without the latency", FLYING),
    "flying_fill": Delay(4, "from the last beat of a stripe's input to its first octet in the DPU", FLYING),
    "flying_end": Delay(5, "from the last write response of a task of the DPU to its end", FLYING),
    "pool_start": Delay(18, "start and end of a pooling, without the latencies", POOL),
}
"""All coefficients by name."""


@cache
def stored_fit() -> Fit:
    """Return the checked-in fit."""
    return read_fit()


def stored() -> Coefficients:
    """Return the checked-in coefficients."""
    return stored_fit().coefficients


def read_fit(path: Path = FILE) -> Fit:
    """Read a file of coefficients.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    data = read_stored(path, SCHEMA_VERSION, f"write it again: {COMMAND}")
    members = {name: data.get(name) for name in Fit.__dataclass_fields__}
    missing = [name for name, value in members.items() if value is None]
    missing += [name for name in DELAYS if name not in (members["coefficients"] or {})]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; write it again: {COMMAND}")
    return Fit(**members)  # type: ignore[arg-type]  # None was excluded above


def write_fit(fit: Fit, path: Path = FILE) -> None:
    """Store a fit."""
    write_stored(path, SCHEMA_VERSION, fit.__dict__)


def warning(fit: Fit | None = None) -> str:
    """Return a warning if the coefficients were fitted to another RTL, else ""."""
    changed = (fit or stored_fit()).stale()
    if not changed:
        return ""
    return f"fitted to another RTL (cycles differ now: {', '.join(changed[:3])}): run {COMMAND}"


def said_error(fit: Fit | None = None) -> str:
    """Return the error against the RTL as text."""
    held = (fit or stored_fit()).errors["held out"]
    return (
        f"error against RTL on {held['n']:.0f} layers not used in the fit: median {held['median']:.2%}, "
        f"mean {held['mean']:.2%}, 95th percentile {held['p95']:.2%}, worst {held['worst']:.2%}"
    )
