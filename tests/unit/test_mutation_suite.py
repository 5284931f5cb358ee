"""`python -m tools.mutation.suite`: faults are planted in modules that tests import, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.base import PACKAGE
from rkcosim.measure.perf.page import read_section
from tools.mutation import suite
from tools.mutation.operators import Mutant
from tools.mutation.suite import (
    AREAS,
    LEFT_OUT,
    NEITHER,
    SHORT,
    VOID,
    Result,
    attempt,
    counted,
    section,
)

ROOT = Path(__file__).resolve().parents[2]


def test_modules_and_tests_exist() -> None:
    for modules in AREAS.values():
        for path, tests in modules.items():
            assert (ROOT / path).is_file() and tests
            assert all((ROOT / f"{test}.py").is_file() for test in tests)
    assert suite.module_name("sw/compiler/memory.py") == "rkcosim.compiler.memory"
    assert suite.module_name("rtl/npu/csc.py") == "rkcosim.rtl.npu.csc"


def test_faults_are_the_same_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"some": {"sw/compiler/memory.py": ("t",), "waves/whole_file.py": ("u",)}}
    monkeypatch.setattr(suite, "AREAS", few)
    faults = suite.drawn(3)
    assert [str(fault) for _, fault, _ in faults] == [str(fault) for _, fault, _ in suite.drawn(3)]
    assert len({str(fault) for _, fault, _ in faults}) == len(faults)
    assert len(faults) == 2 * suite.FAULTS


@pytest.mark.parametrize(("change", "verdict"), [("wrong", SHORT), ("", VOID)])
def test_a_planted_fault_is_found(change: str, verdict: str) -> None:
    """A fault in a module that the tests use is found; one in another module says nothing."""
    path = "cosim/cocotb/coverage.py" if not change else "waves/whole_file.py"
    text = (ROOT / path).read_text()
    if change:
        text += "\n\ndef whole_file(path: object) -> object:\n    raise OSError(path)\n"
    tests = "tests/unit/test_whole_file" if change else "tests/unit/test_broken_chains"
    found = attempt("some", Mutant(path, 1, "", "a", "b", text), (tests,))
    assert found.found_by == verdict
    assert ("test_whole_file.py::" in found.test) == bool(change)


def test_counts_and_names_are_on_the_page() -> None:
    first, second, _ = AREAS
    results = [
        Result(first, "a.py:1: x", SHORT, "t::a", 1.0),
        Result(first, "a.py:2: x", LEFT_OUT, "t::b", 1.0),
        Result(second, "b.py:1: x", NEITHER, "", 1.0),
    ]
    assert counted(results)[0][1:] == (1, 1, 0) and counted(results)[-1][1:] == (1, 1, 1)
    page = section(results, "command", 3)
    assert "finds 1 of the 2 that `make test-all` finds (50%)" in page
    assert "- `a.py:2: x`, by `t::b`" in page and "- `b.py:1: x`" in page
    read_section(suite.SECTION, PACKAGE / "docs" / "verification.md")
