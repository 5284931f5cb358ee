"""Find the repositories below a folder, and what commit they are of."""

from __future__ import annotations

import re
import subprocess
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
        part.mkdir(parents=True, exist_ok=True)
        archive = ["git", "-c", "safe.directory=*", "-C", str(bare), "archive", commit]
        with subprocess.Popen(archive, stdout=subprocess.PIPE) as made:
            subprocess.run(["tar", "-x", "-C", str(part)], stdin=made.stdout, check=True)
        if made.returncode:
            raise OSError(f"{bare}: git archive ended with exit code {made.returncode}")
        part.rename(place)
    return Checkout(repository, place, commit, python)
