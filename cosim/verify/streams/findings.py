"""The findings of lint as a list that terminals and notebooks show."""

from __future__ import annotations

from collections.abc import Iterable

from rkcosim.base.html import table
from rkcosim.regcmd.lint import ERROR, NOTE, WARNING, Finding


class LintFindings(list[Finding]):
    """Findings by task and word; printed as by `rkcosim regcmd lint`, without notes.

    Parameters
    ----------
    found : the findings.
    tasks : number of tasks that were checked.
    """

    def __init__(self, found: Iterable[Finding], tasks: int) -> None:
        super().__init__(found)
        self.tasks = tasks

    def of(self, severity: str) -> list[Finding]:
        """Return the findings of a severity: "error", "warning" or "note"."""
        return [finding for finding in self if finding.severity == severity]

    @property
    def errors(self) -> list[Finding]:
        """What the hardware cannot do."""
        return self.of(ERROR)

    @property
    def warnings(self) -> list[Finding]:
        """Unusual settings."""
        return self.of(WARNING)

    @property
    def summary(self) -> str:
        """One line with the numbers of findings."""
        notes = len(self.of(NOTE))
        hidden = f" ({notes} notes)" if notes else ""
        return f"{self.tasks} tasks: {len(self.errors)} errors, {len(self.warnings)} warnings{hidden}"

    def __str__(self) -> str:
        shown = [str(finding) for finding in self if finding.severity != NOTE]
        return "\n".join([*shown, self.summary])

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    def _repr_html_(self) -> str:
        rows = [(f.severity, f.task, f.path, f.message, f.rule) for f in self]
        return table(self.summary, ("severity", "task", "register", "finding", "rule"), rows)
