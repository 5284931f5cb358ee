"""The debugging stories of docs/stories: every command on the pages runs and prints what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rkcosim.verify.streams.capture import load_expected
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Stream
from tests.programs import needs_program, require_program
from tests.system.pages import ROOT, check, commands_of, run

pytest.importorskip("pyarrow", reason="needs the extra waves")
pytest.importorskip("pylibfst", reason="needs the extra waves")
pytest.importorskip("pywellen", reason="needs the extra waves")

PAGES = ROOT / "docs" / "stories"
STREAMS = ROOT / "examples" / "streams"
PICTURES = (("bank-split", "bank"), ("surface-stride", "stride"), ("rknn-file", "residual"))
BROKEN = {"bank_split": "first", "surface_stride": "digits", "no_interrupt": "digits"}


@needs_program("g++")
@pytest.mark.parametrize("name", ["bank-split", "surface-stride", "no-interrupt", "debugger", "rknn-file"])
def test_commands_print_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    commands = commands_of((PAGES / f"{name}.md").read_text())
    assert len(commands) >= 8 and sum(len(command.lines) for command in commands) >= 15
    for command in commands:
        check(command, tmp_path)


def test_pictures_and_links_are_there():
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_pictures_drawn_by_our_command_are_what_it_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The checked-in SVG of a story is the one that the page's commands make."""
    require_program("g++")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for name, picture in PICTURES:
        for command in commands_of((PAGES / f"{name}.md").read_text()):
            if "compile" in command.text or "--trace" in command.text or "--svg" in command.text:
                assert run(command, tmp_path)[0] == command.code
        drawn = (tmp_path / "build" / f"{picture}.svg").read_text()
        assert drawn == (ROOT / "docs" / "pictures" / f"story-{name}.svg").read_text()


@pytest.mark.parametrize(("broken", "right"), BROKEN.items())
def test_streams_differ_in_one_word(broken: str, right: str):
    """Each story has exactly one wrong word, and the expected result is that of the right stream."""
    wrong, good = Stream.load(STREAMS / f"{broken}.json"), Stream.load(STREAMS / f"{right}.json")
    assert wrong.kick == good.kick
    words = [
        (a, b)
        for ours, theirs in zip(program_of_stream(wrong).tasks, program_of_stream(good).tasks, strict=True)
        for a, b in zip(ours.words, theirs.words, strict=True)
        if a != b
    ]
    assert len(words) == 1
    different = sum(int((a.data != b.data).sum()) for a, b in zip(wrong.regions, good.regions, strict=True))
    assert 1 <= different <= 8
    assert load_expected(STREAMS / f"{broken}.json") is not None
    assert (STREAMS / f"{broken}.json").stat().st_size < 100_000
