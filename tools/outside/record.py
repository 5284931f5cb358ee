"""The kept verdicts, `docs/results/outside.json`, and what falls back against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.waves.whole_file import whole_file
from tools.outside.suite import ENGINES, VERDICTS, Outcome, Suite


@dataclass(frozen=True)
class Ran:
    """A run of a suite on one engine.

    Members
    -------
    commit : of the repository; "" if unknown. Of a package, its version.
    date : day of the run, YYYY-MM-DD.
    tests : the outcomes by name, sorted.
    """

    commit: str
    date: str
    tests: Mapping[str, Outcome]


@dataclass
class Kept:
    """What is known of a suite.

    Members
    -------
    runs : the last run on each engine, by its name.
    not_run : why the last command did not run it; "" if it did.
    """

    runs: dict[str, Ran] = field(default_factory=dict)
    not_run: str = ""


Record = dict[str, Kept]


def read(path: Path) -> Record:
    """Read a record; a file that does not exist is an empty one.

    Raises
    ------
    ValueError
        If it is no record.
    """
    if not path.is_file():
        return {}
    try:
        return {name: _kept(value) for name, value in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no record of outside suites: {error!r}") from error


def _kept(value: dict[str, Any]) -> Kept:
    runs = {}
    for engine, ran in value["runs"].items():
        if engine not in ENGINES:
            raise ValueError(f"engine {engine!r}")
        notes = ran.get("notes", {})
        tests = {
            name: Outcome(verdict, notes.get(name, ""))
            for verdict, names in ran["tests"].items()
            for name in names
        }
        runs[engine] = Ran(ran["commit"], ran["date"], dict(sorted(tests.items())))
    return Kept(runs, value.get("not_run", ""))


def write(path: Path, record: Record) -> None:
    """Write a record, in an order that does not depend on runs."""
    document = {name: _written(kept) for name, kept in sorted(record.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(json.dumps(document, indent=1) + "\n")


def _written(kept: Kept) -> dict[str, Any]:
    runs = {}
    for engine in ENGINES:
        if engine not in kept.runs:
            continue
        ran = kept.runs[engine]
        verdicts = {
            verdict: sorted(name for name, outcome in ran.tests.items() if outcome.verdict == verdict)
            for verdict in VERDICTS
        }
        runs[engine] = {
            "commit": ran.commit,
            "date": ran.date,
            "tests": {verdict: names for verdict, names in verdicts.items() if names},
            "notes": {name: out.note for name, out in sorted(ran.tests.items()) if out.note},
        }
    return {"runs": runs} | ({"not_run": kept.not_run} if kept.not_run else {})


def fallen(suite: Suite, old: Ran, new: Ran) -> list[str]:
    """Return the tests that fell back, each with both verdicts.

    A test whose board's verdict is known falls back if it had that verdict and has another one now; another
    test falls back if its verdict is a worse one (`VERDICTS`). A test that is gone falls back, unless the
    repository has another commit.
    """
    found = []
    for name, outcome in old.tests.items():
        before, now = outcome.verdict, new.tests.get(name)
        board = suite.board(name)
        if now is None:
            if old.commit == new.commit:
                found.append(f"{name}: {before}, now gone")
        elif (
            before in board and now.verdict not in board
            if board
            else VERDICTS.index(now.verdict) > VERDICTS.index(before)
        ):
            found.append(f"{name}: {before}, now {now.verdict} ({now.note or 'no note'})")
    return found
