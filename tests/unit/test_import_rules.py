"""Rules for imports (docs/architecture.md): rooms have one order, and no two modules import each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tools.structure import BESIDE, CORE, ORDER, graph, imported, modules, parsed, room_of

ROOT = Path(__file__).resolve().parents[2]

NEVER = {
    "spec": ("amaranth",),
    "hostops": ("amaranth", "rkcosim.spec"),
    "verify": ("rkcosim.hostops",),
    "driver": ("amaranth", "rkcosim.engines", "rkcosim.golden", "rkcosim.waves", "rkcosim.compiler"),
    "compiler": ("amaranth", "rkcosim.engines", "rkcosim.golden", "rkcosim.waves"),
    "rknn_file": ("amaranth", "rkcosim.engines", "rkcosim.waves"),
    "rknn_api": ("amaranth", "rkcosim.engines", "rkcosim.golden", "rkcosim.waves"),
    "golden": (
        "amaranth",
        "rkcosim.hostops",
        "rkcosim.engines",
        "rkcosim.regcmd",
        "rkcosim.driver",
        "rkcosim.spec.layouts",
    ),
    "engines": ("rkcosim.regcmd", "rkcosim.spec.layouts"),
    "waves": ("amaranth", "rkcosim.rtl.core", "rkcosim.rtl.layouts", "rkcosim.rtl.npu", "rkcosim.rtl.bus"),
    "running": ("amaranth", "rkcosim.golden", "rkcosim.waves.decode"),
}
"""Imports that the order would allow but that a room must not have."""


def reached(start: str) -> set[str]:
    """Modules that a module imports, directly or indirectly."""
    found: set[str] = set()
    left = [start]
    while left:
        fresh = set(graph()[left.pop()]) - found
        found |= fresh
        left += fresh
    return found


def test_rooms_import_only_rooms_above():
    place = {name: number for number, names in enumerate(ORDER) for name in names}
    missing = {module for module in modules() if module not in ("", "apis") and not room_of(module)}
    assert not missing, f"modules without a room in ORDER: {missing}"
    wrong = [
        f"{module} -> {other}"
        for module, others in graph().items()
        for other in others
        if module and place[room_of(other)] > place[room_of(module)]
    ]
    assert not wrong


def test_interfaces_import_neither_each_other_nor_are_they_imported_by_the_core():
    """Entry points lead from the core to them; what they have in common is in `apis.link`."""
    for module, others in graph().items():
        ours = room_of(module)
        theirs = {room_of(other) for other in others}
        if ours in CORE:
            assert theirs <= CORE, f"{module} imports {theirs - CORE}"
        elif ours.startswith("apis."):
            assert theirs <= CORE | {"apis.link", ours}, f"{module} imports {theirs - CORE}"


@pytest.mark.parametrize(("name", "forbidden"), NEVER.items(), ids=NEVER)
def test_rooms_never_import(name: str, forbidden: tuple[str, ...]):
    files = [path for module, path in modules().items() if room_of(module) == name]
    assert files, f"{name} has no Python file: the rule checks nothing"
    for path in files:
        for one in imported(path):
            wrong = [banned for banned in forbidden if f"{one}.".startswith(f"{banned}.")]
            assert not wrong, f"{path.relative_to(ROOT)} imports {one}"


def test_no_two_modules_need_each_other():
    needs = {module: reached(module) for module in modules()}
    cycles = {
        frozenset(other for other in found if module in needs[other])
        for module, found in needs.items()
        if module in found
    }
    assert not [sorted(cycle) for cycle in cycles]


PLAIN = {"Call", "Data", "Item", "Node", "Row", "Run"}
"""Names of classes that say too little in a tree of this size: what they are of belongs to the name."""

MOST_HOMES = 6
"""Modules that may have a public class of one name; the number must not grow."""


def test_names_of_classes_say_what_they_are_of():
    homes: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert not {name: homes[name] for name in PLAIN & set(homes)}
    assert not {name: found for name, found in homes.items() if len(found) > MOST_HOMES}


ENGINE_NAMES = {"verilator", "cxxrtl", "amaranth", "golden"}
ENGINE_MEMBERS = set(
    "annotate block_counters block_state cell complaints counters devices diagnostics dram events faults "
    "has_cycles irq record reports resumed_at task_log trace trace_bytes".split()
)
KNOWN_QUESTIONS = {("driver/driver.py", "annotate"), ("driver/kernel/trouble.py", "complaints")}
KNOWN_QUESTIONS |= {("driver/kernel/trouble.py", "faults")}
"""Members of a device that the driver asks for by name; the list must not grow."""


def test_engines_are_asked_what_they_can_do_and_not_who_they_are():
    """No comparison with an engine's name outside of the engines, and no hasattr instead of a capability."""
    wrong = []
    for module, path in modules().items():
        if room_of(module) in ("engines", "cocotb", *BESIDE):  # simulators of testbenches have these names
            continue
        where = path.relative_to(ROOT / "rkcosim")
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Compare):
                texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                wrong += [f"{where}:{node.lineno}"] if texts & ENGINE_NAMES else []
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr"):
                asked = getattr(node.args[1], "value", None)
                if asked in ENGINE_MEMBERS and (str(where), asked) not in KNOWN_QUESTIONS:
                    wrong.append(f"{where}:{node.lineno}")
    assert not wrong


def test_every_folder_of_tests_is_a_package():
    """So that two files may have the same name, and module names do not depend on how pytest is started."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert not [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file()]


@pytest.mark.parametrize(
    "name", ["spec", "rtl", "rtl.npu", "sw", "sw.rknn_api", "sw.driver", "cosim", "waves", "apis"]
)
def test_folders_of_the_checkout_are_no_packages(name: str):
    """There is one import package; a folder imported under its plain name reports its package name."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.search(
        r"ImportError: \w+(\.\w+)* is a folder of the checkout; .* imported as rkcosim\.", done.stderr
    )


def test_every_room_is_in_the_package():
    """`rkcosim` has a link for each folder and module of the checkout's folders, and no other."""
    links = {
        path.name: path.readlink().as_posix() for path in (ROOT / "rkcosim").iterdir() if path.is_symlink()
    }
    places = [path for folder in ("sw", "cosim") for path in (ROOT / folder).iterdir()]
    places += [ROOT / folder for folder in ("spec", "rtl", "waves", "apis", "docs", "examples")]
    wanted = {p.name: f"../{p.relative_to(ROOT).as_posix()}" for p in places if not p.name.startswith("__")}
    assert links == wanted
    assert {path.name for path in (ROOT / "rkcosim").glob("*.py") if not path.is_symlink()} == {
        "__init__.py",
        "__main__.py",
    }


OUTSIDE = re.compile(
    r"parents\[[3-9]\]|\b(?:ROOT|REPOSITORY|PACKAGE)\.parent\b|\.\./shared\b|/work/|/home/\w"
)
"""Paths that lead out of the repository."""


def outside(text: str) -> list[str]:
    return OUTSIDE.findall(text)


def test_no_path_leads_out_of_the_repository():
    """Files that tests and code take are in the repository; originals come by RKCOSIM_SHARED alone."""
    found = []
    for folder in (
        "spec",
        "rtl",
        "sw",
        "cosim",
        "waves",
        "apis",
        "tools",
        "tests",
        "examples",
        "benchmarks",
        ".ci",
    ):
        for path in (ROOT / folder).rglob("*"):
            known = path.suffix in (".py", ".cpp", ".h", ".c", ".sh", ".toml") or path.name in (
                "Makefile",
                "run",
            )
            if known and path.is_file() and path != Path(__file__).resolve():
                found += [f"{path.relative_to(ROOT)}: {name}" for name in outside(path.read_text("utf-8"))]
    assert not found
    for path in ("Makefile", "pyproject.toml"):
        assert not outside((ROOT / path).read_text("utf-8"))
    somewhere = "/".join(("", "work", "models"))
    for text in ("Path(__file__).parents[3]", 'ROOT.parent / "shared"', "../shared/models", somewhere):
        assert outside(text)


@pytest.mark.parametrize("name", ["nnapi.ndk", "hexagon", "litert", "ort"])
def test_a_process_of_an_interface_loads_neither_checks_nor_builders(name: str):
    """Its start is what a program waits for; what the options ask for is imported when they do."""
    text = f"""
    import sys
    import rkcosim.apis.{name}.worker, rkcosim.apis.{name}.calls
    print(*sorted(name for name in sys.modules if name.startswith("rkcosim.")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    rooms = {name.split(".")[1] for name in loaded}
    assert not rooms & {"golden", "verify", "measure", "rknn_api", "rknn_file", "waves", "rtl"}
    assert "rkcosim.engines.build" not in loaded
    assert len(loaded) <= 170, "modules of the package in the process"
