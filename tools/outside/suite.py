"""What a suite of others is: a repository, its tests with their outcomes here, and a board's verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

PASS, FAIL, SKIP = "pass", "fail", "skip"
SILENT = "no verdict"
"""The program ended well and says of nothing whether it is right: it prints figures only."""
LIMIT = "time limit"
"""The ledger ended the test after its time limit."""

VERDICTS = (PASS, SILENT, SKIP, FAIL, LIMIT)
"""The verdicts of a test, best first."""

ENGINES = {"golden": "golden model", "rtl": "RTL"}
"""The engines of the ledger, and their names on its page."""


class NotHere(Exception):
    """A suite cannot be run with what this machine has; the text says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """How a test ended here.

    Members
    -------
    verdict : one of `VERDICTS`.
    note : a few words about a test that did not pass; "" for none.
    """

    verdict: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is none of: {', '.join(VERDICTS)}")


@dataclass(frozen=True)
class Checkout:
    """A repository as it was found.

    Members
    -------
    repository : owner/name.
    folder : its files.
    commit : what they are of, as hexadecimal digits; "" if nothing says it. Of a package, its version.
    python : the interpreter that runs Python programs of the suite.
    """

    repository: str
    folder: Path
    commit: str
    python: str

    def needs(self, *names: str) -> None:
        """Raise `NotHere` if one of these files is not in the checkout."""
        missing = [name for name in names if not (self.folder / name).exists()]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise NotHere(f"{self.repository} has no {', '.join(missing[:3])}{more}")


Run = Callable[[Checkout, str, Path], Mapping[str, Outcome]]


T = TypeVar("T")


def _unknown(test: str) -> tuple[str, ...]:
    return ()


def all_pass(test: str) -> tuple[str, ...]:
    """The verdicts of a suite of which a board passes every test (`Suite.board`)."""
    return (PASS,)


def on_engine(engine: str, tests: Mapping[str, T], small: Iterable[str]) -> dict[str, T]:
    """Return the tests for an engine: all for the golden model, those that are small enough for the RTL."""
    return {name: tests[name] for name in (tests if engine == "golden" else small)}


@dataclass(frozen=True)
class Suite:
    """A suite of somebody else.

    Members
    -------
    name : its key in the record and its heading on the page.
    repository : owner/name.
    tests : what it tests, in a few words.
    how : how it is run here, as a sentence about commands.
    board_source : what a board said of it, and where that stands: repository, commit, file.
    board : the verdicts that boards gave for a test; () if none is known, several if boards differ.
    why : patterns of tests, with the reason for their verdict here. The first pattern that matches counts.
    run : runs it: checkout, engine ("golden" or "rtl"), an empty folder for its files; the outcome of each
        test by its name. None for a suite that is shown elsewhere.
    shown : the page of docs with its verdicts, if another command writes them.
    figures : a pattern of a sentence or row on that page, and what the ledger makes of its groups; ("", "")
        if the page has no counts.
    engines : the engines that run it.
    cannot : what of it cannot be run here and why, as sentences; "" for nothing.
    package : the package of PyPI that is the suite, if it is run as its users install it; its version takes
        the place of a commit.
    """

    name: str
    repository: str
    tests: str
    how: str
    board_source: str
    board: Callable[[str], tuple[str, ...]] = _unknown
    why: Mapping[str, str] = field(default_factory=dict)
    run: Run | None = None
    shown: str = ""
    figures: tuple[str, str] = ("", "")
    engines: tuple[str, ...] = tuple(ENGINES)
    cannot: str = ""
    package: str = ""

    def reason(self, test: str) -> str:
        """Why the verdict of a test differs; "" if nothing is said."""
        return next((text for pattern, text in self.why.items() if fnmatchcase(test, pattern)), "")


def differs(suite: Suite, test: str, verdict: str) -> bool:
    """Whether a verdict is not the board's; of a test that no board ran, whether it is a failure."""
    board = suite.board(test)
    return verdict not in board if board else verdict in (FAIL, LIMIT)
