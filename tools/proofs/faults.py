"""Faults in the RTL for proofs: a module is imported with one change of its text.

A fault needs a process of its own, because the changed module must be imported before anything that uses it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from tools.proofs.plan import Fault


class FaultError(Exception):
    """A fault cannot be planted."""


class _Loader(SourceFileLoader):
    def __init__(self, fault: Fault, path: str) -> None:
        super().__init__(fault.module, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed text; nothing is read from or written to a cache."""
        text = self.get_data(self.path).decode()
        if self._fault.old not in text:
            raise FaultError(f"{self.path}: there is no {self._fault.old!r}")
        changed = text.replace(self._fault.old, self._fault.new)
        code: CodeType = compile(changed, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault, path: str) -> None:
        self._fault, self._path = fault, path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the changed module if it is asked for."""
        if name != self._fault.module:
            return None
        return importlib.util.spec_from_loader(name, _Loader(self._fault, self._path))


def plant(fault: Fault) -> None:
    """Let the next import of the fault's module give the changed one.

    Raises
    ------
    FaultError
        If the module has been imported before or does not exist. The import itself raises it for lost text.
    """
    if fault.module in sys.modules:
        raise FaultError(f"{fault.module} has been imported before the fault was planted")
    spec = importlib.util.find_spec(fault.module)
    if spec is None or spec.origin is None:
        raise FaultError(f"there is no module {fault.module}")
    sys.meta_path.insert(0, _Finder(fault, spec.origin))
