"""`--resume`: a long run of tests that was interrupted goes on with the tests that have not passed yet.

Tests that passed are kept in `build/tests/KEY.txt`, a name on each line; KEY is a digest of all sources, so a
change of any of them begins a new run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "tests"
SOURCES = (
    *("spec", "rtl", "cosim", "sw", "apis", "waves", "tools", "tests", "examples", "benchmarks", "docs"),
    *("Makefile", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--resume",
        action="store_true",
        help="leave out the tests that have passed in an earlier run with this option and the same sources",
    )


def digest(root: Path = ROOT) -> str:
    """Return a digest of the names and contents of all sources below a folder."""
    total = hashlib.sha256()
    for name in SOURCES:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(hashlib.sha256(path.read_bytes()).digest())
                total.update(path.relative_to(root).as_posix().encode() + b"\0")
    return total.hexdigest()[:16]


class Resumed:
    """A plugin of pytest that leaves out the tests of a file and adds those that pass to it."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes  # only the process that hears of all tests
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.passed = set(text[: text.rfind("\n") + 1].splitlines())  # not a line that was cut off
        self.good: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        rest = [item for item in items if item.nodeid not in self.passed]
        if len(rest) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.passed])
            items[:] = rest

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self.writes:
            return
        if report.when == "call" and report.passed:
            self.good.add(report.nodeid)
        if report.when == "teardown" and report.passed and report.nodeid in self.good:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(f"{report.nodeid}\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed:
            session.exitstatus = pytest.ExitCode.OK  # all have passed before

    def pytest_report_header(self) -> str:
        return f"resume: {len(self.passed)} tests have passed before, {self.path}"


def configure(config: pytest.Config) -> None:
    """Register the plugin if the run asks for it."""
    if config.getoption("resume"):
        path = KEPT / f"{digest()}.txt"
        config.pluginmanager.register(Resumed(path, not hasattr(config, "workerinput")), "resumed")
