"""Rules of the lint, their findings, and the table of all rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rkcosim.golden.task import rules, rules_conv, rules_dpu  # noqa: F401  (they fill the table)
from rkcosim.golden.task.rules import Rule, Severity, present
from rkcosim.regcmd.machine import HOST, Origin, Start
from rkcosim.regcmd.program import Program
from rkcosim.spec.regs.options import chosen_options


@dataclass(frozen=True)
class Finding:
    """One finding of a rule.

    Members
    -------
    rule, severity : name of the rule, and severity of the finding.
    task : number of the task; -1 for writes of the host.
    word : number of the wrong word in `task`; None if there is no single one.
    set_in : task that the word belongs to: an earlier one if the register was inherited.
    block, register, field, value : what is wrong; "" and None if it is not a register.
    message : text with the numbers of this case.
    also : paths of the other sides of a contradiction, one of which may be the wrong one.
    code : name of the diagnostic that the hardware raises; "" if it raises none.
    follows : (task, word) of the wrong word whose consequence this finding is; None if it is none.
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
    code: str = ""
    follows: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        """`BLOCK.REGISTER.FIELD`, as far as known."""
        return ".".join(part for part in (self.block, self.register, self.field) if part)

    def as_json(self) -> dict[str, Any]:
        """Every member, ready for `json.dump`."""
        follows = None if self.follows is None else list(self.follows)
        return self.__dict__ | {"also": list(self.also), "follows": follows}

    def __str__(self) -> str:
        place = "host" if self.task == HOST else f"task {self.task}"
        if self.word is not None:
            where = "" if self.set_in in (None, self.task) else f" of task {self.set_in}"
            place += f", word {self.word}{where}"
        value = "" if self.value is None else f" = {_number(self.value)}"
        what = f" {self.path}{value}:" if self.path else ""
        also = f" (or {', '.join(self.also)})" if self.also else ""
        cause = f", follows from task {self.follows[0]}, word {self.follows[1]}" if self.follows else ""
        return f"{self.severity}: {place}:{what} {self.message}{also}{cause} [{self.rule}]"


def _number(value: int) -> str:
    return str(value) if -10 < value < 1024 else f"0x{value:X}"


class Check(rules.Check):
    """Input of a rule about a program, one start or the whole, and collection of findings.

    Parameters
    ----------
    program
        The tasks of a kick.
    start
        The start to examine; None for rules about the whole program.
    before
        Starts before this one, in order.
    findings
        List that receives the findings.
    cache
        Results that several rules use.
    """

    def __init__(
        self,
        program: Program,
        start: Start | None,
        before: list[Start] | None = None,
        findings: list[Finding] | None = None,
        cache: dict[str, Any] | None = None,
    ) -> None:
        blocks = () if start is None else start.blocks
        super().__init__({name: start.views[name] for name in blocks} if start else {}, chosen_options())
        self.program, self.start, self.before = program, start, before or []
        self.findings = [] if findings is None else findings
        self.cache = {} if cache is None else cache
        self.rule: Rule[Any] | None = None

    @property
    def here(self) -> Start:
        """The start that a rule about single starts examines."""
        return present(self.start)

    def say(
        self,
        message: str,
        block: str = "",
        register: str = "",
        name: str = "",
        *,
        code: str = "",
        ends: bool = True,
        at: tuple[str, str, str] | None = None,
        severity: Severity | None = None,
        also: tuple[str, ...] = (),
        task: int | None = None,
        word: int | None = None,
        value: int | None = None,
    ) -> None:
        """Report a finding; value and word are those of the current register unless given."""
        asked, origin = present(self.rule), None
        number = task if task is not None else self.start.task if self.start is not None else 0
        if register and word is None and self.start is not None and block in self.start.views:
            view = self.start.views[block]
            origin = view.origin(register)
            if value is None:
                name = name or (register if register in view.fields(register) else "")
                value = view(register, name) if name else view.raw(register)
        if word is not None:
            origin = Origin(number, word)
        by, task_of = (None, None) if origin is None else (origin.word, origin.task)
        place = (block, register, name)
        worst = severity or asked.severity
        self.findings.append(
            Finding(asked.name, worst, number, by, task_of, *place, value, message, also, code)
        )


RULES: rules.RuleTable[Any] = rules.RuleTable(rules.RULES)
"""All rules by name: those of the golden model, and those of the modules in this folder."""
rule = RULES.rule
