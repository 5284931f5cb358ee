"""Atomic writes, and errors that name the requested file. (In the lowest room that writes files.)"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def named(path: str | Path, *others: str | Path) -> Iterator[None]:
    """Context for writing a file: an error of the system names `path`, the file that was requested.

    Parameters
    ----------
    others : temporary names of the file, and other files that belong to it.

    Raises
    ------
    OSError
        as it was raised, with `path` as its file name if it had none or one of these; an error that names
        another file is not changed.
    """
    try:
        yield
    except OSError as error:
        given = error.filename
        if given is not None and os.fsdecode(given) not in {str(name) for name in (path, *others)}:
            raise
        number = error.errno or errno.EIO
        raise OSError(number, error.strerror or str(error) or os.strerror(number), str(path)) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside the file, which is renamed at the end, or removed if writing fails.

    Its name (`NAME.RANDOM.part`) is new, so that two processes can write one file: it is then the one of the
    last. The folder is made if it does not exist.  A symbolic link remains and its target is written.  A
    device or a FIFO remains, too: the whole contents are written into it at the end.

    Raises
    ------
    OSError
        if the file cannot be written; names `path`.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not (target.is_file() or target.is_dir()):
        with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
            part = Path(folder) / path.name
            with named(path, part, target):
                yield part
                with part.open("rb") as source, target.open("wb") as device:
                    shutil.copyfileobj(source, device)
        return
    part = target.with_name(f"{_shortened(target.name)}.{os.urandom(6).hex()}.part")
    with named(path, part, target):
        make_folder(target)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        try:
            yield part
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _shortened(name: str) -> str:
    """Return a name, or so much of it that more fits into the 255 bytes of a file's name."""
    return os.fsdecode(os.fsencode(name)[:200])


def make_folder(path: Path) -> None:
    """Make the folder of a file that is to be written; raises OSError that names `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        folder = error.filename or path.parent
        text = f"the folder {folder} cannot be made ({error.strerror or error})"
        raise OSError(errno.ENOTDIR, text, str(path)) from error
