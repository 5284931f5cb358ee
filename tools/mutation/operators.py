"""Mutants of Python sources: each has one small change of meaning, made by operators on the syntax tree.

The RTL and the golden model are both Python, so one set of operators serves both.  Nothing is changed
in docstrings, messages, names, annotations, imports, assertions, raised errors and calls of checks that
only raise; `rules` lists the functions that are excluded too, with the reasons.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.mutation.rules import Rules, rules_of

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
SWAPPED_CALLS = {"Mux": (1, 2), "where": (1, 2), "Cat": (0, 1)}
"""Calls of which two arguments are swapped: a choice, an order."""

ROUNDINGS = {
    "shift_even": "rkcosim.golden.task.arith.shift_up",
    "shift_up": "rkcosim.golden.task.arith.shift_even",
    "shift_away": "rkcosim.golden.task.arith.shift_up",
    "rint": "floor",
    "floor": "ceil",
    "ceil": "floor",
}
"""Calls that round, and functions that round differently with the same arguments."""

BOUNDS = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
"""Calls that limit a value, and functions that limit it in the other direction."""

SATURATIONS = {"saturate": 1, "clamp": 2, "clip": 2}
"""Calls that saturate, and the argument with the upper bound (or the width), which is decreased by one."""

SKIPPED_CALLS = set(
    "Signal Memory Out In signed unsigned range Check require super Signature StructLayout ArrayLayout "
    "isinstance tell print diagnose _diagnose error GoldenError GoldenHang Finding Traffic".split()
)
"""Calls whose arguments are shapes, checks or texts for people: changing them does not change arithmetic."""

UNSUITED_CALLS = {"Case", "Const", "eq", "len", "zip", "enumerate", "getattr", "wire", "setattr"}
"""Calls whose arguments must not be replaced by a value of the design."""


@dataclass(frozen=True)
class Site:
    """A place in an RTL source that `choose` can guard: character offsets, and the replacement."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {_short(self.before)} -> {_short(self.after)}"


@dataclass(frozen=True)
class Mutant:
    """One changed source: place (1-based line), kind of change, the expression before and after.

    `scope` is the first line of the function around it as in its code object (0: none, or a function whose
    calls are cached).
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str
    scope: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.before} -> {self.after}"


def mutants(path: str, source: str) -> list[Mutant]:
    """Return every mutant of a source, in the order of the text.

    Parameters
    ----------
    path
        Path for messages and for the rules of exclusion.
    source
        Text of the module; it must parse.
    """
    tree = ast.parse(source)
    scopes, lines = _scopes(tree), source.splitlines()
    found = []
    for node in _expressions(tree, rules_of(path)):
        for kind, changed in _changes(node):
            mutated = _replaced(source, node, ast.unparse(changed))
            try:
                ast.parse(mutated)
            except SyntaxError:
                continue
            before, after = _short(ast.unparse(node)), _short(ast.unparse(changed))
            if isinstance(node, ast.Constant):
                after += f" in {lines[node.lineno - 1].strip()}"
            scope = scopes.get(id(node), 0)
            found.append(Mutant(path, node.lineno, kind, before, after, mutated, scope))
    return sorted(found, key=lambda mutant: mutant.line)


def sites(path: str, source: str) -> list[Site]:
    """Return the places of an RTL source where a value of the design can be exchanged at run time.

    A constant is changed together with the expression around it, because only that has a value.
    """
    tree = ast.parse(source)
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text.encode()))
    raw = source.encode()
    found = []

    def add(node: ast.expr, kind: str, changed: ast.expr) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        found.append(Site(path, node.lineno, kind, start, end, raw[start:end].decode(), ast.unparse(changed)))

    for node in _design_expressions(tree, rules_of(path)):
        for kind, changed in _changes(node):
            if not isinstance(node, ast.Constant):
                add(node, kind, changed)
        if isinstance(node, ast.BinOp | ast.Compare | ast.Subscript):
            kind = "lane or index" if isinstance(node, ast.Subscript) else "constant"
            for changed in _constants_within(node):
                add(node, kind, changed)
        if isinstance(node, ast.Call) and _called(node) == "round_shift":
            value, shift = ast.unparse(node.args[0]), ast.unparse(node.args[1])
            add(node, "rounding", ast.parse(f"({value}) >> ({shift}).count", mode="eval").body)
    return sorted(found, key=lambda site: site.start)


def _constants_within(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expression with one of its own constants, or a bound of its slice, changed by one.

    An upper bound is decreased: an additional bit would be removed again, because `choose` keeps the shape.
    """

    for number in range(len(_own_constants(node))):
        copy = ast.parse(ast.unparse(node), mode="eval").body
        constant, more = _own_constants(copy)[number]
        constant.value += more
        yield copy


def _own_constants(node: ast.expr) -> list[tuple[Any, int]]:
    """Return integer constants directly in an expression or its slice, with the number to be added."""
    owners: list[ast.AST] = [node]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        owners.append(node.slice)
    return [
        (part, -1 if part is getattr(owner, "upper", None) else 1)
        for owner in owners
        for part in ast.iter_child_nodes(owner)
        if isinstance(part, ast.Constant) and type(part.value) is int
    ]


def _design_expressions(node: ast.AST, leave: Rules) -> Iterator[ast.expr]:
    """Like `_expressions`, without targets of assignments and values needed before elaboration."""
    for child in _expressions(node, leave):
        if not hasattr(child, "unsuited"):
            if isinstance(child, ast.Call):
                func = child.func
                if isinstance(func, ast.Attribute) and func.attr == "eq":
                    _mark(func.value)
                if _called(child) in UNSUITED_CALLS - {"eq"}:
                    for arg in child.args:
                        _mark(arg)
            if isinstance(child, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
                for generator in child.generators:
                    _mark(generator.iter)
        if not hasattr(child, "unsuited") and not isinstance(getattr(child, "ctx", None), ast.Store):
            yield child


def _mark(node: ast.AST, name: str = "unsuited") -> None:
    for part in ast.walk(node):
        setattr(part, name, True)


def guarded(source: str, chosen: list[tuple[int, Site]]) -> str:
    """Return a source in which each numbered site gets its value from `rkcosim.rtl.mutant.choose`."""
    raw = source.encode()
    for number, site in sorted(chosen, key=lambda item: -item[1].start):
        call = "__import__('rkcosim.rtl.mutant').rtl.mutant.choose"
        text = f"{call}({number}, lambda: ({site.before}), lambda: ({site.after}))"
        raw = raw[: site.start] + text.encode() + raw[site.end :]
    return raw.decode()


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:67] + "..."


def _scopes(tree: ast.Module) -> dict[int, int]:
    """Return the first line of the innermost function around each node, by the node's id."""
    found: dict[int, int] = {}

    def visit(node: ast.AST, scope: int) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.FunctionDef):
                names = {ast.unparse(decorator).split("(")[0] for decorator in child.decorator_list}
                inner = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                if names - {"property", "staticmethod", "classmethod"}:
                    inner = 0
            found[id(child)] = inner
            visit(child, inner)

    visit(tree, 0)
    return found


def _expressions(node: ast.AST, leave: Rules) -> Iterator[ast.expr]:
    """Yield the expressions that may be changed, except those in texts, checks and annotations."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr)):
                continue
            if isinstance(child, ast.FunctionDef) and (
                child.name in leave.functions or _only_declares(child)
            ):
                continue
            if isinstance(child, ast.Assign | ast.AugAssign | ast.AnnAssign):
                if target(child) in leave.names:
                    continue
            if isinstance(child, ast.Call) and _called(child) == "eq":
                assert isinstance(child.func, ast.Attribute)
                if ast.unparse(child.func.value).rpartition(".")[2] in leave.names:
                    continue
            if isinstance(child, ast.If) and all(isinstance(part, ast.Raise) for part in child.body):
                yield from (e for part in child.orelse for e in _expressions(part, leave))
                continue  # a check of arguments
            if isinstance(child, ast.AnnAssign) and child.value is None:
                continue
            if isinstance(child, ast.expr) and ast.unparse(child) in leave.expressions:
                continue
            if isinstance(child, ast.BinOp) and isinstance(child.op, ast.BitAnd):
                if isinstance(child.right, ast.Constant) and child.right.value == 0:
                    continue  # zeros with the width of the left operand
            if isinstance(child, ast.Call) and _called(child) == "reshape":
                # Any negative size is replaced by the one that follows from the others.
                for arg in child.args:
                    if ast.unparse(arg) == "-1":
                        _mark(arg, "kept")
            if isinstance(child, ast.keyword) and child.arg in (
                "default",  # the result for an empty argument
                "axis",  # a wrong one fails at once, and the last of two axes has two valid names
                "name",
                "init",
                "reset_less",
                "depth",
                "shape",
            ):
                continue
            if isinstance(child, ast.Call) and _called(child) in SKIPPED_CALLS:
                continue
            if isinstance(child, ast.Call) and _called(child) in ("Mux", "where") and _is_limit(child):
                # The condition as a whole is kept; its parts may be changed.
                child.args[0].kept = True  # type: ignore[attr-defined]  # our own mark, as in `_mark`
            if isinstance(child, ast.expr) and not hasattr(child, "kept"):
                yield child
            yield from _expressions(child, leave)


def _is_limit(node: ast.Call) -> bool:
    """Whether a choice selects the smaller or the greater of the two values that it compares."""
    if len(node.args) != 3 or not isinstance(node.args[0], ast.Compare):
        return False
    compared = [node.args[0].left, *node.args[0].comparators]
    return sorted(map(ast.unparse, compared)) == sorted(map(ast.unparse, node.args[1:]))


def target(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> str:
    """Return the last name of an assignment's target."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return ast.unparse(target).rpartition(".")[2]


def _only_declares(function: ast.FunctionDef) -> bool:
    """Whether a constructor only declares members, without driving the design (`m.d`)."""
    if function.name != "__init__":
        return False
    return not any(isinstance(part, ast.Attribute) and part.attr == "d" for part in ast.walk(function))


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _renamed(node: ast.Call, name: str) -> ast.Call:
    """Return the call with another function: a method of the same object, a built-in, or with its module."""
    func: ast.expr = ast.Name(name, ast.Load())
    if "." in name:
        module, _, name = name.rpartition(".")
        func = ast.parse(f"__import__({module!r}, fromlist=['']).{name}", mode="eval").body
    elif isinstance(node.func, ast.Attribute):
        func = ast.Attribute(node.func.value, name, ast.Load())
    return ast.Call(func, node.args, node.keywords)


def _changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield "comparison", ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str):
            yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        kind = "sign" if isinstance(node.op, ast.USub) else "negation"
        yield kind, node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and not any(isinstance(arg, ast.Starred) for arg in node.args):
        yield from _call_changes(node)


def _call_changes(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = _called(node)
    if name in SWAPPED_CALLS and not node.keywords:
        first, second = SWAPPED_CALLS[name]
        if len(node.args) > second:
            args = list(node.args)
            args[first], args[second] = args[second], args[first]
            yield "order", ast.Call(node.func, args, [])
    if name in ROUNDINGS:
        yield "rounding", _renamed(node, ROUNDINGS[name])
    if name in BOUNDS:
        yield "bound", _renamed(node, BOUNDS[name])
    if name in SATURATIONS and len(node.args) > SATURATIONS[name]:
        args = list(node.args)
        args[SATURATIONS[name]] = ast.BinOp(args[SATURATIONS[name]], ast.Sub(), ast.Constant(1))
        yield "saturation", ast.Call(node.func, args, node.keywords)


def _replaced(source: str, node: ast.expr, text: str) -> str:
    """Return the source with the text of an expression replaced, in parentheses."""
    lines = source.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    bracketed = text if isinstance(node, ast.Constant | ast.Call) else f"({text})"
    return "".join(lines[:first]) + head + bracketed + tail + "".join(lines[last + 1 :])
