"""Rules about what the hardware does not support, derived from register values alone, and their table.

A rule is a function that examines the registers of blocks that start together and reports problems
with `Check.say`.  The golden model evaluates the rules of this package when blocks start, and turns what
the hardware diagnoses into findings or errors (`Diagnosis`). `regcmd lint` prints everything that they
report and adds the rules that need the whole stream (`rkcosim.regcmd.lint`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar

from rkcosim.golden.task.context import Context
from rkcosim.golden.task.errors import GoldenHang
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import ConvShape, DpuCube, PoolShape, RdmaCube
from rkcosim.spec.types import ATOM

T = TypeVar("T")
Severity = Literal["error", "warning", "note"]
ERROR: Severity = "error"
"""Severity of what hangs, faults, is dropped, or computes something else than intended."""

WARNING: Severity = "warning"
"""Severity of what is suspicious, or may behave differently on silicon."""

NOTE: Severity = "note"
"""Severity of a wrong value that nothing reads."""

SEVERITIES: tuple[Severity, ...] = (ERROR, WARNING, NOTE)
"""All severities, the worst first."""


def present(value: T | None) -> T:
    """Return a view or shape that cannot be None, because a rule only runs if its block starts."""
    assert value is not None
    return value


class Check:
    """Input of a rule: the blocks that start together.

    Parameters
    ----------
    views
        Registers of each block that starts, by block.
    options
        Names of non-default interpretations of the hardware.
    """

    def __init__(self, views: dict[str, View], options: frozenset[str] = frozenset()) -> None:
        self.started, self.options = views, options

    def view(self, block: str) -> View | None:
        """Registers of a block; None if it does not start."""
        return self.started.get(block)

    @cached_property
    def conv(self) -> ConvShape | None:
        """Sizes of the convolution; None without CNA."""
        cna = self.view("CNA")
        return None if cna is None else ConvShape(cna, self.view("CORE"), self.options)

    @cached_property
    def rdma(self) -> RdmaCube | None:
        """Cube of DPU_RDMA."""
        rdma = self.view("DPU_RDMA")
        return None if rdma is None else RdmaCube(rdma, self.view("DPU"))

    @cached_property
    def dpu(self) -> DpuCube | None:
        """Cube of the DPU, including the copies that DPU_RDMA's unpooling makes."""
        dpu, rdma = self.view("DPU"), self.rdma
        if dpu is None:
            return None
        return DpuCube(dpu, rdma.unpooled[0] if rdma is not None and rdma.unpooled else 0)

    @cached_property
    def pool(self) -> PoolShape | None:
        """Sizes of the PPU."""
        ppu = self.view("PPU")
        return None if ppu is None else PoolShape(ppu)

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
    ) -> None:
        """Report a problem.

        Parameters
        ----------
        message
            What is wrong, with the numbers of the case.
        block, register, name
            Register and field that are wrong; `name` may be omitted for the field with the register's name.
        code
            Name of the diagnostic that the hardware raises; empty if it raises none.
        ends
            Whether the task ends nevertheless.
        at
            Block, register and field in the hardware's diagnostic, if they differ from those above.
        severity
            Severity of this finding, if it is not that of the rule.
        also
            Paths of the other sides of a contradiction, one of which may be the wrong one.
        """
        raise NotImplementedError

    def check_address(self, view: View, register: str) -> None:
        """Report a base address that is not a multiple of the atom size."""
        if view.bits(register) % ATOM:
            name = next(iter(view.fields(register)))
            self.say("not a multiple of 16", view.block, register, name, code="UNALIGNED_ADDRESS")


C = TypeVar("C", bound=Check)


@dataclass(frozen=True)
class Rule(Generic[C]):
    """One rule.

    Members
    -------
    name : "area.subject".
    severity : severity of its findings, unless they have another one: error (hangs, faults, is dropped or
        computes something else), warning (suspicious, or defined only in this model), note (a repeated value
        without effect is wrong).
    why : the reason, as a sentence.
    source : sections of docs/reference, as citations.
    whole : the rule examines the whole program once instead of each start.
    blocks : the rule is evaluated if one of these blocks starts.
    """

    name: str
    severity: Severity
    why: str
    source: str
    check: Callable[[C], None]
    whole: bool = False
    blocks: tuple[str, ...] = ()


class RuleTable(dict[str, Rule[C]]):
    """Rules by name, in the order in which they are evaluated."""

    def rule(
        self, name: str, severity: Severity, source: str, *, blocks: tuple[str, ...] = (), whole: bool = False
    ) -> Callable[[Callable[[C], None]], Callable[[C], None]]:
        """Decorator that adds a function to the table; its docstring becomes the reason of the rule."""

        def enter(check: Callable[[C], None]) -> Callable[[C], None]:
            if name in self:
                raise ValueError(f"two rules are called {name}")
            why = " ".join((check.__doc__ or "").split())
            self[name] = Rule(name, severity, why, source, check, whole, blocks)
            return check

        return enter


RULES: RuleTable[Check] = RuleTable()
"""Rules for what the hardware diagnoses; the modules `rules_conv` and `rules_dpu` fill the table."""
rule = RULES.rule


class Diagnosis(Check):
    """Rules evaluated by the golden model: what the hardware diagnoses becomes a finding of the task.

    Parameters
    ----------
    ctx
        Context that receives the findings; if it is strict, the first one is raised.
    patient
        Whether a strict context also continues for settings with which the task never ends.
    """

    def __init__(self, ctx: Context, views: dict[str, View], *, patient: bool = False) -> None:
        super().__init__(views, ctx.options)
        self.ctx, self.patient = ctx, patient
        self.asked = ""
        self.stops: dict[str, GoldenHang] = {}
        """Reasons why the task never ends: the first one of each rule, by rule."""

    def ask(self, block: str) -> None:
        """Evaluate all rules about a block.

        Raises
        ------
        GoldenError
            If the context is strict, for the first problem that the hardware diagnoses.
        """
        for item in RULES.values():
            if block in item.blocks:
                self.asked = item.name
                item.check(self)

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
    ) -> None:
        """As `Check`."""
        if not code:
            return
        block, register, name = at or (block, register, name or register)
        if ends:
            self.ctx.require(False, code, self.started[block], register, name, message)
            return
        hang = self.ctx.stop(code, self.started[block], register, name, message)
        if self.ctx.strict and not self.patient:
            raise hang
        self.stops.setdefault(self.asked, hang)
