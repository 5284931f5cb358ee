"""Tests of operators of allbilly/tinygrad with its back end for the vendor's driver."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import pytest_under
from tools.outside.suite import FAIL, PASS, Checkout, NotHere, Outcome, Suite

SETTINGS = {"ROCKCHIP": "1", "NOOPT": "1", "DEFAULT_FLOAT": "HALF", "FORWARD_ONLY": "1", "CACHELEVEL": "0"}
"""Halves need Python 3.12: memoryview has no type for them before."""

PASSED = tuple(
    f"TestOps::test_{name}"
    for name in (
        *("add", "sub", "mul", "div", "neg", "maximum", "minimum", "exp2", "silu", "relu"),
        *("cmp_lt", "cmp_eq", "cmp_ne", "where", "trunc"),
    )
)
"""Tests that a message of a commit says to pass on the author's board."""


WHOLE = tuple(
    f"test_{name}"
    for name in (
        *("broadcasted_add", "broadcasted_add_2", "exp2", "silu"),
        *("cmp_lt", "cmp_gt", "cmp_eq", "cmp_ge", "cmp_le"),
    )
)
"""Tests of `test/test_ops.py`, tinygrad's own, that fail on the author's board: comments of his file and the
message of 741950fda say so, and why."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs("test/test_rockchip.py", "tinygrad/runtime/ops_rockchip.py")
    asked = [here.python, "-c", "import numpy, pytest, sys, torch; sys.exit(sys.version_info < (3, 12))"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        raise NotHere(f"{Path(here.python).name} is not Python 3.12 with numpy, pytest and torch")
    found = _tests(here, engine, folder / "own", ["test/test_rockchip.py"])
    whole = _tests(here, engine, folder / "whole", [f"test/test_ops.py::TestOps::{name}" for name in WHOLE])
    return found | {f"test_ops.py {name}": outcome for name, outcome in whole.items()}


def _tests(here: Checkout, engine: str, folder: Path, tests: list[str]) -> dict[str, Outcome]:
    folder.mkdir()
    return pytest_under(
        here, "device", engine, ["--show-capture=no", *tests], folder, 3600, environment=SETTINGS
    )


def _board(test: str) -> tuple[str, ...]:
    if test.startswith("test_ops.py "):
        return (FAIL,)
    return (PASS,) if test in PASSED else ()


SUITE = Suite(
    name="tinygrad",
    repository="allbilly/tinygrad",
    tests="sums, products, quotients, extrema, comparisons, WHERE, and EXP2, SiLU and TRUNC by the LUT, in "
    "fp16 over the vendor's driver, with a reset before each task; matrix products by the array",
    how="pytest runs `test/test_rockchip.py`, and of `test/test_ops.py` the tests that its author calls "
    "failing, under `rkcosim device` with "
    + " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    + ".",
    cannot="The author's later sweeps of all of `test_ops.py` (209 of 433 and 177 of 432 methods): the back "
    "end is public as changes in his notes only (allbilly/allbilly.github.io, "
    "docs/blog/tinygrad-backend.md and reminaingops.md), against tinygrad @ebf1636, which no stored copy "
    "has.",
    board_source="allbilly/tinygrad, messages of commits from 75efb5aed to be0f46dc6, which say of 15 tests "
    "that they passed; none says it of the other tests of the file. Of `test_ops.py`, comments in "
    "test/test_rockchip.py @725b312: sums with broadcasting fail (indices above 2048 in fp16), EXP2 misses "
    "tinygrad's own tolerance, comparisons of infinities are wrong; SiLU passed with a wider tolerance "
    "(741950fda).",
    board=_board,
    run=_run,
)
