"""What `rkcosim advise` promises, and what the RTL then takes: docs/results/advice.md.

    python -m benchmarks.advice [NAME...] [--seconds S] [--again] [--record FILE] [--page FILE]

For each network, the first pieces of advice are made one at a time, the changed file is written, and
`rkcosim.measure.models.run` runs it on the default engine, the whole RTL.  After each network the record and
the page are written, so that a run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.zoo.measure import job_of
from benchmarks.zoo.networks import BY_NAME
from benchmarks.zoo.sources import digest_of
from rkcosim.base import BAD_INPUT, version
from rkcosim.compiler.sharing import DIVIDE_VARIABLE
from rkcosim.measure.advice.advise import Advice, Tried, advise, readable
from rkcosim.measure.advice.change import SAID, Subject
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.page import table
from rkcosim.waves.whole_file import whole_file

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs/results/advice.json"
PAGE = ROOT / "docs/results/advice.md"
SCHEMA_VERSION = 1

NETWORKS = (
    "mobile_face_net",
    "squeezenet",
    "retinaface_mobile320",
    "mobilenet_v1",
    "mobilenet_v2",
    "efficientnet_lite0",
    "mobilenet_v3_large",
    "clip_block",
    "ssd_mobilenet_v1",
    "bert_mini",
)
"""Networks of the zoo whose files need nothing but this repository."""

FIRST = 3
"""Pieces of advice of each network that are run in RTL; sizes of the input where there are fewer others."""

TARGET = 0.02
"""Largest relative difference between promised and obtained cycles."""


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Return the figures of a network."""
    path = job_of(BY_NAME[name], []).path
    advice = advise(path.read_bytes(), path.name, seconds=seconds)
    before = run_model(path, check=False).cycles_each
    rows = []
    for one in [*advice.advised, *advice.of("sizes")][:FIRST]:
        rows.append(_row(one, advice, path.read_bytes()))
        print(
            f"  {rows[-1]['name']}: {rows[-1]['promised']:,} promised, {rows[-1]['obtained']:,}", flush=True
        )
    return {
        "model": digest_of(path),
        "version": version(),
        "seconds": seconds,
        "before": before,
        "advised": len(advice.advised),
        "not_faster": len(advice.not_faster),
        "not_tried": len(advice.untried),
        "names_not_faster": [one.name for one in advice.not_faster],
        "reasons_not_tried": {one.name: one.why for one in advice.untried},
        "rows": rows,
        "combined": [one.as_json() for one in advice.combined],
    }


def _row(one: Tried, advice: Advice, data: bytes) -> dict[str, Any]:
    """Return what a change promised and what the RTL takes with it."""
    assert one.time is not None
    subject = one.change.apply(Subject(readable(data)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "changed.onnx")
        path.write_bytes(subject.model)
        found = run_model(path, check=False, cores=subject.cores)
    return {
        "name": one.change.name,
        "text": one.change.text,
        "meaning": one.change.meaning,
        "promised": one.time.cycles,
        "promised_saving": one.saved,
        "obtained": found.cycles_each * subject.runs,
        "submits": found.submits * subject.runs,
        "promised_submits": one.time.submits,
        "share": one.time.milliseconds / advice.before.milliseconds,
    }


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    rows, worst = [], 0.0
    done = [name for name in NETWORKS if name in record]
    for name in done:
        found = record[name]
        for number, row in enumerate(found["rows"]):
            saving = found["before"] - row["obtained"]
            apart = abs(row["obtained"] - row["promised"]) / row["obtained"]
            worst = max(worst, apart)
            first = (f"{BY_NAME[name].title} (`{name}`)", f"{found['before']:,}") if not number else ("", "")
            rows.append(
                (
                    *first,
                    f"{row['text']} (`{row['name']}`)",
                    SAID[row["meaning"]],
                    f"{row['promised']:,}",
                    f"{row['obtained']:,}",
                    f"{row['obtained'] / row['promised'] - 1:+.3%}",
                    f"{row['promised_saving']:,}",
                    f"{saving:,}",
                )
            )
    heads = ("network", "cycles", "advice", "results", "promised", "obtained", "apart", "saves", "saved")
    combined = [
        (
            f"`{name}`",
            " + ".join(f"`{one}`" for one in last["changes"]),
            SAID[last["meaning"]],
            f"{record[name]['before']:,}",
            f"{last['cycles']:,}",
            f"{last['cycles'] / record[name]['before']:.1%}",
        )
        for name in done
        for last in record[name]["combined"]
    ]
    lines = [
        "# Advice that comes true",
        "",
        "Written by `python -m benchmarks.advice`. For networks of [the zoo](zoo.md) whose files need only "
        "this repository (weights are random), the first three pieces of advice of `rkcosim advise` "
        "([how to](../howto/faster.md)), or other sizes of the input where there are fewer: the cycles that "
        "the advice promises (the engine `fast`), and those "
        "that the changed network then takes on the default engine, the whole RTL, through `rknn_api`.",
        "",
        f"{len(rows)} pieces of advice of {len(done)} networks; the largest difference between promised and "
        f"obtained cycles is {worst:.3%} (target: {TARGET:.0%}).",
        "",
        *table(heads, rows),
        "",
        *(line for name in done for line in _fewer(name, record[name])),
        "Rows of cores (`cores-3`) are older than the compiler's regard for submits: they divide layers by "
        f"cycles alone (`{DIVIDE_VARIABLE}=cycles`, [several cores](../models.md#several-cores)).",
        "",
        '"Saves" is the promised difference from the network as it is, "saved" the obtained one. What needs '
        "training was not trained: weights are cut or kept as they are, so that cycles are right and results "
        "are not.",
        "",
        "## Together",
        "",
        "Changes that were made one after the other, each kept if it saved more beside those before it; "
        "cycles of the engine `fast`. Which changes are tried depends on the seconds that are given "
        f"({', '.join(sorted({format(record[name]['seconds'], 'g') for name in done}))} here).",
        "",
        *table(("network", "changes", "results", "cycles before", "cycles", "share"), combined),
        "",
    ]
    return "\n".join(lines)


def _fewer(name: str, found: dict[str, Any]) -> list[str]:
    """Return a paragraph about a network with fewer than `FIRST` pieces of advice."""
    if len(found["rows"]) >= FIRST:
        return []
    late = "; ".join(f"`{one}`: {why}" for one, why in found.get("reasons_not_tried", {}).items())
    rest = f", and {found['not_tried']} were not tried ({late or 'the seconds did not suffice'})"
    return [
        f"`{name}` has {len(found['rows'])} of {FIRST}: {found['not_faster']} other changes were not faster"
        f"{rest if found['not_tried'] else ', and all were tried'}.",
        "",
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a promise was missed by more than `TARGET`."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.advice", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="networks; default: all")
    made.add_argument("--seconds", type=float, default=150.0, help="seconds of advice for each network")
    made.add_argument("--again", action="store_true", help="also networks that the record has")
    made.add_argument("--record", type=Path, default=RECORD, help="record of what was measured")
    made.add_argument("--page", type=Path, default=PAGE, help="page to write")
    given = made.parse_args(words)
    if unknown := sorted(set(given.names) - set(NETWORKS)):
        print(f"benchmarks.advice: no network {', '.join(unknown)}", file=sys.stderr)
        return BAD_INPUT
    record: dict[str, Any] = {}
    if given.record.exists():
        record = json.loads(given.record.read_text())["networks"]
    for name in given.names or NETWORKS:
        if name in record and not given.again:
            continue
        print(name, flush=True)
        record[name] = measure(name, given.seconds)
        with whole_file(given.record) as part:
            data = {"schema_version": SCHEMA_VERSION, "networks": record}
            part.write_text(json.dumps(data, indent=1) + "\n")
        with whole_file(given.page) as part:
            part.write_text(page(record))
    given.page.write_text(page(record))
    wrong = [
        row
        for found in record.values()
        for row in found["rows"]
        if abs(row["obtained"] - row["promised"]) > TARGET * row["obtained"]
    ]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
