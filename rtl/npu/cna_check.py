"""Looks a task's register values over once and reports what silicon would not take well."""

from dataclasses import dataclass

from amaranth.hdl import Module, Signal, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import Diagnostic, DiagnosticCode, DiagnosticPort
from rtl.regfile import unpack_fields
from rtl.regs import Register

SPACING = 8
"""Cycles from one report to the next, so that the joining ports of a core lose none."""


@dataclass(frozen=True)
class Check:
    """Report `code` with `register` and its value when `wrong` is set."""

    wrong: ValueLike
    code: DiagnosticCode
    register: Register


class Checker(wiring.Component):
    """Walk through a list of checks after `start`, at most one report every `SPACING` cycles.

    The checks read the configuration, which must be stable until `busy` falls.

    Parameters
    ----------
    cfg
        the configuration port whose members the checks name.
    checks
        what to look at, in the order of the reports.

    Members
    -------
    start : In(1)             : pulse.
    busy : Out(1)             : from the cycle after `start` until the last check is done.
    diag : Out(DiagnosticPort()).
    """

    start: In(1)
    busy: Out(1)
    diag: Out(DiagnosticPort())

    def __init__(self, cfg, checks: list[Check]) -> None:
        super().__init__()
        self._cfg = cfg
        self._checks = checks

    def elaborate(self, platform) -> Module:
        m = Module()
        index = Signal(range(len(self._checks) + 1), reset_less=True)
        pause = Signal(range(SPACING))
        wrong = Signal()
        payload = Signal(Diagnostic)
        with m.If(self.busy):
            with m.Switch(index):
                for n, check in enumerate(self._checks):
                    with m.Case(n):
                        view = getattr(self._cfg, check.register.name)
                        m.d.comb += [
                            wrong.eq(check.wrong),
                            payload.code.eq(check.code),
                            payload.register.eq(check.register.offset),
                            payload.value.eq(unpack_fields(check.register, view)),
                        ]
            with m.If(pause != 0):
                m.d.sync += pause.eq(pause - 1)
            with m.Else():
                m.d.sync += index.eq(index + 1)
                m.d.comb += [self.diag.valid.eq(wrong), self.diag.payload.eq(payload)]
                with m.If(wrong):
                    m.d.sync += pause.eq(SPACING - 1)
                with m.If(index == len(self._checks) - 1):
                    m.d.sync += self.busy.eq(0)
        with m.Elif(self.start):
            m.d.sync += [self.busy.eq(1), index.eq(0), pause.eq(0)]
        return m
