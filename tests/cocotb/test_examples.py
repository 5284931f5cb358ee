"""The example testbenches are run in the same way as by a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rkcosim.cocotb import missing
from tests.programs import needs_program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cocotb"


@needs_program("iverilog", "vvp")
def test_a_block_in_icarus(tmp_path):
    assert "1 passed" in run("test_cbuf.py", tmp_path)


def test_examples(tmp_path):
    reason = missing("verilator")
    if reason is not None:
        pytest.skip(reason)
    said = run(".", tmp_path)
    assert "4 passed" in said
    assert (tmp_path / "network.vcd").stat().st_size > 1 << 20
    assert (tmp_path / "coverage.xml").exists()


def run(what: str, tmp_path: Path) -> str:
    """Run the examples, or one file of them, by pytest; return what it prints."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", what]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RKCOSIM_EXAMPLES_OUT": str(tmp_path)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
