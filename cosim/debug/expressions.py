"""The debugger's expressions: registers, tensors, numbers and operators; nothing of Python is executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from rkcosim.base import Error
from rkcosim.spec.regs import registers

MEMORY, GOLDEN, REFERENCE, DIFFERENCE = "memory", "golden", "reference", "diff"
"""Where the elements of a tensor come from; all but the first are words of expressions."""

BESIDE = (GOLDEN, REFERENCE, DIFFERENCE)

LONGEST = 1000
"""Maximum number of characters of an expression."""

DEEPEST = 50
"""Maximum depth of an expression."""

MOST_SHIFT = 64

PREFIX = re.compile(r"""'[^']*'|"[^"]*"|\b(golden|diff|reference)\s+('[^']*'|"[^"]*"|[A-Za-z_]\w*)""")


class ExpressionError(Error, ValueError):
    """An expression cannot be read or has no value; the message has the part that is wrong."""


class Scope(Protocol):
    """What the names of an expression mean."""

    def register(self, path: str, group: int | None) -> int:
        """Return `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` of a group; None: the group in use."""
        ...

    def tensor(self, name: str, of: str) -> Any:
        """Return a tensor, of "memory", "golden", "reference" or "diff"; raises ExpressionError."""
        ...

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        ...

    def tensor_names(self) -> list[str]:
        """Return the names of the tensors."""
        ...


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "mean": np.mean,
    "any": np.any,
    "all": np.all,
    "count": np.count_nonzero,
    "shape": np.shape,
    "hex": lambda value: hex(int(value)),
}
"""Functions of one argument."""


def evaluate(text: str, scope: Scope) -> Any:
    """Return the value of an expression.

    `golden y`, `reference y` and `diff y` in front of a tensor are its values of the golden model, of the
    reference, and the differences from the reference (else from the golden model).

    Raises
    ------
    ExpressionError
        if it cannot be read, or a part of it has no value.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST} characters, not {len(text)}")
    try:
        tree = ast.parse(_called(text.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ExpressionError(f"{text!r} is not an expression: {reason}") from None
    try:
        value = _Evaluator(scope, text).value(tree.body, 0)
    except (TypeError, ValueError, ArithmeticError, IndexError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"{text}: {error}") from None
    return value.item() if isinstance(value, np.generic) else value


def _called(text: str) -> str:
    """Write `golden y[0]` as `golden(y)[0]`."""
    return PREFIX.sub(lambda found: f"{found[1]}({found[2]})" if found[1] else found[0], text)


class _Evaluator:
    def __init__(self, scope: Scope, text: str) -> None:
        self.scope, self.text = scope, text

    def fail(self, message: str) -> ExpressionError:
        return ExpressionError(f"{self.text}: {message}")

    def value(self, node: ast.expr, depth: int) -> Any:
        if depth > DEEPEST:
            raise self.fail(f"more than {DEEPEST} levels of parentheses and operators")
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.fail(f"{type(node).__name__} has no meaning here")
        return method(node, depth + 1)

    def _constant(self, node: ast.Constant, depth: int) -> Any:
        if isinstance(node.value, str):
            return self.scope.tensor(node.value, "memory")
        if isinstance(node.value, bool | int | float):
            return node.value
        raise self.fail(f"{node.value!r} is not a number")

    def _name(self, node: ast.Name, depth: int) -> Any:
        plain = self.scope.names()
        if node.id in plain:
            return plain[node.id]
        if node.id in self.scope.tensor_names():
            return self.scope.tensor(node.id, "memory")
        known = [*plain, *self.scope.tensor_names(), *registers().blocks]
        near = get_close_matches(node.id, known, n=3)
        raise self.fail(f"nothing has the name {node.id}" + (f"; there is {', '.join(near)}" if near else ""))

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        names, group = [node.attr], None
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            names.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name):
            group = self.value(inner.slice, depth)
            if group not in (0, 1):
                raise self.fail(f"a block has the register groups 0 and 1, not {group!r}")
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise self.fail("a dot stands only in BLOCK.REGISTER and BLOCK.REGISTER.FIELD")
        return self.scope.register(".".join([inner.id, *names]), group)

    def _subscript(self, node: ast.Subscript, depth: int) -> Any:
        inner = self.value(node.value, depth)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(self._index(part, depth) for part in parts)
        array = np.asarray(inner)
        if not array.ndim:
            raise self.fail("only tensors have indices")
        if len(index) == array.ndim + 1 and index[0] in (0, slice(None)):
            index = index[1:]  # the batch in front of channels, rows and columns
        return array[index]

    def _index(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if end is None else int(self.value(end, depth)) for end in ends))
        return int(self.value(node, depth))

    def _binop(self, node: ast.BinOp, depth: int) -> Any:
        work = _BINARY.get(type(node.op))
        if work is None:
            raise self.fail(f"there is no operator {type(node.op).__name__}")
        left, right = _wide(self.value(node.left, depth)), _wide(self.value(node.right, depth))
        if isinstance(node.op, ast.LShift | ast.RShift) and np.any(
            (np.asarray(right) < 0) | (np.asarray(right) > MOST_SHIFT)
        ):
            raise self.fail(f"a shift is by 0 to {MOST_SHIFT} bits")
        return work(left, right)

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Any:
        return _UNARY[type(node.op)](_wide(self.value(node.operand, depth)))

    def _boolop(self, node: ast.BoolOp, depth: int) -> Any:
        every = isinstance(node.op, ast.And)
        value: Any = every
        for part in node.values:
            value = self.value(part, depth)
            if bool(np.all(value)) != every:
                break
        return value

    def _compare(self, node: ast.Compare, depth: int) -> Any:
        left, result = _wide(self.value(node.left, depth)), True
        for kind, part in zip(node.ops, node.comparators, strict=True):
            work = _COMPARE.get(type(kind))
            if work is None:
                raise self.fail(f"there is no comparison {type(kind).__name__}")
            right = _wide(self.value(part, depth))
            result = result & work(left, right)
            left = right
        return result

    def _call(self, node: ast.Call, depth: int) -> Any:
        if not isinstance(node.func, ast.Name) or node.keywords or len(node.args) != 1:
            raise self.fail(f"functions take one argument; there are {', '.join(FUNCTIONS)}")
        name, argument = node.func.id, node.args[0]
        if name in BESIDE:
            if isinstance(argument, ast.Name):
                return self.scope.tensor(argument.id, name)
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return self.scope.tensor(argument.value, name)
            raise self.fail(f"{name} stands before the name of a tensor")
        if name not in FUNCTIONS:
            raise self.fail(f"there is no function {name}; there are {', '.join(FUNCTIONS)}")
        return FUNCTIONS[name](self.value(argument, depth))


def _wide(value: Any) -> Any:
    """Return small integers of numpy with 64 bits, so that no result overflows."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iub":
        return value.astype(np.int64)
    return value
