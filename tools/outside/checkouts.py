"""Find the repositories below a folder, and what commit they are of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.outside.suite import Checkout


def locate(folder: Path, repository: str, work: Path, python: str) -> Checkout | None:
    """Return the files of a repository below `folder`, or None.

    Parameters
    ----------
    repository : owner/name, found as `owner+name`, `owner/name` or `owner__name`.
    work : a folder for the files of a bare repository, which are written there once for each commit.
    """
    for name in (repository.replace("/", "+"), repository, repository.replace("/", "__")):
        place = folder / name
        if not place.is_dir():
            continue
        bare = next((here for here in (place, place / "repo") if _is_bare(here)), None)
        if bare is not None:
            return _unpacked(bare, repository, work, python)
        return Checkout(repository, place, _commit(place), python)
    return None


def installed(repository: str, package: str, python: str) -> Checkout | None:
    """Return a package that an interpreter has, with its version as the commit, or None."""
    asked = f"import importlib.metadata as m; d = m.distribution({package!r})"
    asked += "; print(d.version); print(d.locate_file(''))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    version, folder = done.stdout.splitlines()
    return Checkout(repository, Path(folder), version, python)


def _is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir()


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _commit(folder: Path) -> str:
    """The commit of a checkout, or what its file COMMIT says."""
    if (folder / ".git").exists():
        return _git(folder, "rev-parse", "HEAD")
    written = folder / "COMMIT"
    text = written.read_text().strip() if written.is_file() else ""
    if text and not re.fullmatch(r"[0-9a-f]{7,40}", text):
        raise ValueError(f"{written}: {text[:60]!r} is no commit (7 to 40 hexadecimal digits)")
    return text


def _unpacked(bare: Path, repository: str, work: Path, python: str) -> Checkout:
    commit = _git(bare, "rev-parse", "HEAD")
    place = work / f"{repository.replace('/', '+')}@{commit[:12]}"
    if not place.is_dir():
        part = place.with_name(f"{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        for name, mode, data in _blobs(bare, commit):
            path = part / name
            if ".." in Path(name).parts or name.startswith("/"):
                raise OSError(f"{bare}: a file would be outside of its folder: {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            if mode == b"120000":
                path.symlink_to(os.fsdecode(data))
            else:
                path.write_bytes(data)
                path.chmod(0o755 if mode == b"100755" else 0o644)
        part.rename(place)
    return Checkout(repository, place, commit, python)


def _blobs(bare: Path, commit: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, mode and contents of the files of a commit; a snapshot may lack large ones."""
    git = ["git", "-c", "safe.directory=*", "-C", str(bare)]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", commit], capture_output=True, check=True).stdout
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        for entry in filter(None, listed.split(b"\0")):
            head, _, name = entry.partition(b"\t")
            mode, kind, identity = head.split()
            if kind != b"blob":
                continue
            reader.stdin.write(identity + b"\n")
            reader.stdin.flush()
            answer = reader.stdout.readline().split()
            if len(answer) == 3:
                data = reader.stdout.read(int(answer[2]))
                reader.stdout.read(1)
                yield os.fsdecode(name), mode, data
        reader.stdin.close()
