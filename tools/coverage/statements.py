"""Marks in RTLIL for the statements of the RTL's sources.

Amaranth writes the position of a cell, but not those of the assignments below `If`, `Switch` and `FSM`.
Within `marked_statements` every case of a process that makes assignments itself also sets a wire, whose name
leads to the positions of these assignments. The Verilog of `rkcosim.engines.verilog` keeps cases as branches,
so that each wire marks the branch that belongs to the positions.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from rkcosim.engines.verilog import relative_place

MARK = "COVERED"


class Marks:
    """The sets of positions that marks stand for, in the order of their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}

    def number(self, places: tuple[str, ...]) -> int:
        """Return the number of a set of positions, "file:line" each."""
        return self._numbers.setdefault(places, len(self._numbers))

    def places(self) -> list[tuple[str, ...]]:
        """Return the sets of positions by number."""
        return list(self._numbers)

    @staticmethod
    def declared(rtlil: str) -> str:
        """Return the RTLIL with the wires of the marks declared in each module."""
        modules = re.split(r"(?m)(?=^module )", rtlil)
        return "".join(modules[:1] + [_with_wires(text) for text in modules[1:]])


def _with_wires(module: str) -> str:
    names = dict.fromkeys(_USE.findall(module))
    head, _, body = module.partition("\n")
    return "\n".join([head, *(f"  wire width 1 \\{name}" for name in names), body])


_USE = re.compile(rf"(?m)^ *assign \\({MARK}_\d+_\d+) ")


class _Watched(tuple[Any, ...]):
    """The assignments of a cell; remembers the one that was asked for last."""

    last: Any = None

    def __getitem__(self, index: Any) -> Any:
        self.last = super().__getitem__(index)
        return self.last


class _Cell:
    """An assignment list whose assignments are watched, and the number of cases with a mark so far."""

    def __init__(self, cell: Any) -> None:
        self.default, self.src_loc = cell.default, cell.src_loc
        self.assignments = _Watched(cell.assignments)
        self.marked = 0


@contextlib.contextmanager
def marked_statements() -> Iterator[Marks]:
    """Within this context, Amaranth's RTLIL has marks; yields the positions that they stand for.

    The design must be elaborated in the context. This replaces names that Amaranth does not guarantee; a test
    notices when they change.
    """
    from amaranth.back import rtlil
    from amaranth.hdl._dsl import FSMNextStatement

    emitter: Any = rtlil.ModuleEmitter
    plain_emit, plain_case = emitter.emit_assignment_list, rtlil.Case
    cells: list[_Cell] = []
    marks = Marks()

    def emit_assignment_list(self: Any, index: Any, cell: Any) -> None:
        cells.append(_Cell(cell))
        plain_emit(self, index, cells[-1])
        cells.pop()

    class Case(plain_case):  # type: ignore[valid-type, misc]
        def __init__(self, patterns: Any) -> None:
            super().__init__(patterns)
            self.places: dict[str, None] = {}
            self.cell = cells[-1]

        def assign(self, lhs: Any, rhs: Any) -> None:
            place = self.cell.assignments.last.src_loc
            if place != self.cell.src_loc:  # the reset of a register has the position of its declaration
                self.places[f"{relative_place(place[0])}:{place[1]}"] = None
            super().assign(lhs, rhs)

        def emit(self, line: Any) -> None:
            if self.places:
                number = marks.number(tuple(self.places))
                super().assign(f"\\{MARK}_{number}_{self.cell.marked}", "1'1")
                self.cell.marked += 1
            super().emit(line)

    step: Any = FSMNextStatement
    plain_init, plain_resolve = step.__init__, step.resolve

    def init(self: Any, *rest: Any, **more: Any) -> None:
        plain_init(self, *rest, **more)
        self.place = _outside_of_amaranth()

    def resolve(self: Any) -> Any:  # the position would be one of Amaranth's own
        assignment = plain_resolve(self)
        assignment.src_loc = self.place
        return assignment

    emitter.emit_assignment_list, rtlil.Case = emit_assignment_list, Case
    step.__init__, step.resolve = init, resolve
    try:
        yield marks
    finally:
        emitter.emit_assignment_list, rtlil.Case = plain_emit, plain_case
        step.__init__, step.resolve = plain_init, plain_resolve


def _outside_of_amaranth() -> tuple[str, int]:
    """Return the position of the statement that called Amaranth."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__ or "amaranth" in frame.f_globals.get("__name__", "").split(".")
    ):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
