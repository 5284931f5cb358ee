"""The stored outputs of notebooks are those of a fresh run; from a wheel they run in an empty environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import needs_program
from tools.site import ROOT, notebook_pages

pytest.importorskip("nbconvert", reason="needs the extra dev")
pytest.importorskip("ipykernel", reason="needs the extra notebooks")
pytest.importorskip("matplotlib", reason="needs the extra notebooks")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

LONG = {"float_to_int8", "what_if"}
"""Notebooks whose run takes more than some seconds."""

NAMES = [Path(name).stem for name in notebook_pages()]


@needs_program("g++")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.heavy] if name in LONG else []) for name in NAMES]
)
def test_stored_outputs_are_those_of_a_fresh_run(name: str):
    done = subprocess.run(
        [sys.executable, "-m", "tools.notebooks", "--check", name],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and f"{name}.ipynb: current" in done.stdout, done.stdout + done.stderr
