"""Commands of pages: blocks of kind `console` are run, and what they print is compared with the page.

A line `$ COMMAND` is run, with the lines `> ...` below it as the shell's continuation; `# exit code N` at its
end names the code (0 if nothing is said).  Each line below it must be in the output, in order; `...` stands
for lines, or for a part of a line, that are left out.  A command with one of `NOT_RUN` at its end is not run:
the `--help` of `rkcosim` commands is printed instead, and the list of commands of `make`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from rkcosim.cli.main import app

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = ("needs the network", "needs a board", "opens a browser", "opens a viewer", "changes the shell")
"""Remarks behind a command that a test cannot run."""


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
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
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


def run(command: Command, folder: Path) -> tuple[int, str]:
    """Exit code and everything printed; `rkcosim` runs in this process, unless it starts a program."""
    if re.match(r"rkcosim [^|>]*$", command.text) and " -- " not in command.text:
        result = CliRunner().invoke(app, shlex.split(command.text)[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output
    start = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)}"
    text = re.sub(r"^rkcosim ", f"{start} -m rkcosim ", re.sub(r"^python ", f"{start} ", command.text))
    text = text.replace(" -- python ", f" -- {shlex.quote(sys.executable)} ")
    done = subprocess.run(
        text, shell=True, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def check(command: Command, folder: Path) -> None:
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
    code, output = run(command, folder)
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
