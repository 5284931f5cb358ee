"""Mutation check: small faults in RTL or golden sources, and the share of them that conformance finds.

``python -m tools.mutation --rtl 60 --golden 140 --seed 7 --report docs/results/mutation.md``

A mutant is first tried on few cases of every group, then on more (`corpus.ROUNDS`).  It is *found* at
the first case that differs, raises or does not end; it is *void* if it cannot be imported; otherwise it
*survives*.  A golden mutant must show the same results as the unchanged model, including
the measured bytes and the findings that `regcmd lint` prints; an RTL mutant is compared with
the golden model as in any conformance run.  With ``--resume FILE`` an interrupted run continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tools.mutation import golden, rtl
from tools.mutation.corpus import ROUNDS, entries, rounds
from tools.mutation.verdict import SURVIVED, Verdict, counted, good, markdown

ROOT = Path(__file__).resolve().parents[2]


class Record:
    """Prints verdicts and, with a file, stores them so that a later run can continue.

    Parameters
    ----------
    path
        File with a line of JSON for the settings, then one for each verdict; None: nothing is stored.
    settings
        Settings that determine mutants and cases.

    Raises
    ------
    ValueError
        If the file was written with other settings, or is damaged.
    """

    def __init__(self, path: Path | None, settings: dict[str, object]) -> None:
        self.path = path
        self.known: dict[str, dict[str, Verdict]] = {"golden": {}, "rtl": {}}
        if path is None:
            return
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings) + "\n")
            return
        whole, _, cut_off = path.read_text().rpartition("\n")
        if cut_off:
            path.write_text(f"{whole}\n")
        lines = whole.split("\n")
        try:
            before, *verdicts = [json.loads(line) for line in lines]
            found = [Verdict(**verdict) for verdict in verdicts]
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: not a record of mutants: {error}") from None
        for name, value in settings.items():
            if before.get(name) != value:
                raise ValueError(f"{path}: recorded with {name} {before.get(name)}, this run has {value}")
        for verdict in found:
            self.known[verdict.side][verdict.mutant] = verdict

    def __call__(self, verdict: Verdict) -> None:
        """Print and store a verdict."""
        print(
            f"{verdict.result:9} {verdict.seconds:6.1f} s  {verdict.mutant}  [{verdict.detail}]", flush=True
        )
        seen = self.known[verdict.side]
        if self.path is not None and verdict.mutant not in seen:
            seen[verdict.mutant] = verdict
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")


def _sources() -> str:
    """Return a hash of all sources from which mutants and cases are made."""
    digest = hashlib.sha256()
    for folder in ("spec", "rtl", "cosim/golden", "cosim/verify", "cosim/engines/harness"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".rdl", ".h", ".cpp", ".sv"):
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _recorded_seed(path: Path | None) -> int | None:
    """Return the seed at the beginning of a record, or None."""
    if path is None or not path.exists():
        return None
    try:
        return int(json.loads(path.read_text().partition("\n")[0])["seed"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a record of mutants: {error}") from None


def _golden(count: int, seed: int, most: int, workers: int, record: Record) -> list[Verdict]:
    begin = time.monotonic()
    corpus = entries(seed, most, ROOT)
    print(f"{len(corpus)} cases drawn and recorded in {time.monotonic() - begin:.0f} s", flush=True)
    source = golden.candidates(ROOT, np.random.default_rng([seed, 6]))
    unchanged = golden.unchanged(ROOT)
    return golden.check(
        source, unchanged, count, corpus, rounds(most), workers, record, record.known["golden"]
    )


def _read(paths: list[Path]) -> tuple[list[Verdict], list[str]]:
    """Return verdicts and commands of earlier runs."""
    verdicts, commands = [], []
    for path in paths:
        data = json.loads(path.read_text())
        verdicts += [Verdict(**mutant) for mutant in data["mutants"]]
        commands += data["commands"]
    return verdicts, commands


def _run(given: argparse.Namespace) -> tuple[list[Verdict], list[str]]:
    """Try the mutants of both sides."""
    seed = given.seed
    if seed is None:
        seed = _recorded_seed(given.resume)
    if seed is None:
        seed = secrets.randbits(32)
    print(f"seed {seed}", flush=True)
    settings = {"seed": seed, "cases": given.cases, "rtl": given.rtl, "golden": given.golden}
    record = Record(given.resume, settings | {"sources": _sources()})
    done = sum(map(len, record.known.values()))
    if done:
        print(f"{given.resume}: {done} verdicts are reused", flush=True)
    verdicts = _golden(given.golden, seed, given.cases, given.workers, record) if given.golden else []
    if given.rtl:
        with tempfile.TemporaryDirectory(prefix="rkcosim-mutants-") as work:
            folder = given.work or Path(work)
            verdicts += rtl.check(
                ROOT, folder, given.rtl, seed, given.cases, given.workers, record, record.known["rtl"]
            )
    options = f"--rtl {given.rtl} --golden {given.golden} --cases {given.cases} --seed {seed}"
    return verdicts, [f"python -m tools.mutation {options}"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 if at least 95 % of the mutants of each side are found."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--rtl", type=int, default=60, help="number of mutants of RTL sources (default 60)")
    parser.add_argument("--golden", type=int, default=140, help="mutants of golden sources (default 140)")
    parser.add_argument("--seed", type=int, help="seed of mutants and cases (default: a new one, printed)")
    parser.add_argument(
        "--cases", type=int, default=ROUNDS[-1], help=f"most cases of each group (default {ROUNDS[-1]})"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants tried in parallel")
    parser.add_argument("--work", type=Path, help="folder to keep the RTL model with mutants for another run")
    parser.add_argument(
        "--again", type=Path, action="append", help="only report the verdicts of this --json file"
    )
    parser.add_argument(
        "--resume", type=Path, help="store every verdict in this file, and continue from those already in it"
    )
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--report", type=Path, help="write figures and survivors to this page")
    given = parser.parse_args(arguments)
    for name, least in {"rtl": 0, "golden": 0, "cases": 1, "workers": 1}.items():
        if getattr(given, name) < least:
            parser.error(f"--{name} must be at least {least}")
    if given.again:
        verdicts, commands = _read(given.again)
    else:
        try:
            verdicts, commands = _run(given)
        except ValueError as error:
            parser.error(str(error))
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
