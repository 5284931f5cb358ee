"""Command line of `benchmarks.public_models`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.public_models import __doc__ as TEXT
from benchmarks.public_models.files import FILES, Public, found_in
from benchmarks.public_models.measure import (
    Record,
    measure,
    measured_apart,
    read_records,
    record_of_process,
    write_records,
)
from benchmarks.public_models.options import sweep_parser
from benchmarks.public_models.page import page, summary
from benchmarks.public_models.unseen import UNSEEN
from benchmarks.public_models.whole import measure_whole, places
from benchmarks.public_models.whole_page import AWAY, REFUSED, class_of
from benchmarks.public_models.whole_page import page as whole_page
from rkcosim.compiler.options import using_options
from rkcosim.waves.whole_file import whole_file


def main(given: list[str] | None = None) -> int:
    """Measure the files below some folders; return 1 if one does not match or ended unexpectedly."""
    asked = _options(given)
    if asked.one and asked.whole:
        measure_whole(asked.one, asked.part, asked.seed)
        return 0
    if asked.one:
        with using_options(outputs=tuple(filter(None, asked.outputs.split(",")))):
            measure(asked.one, asked.part, asked.rtl, asked.seed)
        return 0
    if asked.whole:
        return _whole(asked)
    known = read_records(asked.results)
    files = found_in([Path(os.path.abspath(folder)) for folder in asked.folders], FILES)
    for number, (item, path) in enumerate(files.items(), 1):
        if asked.only not in item.path or not (asked.again or _wanted(known.get(item.path), asked.rtl)):
            continue
        part = asked.results.with_name(f"{asked.results.name}.record")
        record = measured_apart(path, part, asked.rtl, asked.seed, asked.seconds)
        if item.outputs and record.get("expected"):
            more = measured_apart(path, part, asked.rtl, asked.seed, asked.seconds, item.outputs)
            record = more | {"refusal": record["error"]}
        elif item.outputs and "problem" in record.get("compare", {}):
            more = measured_apart(path, part, 0, asked.seed, asked.seconds, item.outputs)
            if "layers" in more.get("compare", {}):
                record["compare"] = {**more["compare"], "outputs_cut": True}
        known[item.path] = record
        write_records(asked.results, known)
        state = record.get("error") or record["stage"]
        print(f"[{number}/{len(files)}] {item.name}: {' '.join(state.split())}, {record['seconds']['all']} s")
    records = {item: known[item.path] for item in FILES if item.path in known}
    missing = [item for item in FILES if item.path not in known]
    print(summary(records, missing))
    if asked.page is not None:
        with whole_file(asked.page) as part:
            part.write_text(page(records, missing, asked.seed))
    return 0 if all(_good(item, record) for item, record in records.items()) else 1


def _whole(asked: argparse.Namespace) -> int:
    """Compare whole outputs of the files that were not known before; return 1 if one is wrong or refused."""
    known = read_records(asked.results)
    part = asked.results.with_name(f"{asked.results.name}.record")
    files = places(asked.folders, UNSEEN)
    for number, (item, path) in enumerate(files.items(), 1):
        key = f"{item.source}/{item.path}"
        if asked.only not in key or (key in known and not asked.again):
            continue
        words = ["--whole", "--one", path, "--part", part, "--seed", asked.seed]
        command = [sys.executable, "-m", "benchmarks.public_models", *map(str, words)]
        known[key] = record_of_process(command, part, asked.seconds)
        write_records(asked.results, known)
        print(f"[{number}/{len(files)}] {key}: {class_of(known[key])}, {known[key]['seconds']['all']} s")
    records = {
        item: known[f"{item.source}/{item.path}"] for item in UNSEEN if f"{item.source}/{item.path}" in known
    }
    if asked.page is not None:
        with whole_file(asked.page) as file:
            file.write_text(whole_page(records, asked.seed))
    return int(any(class_of(record) in (AWAY, REFUSED) for record in records.values()))


def _wanted(record: Record | None, rtl: int) -> bool:
    """Whether there is something to measure: a file without record, or one that may run on the RTL, too."""
    return record is None or ("rtl" not in record and 0 < record.get("formula_cycles", 0) <= rtl)


def _good(item: Public, record: Record) -> bool:
    if "error" in record:
        return bool(item.invalid and record["expected"])
    return bool(record["golden"]["match"] and record.get("rtl", {}).get("match", True))


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = sweep_parser("python -m benchmarks.public_models", TEXT, "build/public_models.json")
    parser.add_argument(
        "--whole", action="store_true", help="compare whole outputs, of the files of unseen.py"
    )
    parser.add_argument("--outputs", default="", help=argparse.SUPPRESS)
    return parser.parse_args(given)


if __name__ == "__main__":
    raise SystemExit(main())
