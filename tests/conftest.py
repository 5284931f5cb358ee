"""The order of the test files: files that build engines come first, so that no build delays the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def _rank(item: pytest.Item) -> tuple[int, int]:
    path = Path(item.path)
    if path.stem in BUILDERS:
        return -1, BUILDERS.index(path.stem)
    folder = path.parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS), 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: files and tests keep their order otherwise
