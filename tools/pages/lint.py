"""The page of all rules of `regcmd lint`, docs/lint.md."""

from __future__ import annotations

from rkcosim.measure.perf.page import table
from rkcosim.regcmd.lint import RULES

_HEAD = """# Rules of `rkcosim regcmd lint`

Written by `python -m tools.pages` from the rules. `[HW 4.8]` is section
4.8 of [the hardware reference](reference/index.md). The golden model uses the same rules for everything
that the hardware diagnoses (`cosim/golden/task/rules.py`).

An **error** hangs, faults, is dropped or computes something else than intended; a **warning** is suspicious,
or silicon may behave differently from this model; a **note** is a wrong value that nothing reads (printed
with `--notes`). The table has the usual severity of a rule; single findings may be less severe.

"""


def page() -> str:
    """Return the page as Markdown."""
    rules = sorted(RULES.values(), key=lambda r: r.name)
    rows = [(f"`{rule.name}`", rule.severity, rule.why, rule.source) for rule in rules]
    return _HEAD + "\n".join(table(("rule", "severity", "why", "source"), rows)) + "\n"
