"""Command line of `benchmarks.delegate_models`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.delegate_models import __doc__ as TEXT
from benchmarks.delegate_models.measure import measure
from benchmarks.delegate_models.page import good, page, state, summary
from benchmarks.public_models.files import FILES, found_in
from benchmarks.public_models.measure import read_records, record_of_process, write_records
from benchmarks.public_models.options import sweep_parser
from rkcosim.waves.whole_file import whole_file

PROGRAM = "python -m benchmarks.delegate_models"


def main(given: list[str] | None = None) -> int:
    """Measure the files below some folders; return 1 if one is not as it should be."""
    asked = _options(given)
    if asked.one:
        measure(asked.one, asked.part, asked.rtl, asked.seed, asked.seconds)
        return 0
    known = read_records(asked.results)
    files = found_in([Path(os.path.abspath(folder)) for folder in asked.folders], FILES)
    for number, (item, path) in enumerate(files.items(), 1):
        if asked.only not in item.path or (item.path in known and not asked.again):
            continue
        part = asked.results.with_name(f"{asked.results.name}.record")
        words = ["--one", path, "--part", part, "--rtl", asked.rtl, "--seed", asked.seed]
        words += ["--seconds", asked.seconds]
        command = [sys.executable, "-m", "benchmarks.delegate_models", *map(str, words)]
        known[item.path] = record = record_of_process(command, part, 6 * asked.seconds)
        write_records(asked.results, known)
        print(
            f"[{number}/{len(files)}] {item.name}: {state(record)}, {record['seconds']['all']} s", flush=True
        )
    records = {item: known[item.path] for item in FILES if item.path in known}
    missing = [item for item in FILES if item.path not in known]
    print(summary(records, missing))
    if asked.page is not None:
        with whole_file(asked.page) as part:
            part.write_text(page(records, missing, asked.seed))
    return 0 if all(map(good, records.values())) else 1


def _options(given: list[str] | None) -> argparse.Namespace:
    return sweep_parser(PROGRAM, TEXT, "build/delegate_models.json").parse_args(given)


if __name__ == "__main__":
    raise SystemExit(main())
