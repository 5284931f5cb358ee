"""Text files are read and written in an encoding that the code names, not in that of the user's locale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("apis", "benchmarks", "cosim", "rtl", "spec", "sw", "tests", "tools", "waves")


def ruff(*paths: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--preview", "--select", "PLW1514", "--isolated", "-q"]
    found = subprocess.run([*command, *paths], cwd=ROOT, capture_output=True, text=True)
    if "No module named" in found.stderr:
        pytest.skip("the package ruff is not installed")
    return found.stdout + found.stderr


def test_every_text_has_an_encoding(tmp_path: Path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("open('x').read()\n", encoding="utf-8")
    assert "without explicit `encoding`" in ruff(str(wrong))
    assert not ruff(*FOLDERS)
