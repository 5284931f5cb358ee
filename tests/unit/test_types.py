"""The program that mypy checks (tests/typing) uses every public name; the package says that it is typed."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "typing" / "strict_program.py"

MODULES = (
    *("rkcosim", "rkcosim.model", "rkcosim.engines", "rkcosim.driver", "rkcosim.compiler"),
    *("rkcosim.regcmd", "rkcosim.regcmd.lint", "rkcosim.waves", "rkcosim.waves.events"),
)


def uses(text: str) -> set[str]:
    """Return the names of the package that a program uses, with their modules."""
    tree = ast.parse(text)
    modules: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname or name.name: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rkcosim"):
            for name in node.names:
                modules[name.asname or name.name] = f"{node.module}.{name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{modules.get(node.value.id, '')}.{node.attr}")
        elif isinstance(node, ast.Name):
            found.add(modules.get(node.id, ""))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_the_program_uses_every_public_name(module: str):
    used = uses(PROGRAM.read_text(encoding="utf-8"))
    names = import_module(module).__all__
    missing = {name for name in names if f"{module}.{name}" not in used}
    # A name that two modules have is used through one of them.
    others = [import_module(other) for other in MODULES if other != module]
    for name in {*missing}:
        for other in others:
            same = name in other.__all__ and getattr(other, name) is getattr(import_module(module), name)
            if same and f"{other.__name__}.{name}" in used:
                missing.discard(name)
    assert names and missing == set()


def test_uses_are_found():
    text = "import rkcosim\nfrom rkcosim import model as m\nfrom rkcosim.waves import open\n"
    assert uses(text + "rkcosim.load(m.Profile)\n") >= {"rkcosim.load", "rkcosim.model.Profile"}
    assert "rkcosim.waves.open" not in uses(text) and "rkcosim.waves.open" in uses(f"{text}open(1)\n")


def test_the_package_says_that_it_is_typed():
    found = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert found["tool"]["setuptools"]["package-data"]["rkcosim"] == ["py.typed"]
    assert (ROOT / "rkcosim" / "py.typed").read_bytes() == b""
    assert "tests/typing/strict_program.py" in (ROOT / "Makefile").read_text("utf-8")
