"""Expressions of the written Verilog.

Every expression has exactly the width that its place wants, whatever it stands in: operands are brought to
the width of their operator beforehand, and everything is unsigned but where `$signed` says otherwise.  That
is why one may stand in the place of a wire of its width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from cosim.export.rtlil import (
    Assign,
    Bits,
    Cell,
    Chunk,
    ExportError,
    Process,
    Ref,
    Statement,
    Switch,
    width_of,
)


@dataclass(frozen=True, eq=False, slots=True)
class Join:
    """A concatenation, highest part first; one part is that part alone."""

    bits: Bits
    repeat: int = 0
    """How often the highest bit stands before it once more (sign extension)."""

    @property
    def width(self) -> int:
        return width_of(self.bits) + self.repeat


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """An operator with its operands; `text` has a place for each."""

    text: str
    operands: tuple[Expr, ...]
    width: int
    closed: bool = False
    """Stands by itself everywhere, without parentheses."""


@dataclass(frozen=True, eq=False, slots=True)
class Choose:
    """`condition ? yes : no`."""

    condition: Expr
    yes: Expr
    no: Expr

    @property
    def width(self) -> int:
        return self.yes.width


Expr: TypeAlias = Join | Op | Choose


def constant(value: int, width: int) -> Join:
    """A constant."""
    return Join((f"{value:0{width}b}",))


def is_constant(expr: Expr) -> bool:
    """Whether all of it is constant."""
    return isinstance(expr, Join) and all(isinstance(chunk, str) for chunk in expr.bits)


def merged(bits: Bits) -> Bits:
    """With neighbouring constants as one."""
    if len(bits) < 2:
        return bits
    out: list[Chunk] = []
    for chunk in bits:
        if out and isinstance(chunk, str) and isinstance(last := out[-1], str):
            out[-1] = last + chunk
        else:
            out.append(chunk)
    return tuple(out)


def sliced(bits: Bits, low: int, width: int) -> Bits:
    """`width` bits from `low` up."""
    out: list[Chunk] = []
    at = width_of(bits)
    for chunk in bits:
        size = len(chunk) if isinstance(chunk, str) else chunk.width
        at -= size
        first, last = max(low, at) - at, min(low + width, at + size) - at  # within the chunk
        if first >= last:
            continue
        if isinstance(chunk, str):
            out.append(chunk[size - last : size - first])
        else:
            out.append(Ref(chunk.name, chunk.low + last - 1, chunk.low + first))
    return tuple(out)


def extended(bits: Bits, width: int, signed: bool) -> Join:
    """Brought to a width: zeros or the sign in front, or the high bits dropped."""
    have = width_of(bits)
    if have >= width:
        return Join(merged(bits if have == width else sliced(bits, 0, width)))
    if not signed or not have:
        return Join(merged(("0" * (width - have), *bits)))
    first = bits[0]
    if isinstance(first, str):
        return Join(merged((first[0] * (width - have), *bits)))
    return Join(merged(bits), width - have)


def inverted(expr: Expr) -> Expr:
    """The complement of one bit."""
    return Op("~{}", (expr,), 1)


def chosen(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`condition ? yes : no`, for a bit without the choice where one side is constant."""
    if yes.width == 1:
        digit = _digit(yes)
        if digit:  # c ? 1 : x is c | x, c ? 0 : x is ~c & x
            return joined("|", [condition, no]) if digit == "1" else joined("&", [inverted(condition), no])
        digit = _digit(no)
        if digit:  # c ? x : 0 is c & x, c ? x : 1 is ~c | x
            return joined("&", [condition, yes]) if digit == "0" else joined("|", [inverted(condition), yes])
    return Choose(condition, yes, no)


def joined(sign: str, parts: list[Expr]) -> Expr:
    """Bits joined by one operator, those that are joined by it already in line."""
    found: list[Expr] = []
    for part in parts:
        if isinstance(part, Op) and part.text == f" {sign} ".join(["{}"] * len(part.operands)):
            if part.width == 1 and len(part.operands) > 1:
                found += part.operands
                continue
        found.append(part)
    return found[0] if len(found) == 1 else Op(f" {sign} ".join(["{}"] * len(found)), tuple(found), 1)


def _digit(expr: Expr) -> str:
    """The digit of a constant bit, or ""."""
    first = expr.bits[0] if isinstance(expr, Join) and len(expr.bits) == 1 else None
    return first if isinstance(first, str) else ""


_BINARY = {"$and": "&", "$or": "|", "$xor": "^", "$add": "+", "$sub": "-", "$mul": "*"}
_COMPARE = {"$lt": "<", "$le": "<=", "$gt": ">", "$ge": ">="}
_REDUCE = {"$reduce_and": "&", "$reduce_or": "|", "$reduce_bool": "|", "$reduce_xor": "^"}
OPERATORS = {*_BINARY, *_COMPARE, *_REDUCE, "$eq", "$ne", "$not", "$neg", "$mux", "$shl", "$shr", "$sshr"}
OPERATORS |= {"$shift", "$divfloor", "$modfloor"}


def of_cell(cell: Cell) -> Expr:
    """What an operator computes.

    Raises
    ------
    ExportError
        for an operator, or a sort of it, that Amaranth is not known to write.
    """
    kind = cell.kind
    if kind == "$mux":
        width = cell.number("WIDTH")
        sides = [Join(merged(cell.ports[port])) for port in "BA"]
        return chosen(Join(cell.ports["S"]), *sides) if width else Join(())
    width = cell.number("Y_WIDTH")
    a = cell.ports["A"]
    a_signed = bool(cell.number("A_SIGNED"))
    if kind in _REDUCE:
        if width_of(a) <= 1:
            return extended(a, 1, False)
        return Op(f"({_REDUCE[kind]}{{}})", (Join(merged(a)),), 1, closed=True)
    if kind in ("$not", "$neg"):
        return Op("~{}" if kind == "$not" else "-{}", (extended(a, width, a_signed),), width)
    b = cell.ports["B"]
    b_signed = bool(cell.number("B_SIGNED"))
    if kind in _BINARY:
        operands = extended(a, width, a_signed), extended(b, width, b_signed)
        return Op(f"{{}} {_BINARY[kind]} {{}}", operands, width)
    common = max(width_of(a), width_of(b), 1)
    left, right = extended(a, common, a_signed), extended(b, common, b_signed)
    if kind in ("$eq", "$ne"):
        return equal(left, right) if kind == "$eq" else different(left, right)
    if kind in _COMPARE:
        text = f"{{}} {_COMPARE[kind]} {{}}"
        if a_signed:
            text = f"$signed({{}}) {_COMPARE[kind]} $signed({{}})"
        return Op(text, (left, right), 1)
    if kind in ("$divfloor", "$modfloor"):
        common = max(common, width)
        left, right = extended(a, common, a_signed), extended(b, common, a_signed)
        return _low(_floored(kind == "$divfloor", left, right, a_signed), width)
    if kind in ("$shl", "$shr", "$sshr", "$shift") and not b_signed and (kind, a_signed) != ("$shift", True):
        wide = max(width, width_of(a), 1)
        value, by = extended(a, wide, a_signed), Join(merged(b))
        if not width_of(b):
            return extended(a, width, a_signed)
        if kind == "$sshr" and a_signed:
            return _low(Op("$unsigned($signed({}) >>> {})", (value, by), wide, closed=True), width)
        return _low(Op("{} << {}" if kind == "$shl" else "{} >> {}", (value, by), wide), width)
    raise ExportError(f"cell {cell.name}: no Verilog for {kind} with these parameters: {cell.parameters}")


def _floored(quotient: bool, left: Expr, right: Expr, signed: bool) -> Expr:
    """Division that rounds down; Verilog's own rounds towards zero."""
    width = left.width
    sign = "/" if quotient else "%"
    if not signed:
        return Op(f"{{}} {sign} {{}}", (left, right), width)
    cut = Op(f"$unsigned($signed({{}}) {sign} $signed({{}}))", (left, right), width, closed=True)
    rest = Op("$unsigned($signed({}) % $signed({}))", (left, right), width, closed=True)
    zero = constant(0, width)
    signs = [Op("$signed({}) < $signed({})", (side, zero), 1) for side in (left, right)]
    lower = Op("{} & {}", (different(rest, zero), Op("{} ^ {}", tuple(signs), 1)), 1)
    by, text = (constant(1, width), "{} - {}") if quotient else (right, "{} + {}")
    return Op(text, (cut, Choose(lower, by, zero)), width)


def _low(expr: Expr, width: int) -> Expr:
    """The low bits, where an operator gives more: `Op` with a width above its own is cut by the writer."""
    return expr if expr.width == width else Op("cut", (expr,), width)


def equal(left: Expr, right: Expr) -> Expr:
    """`left == right` of one width, a single bit without `==`."""
    for one, other in ((left, right), (right, left)):
        if other.width == 1 and isinstance(other, Join) and isinstance(other.bits[0], str):
            return one if other.bits[0] == "1" else inverted(one)
    return Op("{} == {}", (left, right), 1)


def different(left: Expr, right: Expr) -> Expr:
    """`left != right` of one width."""
    for one, other in ((left, right), (right, left)):
        if isinstance(other, Join) and other.bits and isinstance(digits := other.bits[0], str):
            if other.width == 1:
                return one if digits == "0" else inverted(one)
    return Op("{} != {}", (left, right), 1)


def is_hold(process: Process, target: Ref, kept: Ref) -> bool:
    """Whether a process begins by giving `target` the value that `kept` has."""
    first = process.body[0] if process.body else None
    return isinstance(first, Assign) and first.target == target and first.value == (kept,)


def fits(value: Bits, pattern: str) -> Expr:
    """Whether a pattern fits, without wildcards."""
    care = [n for n, digit in enumerate(reversed(pattern)) if digit != "-"]
    if not care:
        return constant(1, 1)
    digits = "".join(digit for digit in pattern if digit != "-")
    taken: Bits = value
    if len(care) < len(pattern):
        taken = tuple(chunk for n in reversed(care) for chunk in sliced(value, n, 1))
    joined: list[Chunk] = []
    for chunk in taken:  # single bits in line become one slice again
        last = joined[-1] if joined else None
        if isinstance(chunk, Ref) and isinstance(last, Ref):
            if last.name == chunk.name and last.low == chunk.high + 1:
                joined[-1] = Ref(last.name, last.high, chunk.low)
                continue
        joined.append(chunk)
    return equal(Join(merged(tuple(joined))), Join((digits,)))


def any_of(parts: list[Expr]) -> Expr:
    """Whether one of these bits is set."""
    return joined("|", parts)


def is_exclusive(switch: Switch) -> bool:
    """Whether no value fits two cases."""
    patterns = [pattern for patterns, _ in switch.cases for pattern in patterns]
    return not any("-" in pattern for pattern in patterns) and len(set(patterns)) == len(patterns)


def is_complete(switch: Switch) -> bool:
    """Whether the cases without a default cover every value (of exclusive ones)."""
    patterns = [pattern for patterns, _ in switch.cases for pattern in patterns]
    return is_exclusive(switch) and len(patterns) == 1 << width_of(switch.value)


def targets(body: list[Statement]) -> Iterator[Ref]:
    """Whatever is assigned anywhere."""
    for statement in body:
        if isinstance(statement, Assign):
            yield statement.target
        else:
            for _, inner in statement.cases:
                yield from targets(inner)


def process_segments(process: Process) -> Iterator[tuple[Ref, Expr]]:
    """A combinational process as expressions: parts of its target, each with its value."""
    found = list(targets(process.body))
    name = found[0].name
    if any(target.name != name for target in found):
        raise ExportError(f"a process assigns {name} and {sorted({t.name for t in found} - {name})}")
    borders = sorted({border for target in found for border in (target.low, target.high + 1)})
    for low, end in pairwise(borders):
        segment = Ref(name, end - 1, low)
        value = _value(process.body, segment, None)
        if value is None:
            raise ExportError(f"{name}: bits {end - 1}..{low} have no value to start with")
        yield segment, value


def _value(body: list[Statement], segment: Ref, current: Expr | None) -> Expr | None:
    for statement in body:
        if isinstance(statement, Assign):
            target = statement.target
            if target.low <= segment.low and segment.high <= target.high:
                part = sliced(statement.value, segment.low - target.low, segment.width)
                current = Join(merged(part))
        elif any(_touches(inner, segment) for _, inner in statement.cases):
            current = _switch_value(statement, segment, current)
    return current


def _touches(body: list[Statement], segment: Ref) -> bool:
    return any(target.low <= segment.low and segment.high <= target.high for target in targets(body))


def _switch_value(switch: Switch, segment: Ref, current: Expr | None) -> Expr | None:
    if not width_of(switch.value):  # a mere bracket around assignments
        return _value(switch.cases[0][1], segment, current)
    arms: list[tuple[list[Expr], Expr | None]] = []
    otherwise = current
    for patterns, body in switch.cases:
        value = _value(body, segment, current)
        if not patterns:
            otherwise = value
            break
        arms.append(([fits(switch.value, pattern) for pattern in patterns], value))
    else:
        if is_complete(switch):
            otherwise = arms.pop()[1]
    if is_exclusive(switch):  # any order will do: drop and join what gives the same
        kept: list[tuple[list[Expr], Expr | None]] = []
        for conditions, value in arms:
            if _same(value, otherwise):
                continue
            for others, known in kept:
                if _same(value, known):
                    others += conditions
                    break
            else:
                kept.append((conditions, value))
        arms = kept
    while arms and _same(arms[-1][1], otherwise):
        arms.pop()
    result = otherwise
    for conditions, value in reversed(arms):
        if value is None or result is None:
            raise ExportError(f"{segment.name}: a value only under a condition")
        result = chosen(any_of(conditions), value, result)
    return result


def _same(one: Expr | None, other: Expr | None) -> bool:
    if one is other:
        return True
    return isinstance(one, Join) and isinstance(other, Join) and one.bits == other.bits
