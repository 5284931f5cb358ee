"""docs/hardware.md says of every rule where it comes from, and docs/provenance.md is what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.provenance import faults, main, markdown, read
from rtl.regs.options import OPTIONS, Option

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "hardware.md"

PAGE = """# Rules

A preface needs no marks.

## 1. First part
| a table | of numbers |
| --- | --- |

1. One thing. [board: run-a] Another, [derived: run-a, list-b] [assumed: guess] a third. [family: list-b]
   Its second line. [board: run-a].
- A bullet. [derived: list-b]

## Sources
| KEY | repository | commit | file | what it shows |
| --- | --- | --- | --- | --- |
| run-a | owner/name | 0123456789 | notes.md | a run |
| list-b | owner/name | 0123456789 | list.txt | a list |

## Experiments
| KEY | experiment on a board that would settle it | what each outcome means |
| --- | --- | --- |
| guess | try it | yes or no |
"""


def test_every_rule_is_marked() -> None:
    page = read(RULES.read_text())
    assert len(page.rules) > 70
    assert not faults(page, OPTIONS)


def test_page_is_up_to_date() -> None:
    wanted = markdown(read(RULES.read_text()), OPTIONS)
    assert (ROOT / "docs" / "provenance.md").read_text() == wanted, (
        "run python -m cosim.provenance docs/provenance.md"
    )


def test_rules_are_cut_at_their_marks() -> None:
    page = read(PAGE)
    assert not faults(page)
    assert [rule.name for rule in page.rules] == ["1.1", "First part, item 1"]
    claims = page.rules[0].claims
    assert [claim.text for claim in claims] == ["One thing.", "Another,", "a third.", "Its second line."]
    assert [mark.kind for mark in claims[1].marks] == ["derived", "assumed"]
    assert claims[1].marks[0].keys == ("run-a", "list-b")
    text = markdown(page)
    assert "| 1. First part | 2 | 2 | 1 | 2 | 1 |" in text
    assert "- 1.1: Another,\n" in text
    assert "1 of 2 rules hold no assumption" in text


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("second line. [board: run-a].", "second line.", "1.1: no mark closes: Its second line."),
        ("[family: list-b]", "[family: list-b] And more", "1.1: no mark closes: And more"),
        ("- A bullet. [derived: list-b]", "- A bullet.", "First part, item 1: no mark closes: A bullet."),
        ("[family: list-b]", "[Family: list-b]", "[Family: list-b] is not a mark"),
        ("[assumed: guess]", "[assumed: a guess]", "[assumed: a guess] is not a mark"),
        ("1. One thing. [", "1. [", "1.1: run-a closes no text"),
        ("[family: list-b]", "[family: run-c]", "1.1: run-c is not in Sources"),
        ("[family: list-b]", "[family: guess]", "1.1: guess is not in Sources"),
        ("[assumed: guess]", "[assumed: run-a]", "1.1: run-a is not in Experiments"),
        ("[assumed: guess]", "", "Experiments: no rule names guess"),
        ("| guess | try it |", "| guess | |", "Experiments: guess lacks the experiment"),
        ("| list-b | owner/name |", "| list-b | name |", "Sources: list-b lacks repository"),
        ("0123456789 | list.txt", "newest | list.txt", "Sources: list-b lacks commit"),
        ("| list.txt |", "| |", "Sources: list-b lacks file"),
        ("| a run |", "| |", "Sources: run-a lacks what it shows"),
        ("| a run |", "|", "Sources: 'run-a' has 4 columns, not 5"),
        ("| list-b | owner", "| run-a | owner", "Sources: run-a is there twice"),
        ("- A bullet.", "A bullet.", "First part: text that belongs to no item"),
    ],
)
def test_fault_is_found(old: str, new: str, fault: str) -> None:
    assert old in PAGE
    found = faults(read(PAGE.replace(old, new)))
    assert any(fault in sentence for sentence in found), found


def test_page_with_faults_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, target = tmp_path / "hardware.md", tmp_path / "provenance.md"
    rules.write_text(PAGE.replace("[board: run-a].", ""))
    assert main(str(target), str(rules), ()) == 1
    assert "no mark closes" in capsys.readouterr().err
    assert not target.exists()
    rules.write_text(PAGE)
    assert main(str(target), str(rules), ()) == 0
    assert target.read_text() == markdown(read(PAGE))


def test_options_and_rules_name_each_other() -> None:
    page = read(PAGE.replace("A bullet.", "A bullet, with the option `t1_other` not."))
    option = Option("t1_other", "First part, item 1", "one", "two")
    assert not faults(page, [option])
    assert faults(page) == ["First part, item 1: there is no option t1_other of this rule"]
    assert faults(read(PAGE), [option]) == ["First part, item 1: does not name the option t1_other"]
    assert "| `t1_other` | First part, item 1 | one | two |" in markdown(page, [option])
