"""Who may import whom (docs/architecture.md): the layers stay apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RULES = [
    ("rtl", ("sw", "cosim", "waves", "tests", "benchmarks")),
    ("rtl/regs", ("amaranth", "sw", "cosim", "waves")),
    ("sw/driver", ("cosim", "sw.compiler", "sw.loaders", "amaranth")),
    ("sw/layouts", ("cosim", "rtl.npu", "amaranth")),
    ("sw/compiler", ("cosim", "amaranth")),
    ("sw/loaders", ("cosim", "amaranth")),
    ("sw/rknn_api", ("cosim", "amaranth")),
    ("cosim/golden", ("sw", "amaranth", "cosim.engines")),
    ("cosim/engines", ("sw",)),
    ("waves", ("cosim", "amaranth", "rtl.core", "rtl.layouts", "rtl.npu", "rtl.bus", "rtl.config")),
]


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize(("folder", "forbidden"), RULES, ids=[rule[0] for rule in RULES])
def test_layer_keeps_its_place(folder: str, forbidden: tuple[str, ...]):
    files = list((ROOT / folder).rglob("*.py"))
    assert files, f"{folder} holds no Python file: the rule checks nothing"
    for path in files:
        for name in imported_modules(path):
            for banned in forbidden:
                assert name != banned and not name.startswith(banned + "."), (
                    f"{path.relative_to(ROOT)} imports {name}; {folder} must not use {banned}"
                )


def test_every_folder_of_tests_is_a_package():
    """So that two files may have the same name, and all modules have one name however pytest is started."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert not [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file()]
