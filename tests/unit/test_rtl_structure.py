"""RTL style: `elaborate` stores nothing on the component, and methods have few Signal parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "rtl").rglob("*.py"))
MOST_SIGNALS = 6

OPEN_STATE: set[str] = set()
OPEN_SIGNALS: set[str] = set()
"""Files that do not follow the rules yet."""

_VALUES = ("Signal", "Value", "View", "Any", "object")


def kept_state(tree: ast.AST) -> list[str]:
    """Assignments to attributes of `self` outside `__init__`, in classes that have `elaborate`."""
    found = []
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
        if not any(method.name == "elaborate" for method in methods):
            continue
        for method in methods:
            if method.name == "__init__":
                continue
            for node in ast.walk(method):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "self"
                ):
                    found.append(f"line {node.lineno}: {owner.name}.{method.name} sets self.{node.attr}")
    return found


def signals(function: ast.FunctionDef) -> list[str]:
    """Parameters that are Signals: those annotated as values, or not at all, except self and the module.

    A list of Signals counts as one.
    """
    found = []
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg):
        if argument is None or argument.arg in ("self", "cls", "m", "platform"):
            continue
        note = ast.unparse(argument.annotation) if argument.annotation else "Any"
        if any(word in note for word in _VALUES):
            found.append(argument.arg)
    return found


def long_lists(tree: ast.AST) -> list[str]:
    """Functions and methods that take more than `MOST_SIGNALS` Signals."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [
        f"line {function.lineno}: {function.name} takes {', '.join(signals(function))}"
        for function in functions
        if len(signals(function)) > MOST_SIGNALS
    ]


def _cases(opened: set[str]) -> list:
    return [
        pytest.param(name, marks=pytest.mark.xfail(strict=True) if name in opened else ()) for name in FILES
    ]


@pytest.mark.parametrize("name", _cases(OPEN_STATE))
def test_elaborate_stores_nothing_on_self(name: str) -> None:
    assert not kept_state(ast.parse((ROOT / name).read_text()))


@pytest.mark.parametrize("name", _cases(OPEN_SIGNALS))
def test_a_method_takes_few_signals(name: str) -> None:
    assert not long_lists(ast.parse((ROOT / name).read_text()))


def test_both_rules_find_what_they_are_about() -> None:
    text = """
class A:
    def __init__(self): self.x = 1
    def elaborate(self, platform):
        self.a, b = 1, 2
    def helper(self, m: Module, a: Signal, b: Value, c: data.View, d, e: list[Signal], f: Any, *g: Value): ...
    def short(self, m: Module, a: Signal, n: int, name: str, last: bool, b: Value, c, d, e, f): ...
"""
    tree = ast.parse(text)
    assert kept_state(tree) == ["line 5: A.elaborate sets self.a"]
    assert long_lists(tree) == ["line 6: helper takes a, b, c, d, e, f, g"]
