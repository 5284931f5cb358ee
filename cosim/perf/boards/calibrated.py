"""Constants fitted to boards (`cosim.perf.boards.calibrate` writes them), and the memory that a row sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from cosim.engines.library import DramConfig
from cosim.perf.stored import read_stored, write_stored

FILE = Path(__file__).with_name("calibrated.json")
SCHEMA_VERSION = 1

REFERENCE_MHZ = 1000.0
"""NPU clock at which a byte a cycle is a GB/s, and at which `DramConfig` counts."""


@dataclass(frozen=True)
class Calibration:
    """What was fitted.

    Members
    -------
    core_bytes_per_ns : what one core moves to and from DRAM at most, both directions together, GB/s.
    rows : ids of the rows it was fitted to, with what each says by itself.
    """

    core_bytes_per_ns: float
    rows: dict[str, float] = field(default_factory=dict)


def read(path: Path = FILE) -> Calibration:
    """The checked-in calibration.

    Raises
    ------
    ValueError
        for a file that is damaged or of another version.
    """
    data = read_stored(path, SCHEMA_VERSION)
    return Calibration(float(data["core_bytes_per_ns"]), dict(data["rows"]))


def write(calibration: Calibration, path: Path = FILE) -> None:
    """Store a calibration."""
    write_stored(path, SCHEMA_VERSION, calibration.__dict__)


def board_memory(clock_mhz: float = REFERENCE_MHZ, core_bytes_per_ns: float | None = None) -> DramConfig:
    """Timing of a board's memory as one core sees it at an NPU clock.

    DRAM keeps its own clock, so bandwidth and latencies are constant in time, not in NPU cycles; the
    core's port runs with the core.

    Parameters
    ----------
    clock_mhz : of the NPU.
    core_bytes_per_ns : bound of one core's bandwidth; None: only the peak of all cores bounds it.
    """
    default = DramConfig()
    slower = clock_mhz / REFERENCE_MHZ
    peak = default.peak_bytes_per_cycle
    if core_bytes_per_ns is not None:
        peak = min(peak, core_bytes_per_ns)
    return replace(
        default,
        peak_bytes_per_cycle=peak / slower,
        read_latency=max(round(default.read_latency * slower), 1),
        write_latency=max(round(default.write_latency * slower), 1),
    )
