"""Check of register programs against the rules of the hardware.

`lint(program)` evaluates every rule of `RULES`.  Rules are functions of the other modules here, added by
`@rule` with a name, a severity, and the source of the fact; the docstring is the reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from rkcosim.golden.task.rules import ERROR, NOTE, SEVERITIES, WARNING, Rule
from rkcosim.regcmd.lint import (  # noqa: F401  (they fill the table)
    blocks,
    conv,
    dpu,
    flow,
    memory,
    ppu,
    silicon,
    words,
)
from rkcosim.regcmd.lint.causes import with_causes
from rkcosim.regcmd.lint.rule import RULES, Check, Finding
from rkcosim.regcmd.lint.traffic import Access, accesses
from rkcosim.regcmd.machine import Start, starts_of
from rkcosim.regcmd.program import Program

__all__ = ["ERROR", "NOTE", "RULES", "SEVERITIES", "WARNING", "Finding", "Rule", "Start", "lint"]

_LOOPS = 2
"""Number of passes through a chain that returns to its own tasks: one for each register group."""


def lint(program: Program, only: Iterable[str] | None = None) -> list[Finding]:
    """Evaluate every rule on a program.

    Parameters
    ----------
    program
        The tasks of a kick; the rules use the host's writes as far as they are known.
    only
        Names of the rules to evaluate; None: all.

    Returns
    -------
    Findings by task and word, at each place errors first.  If a task runs again, the same finding is
    reported once.  Consequences of a wrong word elsewhere name it (`Finding.follows`).

    Raises
    ------
    ValueError
        For an unknown name in `only`.
    """
    chosen = list(RULES) if only is None else list(only)
    unknown = [name for name in chosen if name not in RULES]
    if unknown:
        raise ValueError(f"no such rule: {', '.join(unknown)}; there are {', '.join(RULES)}")
    rules = [RULES[name] for name in chosen]
    findings: list[Finding] = []
    starts: list[Start] = []
    kept: dict[str, object] = {}
    traffic: list[tuple[Start, list[Access]]] = []
    rounds: dict[int, int] = {}
    looped = False
    for index, begun in starts_of(program):
        if index >= 0 and program.chained and (address := program.tasks[index].address) is not None:
            rounds[address] = rounds.get(address, 0) + 1
            looped |= rounds[address] > _LOOPS
        for start in begun:
            if not looped:
                check = Check(program, start, starts, findings, dict(kept))
                for item in rules:
                    if not item.whole and any(block in start.blocks for block in item.blocks):
                        check.rule = item
                        item.check(check)
                traffic.append((start, accesses(check)))
                kept |= {name: value for name, value in check.cache.items() if name == "ranges"}
            starts.append(start)
    whole = Check(program, None, starts, findings, {"starts": starts, "traffic": traffic})
    for item in rules:
        if item.whole:
            whole.rule = item
            item.check(whole)
    rank = {severity: number for number, severity in enumerate(SEVERITIES)}
    unique = dict.fromkeys(with_causes(program, starts, findings))
    return sorted(
        unique, key=lambda f: (f.task, rank[f.severity], -1 if f.word is None else f.word, f.rule, f.path)
    )
