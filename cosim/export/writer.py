"""Modules as Verilog that people can read and every tool takes.

Combinational logic becomes continuous assignments, which every simulator evaluates at the start (an
`always @*` that depends on registers alone is not evaluated by Icarus before one of them changes); registers
become `always @(posedge clk)` with the conditions of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import amaranth

import rtl
from cosim.export.expressions import Choose, Expr, Join, Op, sliced
from cosim.export.lower import Action, Branch, Do, Lowered, Memory, Register, lanes
from cosim.export.names import identifier, is_anonymous, module_names
from cosim.export.rtlil import Bits, Cell, ExportError, Module, Ref, Wire, width_of

_INLINE = 70
"""Longest text of an expression that stands in another one."""
_LINE = 100
_ROOTS = tuple(f"{Path(next(iter(package.__path__))).parent}/" for package in (rtl, amaranth))
"""Where the packages lie from which designs come."""


def _constant(digits: str) -> str:
    if len(digits) == 1:
        return f"1'b{digits}"
    value = int(digits.replace("x", "0") or "0", 2)
    return f"{len(digits)}'h{value:0{(len(digits) + 3) // 4}x}"


def _place(src: str) -> str:
    """A place in the source relative to the folder of its package."""
    for root in _ROOTS:
        if src.startswith(root):
            return src.removeprefix(root)
    return src.rsplit("/", 1)[-1]


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def _wrapped(items: Iterable[str], indent: str) -> Iterator[str]:
    """Items with commas between them, in lines."""
    line = ""
    for item in items:
        if line and len(line) + len(item) + 2 > _LINE:
            yield f"{indent}{line},"
            line = ""
        line += f", {item}" if line else item
    yield f"{indent}{line}"


@dataclass(frozen=True)
class Child:
    """A module as its parent needs it: its name, its ports (RTLIL to Verilog) and which are outputs."""

    name: str
    ports: dict[str, str]
    outputs: frozenset[str]


class ModuleWriter:
    """One module as Verilog text.

    Parameters
    ----------
    module : the module.
    children : the modules of the instances by their kind; others are outside of what is written.
    order : names of the ports in the order wanted (top module), or None.
    sources : whether to say where in the source things come from.
    """

    def __init__(
        self,
        module: Module,
        children: dict[str, Child],
        *,
        order: list[str] | None = None,
        sources: bool = False,
    ) -> None:
        self.module = module
        self._children = children
        self._sources = sources
        own = identifier(module.name[1:].rsplit(".", 1)[-1])
        self._names, self._given = module_names(module, {own, "unused"})
        ports = [wire for wire in module.wires.values() if wire.direction and wire.width]
        if order is not None:
            place = {name: n for n, name in enumerate(order)}
            ports.sort(key=lambda wire: place[wire.name[1:]])
        self._ports = ports
        self.port_names = {wire.name[1:]: self._given[wire.name] for wire in ports}
        self._parts = Lowered(module)
        self._read: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        self._sliced: set[str] = set()
        self._nodes: set[int] = set()
        self._shared: dict[int, Ref] = {}
        self._values: dict[str, tuple[Expr, str]] = dict(self._parts.defined)
        self._named: list[str] = []
        self._temporary: set[str] = set()
        self._assignments: list[str] = []
        self._count()

    # How often each wire and each expression is needed

    def _count(self) -> None:
        parts = self._parts
        pending: list[str] = []
        for _, value, _ in parts.assigns:
            self._see(value, pending)
        for register in parts.registers:
            self._see(register.clock, pending)
            self._see_actions(register.body, pending)
        for memory in parts.memories.values():
            for value in _memory_inputs(memory):
                self._see(value, pending)
        for cell in parts.instances:
            outputs = self._outputs(cell)
            for port, bits in cell.ports.items():
                if port not in outputs:
                    self._see(Join(bits), pending)
        while pending:
            found = parts.defined.get(pending.pop())
            if found is not None:
                self._see(found[0], pending)

    def _see(self, expr: Expr, pending: list[str]) -> None:
        stack: list[Expr] = [expr]
        while stack:
            node = stack.pop()
            if isinstance(node, Join):
                for n, chunk in enumerate(node.bits):
                    if not isinstance(chunk, Ref):
                        continue
                    name = chunk.name
                    mask = ((1 << chunk.width) - 1) << chunk.low
                    if name not in self._read:
                        pending.append(name)
                    self._read[name] = self._read.get(name, 0) | mask
                    self._uses[name] = self._uses.get(name, 0) + 1
                    if chunk != self._parts.full(name) or (node.repeat and n == 0):
                        self._sliced.add(name)
                continue
            if id(node) in self._nodes:
                if id(node) not in self._shared:
                    ref = self._shared[id(node)] = self._parts.temporary(node.width)
                    self._values[ref.name] = node, ""
                    self._read[ref.name] = (1 << ref.width) - 1
                continue
            self._nodes.add(id(node))
            stack += node.operands if isinstance(node, Op) else (node.condition, node.yes, node.no)

    def _see_actions(self, body: list[Action], pending: list[str]) -> None:
        for action in body:
            if isinstance(action, Do):
                self._see(action.value, pending)
                continue
            if action.value is not None:
                self._see(action.value, pending)
            for tests, inner in action.arms:
                for test in tests:
                    if not isinstance(test, str):
                        self._see(test, pending)
                self._see_actions(inner, pending)
            self._see_actions(action.otherwise, pending)

    def _outputs(self, cell: Cell) -> frozenset[str]:
        """Ports of an instance that drive something."""
        child = self._children.get(cell.kind)
        if child is not None:
            return child.outputs
        driven = {name for name in self._driven()}
        return frozenset(
            port
            for port, bits in cell.ports.items()
            if len(bits) == 1 and isinstance(ref := bits[0], Ref) and ref.name not in driven
        )

    def _driven(self) -> Iterator[str]:
        parts = self._parts
        yield from parts.defined
        yield from parts.is_register
        yield from (target.name for target, _, _ in parts.assigns)
        yield from (wire.name for wire in self._ports if wire.direction == "input")
        for memory in parts.memories.values():
            yield from (target.name for _, target in memory.plain)
        for cell in parts.instances:
            for port in self._children[cell.kind].outputs if cell.kind in self._children else ():
                yield from (chunk.name for chunk in cell.ports[port] if isinstance(chunk, Ref))

    # Text of expressions

    def _name(self, name: str) -> str:
        found = self._given.get(name)
        if found is None:
            found = self._given[name] = self._names.numbered("n")
            self._named.append(name)
        return found

    def _slice(self, ref: Ref) -> str:
        width = self.module.wires[ref.name].width
        name = self._name(ref.name)
        if ref.width == width:
            return name
        return f"{name}[{ref.high}]" if ref.width == 1 else f"{name}[{ref.high}:{ref.low}]"

    def _chunk(self, chunk: Ref | str) -> tuple[str, bool]:
        """Text, and whether it needs no parentheses."""
        if isinstance(chunk, str):
            return _constant(chunk), True
        name = chunk.name
        if name in self._parts.defined and name not in self._given:
            if self._uses.get(name) == 1 and name not in self._sliced:
                text, closed = self._text(self._parts.defined[name][0])
                if len(text) <= _INLINE and "\n" not in text:
                    return text, closed
        return self._slice(chunk), True

    def _text(self, expr: Expr) -> tuple[str, bool]:
        shared = self._shared.get(id(expr))
        if shared is not None:
            return self._name(shared.name), True
        return self._own_text(expr)

    def _own_text(self, expr: Expr) -> tuple[str, bool]:
        if isinstance(expr, Join):
            if len(expr.bits) == 1 and not expr.repeat:
                return self._chunk(expr.bits[0])
            if not expr.bits:
                raise ExportError(f"module {self.module.name}: an expression without bits")
            parts = [self._chunk(chunk)[0] for chunk in expr.bits]
            if expr.repeat:
                first = expr.bits[0]
                assert isinstance(first, Ref)
                sign = self._slice(Ref(first.name, first.high, first.high))
                parts.insert(0, f"{{{expr.repeat}{{{sign}}}}}")
            return "{" + _broken(parts) + "}", True
        if isinstance(expr, Op):
            operands = [self._closed(operand) for operand in expr.operands]
            text = expr.text.format(*operands)
            if len(text) > _LINE and len(operands) > 2:
                sign = expr.text[2:5]
                text = f"{sign.rstrip()}\n  ".join(["\n  " + operands[0], *operands[1:]])
            return text, expr.closed
        return self._choice(expr), False

    def _closed(self, expr: Expr) -> str:
        text, closed = self._text(expr)
        return text if closed else f"({text})"

    def _choice(self, expr: Choose) -> str:
        arms: list[tuple[str, str]] = []
        node: Expr = expr
        while isinstance(node, Choose) and (node is expr or id(node) not in self._shared):
            arms.append((self._closed(node.condition), self._closed(node.yes)))
            node = node.no
        last = self._closed(node)
        if len(arms) == 1 and len(text := f"{arms[0][0]} ? {arms[0][1]} : {last}") <= _INLINE:
            return text
        lines = [f"{condition} ? {value} :" for condition, value in arms]
        return "\n".join(["", *(_indented(line) for line in (*lines, last))])

    # The module

    def text(self, name: str) -> str:
        """The module under a name."""
        for target, value, src in self._parts.assigns:
            if target.name in self._read or not is_anonymous(target.name):
                self._assign(target, value, src)
        clocked = [self._settled(self._register(register)) for register in self._parts.registers]
        clocked += [self._settled(self._memory(memory)) for memory in self._parts.memories.values()]
        instances = [self._settled(self._instance(cell)) for cell in self._parts.instances]
        lines = [f"module {name} ("]
        for n, wire in enumerate(self._ports):
            sort = "reg " if wire.name in self._parts.is_register else "wire"
            comma = "," if n + 1 < len(self._ports) else ""
            lines.append(f"  {wire.direction:6} {sort} {_range(wire.width)}{self._given[wire.name]}{comma}")
        lines += [");", *self._declarations(), *self._starts(), "", *self._assignments]
        for block in (*clocked, *instances):
            lines += ["", *(f"  {line}" for line in block)]
        return "\n".join([*lines, *self._unused(), "endmodule", ""])

    def _assign(self, target: Ref, value: Expr, src: str) -> None:
        mark = len(self._named)
        text, _ = self._own_text(value)
        self._settle(mark)
        if target.name in self._temporary:
            place = f"wire {_range(target.width)}{self._slice(target)}"
        else:
            place = f"assign {self._slice(target)}"
        lines = f"{place} = {text};{self._source(src)}".split("\n")
        self._assignments += [f"  {line}".rstrip() for line in lines]

    def _settle(self, mark: int) -> None:
        """Give those wires without a name of their own that were named since a value."""
        fresh = self._named[mark:]
        del self._named[mark:]
        for name in fresh:
            found = self._values.get(name)
            if found is not None:
                self._temporary.add(name)
                self._assign(self._parts.full(name), *found)

    def _settled(self, lines: Iterator[str]) -> list[str]:
        done = list(lines)
        self._settle(0)
        return done

    def _source(self, src: str) -> str:
        return f"  // {_place(src)}" if src and self._sources else ""

    def _declared(self) -> Iterator[Wire]:
        """Wires and registers in the order of the source, ports among them."""
        for name in self._given:
            wire = self.module.wires.get(name)
            if wire is not None and wire.width:
                yield wire

    def _declarations(self) -> Iterator[str]:
        for wire in self._declared():
            if wire.direction is None and wire.name not in self._temporary:
                sort = "reg " if wire.name in self._parts.is_register else "wire"
                yield f"  {sort} {_range(wire.width)}{self._given[wire.name]};{self._source(wire.src)}"
        for memory in self._parts.memories.values():
            yield f"  reg  {_range(memory.width)}{self._given[memory.name]} [0:{memory.depth - 1}];"

    def _starts(self) -> Iterator[str]:
        """What registers and memories hold at the start."""
        starts = []
        for wire in self._declared():
            if wire.name in self._parts.is_register:
                starts.append(f"{self._given[wire.name]} = {_constant(wire.init or '0' * wire.width)};")
        memories = list(self._parts.memories.values())
        index = self._names.new("i") if memories else ""
        for memory in memories:
            name, width = self._given[memory.name], memory.width
            loop = f"for ({index} = 0; {index} < {memory.depth}; {index} = {index} + 1)"
            starts.append(f"{loop} {name}[{index}] = {_constant('0' * width)};")
            for row in range(len(memory.init) // width):
                end = len(memory.init) - row * width
                if "1" in (word := memory.init[end - width : end]):
                    starts.append(f"{name}[{row}] = {_constant(word)};")
        if memories:
            yield f"  integer {index};"
        if starts:
            yield "  initial begin"
            yield from (f"    {line}" for line in starts)
            yield "  end"

    def _register(self, register: Register) -> Iterator[str]:
        clock = self._text(register.clock)[0]
        yield f"always @(posedge {clock}) begin{self._source(register.src)}"
        yield from self._actions(register.body)
        yield "end"

    def _actions(self, body: list[Action]) -> Iterator[str]:
        for action in body:
            if isinstance(action, Do):
                lines = f"{self._slice(action.target)} <= {self._text(action.value)[0]};".split("\n")
                yield from (f"  {line}" for line in lines)
            else:
                yield from (f"  {line}" for line in self._branch(action))

    def _branch(self, branch: Branch) -> Iterator[str]:
        if branch.value is not None:
            yield f"case ({self._text(branch.value)[0]})"
            for tests, inner in branch.arms:
                yield f"  {', '.join(_constant(test) for test in tests if isinstance(test, str))}: begin"
                yield from (f"  {line}" for line in self._actions(inner))
                yield "  end"
            if branch.otherwise:
                yield "  default: begin"
                yield from (f"  {line}" for line in self._actions(branch.otherwise))
                yield "  end"
            else:
                yield "  default: ;"
            yield "endcase"
            return
        word = "if"
        for tests, inner in branch.arms:
            (test,) = tests
            assert not isinstance(test, str)
            lines = f"{word} ({self._text(test)[0]}) begin".split("\n")
            yield from lines
            yield from self._actions(inner)
            word = "end else if"
        if branch.otherwise:
            yield "end else begin"
            yield from self._actions(branch.otherwise)
        yield "end"

    def _memory(self, memory: Memory) -> Iterator[str]:
        name = self._given[memory.name]
        for place, target in memory.plain:
            yield f"assign {self._slice(target)} = {name}[{self._text(place)[0]}];"
        if memory.clock is None:
            return
        yield f"always @(posedge {self._text(memory.clock)[0]}) begin"
        for enables, address, value in memory.writes:
            for lane, low, width in lanes(enables):
                where = f"{name}[{self._text(address)[0]}]"
                if width < memory.width:
                    where += f"[{low + width - 1}:{low}]" if width > 1 else f"[{low}]"
                text = self._text(Join(sliced(value, low, width)))[0]
                yield f"  if ({self._text(lane)[0]}) {where} <= {text};"
        for enable, address, target, through in memory.reads:
            yield f"  if ({self._text(enable)[0]}) begin"
            yield f"    {self._slice(target)} <= {name}[{self._text(address)[0]}];"
            for number in through:
                yield from self._passed_on(memory.writes[number], self._closed(address), target)
            yield "  end"
        yield "end"

    def _passed_on(self, write: tuple[Bits, Expr, Bits], address: str, target: Ref) -> Iterator[str]:
        """What is written in this cycle, for a read port that shall see it."""
        enables, place, value = write
        for lane, low, width in lanes(enables):
            part = self._slice(Ref(target.name, target.low + low + width - 1, target.low + low))
            test = f"{self._closed(lane)} & ({self._closed(place)} == {address})"
            yield f"    if ({test}) {part} <= {self._text(Join(sliced(value, low, width)))[0]};"

    def _instance(self, cell: Cell) -> Iterator[str]:
        child = self._children.get(cell.kind)
        kind = child.name if child else identifier(cell.kind)
        ports = child.ports if child else {port: port for port in cell.ports}
        if cell.parameters:
            raise ExportError(f"module {self.module.name}: {cell.name} has parameters")
        yield f"{kind} {self._names.new(identifier(cell.name))} ("
        shown = [port for port in cell.ports if width_of(cell.ports[port])]
        for n, port in enumerate(shown):
            lines = f".{ports[port]}({self._text(Join(cell.ports[port]))[0]})".split("\n")
            lines[-1] += "," if n + 1 < len(shown) else ""
            yield from (f"  {line}" for line in lines)
        yield ");"

    def _unused(self) -> Iterator[str]:
        """Name the bits that nobody reads, the way Verilator understands as intended."""
        items = []
        for wire in self._declared():
            read = self._read.get(wire.name, 0)
            if wire.direction == "output" or read == (1 << wire.width) - 1:
                continue
            low = 0
            while low < wire.width:
                high = low
                if read >> low & 1:
                    low += 1
                    continue
                while high + 1 < wire.width and not read >> (high + 1) & 1:
                    high += 1
                items.append(self._slice(Ref(wire.name, high, low)))
                low = high + 1
        if items:
            yield "`ifdef VERILATOR"
            yield "  wire unused = &{1'b0,"
            yield from _wrapped(items, "    ")
            yield "  };"
            yield "`endif"


def _memory_inputs(memory: Memory) -> Iterator[Expr]:
    if memory.clock is not None:
        yield memory.clock
    for enables, address, value in memory.writes:
        yield from (Join(enables), address, Join(value))
    for enable, address, _, _ in memory.reads:
        yield from (enable, address)
    yield from (address for address, _ in memory.plain)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _broken(parts: list[str]) -> str:
    """Parts of a concatenation, in lines if they are long."""
    if sum(len(part) + 2 for part in parts) <= _LINE and not any("\n" in part for part in parts):
        return ", ".join(parts)
    return "\n" + "\n".join(_wrapped(parts, "  ")) + "\n"
