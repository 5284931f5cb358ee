"""The data set's file: tasks with their sizes and the cycles that the RTL took for them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosim.perf.estimator.features import TaskShape
from waves.whole_file import whole_file

SCHEMA_VERSION = 1
FILE = Path(__file__).with_name("data.json.gz")


@dataclass(frozen=True)
class Measured:
    """One task on the RTL: `gap` are the cycles before it, from the job's start for the first one."""

    layer: str
    shape: TaskShape
    gap: int
    cycles: int


@dataclass(frozen=True)
class MeasuredJob:
    """Tasks of one job, by core; `name` and `family` of what was measured, `setting` of the memory."""

    name: str
    family: str
    setting: str
    parts: list[list[Measured]]
    cycles: int


def write_data(jobs: Iterable[MeasuredJob], settings: dict[str, dict[str, Any]], path: Path = FILE) -> None:
    """Store jobs; shapes that occur several times are stored once."""
    shapes: dict[TaskShape, int] = {}
    rows = []
    for job in jobs:
        parts = [
            [[t.layer, shapes.setdefault(t.shape, len(shapes)), t.gap, t.cycles] for t in part]
            for part in job.parts
        ]
        rows.append([job.name, job.family, job.setting, parts, job.cycles])
    data = {
        "schema_version": SCHEMA_VERSION,
        "settings": settings,
        "columns": TaskShape.columns(),
        "shapes": [shape.as_row() for shape in shapes],
        "jobs": rows,
    }
    text = json.dumps(data, separators=(",", ":"))
    with whole_file(path) as part:
        part.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_data(path: Path = FILE, *, any_columns: bool = False) -> list[MeasuredJob]:
    """All jobs of a file; with `any_columns` sizes of another version are left away.

    Raises
    ------
    ValueError
        for a file that is damaged or of another version.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    same = data.get("columns") == TaskShape.columns()
    if data.get("schema_version") != SCHEMA_VERSION or not (same or any_columns):
        raise ValueError(f"{path}: made by another version: run python -m cosim.perf.estimator.collect")
    shapes = [TaskShape.of_row(row) if same else TaskShape("") for row in data["shapes"]]
    return [
        MeasuredJob(
            name,
            family,
            setting,
            [[Measured(layer, shapes[at], gap, cycles) for layer, at, gap, cycles in part] for part in parts],
            cycles,
        )
        for name, family, setting, parts, cycles in data["jobs"]
    ]


def settings_of(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """Memory timings of a file, by name, as `DramConfig` takes them."""
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["settings"]
    return found


def as_settings(configs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Plain values of memory timings."""
    return {name: asdict(config) for name, config in configs.items()}
