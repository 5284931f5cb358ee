"""Which findings are consequences of others.

Two faults show up later than where they are: pointer and executer of a block that do not toggle together
let a later task use the wrong register group, and a link that leads into a list loses the words before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rkcosim.golden.task.rules import ERROR
from rkcosim.regcmd.lint.rule import Finding
from rkcosim.regcmd.lint.words import skipped
from rkcosim.regcmd.machine import HOST, Origin, Start
from rkcosim.regcmd.program import Program
from rkcosim.spec.regs import registers

_ABOUT_WORDS = ("word.", "chain.")
"""Rules about words, whatever register group they are written to."""

_CAUSES = ("group.toggle", "chain.beginning")
"""Rules whose findings are errors where errors follow from them, and warnings otherwise."""

_WITHOUT_BEGINNING = ("group.never-set", "group.toggle", "word.late", "start.not-started")
"""Rules whose findings in a task follow from a beginning that is missing, whatever register they name."""


@dataclass(frozen=True)
class _Cause:
    """A wrong word, and what it makes wrong in one task.

    Members
    -------
    origin : the word.
    task : the task that suffers from it.
    block : block that uses the wrong group; "" for a list that lost its beginning.
    registers : paths of the registers that the lost words write.
    """

    origin: Origin
    task: int
    block: str = ""
    registers: frozenset[str] = frozenset()

    def explains(self, finding: Finding) -> bool:
        """Whether a finding is a consequence."""
        if (finding.set_in, finding.word) == (self.origin.task, self.origin.word):
            return False
        if finding.rule == "chain.amount":
            return not self.block and finding.set_in == self.origin.task
        if finding.task != self.task:
            return False
        paths = [finding.path, *finding.also]
        if self.block:
            about = any(path.split(".")[0] == self.block for path in paths)
            return about and not finding.rule.startswith(_ABOUT_WORDS)
        lost = any(".".join(path.split(".")[:2]) in self.registers for path in paths)
        return lost or finding.word is None or finding.rule in _WITHOUT_BEGINNING


def with_causes(program: Program, starts: list[Start], findings: list[Finding]) -> list[Finding]:
    """Return the findings with `follows` set for consequences; a warning that causes errors is an error."""
    causes = [*_groups(starts), *_links(program)]
    marked = []
    for finding in findings:
        cause = next((one.origin for one in causes if one.explains(finding)), None)
        marked.append(finding if cause is None else replace(finding, follows=(cause.task, cause.word)))
    grave = {finding.follows for finding in marked if finding.follows and finding.severity == ERROR}
    return [
        replace(finding, severity=ERROR)
        if finding.rule in _CAUSES and (finding.set_in, finding.word) in grave
        else finding
        for finding in marked
    ]


def _groups(starts: list[Start]) -> Iterator[_Cause]:
    """Yield the causes of starts that enable another register group than the one that runs next."""
    before: dict[str, Origin] = {}  # block -> the word with which it toggles only one of both
    for start in starts:
        for block in start.blocks:
            value, origin = start.controls[block]
            enabled, turn = start.enabled[block]
            if enabled != turn:
                cause = before.get(block, origin)
                if cause is not None and cause.task != HOST:
                    yield _Cause(cause, start.task, block)
            pointer = registers()[block]["S_POINTER"].decode(value)
            before.pop(block, None)
            if origin is not None and pointer["POINTER_PP_EN"] != pointer["EXECUTER_PP_EN"]:
                before[block] = origin


def _links(program: Program) -> Iterator[_Cause]:
    """Yield the links that lead into a list behind its beginning."""
    for index, word, lost in skipped(program):
        paths = frozenset(command.register.path for command in lost if command.register is not None)
        yield _Cause(Origin(index, word), index + 1, registers=paths)
