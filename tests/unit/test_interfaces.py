"""The page of the interfaces: its examples, its tests and its counts are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rkcosim.apis.diopi.names import NAMES
from rkcosim.apis.diopi.operators import OPERATORS
from rkcosim.apis.hexagon.names import NAMES as HEXAGON_NAMES
from rkcosim.base.extensions import COMMANDS as ADDED
from rkcosim.base.extensions import extensions
from rkcosim.cli.main import COMMANDS
from rkcosim.rknn_api.signatures import SIGNATURES
from tools.interfaces import ROWS, picture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interfaces.md").read_text()


def table(heading: str) -> dict[str, list[str]]:
    """Return the cells behind the first one of each row of a section's table."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[2:]}


def files(text: str, folder: str) -> list[str]:
    """Return the files in backticks that a cell names; a name without a folder lies beside the one before."""
    found: list[str] = []
    for name in re.findall(r"`([\w./]+\.(?:py|c))`", text):
        found.append(name if "/" in name else str(Path(found[-1]).parent / name))
    assert all(name.startswith(folder) for name in found)
    return found


def test_every_interface_has_a_row_in_each_table() -> None:
    """The tables have the same eight interfaces, and the picture has them as well."""
    names = [list(table(heading)) for heading in ("What is real", "One example of each", "Hostile use")]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == len(ROWS) == 8
    assert (ROOT / "docs" / "pictures" / "interfaces.svg").read_text() == picture()


@pytest.mark.parametrize("name", list(table("One example of each")))
def test_examples_are_run_by_the_named_tests(name: str) -> None:
    """Each example exists, and one of the named tests has its name."""
    examples, tests = table("One example of each")[name]
    texts = "".join((ROOT / file).read_text() for file in files(tests, "tests/"))
    assert texts
    for example in files(examples, "examples/"):
        assert (ROOT / example).is_file()
        assert Path(example).name in texts, example
    for story in re.findall(r"\((stories/[\w-]+)\.md\)", examples):
        assert Path(story).name in texts


def test_hostile_tests_exist() -> None:
    """Each file of the last column exists and has tests or checks."""
    for row in table("Hostile use").values():
        for file in files(row[-1], "tests/"):
            text = (ROOT / file).read_text()
            assert "def test_" in text or "int main" in text


def test_counts_on_the_page() -> None:
    """Numbers of functions and operators are those of the tables in the code."""
    rows = table("What is real")
    assert f"all {len(SIGNATURES)} functions" in rows["`rknn_api`"][0]
    assert f"{len(OPERATORS)} operators and in-place forms" in rows["DIOPI"][0]
    assert f"the others of {len(NAMES)}" in rows["DIOPI"][2]
    assert f"of {len(HEXAGON_NAMES)} operations" in rows["Hexagon NN"][0]
    commands = re.findall(r"`rkcosim (\w+)", PAGE.split("## What is real")[0])
    assert len(commands) > 7 and set(commands) <= {*COMMANDS, *extensions(ADDED)}
