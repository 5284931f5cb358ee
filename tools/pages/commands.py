"""The Python lines of commands, from the programs of docs/api/commands.md.

A comment at the end of a line of a program names the commands that do the same, separated by semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import PACKAGE, extensions
from rkcosim.cli.main import COMMANDS, REGCMD, RKNN
from rkcosim.measure.perf.page import PageError, table

PAGE = Path(PACKAGE) / "docs" / "api" / "commands.md"

LINE = re.compile(r"^\s*(.*?)  # (rkcosim .*)$")
WITHOUT = re.compile(r"^\| `rkcosim ([\w -]+)` \| (.+) \|$", re.MULTILINE)

PAGES: Mapping[str, tuple[str, ...]] = {
    "docs/models.md": ("compare", "info", "compile", "run"),
    "docs/quantize.md": ("quantize", "accuracy"),
    "docs/checking.md": ("run MODEL --check", "conformance", "diff FILE"),
    "docs/report.md": ("run MODEL --html", "report", "diff A.json"),
    "docs/howto/time.md": ("estimate",),
    "docs/howto/faster.md": ("advise",),
    "docs/counters.md": ("counters",),
    "docs/regcmd.md": ("regcmd dump", "regcmd asm", "regcmd lint", "regcmd run"),
    "docs/capture.md": ("regcmd import", "regcmd capture"),
    "docs/waves.md": ("run MODEL --trace", "waves", "diff A.vcd"),
    "docs/events.md": ("timeline", "diff A.parquet"),
    "docs/device.md": ("device",),
    "docs/librknnrt.md": ("rknn run", "explain"),
    "docs/rknn_files.md": ("rknn info", "rknn test"),
    "docs/delegates.md": ("litert", "delegate", "ort", "provider"),
    "docs/verilog.md": ("verilog",),
    "docs/register_tools.md": ("registers",),
    "docs/shards.md": ("run MODEL --shards", "sweep"),
    "docs/snapshots.md": ("run MODEL --save", "run MODEL --resume"),
    "docs/board_times.md": ("validate",),
    "docs/engines.md": ("bench",),
}
"""Beginnings of the forms that each page describes; the page has a section with their Python lines."""


@dataclass(frozen=True)
class PythonLine:
    """A line of a program.

    Members
    -------
    code
        The line without its comment.
    forms
        The commands that do the same, with their arguments.
    section
        Heading of the program.
    """

    code: str
    forms: tuple[str, ...]
    section: str

    @property
    def anchor(self) -> str:
        """Anchor of the heading."""
        return re.sub(r"[^\w\- ]", "", self.section).lower().replace(" ", "-")


def every_command() -> list[str]:
    """Return all commands, in the order of the help."""
    names: list[str] = []
    for name in (*COMMANDS, *extensions.extensions(extensions.COMMANDS)):
        below = {"regcmd": REGCMD, "rknn": RKNN}.get(name)
        names += [name] if below is None else [f"{name} {one}" for one in below]
    return names


def python_lines(text: str) -> list[PythonLine]:
    """Return the lines of the programs of a page that name commands.

    Raises
    ------
    PageError
        If a comment is at the end of a statement of several lines.
    """
    found, section, inside = [], "", False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line.startswith("```python")
        elif line.startswith("## "):
            section = line.removeprefix("## ")
        elif inside and (match := LINE.match(line)):
            code = re.sub(r"^(?:with (.*):|assert (.*))$", lambda m: m[1] or m[2], match[1])
            if not re.match(r"\w", code):
                raise PageError(f"{PAGE}: the comment {match[2]!r} must be on the first line of a statement")
            found.append(PythonLine(code, tuple(match[2].split("; ")), section))
    return found


def command_of(form: str) -> str:
    """Return the command of a form such as `rkcosim regcmd run FILE`.

    Raises
    ------
    PageError
        If there is no such command.
    """
    words = form.split()
    for count in (3, 2):
        name = " ".join(words[1:count])
        if words[0] == "rkcosim" and name in every_command():
            return name
    raise PageError(f"{PAGE}: {form!r} is no command")


def by_command(text: str) -> dict[str, list[tuple[str, PythonLine]]]:
    """Return for each command its forms and their lines; raises PageError as `command_of`."""
    found: dict[str, list[tuple[str, PythonLine]]] = {}
    for line in python_lines(text):
        for form in line.forms:
            found.setdefault(command_of(form), []).append((form, line))
    return found


def commands_table() -> str:
    """Return the table of docs/commandline.md: each command with its lines."""
    text = PAGE.read_text(encoding="utf-8")
    lines, without = by_command(text), dict(WITHOUT.findall(text))
    rows = []
    for name in every_command():
        for form, line in lines.get(name, ()):
            rows.append((f"`{form}`", f"[`{_cell(line.code)}`](api/commands.md#{line.anchor})"))
        if name not in lines:
            if name not in without:
                raise PageError(f"{PAGE} has neither a line nor a reason for rkcosim {name}")
            rows.append((f"`rkcosim {name}`", "[none](api/commands.md#commands-without-a-line)"))
    return "\n".join(table(("command", "in Python"), rows))


def python_table() -> str:
    """Return the table of docs/api/index.md: each line with the commands that do the same."""
    rows = []
    for line in python_lines(PAGE.read_text(encoding="utf-8")):
        forms = ", ".join(f"`{form}`" for form in line.forms)
        rows.append((f"[`{_cell(line.code)}`](commands.md#{line.anchor})", forms))
    return "\n".join(table(("in Python", "command"), rows))


def page_lines(page: str, begins: Iterable[str]) -> str:
    """Return the list of the Python lines of the forms that begin so.

    Raises
    ------
    PageError
        If no form begins so.
    """
    lines = python_lines(PAGE.read_text(encoding="utf-8"))
    above = "../" * (page.count("/") - 1)
    rows = []
    for begin in begins:
        found = [(f, line) for line in lines for f in line.forms if f"{f} ".startswith(f"rkcosim {begin} ")]
        if not found:
            raise PageError(f"{PAGE} has no line for rkcosim {begin}")
        for form, line in found:
            rows.append(f"- `{form}`: [`{line.code}`]({above}api/commands.md#{line.anchor})")
    return "\n".join(rows)


def _cell(code: str) -> str:
    return code.replace("|", "\\|")
