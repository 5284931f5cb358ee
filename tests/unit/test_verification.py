"""The page of verification stages: every item has evidence that exists, figures are those of their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_documents import named
from tools.proofs.catalog import PROOFS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/verification.md"
STAGES = {"D1": 10, "D2": 18, "D3": 10, "V1": 22, "V2": 21, "V3": 13}
"""Number of items of each stage of OpenTitan's list."""


def _rows(title: str) -> list[list[str]]:
    section = re.search(rf"^## {title}.*?(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    lines = [line for line in section[0].splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def lacks(evidence: str) -> bool:
    """Whether a text has neither a file, a page or a command, nor says why there is none."""
    excused = re.match(r"(not yet|does not apply): \w", evidence)
    command = re.search(r"`(make [\w-]+|rkcosim \w+.*?)`", evidence)
    follows = re.match(r"the next section|as [A-Z_0-9]+", evidence)
    there = named(evidence) or re.search(
        r"\]\([\w/#-]+(\.md)?[\w#-]*\)|`[A-Z]+\.md`|`pyproject.toml`", evidence
    )
    return not (excused or command or follows or there)


@pytest.mark.parametrize("stage", STAGES)
def test_every_item_has_evidence(stage: str):
    rows = _rows(f"{stage}:")
    assert len(rows) == STAGES[stage] == len({name for name, _ in rows})
    assert [name for name, evidence in rows if lacks(evidence)] == []


def test_evidence_is_recognised():
    assert not lacks("see `tests/block/test_bus.py`") and not lacks("[proofs](proofs.md#claims)")
    assert not lacks("not yet: no review") and not lacks("`make proofs`")
    assert lacks("it is done") and lacks("not yet") and lacks("`tests`")


def test_every_path_exists():
    text = PAGE.read_text()
    paths = named(text.replace("`CHANGELOG.md`", "").replace("`doc/", "`other/"))
    assert len(paths) > 80
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)`", PAGE.read_text())) <= targets


def test_links_to_sections_lead_to_sections():
    for page, anchor in re.findall(r"\]\(([\w/-]*\.md)?#([\w-]+)\)", PAGE.read_text()):
        text = (ROOT / "docs" / (page or PAGE.name)).read_text()
        heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
        assert anchor in slugs, (page, anchor)


def test_every_block_names_sources_tests_and_proofs():
    rows = _rows("Blocks")
    proofs = {proof.name for proof in PROOFS}
    used: set[str] = set()
    for name, sources, specification, tests, proved in rows:
        assert named(sources) and "`tests/block/" in tests, name
        assert "](" in specification or named(specification), name
        found = set(re.findall(r"`(\w+)`", proved))
        assert found <= proofs and (found or proved == "not yet"), name
        used |= found
    assert proofs - used == {"diagnostic_merge"}  # at every block
    tested = " ".join(tests for *_, tests, _ in rows)
    there = {path.name for path in (ROOT / "tests/block").glob("test_*.py")}
    assert {name for name in there if name not in tested} == {
        "test_dram.py",
        "test_dram_windows.py",
        "test_proofs.py",
    }


def test_figures_are_those_of_their_pages():
    text, proofs = PAGE.read_text(), (ROOT / "docs/results/proofs.md").read_text()
    claims = re.search(r"(\d+) claims, (\d+) of them in all cycles, (\d+) in a bounded", proofs)
    assert claims is not None
    assert f"{claims[2]} of {claims[1]} claims in all cycles" in text
    assert f"{claims[3]} of {claims[1]} claims hold in a bounded number" in text
    fields = re.search(
        r"^(\d+) of (\d+) fields; not exercised: (\d+)", (ROOT / "docs/results/coverage.md").read_text(), re.M
    )
    assert fields is not None
    assert f"{fields[1]} of {fields[2]} fields" in text and f"{fields[3]} of {fields[2]} fields" in text
    measured = (ROOT / "docs/results/rtl_coverage.md").read_text()
    counts = {
        what: (counted, covered)
        for what, counted, covered in re.findall(
            r"^\| (lines|bits) \| ([\d,]+) \| ([\d,]+) \|", measured, re.M
        )
    }
    lines, bits = counts["lines"], counts["bits"]
    assert f"{lines[1]} of {lines[0]} lines and {bits[1]} of {bits[0]} bits" in text
    left = int(bits[0].replace(",", "")) - int(bits[1].replace(",", ""))
    assert f"{left:,} bits did not rise and fall" in text


def test_no_source_has_a_note_of_open_work():
    words = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")))
    folders = ("rtl", "spec", "cosim", "sw", "waves", "apis", "tools")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".c", ".cpp", ".rdl")
    ]
    assert len(files) > 300
    assert {str(path) for path in files if words.search(path.read_text())} == set()
