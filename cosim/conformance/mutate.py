"""Mutants of Python sources: one small change of meaning at a time, by operators on the syntax tree.

The RTL and the golden model are both Python, so one set of operators serves both.  Nothing is changed
in docstrings, messages, names, annotations, imports, assertions or raised errors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

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
SWAPPED_CALLS = {"Mux": (1, 2), "where": (1, 2), "Cat": (0, 1), "clip": (1, 2), "clamp": (1, 2)}
"""Calls of which two arguments change places: a choice, an order, a pair of bounds."""

SKIPPED_CALLS = {
    "Signal",
    "Memory",
    "Out",
    "In",
    "signed",
    "unsigned",
    "range",
    "Check",
    "require",
    "super",
    "Signature",
    "StructLayout",
    "ArrayLayout",
    "isinstance",
    "print",
}
"""Calls whose arguments are shapes, checks or texts: a change there is no change of arithmetic."""


UNSUITED_CALLS = {"Case", "Const", "eq", "len", "zip", "enumerate", "getattr", "wire", "setattr"}
"""Calls whose arguments must stay what they are when a value of the design would take their place."""


@dataclass(frozen=True)
class Site:
    """A place in an RTL source that `choose` can guard: character offsets, and what to put there."""

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
    """One changed source: place (1-based line), kind of change, the expression before and after."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.before} -> {self.after}"


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a source, in the order of the text.

    Parameters
    ----------
    path
        for messages.
    source
        text of the module; must parse.
    """
    tree = ast.parse(source)
    found = []
    for node in _expressions(tree):
        for kind, changed in _changes(node):
            mutated = _replaced(source, node, ast.unparse(changed))
            try:
                ast.parse(mutated)
            except SyntaxError:
                continue
            found.append(
                Mutant(
                    path, node.lineno, kind, _short(ast.unparse(node)), _short(ast.unparse(changed)), mutated
                )
            )
    return sorted(found, key=lambda mutant: mutant.line)


def sites(path: str, source: str) -> list[Site]:
    """Places of an RTL source where a value of the design can be exchanged while it runs.

    A constant is changed together with the expression around it, which is what has a value.
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

    for node in _design_expressions(tree):
        for kind, changed in _changes(node):
            if not isinstance(node, ast.Constant):
                add(node, kind, changed)
        if isinstance(node, ast.BinOp | ast.Compare | ast.Subscript):
            for field, child in ast.iter_fields(node):
                for place, part in enumerate(child) if isinstance(child, list) else [(None, child)]:
                    if isinstance(part, ast.Constant) and type(part.value) is int:
                        copy = ast.parse(ast.unparse(node), mode="eval").body
                        if place is None:
                            setattr(copy, field, ast.Constant(part.value + 1))
                        else:
                            getattr(copy, field)[place] = ast.Constant(part.value + 1)
                        add(node, "constant", copy)
    return sorted(found, key=lambda site: site.start)


def _design_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """As `_expressions`, without what is assigned to and what must be known before elaboration."""
    for child in _expressions(node):
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


def _mark(node: ast.AST) -> None:
    for part in ast.walk(node):
        part.unsuited = True  # type: ignore[attr-defined]


def guarded(source: str, chosen: list[tuple[int, Site]]) -> str:
    """A source in which each numbered site asks `rtl.mutant.choose` for its value."""
    raw = source.encode()
    for number, site in sorted(chosen, key=lambda item: -item[1].start):
        call = "__import__('rtl.mutant').mutant.choose"
        text = f"{call}({number}, lambda: ({site.before}), lambda: ({site.after}))"
        raw = raw[: site.start] + text.encode() + raw[site.end :]
    return raw.decode()


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:67] + "..."


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions that may be changed, without those in texts, checks and annotations."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr)):
                continue
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name in ("__init__", "_checks"):
                continue
            if isinstance(child, ast.AnnAssign) and child.value is None:
                continue
            if isinstance(child, ast.keyword) and child.arg in (
                "name",
                "init",
                "reset_less",
                "depth",
                "shape",
            ):
                continue
            if isinstance(child, ast.Call) and _called(child) in SKIPPED_CALLS:
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _expressions(child)


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


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
    elif isinstance(node, ast.Call) and _called(node) in SWAPPED_CALLS and not node.keywords:
        first, second = SWAPPED_CALLS[_called(node)]
        if len(node.args) > second and not any(isinstance(arg, ast.Starred) for arg in node.args):
            args = list(node.args)
            args[first], args[second] = args[second], args[first]
            yield "order", ast.Call(node.func, args, [])


def _replaced(source: str, node: ast.expr, text: str) -> str:
    """The source with the text of an expression exchanged, in brackets."""
    lines = source.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    bracketed = text if isinstance(node, ast.Constant | ast.Call) else f"({text})"
    return "".join(lines[:first]) + head + bracketed + tail + "".join(lines[last + 1 :])
