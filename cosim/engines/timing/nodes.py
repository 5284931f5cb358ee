"""A netlist as variables of at most 64 bits and nodes that compute them.

Registers, multiplexers and other cells that treat each bit by itself are divided where some other cell uses a
part of their output, so that a field of a structure becomes a variable of its own: it changes less often than
the whole, and no node depends on its own output through another field.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.quick_rtlil import BITWISE
from rkcosim.engines.timing.cone import CELL_BITS, Reduced

WORD = 64
"""Largest number of bits of a variable."""

SMALL = 32
"""Number of bits below which a part of data is not divided from its neighbour."""

CELL = "npu_array_cell"
"""Module of the array cell, which is C++ (cosim/engines/harness/cell)."""


@dataclass
class Variable:
    """A value of 1 to 64 bits.

    Members
    -------
    number : place in `Program.variables`.
    width : number of bits.
    module : path of the module that computes it.
    state : True for registers and inputs, which keep their value while nothing is evaluated.
    init : first value of a register.
    data : only the written data depend on it.
    """

    number: int
    width: int
    module: str
    state: bool = False
    init: int = 0
    data: bool = False


@dataclass(frozen=True)
class BitRun:
    """Bits of a variable, or of a constant if there is no variable.

    Members
    -------
    low : number of the lowest bit; the value of a constant.
    repeated : bit `low` as often as `width` says, as in the extension of a sign.
    """

    variable: Variable | None
    low: int
    width: int
    repeated: bool = False


AT_EDGE = ("register", "registered read", "write", "cell")
"""Kinds of nodes whose result is taken by a clock edge."""

Term = tuple[BitRun, ...]
"""A value as runs, the lowest bits first."""


@dataclass
class LogicNode:
    """A part of the logic that is evaluated as a whole, or what a clock edge changes.

    Members
    -------
    kind : operator of Amaranth's netlist, or "part", "matches", "first", "assign", "read", or one of
        `AT_EDGE`.
    out : what it computes; for a register the register itself, None for a write to a memory.
    terms : its operands (`rkcosim.engines.timing.cpp` says which for each kind).
    module : path of the module.
    extra : what else the kind needs.
    """

    kind: str
    out: Variable | None
    terms: list[Term]
    module: str
    extra: Any = None


@dataclass
class Rows:
    """A memory: its number, width in bits, depth, and first contents."""

    number: int
    width: int
    depth: int
    init: tuple[int, ...]

    @property
    def words(self) -> int:
        """Number of 64-bit words of a row."""
        return (self.width + WORD - 1) // WORD


@dataclass
class Program:
    """A netlist as variables, nodes and memories.

    Members
    -------
    inputs : variables of each input of the top module, the lowest bits first.
    outputs : value of each output of the top module.
    """

    variables: list[Variable] = field(default_factory=list)
    nodes: list[LogicNode] = field(default_factory=list)
    memories: list[Rows] = field(default_factory=list)
    inputs: dict[str, list[Variable]] = field(default_factory=dict)
    outputs: dict[str, list[Term]] = field(default_factory=dict)


def program_of(reduced: Reduced) -> Program:
    """Return the program of a reduced netlist.

    Raises
    ------
    BuildError
        for a cell that the timing model does not know.
    """
    return _Reader(reduced).program


class _Reader:
    def __init__(self, reduced: Reduced) -> None:
        from amaranth.hdl import _nir

        self._nir: Any = _nir
        netlist = reduced.netlist
        self._netlist, self._data = netlist, reduced.data
        self.program = Program()
        self._at: dict[int, tuple[Variable, int]] = {}
        self._pieces: dict[int, list[tuple[int, int, Variable]]] = {}
        self._memories: dict[int, Rows] = {}
        self._make_variables(self._cuts())
        for number, cell in enumerate(netlist.cells):
            self._add(number, cell)
        top = netlist.top
        for name, value in top.ports_o.items():
            self.program.outputs[name] = self._words(value)

    # variables

    def _splits(self, cell: Any) -> bool:
        nir = self._nir
        if isinstance(cell, nir.Operator):
            return cell.operator in BITWISE or self._is_wide_shift(cell)
        if isinstance(cell, nir.Part):
            return cell.width > WORD
        kinds = (nir.AssignmentList, nir.FlipFlop, nir.AsyncReadPort, nir.SyncReadPort, nir.Top)
        return isinstance(cell, (*kinds, nir.Instance))

    @staticmethod
    def _is_wide_shift(cell: Any) -> bool:
        return cell.operator == "u>>" and len(cell.inputs[0]) > WORD

    def _values(self, cell: Any) -> Iterator[Any]:
        """Yield all values that a cell uses."""
        nir = self._nir
        if isinstance(cell, nir.Operator):
            yield from cell.inputs
        elif isinstance(cell, nir.Part):
            yield from (cell.value, cell.offset)
        elif isinstance(cell, nir.Matches):
            yield cell.value
        elif isinstance(cell, nir.PriorityMatch):
            yield from ([cell.en], cell.inputs)
        elif isinstance(cell, nir.AssignmentList):
            yield cell.default
            for assign in cell.assignments:
                yield from ([assign.cond], assign.value)
        elif isinstance(cell, nir.FlipFlop):
            yield cell.data
        elif isinstance(cell, nir.AsyncReadPort):
            yield cell.addr
        elif isinstance(cell, nir.SyncReadPort):
            yield from (cell.addr, [cell.en])
        elif isinstance(cell, nir.SyncWritePort):
            yield from (cell.data, cell.addr, cell.en)
        elif isinstance(cell, nir.Top):
            yield from cell.ports_o.values()
        elif isinstance(cell, nir.Instance):
            yield from cell.ports_i.values()

    def _cuts(self) -> dict[int, set[int]]:
        """Return, for each cell, the bits of its output in front of which it is divided."""
        cuts: dict[int, set[int]] = defaultdict(set)
        for start, _width in self._netlist.top.ports_i.values():
            cuts[0].add(start)
        for cell in self._netlist.cells:
            for value in self._values(cell):
                last = -2
                for net in value:
                    if net not in (last, last + 1):  # a repeated bit, as that of a sign, divides nothing
                        if net > 1:
                            cuts[net >> CELL_BITS].add(net & 0xFFFF)
                        if last > 1:
                            cuts[last >> CELL_BITS].add((last & 0xFFFF) + 1)
                    last = net
                if last > 1:
                    cuts[last >> CELL_BITS].add((last & 0xFFFF) + 1)
        for number, cell in enumerate(self._netlist.cells):
            if isinstance(cell, self._nir.Instance):
                cuts[number] |= {start for start, _ in cell.ports_o.values()}
            if isinstance(cell, self._nir.AssignmentList):  # parts that are assigned by themselves
                for assign in cell.assignments:
                    cuts[number] |= {assign.start, assign.start + len(assign.value)}
        return cuts

    def _make_variables(self, cuts: dict[int, set[int]]) -> None:
        for number, cell in enumerate(self._netlist.cells):
            width = self._width(number, cell)
            if not width:
                continue
            low = 2 if number == 0 else 0
            top = width + low
            places = {low, top}
            if self._splits(cell):
                places |= {bit for bit in cuts.get(number, ()) if low < bit < top}
                if number in self._data:
                    places = self._merged(sorted(places))
            elif width > WORD and not isinstance(cell, self._nir.PriorityMatch):
                raise BuildError(f"the netlist has a {type(cell).__name__} of {width} bits")
            ends = sorted(places)
            pieces = []
            for begin, end in pairwise(ends):
                for first in range(begin, end, WORD):
                    pieces.append((first, min(first + WORD, end)))
            kinds = (self._nir.FlipFlop, self._nir.SyncReadPort, self._nir.Instance)
            state = number == 0 or isinstance(cell, kinds)
            module = ".".join(self._netlist.modules[cell.module_idx].name)
            made = []
            for first, end in pieces:
                init = 0
                if isinstance(cell, self._nir.FlipFlop):
                    init = cell.init >> first & ((1 << end - first) - 1)
                place, data = len(self.program.variables), number in self._data
                variable = Variable(place, end - first, module, state, init, data)
                self.program.variables.append(variable)
                made.append((first, end, variable))
                for bit in range(first, end):
                    self._at[number << CELL_BITS | bit] = variable, bit - first
            self._pieces[number] = made
        for name, (start, width) in self._netlist.top.ports_i.items():
            found = [v for first, _, v in self._pieces.get(0, []) if start <= first < start + width]
            self.program.inputs[name] = found

    def _merged(self, places: list[int]) -> set[int]:
        """Return where a cell of data is divided: not for small parts, and if it is a variable not at all."""
        kept = places[:1]
        for before, place, after in zip(places, places[1:], places[2:], strict=False):
            if min(place - before, after - place) >= SMALL or after - kept[-1] > WORD:
                kept.append(place)
        return {*kept, places[-1]} if places[-1] - places[0] > WORD else {places[0], places[-1]}

    def _width(self, number: int, cell: Any) -> int:
        nir = self._nir
        if isinstance(cell, nir.Top):
            return max((start + width for start, width in cell.ports_i.values()), default=2) - 2
        if cell is None or isinstance(cell, (nir.Memory, nir.SyncWritePort)):
            return 0
        return len(cell.output_nets(number))

    # values

    def _term(self, nets: Iterable[int]) -> Term:
        runs: list[BitRun] = []
        for net in nets:
            if net <= 1:
                last = runs[-1] if runs else None
                if last is not None and last.variable is None:
                    runs[-1] = BitRun(None, last.low | net << last.width, last.width + 1)
                else:
                    runs.append(BitRun(None, int(net), 1))
                continue
            variable, bit = self._at[net]
            last = runs[-1] if runs else None
            if last is None or last.variable is not variable:
                runs.append(BitRun(variable, bit, 1))
            elif last.repeated or last.low + last.width != bit:
                if last.low == bit and (last.repeated or last.width == 1):
                    runs[-1] = BitRun(variable, bit, last.width + 1, True)
                elif not last.repeated and last.low + last.width - 1 == bit:
                    runs.append(BitRun(variable, bit, 1, True))
                else:
                    runs.append(BitRun(variable, bit, 1))
            else:
                runs[-1] = BitRun(variable, last.low, last.width + 1)
        return tuple(runs)

    def _words(self, nets: Any) -> list[Term]:
        nets = list(nets)
        return [self._term(nets[at : at + WORD]) for at in range(0, len(nets), WORD)]

    # nodes

    def _add(self, number: int, cell: Any) -> None:
        nir = self._nir
        if cell is None or isinstance(cell, nir.Top):
            return
        module = ".".join(self._netlist.modules[cell.module_idx].name)
        if isinstance(cell, nir.Memory):
            self._memory(number, cell)
            return
        if isinstance(cell, nir.SyncWritePort):
            self._write(cell, module)
            return
        if isinstance(cell, nir.Instance):
            self._instance(number, cell, module)
            return
        for first, end, out in self._pieces.get(number, []):
            self.program.nodes.append(self._node(cell, first, end, out, module))

    def _node(self, cell: Any, first: int, end: int, out: Variable, module: str) -> LogicNode:
        nir = self._nir
        if isinstance(cell, nir.Operator):
            return self._operator(cell, first, end, out, module)
        if isinstance(cell, nir.Part):
            extra = (cell.stride, cell.value_signed, len(cell.value), first)
            return LogicNode("part", out, [self._term(cell.offset), *self._words(cell.value)], module, extra)
        if isinstance(cell, nir.Matches):
            return LogicNode("matches", out, self._words(cell.value), module, cell.patterns)
        if isinstance(cell, nir.PriorityMatch):
            if len(cell.inputs) > WORD:
                raise BuildError(f"the netlist has a decision between {len(cell.inputs)} cases")
            return LogicNode("first", out, [self._term([cell.en]), self._term(cell.inputs)], module)
        if isinstance(cell, nir.AssignmentList):
            terms, places = [self._term(cell.default[first:end])], []
            for assign in cell.assignments:
                low, high = max(first, assign.start), min(end, assign.start + len(assign.value))
                if low < high:
                    terms.append(self._term([assign.cond]))
                    terms.append(self._term(assign.value[low - assign.start : high - assign.start]))
                    places.append((low - first, high - low))
            return LogicNode("assign", out, terms, module, places)
        if isinstance(cell, nir.FlipFlop):
            if cell.arst != 0 or cell.clk_edge != "pos":
                raise BuildError("the timing model has no asynchronous resets and no falling edges")
            return LogicNode("register", out, [self._term(cell.data[first:end])], module)
        if isinstance(cell, nir.AsyncReadPort):
            return LogicNode(
                "read", out, [self._term(cell.addr)], module, (self._memories[cell.memory], first)
            )
        if isinstance(cell, nir.SyncReadPort):
            return self._read(cell, first, end, out, module)
        raise BuildError(f"the netlist has a {type(cell).__name__}, which the timing model does not know")

    def _operator(self, cell: Any, first: int, end: int, out: Variable, module: str) -> LogicNode:
        kind, inputs = cell.operator, cell.inputs
        if self._is_wide_shift(cell):
            extra = (1, False, len(inputs[0]), first)
            return LogicNode("part", out, [self._term(inputs[1]), *self._words(inputs[0])], module, extra)
        if kind == "m":
            terms = [
                self._term(inputs[0]),
                self._term(inputs[1][first:end]),
                self._term(inputs[2][first:end]),
            ]
        elif kind in BITWISE:
            terms = [self._term(value[first:end]) for value in inputs]
        else:
            if any(len(value) > WORD for value in inputs):
                raise BuildError(f"the netlist has an operator {kind} of {max(map(len, inputs))} bits")
            terms = [self._term(value) for value in inputs]
        return LogicNode(kind, out, terms, module, tuple(len(value) for value in inputs))

    def _instance(self, number: int, cell: Any, module: str) -> None:
        """Add the array cell: its operands by port, and its outputs, which are registers."""
        if cell.type != CELL:
            raise BuildError(
                f"the netlist has an instance of {cell.type}, which the timing model does not know"
            )
        terms: list[Term] = []
        ports: dict[str, tuple[int, int]] = {}
        for name, value in cell.ports_i.items():
            words = self._words(value)
            ports[name] = (len(terms), len(words))
            terms += words
        outputs = {
            name: [
                (first - start, out)
                for first, _, out in self._pieces[number]
                if start <= first < start + width
            ]
            for name, (start, width) in cell.ports_o.items()
        }
        self.program.nodes.append(LogicNode("cell", None, terms, module, (ports, outputs)))

    def _memory(self, number: int, cell: Any) -> None:
        rows = Rows(len(self.program.memories), cell.width, cell.depth, cell.init)
        self.program.memories.append(rows)
        self._memories[number] = rows

    def _write(self, cell: Any, module: str) -> None:
        terms = [self._term(cell.addr), *self._words(cell.en), *self._words(cell.data)]
        extra = (self._memories[cell.memory], len(set(cell.en)) == 1)
        self.program.nodes.append(LogicNode("write", None, terms, module, extra))

    def _read(self, cell: Any, first: int, end: int, out: Variable, module: str) -> LogicNode:
        """Return a read port with a register behind it.

        The terms are the enable and the address, then enable, address and data of each transparent write.
        """
        terms = [self._term([cell.en]), self._term(cell.addr)]
        for port in cell.transparent_for:
            write = self._netlist.cells[port]
            if len(set(write.en)) != 1:
                raise BuildError("the netlist has a transparent read of a memory with byte enables")
            terms += [self._term(write.en[:1]), self._term(write.addr), self._term(write.data[first:end])]
        return LogicNode("registered read", out, terms, module, (self._memories[cell.memory], first))
