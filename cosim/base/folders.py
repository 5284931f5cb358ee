"""Folders of the user: the home folder, and the one for caches."""

from __future__ import annotations

import os
from pathlib import Path


class NoHomeError(ValueError):
    """There is no home folder: neither the variable HOME nor the password file names one."""


def at_home(path: Path) -> Path:
    """Return a path whose `~` is replaced by the home folder.

    Raises
    ------
    NoHomeError
        if it is needed and there is none.
    """
    found = Path(os.path.expanduser(path))
    if found.parts[:1] == ("~",):
        raise NoHomeError(f"{path}: there is no home folder; set the variable HOME")
    return found


def user_cache() -> Path:
    """Return the folder for caches: that of XDG_CACHE_HOME, else `~/.cache`; it may not exist.

    Raises
    ------
    NoHomeError
        if there is no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base else at_home(Path("~/.cache"))
