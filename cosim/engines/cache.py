"""The user's cache of built libraries: location, locks, checks."""

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
from typing import IO

from rkcosim.base import progress as under_way
from rkcosim.base import trust
from rkcosim.base.folders import at_home, user_cache
from rkcosim.engines import guard, toolchain
from rkcosim.engines.protocol import BuildError

Progress = Callable[[str], None]

KEEP_ENTRIES = 40
"""Number of built models that are kept; beyond that, the least recently used ones are removed."""

LEFTOVER_SECONDS = 6 * 3600
"""Age in seconds from which a working folder without a lock is removed; those of builds have one."""

IN_USE = ".in-use"
"""Name of the file in a working folder that is locked as long as the folder is in use."""

LOCK_SECONDS = 1200
"""Seconds for which a process waits for another one's build."""


_MAKING = ".making-"
"""Begin of the name of a working folder that is not locked yet."""


def say(text: str) -> None:
    """Default progress: a line on standard error, or in the progress display of the command line."""
    under_way.say(text)


def cache_folders() -> list[Path]:
    """Return the folders of built files: first the one that is written, then those that are only read.

    They are those of `RKCOSIM_CACHE`, separated as in PATH, or else `rkcosim` in the user's cache folder.
    None of them must exist.
    """
    named = [part for part in os.environ.get("RKCOSIM_CACHE", "").split(os.pathsep) if part]
    if named:
        return [at_home(Path(part)) for part in named]
    return [user_cache() / "rkcosim"]


def cache_folder(*, programs: bool = True) -> Path:
    """Return the folder that is written, the first of `cache_folders`; it is made if needed.

    Parameters
    ----------
    programs : True if libraries are to be loaded from it.

    Raises
    ------
    BuildError
        if it cannot be made or written, others can write to it, or its file system forbids programs; the
        message names the folder and the variable.
    """
    folder = cache_folders()[0]
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        reason = trust.why_not(folder)
        if reason is not None:
            raise BuildError(
                f"the cache folder {folder} is not used, because {reason}: engines from it could be "
                "anybody's code; change that or set the variable RKCOSIM_CACHE to another folder"
            )
        with tempfile.TemporaryFile(dir=folder):
            pass
        if programs and (reason := toolchain.no_programs(folder)):
            raise BuildError(f"the cache folder {folder} cannot be used: {reason}")
    except OSError as error:
        raise BuildError(
            f"the cache folder {folder} cannot be written ({error.strerror or error}): make it writable or "
            "set the variable RKCOSIM_CACHE to another folder"
        ) from error
    return folder


@contextlib.contextmanager
def locked(folder: Path, key: str, progress: Progress) -> Iterator[Progress]:
    """Hold the lock of `key`, so that only one of several processes builds; raises BuildError.

    Yields
    ------
    A function to be called with the state of the build, which is shown to those who wait for the lock.
    """
    path = folder / f"{key}.lock"
    deadline = time.monotonic() + LOCK_SECONDS
    with contextlib.ExitStack() as held:
        file = held.enter_context(_opened(path))
        if not _try_lock(file):
            progress("another process is building the same model, waiting for it")
            with under_way.step("another process") as step:
                while not _try_lock(file):
                    if time.monotonic() > deadline:
                        raise BuildError(f"another process has held {path} for {LOCK_SECONDS} s") from None
                    file.seek(0)
                    step.detail = file.read()
                    time.sleep(0.2)
        if not _is_at(file, path):  # the entry was removed with its lock
            held.close()
            with locked(folder, key, progress) as tell:
                yield tell
            return

        def tell(text: str) -> None:
            with contextlib.suppress(OSError):  # a full disk, which the build itself reports
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()

        tell("")
        try:
            yield tell
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: Path) -> IO[str]:
    try:
        return open(path, "a+", encoding="utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be written ({error.strerror or error})") from error


def _is_at(file: IO[str], path: Path) -> bool:
    """Return whether a file that was opened at a path is still the one that is there."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find(key: str, name: str, progress: Progress) -> Path | None:
    """Return the file `name` of `key` in the first of `cache_folders` that has it completely, or None.

    No lock and no write access is needed, because entries are written atomically.
    """
    own, *others = cache_folders()
    found = fetch(own, key, name, progress)
    for folder in others:
        found = found or fetch(folder, key, name, progress, own=False)
    return found


def fetch(folder: Path, key: str, name: str, progress: Progress, *, own: bool = True) -> Path | None:
    """Return the cached file `name` of `key`, or None without one that is whole and can be trusted.

    A damaged file is reported. So is a file that another user owns or can write, since that user could have
    written the hash beside it, too.

    Parameters
    ----------
    own : True if a damaged entry is removed; False for a folder that is only read.
    """
    entry = folder / key
    target = entry / name
    if not os.path.exists(entry):  # unlike Path.exists, no error if the folder must not be searched
        return None
    try:
        for place in (entry, entry / "meta.json", target):
            doubt = trust.why_not(place)
            if doubt is not None:
                progress(f"cache entry {entry} is not used: {doubt}")
                return None
        meta = json.loads((entry / "meta.json").read_text())
        if meta["files"][name] == _digest(target):
            with contextlib.suppress(OSError):
                os.utime(entry)  # marks the entry as used, see _prune
            return target
        reason = f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    what = "building it again" if own else "not using it"
    progress(f"cache entry {entry} is damaged ({reason}), {what}")
    if own:
        shutil.rmtree(entry, ignore_errors=True)
    return None


def store(folder: Path, key: str, files: list[Path], facts: dict[str, object]) -> Path:
    """Put files into the cache under `key` atomically; return the folder in which they are now."""
    entry = folder / key
    try:
        with _in_use(folder, ".new-") as staged:
            for file in files:
                shutil.copy2(file, staged / file.name)
                (staged / file.name).chmod((staged / file.name).stat().st_mode & ~0o022)
            meta = {"files": {file.name: _digest(staged / file.name) for file in files}, **facts}
            (staged / "meta.json").write_text(json.dumps(meta, indent=1))
            (staged / "meta.json").chmod(0o644)
            shutil.rmtree(entry, ignore_errors=True)
            staged.rename(entry)
            (entry / IN_USE).unlink()
    except OSError as error:
        raise BuildError(f"the cache folder {folder} cannot store a new entry: {error}") from error
    _prune(folder, entry)
    return entry


@contextlib.contextmanager
def _in_use(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder with a lock, which tells others that it is in use; at the end it is removed.

    A clock that jumps cannot make it look old: it gets its name when it has the lock. If another process
    removes it before, another one is made.
    """
    with contextlib.ExitStack() as held:
        while True:
            made = Path(tempfile.mkdtemp(prefix=_MAKING, dir=folder))
            path = made.with_name(prefix + made.name.removeprefix(_MAKING))
            try:
                lock = held.enter_context(open(made / IN_USE, "a", encoding="utf-8"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                made.rename(path)
                break
            except FileNotFoundError:
                held.close()
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
        try:
            yield path
        finally:
            held.close()  # on some file systems, a folder with an open file cannot be removed
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """Yield a working folder in the cache for a build, which is removed with what the build has started.

    Raises
    ------
    BuildError
        for an error of the system within the `with` block, as a full disk.
    """
    try:
        with _in_use(folder, ".build-") as work, guard.guarded(work):
            yield work
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise BuildError(
            f"the cache folder {folder} cannot be written ({where}{error.strerror or error}): free some "
            "space or set the variable RKCOSIM_CACHE to another folder"
        ) from error


def built(
    key: str,
    name: str,
    what: str,
    build: Callable[[Path], object],
    progress: Progress,
    check: Callable[[Path], object] | None = None,
) -> Path:
    """Return the file `name` of `key`, from the cache or built now.

    Parameters
    ----------
    what : description, for the facts of the entry.
    build : writes the file into the folder that it is given.
    check : called with the file before it enters the cache; raises BuildError if it is not usable.

    Raises
    ------
    BuildError
        if it cannot be built, or the cache cannot be written.
    """
    found = find(key, name, progress)
    if found is not None:
        return found
    folder = cache_folder()
    with locked(folder, key, progress):
        found = fetch(folder, key, name, progress)
        if found is None:
            with working(folder) as work:
                build(work)
                if check is not None:
                    check(work / name)
                found = store(folder, key, [work / name], {"what": what}) / name
    return found


def _prune(folder: Path, kept: Path) -> None:
    """Remove the remains of interrupted builds, and the least recently used models, but not `kept`."""
    entries: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may be doing the same
            if path.name.startswith((".build-", ".new-", _MAKING)):
                if _is_leftover(path):
                    shutil.rmtree(path, ignore_errors=True)
            elif path != kept and (path / "meta.json").exists():
                entries.append((path.stat().st_mtime, path))
    for _, path in sorted(entries)[: -(KEEP_ENTRIES - 1) or None]:
        shutil.rmtree(path, ignore_errors=True)
        lock = path.with_name(f"{path.name}.lock")
        with contextlib.suppress(OSError), open(lock, "r+", encoding="utf-8") as file:
            if _try_lock(file):  # nobody builds it
                lock.unlink()


def _is_leftover(path: Path) -> bool:
    """Return whether nobody uses a working folder.

    A folder without a lock has just been made, or is that of `doctor` or of a version without locks.
    """
    try:
        with open(path / IN_USE, "r+", encoding="utf-8") as lock:
            return _try_lock(lock)
    except FileNotFoundError:
        return time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
