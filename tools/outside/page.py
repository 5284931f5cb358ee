"""The page of the ledger: a row for each suite, and below it each suite test by test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os.path import relpath
from pathlib import Path

from rkcosim.measure.perf.page import table
from tools.outside.programs import ROOT
from tools.outside.record import Kept, Ran, Record
from tools.outside.suite import ENGINES, VERDICTS, Suite, differs

HEAD = """# Suites of others

Programs and test suites that other people wrote for the RK3588's NPU or for its interfaces, run unmodified: \
what a board says of each test, and what this project says. `make outside DIR=FOLDER` runs those whose \
repositories are below `FOLDER` (as `owner+name` or `owner/name`; checkouts, bare git folders, or single \
files with their commit in a file `COMMIT`) and writes this page and `outside.json`, which has the verdicts \
test by test. It fails if a test falls back. Nothing of the suites is part of this project, and the command \
builds nothing: a suite with programs is built in its folder first, as its own README says. \
`python -m tools.outside --help` lists the options; the docstring of `tools/outside/__init__.py` says how a \
suite is added.

A test **differs** if its verdict here is not the board's, or, where no board's verdict is known, if it \
fails. Other commands write the pages of the suites that have no figures here.
"""
OWN = """Of the tests of this project itself, 3 held numbers of a board at ca9a216 (2026-11-28, before this \
ledger); {marked} do on 2026-11-30, each with its rules and its source \
([witnesses](provenance.md#witnesses) counts those of today)."""
MARKED = 114
"""Tests with the mark `board` on 2026-11-30, as `tools.provenance` counts them."""
TITLES = ("suite", "tests", "on a board", *ENGINES.values(), "run", "differs")


def page(suites: Sequence[Suite], record: Record) -> str:
    """Return the page (Markdown)."""
    rows = [_row(suite, record.get(suite.name, Kept())) for suite in suites]
    parts = [HEAD, *table(TITLES, rows)]
    parts += ["", _judged(suites, record), "", OWN.format(marked=MARKED)]
    left = [[f"[{suite.name}](#{anchor(suite.name)})", suite.cannot] for suite in suites if suite.cannot]
    if left:
        parts += ["", "## What cannot be run here", "", *table(("suite", "what, and why"), left)]
    for suite in suites:
        parts += ["", *_section(suite, record.get(suite.name, Kept()))]
    return "\n".join(parts).rstrip() + "\n"


def _judged(suites: Sequence[Suite], record: Record) -> str:
    """How many of the tests that a board judged have its verdict here, as a sentence."""
    said = []
    for engine, title in ENGINES.items():
        runs = [(suite, record.get(suite.name, Kept()).runs.get(engine)) for suite in suites]
        all_ = [
            outcome.verdict in suite.board(name)
            for suite, ran in runs
            for name, outcome in (ran.tests.items() if ran else ())
            if suite.board(name)
        ]
        said.append(f"{sum(all_)} of {len(all_)} on the {title}")
    return f"Tests whose verdict on a board is known, and that have it here: {', '.join(said)}."


def _row(suite: Suite, kept: Kept) -> list[str]:
    title = f"[{suite.name}](#{anchor(suite.name)})"
    if suite.run is None:
        where = f"[its page]({relpath(suite.shown, 'results')})"
        return [title, suite.tests, "", f"{counted(suite)}{where}", where, "", ""]
    names = sorted({name for ran in kept.runs.values() for name in ran.tests})
    known = [suite.board(name) for name in names]
    board = _counts(Counter(" or ".join(verdicts) for verdicts in known if verdicts))
    unknown = sum(not verdicts for verdicts in known)
    board += (f"{', ' if board else ''}{unknown} unknown") if unknown and board else ""
    cells = [_engine(suite, kept.runs.get(engine), engine) for engine in ENGINES]
    dates = "; ".join(dict.fromkeys(ran.date for ran in kept.runs.values()))
    if kept.not_run or not kept.runs:
        dates = "; ".join(filter(None, (dates, "not run this time" if kept.runs else "not run yet")))
    return [title, suite.tests, board or "unknown", *cells, dates, _differing(suite, kept)]


def counted(suite: Suite, docs: Path = ROOT / "docs") -> str:
    """Return the counts that the page of a suite has, with a separator, or "" if it has none.

    Raises
    ------
    ValueError
        If the page has not the sentence that has them.
    """
    pattern, form = suite.figures
    if not pattern:
        return ""
    page = docs / suite.shown.partition("#")[0]
    found = re.search(pattern, page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page}: nothing there fits {pattern!r}")
    return f"{found.expand(form)}; "


def _engine(suite: Suite, ran: Ran | None, engine: str) -> str:
    if ran is None:
        return "not run" if engine in suite.engines else "not for it"
    return _counts(Counter(outcome.verdict for outcome in ran.tests.values()))


def _counts(counts: Mapping[str, int]) -> str:
    known = [verdict for verdict in VERDICTS if verdict in counts]
    rest = sorted(set(counts) - set(known))
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*known, *rest))


def _different(suite: Suite, kept: Kept) -> dict[str, list[str]]:
    """Tests that differ, with the engines on which they do."""
    found: dict[str, list[str]] = {}
    for engine, ran in kept.runs.items():
        for name, outcome in ran.tests.items():
            if differs(suite, name, outcome.verdict):
                found.setdefault(name, []).append(ENGINES[engine])
    return found


def _differing(suite: Suite, kept: Kept) -> str:
    found = _different(suite, kept)
    return f"[{len(found)}](#{anchor(suite.name)})" if found else "none" if kept.runs else ""


def anchor(name: str) -> str:
    """Return the anchor that the site makes of a heading."""
    kept = "".join(sign if sign.isalnum() or sign in "-_ " else "" for sign in name.lower())
    return "-".join(kept.split())


def _section(suite: Suite, kept: Kept) -> Iterator[str]:
    commits = list(dict.fromkeys(ran.commit for ran in kept.runs.values() if ran.commit))
    kind = f"package {suite.package}" if suite.package else "commit"
    at = (
        f", {kind} {' and '.join(commit if suite.package else commit[:7] for commit in commits)}"
        if commits
        else ""
    )
    yield from (f"## {suite.name}", "", f"{suite.repository}{at}: {suite.tests}. {suite.how}", "")
    if suite.board_source:
        yield from (f"On a board: {suite.board_source}", "")
    if suite.run is None:
        yield f"Last shown on [its page]({relpath(suite.shown, 'results')})."
        return
    if kept.not_run:
        yield from (f"Not run by the last command: {plain(kept.not_run)}.", "")
    names = sorted({name for ran in kept.runs.values() for name in ran.tests})
    if not names:
        yield "Not run yet."
        return
    yield from (
        "| board | " + " | ".join(ENGINES.values()) + " | number | tests |",
        "| --- | --- | --- | ---: | --- |",
    )
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        ran = (kept.runs.get(engine) for engine in ENGINES)
        here = ("-" if run is None or name not in run.tests else run.tests[name].verdict for run in ran)
        groups.setdefault((" or ".join(suite.board(name)) or "-", *here), []).append(name)
    for verdicts, tests in groups.items():
        named = ", ".join(plain(test) for test in tests)
        yield f"| {' | '.join(verdicts)} | {len(tests)} | {named} |"
    found = _different(suite, kept)
    if found:
        yield from ("", "| differs | on | here | why |", "| --- | --- | --- | --- |")
    for name, engines in found.items():
        outcomes = {ran.tests[name] for ran in kept.runs.values() if name in ran.tests}
        said = "; ".join(sorted({f"{out.verdict}{f': {out.note}' if out.note else ''}" for out in outcomes}))
        why = suite.reason(name) or "**not explained**"
        yield f"| {plain(name)} | {', '.join(engines)} | {plain(said)} | {why} |"


def plain(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    for sign in "\\|_*`<[":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())
