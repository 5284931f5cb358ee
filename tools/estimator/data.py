"""The data set's file: tasks with their sizes and their cycles on the RTL."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.estimator.features import TaskShape
from rkcosim.waves.whole_file import whole_file

SCHEMA_VERSION = 1
FILE = Path(__file__).with_name("data.json.gz")
COLUMNS = [field.name for field in fields(TaskShape)]


@dataclass(frozen=True)
class Measured:
    """One task on the RTL; `gap` is the number of cycles before it (from the job's start for the first)."""

    layer: str
    shape: TaskShape
    gap: int
    cycles: int


@dataclass(frozen=True)
class MeasuredJob:
    """Tasks of one job by core; `name` and `family` of the measured layer, `setting` of the memory."""

    name: str
    family: str
    setting: str
    parts: list[list[Measured]]
    cycles: int


def write_data(jobs: Iterable[MeasuredJob], settings: dict[str, DramConfig], path: Path = FILE) -> None:
    """Store jobs and the memory timings by name; equal shapes are stored once."""
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
        "settings": {name: asdict(config) for name, config in settings.items()},
        "columns": COLUMNS,
        "shapes": [list(asdict(shape).values()) for shape in shapes],
        "jobs": rows,
    }
    text = json.dumps(data, separators=(",", ":"))
    with whole_file(path) as part:
        part.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_data(
    path: Path = FILE, *, any_columns: bool = False
) -> tuple[list[MeasuredJob], dict[str, DramConfig]]:
    """Return all jobs of a file and its memory timings; `any_columns` drops sizes of another version.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    same = data.get("columns") == COLUMNS
    if data.get("schema_version") != SCHEMA_VERSION or not (same or any_columns):
        raise ValueError(f"{path}: made by another version; run python -m tools.estimator.collect")
    shapes = [TaskShape(*row) if same else TaskShape("") for row in data["shapes"]]
    jobs = [
        MeasuredJob(
            name,
            family,
            setting,
            [[Measured(layer, shapes[at], gap, cycles) for layer, at, gap, cycles in part] for part in parts],
            cycles,
        )
        for name, family, setting, parts, cycles in data["jobs"]
    ]
    return jobs, {name: DramConfig(**values) for name, values in data["settings"].items()}
