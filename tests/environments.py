"""Processes that find only some of the installed packages, as in an environment without the others."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]

HIDE = """
import importlib.machinery, sys
hidden = set({hidden!r})
def without(finder):
    class Without:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return None if name.partition(".")[0] in hidden else finder.find_spec(name, path, target)
        find_distributions = getattr(finder, "find_distributions", None)
        invalidate_caches = getattr(finder, "invalidate_caches", lambda: None)
    return Without
sys.meta_path[:] = [without(finder) for finder in sys.meta_path]
"""


def required(extras: Iterable[str] = (), packages: Iterable[str] = ()) -> set[str]:
    """Return the packages that the core, these extras and these packages require, in normal form."""
    lines = [
        *PROJECT["dependencies"],
        *packages,
        *(line for name in extras for line in PROJECT["optional-dependencies"][name]),
    ]
    found, rest = set(), [re.match(r"[\w.-]+", line)[0] for line in lines]  # type: ignore[index]
    while rest:
        name = re.sub(r"[-_.]+", "-", rest.pop()).lower()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        if name not in found:
            found.add(name)
            lines = [line for line in distribution.requires or [] if "extra ==" not in line]
            rest += [re.match(r"[\w.-]+", line)[0] for line in lines]  # type: ignore[index]
    return found


def hidden_modules(extras: Iterable[str] = (), packages: Iterable[str] = ()) -> set[str]:
    """Return the modules of the packages that neither the core nor these extras and packages bring."""
    kept = required(extras, packages) | {"rkcosim"}
    return {
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if not kept & {re.sub(r"[-_.]+", "-", name).lower() for name in packages}
    }


def hide(modules: Iterable[str], folder: Path) -> None:
    """Write a `sitecustomize` that hides modules from every process with this folder in its PYTHONPATH."""
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden=sorted(modules)))
