"""`rkcosim run --shards` and `rkcosim sweep`: work on a cluster, and what is printed of it."""

from __future__ import annotations

import csv as tables
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import DEVICE_ERROR, MISMATCH, OK, write_json, write_text
from cosim.engines.event_files import take

if TYPE_CHECKING:
    from cosim.cli.shards_app import Shards

SCHEMA_VERSION = 1
"""Version of the JSON form of a sweep."""


def sharded(shards: Shards, trace: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What runs a model in shards instead of `run_model`, and its further options.

    Raises
    ------
    ValueError
        where a waveform or an event log is wanted, which one engine writes.
    """
    if trace is not None or take():
        raise ValueError(
            "--shards simulates in several engines at once, so it writes no waveform and no event log; "
            "leave out --shards, or --trace, --events and --timeline"
        )
    from cosim.shards import run_sharded

    return run_sharded, {
        "shards": shards.count,
        "scheduler": shards.scheduler,
        "workers": shards.workers,
    }


def print_shards(console: Any, result: Any) -> None:
    """Print who simulated what."""
    rows = result.shards
    if not rows:
        return
    count = len({row["worker"] for row in rows})
    workers = "a worker" if count == 1 else f"{count} workers"
    longest = max(rows, key=lambda row: row["seconds"])
    extra = sum(row["simulated_cycles"] for row in rows) / max(sum(row["cycles"] for row in rows), 1) - 1
    again = sum(row["retries"] for row in rows)
    console.print(
        f"{len(rows)} shard{'s' * (len(rows) > 1)} on {workers}, {extra:.1%} of the cycles simulated twice; "
        f"longest: {longest['seconds']:.1f} s for tasks {longest['first_task']} to {longest['last_task']}"
        + (f"; {again} begun again after a worker was lost" if again else "")
    )


@dataclass(frozen=True)
class Sweep:
    """What `rkcosim sweep` was asked for, as typed."""

    models: Sequence[Path]
    cores: str
    dram: Sequence[str]
    geometry: Sequence[str]
    weight_banks: str
    engine: str | None
    exact: bool
    check: bool
    seed: int
    clock: float


def sweep_command(
    asked: Sweep, scheduler: str | None, workers: int | None, csv: Path | None, json: Path | None
) -> None:
    """Run, print, write files, and end with the exit code of DESIGN 11.

    Raises
    ------
    ValueError, ClusterError, OSError
    """
    from rich.console import Console

    from cosim import progress
    from cosim.shards.cluster import open_cluster
    from cosim.shards.session import build
    from cosim.shards.sweep import run_sweep

    if scheduler is not None and workers is not None:
        raise ValueError("--workers starts processes here, --scheduler uses a cluster that is there")
    if asked.engine == "golden":
        raise ValueError("a sweep compares cycles; the engine golden has none")
    files = _names(asked.models)
    every = _points(asked, list(files))
    _readable(files)
    console = Console(highlight=False)
    if scheduler is None and any(not point.differs for point in every):
        build(asked.engine, asked.exact)
    with ExitStack() as stack:
        with progress.step("starting the cluster" if scheduler is None else "connecting to the cluster"):
            cluster = stack.enter_context(open_cluster(scheduler, workers))
        rows = run_sweep(
            cluster,
            every,
            files,
            engine=asked.engine,
            exact=asked.exact,
            check=asked.check,
            seed=asked.seed,
        )
    table = [row.as_json(asked.clock) for row in rows]
    print_sweep(console, table, asked.clock)
    if csv:
        write_text(csv, _csv(table))
        console.print(f"CSV: {csv}")
    if json:
        write_json(json, {"schema_version": SCHEMA_VERSION, "clock_mhz": asked.clock, "points": table})
        console.print(f"JSON: {json}")
    failed = any(row.error for row in rows)
    raise SystemExit(DEVICE_ERROR if failed else MISMATCH if any(row.match is False for row in rows) else OK)


def _names(models: Sequence[Path]) -> dict[str, Path]:
    """Models by a name each: the file's, or the path where two files have the same."""
    for model in models:
        if not model.is_file():
            raise ValueError(f"{model}: no such file")
    names = [model.name for model in models]
    found = {str(m) if names.count(m.name) > 1 else m.name: m for m in models}
    if len(found) < len(models):
        raise ValueError("a model is given twice")
    return found


def _readable(files: Mapping[str, Path]) -> None:
    """Compile the models, so that bad ones are reported before anything is started."""
    from sw.compiler import compile_model

    for path in files.values():
        compile_model(path.read_bytes())


def _points(asked: Sweep, models: list[str]) -> list[Any]:
    """The points that were asked for, checked before anything is started."""
    from cosim.engines.settings import DRAM, axes, dram_settings
    from cosim.shards.sweep import geometry_settings, points

    cores = _numbers("--cores", asked.cores)
    banks = [
        None if word == "auto" else _numbers("--weight-banks", word)[0]
        for word in asked.weight_banks.split(",")
    ]
    memories = axes(asked.dram, dram_settings(), DRAM)
    geometries: dict[str, Any] = axes(asked.geometry, geometry_settings(), "--geometry")
    return points(models, cores, memories, geometries, banks)


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers as in 1,3, not '{text}'") from None


def print_sweep(console: Any, table: Sequence[dict[str, Any]], clock: float) -> None:
    """Print the table, with a column for each setting that was given."""
    from rich.table import Table

    settings = [name for name in table[0] if name.startswith(("dram.", "geometry."))]
    if len({row["weight_banks"] for row in table}) > 1:
        settings.append("weight_banks")
    shown = Table(box=None)
    for heading in ("model", "cores", *(name.rpartition(".")[2] for name in settings)):
        shown.add_column(heading, justify="left" if heading == "model" else "right")
    for heading in ("cycles", f"ms at {clock:g} MHz", "MB read", "MB written", "array busy"):
        shown.add_column(heading, justify="right")
    shown.add_column("verdict")
    for row in table:
        given = [row["model"], row["cores"], *(row[name] for name in settings)]
        if row["error"]:
            shown.add_row(*map(str, given), "-", "-", "-", "-", "-", row["error"])
            continue
        verdict = {True: "match", False: f"MISMATCH {row['first_difference']}", None: "not checked"}
        shown.add_row(
            *map(str, given),
            f"{row['cycles']:,}",
            f"{row['ms']:.3f}",
            f"{row['bytes_read'] / 1e6:.2f}",
            f"{row['bytes_written'] / 1e6:.2f}",
            f"{row['array_busy']:.1%}",
            verdict[row["match"]],
        )
    console.print(shown)
    if any(row["geometry"].startswith("not ") for row in table):
        console.print("Points with another geometry than the RK3588's are not the RK3588.")


def _csv(table: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = tables.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()
