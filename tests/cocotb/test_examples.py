"""The example testbenches run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosim.cocotb import missing

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cocotb"


@pytest.mark.parametrize("name", ["register", "cbuf", "task", "network"])
def test_example(name, tmp_path):
    reason = missing("verilator")
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RKCOSIM_EXAMPLES_OUT": str(tmp_path)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
