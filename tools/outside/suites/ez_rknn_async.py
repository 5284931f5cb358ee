"""The tests of happyme531/ztu_somemodelruntime_ez_rknn_async, a Python runtime over librknnrt.so."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import pytest_under
from tools.outside.suite import Checkout, NotHere, Outcome, Suite

PACKAGE = "ztu_somemodelruntime_ez_rknn_async"


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs("tests/test_zero_copy_layout_mode.py")
    asked = [here.python, "-c", f"import importlib.util as u; exit(u.find_spec({PACKAGE!r}) is None)"]
    if subprocess.run(asked, check=False).returncode:
        raise NotHere(f"{here.python} has no package {PACKAGE}; build it as AGENTS.md of the suite says")
    chosen = ["tests"] if engine == "golden" else ["tests", "-k", "not large_add"]
    return pytest_under(here, "rknn", engine, chosen, folder, 2700)


SUITE = Suite(
    name="ez-rknn-async",
    repository="happyme531/ztu_somemodelruntime_ez_rknn_async",
    tests="a Python runtime over `librknnrt.so`: layouts, zero copy, 3-D to 5-D, fp16, fp32, int32, int64, "
    "shared weights; models made by `rknn.api`",
    how="Its pytest suite runs under `rkcosim rknn`; the package is built as its AGENTS.md says. "
    "The additions of large tensors run on the golden model only.",
    board_source="no log of a board is known.",
    run=_run,
)
