"""Programs that tests drive, with the Debian packages that bring them.

`python3 -I tests/programs.py` prints the packages, with `--missing` those whose programs are not there, for
`.ci/run`; it needs nothing but Python.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PACKAGES = {
    "Xvfb": "xvfb",
    "bash": "bash",
    "cc": "gcc",
    "chromium": "chromium",
    "g++": "g++",
    "gtkwave": "gtkwave",
    "iverilog": "iverilog",
    "make": "make",
    "pkill": "procps",
    "sta": "opensta",
    "vvp": "iverilog",
    "/usr/share/qflow/tech/osu018/osu018_stdcells.lib": "qflow-tech-osu018",
}
"""Debian package of each program, or of a file."""

OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome"), "cc": ("gcc",)}

EVERYTHING = "RKCOSIM_NOTHING_SKIPPED"
"""Variable that makes a skipped test a failure of the run, as `.ci/run` does."""

_REASON = "missing program: {} (Debian package {})"
_FOUND = re.compile(r"missing program: \S+ \(Debian package (\S+)\)")


def program(name: str) -> str | None:
    """Return the path of a program of `PACKAGES`, or None."""
    if "/" in name:
        return name if Path(name).is_file() else None
    return next(filter(None, map(shutil.which, (name, *OTHER_NAMES.get(name, ())))), None)


def missing(*names: str) -> str:
    """Return why a test that drives these programs is skipped, or "" if all are there."""
    return next((_REASON.format(name, PACKAGES[name]) for name in names if program(name) is None), "")


def needs_program(*names: str) -> Any:
    """Return a mark that skips a test if one of the programs is missing."""
    import pytest

    return pytest.mark.skipif(bool(missing(*names)), reason=missing(*names) or "all programs are there")


def require_program(*names: str) -> None:
    """Skip the test or the file of tests that calls this if one of the programs is missing."""
    import pytest

    if reason := missing(*names):
        pytest.skip(reason, allow_module_level=True)


def told(reasons: Iterable[str]) -> str:
    """Return one line about skipped tests: how many there are, and which packages they need; or ""."""
    reasons = list(reasons)
    if not reasons:
        return ""
    packages = sorted({found[1] for reason in reasons if (found := _FOUND.search(reason))})
    text = f"{len(reasons)} {'test was' if len(reasons) == 1 else 'tests were'} skipped"
    return f"{text}; install the Debian packages: {' '.join(packages)}" if packages else text


def nothing_may_be_skipped() -> bool:
    """Return whether a skipped test is a failure of this run."""
    return os.environ.get(EVERYTHING) == "1"


def packages(only_missing: bool = False) -> list[str]:
    """Return the packages of all programs, or of those that are not there."""
    return sorted({PACKAGES[name] for name in PACKAGES if not (only_missing and program(name))})


if __name__ == "__main__":
    for package in packages(sys.argv[1:] == ["--missing"]):
        print(package)
