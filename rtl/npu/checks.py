"""Diagnostics of a task's settings: checks that are evaluated one by one after the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE, Diagnostic, DiagnosticCode, DiagnosticPort
from rkcosim.rtl.regfile import config_signature, unpack_fields
from rkcosim.spec.regs import registers

SPACING = 8
"""Cycles between two reports of blocks that share a diagnostic port, so that no report is lost."""


@dataclass(frozen=True)
class Check:
    """A setting that the hardware does not support: if `when` holds, `code` is reported for `register`."""

    register: str
    when: ValueLike
    code: DiagnosticCode = DiagnosticCode.RESERVED_MODE


class Checker(wiring.Component):
    """Evaluate checks, one per cycle, and report those that fail together with the word of their register.

    Parameters
    ----------
    block : str
        Name of the block in the register description.
    checks : sequence of Check
        In the order of the reports. The caller drives `failed` with their `when`.
    spacing : int
        Cycles from a report to the next check, at least 1.
    late : Check or None
        Check that is reported after all others if the port `late` pulses.

    Members
    -------
    cfg : registers of the block, stable while `busy`.
    start : pulse, the checks begin in the next cycle.
    failed : one bit for each check, evaluated while `busy`.
    late : pulse, the late check has failed.
    busy : the checks are not finished.
    diag : the reports.
    """

    def __init__(
        self, block: str, checks: Sequence[Check], *, spacing: int = 1, late: Check | None = None
    ) -> None:
        self._registers, self._checks = registers()[block], checks
        self._spacing, self._late = spacing, late
        super().__init__(
            {
                "cfg": In(config_signature(block)),
                "start": In(1),
                "failed": In(len(checks), init=IDLE),
                "late": In(1),
                "busy": Out(1),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place = Signal(range(len(self._checks)), reset_less=True)
        pause = Signal(range(max(self._spacing, 2)))
        waiting = Signal()
        payload = Signal(Diagnostic, init=dict.fromkeys(("code", "register", "value"), IDLE))
        m.d.comb += self.diag.payload.eq(payload)
        with m.If(self.busy):
            with m.Switch(place):
                for index, check in enumerate(self._checks):
                    with m.Case(index):
                        m.d.comb += self._told(payload, check)
            with m.If(pause != 0):
                m.d.sync += pause.eq(pause - 1)
            with m.Else():
                failed = self.failed.bit_select(place, 1)
                m.d.comb += self.diag.valid.eq(failed)
                m.d.sync += [place.eq(place + 1), pause.eq(Mux(failed, self._spacing - 1, 0))]
                m.d.sync += self.busy.eq(place != len(self._checks) - 1)
        with m.Elif(waiting):
            m.d.comb += [self.diag.valid.eq(1), *(self._told(payload, self._late) if self._late else ())]
            m.d.sync += waiting.eq(0)
        with m.If(self.late):
            m.d.sync += waiting.eq(1)
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), place.eq(0), pause.eq(0)]
        return m

    def _told(self, payload: Any, check: Check) -> list[Any]:
        """Assignments of the contents of a check's report."""
        register = self._registers[check.register]
        return [
            payload.code.eq(check.code),
            payload.register.eq(register.offset),
            payload.value.eq(unpack_fields(register, getattr(self.cfg, check.register))),
        ]


def add_checker(
    m: Module, block: str, cfg: Any, start: Value, diag: Any, checks: Sequence[Check], **options: Any
) -> Checker:
    """Add and connect a `Checker` as submodule `check`; its conditions are evaluated only while it is busy.

    Parameters
    ----------
    cfg, diag
        Ports of the component whose module is `m`.
    options
        `spacing` and `late` of the Checker.
    """
    m.submodules.check = checker = Checker(block, checks, **options)
    wiring.connect(m, wiring.flipped(cfg), checker.cfg)
    wiring.connect(m, checker.diag, wiring.flipped(diag))
    m.d.comb += checker.start.eq(start)
    with m.If(checker.busy):
        m.d.comb += checker.failed.eq(Cat(Value.cast(check.when).bool() for check in checks))
    return checker
