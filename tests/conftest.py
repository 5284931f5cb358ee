"""What holds for all tests: seeds, the order of files, skipped tests, runs that are resumed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import core as hypothesis_core
from hypothesis import settings

from tests import extent, programs, resume, seeds

for _name in (
    "COLUMNS",
    "LINES",
):  # readline, which pytest imports, exports them to the processes of pytest-xdist
    os.environ.pop(_name, None)
os.environ.setdefault("RKCOSIM_AHEAD", "0")  # each test builds what it needs, nothing in the background
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests import onnxruntime themselves, too

BUILDERS = (
    "test_core_engines",
    "test_cli",
    "test_lockstep",
    "test_kit",
    "test_cycles",
    "test_engines",
    "test_soc",
)
"""Files that build separate models, longest first; the first test that needs the default model builds it."""

SHARED = "RKCOSIM_SHARED"
"""Variable with the folder of original models and plans, which are not part of the project."""

FOLDERS = ("system", "cocotb", "block", "unit")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of original models and plans; tests that take it are marked `shared`.

    The test is skipped when `RKCOSIM_SHARED` is not set.
    """
    named = os.environ.get(SHARED)
    if not named:
        pytest.skip(f"set {SHARED} to the folder of the original models and plans")
    folder = Path(named)
    assert folder.is_dir(), f"{SHARED}: {folder} is no folder"
    return folder


@pytest.fixture
def cycles_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are divided among cores if that saves cycles, so that small networks use several cores."""
    monkeypatch.setenv("RKCOSIM_DIVIDE", "cycles")


def pytest_addoption(parser: pytest.Parser) -> None:
    resume.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    seeds.settle()
    # Hypothesis draws the same examples in each run, or those of the number that was asked for.
    asked = bool(os.environ.get(seeds.VARIABLE))
    settings.register_profile("tests", database=None, derandomize=not asked, print_blob=True)
    settings.load_profile("tests")
    if asked:
        hypothesis_core.global_force_seed = seeds.number()
    resume.configure(config)


def pytest_report_header() -> str:
    return f"seeds: {seeds.VARIABLE}={seeds.number()}"


def _rank(item: pytest.Item) -> tuple[int, int]:
    path = Path(item.path)
    if path.stem in BUILDERS:
        return -1, BUILDERS.index(path.stem)
    folder = path.parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS), 0


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = [] if extent.everything() else extent.groups()
    for item in items:
        if extent.is_heavy(item.nodeid, known):
            item.add_marker("heavy")
    items.sort(key=_rank)  # stable: files and tests keep their order otherwise


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported and run seldom: an eighth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.failed:
        report.sections.append(("repeat it with", seeds.repeat(item.nodeid)))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say at the very end how many tests were skipped; fail if none may be."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(session.config, "workerinput"):
        return (yield)
    skipped = [str(report.longrepr[-1]) for report in terminal.stats.get("skipped", ())]
    fails = bool(skipped) and programs.nothing_may_be_skipped() and not session.exitstatus
    if fails:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield
    if skipped:
        terminal.write_line(programs.told(skipped) + (": none may be" if fails else ""))
