"""Results of the mutants, and the page about them."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tools.mutation.rules import LOOKED_AT

FOUND, SURVIVED, VOID = "found", "survived", "void"

WANTED = 0.95
"""Share of the mutants of each side that must be found."""

CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Verdict:
    """Result of a mutant ("found", "survived" or "void"), and where it was found."""

    side: str
    kind: str
    mutant: str
    result: str
    detail: str
    seconds: float

    @property
    def reason(self) -> str:
        """Return the reason why nothing finds a survivor, if it is known."""
        parts = LOOKED_AT.get(self.mutant.partition(":")[0], {})
        return next((reason for part, reason in parts.items() if part in self.mutant), "not analysed yet")


Answer = tuple[str, str]
"""Result and detail of a verdict."""


def forked(work: Callable[[], Answer]) -> tuple[BaseProcess, Connection]:
    """Start work on a mutant in a copy of this process; `answer` waits for its end."""
    mine, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=lambda: theirs.send(work()), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def answer(process: BaseProcess, pipe: Connection) -> Answer:
    """Return the result of a forked process; if the process dies, it has found its mutant."""
    try:
        result, detail = pipe.recv()
    except EOFError:
        result, detail = FOUND, "the process died"
    pipe.close()
    process.join()
    return result, detail


def counted(verdicts: Sequence[Verdict], side: str) -> tuple[int, int, int]:
    """Return the numbers of mutants found, mutants that count, and void ones of a side."""
    mine = [v for v in verdicts if v.side == side]
    void = sum(v.result == VOID for v in mine)
    return sum(v.result == FOUND for v in mine), len(mine) - void, void


def good(verdicts: Sequence[Verdict]) -> bool:
    """Whether enough mutants of each side are found."""
    return all(
        found >= WANTED * count for found, count, _ in (counted(verdicts, s) for s in ("golden", "rtl"))
    )


def markdown(verdicts: Sequence[Verdict], commands: Sequence[str]) -> str:
    """Return the page: figures, survivors and their known reasons."""
    lines = [
        "# Mutation check",
        "",
        f"Written by {' and '.join(f'`{command}`' for command in commands)}.",
        "Small faults are inserted into the sources of the RTL and the golden model, one by one; a fault is",
        "found if a conformance case shows a difference. `tools/mutation/rules.py` lists",
        "the excluded places with the reasons.",
        "",
        "| Side | Mutants | Found | Share |",
        "| --- | --- | --- | --- |",
    ]
    for side, name in (("rtl", "RTL"), ("golden", "golden model")):
        found, count, _ = counted(verdicts, side)
        if count:
            lines.append(f"| {name} | {count} | {found} | {found / count:.1%} |")
    lines += ["", "| Change | Mutants | Found |", "| --- | --- | --- |"]
    real = [v for v in verdicts if v.result != VOID]
    totals, hits = Counter(v.kind for v in real), Counter(v.kind for v in real if v.result == FOUND)
    lines += [f"| {kind} | {totals[kind]} | {hits[kind]} |" for kind in sorted(totals)]
    lines += ["", "## Survivors", ""]
    left = [v for v in real if v.result == SURVIVED]
    lines += [
        f"- `{v.mutant}` ({v.detail}): {v.reason}" for v in sorted(left, key=lambda v: (v.side, v.mutant))
    ] or ["None."]
    return "\n".join(lines) + "\n"
