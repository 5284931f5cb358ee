"""The debugging stories of docs/stories: every command on the pages runs and prints what stands there.

In a block of kind `console` a line `$ COMMAND` is run, `# exit code N` at its end names the code (0 if
nothing is said), and each line below it must be in the output, in order; `...` stands for lines left out.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cosim.cli.main import app
from cosim.streams.capture import load_expected
from cosim.streams.programs import program_of_stream
from cosim.streams.stream import Stream

pytest.importorskip("pyarrow", reason="needs the extra waves")
pytest.importorskip("pylibfst", reason="needs the extra waves")
pytest.importorskip("pywellen", reason="needs the extra waves")

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "stories"
STREAMS = ROOT / "examples" / "streams"
BROKEN = {"bank_split": "first", "surface_stride": "digits", "no_interrupt": "digits"}


@dataclass
class Command:
    """A command of a page: its words, its exit code and the lines printed below it."""

    text: str
    code: int
    lines: list[str] = field(default_factory=list)


def commands_of(page: str) -> list[Command]:
    """All commands of a page's console blocks, in order."""
    found: list[Command] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                text, _, code = line[2:].partition(" # exit code ")
                found.append(Command(text, int(code or 0)))
            else:
                found[-1].lines.append(line)
    return found


def run(command: Command, folder: Path) -> tuple[int, str]:
    """Exit code and everything printed; `rkcosim` runs in this process."""
    if command.text.startswith("rkcosim "):
        result = CliRunner().invoke(app, shlex.split(command.text)[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output
    text = re.sub(
        r"^python ", f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} ", command.text
    )
    done = subprocess.run(
        text, shell=True, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("name", ["bank-split", "surface-stride", "no-interrupt"])
def test_commands_print_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    commands = commands_of((PAGES / f"{name}.md").read_text())
    assert len(commands) >= 8 and sum(len(command.lines) for command in commands) >= 15
    for command in commands:
        code, output = run(command, tmp_path)
        assert code == command.code, f"$ {command.text}\n{output}"
        printed = [line.rstrip() for line in output.splitlines()]
        at = 0
        for line in command.lines:
            if line.strip() == "...":
                continue
            assert line.rstrip() in printed[at:], f"$ {command.text}\nmissing: {line}\nprinted:\n{output}"
            at = printed.index(line.rstrip(), at) + 1


def test_pictures_and_links_are_there():
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_pictures_drawn_by_our_command_are_what_it_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The checked-in SVG of a story is the one that the page's commands make."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler on this machine")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for name, picture in (("bank-split", "bank"), ("surface-stride", "stride")):
        for command in commands_of((PAGES / f"{name}.md").read_text()):
            if "--trace" in command.text or "--svg" in command.text:
                assert run(command, tmp_path)[0] == command.code
        drawn = (tmp_path / "build" / f"{picture}.svg").read_text()
        assert drawn == (ROOT / "docs" / "pictures" / f"story-{name}.svg").read_text()


@pytest.mark.parametrize(("broken", "right"), BROKEN.items())
def test_streams_differ_in_one_word(broken: str, right: str):
    """So that the stories are about one bug each, and expect what the right stream gives."""
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
