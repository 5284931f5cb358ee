"""Blocks of pages: commands and Python are run, and what commands print is compared with the page.

The language of a fenced block says what a test does with it:

- `console`: commands, which are run; what they print is compared with the page.
- `python`: a program, which is run and must end without an error.
- `sh`: forms of commands with names that stand for the reader's files; the options of `rkcosim` must exist.
- `text`: no commands.

A comment in the line before a block changes that: `<!-- fragment: WHY -->`, a part of a Python program, whose
imports must exist; `<!-- run by FILE -->`, a block that the test in FILE runs.

In a block of kind `console` a line `$ COMMAND` is run, with the lines `> ...` below it as the shell's
continuation; `# exit code N` at its end names the code (0 if nothing is said).  Each line below it must be in
the output, in order; `...` stands for lines, or for a part of a line, that are left out.  A command with one
of `NOT_RUN` at its end is not run: the `--help` of `rkcosim` commands is printed instead, and the list of
commands of `make`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from rkcosim.base.extras import EXTRAS
from rkcosim.cli.main import app

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = ("needs the network", "needs a board", "opens a browser", "opens a viewer", "changes the shell")
"""Remarks behind a command that a test cannot run."""


BLOCK = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Members
    -------
    line : number of its first line, which has the language, from 1.
    language : "" if none is given.
    text : its lines.
    remark : text of the comment before it, "" without one.
    """

    line: int
    language: str
    text: str
    remark: str = ""

    @property
    def is_run(self) -> bool:
        """Whether `run_page` runs it."""
        return self.language in ("console", "python") and not self.remark.startswith(
            ("fragment: ", "run by ")
        )


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [
        Block(page.count("\n", 0, found.start(2)) + 1, found[2], found[3], found[1] or "")
        for found in BLOCK.finditer(page)
    ]


def pages() -> dict[str, str]:
    """Pages that people read, with their text, by their path from the root."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}


@dataclass
class Command:
    """A command of a page.

    Members
    -------
    text : its words.
    code : its exit code.
    remark : one of `NOT_RUN`, or "".
    lines : what the page says that it prints.
    """

    text: str
    code: int = 0
    remark: str = ""
    lines: list[str] = field(default_factory=list)


def commands_of(page: str) -> list[Command]:
    """All commands of a page's console blocks, in order."""
    found: list[Command] = []
    for block in blocks_of(page):
        for line in block.text.splitlines() if block.language == "console" and block.is_run else ():
            if line.startswith("$ "):
                found.append(_command(line[2:]))
            elif line.startswith("> ") and not found[-1].lines:
                found[-1].text += f"\n{line[2:]}"
            else:
                found[-1].lines.append(line)
    return found


def _command(line: str) -> Command:
    text, _, remark = line.partition(" # ")
    if remark.startswith("exit code "):
        return Command(text, int(remark.removeprefix("exit code ")))
    assert not remark or remark in NOT_RUN, line
    return Command(text, remark=remark)


def run(command: Command, folder: Path, apart: bool = False) -> tuple[int, str]:
    """Exit code and everything printed; `rkcosim` runs in this process, unless it starts a program.

    Parameters
    ----------
    apart : run everything in processes of their own.
    """
    if not apart and re.match(r"rkcosim [^|>]*$", command.text) and " -- " not in command.text:
        result = CliRunner().invoke(app, shlex.split(command.text.replace("\\\n", " "))[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output
    start = f"PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH {shlex.quote(sys.executable)}"
    text = re.sub(r"^rkcosim ", f"{start} -m rkcosim ", re.sub(r"^python ", f"{start} ", command.text))
    text = text.replace(" -- python ", f" -- {shlex.quote(sys.executable)} ")
    done = subprocess.run(
        text, shell=True, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr


def extras_of(page: str) -> set[str]:
    """Extras that a page names in a sentence, such as "needs the extras `tflite` and `litert`"."""
    said = re.findall(r"\bextras? ((?:`\w+`(?:, (?:and |or )?| and | or )?)+)", page)
    return {name for words in said for name in re.findall(r"\w+", words)} & set(EXTRAS)


def run_page(page: str, folder: Path, apart: bool = False) -> None:
    """Run the blocks of a page, one after the other, and compare with what stands there.

    Parameters
    ----------
    page : its text.
    folder : current folder of this process, with a link to the examples.
    apart : run everything in processes of their own.
    """
    for block in blocks_of(page):
        if not block.is_run:
            continue
        if block.language == "console":
            for command in commands_of(f"```console\n{block.text}```"):
                check(command, folder, apart)
        else:
            program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{block.text}"
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, f"line {block.line}:\n{done.stdout}{done.stderr}"


def check(command: Command, folder: Path, apart: bool = False) -> None:
    """Run a command and compare its exit code and its output with the page."""
    if command.remark:
        words = shlex.split(command.text)
        if words[0] == "rkcosim":
            names = [word for word in words[1:3] if re.fullmatch(r"[a-z]+", word)]
            assert "Usage: rkcosim" in run(Command(f"rkcosim {names[0]} --help"), folder)[1], command.text
        elif words[0] == "make":
            listed = run(Command(f"make -n -C {shlex.quote(str(ROOT))} {words[1]}"), folder)
            assert listed[0] == 0, listed[1]
        return
    code, output = run(command, folder, apart)
    assert code == command.code, f"$ {command.text}\n{output}"
    printed = [line.rstrip() for line in output.splitlines()]
    at = 0
    for line in map(str.rstrip, command.lines):
        if line.strip() == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        found = next((n for n in range(at, len(printed)) if pattern.fullmatch(printed[n])), None)
        assert found is not None, f"$ {command.text}\nmissing: {line}\nprinted:\n{output}"
        at = found + 1
