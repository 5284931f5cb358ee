"""Faults of the RTL that a block's own tests once missed: each is planted, and they find it within 30 s."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tools.mutation.handshake_record import SECONDS
from tools.mutation.operators import mutants
from tools.mutation.suite import SHORT, attempt

ROOT = Path(__file__).resolve().parents[2]

KNOWN = {
    "a slot reads the row that is about to arrive": (
        "rtl/npu/csc_pixels.py",
        "place.y >= self.rows_ready -> place.y > self.rows_ready",
        "tests/block/test_csc",
    ),
    "the first slot waits for one row too many": (
        "rtl/npu/csc_pixels.py",
        "self.rows_ready >= task.first_rows -> self.rows_ready > task.first_rows",
        "tests/block/test_csc",
    ),
}
"""What the fault does: the module, the change, and the file with the tests of its block."""


@pytest.mark.parametrize("name", KNOWN)
def test_a_blocks_own_tests_find_it(name: str) -> None:
    path, change, tests = KNOWN[name]
    text = (ROOT / path).read_text(encoding="utf-8")
    fault = next(one for one in mutants(path, text) if change in str(one))  # an assertion may say it, too
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = attempt("RTL", fault, (tests,))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.found_by == SHORT and found.test.startswith(f"{tests}.py::"), found
    assert used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime < SECONDS, found
