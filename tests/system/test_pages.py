"""Commands and programs of every page run, and commands print what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import hidden_modules, hide
from tests.programs import needs_program
from tests.system.pages import (
    NOT_RUN,
    ROOT,
    Command,
    blocks_of,
    check,
    commands_of,
    extras_of,
    pages,
    run_page,
)

pytest.importorskip("pyarrow", reason="needs the extra waves")
pytest.importorskip("pylibfst", reason="needs the extra waves")
pytest.importorskip("pywellen", reason="needs the extra waves")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

STORIES = "docs/stories/"
"""Folder of the pages that tests/system/test_stories.py runs."""

RUN = {
    name: text
    for name, text in pages().items()
    if not name.startswith(STORIES) and any(block.is_run for block in blocks_of(text))
}
"""Pages with blocks that are run."""


@needs_program("g++")
@pytest.mark.parametrize("name", RUN)
def test_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    run_page(RUN[name], tmp_path)


@needs_program("g++")
@pytest.mark.parametrize("name", RUN)
def test_page_runs_with_the_extras_that_it_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No page needs a package of an extra that it does not name."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "hidden").mkdir()
    hide(hidden_modules(extras_of(RUN[name])), tmp_path / "hidden")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    run_page(RUN[name], tmp_path, apart=True)


def test_extras_are_found_in_sentences():
    assert extras_of("needs the extras `tflite` and `litert`, or `onnx`; `waves`") == {
        "tflite",
        "litert",
        "onnx",
    }
    assert extras_of("The extra `waves` (`pip install`)") == {"waves"} and extras_of("| `waves` |") == set()


def test_pages_with_commands_are_found():
    least = {"README.md": 2, "docs/getting_started.md": 20, "docs/faq.md": 10, "docs/howto/streams.md": 10}
    for name, count in least.items():
        assert sum(not command.remark for command in commands_of(RUN[name])) >= count


def test_lines_of_a_page_are_compared(tmp_path: Path):
    lines = ("$ echo one \\", "> two", "one ...", "$ make demo # needs the network")
    said = commands_of("\n".join(("```console", *lines, "```", "")))
    assert said == [Command("echo one \\\ntwo", 0, "", ["one ..."]), Command("make demo", 0, NOT_RUN[0])]
    check(said[0], tmp_path)
    for wrong in (Command("echo one", lines=["two"]), Command("echo one", code=1), Command("false")):
        with pytest.raises(AssertionError):
            check(wrong, tmp_path)
    with pytest.raises(AssertionError):
        check(Command("printf 'a\\nb\\n'", lines=["b", "a"]), tmp_path)
    with pytest.raises(AssertionError):
        commands_of("```console\n$ make demo # whatever\n```\n")
