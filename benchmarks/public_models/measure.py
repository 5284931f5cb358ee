"""One file in a process of its own: compiled, run and compared; its record says how far it came."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rkcosim.waves.whole_file import whole_file

Record = dict[str, Any]


def measure(path: Path, part: Path, rtl: int, seed: int) -> None:
    """Measure a file and write its record after every stage, so that a process that ends leaves what it has.

    Parameters
    ----------
    path
        The model.
    part
        The record's file (JSON).
    rtl
        Run on the RTL too if an inference is estimated at no more cycles; 0: never.
    seed
        Seed of the random inputs.
    """
    from rkcosim.base import version
    from rkcosim.cli.exits import BAD_INPUT, exit_code
    from rkcosim.measure.models.hosted import host_work
    from rkcosim.measure.perf.bench.machine import peak_bytes
    from rkcosim.rknn_file.opening import open_file

    record: Record = {"stage": "compile", "seconds": {}, "version": version()}

    def done(stage: str, begun: float) -> None:
        record["seconds"][stage] = round(time.perf_counter() - begun, 2)
        record["peak_bytes"] = record.get("peak_bytes", {}) | {stage: peak_bytes()}

    def save() -> None:
        with whole_file(part) as file:
            file.write_text(json.dumps(record))

    save()
    try:
        begun = time.perf_counter()
        model = open_file(path)
        done("compile", begun)
        work = host_work(model)
        record["macs"] = sum(task.macs for task in model.plan.tasks)
        record["host"] = [item.kind for item in work.operators]
        record["host_share"], record["host_mac_share"] = work.element_share, work.mac_share
        record["inputs"] = [[str(info.dtype), *info.shape] for info in model.inputs]
        record["stage"] = "run"
        save()
        _run(path, record, done, "golden", seed)
        record["stage"] = "compare"
        save()
        _compare(path, record, done, seed)
        record["stage"] = "rtl"
        save()
        if 0 < record["formula_cycles"] <= rtl:
            _run(path, record, done, None, seed)
        record["stage"] = "done"
    except Exception as error:
        record["error"] = str(error).replace(f"{path}: ", "") or type(error).__name__
        record["expected"] = exit_code(error) == BAD_INPUT
    save()


def _run(path: Path, record: Record, done: Any, engine: str | None, seed: int) -> None:
    """Run with both golden models as a check; `engine` None is the fastest one of the RTL."""
    from rkcosim.measure.models.run import run_model

    begun = time.perf_counter()
    found = run_model(path, engine=engine, check=True, seed=seed)
    done(engine or "rtl", begun)
    record["golden" if engine else "rtl"] = {
        "match": found.verdict["match"],
        "first_difference": found.verdict.get("first_difference"),
        "cycles": found.cycles if found.measured else None,
    }
    record["formula_cycles"] = sum(row.formula_cycles or 0 for row in found.layers)


def _compare(path: Path, record: Record, done: Any, seed: int) -> None:
    from rkcosim.measure.models.compare import compare
    from rkcosim.measure.models.references import ReferenceProblem

    begun = time.perf_counter()
    try:
        found = compare(path, seed=seed).as_json()
    except ReferenceProblem as error:
        record["compare"] = {"problem": str(error).removeprefix(f"{path}: ")}
        return
    done("compare", begun)
    rows = found["layers"]
    keep = ("name", "op", "unit", "worst", "bound", "elements", "differing")
    record["compare"] = {
        "reference": found["reference"],
        "match": found["match"],
        "layers": {unit: sum(row["unit"] == unit for row in rows) for unit in ("step", "fp16")},
        "elements": sum(row["elements"] for row in rows),
        "differing": sum(row["differing"] for row in rows),
        "worst": {
            unit: max((row["worst"] for row in rows if row["unit"] == unit), default=0)
            for unit in ("step", "fp16")
        },
        "above_one": [
            {name: row[name] for name in keep} for row in rows if row["unit"] == "step" and row["worst"] > 1
        ],
        "beyond": [{name: row[name] for name in keep} for row in rows if not row["within_bound"]],
        "outputs": found["outputs"],
        "skipped": len(found["skipped"]),
    }


def measured_apart(
    path: Path, part: Path, rtl: int, seed: int, seconds: float, outputs: Sequence[str] = ()
) -> Record:
    """Measure a file in a new process with a time limit, and return its record."""
    words = ["--one", path, "--part", part, "--rtl", rtl, "--seed", seed, "--outputs", ",".join(outputs)]
    return record_of_process(
        [sys.executable, "-m", "benchmarks.public_models", *map(str, words)], part, seconds
    )


def record_of_process(command: Sequence[str], part: Path, seconds: float) -> Record:
    """Run a process that writes a record, with a time limit, and return the record.

    Parameters
    ----------
    command
        The process.
    part
        The file that it writes, which is removed.
    seconds
        The limit.
    """
    begun = time.perf_counter()
    try:
        process = subprocess.run(command, timeout=seconds, capture_output=True, text=True, check=False)
        ended = "" if process.returncode == 0 else f"the process ended with code {process.returncode}"
        if ended and process.stderr.strip():
            ended += f": {process.stderr.strip().splitlines()[-1]}"
    except subprocess.TimeoutExpired:
        ended = f"stopped after {seconds:.0f} s"
    record: Record = (
        json.loads(part.read_text(encoding="utf-8")) if part.is_file() else {"stage": "start", "seconds": {}}
    )
    part.unlink(missing_ok=True)
    if ended:
        record |= {"error": ended, "expected": False}
    record["seconds"]["all"] = round(time.perf_counter() - begun, 2)
    return record


def read_records(results: Path) -> dict[str, Record]:
    """Return the records of earlier runs by path."""
    if not results.is_file():
        return {}
    return dict(json.loads(results.read_text(encoding="utf-8")))


def write_records(results: Path, records: dict[str, Record]) -> None:
    """Write the records of all runs so far."""
    with whole_file(results) as part:
        part.write_text(json.dumps(records, indent=1) + "\n")
