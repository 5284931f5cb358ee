"""Citations of hardware facts: each `[HW 7.10]` resolves, and there is no other form of citation."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.provenance import read

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {"test_citations.py", "test_documents.py"}
"""Files that hold wrong citations on purpose."""

CITATION = re.compile(r"\[HW ((?![{(])[^\]\n]*)\]")
"""Not those that code makes, whose number is a variable or a group."""

OLD_FORMS = {
    "the former page": re.compile(r"\bhardware\.md\b"),
    "a section without the page's name": re.compile(r"(?<![\w/.])docs,? (?:sections? )?\d+(?:\.\d+)?\b"),
    "H with a number": re.compile(r"(?<![\w.%/'$<>=+\"-])H ?\d{1,2}\.\d{1,2}\b"),
    "H with a chapter": re.compile(r"[(;] ?H ?(?:\d|1[0-5])(?=[),;:])|, H ?(?:\d|1[0-5])(?=\))"),
    "H with a question": re.compile(r"\bH Q\d+\b"),
    "HARDWARE": re.compile(r"\bHARDWARE(?: (?=[\dQV])|\.md\b)|\b(?:of|by|in|as) HARDWARE\b"),
    "an open question": re.compile(r"(?<=[(,; \"])Q\d{1,2}(?=[);:,])"),
    "a document that is not here": re.compile(r"\bDESIGN \d|\bSILICON\b|\bDESIGN\.md\b"),
    "a citation that is cut off": re.compile(r"\[HW(?! [\d({])|(?<!\[)\bHW \d+\.\d+"),
}
"""Forms that no file may have, by what they are."""

SUFFIXES = {".py", ".cpp", ".h", ".c", ".rdl", ".md", ".toml", ".html", ".js", ".txt", ".yml"}


def text_files() -> Iterator[Path]:
    """Files of the repository that people write, this one left out."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:  # an export without git
        paths = [path for path in ROOT.rglob("*") if not {".venv", "build"} & set(path.parts)]
    for path in paths:
        if path.suffix in SUFFIXES and path.name not in SAMPLES and path.is_file() and not path.is_symlink():
            yield path


def unresolved(text: str, places: set[str]) -> list[str]:
    """Citations in a text that name no chapter, section or rule."""
    return [found[0] for found in CITATION.finditer(text) if found[1] not in places]


def old_forms(text: str) -> list[str]:
    """Citations in a text that have another form."""
    return [f"{what}: {found[0]}" for what, form in OLD_FORMS.items() for found in form.finditer(text)]


@pytest.fixture(scope="module")
def places() -> set[str]:
    return read(ROOT / "docs" / "reference").places


def test_every_citation_resolves(places: set[str]) -> None:
    assert len(places) > 450
    wrong, count = [], 0
    for path in text_files():
        text = path.read_text("utf-8")
        count += len(CITATION.findall(text))
        wrong += [f"{path.relative_to(ROOT)}: {found}" for found in unresolved(text, places)]
    assert not wrong
    assert count > 700, "the files were not read"


def test_there_is_no_other_form() -> None:
    wrong = [
        f"{p.relative_to(ROOT)}: {found}" for p in text_files() for found in old_forms(p.read_text("utf-8"))
    ]
    assert not wrong


@pytest.mark.parametrize("citation", ["[HW 99]", "[HW 7.99]", "[HW 7.10.99]", "[HW 7.10, 7.11]", "[HW 7.1x]"])
def test_a_wrong_citation_is_found(places: set[str], citation: str) -> None:
    assert unresolved(f"The writer [HW 7.11] and {citation}.", places) == [citation]


@pytest.mark.parametrize(
    "text",
    [
        "as docs/hardware.md 4.10 says",
        "its atoms (docs 4.9-4.11, 5.7)",
        "the pipe (H 5, docs section 4)",
        "one fetch (H1.6)",
        "one fetch (H 1.6)",
        "the memory (H8)",
        "inert (H Q25)",
        "the clock (HARDWARE 9.1)",
        "a row of HARDWARE",
        "reserved here (Q25) [T]",
        "question Q28: bits 14 to 16",
        "the cell (DESIGN 5)",
        "see SILICON J8",
        "see HW 7.10",
        "see [HW] 7.10",
    ],
)
def test_an_old_form_is_found(text: str) -> None:
    assert old_forms(text)


def test_the_form_itself_is_none_of_them() -> None:
    assert not old_forms(
        "The writer [HW 7.11] to [HW 7.12], and ([HW 4.1.2], [HW 11]): H = 1, N, C, H 3 x W 3."
    )
