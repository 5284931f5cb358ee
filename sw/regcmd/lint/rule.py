"""Rules, what they say, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rtl.regs import registers
from sw.regcmd.machine import HOST, Origin, Start
from sw.regcmd.program import Program

Severity = Literal["error", "warning", "note"]
ERROR: Severity = "error"
WARNING: Severity = "warning"
NOTE: Severity = "note"
SEVERITIES: tuple[Severity, ...] = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Finding:
    """Something that a rule found.

    Members
    -------
    rule, severity : which one, and how bad it is.
    task : number of the task; -1: what the host writes.
    word : number of the word in `task` that is to blame, None where no single one is.
    set_in : task whose word that is: an earlier one where a register was inherited.
    block, register, field, value : what is wrong, "" and None where no register is.
    message : with the numbers of this case.
    also : paths of the other sides of a contradiction, one of which may be the wrong one.
    """

    rule: str
    severity: Severity
    task: int
    word: int | None
    set_in: int | None
    block: str
    register: str
    field: str
    value: int | None
    message: str
    also: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """`BLOCK.REGISTER.FIELD`, as far as known."""
        return ".".join(part for part in (self.block, self.register, self.field) if part)

    def as_json(self) -> dict[str, Any]:
        """Every member, ready for `json.dump`."""
        return self.__dict__ | {"also": list(self.also)}

    def __str__(self) -> str:
        place = "host" if self.task == HOST else f"task {self.task}"
        if self.word is not None:
            where = "" if self.set_in in (None, self.task) else f" of task {self.set_in}"
            place += f", word {self.word}{where}"
        value = "" if self.value is None else f" = {_number(self.value)}"
        what = f" {self.path}{value}:" if self.path else ""
        also = f" (or {', '.join(self.also)})" if self.also else ""
        return f"{self.severity}: {place}:{what} {self.message}{also} [{self.rule}]"


def _number(value: int) -> str:
    return str(value) if -10 < value < 1024 else f"0x{value:X}"


@dataclass
class Check:
    """What a rule sees: the program, one start in it (None for rules of the whole), a place for findings."""

    program: Program
    start: Start | None
    before: list[Start] = field(default_factory=list)
    """Starts ahead of this one, in order."""
    findings: list[Finding] = field(default_factory=list)
    rule: Rule | None = None
    cache: dict[str, Any] = field(default_factory=dict)
    """Shapes worked out once for all rules of a start."""

    def say(
        self,
        message: str,
        block: str = "",
        register: str = "",
        name: str = "",
        *,
        severity: Severity | None = None,
        task: int | None = None,
        word: int | None = None,
        value: int | None = None,
        also: tuple[str, ...] = (),
    ) -> None:
        """Report something; value and word follow from the register in force unless given."""
        assert self.rule is not None
        origin: Origin | None = None
        number = task if task is not None else self.start.task if self.start is not None else 0
        if register and word is None and self.start is not None and block in self.start.views:
            view = self.start.views[block]
            origin = view.origin(register)
            if value is None:
                fields = registers()[block][register].fields
                name = name or (register if register in fields else "")
                value = view(register, name) if name else view.raw(register)
        if word is not None:
            origin = Origin(number, word)
        self.findings.append(
            Finding(
                self.rule.name,
                severity or self.rule.severity,
                number,
                None if origin is None else origin.word,
                None if origin is None else origin.task,
                block,
                register,
                name,
                value,
                message,
                also,
            )
        )


@dataclass(frozen=True)
class Rule:
    """One rule.

    Members
    -------
    name : "place.what".
    severity : of its findings, unless they say otherwise: error (hangs, faults, is dropped or computes
        something else), warning (suspicious, or defined here only), note (repeats something wrongly that
        has no effect).
    why : the reason, a sentence.
    source : section of docs/hardware.md, or of the hardware reference ("H").
    whole : looks at the whole program once instead of at each start.
    blocks : of which one must start for the rule to be asked.
    """

    name: str
    severity: Severity
    why: str
    source: str
    check: Callable[[Check], None]
    whole: bool = False
    blocks: tuple[str, ...] = ()


RULES: dict[str, Rule] = {}


def rule(
    name: str, severity: Severity, why: str, source: str, *, blocks: tuple[str, ...] = (), whole: bool = False
) -> Callable[[Callable[[Check], None]], Callable[[Check], None]]:
    """Enter a function into the table of rules."""

    def enter(check: Callable[[Check], None]) -> Callable[[Check], None]:
        if name in RULES:
            raise ValueError(f"two rules are called {name}")
        RULES[name] = Rule(name, severity, why, source, check, whole, blocks)
        return check

    return enter
