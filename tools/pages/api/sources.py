"""Objects of the sources by name, read with griffe; nothing is imported, so extras may be missing."""

from __future__ import annotations

from pathlib import Path

import griffe

from rkcosim.base import PACKAGE

ROOT = Path(PACKAGE).parent

Found = griffe.Module | griffe.Class | griffe.Function | griffe.Attribute


class NameProblem(ValueError):
    """A name that a page gives cannot be found in the sources; the text says which."""


class Sources:
    """The modules of a checkout, each read when one of its names is first needed.

    Parameters
    ----------
    root
        The folder with `rkcosim/`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._modules: dict[str, griffe.Module | None] = {}

    def module(self, path: str) -> griffe.Module | None:
        """Return a module by its name, None if there is none."""
        if path not in self._modules:
            base = self.root.joinpath(*path.split("."))
            files = [base / "__init__.py", base.with_suffix(".py")]
            file = next((one for one in files if one.is_file()), None)
            self._modules[path] = None
            if file is not None:
                above, _, name = path.rpartition(".")
                parent = self.module(above) if above else None
                code = file.read_text(encoding="utf-8")
                self._modules[path] = griffe.visit(name, filepath=file, code=code, parent=parent)
        return self._modules[path]

    def find(self, path: str) -> Found | None:
        """Return what a dotted name stands for in the project, following imports; None outside of it."""
        if not path.startswith("rkcosim"):
            return None
        there = self.module(path)
        if there is not None:
            return there
        above, _, name = path.rpartition(".")
        parent = self.find(above) if above else None
        if parent is None:
            return None
        member = parent.members.get(name)
        if member is None and parent.is_class:
            for base in self.bases(parent):  # type: ignore[arg-type]
                if (inherited := self.find(f"{base.path}.{name}")) is not None:
                    return inherited
        if isinstance(member, griffe.Alias):
            return self.find(member.target_path)
        return member  # type: ignore[return-value]

    def get(self, path: str) -> Found:
        """Return what a dotted name stands for.

        Raises
        ------
        NameProblem
            If there is nothing of this name.
        """
        found = self.find(path)
        if found is None:
            raise NameProblem(f"nothing in the sources is called {path}")
        return found

    def bases(self, cls: griffe.Class) -> list[griffe.Class]:
        """Return the direct base classes that are part of the project."""
        found = []
        for base in cls.bases:
            path = base if isinstance(base, str) else base.canonical_path
            one = self.find(path) if "." in path else None
            if isinstance(one, griffe.Class):
                found.append(one)
        return found

    def line(self, cls: griffe.Class) -> list[griffe.Class]:
        """Return a class and all of its bases in the project, nearest first."""
        found = [cls]
        for base in self.bases(cls):
            found += [one for one in self.line(base) if one not in found]
        return found

    def public(self, path: str) -> list[str]:
        """Return the public names of a module: those of `__all__`, otherwise those that it defines.

        Raises
        ------
        NameProblem
            If it is no module.
        """
        module = self.module(path)
        if module is None:
            raise NameProblem(f"{path} is no module")
        if module.exports is not None:
            return [name if isinstance(name, str) else str(name) for name in module.exports]
        return [
            name
            for name, member in module.members.items()
            if not name.startswith("_")
            and not member.is_alias
            and not member.is_module
            and (member.is_class or member.is_function or member.docstring is not None)
        ]
