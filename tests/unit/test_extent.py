"""The table of tests that `make test` leaves out, the page about them, and the workflows of CI."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import extent

ROOT = Path(__file__).resolve().parents[2]
GROUPS = extent.groups()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("pattern", [pattern for group in GROUPS for pattern in group.tests])
def test_every_row_is_a_test(pattern: str) -> None:
    path, *names = pattern.partition("[")[0].replace("::", "\n").splitlines()
    body = ast.parse((ROOT / path).read_text()).body
    for name in names:
        if "*" in name:
            break
        found = [
            node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        assert found, f"tests/heavy.toml: {path} has no {name}"
        body = found[0].body


def test_every_group_says_why() -> None:
    names = [group.name for group in GROUPS]
    assert len(set(names)) == len(names)
    assert all(group.reason.endswith(".") and group.tests for group in GROUPS)
    patterns = [pattern for group in GROUPS for pattern in group.tests]
    assert len(set(patterns)) == len(patterns)


def test_patterns() -> None:
    assert extent.matches("tests/a.py", "tests/a.py::test_x[1]")
    assert extent.matches("tests/a.py::test_x", "tests/a.py::test_x[1]")
    assert extent.matches("tests/a.py::test_x[*-2]", "tests/a.py::test_x[1-2]")
    assert not extent.matches("tests/a.py::test_x", "tests/a.py::test_xy")
    assert not extent.matches("tests/a.py::test_x[1]", "tests/a.py::test_x[11]")


def test_loops_have_two_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(extent.VARIABLE, raising=False)
    assert extent.extent(1, 2) == 1
    monkeypatch.setenv(extent.VARIABLE, "all")
    assert extent.extent(1, 2) == 2 and extent.everything()


def test_workflows_run_what_there_is() -> None:
    text = "\n".join(path.read_text() for path in WORKFLOWS)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {
        word
        for line in re.findall(r"(?:run|command): make (.*?)(?: &&|$)", text, re.M)
        for word in line.split()
    }
    assert {"test-all", "proofs", "coverage", "wheel", "docs"} <= asked
    assert {word for word in asked if not word.startswith(".venv/")} <= targets
    assert re.search(r"run: \.ci/run$", text, re.MULTILINE) and "schedule:" in text
    assert "python3 -I tests/programs.py --missing" in text
    assert "https:" not in text and "https:" not in (ROOT / ".ci/run").read_text()


def test_the_release_has_a_date() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    heading = re.search(
        r"^## (\S+) \((\d{4}-\d\d-\d\d|in development)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert version and heading and heading[1] == version[1]
