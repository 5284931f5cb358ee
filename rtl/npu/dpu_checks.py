"""Diagnostics of a task's settings, raised one a cycle after its start (DESIGN 4.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Signal, Value

from rtl.layouts import DiagnosticCode
from rtl.regfile import unpack_fields
from rtl.regs import registers


@dataclass(frozen=True)
class Check:
    """A setting that the hardware cannot honour: `when` holds, told as `code` of `register`."""

    register: str
    when: Value
    code: DiagnosticCode = DiagnosticCode.RESERVED_MODE


def emit_checks(
    m: Module,
    block: str,
    cfg: object,
    start: Value,
    diag: object,
    checks: Sequence[Check],
    late: Check | None = None,
) -> None:
    """Walk through `checks` from the cycle after `start` on and pulse `diag` for each that holds.

    Parameters
    ----------
    block : str
        Name of the block in the register description.
    cfg : interface of `config_signature(block)`
    diag : interface of DiagnosticPort
        The value told is the register's whole word.
    late : Check or None
        Of a task that runs: told after a pulse of `when`.
    """
    table = registers()[block]

    def tell(check: Check) -> list[Any]:
        register = table[check.register]
        return [
            payload.code.eq(check.code),
            payload.register.eq(register.offset),
            payload.value.eq(unpack_fields(register, getattr(cfg, check.register))),
        ]

    walking = Signal()
    place = Signal(range(len(checks)))
    valid = Signal()
    payload = Signal.like(diag.payload, reset_less=True)
    m.d.comb += [diag.valid.eq(valid), diag.payload.eq(payload)]
    m.d.sync += valid.eq(0)
    with m.If(start):
        m.d.sync += [walking.eq(1), place.eq(0)]
    with m.Elif(walking):
        m.d.sync += place.eq(place + 1)
        with m.Switch(place):
            for index, check in enumerate(checks):
                with m.Case(index):
                    m.d.sync += [valid.eq(check.when), *tell(check)]
                    if index == len(checks) - 1:
                        m.d.sync += walking.eq(0)
    if late is not None:
        waiting = Signal()
        with m.If(waiting & ~start & ~walking):
            m.d.sync += [valid.eq(1), waiting.eq(0), *tell(late)]
        with m.If(late.when):
            m.d.sync += waiting.eq(1)
