"""Tests say the same in every run: where their random numbers come from, and what is skipped."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import programs, resume, seeds

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != Path(seeds.__file__))
SEEDED = {"Random", "default_rng", "RandomState", "SeedSequence"}
"""Makers of generators, which are right with an argument."""

GLOBAL = re.compile(r"(np|numpy)\.random\.[a-z_]+|random\.[a-z]+|secrets\..*|os\.urandom|uuid\.uuid[14]")
"""Functions with a state that nobody has set, or with none."""


def _unseeded(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each call that draws numbers nobody can repeat."""
    modules = {"random", "numpy", "np", "secrets", "os", "uuid"}
    tree = ast.parse(text)
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "secrets", "numpy.random"):
            if not {name.name for name in node.names} <= {"Random", "Generator"}:
                yield node.lineno, f"from {node.module} import"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        maker = name.rpartition(".")[2]
        if maker == "SystemRandom" or (maker in SEEDED and not node.args and not node.keywords):
            yield node.lineno, name
        elif maker not in SEEDED and name.partition(".")[0] in modules & imported and GLOBAL.fullmatch(name):
            yield node.lineno, name


@pytest.mark.parametrize(
    "text",
    [
        "import random; random.SystemRandom()",
        "import random; random.Random()",
        "import random; random.randrange(3)",
        "import secrets; secrets.randbits(3)",
        "import numpy as np; np.random.default_rng()",
        "import numpy as np; np.random.rand(3)",
        "import os; os.urandom(3)",
        "from random import choice",
    ],
)
def test_unseeded_numbers_are_noticed(text: str) -> None:
    assert list(_unseeded(text))


def test_seeded_numbers_are_not_noticed() -> None:
    text = "import random, numpy as np; random.Random(3).choice([1]); np.random.default_rng(seed=4).random()"
    assert not list(_unseeded(text))


def test_no_test_draws_numbers_that_cannot_be_repeated() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}; take tests/seeds.py"
        for path in TESTS
        for line, name in _unseeded(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_programs_are_looked_for_in_one_place() -> None:
    """A test that is skipped for a missing program names the package: `tests/programs.py`."""
    found = [
        str(path.relative_to(ROOT))
        for path in TESTS
        if re.search(r"skip(if)?\(\s*(not )?[^\n]*which\(", path.read_text())
    ]
    assert not found


def test_seeds_are_those_of_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    assert seeds.number() == seeds.FIXED
    usual = seeds.seed("a file")
    assert usual == seeds.seed("a file") != seeds.seed("another file") and 0 < usual < 1 << 32
    assert all(0 < seeds.seed(str(n), 3) < 8 for n in range(50))
    monkeypatch.setenv(seeds.VARIABLE, "7")
    assert seeds.seed("a file") != usual and f"{seeds.VARIABLE}=7 " in seeds.repeat("tests/unit::x")
    monkeypatch.setenv(seeds.VARIABLE, "seven")
    with pytest.raises(ValueError, match="'seven' is neither a decimal number nor 'fresh'"):
        seeds.number()


def test_a_fresh_number_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = []
    for _ in range(2):
        monkeypatch.setenv(seeds.VARIABLE, "fresh")
        monkeypatch.delenv(seeds.HASHES, raising=False)
        seeds.settle()
        numbers.append(seeds.number())
        seeds.settle()
        assert seeds.number() == numbers[-1] == int(os.environ[seeds.HASHES])
    assert numbers[0] != numbers[1]


EXAMPLE = """
import pytest
from hypothesis import given, strategies as st
from tests import seeds
from tests.programs import needs_program

@given(st.integers())
def test_drawn(n):
    print("drawn", n)

def test_seed():
    print("drawn", seeds.seed(__name__))

@needs_program("iverilog")
def test_program():
    pass

def test_failing():
    assert not seeds.number()
"""


def _pytest(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    """Run the example as a test of this project; return exit code and output."""
    file = folder / "test_example.py"
    file.write_text(EXAMPLE)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (seeds.VARIABLE, seeds.HASHES, programs.EVERYTHING) and not name.startswith("PYTEST")
    }
    start = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        [*start, "-p", "tests.conftest", f"--rootdir={ROOT}", str(file), *words],
        cwd=ROOT,
        env=environment | {"PATH": "/nowhere"} | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_two_runs_draw_the_same(tmp_path: Path) -> None:
    def drawn(**variables: str) -> list[str]:
        return re.findall(r"drawn .*", _pytest(tmp_path, "-s", **variables)[1])

    usual = drawn()
    assert len(usual) > 50 and drawn() == usual
    other = drawn(RKCOSIM_SEED="5")
    assert other != usual and drawn(RKCOSIM_SEED="5") == other


def test_a_failure_names_the_command_that_repeats_it(tmp_path: Path) -> None:
    code, text = _pytest(tmp_path, RKCOSIM_SEED="fresh")
    number = re.search(r"RKCOSIM_SEED=(\d+) \.venv/bin/python -m pytest '.*test_failing'", text)
    assert (
        code == 1
        and number
        and f"seeds: RKCOSIM_SEED={number[1]}" in _pytest(tmp_path, "-v", RKCOSIM_SEED=number[1])[1]
    ), text


def test_the_last_line_names_the_packages(tmp_path: Path) -> None:
    rest = ("-k", "program or seed")
    code, text = _pytest(tmp_path, *rest)
    assert code == 0 and text.splitlines()[-1] == "1 test was skipped; install the Debian packages: iverilog"
    code, text = _pytest(tmp_path, *rest, **{programs.EVERYTHING: "1"})
    assert code == 1 and text.splitlines()[-1].endswith("iverilog: none may be")
    assert programs.told([]) == "" and programs.told(["no network"] * 2) == "2 tests were skipped"


def test_every_program_has_a_package() -> None:
    def listed(*words: str) -> list[str]:
        start = [sys.executable, "-I", str(ROOT / "tests" / "programs.py"), *words]
        nowhere = {"PATH": "/nowhere"}
        return subprocess.run(start, env=nowhere, capture_output=True, text=True, check=True).stdout.split()

    assert listed() == sorted(set(programs.PACKAGES.values()))
    assert {"iverilog", "chromium"} < set(listed("--missing")) <= set(listed())
    assert programs.program("/no/such/file") is None


def test_a_run_goes_on(tmp_path: Path) -> None:
    kept = tmp_path / "passed.txt"
    plugin = tmp_path / "going_on.py"
    plugin.write_text(
        "from pathlib import Path\nfrom tests.resume import Resumed\n"
        "def pytest_configure(config):\n"
        f"    config.pluginmanager.register(Resumed(Path({str(kept)!r}), True))\n"
    )
    words = ("-p", "going_on", "-k", "not program")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    code, text = _pytest(tmp_path, *words, PYTHONPATH=path)
    assert code == 1 and "1 failed, 2 passed" in text
    names = kept.read_text().splitlines()
    assert sorted(name.partition("::")[2] for name in names) == ["test_drawn", "test_seed"]
    kept.write_text(kept.read_text() + names[0][:-3])  # cut off by an interruption
    code, text = _pytest(tmp_path, *words, PYTHONPATH=path)
    assert code == 1 and "1 failed, 3 deselected" in text
    code, text = _pytest(tmp_path, "-p", "going_on", "-k", "drawn or seed", PYTHONPATH=path)
    assert code == 0 and "4 deselected" in text


def test_changed_sources_begin_a_new_run(tmp_path: Path) -> None:
    (tmp_path / "rtl").mkdir()
    for name in ("Makefile", "rtl/core.py"):
        (tmp_path / name).write_text("1")
    first = resume.digest(tmp_path)
    (tmp_path / "rtl" / "__pycache__").mkdir()
    (tmp_path / "rtl" / "__pycache__" / "core.pyc").write_text("1")
    assert resume.digest(tmp_path) == first
    (tmp_path / "rtl/core.py").write_text("2")
    assert resume.digest(tmp_path) != first
