"""Public names of a package whose modules are imported when a name is first used."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], deprecated: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, so that importing one of its modules does not import the others.

    The package also gets a `__dir__` that lists these names and those of `__all__`, so that shells and
    notebooks complete them; names that it only imports are left out.

    Parameters
    ----------
    package
        Name of the package.
    homes
        For each public name the module that has it, and after a colon its name there if it is another.
    deprecated
        For each of these names that will go away what to use instead, as "rkcosim.model.TaskRow"; they are
        not listed, and using one gives a DeprecationWarning (docs/api/stability.md).
    """
    leaving = deprecated or {}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if name in leaving:
            text = f"{package}.{name} will go away: use {leaving[name]}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        home, _, there = homes[name].partition(":")
        return getattr(import_module(home), there or name)

    def __dir__() -> list[str]:
        there = vars(module)
        public = {*homes, *there.get("__all__", ())} - {*leaving}
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
