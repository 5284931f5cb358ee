"""Command line of the ledger of outside suites (`python -m tools.outside --help`)."""

from __future__ import annotations

import argparse
import datetime
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rkcosim.waves.whole_file import whole_file
from tools.outside.checkouts import installed, locate
from tools.outside.page import page
from tools.outside.programs import ROOT
from tools.outside.record import Kept, Ran, Record, fallen, read, write
from tools.outside.suite import ENGINES, NotHere, Suite
from tools.outside.suites import SUITES

RECORD, PAGE = ROOT / "docs/results/outside.json", ROOT / "docs/results/outside.md"


def _parser(suites: Sequence[Suite]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.outside",
        description="Run suites of others, compare their verdicts with the kept ones, write the ledger.",
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        nargs="?",
        help="the folder of fetched repositories; without it, only the page of the kept verdicts is written",
    )
    names = [suite.name for suite in suites if suite.run is not None]
    parser.add_argument(
        "--suite",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"run this suite only; repeatable. Suites: {', '.join(names)}",
    )
    parser.add_argument(
        "--engine", action="append", choices=ENGINES, help="run on this engine only; default: on both"
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        choices=names,
        metavar="NAME",
        help="keep the new verdicts of this suite although tests fell back",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="the interpreter that has the packages of the suites; default: this one",
    )
    parser.add_argument("--record", type=Path, default=RECORD, help="kept verdicts; default: %(default)s")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page; default: %(default)s")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build/outside", help="files of the suites; default: %(default)s"
    )
    return parser


def main(given: Sequence[str] | None = None, suites: Sequence[Suite] = SUITES) -> int:
    """Run the suites below a folder; return 1 if a test fell back or a suite broke off."""
    options = _parser(suites).parse_args(given)
    if options.folder is None:
        _write_page(options.page, suites, read(options.record))
        return 0
    if not options.folder.is_dir():
        print(f"{options.folder} is no folder of repositories", file=sys.stderr)
        return 2
    record = read(options.record)
    problems: list[str] = []
    for suite in suites:
        if suite.run is None or (options.suite and suite.name not in options.suite):
            continue
        kept = record.setdefault(suite.name, Kept())
        for engine in options.engine or ENGINES:
            if engine in suite.engines:
                problems += _run(suite, engine, kept, options)
        write(options.record, record)
    _write_page(options.page, suites, record)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _run(suite: Suite, engine: str, kept: Kept, options: argparse.Namespace) -> list[str]:
    """Run a suite on an engine, and keep its verdicts unless they fell back; return what is wrong."""
    assert suite.run is not None
    options.work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{suite.name}-", dir=options.work))
    try:
        if suite.package:
            here = installed(suite.repository, suite.package, options.python)
        else:
            here = locate(options.folder, suite.repository, options.work, options.python)
        if here is None:
            missing = f"package {suite.package}" if suite.package else f"folder of {suite.repository}"
            raise NotHere(f"no {missing}")
        print(f"{suite.name} on {ENGINES[engine]}", flush=True)
        outcomes = suite.run(here, engine, folder)
        if not outcomes:
            raise OSError("it ran no test")
    except NotHere as missing:
        kept.not_run = str(missing)
        print(f"{suite.name}: {missing}")
        return []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return [f"{suite.name} on {ENGINES[engine]} broke off: {error}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept.not_run = ""
    new = Ran(here.commit, datetime.date.today().isoformat(), dict(sorted(outcomes.items())))
    old = kept.runs.get(engine)
    lost = fallen(suite, old, new) if old else []
    if lost and suite.name not in options.accept:
        return [f"{suite.name} on {ENGINES[engine]} fell back: {text}" for text in lost]
    kept.runs[engine] = new
    return []


def _write_page(path: Path, suites: Sequence[Suite], record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(page(suites, record))


if __name__ == "__main__":
    sys.exit(main())
