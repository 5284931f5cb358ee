"""Mutation check: small faults put into RTL or golden sources, and how many of them conformance finds.

``python -m cosim.conformance.mutation --rtl 60 --golden 140 --seed 7 --report docs/mutation.md``

A mutant is tried on few cases of every group first, then on more and more (`mutation_corpus.ROUNDS`), and
is *found* at the first case that differs, raises or does not end; it is *void* when it cannot be imported,
and otherwise it *survives*.  A golden mutant must show what the unchanged model does; an RTL mutant is
compared with the golden model as in any conformance run.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from cosim.conformance import mutation_golden, mutation_rtl
from cosim.conformance.mutation_corpus import ROUNDS, entries, rounds
from cosim.conformance.mutation_verdict import SURVIVED, Verdict, counted, good, markdown

ROOT = Path(__file__).resolve().parents[2]


def _say(verdict: Verdict) -> None:
    print(f"{verdict.result:9} {verdict.seconds:6.1f} s  {verdict.mutant}  [{verdict.detail}]", flush=True)


def _golden(count: int, seed: int, most: int, workers: int) -> list[Verdict]:
    begin = time.monotonic()
    corpus = entries(seed, most, ROOT)
    print(f"{len(corpus)} cases drawn and recorded in {time.monotonic() - begin:.0f} s", flush=True)
    source = mutation_golden.candidates(ROOT, np.random.default_rng([seed, 6]))
    unchanged = mutation_golden.unchanged(ROOT)
    return mutation_golden.check(source, unchanged, count, corpus, rounds(most), workers, _say)


def _read(paths: list[Path]) -> tuple[list[Verdict], list[str]]:
    """Verdicts and commands of earlier runs."""
    verdicts, commands = [], []
    for path in paths:
        data = json.loads(path.read_text())
        verdicts += [Verdict(**mutant) for mutant in data["mutants"]]
        commands += data["commands"]
    return verdicts, commands


def _run(given: argparse.Namespace) -> tuple[list[Verdict], list[str]]:
    """Try the mutants of both sides."""
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    verdicts = _golden(given.golden, seed, given.cases, given.workers) if given.golden else []
    if given.rtl:
        with tempfile.TemporaryDirectory(prefix="rkcosim-mutants-") as work:
            folder = given.work or Path(work)
            verdicts += mutation_rtl.check(ROOT, folder, given.rtl, seed, given.cases, given.workers, _say)
    options = f"--rtl {given.rtl} --golden {given.golden} --cases {given.cases} --seed {seed}"
    return verdicts, [f"python -m cosim.conformance.mutation {options}"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when at least 95 % of the mutants of each side are found."""
    parser = argparse.ArgumentParser(prog="python -m cosim.conformance.mutation", description=__doc__)
    parser.add_argument("--rtl", type=int, default=60, help="mutants of RTL sources (default 60)")
    parser.add_argument("--golden", type=int, default=140, help="mutants of golden sources (default 140)")
    parser.add_argument("--seed", type=int, help="of mutants and cases (default: a fresh one, printed)")
    parser.add_argument(
        "--cases", type=int, default=ROUNDS[-1], help=f"cases of each group at most (default {ROUNDS[-1]})"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants tried at a time")
    parser.add_argument("--work", type=Path, help="keep the RTL model with mutants here, for another run")
    parser.add_argument(
        "--again", type=Path, action="append", help="report what this file of --json says, try nothing"
    )
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--report", type=Path, help="write figures and survivors to this page")
    given = parser.parse_args(arguments)
    for name in ("rtl", "golden"):
        if getattr(given, name) < 0:
            parser.error(f"--{name} must not be negative")
    for name in ("cases", "workers"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if given.again:
        verdicts, commands = _read(given.again)
    else:
        verdicts, commands = _run(given)
    for side in ("golden", "rtl"):
        found, count, void = counted(verdicts, side)
        if count:
            print(f"{side}: {found} of {count} mutants found ({found / count:.1%}), {void} void")
    for verdict in verdicts:
        if verdict.result == SURVIVED:
            print(f"survived: {verdict.mutant}")
    if given.json:
        data = {"schema_version": 2, "commands": commands, "mutants": [asdict(v) for v in verdicts]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(data, indent=1) + "\n")
    if given.report:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(markdown(verdicts, commands))
    return 0 if good(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
