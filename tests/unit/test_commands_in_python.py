"""Every command has its line in Python, or a reason why not (docs/api/commands.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.measure.perf.page import PageError
from tests.unit.test_page_blocks import parsed
from tools.pages.commands import (
    PAGE,
    PAGES,
    WITHOUT,
    by_command,
    command_of,
    commands_table,
    every_command,
    page_lines,
    python_lines,
)

TEXT = PAGE.read_text(encoding="utf-8")
FORMS = sorted({form for line in python_lines(TEXT) for form in line.forms})


def test_every_command_has_a_line_or_a_reason():
    lines, without = set(by_command(TEXT)), dict(WITHOUT.findall(TEXT))
    assert lines | without.keys() == set(every_command()) and not lines & without.keys()
    assert len(lines) > 30
    table = commands_table()
    assert all(f"`rkcosim {name}" in table for name in every_command())


@pytest.mark.parametrize("form", FORMS)
def test_options_of_a_form_exist(form: str):
    parsed(form.split()[1:])


def test_every_command_with_a_line_is_on_a_page():
    text = "".join(page_lines(page, begins) for page, begins in PAGES.items())
    assert {name for name in by_command(TEXT) if f"`rkcosim {name}" not in text} == set()


def test_lines_are_found_and_wrong_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "## A part\n```python\nassert f(x)  # rkcosim run M; rkcosim info M\n"
    text += "with g() as h:  # rkcosim doctor\n"
    text += "    pass\n```\n    x  # rkcosim bench\n```text\ny  # rkcosim bench\n```\n"
    first, second = python_lines(text)
    assert (first.code, first.forms, first.anchor) == (
        "f(x)",
        ("rkcosim run M", "rkcosim info M"),
        "a-part",
    )
    assert (second.code, second.forms) == ("g() as h", ("rkcosim doctor",))
    with pytest.raises(PageError, match="must be on the first line of a statement"):
        python_lines("```python\nf(\n    x\n)  # rkcosim run M\n```\n")
    assert command_of("rkcosim regcmd run FILE") == "regcmd run" and command_of("rkcosim run X") == "run"
    for wrong in ("rkcosim regcmd FILE", "rkcosim rnu X"):
        with pytest.raises(PageError, match="is no command"):
            command_of(wrong)
    with pytest.raises(PageError, match="has no line for rkcosim nothing"):
        page_lines("docs/a.md", ["nothing"])
    page = tmp_path / "commands.md"
    page.write_text(text)
    monkeypatch.setattr("tools.pages.commands.PAGE", page)
    with pytest.raises(PageError, match="neither a line nor a reason for rkcosim compare"):
        commands_table()
