"""Measure the coverage of the RTL's lines and signals, and write the page.

    python -m tools.coverage                            # all runs
    python -m tools.coverage 'conformance: chains'      # some
    python -m tools.coverage --page docs/results/rtl_coverage.md   # all, and the page
    python -m tools.coverage --renumber docs/results/rtl_coverage.md  # only new line numbers, no run

The core is compiled with counters (tools/coverage/model.py). Each run is a separate process. Its result
is kept in build/coverage, so that a stopped measurement continues where it stopped. The exit code is 1 if
a run fails, if an uncovered line or signal has no reason, or if a reason is about something that is
covered or does not exist.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from rkcosim.waves.whole_file import whole_file
from tools.coverage import model
from tools.coverage.page import StimulusRun, page, renumbered
from tools.coverage.reasons import Reasons, name_of, read
from tools.coverage.results import Coverage, coverage
from tools.coverage.stimuli import PIECES, Piece

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("build/coverage")
PIECE_SECONDS = 1500
"""Bound of one run."""


def run_here(piece: Piece, library: Path, size: int, result: Path) -> int:
    """Run a piece with engines that count, and keep what it covered; return its exit code."""
    from tools.coverage.engine import counted

    begin = time.monotonic()
    with counted(library, size) as taken:
        code = _run(piece.words)
    seconds = time.monotonic() - begin
    facts = json.dumps({"code": code, "seconds": round(seconds, 1), "cycles": int(taken.cycles)})
    with whole_file(result) as part, open(part, "wb") as file:
        np.savez_compressed(file, seen=np.packbits(taken.seen), facts=np.array(facts))
    return code


def _run(words: Sequence[str]) -> int:
    if words[0] == "pytest":
        import pytest

        os.environ["RKCOSIM_TESTS"] = "all"  # with what tests/heavy.toml leaves out of `make test`
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not heavy and not shared"]
        return int(pytest.main([*options, *words[1:]]))
    from rkcosim.cli.main import app

    try:
        app(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _apart(piece: Piece, result: Path) -> int:
    """Run a piece in another process; return its exit code."""
    log = result.with_suffix(".log")
    command = [sys.executable, "-m", "tools.coverage", "--one", piece.name, "--result", str(result)]
    with open(log, "w", encoding="utf-8") as out, contextlib.suppress(subprocess.TimeoutExpired):
        environment = {**os.environ, "RKCOSIM_AHEAD": "0"}
        done = subprocess.run(
            command, stdout=out, stderr=out, cwd=ROOT, check=False, timeout=PIECE_SECONDS, env=environment
        )
        return done.returncode
    return -1


def _result(folder: Path, piece: Piece) -> Path:
    """Return the file of a result; it has another name if the arguments of the piece change."""
    name = "".join(letter if letter.isalnum() else "_" for letter in piece.name)
    return folder / "runs" / f"{name}-{zlib.crc32(' '.join(piece.words).encode()):08x}.npz"


def _passed(result: Path) -> bool:
    """Whether a piece has been run, and has passed."""
    if not result.is_file():
        return False
    with np.load(result) as kept:
        return not json.loads(str(kept["facts"]))["code"]


def _summary(found: Coverage) -> str:
    lines = list(found.lines.values())
    bits, missing = sum(len(s.signal.bits) for s in found.signals), sum(len(s.missing) for s in found.signals)
    ran = sum(bool(line.ran) for line in lines)
    return (
        f"{ran} of {len(lines)} lines ({100 * ran / len(lines):.2f} %), "
        f"{bits - missing:,} of {bits:,} bits ({100 * (1 - missing / bits):.2f} %)"
    )


def _problems(found: Coverage, reasons: Reasons) -> list[str]:
    """Return what is wrong with the reasons, as sentences."""
    out = reasons.unused(found, ROOT)
    for line in found.uncovered():
        if not reasons.line(line.file, line.text(ROOT)):
            out.append(
                f"{line.file}:{line.number}: did not run, and reasons.toml has no reason: {line.text(ROOT)}"
            )
    for toggles in found.signals:
        left = reasons.signal(toggles)[1] if toggles.missing else set()
        if left:
            out.append(f"{toggles.signal.place}: {name_of(toggles)}: {len(left)} bits have no reason")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.coverage", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs; default: all")
    parser.add_argument("--page", type=Path, help="write the page of the coverage to this file")
    parser.add_argument(
        "--renumber",
        type=Path,
        metavar="PAGE",
        help="only bring the line numbers of a page up to date with sources whose lines have moved",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time (default: 2)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.renumber:
        try:
            given.renumber.write_text(renumbered(given.renumber.read_text(), ROOT))
        except ValueError as error:
            parser.error(str(error))
        return 0
    folder = FOLDER / model.key()
    libraries = {True: model.library(folder, False), False: model.library(folder / "fast", True)}
    counters = {
        cell: model.Counters.load(path.with_name("counters.json")) for cell, path in libraries.items()
    }
    if given.one:
        piece = next(piece for piece in PIECES if piece.name == given.one)
        return run_here(piece, libraries[piece.cell], counters[piece.cell].size, given.result)
    unknown = set(given.names) - {piece.name for piece in PIECES}
    if unknown:
        parser.error(f"no run is called {', '.join(sorted(unknown))}")
    chosen = [piece for piece in PIECES if not given.names or piece.name in given.names]
    (folder / "runs").mkdir(exist_ok=True)
    missing = [piece for piece in chosen if not _passed(_result(folder, piece))]
    with ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(_apart, piece, _result(folder, piece)): piece for piece in missing}
        for done in as_completed(running):
            code = done.result()
            said = "ok" if code == 0 else "too long" if code < 0 else f"exit code {code}"
            print(f"{said:12} {running[done].name}", flush=True)
    seen = {cell: np.zeros(known.size, bool) for cell, known in counters.items()}
    runs, problems = [], []
    for piece in chosen:
        result = _result(folder, piece)
        if not result.is_file():
            problems.append(f"{piece.name}: no result, see {result.with_suffix('.log')}")
            continue
        with np.load(result) as kept:
            above = np.unpackbits(kept["seen"], count=counters[piece.cell].size).astype(bool)
            seen[piece.cell] |= above
            facts = json.loads(str(kept["facts"]))
        runs.append(StimulusRun(piece.name, facts["cycles"], facts["seconds"]))
        if facts["code"]:
            problems.append(f"{piece.name}: exit code {facts['code']}, see {result.with_suffix('.log')}")
    found = coverage(counters[True], seen[True], (counters[False], seen[False]))
    reasons = read()
    problems += _problems(found, reasons) if chosen == list(PIECES) else []
    if given.page:
        given.page.write_text(page(found, reasons, runs, ROOT))
    print("\n".join([*problems, _summary(found)]))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
