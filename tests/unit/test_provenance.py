"""docs/reference gives the source of every rule, and docs/results/provenance.md is the summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.spec.regs.options import OPTIONS, Option
from tools.provenance import Page, faults, main, markdown, read, witness_faults, witnesses

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "reference"

FIRST = """# 1. First part

An introduction needs no marks.

## 1.1 A section

A paragraph. [derived: list-b]

| a table | of numbers |
| --- | --- |

Sources of the table: [board: run-a].

> A note needs no marks.

1. One thing. [board: run-a] Another, [derived: run-a, list-b] [assumed: guess] a third. [family: list-b]
   Its second line. [board: run-a].

## 1.2 Another section

Text. [derived: list-b]
"""
LAST = """# 2. Sources

## Sources

Their keys.

| KEY | repository | commit | file | what it shows |
| --- | --- | --- | --- | --- |
| run-a | owner/name | 0123456789 | notes.md | a run |
| list-b | owner/name | 0123456789 | list.txt | a list |

## Experiments

| KEY | experiment on a board that would settle it | what each outcome means |
| --- | --- | --- |
| guess | try it | yes or no |
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """A reference of two chapters in a folder, with a text replaced."""
    assert not old or old in FIRST + LAST
    folder.mkdir(exist_ok=True)
    for name, text in (("01-first.md", FIRST), ("02-sources.md", LAST), ("README.md", "# No chapter")):
        (folder / name).write_text(text.replace(old, new) if old else text)
    return folder


def page_of(folder: Path, old: str = "", new: str = "") -> Page:
    return read(write(folder, old, new))


def test_every_rule_is_marked() -> None:
    page = read(RULES)
    assert len(page.rules) > 400 and len({rule.chapter for rule in page.rules}) == 14
    assert not faults(page, OPTIONS)


def test_rules_are_cut_at_their_marks(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert not faults(page)
    assert [rule.name for rule in page.rules] == ["1.1", "1.1.1", "1.2"]
    assert page.places == {"1", "1.1", "1.1.1", "1.2", "2"}
    assert [claim.text for claim in page.rules[0].claims] == ["A paragraph.", "Sources of the table:"]
    claims = page.rules[1].claims
    assert [claim.text for claim in claims] == ["One thing.", "Another,", "a third.", "Its second line."]
    assert [mark.kind for mark in claims[1].marks] == ["derived", "assumed"]
    assert claims[1].marks[0].keys == ("run-a", "list-b")
    text = markdown(page)
    assert "| 1. First part | 3 | 3 | 1 | 3 | 1 |" in text
    assert "- 1.1.1: Another,\n" in text
    assert "2 of 3 rules hold no assumption" in text


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("second line. [board: run-a].", "second line.", "1.1.1: no mark closes: Its second line."),
        ("[family: list-b]", "[family: list-b] And more", "1.1.1: no mark closes: And more"),
        ("A paragraph. [derived: list-b]", "A paragraph.", "1.1: no mark closes: A paragraph."),
        ("> A note", "A note", "1.1: no mark closes: A note needs no marks."),
        ("[family: list-b]", "[Family: list-b]", "[Family: list-b] is not a mark"),
        ("[assumed: guess]", "[assumed: a guess]", "[assumed: a guess] is not a mark"),
        ("1. One thing. [", "1. [", "1.1.1: run-a closes no text"),
        ("[family: list-b]", "[family: run-c]", "1.1.1: run-c is not in Sources"),
        ("[family: list-b]", "[family: guess]", "1.1.1: guess is not in Sources"),
        ("[assumed: guess]", "[assumed: run-a]", "1.1.1: run-a is not in Experiments"),
        ("[assumed: guess]", "", "Experiments: no rule names guess"),
        ("| guess | try it |", "| guess | |", "Experiments: guess lacks the experiment"),
        ("| list-b | owner/name |", "| list-b | name |", "Sources: list-b lacks repository"),
        ("0123456789 | list.txt", "newest | list.txt", "Sources: list-b lacks commit"),
        ("| list.txt |", "| |", "Sources: list-b lacks file"),
        ("| a run |", "| |", "Sources: run-a lacks what it shows"),
        ("| a run |", "|", "Sources: 'run-a' has 4 columns, not 5"),
        ("| list-b | owner", "| run-a | owner", "Sources: run-a is there twice"),
        ("Sources of the table: [board: run-a].", "", "1.1: a table without a paragraph"),
        ("## 1.2 Another", "## 1.1 Another", "1.1 is there twice"),
        ("## 1.2 Another", "## 2.2 Another", "'2.2 Another section' has no number of this chapter"),
        ("## 1.2 Another", "## Another", "'Another section' has no number of this chapter"),
        ("# 1. First part", "First part", "01-first.md: the first line is no heading"),
    ],
)
def test_fault_is_found(tmp_path: Path, old: str, new: str, fault: str) -> None:
    found = faults(page_of(tmp_path, old, new))
    assert any(fault in sentence for sentence in found), found


def test_empty_folder_is_a_fault(tmp_path: Path) -> None:
    assert faults(read(tmp_path)) == [f"{tmp_path}: there is no chapter"]


def test_page_with_faults_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, target, tests = tmp_path / "reference", tmp_path / "provenance.md", tmp_path / "tests"
    write(rules, "second line. [board: run-a].", "second line.")
    assert main(str(target), rules, (), tests) == 1
    assert "no mark closes" in capsys.readouterr().err
    assert not target.exists()
    assert main(str(target), write(rules), (), tests) == 0
    assert target.read_text() == markdown(read(rules))


WITNESSES = """import pytest

RULES = ("1.1.1", "1.2")

@pytest.mark.board("1.1.1", source="run-a", place="line 3")
def test_one(): ...

@pytest.mark.parametrize("x", [1])
@pytest.mark.board(*RULES, source="list-b", place="the head")
def test_two(x): ...

def test_other(): ...
"""


def witness_file(folder: Path, old: str = "", new: str = "") -> Path:
    """A folder of tests with one file, in which a text is replaced."""
    assert not old or old in WITNESSES
    (folder / "tests" / "unit").mkdir(parents=True)
    (folder / "tests" / "unit" / "test_it.py").write_text(WITNESSES.replace(old, new) if old else WITNESSES)
    return folder / "tests"


def test_rules_without_a_witness_come_first(tmp_path: Path) -> None:
    found, wrong = witnesses(witness_file(tmp_path))
    assert not wrong and [w.test.rpartition("/")[2] for w in found] == [
        "test_it.py::test_one",
        "test_it.py::test_two",
    ]
    assert found[1].rules == ("1.1.1", "1.2") and found[1].source == "list-b" and found[0].place == "line 3"
    page = page_of(tmp_path / "reference")
    assert not witness_faults(page, found)
    text = markdown(page, (), found)
    assert (
        "2 of 3 rules have a witness, 2 tests from 2 sources; 1 are held up by RTL and golden model" in text
    )
    alone, held = (
        text.index("| 1.1 | board | A paragraph."),
        text.index("| 1.1.1 | `test_one`, `test_two` | run-a, list-b |"),
    )
    assert alone < held < text.index("| 1.2 | `test_two` | list-b |")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('board("1.1.1"', 'board("1.1.7"', "test_one: there is no rule 1.1.7"),
        ('source="run-a"', 'source="run-c"', "test_one: run-c is not in Sources"),
        ('place="line 3"', 'place=""', "test_one: the place in run-a is missing"),
        (
            ', place="line 3"',
            "",
            "test_one: the mark board is not readable: it takes rules, source and place",
        ),
        ('board("1.1.1", ', "board(", "test_one: the mark board is not readable"),
        ("*RULES", "*OTHERS", "test_two: the mark board is not readable"),
        ('board("1.1.1"', "board(rule", "test_one: the mark board is not readable"),
    ],
)
def test_wrong_witness_is_found(tmp_path: Path, old: str, new: str, fault: str) -> None:
    found, wrong = witnesses(witness_file(tmp_path, old, new))
    wrong += witness_faults(page_of(tmp_path / "reference"), found)
    assert any(fault in sentence for sentence in wrong), wrong


def test_options_and_rules_name_each_other(tmp_path: Path) -> None:
    page = page_of(tmp_path, "Its second line.", "With the option `t1_other` not.")
    option = Option("t1_other", "1.1.1", "one", "two")
    assert not faults(page, [option])
    assert faults(page) == ["1.1.1: there is no option t1_other of this rule"]
    assert faults(page_of(tmp_path), [option]) == ["1.1.1: does not name the option t1_other"]
    assert "| `t1_other` | 1.1.1 | one | two |" in markdown(page, [option])
