"""The page of all rules: `python -m sw.regcmd.lint.docs docs/lint.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from sw.regcmd.lint import RULES

_HEAD = """# Rules of `rkcosim regcmd lint`

Made by `python -m sw.regcmd.lint.docs docs/lint.md` from the rules themselves. "H" is the hardware
reference that [hardware.md](hardware.md) speaks of.

An **error** hangs, faults, is dropped or computes something else than it says; a **warning** is suspicious,
or has a behaviour here that silicon need not have; a **note** repeats wrongly what nothing reads (printed
with `--notes`). A rule's severity is the usual one; single findings may be milder.

"""


def page() -> str:
    """The page as Markdown."""
    lines = ["| rule | severity | why | source |", "| --- | --- | --- | --- |"]
    for rule in sorted(RULES.values(), key=lambda r: r.name):
        lines.append(f"| `{rule.name}` | {rule.severity} | {rule.why} | {rule.source} |")
    return _HEAD + "\n".join(lines) + "\n"


def main(path: str) -> None:
    """Write the page."""
    Path(path).write_text(page())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name the file to write: python -m sw.regcmd.lint.docs docs/lint.md")
    main(sys.argv[1])
