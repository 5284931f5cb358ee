"""Commands of README.md, of the getting-started page and of the questions run and print what stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import needs_program
from tests.system.pages import NOT_RUN, ROOT, Command, check, commands_of

pytest.importorskip("pyarrow", reason="needs the extra waves")
pytest.importorskip("pylibfst", reason="needs the extra waves")
pytest.importorskip("pywellen", reason="needs the extra waves")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

PAGES = {"README.md": 2, "docs/getting_started.md": 20, "docs/faq.md": 10, "docs/board.md": 2}
"""Pages with commands, and how many of them are run at least."""


@needs_program("g++")
@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    commands = commands_of((ROOT / name).read_text())
    assert sum(not command.remark for command in commands) >= PAGES[name]
    for command in commands:
        check(command, tmp_path)


@needs_program("g++")
def test_python_of_the_getting_started_page(tmp_path: Path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/getting_started.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert blocks
    for block in blocks:
        start = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{block}"]
        done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 and "('stem', " in done.stdout, done.stdout + done.stderr


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
