"""The user's folder of built libraries: found, locked, checked."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cosim import progress as under_way
from cosim.engines.errors import BuildError

Progress = Callable[[str], None]

KEEP_ENTRIES = 40
"""Built models that stay; beyond that the ones longest out of use go."""

LEFTOVER_SECONDS = 6 * 3600
"""Age from which the working folder of an interrupted build is removed."""

LOCK_SECONDS = 1200
"""How long one process waits for another one's build."""


def say(text: str) -> None:
    """Default progress: a line on the error stream, or where the command line shows what is under way."""
    under_way.say(text)


def cache_folder() -> Path:
    """The cache folder, made if needed: `RKCOSIM_CACHE`, else `rkcosim` in the user's cache folder.

    Raises
    ------
    BuildError
        if it cannot be made or written; the text names the folder and the variable.
    """
    named = os.environ.get("RKCOSIM_CACHE")
    if named:
        folder = Path(named).expanduser()
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        home = Path(base) if base else Path("~/.cache").expanduser()
        folder = home / "rkcosim"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BuildError(
            f"the cache folder {folder} cannot be written ({error.strerror or error}): "
            "make it writable or name another folder in the variable RKCOSIM_CACHE"
        ) from error
    return folder


@contextlib.contextmanager
def locked(folder: Path, key: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of `key`, so that two processes build once."""
    path = folder / f"{key}.lock"
    with open(path, "w") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process has held {path} for {LOCK_SECONDS} s") from None
                if not told:
                    progress("another process is building the same model, waiting for it")
                    told = True
                time.sleep(0.2)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(folder: Path, key: str, name: str, progress: Progress) -> Path | None:
    """The cached file `name` of `key`, or None if there is none or it is damaged (which is said)."""
    entry = folder / key
    target = entry / name
    if not entry.exists():
        return None
    try:
        meta = json.loads((entry / "meta.json").read_text())
        if meta["files"][name] == _digest(target):
            with contextlib.suppress(OSError):
                os.utime(entry)  # in use: see _prune
            return target
        reason = f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    progress(f"cache entry {entry} is damaged ({reason}), building it again")
    shutil.rmtree(entry, ignore_errors=True)
    return None


def store(folder: Path, key: str, files: list[Path], facts: dict[str, object]) -> Path:
    """Put files into the cache under `key`, at once and whole; the folder they are in now."""
    entry = folder / key
    try:
        staged = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        for file in files:
            shutil.copy2(file, staged / file.name)
        meta = {"files": {file.name: _digest(staged / file.name) for file in files}, **facts}
        (staged / "meta.json").write_text(json.dumps(meta, indent=1))
        shutil.rmtree(entry, ignore_errors=True)
        staged.rename(entry)
    except OSError as error:
        raise BuildError(f"the cache folder {folder} cannot take a new entry: {error}") from error
    _prune(folder)
    return entry


def _prune(folder: Path) -> None:
    """Remove what interrupted builds left, and the models longest out of use."""
    entries: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may be doing the same
            changed = path.stat().st_mtime
            if path.name.startswith((".build-", ".new-")):
                if time.time() - changed > LEFTOVER_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
            elif (path / "meta.json").exists():
                entries.append((changed, path))
    for _, path in sorted(entries)[:-KEEP_ENTRIES]:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.with_name(f"{path.name}.lock").unlink()
