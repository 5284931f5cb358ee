"""The part of a core that determines its cycles: everything that some output but the data depends on.

A core's registers are of two kinds. Those that steer (states, counters, addresses, valid and ready) determine
when something happens; the others hold data, which only end in the bytes that are written to memory. This
file leaves out the second kind: it keeps the bits of the netlist on which at least one of the core's outputs
other than `DATA_OUTPUTS` depends, in the same cycle or through registers and memories (the cone of
influence). No judgement about the design is needed, and what is left behaves exactly like the whole core,
because none of its inputs is missing. Where data do steer, as in compressed weights, they are in the cone.

The cone is computed bit by bit in Amaranth's netlist, between elaboration and RTLIL. Amaranth does not
guarantee the form of its netlist; an unknown cell is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.quick_rtlil import BITWISE

DATA_OUTPUTS = frozenset({"m_axi_wdata"})
"""Outputs of the core that the timing model does not have: the written data (their strobes are kept)."""

CELL_BITS = 16
"""A net is the number of its cell, and in this number of bits below it the number of the output's bit."""

_FROM_BELOW = ("+", "-", "*")


@dataclass(frozen=True)
class Reduced:
    """A netlist of Amaranth that was reduced by `Cone`.

    Members
    -------
    netlist : the netlist; None takes the place of a removed cell.
    data : numbers of the cells on which only the written data depend.
    """

    netlist: Any
    data: frozenset[int] = frozenset()


def timing_netlist(elaboratable: Any, name: str, *, data: bool = False) -> Reduced:
    """Return the netlist of a core's cone.

    Parameters
    ----------
    elaboratable : component with the ports of `rkcosim.rtl.core.NpuCore`.
    name : name of the top module.
    data : keep what only the written data depend on as well.

    Raises
    ------
    BuildError
        if the netlist has a cell that is not known here.
    """
    from amaranth.hdl import Fragment, _ir

    netlist: Any = _ir.build_netlist(Fragment.get(elaboratable, None), ports=_ports(elaboratable), name=name)
    cone = Cone(netlist)
    outputs = netlist.top.ports_o
    cone.start(net for port in outputs.keys() - DATA_OUTPUTS for net in outputs[port])
    control = cone.cells()
    if data:
        cone.start(net for port in outputs.keys() & DATA_OUTPUTS for net in outputs[port])
    cone.reduce()
    return Reduced(netlist, cone.cells() - control)


def _ports(elaboratable: Any) -> dict[str, Any]:
    from amaranth.hdl import Value, _ir
    from amaranth.lib import wiring

    directions = {wiring.In: _ir.PortDirection.Input, wiring.Out: _ir.PortDirection.Output}
    return {
        "__".join(map(str, path)): (Value.cast(value), directions[member.flow])
        for path, member, value in elaboratable.signature.flatten(elaboratable)
    }


class Cone:
    """The live bits of a netlist of Amaranth: those on which something wanted depends.

    Parameters
    ----------
    netlist : output of `amaranth.hdl._ir.build_netlist`; `reduce` changes it.
    """

    def __init__(self, netlist: Any) -> None:
        from amaranth.hdl import _nir

        self._nir: Any = _nir
        self._netlist = netlist
        self._live: dict[int, set[int]] = defaultdict(set)
        self._columns: dict[int, set[int]] = defaultdict(set)
        self._writers: dict[int, list[Any]] = defaultdict(list)
        self._waiting: list[int] = []
        for cell in netlist.cells:
            if isinstance(cell, _nir.SyncWritePort):
                self._writers[cell.memory].append(cell)

    def start(self, nets: Iterable[int]) -> None:
        """Add nets, and everything on which they depend."""
        for net in nets:
            self._want(net)
        while self._waiting:
            net = self._waiting.pop()
            number, bit = net >> CELL_BITS, net & ((1 << CELL_BITS) - 1)
            for needed in self._needs(self._netlist.cells[number], bit):
                self._want(needed)

    def cells(self) -> frozenset[int]:
        """Return the numbers of the cells with a live output."""
        return frozenset(number for number, bits in self._live.items() if bits)

    def _want(self, net: int) -> None:
        if net > 1:  # 0 and 1 are constants
            bits, bit = self._live[net >> CELL_BITS], net & ((1 << CELL_BITS) - 1)
            if bit not in bits:
                bits.add(bit)
                self._waiting.append(net)

    def _needs(self, cell: Any, bit: int) -> Iterator[int]:
        """Yield the nets on which an output bit of a cell depends."""
        nir = self._nir
        if isinstance(cell, nir.Top):
            return
        if isinstance(cell, nir.Operator):
            yield from self._operands(cell, bit)
        elif isinstance(cell, nir.Part):
            yield from cell.offset
            yield from cell.value[bit :: cell.stride or 1]
            yield from cell.value[-1:]
        elif isinstance(cell, nir.Matches):
            yield from cell.value
        elif isinstance(cell, nir.PriorityMatch):
            yield cell.en
            yield from cell.inputs[: bit + 1]
        elif isinstance(cell, nir.AssignmentList):
            yield cell.default[bit]
            for assign in cell.assignments:
                if assign.start <= bit < assign.start + len(assign.value):
                    yield assign.cond
                    yield assign.value[bit - assign.start]
        elif isinstance(cell, nir.FlipFlop):
            yield from (cell.data[bit], cell.clk, cell.arst)
        elif isinstance(cell, (nir.AsyncReadPort, nir.SyncReadPort)):
            yield from cell.addr
            if isinstance(cell, nir.SyncReadPort):
                yield from (cell.en, cell.clk)
            yield from self._column(cell.memory, bit)
        elif isinstance(cell, nir.Instance):
            for value in cell.ports_i.values():
                yield from value
        else:
            raise BuildError(f"the netlist has a {type(cell).__name__}, which the timing model does not know")

    def _operands(self, cell: Any, bit: int) -> Iterator[int]:
        kind, inputs = cell.operator, cell.inputs
        if kind == "m":
            yield from (inputs[0][0], inputs[1][bit], inputs[2][bit])
        elif kind in BITWISE:
            yield from (value[bit] for value in inputs)
        elif kind == "<<":
            yield from inputs[0][: bit + 1]
            yield from inputs[1]
        elif kind in _FROM_BELOW:
            for value in inputs:
                yield from value[: bit + 1]
        else:
            for value in inputs:
                yield from value

    def _column(self, memory: int, bit: int) -> Iterator[int]:
        if bit not in self._columns[memory]:
            self._columns[memory].add(bit)
            for port in self._writers[memory]:
                yield from port.addr
                yield from (port.data[bit], port.en[bit], port.clk)

    def reduce(self) -> None:
        """Remove everything that is not live from the netlist; None takes the place of a removed cell."""
        netlist, nir = self._netlist, self._nir
        for number, cell in enumerate(netlist.cells):
            if isinstance(cell, (nir.AsyncReadPort, nir.SyncReadPort)) and self._live.get(number):
                self._live[number] = set(self._columns[cell.memory])  # all ports of a memory are as wide
        places = {number: self._places(number) for number, bits in self._live.items() if bits}
        zero = nir.Net.from_const(0)
        known: dict[int, Any] = {0: zero, 1: nir.Net.from_const(1)}
        for number, kept in places.items():
            if number == 0:
                known.update({bit: nir.Net(bit) for bit in kept})
                continue
            for place, bit in enumerate(kept):
                known[number << CELL_BITS | bit] = nir.Net.from_cell(number, place)

        def value(nets: Iterable[int]) -> Any:
            return nir.Value(known.get(net, zero) for net in nets)

        for number, cell in enumerate(netlist.cells):
            if isinstance(cell, nir.Top):
                cell.ports_o = {name: value(nets) for name, nets in cell.ports_o.items()}
            elif number in places or self._kept_without_output(number, cell):
                self._narrow(number, cell, places.get(number, []), value)
            else:  # numbers of cells are parts of nets, so the list keeps its length
                netlist.cells[number] = None

    def _kept_without_output(self, number: int, cell: Any) -> bool:
        if isinstance(cell, self._nir.Memory):
            return bool(self._columns.get(number))
        if isinstance(cell, self._nir.SyncWritePort):
            return bool(self._columns.get(cell.memory))
        return False

    def _places(self, number: int) -> list[int]:
        """Return the output bits that a cell keeps, in order."""
        nir, cell, live = self._nir, self._netlist.cells[number], self._live[number]
        if isinstance(cell, (nir.Top, nir.Instance)):
            return sorted(live) if isinstance(cell, nir.Top) else list(range(len(cell.output_nets(number))))
        compact = isinstance(cell, (nir.AssignmentList, nir.FlipFlop, nir.AsyncReadPort, nir.SyncReadPort))
        if isinstance(cell, nir.Operator):
            compact = cell.operator in BITWISE
            if not compact and cell.operator in ("u//", "s//", "u%", "s%", "s>>", "u>>"):
                return list(range(cell.width))
        return sorted(live) if compact else list(range(max(live) + 1))

    def _narrow(self, number: int, cell: Any, kept: list[int], value: Any) -> None:
        """Keep only some output bits of a cell, and replace its inputs by their new nets."""
        nir = self._nir
        if isinstance(cell, nir.Operator):
            kind, inputs = cell.operator, cell.inputs
            if kind == "m":
                cell.inputs = (
                    value(inputs[0]),
                    value(inputs[1][bit] for bit in kept),
                    value(inputs[2][bit] for bit in kept),
                )
            elif kind in BITWISE or kind in _FROM_BELOW:
                cell.inputs = tuple(value(v[bit] for bit in kept) for v in inputs)
            elif kind == "<<":
                cell.inputs = (value(inputs[0][bit] for bit in kept), value(inputs[1]))
            else:
                cell.inputs = tuple(value(v) for v in inputs)
        elif isinstance(cell, nir.Part):
            cell.value, cell.offset, cell.width = value(cell.value), value(cell.offset), len(kept)
        elif isinstance(cell, nir.Matches):
            cell.value = value(cell.value)
        elif isinstance(cell, nir.PriorityMatch):
            cell.en = value([cell.en])[0]
            cell.inputs = value(cell.inputs[bit] for bit in kept)
        elif isinstance(cell, nir.AssignmentList):
            self._narrow_assignments(cell, kept, value)
        elif isinstance(cell, nir.FlipFlop):
            cell.init = _columns_of(cell.init, kept)
            cell.data = value(cell.data[bit] for bit in kept)
            cell.clk, cell.arst = value([cell.clk])[0], value([cell.arst])[0]
        elif isinstance(cell, (nir.AsyncReadPort, nir.SyncReadPort)):
            cell.width, cell.addr = len(kept), value(cell.addr)
            if isinstance(cell, nir.SyncReadPort):
                cell.en, cell.clk = value([cell.en])[0], value([cell.clk])[0]
        elif isinstance(cell, nir.Memory):
            columns = sorted(self._columns[number])
            cell.width = len(columns)
            cell.init = tuple(_columns_of(row, columns) for row in cell.init)
        elif isinstance(cell, nir.SyncWritePort):
            columns = sorted(self._columns[cell.memory])
            cell.data = value(cell.data[bit] for bit in columns)
            cell.en = value(cell.en[bit] for bit in columns)
            cell.addr, cell.clk = value(cell.addr), value([cell.clk])[0]
        elif isinstance(cell, nir.Instance):
            cell.ports_i = {name: value(nets) for name, nets in cell.ports_i.items()}

    def _narrow_assignments(self, cell: Any, kept: list[int], value: Any) -> None:
        place = {bit: number for number, bit in enumerate(kept)}
        assignments = []
        for assign in cell.assignments:
            bits = [b for b in range(assign.start, assign.start + len(assign.value)) if b in place]
            if bits:
                part = self._nir.Assignment(
                    cond=value([assign.cond])[0],
                    start=place[bits[0]],
                    value=value(assign.value[b - assign.start] for b in bits),
                    src_loc=assign.src_loc,
                )
                assignments.append(part)
        cell.assignments = tuple(assignments)
        cell.default = value(cell.default[bit] for bit in kept)


def _columns_of(word: int, columns: list[int]) -> int:
    return sum((word >> bit & 1) << place for place, bit in enumerate(columns))
