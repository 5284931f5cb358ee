"""The order of the test files: those that build engines first, so that no build is waited for at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

BUILDERS = (
    "test_core_engines",
    "test_cli",
    "test_lockstep",
    "test_kit",
    "test_cycles",
    "test_engines",
    "test_soc",
)
"""Files that build models of their own, the longest first; the default one is built by whoever is first."""

FOLDERS = ("system", "cocotb", "block", "unit")


def _rank(item: pytest.Item) -> tuple[int, int]:
    path = Path(item.path)
    if path.stem in BUILDERS:
        return -1, BUILDERS.index(path.stem)
    folder = path.parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS), 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: files and tests keep their order otherwise
