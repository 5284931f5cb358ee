"""Networks that people run on the RK3588, each measured once, with docs/results/zoo.md as the result.

    python -m benchmarks.zoo [NAME...] [--sources DIR]... [--list] [--again] [--no-run] [--record FILE]
                             [--page FILE]

Each network runs on the default engine with every tensor compared with both golden models, and is compared
with the runtime of its format.  After each network the record and the page are written, so that a run that is
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo.boards import BOARDS
from benchmarks.zoo.measure import Job, job_of, joined, measure_apart
from benchmarks.zoo.networks import BY_NAME, ENTRIES, Entry
from benchmarks.zoo.page import PAGE, write_page
from benchmarks.zoo.record import RECORD, Measured, RecordError, read_record, write_record
from benchmarks.zoo.sources import VARIABLE, SourceError, digest_of, folders_of
from rkcosim.base import BAD_INPUT
from rkcosim.measure.perf.boards.networks import NetworkError

LIMIT = 900.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="networks to measure; default: all")
    made.add_argument("--list", action="store_true", help="list the networks and what is measured, and end")
    made.add_argument(
        "--sources",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help=f"folder with installed packages or checkouts; repeatable, also in the variable {VARIABLE}",
    )
    made.add_argument("--again", action="store_true", help="also measure networks that the record has")
    made.add_argument(
        "--no-run",
        action="store_true",
        help="only load and compare; a run of the same file in the record stays, else cycles are estimated",
    )
    made.add_argument("--record", type=Path, default=RECORD, help="record of measured networks")
    made.add_argument("--page", type=Path, default=PAGE, help="page to write; default: docs/results/zoo.md")
    made.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"most seconds a network; {LIMIT:g}"
    )
    return made


def line_of(entry: Entry, found: Measured | None) -> str:
    """Return a line about a network for --list."""
    if found is None:
        state = "not measured"
    else:
        state = "failed" if found.failed else "estimated" if found.estimated else "measured"
    board = " board" if entry.name in BOARDS else ""
    return f"{entry.name:26} {entry.task:16} {state:13} {entry.source.origin}{board}"


def said(found: Measured) -> str:
    """Return a line about a measured network."""
    if found.failed:
        return f"not run: {' '.join(found.failed.split())[:160]}"
    verdict = (
        "estimated" if found.estimated else "match" if found.match else f"MISMATCH: {found.first_difference}"
    )
    beside = "" if found.agreement is None else f", {'within' if found.agreement.within else 'beyond'} bounds"
    return (
        f"{verdict}{beside}, {found.cycles:,} cycles, {found.milliseconds:.3f} ms, {found.host_seconds:.0f} s"
    )


def wanted(found: Measured | None, job: Job, again: bool) -> bool:
    """Return whether a network is to be measured: it is new, failed, was not run, or has another
    model file."""
    if again or found is None:
        return True
    return bool(found.failed) or found.estimated or found.model != digest_of(job.path)


def run(entries: Sequence[Entry], given: argparse.Namespace, folders: Sequence[Path]) -> int:
    """Measure networks one after the other; return how many could not be measured or do not match."""
    wrong = 0
    for number, entry in enumerate(entries, 1):
        head = f"[{number:2}/{len(entries)}] {entry.name:26}"
        try:
            job = job_of(entry, folders)
        except (SourceError, NetworkError) as error:
            print(f"{head} left out: {error}", flush=True)
            wrong += 1
            continue
        before = read_record(given.record).get(entry.name)
        if before is not None and not wanted(before, job, given.again):
            print(f"{head} in the record: {said(before)}", flush=True)
            wrong += not before.match
            continue
        found = measure_apart(job, given.limit, run=not given.no_run)
        if given.no_run:
            found = joined(before, found)
        record = read_record(given.record) | {entry.name: found}
        write_record(given.record, [record[name] for name in BY_NAME if name in record])
        write_page(record, given.page)
        print(f"{head} {said(found)}", flush=True)
        wrong += not (found.match or found.estimated)
    return wrong


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0 if every network asked for was measured and matches, otherwise 1."""
    made = parser()
    given = made.parse_args(words)
    unknown = sorted(set(given.names) - set(BY_NAME))
    if unknown:
        made.error(f"no network {', '.join(unknown)}; --list lists them")
    if not given.limit > 0:
        made.error("--limit must be a positive number of seconds")
    entries = [entry for entry in ENTRIES if not given.names or entry.name in given.names]
    try:
        record = read_record(given.record)
        if given.list:
            print("\n".join(line_of(entry, record.get(entry.name)) for entry in entries))
            return 0
        return 1 if run(entries, given, folders_of(given.sources)) else 0
    except (SourceError, RecordError) as error:
        print(f"benchmarks.zoo: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    raise SystemExit(main())
