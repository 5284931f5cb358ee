"""What a constraint is: a rule, its text, and the error that names what failed and what would satisfy it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

from rkcosim.compiler.graph import ModelError

P = ParamSpec("P")

_REQUIRED = " (required: "


@dataclass(frozen=True)
class Constraint(Generic[P]):
    """A condition under which the NPU computes an operator.

    Members
    -------
    name
        Name of the rule.
    operators
        Names of the operators that it concerns, as ONNX has them; empty if it concerns all operators.
    text
        The requirement, a sentence with the limits of the hardware or of the compiler.
    rule
        Returns what of an operator does not meet the requirement, with its values, or "" if it is met.
    """

    name: str
    operators: tuple[str, ...]
    text: str
    rule: Callable[P, str]

    def __call__(self, label: str, /, *values: P.args, **named: P.kwargs) -> None:
        """Refuse an operator that does not meet the requirement.

        Parameters
        ----------
        label
            Kind and name of the operator, or the name of a tensor; the error begins with it.
        values, named
            The parameters of the rule.

        Raises
        ------
        UnmetError
            If the requirement is not met.
        """
        if self.rule(*values, **named):
            raise self.error(label, *values, **named)

    def error(self, label: str, /, *values: P.args, **named: P.kwargs) -> UnmetError:
        """Return the error for an operator of which the caller knows that the requirement is not met."""
        return UnmetError(f"{label}: {self.reason(*values, **named) or self.text}", self.name)

    def reason(self, *values: P.args, **named: P.kwargs) -> str:
        """Return what does not meet the requirement, with the requirement; "" if it is met."""
        case = self.rule(*values, **named)
        return self._sentence(case) if case else ""

    def _sentence(self, case: str) -> str:
        return f"{case}{_REQUIRED}{self.text[:1].lower()}{self.text[1:].rstrip('.')})"


class UnmetError(ModelError):
    """The NPU does not compute an operator; `constraint` is the name of what it does not meet."""

    def __init__(self, message: str, constraint: str) -> None:
        super().__init__(message)
        self.constraint = constraint


CONSTRAINTS: dict[str, Constraint[...]] = {}
"""All constraints whose modules have been imported, by name."""


def constraint(*operators: str, **limits: object) -> Callable[[Callable[P, str]], Constraint[P]]:
    """Make a constraint of a rule; the rule's docstring is its text.

    Parameters
    ----------
    operators
        ONNX's names of the operators that it concerns; none for all.
    limits
        Values for the names in braces in the docstring.

    Raises
    ------
    ValueError
        If the name is in use, or the docstring is missing or not one sentence in one paragraph.
    """

    def made(rule: Callable[P, str]) -> Constraint[P]:
        text = " ".join((rule.__doc__ or "").split()).format(**limits)
        if not text.endswith(".") or rule.__name__ in CONSTRAINTS:
            raise ValueError(f"{rule.__name__}: its docstring is no sentence, or its name is in use")
        found = Constraint(rule.__name__, operators, text, rule)
        CONSTRAINTS[found.name] = found
        return found

    return made


def requirement(reason: str) -> str:
    """Return the part of a reason that equal reasons share: the requirement, or else the whole reason."""
    return reason.partition(_REQUIRED)[2] or reason
