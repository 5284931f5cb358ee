"""The files of the simulated machine as a tree of ordinary files, for calls that use names.

Device nodes are FIFOs that are never opened (an unprivileged user can create them). The file of a text holds
the text at the time when the tree was created; only its mode and its name are used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PLACES = ("/dev", "/sys", "/proc")
"""Folders that may contain simulated files."""


class ShownNode(Protocol):
    """A device node: absolute path, device numbers, permission bits."""

    @property
    def path(self) -> str: ...
    @property
    def major(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def mode(self) -> int: ...


@dataclass(frozen=True)
class Place:
    """Destination of a path of the simulated machine.

    Members
    -------
    path : name without links.
    real : file in the tree.
    node : device node, or None.
    """

    path: str
    real: Path
    node: Any = None

    def stat(self, *, follow: bool = True) -> os.stat_result:
        """Status as from `os.stat`."""
        return as_node(os.stat(self.real, follow_symlinks=follow), self.node)


def as_node(status: os.stat_result, node: Any) -> os.stat_result:
    """Convert the status of a placeholder file to that of a device node."""
    if node is None or stat.S_ISLNK(status.st_mode):
        return status
    values = [status[n] for n in range(len(status))]
    values[0] = stat.S_IFCHR | node.mode
    values[6] = 0
    named = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
    named["st_rdev"] = os.makedev(node.major, node.minor)
    named = {name: value for name, value in named.items() if name not in _IN_SEQUENCE}
    return os.stat_result(values, named)


_IN_SEQUENCE = (
    *("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size"),
    *("st_atime", "st_mtime", "st_ctime"),
)


class Tree:
    """Create the files below a folder, and find paths in it.

    Parameters
    ----------
    root : folder that is created here and removed by `close`.
    nodes : device nodes.
    links : symbolic links, path to target.
    texts : path to (permission bits, content).
    hidden : folders whose real entries are hidden.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """

    def __init__(
        self,
        root: Path,
        nodes: Iterable[ShownNode],
        links: Mapping[str, str],
        texts: Mapping[str, tuple[int, bytes]],
        hidden: Sequence[str],
    ) -> None:
        self.root, self.hidden = root, tuple(hidden)
        self.nodes = list(nodes)
        root.mkdir(mode=0o700)
        try:
            self._fill(links, texts)
        except BaseException:
            self.close()
            raise

    def _fill(self, links: Mapping[str, str], texts: Mapping[str, tuple[int, bytes]]) -> None:
        lines = [f"h {path}" for path in self.hidden]
        folders: set[str] = set()
        for path in (*self.hidden, *(f"{path}/." for path in PLACES)):
            (self.root / path[1:]).mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            os.mkfifo(self._make(node.path, folders), 0o600)
            lines.append(f"n {node.major} {node.minor} {node.mode:o} {node.path}")
        for path, (mode, content) in texts.items():
            file = self._make(path, folders)
            file.write_bytes(content)
            file.chmod(mode & 0o777 | 0o400)
        for path, target in links.items():
            file = self._make(path, folders)
            if target.startswith("/"):
                (self.root / target[1:]).mkdir(parents=True, exist_ok=True)
                # An absolute link would point outside of the tree.
                target = os.path.relpath(target, os.path.dirname(path))
            file.symlink_to(target)
        lines += [f"d {folder}" for folder in sorted(folders - {"/dev"})]
        (self.root / "manifest").write_text("\n".join(lines) + "\n")
        self._folders = folders - {"/dev"} | set(self.hidden)

    def _make(self, path: str, folders: set[str]) -> Path:
        file = self.root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        folders.add(os.path.dirname(path))
        return file

    def find(self, path: str, *, follow: bool = True) -> Place | None:
        """Destination of an absolute or relative path; None if it is outside of the simulated machine.

        Raises
        ------
        FileNotFoundError
            For a path below a folder whose real entries are hidden.
        """
        name = os.path.normpath(os.path.join(os.getcwd(), path)) if not path.startswith("/") else path
        name = os.path.normpath(name)
        if name.startswith("//"):
            name = name[1:]
        if not name.startswith(tuple(f"{place}/" for place in PLACES)):
            return None
        real = self.root / name[1:]
        try:
            status = real.stat() if follow else real.lstat()
        except OSError:
            if any(name == hidden or name.startswith(hidden + "/") for hidden in self.hidden):
                raise FileNotFoundError(2, os.strerror(2), path) from None
            return None
        if stat.S_ISDIR(status.st_mode) and name not in self._folders and os.path.isdir(name):
            return None
        if follow:
            name = os.path.realpath(real).removeprefix(os.path.realpath(self.root))
        node = next((node for node in self.nodes if node.path == name), None)
        return Place(name, real, node)

    def close(self) -> None:
        """Remove the tree."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self.root)
