"""Programs that drive a suite's own files and judge what they answer; they run in the suites' interpreter.

A driver runs as `python -m tools.outside.drivers.NAME OUTCOMES WORDS...` under a door of rkcosim and needs
only numpy and what the suite needs. It writes the outcome of each test to the file OUTCOMES.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.outside.suite import FAIL, PASS, SKIP

TOLERANCE = 2.0**-8
"""Largest difference from onnxruntime, relative to the largest value. Steps of fp16 are 2**-11."""


class Absent(Exception):
    """The suite's files have not what a test looks at; the text says what."""


def judge(path: Path, tests: Mapping[str, Callable[[], None]]) -> None:
    """Run tests and write how each ended: a test that returns passed."""
    found = {}
    for name, test in tests.items():
        try:
            test()
            found[name] = [PASS, ""]
        except Absent as reason:
            found[name] = [SKIP, str(reason)]
        except Exception as error:  # whatever the suite raises is its verdict
            traceback.print_exc()
            found[name] = [FAIL, f"{type(error).__name__}: {error}"]
    path.write_text(json.dumps(found), encoding="utf-8")


def agree(ours: Any, expected: Any) -> None:
    """Raise ValueError if an array or a list of arrays has not the numbers of another one."""
    if isinstance(expected, list | tuple):
        if len(ours) != len(expected):
            raise ValueError(f"{len(ours)} arrays; {len(expected)} are expected")
        for one, other in zip(ours, expected, strict=True):
            agree(one, other)
        return
    a, b = np.asarray(ours, np.float64), np.asarray(expected, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"shape {list(a.shape)}; {list(b.shape)} is expected")
    worst = float(np.abs(a - b).max(initial=0)) / float(np.abs(b).max(initial=1e-30))
    if not worst <= TOLERANCE:
        raise ValueError(f"{worst:.3g} of the largest value away from onnxruntime")


def expect(condition: bool, text: str) -> None:
    """Raise ValueError with a text unless a condition holds."""
    if not condition:
        raise ValueError(text)


def package(name: str, folder: Path) -> None:
    """Let a package consist of the modules of a folder, without its own `__init__`."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


def stand_in(name: str, **members: Any) -> None:
    """Put a module with these members in the place of one that the suite imports."""
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def arguments() -> tuple[Path, Sequence[str]]:
    """Return the file of the outcomes and the other words of the command line."""
    return Path(sys.argv[1]), sys.argv[2:]
