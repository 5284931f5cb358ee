"""What a module of RTLIL consists of for Verilog: assignments, registers, memories, instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from cosim.export import expressions as ex
from cosim.export.expressions import Expr, Join, Op
from cosim.export.names import is_anonymous, is_field
from cosim.export.rtlil import (
    Assign,
    Bits,
    Cell,
    ExportError,
    Module,
    Process,
    Ref,
    Statement,
    Switch,
    Wire,
    width_of,
)


@dataclass
class Do:
    """`target <= value`, in a clocked block."""

    target: Ref
    value: Expr


@dataclass
class Branch:
    """`if` with its `else if`s, or a `case` of `value`; conditions or patterns with their bodies."""

    value: Expr | None
    arms: list[tuple[list[Expr] | list[str], list[Do | Branch]]]
    otherwise: list[Do | Branch]


Action: TypeAlias = Do | Branch


@dataclass
class Register:
    target: Ref
    body: list[Do | Branch]
    clock: Expr
    src: str


@dataclass
class Memory:
    """A memory with its ports: writes are (enables of lanes, address, data), reads (port, target)."""

    name: str
    width: int
    depth: int
    init: str = ""
    clock: Expr | None = None
    writes: list[tuple[Bits, Expr, Bits]] = field(default_factory=list)
    reads: list[tuple[Expr, Expr, Ref, list[int]]] = field(default_factory=list)
    plain: list[tuple[Expr, Ref]] = field(default_factory=list)


class Lowered:
    """A module taken apart.

    Members
    -------
    defined : expressions of wires without a name in the source, which may stand where the wire is read.
    assigns : (part of a wire, its value, place in the source)
    registers, memories, instances : as they are written
    is_register : wires that are set in a clocked block.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.defined: dict[str, tuple[Expr, str]] = {}
        self.assigns: list[tuple[Ref, Expr, str]] = []
        self.registers: list[Register] = []
        self.memories: dict[str, Memory] = {}
        self.instances: list[Cell] = []
        self.is_register: set[str] = set()
        self._temporaries = 0
        self._reader_counts = self._count_readers()
        self._lower()

    def full(self, name: str) -> Ref:
        return Ref(name, self.module.wires[name].width - 1, 0)

    def temporary(self, width: int) -> Ref:
        self._temporaries += 1
        name = f"$temporary{self._temporaries}"
        self.module.wires[name] = Wire(name, width)
        return Ref(name, width - 1, 0)

    def _lower(self) -> None:
        module = self.module
        processes = self._fold_processes()
        for name, (width, depth) in module.memories.items():
            self.memories[name] = Memory(name, width, depth)
        for cell in module.cells:
            if cell.kind == "$dff":
                self._lower_register(cell, processes)
            elif cell.kind in ex.OPERATORS:
                self._define(cell.ports["Y"], self._uncut(ex.of_cell(cell)), cell.src)
            elif cell.kind.startswith("$mem"):
                self._lower_memory(cell)
            elif cell.kind[0] == "\\":
                self.instances.append(cell)
            else:
                raise ExportError(f"module {module.name}: no Verilog for {cell.kind}")
        for process in processes.values():
            for target, expr in ex.process_segments(process):
                whole = target == self.full(target.name)
                if whole and is_anonymous(target.name):
                    self.defined[target.name] = (expr, process.src)
                else:
                    self.assigns.append((target, expr, process.src))
        for name, value in module.connects:
            wire = module.wires[name]
            if not wire.width or (wire.direction is None and is_field(name)):
                continue
            self.assigns.append((self.full(name), Join(ex.merged(value)), wire.src))

    def _define(self, target: Bits, value: Expr, src: str) -> None:
        if not target:
            return
        (ref,) = target
        assert isinstance(ref, Ref)
        if is_anonymous(ref.name):
            self.defined[ref.name] = (value, src)
        else:
            self.assigns.append((ref, value, src))

    def _uncut(self, value: Expr) -> Expr:
        """With the wider value of a cut expression on a wire of its own."""
        if not isinstance(value, Op) or value.text != "cut":
            return value
        (inner,) = value.operands
        wide = self.temporary(inner.width)
        self.defined[wide.name] = (inner, "")
        return Join((Ref(wide.name, value.width - 1, 0),))

    def _fold_processes(self) -> dict[str, Process]:
        """Processes by the wire that they assign."""
        found = {}
        for process in self.module.processes:
            target = next(iter(ex.targets(process.body)), None)
            if target is not None:
                found[target.name] = process
        return found

    def _lower_register(self, cell: Cell, processes: dict[str, Process]) -> None:
        (target,) = cell.ports["Q"]
        assert isinstance(target, Ref)
        if not cell.number("CLK_POLARITY"):
            raise ExportError(f"module {self.module.name}: a register at the falling edge")
        clock = Join(cell.ports["CLK"])
        data = cell.ports["D"]
        body: list[Do | Branch] = [Do(target, Join(ex.merged(data)))]
        source = data[0]
        if len(data) == 1 and isinstance(source, Ref) and is_anonymous(source.name):
            process = processes.get(source.name)
            if (
                process is not None
                and source == self.full(source.name)
                and self._reader_counts.get(source.name) == 1
            ):
                del processes[source.name]
                statements = process.body
                if ex.is_hold(process, source, target):
                    statements = statements[1:]
                body = self._statements(statements, source.name, target)
        self.registers.append(Register(target, body, clock, cell.src))
        self.is_register.add(target.name)

    def _count_readers(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for cell in self.module.cells:
            for port, bits in cell.ports.items():
                if port not in ("Q", "Y"):
                    _tally(bits, counts)
        for process in self.module.processes:
            _tally_body(process.body, counts)
        for _, bits in self.module.connects:
            _tally(bits, counts)
        return counts

    def _statements(self, body: list[Statement], name: str, target: Ref) -> list[Do | Branch]:
        """Statements that assign the wire `name`, turned into ones that set the register."""
        out: list[Do | Branch] = []
        for statement in body:
            if isinstance(statement, Assign):
                part = Ref(target.name, target.low + statement.target.high, target.low + statement.target.low)
                out.append(Do(part, Join(ex.merged(statement.value))))
                continue
            if not width_of(statement.value):
                out += self._statements(statement.cases[0][1], name, target)
                continue
            branch = self._branch(statement, name, target)
            if any(inner for _, inner in branch.arms) or branch.otherwise:
                out.append(branch)
        return out

    def _branch(self, switch: Switch, name: str, target: Ref) -> Branch:
        arms: list[tuple[list[str], list[Do | Branch]]] = []
        otherwise: list[Do | Branch] = []
        for patterns, inner in switch.cases:
            lowered = self._statements(inner, name, target)
            if not patterns:
                otherwise = lowered
                break
            arms.append((patterns, lowered))
        exclusive = ex.is_exclusive(switch)
        if exclusive and not otherwise:
            arms = [arm for arm in arms if arm[1]]
        while arms and not arms[-1][1] and not otherwise:
            arms.pop()
        several = exclusive and width_of(switch.value) > 1
        if several and len(arms) > 1:
            return Branch(Join(ex.merged(switch.value)), list(arms), otherwise)
        if len(arms) > 1 and not otherwise and ex.is_complete(switch) and len(arms) == len(switch.cases):
            otherwise = arms.pop()[1]
        conditions: list[tuple[list[Expr] | list[str], list[Do | Branch]]] = [
            ([ex.any_of([ex.fits(switch.value, pattern) for pattern in patterns])], inner)
            for patterns, inner in arms
        ]
        if len(conditions) == 1 and not conditions[0][1] and otherwise:
            (condition,) = conditions[0][0]
            assert not isinstance(condition, str)
            return Branch(None, [([ex.inverted(condition)], otherwise)], [])
        return Branch(None, conditions, otherwise)

    def _lower_memory(self, cell: Cell) -> None:
        memory = self.memories[cell.parameters["MEMID"]]
        if cell.kind == "$meminit_v2":
            memory.init = "".join(chunk for chunk in cell.ports["DATA"] if isinstance(chunk, str))
            return
        address = Join(ex.merged(cell.ports["ADDR"]))
        if int(cell.parameters["CLK_ENABLE"]):
            memory.clock = Join(cell.ports["CLK"])
        if cell.kind == "$memwr_v2":
            memory.writes.append((cell.ports["EN"], address, cell.ports["DATA"]))
            return
        (target,) = cell.ports["DATA"]
        assert isinstance(target, Ref)
        if int(cell.parameters["CLK_ENABLE"]):
            mask = cell.parameters["TRANSPARENCY_MASK"].split("'")[1][::-1]
            through = [n for n, digit in enumerate(mask) if digit == "1"]
            memory.reads.append((Join(cell.ports["EN"]), address, target, through))
            self.is_register.add(target.name)
        else:
            memory.plain.append((address, target))


def _tally(bits: Bits, counts: dict[str, int]) -> None:
    for chunk in bits:
        if isinstance(chunk, Ref):
            counts[chunk.name] = counts.get(chunk.name, 0) + 1


def _tally_body(body: list[Statement], counts: dict[str, int]) -> None:
    for statement in body:
        if isinstance(statement, Assign):
            _tally(statement.value, counts)
        else:
            _tally(statement.value, counts)
            for _, inner in statement.cases:
                _tally_body(inner, counts)


def lanes(enables: Bits) -> list[tuple[Join, int, int]]:
    """Lanes of a write enable with a bit for each bit: (enable, lowest bit, width)."""
    bits = [bit for chunk in reversed(enables) for bit in reversed(_single(chunk))]
    lanes: list[tuple[Join, int, int]] = []
    low = 0
    for n in range(1, len(bits) + 1):
        if n == len(bits) or bits[n] != bits[low]:
            lanes.append((Join((bits[low],)), low, n - low))
            low = n
    return lanes


def _single(chunk: Ref | str) -> list[Ref | str]:
    """The bits of a chunk, highest first."""
    if isinstance(chunk, str):
        return list(chunk)
    return [Ref(chunk.name, n, n) for n in range(chunk.high, chunk.low - 1, -1)]
