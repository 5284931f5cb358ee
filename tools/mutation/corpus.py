"""Cases for trying mutants, in rounds of increasing size, with the unchanged model's result of each."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.rules import Diagnosis
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.draws import Kinds
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import MAX_CYCLES, Runner, Side

ROUNDS = (4, 16, 48)
"""Cases of each group after each round; a mutant that no case has found continues with the next round."""

LONGEST = 200
"""Largest number of tasks of a case: longer chains take seconds and find nothing more."""

TURNS = 3
"""How many times as many cases a group has that draws many kinds in turn."""

Scope = tuple[str, int]
"""Path and first line of a function."""


@dataclass(frozen=True)
class Entry:
    """A case by its draw, a digest of the unchanged golden model's result, and the functions it calls.

    `index` is the number of the case in its group, and `place` decides the round in which it is tried.
    """

    group: str
    seed: int
    index: int
    place: int
    attempt: int
    digest: str
    calls: frozenset[Scope]

    def draw(self) -> Case:
        """Draw the case."""
        return draw_case(self.group, self.seed, self.index, attempt=self.attempt)


def rounds(most: int) -> list[int]:
    """Return the number of cases of each group after each round; the last round has `most`."""
    return [*(n for n in ROUNDS if n < most), most]


class Shown:
    """What the golden model shows of a case: also the findings of its rules, which `regcmd lint` prints.

    Parameters
    ----------
    model
        The golden model of one core.
    diagnosis
        The class `rkcosim.golden.task.rules.Diagnosis` of the model's modules; its `say` is wrapped.
    """

    def __init__(self, model: Any, diagnosis: Any) -> None:
        self._model, self._findings = model, []  # type: Any, list[tuple[Any, ...]]
        say, findings = diagnosis.say, self._findings

        def noted(self: Any, message: str, *place: str, **more: Any) -> None:
            findings.append((message, place, sorted(more.items())))
            say(self, message, *place, **more)

        diagnosis.say = noted

    def clear(self) -> None:
        """Forget the previous case."""
        self._findings.clear()
        for log in self._model.reports:
            log.clear()

    def digest(self, side: Side, case: Case) -> str:
        """Return a digest of end, registers, diagnostics, memory, measured tasks and findings.

        For a refused access it contains only the kind of access, because the bytes are undefined.
        """
        if case.plan.fault:
            known = ("READ_ERROR", "WRITE_ERROR")
            return " ".join(code for code in known if code in side.error + str(side.diagnostics))
        probed = side.probed if side.done else ()
        shown = (side.done, side.registers, probed, side.diagnostics, side.error)
        found = hashlib.sha256(repr((shown, self._model.reports, self._findings)).encode())
        if side.done or case.plan.written:
            for address, size in case.ranges:
                found.update(self._model.memory.view(address, size).tobytes())
        return found.hexdigest()


def _indices(place: int) -> Iterator[tuple[str, int]]:
    """Yield groups and numbers of their cases for a place."""
    for name, group in GROUPS.items():
        turns = TURNS if isinstance(group.draw, Kinds) else 1
        yield from ((name, turns * place + turn) for turn in range(turns))


def entries(seed: int, per_group: int, root: Path) -> list[Entry]:
    """Draw cases of every group in turn and record the golden model's results."""
    model = GoldenNpu(1, strict=False)
    runner = Runner(GoldenNpu(1, strict=False), model)  # whose memory is mapped in two pieces in some cases
    shown = Shown(model, Diagnosis)
    found = []
    for place in range(per_group):
        for group, index in _indices(place):
            case = draw_case(group, seed, index)
            if case.tasks > LONGEST:
                continue
            runner.reset()
            shown.clear()
            calls: set[CodeType] = set()

            def note(frame: FrameType, event: str, _: Any, calls: set[CodeType] = calls) -> None:
                if event == "call":
                    calls.add(frame.f_code)

            sys.setprofile(note)
            try:
                side = runner.observe(model, case, MAX_CYCLES)
            finally:
                sys.setprofile(None)
            places = {code: Path(code.co_filename).resolve() for code in calls}
            scopes = frozenset(
                (place.relative_to(root).as_posix(), code.co_firstlineno)
                for code, place in places.items()
                if place.is_relative_to(root)
            )
            found.append(Entry(group, seed, index, place, case.refused, shown.digest(side, case), scopes))
    return found


def ordered(corpus: list[Entry], counts: list[int], scope: Scope | None) -> Iterator[Entry]:
    """Return the corpus round by round, restricted to cases that call a function (None: all).

    A change inside a function has no effect in a case that does not call it.
    """
    before = 0
    for count in counts:
        for entry in corpus:
            if before <= entry.place < count and (scope is None or scope in entry.calls):
                yield entry
        before = count
