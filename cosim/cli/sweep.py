"""`rkcosim sweep`: run models under many settings, on a cluster, into one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rkcosim.base import DEVICE_ERROR
from rkcosim.cli import results
from rkcosim.cli.app import argument, command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import Csv, DramLists, EngineOptions, Scheduler, Workers, one_cluster
from rkcosim.cli.results import write_csv
from rkcosim.measure.models.summary import KEPT


@dataclass(frozen=True, kw_only=True)
class SweepOptions(EngineOptions):
    """Options of `rkcosim sweep`."""

    models: tuple[Path, ...] = argument("TFLite or ONNX models.", metavar="MODEL...")
    cores: str = option(
        "Numbers of cores among which large layers are divided, as 1,3.", metavar="LIST", default="1"
    )
    dram: DramLists = ()
    geometry: tuple[str, ...] = option(
        "Geometry parameter and the values to sweep; results that are not the RK3588's are marked; "
        "repeatable.",
        metavar="NAME=LIST",
        default=(),
    )
    weight_banks: str = option(
        "Numbers of the 12 CBUF banks that hold weights, as auto,2,4.", metavar="LIST", default="auto"
    )
    check: bool = option("Compare every tensor with both golden models.", "--check/--no-check", default=True)
    seed: int = option("Seed of the random inputs.", default=0)
    clock: float = option(
        "Clock of the NPU in MHz, used to convert cycles to times.", low=1, metavar="MHZ", default=1000.0
    )
    scheduler: Scheduler = None
    workers: Workers = None
    csv: Csv = None


@command(
    "rkcosim sweep examples/digits/digits_int8.onnx --cores 1,2,3",
    "rkcosim sweep a.onnx b.tflite --cores 1,3 --dram core_bytes_per_cycle=8,11.75 --csv sweep.csv",
    "rkcosim sweep a.onnx --dram read_latency=60,120,240 --scheduler tcp://farm:8786 --json -",
)
def sweep_command(asked: SweepOptions) -> None:
    """Run models under many settings, in parallel, into one table.

    The exit code is 1 if a checked run differs, 3 if a run failed.
    """
    from rkcosim.base import progress
    from rkcosim.engines.protocol import CHANGES, FAST, require
    from rkcosim.measure.shards.cluster import open_cluster
    from rkcosim.measure.shards.session import build
    from rkcosim.measure.shards.sweep import run_sweep

    one_cluster(asked.scheduler, asked.workers)
    files = _names(asked.models)
    every = _points(asked, list(files))
    require(asked.engine, "has_cycles", "a sweep")
    if asked.geometry and asked.engine in (CHANGES, FAST):
        raise ValueError(f"the engine {asked.engine} has the RK3588's geometry only: omit --geometry")
    _readable(files)
    console = results.console()
    if asked.scheduler is None and any(not point.differs for point in every):
        build(asked.engine, asked.exact)
    with ExitStack() as stack:
        with progress.step(
            "starting the cluster" if asked.scheduler is None else "connecting to the cluster"
        ):
            cluster = stack.enter_context(open_cluster(asked.scheduler, asked.workers))
        rows = run_sweep(
            cluster, every, files, engine=asked.engine, exact=asked.exact, check=asked.check, seed=asked.seed
        )
    table = [row.as_json(asked.clock) for row in rows]
    print_sweep(console, table, asked.clock)
    if asked.check and not all(row.error for row in rows):
        console.print(KEPT.replace("without --check", "with --no-check"))
    if asked.csv:
        write_csv(asked.csv, table, end="\n")
        console.print(f"CSV: {asked.csv}")
    asked.write({"clock_mhz": asked.clock, "points": table}, say=True)
    failed = any(row.error for row in rows)
    raise SystemExit(DEVICE_ERROR if failed else MISMATCH if any(row.match is False for row in rows) else OK)


def _names(models: Sequence[Path]) -> dict[str, Path]:
    """Give each model a name: that of its file, or the path if two files have the same name."""
    for model in models:
        if not model.is_file():
            raise ValueError(f"{model}: no such file")
    names = [model.name for model in models]
    found = {str(m) if names.count(m.name) > 1 else m.name: m for m in models}
    if len(found) < len(models):
        raise ValueError("a model is given twice")
    return found


def _readable(files: Mapping[str, Path]) -> None:
    """Compile the models, so that bad ones are reported before the cluster starts."""
    from rkcosim.rknn_file.opening import open_file

    for path in files.values():
        open_file(path)


def _points(asked: SweepOptions, models: list[str]) -> list[Any]:
    """Return the requested points, checked before the cluster starts."""
    from rkcosim.engines.settings import DRAM, axes, dram_settings
    from rkcosim.measure.shards.sweep import geometry_settings, points

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
    from rkcosim.measure.perf.boards.expected import published_line

    settings = [name for name in table[0] if name.startswith(("dram.", "geometry."))]
    if len({row["weight_banks"] for row in table}) > 1:
        settings.append("weight_banks")
    times = ("cycles|,", f"ms at {clock:g} MHz|.3f", "with driver|.3f")
    names = (f"{name.rpartition('.')[2]}|" for name in settings)
    heads = ("model", "cores|", *names, *times, "MB read|.2f", "MB written|.2f", "array busy|.1%", "verdict")
    rows: list[Sequence[object]] = []
    for row in table:
        given = [row["model"], row["cores"], *(str(row[name]) for name in settings)]
        if row["error"]:
            rows.append([*given, *[None] * 6, row["error"]])
            continue
        verdict = {True: "match", False: f"MISMATCH {row['first_difference']}", None: "not checked"}
        figures = [row["cycles"], row["ms"], row["ms_with_driver"]]
        figures += [row["bytes_read"] / 1e6, row["bytes_written"] / 1e6, row["array_busy"]]
        rows.append([*given, *figures, verdict[row["match"]]])
    console.print(results.table(None, heads, rows))
    console.print(published_line())
    if any(row["geometry"].startswith("not ") for row in table):
        console.print("Points with another geometry do not describe the RK3588.")
