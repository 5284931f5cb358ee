"""Adds the plug-in to a script that is started by `rkcosim litert` or `rkcosim ort` (docs/delegates.md).

Every interpreter of LiteRT gets the delegate, every session of onnxruntime the provider.  The command copies
this file as `sitecustomize.py` into a folder at the start of PYTHONPATH, so Python imports it before the
script.  It runs in the script's Python, which may be another one than that of rkcosim, and imports the
standard library only.
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
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

SETTINGS_VARIABLE = "RKCOSIM_PLUGIN"
"""Names the JSON file with the runtime, the plug-in's path, its options, and which of these name files."""

NOT_APPLIED = "rkcosim: LiteRT does not apply the delegate; it writes the reason on standard error"
"""Text for an exception of LiteRT that has none."""

CUSTOM = "unresolved custom op"
"""Words of LiteRT's exception for an operator that it does not have itself."""

PROVIDER = "RkCosim"
"""Name of the execution provider."""


def _number(folder: Path) -> int:
    """Return the number of an interpreter or a session, which no other one of the script's processes has."""
    for number in count():
        try:
            os.close(os.open(folder / f"{number}.plugin", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number
    raise AssertionError


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(Path(os.environ[SETTINGS_VARIABLE]).read_text(encoding="utf-8"))
    return settings


def _options(settings: dict[str, Any]) -> dict[str, str]:
    """Return the options of the next interpreter or session."""
    options: dict[str, str] = dict(settings["options"])
    number = _number(Path(settings["folder"]))
    for name in settings["files"]:
        if number and name in options:
            path = Path(options[name])
            options[name] = str(path.with_name(f"{path.stem}-{number + 1}{path.suffix}"))
    options["json"] = str(Path(settings["folder"], f"{number}.json"))
    return options


def _with_delegate(module: ModuleType) -> None:
    """Let the interpreters of a module use the delegate."""
    settings = _settings()
    made = module.Interpreter.__init__
    signature = inspect.signature(made)

    @functools.wraps(made)
    def initialise(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        options = _options(settings)
        others = bound.arguments.get("experimental_delegates") or []

        def apply(**more: str) -> None:
            ours = module.load_delegate(settings["library"], options | more)
            bound.arguments["experimental_delegates"] = [ours, *others]
            made(*bound.args, **bound.kwargs)

        try:
            apply()
        except RuntimeError as error:
            if str(error) and CUSTOM not in str(error):
                raise
        else:
            return
        bound.arguments.pop("experimental_delegates")
        # LiteRT prepares all operators before it applies a usual delegate.  It raises an exception without
        # text if the size of a tensor depends on data, and another one for operators that only XNNPACK has.
        try:
            apply(dynamic="1")
        except RuntimeError as error:
            if str(error):
                raise
            raise RuntimeError(NOT_APPLIED) from error

    module.Interpreter.__init__ = initialise


def _with_provider(module: ModuleType) -> None:
    """Let the sessions of onnxruntime use the provider, before the ones that the script names."""
    settings = _settings()
    made = module.InferenceSession.__init__
    signature = inspect.signature(made)
    lock = threading.Lock()

    @functools.wraps(made)
    def initialise(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        with lock:
            if PROVIDER not in module.C.get_available_providers():
                module.C.register_execution_provider_library(PROVIDER, settings["library"])
        if PROVIDER not in module.C.get_available_providers():
            version = sys.modules["onnxruntime"].__version__
            raise RuntimeError(
                f"rkcosim: onnxruntime {version} does not take plug-ins in the list of providers"
            )
        names = list(bound.arguments.get("providers") or ["CPUExecutionProvider"])
        options = bound.arguments.pop("provider_options", None)
        others = list(zip(names, options, strict=True)) if options else names
        ours = _options(settings)
        bound.arguments["providers"] = [(PROVIDER, ours), *others]
        used = False
        try:
            made(*bound.args, **bound.kwargs)
            used = PROVIDER in bound.args[0].get_providers()
        finally:
            result = Path(ours["json"])
            if not used and not result.exists():  # the provider was not even started
                result.write_text(json.dumps({"models": [], "left": [], "graphs": []}), encoding="utf-8")

    module.InferenceSession.__init__ = initialise


_WITH_DELEGATE = {
    name: _with_delegate
    for name in (
        "ai_edge_litert.interpreter",
        "tflite_runtime.interpreter",
        "tensorflow.lite.python.interpreter",
    )
}
CHANGES = {
    "litert": _WITH_DELEGATE,
    "onnxruntime": {"onnxruntime.capi.onnxruntime_inference_collection": _with_provider},
}
"""For each runtime, the modules that are changed: those that have a class Interpreter and a function
load_delegate, and the one that has the class InferenceSession."""


class _Loader(importlib.abc.Loader):
    """Loads a module and changes it."""

    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """See the wrapped loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, and change it."""
        self._loader.exec_module(module)
        self._change(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are changed."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's description with a loader that changes it; None for other modules."""
        if name not in self._changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._changes[name])
        return spec


def _next() -> None:
    """Import the module `sitecustomize` that this one hides, if there is one."""
    own = Path(__file__).resolve().parent
    places = [place for place in sys.path if Path(place).resolve() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if SETTINGS_VARIABLE in os.environ:
    sys.meta_path.insert(0, _Finder(CHANGES[_settings()["runtime"]]))
    _next()
