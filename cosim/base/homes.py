"""Public names of a package whose modules are imported when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, so that importing one of its modules does not import the others.

    The package also gets a `__dir__` that lists these names and those of `__all__`, so that shells and
    notebooks complete them; names that it only imports are left out.

    Parameters
    ----------
    package
        Name of the package.
    homes
        For each public name the module that has it, and after a colon its name there if it is another.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        home, _, there = homes[name].partition(":")
        return getattr(import_module(home), there or name)

    def __dir__() -> list[str]:
        there = vars(module)
        public = {*homes, *there.get("__all__", ())}
        return sorted(
            public.union(
                name
                for name, value in there.items()
                if name.startswith("__") or (isinstance(value, ModuleType) and value.__package__ == package)
            )
        )

    module = sys.modules[package]
    vars(module)["__dir__"] = __dir__
    return __getattr__
