"""Cases that mutants are tried on, in rounds of more and more, and what the unchanged model shows of each."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from cosim.conformance.case import Case
from cosim.conformance.groups import GROUPS, draw_case
from cosim.conformance.runner import MAX_CYCLES, Runner, Side
from cosim.golden.task import GoldenNpu

ROUNDS = (4, 16, 48)
"""Cases of each group after each round; a mutant goes on to the next round while nothing shows it."""

LONGEST = 200
"""Tasks of a case at most: longer chains take seconds and show nothing that these do not."""

Scope = tuple[str, int]
"""Path and first line of a function."""


@dataclass(frozen=True)
class Entry:
    """A case by its draw, what the unchanged golden model shows of it, and which functions it calls."""

    group: str
    seed: int
    index: int
    attempt: int
    digest: str
    calls: frozenset[Scope]

    def draw(self) -> Case:
        """Draw the case."""
        return draw_case(self.group, self.seed, self.index, attempt=self.attempt)


def rounds(most: int) -> list[int]:
    """Cases of each group after each round, the last round with `most`."""
    return [*(n for n in ROUNDS if n < most), most]


def entries(seed: int, per_group: int, root: Path) -> list[Entry]:
    """Draw cases of every group in turn and note what the golden model shows of each."""
    model = GoldenNpu(1, strict=False)
    runner = Runner(model)
    found = []
    for index in range(per_group):
        for group in GROUPS:
            case = draw_case(group, seed, index)
            if case.tasks > LONGEST:
                continue
            runner.reset()
            calls: set[CodeType] = set()

            def note(frame: FrameType, event: str, _: Any, calls: set[CodeType] = calls) -> None:
                if event == "call":
                    calls.add(frame.f_code)

            sys.setprofile(note)
            try:
                side = runner.observe(model, case, MAX_CYCLES)
            finally:
                sys.setprofile(None)
            mine = str(root)
            scopes = frozenset(
                (code.co_filename[len(mine) + 1 :], code.co_firstlineno)
                for code in calls
                if code.co_filename.startswith(mine)
            )
            found.append(Entry(group, seed, index, case.refused, digest(side, model, case), scopes))
    return found


def digest(side: Side, device: Any, case: Case) -> str:
    """Everything of a case that conformance compares: end, registers, diagnostics and memory.

    Of a refused access only which kind it is: the bytes are undefined.
    """
    if case.plan.fault:
        codes = [code for code in ("READ_ERROR", "WRITE_ERROR") if code in side.error + str(side.diagnostics)]
        return " ".join(codes)
    shown = (side.done, (side.registers, side.probed) if side.done else (), side.diagnostics, side.error)
    found = hashlib.sha256(repr(shown).encode())
    if side.done:
        for address, data in case.regions:
            found.update(device.memory.view(address, data.size).tobytes())
    return found.hexdigest()


def ordered(corpus: list[Entry], counts: list[int], scope: Scope | None) -> Iterator[Entry]:
    """The corpus round by round, only the cases that call a function (None: all).

    A change inside a function cannot show in a case that does not come to it.
    """
    before = 0
    for count in counts:
        for entry in corpus:
            if before <= entry.index < count and (scope is None or scope in entry.calls):
                yield entry
        before = count
