"""What the hardware would choke on in a register program: rules with their reasons, and what they find.

`lint(program)` asks every rule of `RULES`.  Rules are functions of the other modules here, entered by
`@rule` with a name, a severity, the reason and where it is written down.
"""

from __future__ import annotations

from collections.abc import Iterable

from sw.regcmd.lint import (  # noqa: F401  (they fill the table)
    blocks,
    conv,
    dpu,
    flow,
    memory,
    ppu,
    rdma,
    words,
    writer,
)
from sw.regcmd.lint.rule import ERROR, NOTE, RULES, SEVERITIES, WARNING, Check, Finding, Rule
from sw.regcmd.lint.traffic import Access, accesses
from sw.regcmd.machine import Start, starts_of
from sw.regcmd.program import Program

__all__ = ["ERROR", "NOTE", "RULES", "SEVERITIES", "WARNING", "Finding", "Rule", "Start", "lint"]

_LOOPS = 2
"""Rounds of a chain that returns to its own tasks which are looked at: one for each register group."""


def lint(program: Program, only: Iterable[str] | None = None) -> list[Finding]:
    """Ask every rule about a program.

    Parameters
    ----------
    program
        the tasks of a kick; what the host writes is known to the rules as far as it is given.
    only
        names of the rules to ask, all by default.

    Returns
    -------
    Findings by task and word, errors first at each place.  The same finding of a task that runs again
    comes once.

    Raises
    ------
    ValueError
        for an unknown name in `only`.
    """
    chosen = list(RULES) if only is None else list(only)
    unknown = [name for name in chosen if name not in RULES]
    if unknown:
        raise ValueError(f"no such rule: {', '.join(unknown)}; there are {', '.join(RULES)}")
    rules = [RULES[name] for name in chosen]
    findings: list[Finding] = []
    starts: list[Start] = []
    shared = _Ranges()
    traffic: list[tuple[Start, list[Access]]] = []
    rounds: dict[int, int] = {}
    looped = False
    for index, begun in starts_of(program):
        if index >= 0 and program.chained and (address := program.tasks[index].address) is not None:
            rounds[address] = rounds.get(address, 0) + 1
            looped |= rounds[address] > _LOOPS
        for start in begun:
            if not looped:
                check = Check(program, start, starts, findings, None, dict(shared.kept))
                for item in rules:
                    if not item.whole and any(block in start.blocks for block in item.blocks):
                        check.rule = item
                        item.check(check)
                traffic.append((start, accesses(check)))
                shared.keep(check)
            starts.append(start)
    whole = Check(program, None, starts, findings, None, {"starts": starts, "traffic": traffic})
    for item in rules:
        if item.whole:
            whole.rule = item
            item.check(whole)
    rank = {severity: number for number, severity in enumerate(SEVERITIES)}
    unique = dict.fromkeys(findings)
    return sorted(
        unique, key=lambda f: (f.task, rank[f.severity], -1 if f.word is None else f.word, f.rule, f.path)
    )


class _Ranges:
    """What is worked out once for a whole program."""

    def __init__(self) -> None:
        self.kept: dict[str, object] = {}

    def keep(self, check: Check) -> None:
        if "ranges" in check.cache:
            self.kept["ranges"] = check.cache["ranges"]
