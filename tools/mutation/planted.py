"""A plugin of pytest that plants one fault: `RKCOSIM_PLANTED` names a file of JSON (module, path, text).

The fault must be planted before the module is imported, so pytest gets this as `-p tools.mutation.planted`.
The run ends with exit code 70 if no test imported the module: then it says nothing about the fault.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

VARIABLE = "RKCOSIM_PLANTED"
NOT_IMPORTED = 70


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the text with the fault."""

    def __init__(self, module: str, path: str, text: str) -> None:
        self.module, self.path, self.text = module, path, text
        self.used = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return this as the loader of the changed module."""
        if name != self.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed text."""
        self.used = True
        module.__file__ = self.path
        exec(compile(self.text, self.path, "exec", dont_inherit=True), module.__dict__)


def _planted() -> Planted | None:
    if VARIABLE not in os.environ:
        return None
    fault = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    if fault["module"] in sys.modules:
        raise RuntimeError(f"{fault['module']} has been imported before the fault was planted")
    return Planted(fault["module"], fault["path"], fault["text"])


PLANTED = _planted()
if PLANTED is not None:
    sys.meta_path.insert(0, PLANTED)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell a run that did not use the module from one that passed."""
    if PLANTED is not None and not PLANTED.used and not session.exitstatus:
        session.exitstatus = NOT_IMPORTED
