"""Public names of a package whose modules are imported when a name is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, so that importing one of its modules does not import the others.

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
        module, _, there = homes[name].partition(":")
        return getattr(import_module(module), there or name)

    return __getattr__
