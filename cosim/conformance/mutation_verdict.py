"""What became of the mutants, and the page about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

FOUND, SURVIVED, VOID = "found", "survived", "void"

WANTED = 0.95
"""Share of the mutants of a side that must be found."""

LOOKED_AT: dict[tuple[str, str], str] = {
    ("cosim/golden/task/context.py", "constant: 32 -> 33"): (
        "the address of an element past 4 GiB: needs memory at the very end of the address space"
    ),
    ("cosim/golden/task/context.py", "constant: 1 -> 2"): (
        "the address of an element past 4 GiB: needs memory at the very end of the address space"
    ),
    ("cosim/golden/task/dpu.py", "constant: 32 -> 33"): (
        "the same after the division: 33 channels have as many whole atoms as 32"
    ),
}
"""(path, text of the mutant without its line) of survivors that were looked at -> why nothing shows them."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant ("found", "survived" or "void"), and where."""

    side: str
    kind: str
    mutant: str
    result: str
    detail: str
    seconds: float

    @property
    def place(self) -> tuple[str, str]:
        """Path, and what was changed, without the line number."""
        path, _, rest = self.mutant.partition(":")
        return path, rest.partition(": ")[2]


def counted(verdicts: Sequence[Verdict], side: str) -> tuple[int, int, int]:
    """Mutants found, mutants that count, void ones of a side."""
    mine = [v for v in verdicts if v.side == side]
    void = sum(v.result == VOID for v in mine)
    return sum(v.result == FOUND for v in mine), len(mine) - void, void


def good(verdicts: Sequence[Verdict]) -> bool:
    """Whether enough mutants of each side are found."""
    return all(
        found >= WANTED * count for found, count, _ in (counted(verdicts, s) for s in ("golden", "rtl"))
    )


def markdown(verdicts: Sequence[Verdict], commands: Sequence[str]) -> str:
    """The page: figures, survivors and what is known about them."""
    lines = [
        "# Mutation check",
        "",
        f"Written by {' and '.join(f'`{command}`' for command in commands)}.",
        "Small faults are put into the sources of the RTL and of the golden model, one at a time; a fault is",
        "found when a conformance case then shows a difference. `cosim/conformance/mutation_rules.py` names",
        "the places that are left alone, with the reasons.",
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
        f"- `{v.mutant}` ({v.detail}): {LOOKED_AT.get(v.place, 'not looked at yet')}"
        for v in sorted(left, key=lambda v: (v.side, v.mutant))
    ] or ["None."]
    return "\n".join(lines) + "\n"
