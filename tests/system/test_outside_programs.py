"""Programs of outside suites under the doors of rkcosim, and what their ends mean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.outside.programs import Finished, Program, each_program, pytest_under
from tools.outside.suite import Checkout, NotHere, Outcome

SCRIPT = """#!/bin/sh
test -c /dev/accel/accel0 && test "$KIND" = toy && exit $1
sleep 60
"""

TESTS = """
def test_board():
    assert "rk3588" in open("/proc/device-tree/compatible").read()

def test_wrong():
    assert 1 == 2
"""


def test_ends_of_programs(tmp_path: Path):
    """A program with the device and its environment, another one that is ended, and exit codes."""
    (tmp_path / "build").mkdir()
    program = tmp_path / "build/gate"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    here = Checkout("someone/toy", tmp_path, "", sys.executable)
    board = {"board": Program("build/gate", ["2"], {"KIND": "toy"}, (2,))}
    assert each_program(here, "device", "golden", board, 60)["board"].verdict == "skip"
    slow = each_program(here, "device", "golden", {"slow": Program("build/gate", ["0"])}, 1)
    assert slow["slow"].verdict == "time limit"
    with pytest.raises(NotHere, match="no build/other"):
        each_program(here, "device", "golden", {"other": Program("build/other")}, 2)
    gate = Program("gate", skips=(2, 77))
    ends = (
        (0, "pass", ""),
        (77, "skip", "no weights in data"),
        (1, "fail", "exit code 1: no weights in data"),
    )
    for code, verdict, said in ends:
        assert gate.outcome(Finished(code, "a\nno weights in /opt/x/data\n--\n", 1)) == Outcome(verdict, said)
    assert gate.outcome(Finished(None, "", 2.4)) == Outcome("time limit", "ended after 2 s")
    assert Program("probe", silent=True).outcome(Finished(0, "", 1)) == Outcome("no verdict")


def test_tests_of_pytest(tmp_path: Path):
    (tmp_path / "test_toy.py").write_text(TESTS)
    (tmp_path / "files").mkdir()
    here = Checkout("someone/toy", tmp_path, "", sys.executable)
    found = pytest_under(here, "rknn", "golden", ["test_toy.py"], tmp_path / "files", 60)
    assert {name: outcome.verdict for name, outcome in found.items()} == {
        "test_toy::test_board": "pass",
        "test_toy::test_wrong": "fail",
    }
