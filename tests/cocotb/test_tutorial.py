"""The tutorial of docs/howto/testbenches.md: its test fails as described, and its fix repairs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.cocotb import missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "testbenches.md"


def run_pytest(folder: Path) -> str:
    """Return the output of pytest for the file of the tutorial."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_pool.py",
        "--show-capture=no",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    return done.stdout + done.stderr


def printed(folder: Path) -> str:
    """The lines of the log that the tutorial shows."""
    lines = (folder / "out" / "simulation.log").read_text().splitlines()
    return "\n".join(line for line in lines if "cycle" in line)


def test_from_an_empty_folder_to_the_fix(tmp_path):
    reason = missing("verilator")
    if reason is not None:
        pytest.skip(reason)
    page = PAGE.read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = re.findall(r"\$ grep cycle out/simulation\.log\n(.*?)\n```", page, re.DOTALL)
    bench = tmp_path / "test_pool.py"
    bench.write_text(code)

    said = run_pytest(tmp_path)
    assert "pools: 255 of 512 elements differ, the first at [1 0 0 0]" in said and "1 failed" in said
    assert printed(tmp_path) == shown[0]
    wave = waves.open(tmp_path / "out" / "pool.vcd")
    writes = [w for w in wave.register_writes() if w.block == "PPU" and "STRIDE" in w.register]
    assert f"{writes[-1].cycle} {writes[-1].register} {writes[-1].fields}" in page

    [(before, after)] = re.findall(r"sed -i 's/(.+)/(.+)/' test_pool\.py", page)
    bench.write_text(code.replace(before, after))
    said = run_pytest(tmp_path)
    assert "1 passed" in said, said
    assert printed(tmp_path) == shown[1]
