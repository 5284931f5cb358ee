"""Adds the delegate to every interpreter of a script that is started by `rkcosim litert` (docs/delegates.md).

The command copies this file as `sitecustomize.py` into a folder at the start of PYTHONPATH, so Python imports
it before the script.  It runs in the script's Python, which may be another one than that of rkcosim, and
imports the standard library only.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

SETTINGS_VARIABLE = "RKCOSIM_LITERT"
"""Names the JSON file with the delegate's path, its options, and which of these name files."""

MODULES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.python.interpreter")
"""Modules that have a class Interpreter and a function load_delegate."""


def _number(folder: Path) -> int:
    """Return the number of an interpreter, which no other interpreter of the script's processes has."""
    for number in count():
        try:
            os.close(os.open(folder / f"{number}.interpreter", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number
    raise AssertionError


def _options(settings: dict[str, Any], number: int) -> dict[str, str]:
    options: dict[str, str] = dict(settings["options"])
    for name in settings["files"]:
        if number and name in options:
            path = Path(options[name])
            options[name] = str(path.with_name(f"{path.stem}-{number + 1}{path.suffix}"))
    options["json"] = str(Path(settings["folder"], f"{number}.json"))
    return options


def _changed(module: ModuleType) -> None:
    """Let the interpreters of a module use the delegate."""
    settings = json.loads(Path(os.environ[SETTINGS_VARIABLE]).read_text())
    made = module.Interpreter.__init__
    signature = inspect.signature(made)

    @functools.wraps(made)
    def initialise(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        options = _options(settings, _number(Path(settings["folder"])))
        ours = module.load_delegate(settings["delegate"], options)
        others = bound.arguments.get("experimental_delegates") or []
        bound.arguments["experimental_delegates"] = [ours, *others]
        made(*bound.args, **bound.kwargs)

    module.Interpreter.__init__ = initialise


class _Loader(importlib.abc.Loader):
    """Loads a module and changes it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """See the wrapped loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, and change it."""
        self._loader.exec_module(module)
        _changed(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are changed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's description with a loader that changes it; None for other modules."""
        if name not in MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _next() -> None:
    """Import the module `sitecustomize` that this one hides, if there is one."""
    own = Path(__file__).resolve().parent
    places = [place for place in sys.path if Path(place).resolve() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if SETTINGS_VARIABLE in os.environ:
    sys.meta_path.insert(0, _Finder())
    _next()
