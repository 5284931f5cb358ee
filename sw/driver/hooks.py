"""The simulated device inside a Python process: replaces functions of os, fcntl, mmap and open.

A device's descriptor is a real one (see `rkcosim.driver.server.descriptors`), so that `os.dup`, `select.poll`
and everything else that only uses descriptors works without hooks. Calls that bypass Python, such as
`ctypes` calls of the C library, do not reach the device: run such a program with `rkcosim device`.
"""

from __future__ import annotations

import builtins
import ctypes as ct
import fcntl
import functools
import io
import mmap
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from errno import EEXIST, ENOTDIR
from pathlib import Path
from typing import Any

from rkcosim.driver.kernel import Credentials, Kernel, KernelError, TextFile
from rkcosim.driver.server.calls import Machine
from rkcosim.driver.server.tree import Place, as_node
from rkcosim.driver.user import OwnMemory

IOCTL_BYTES = 1024
"""Size of the copy that Python's ioctl makes of a buffer that is not changed in place."""

_active: Hooks | None = None


class _Entry:
    """An entry of a simulated folder, like `os.DirEntry`."""

    def __init__(self, hooks: Hooks, folder: str, entry: os.DirEntry[str]) -> None:
        self.name, self.path = entry.name, os.path.join(folder, entry.name)
        self._entry, self._hooks = entry, hooks

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Status as from `os.stat`."""
        return self._hooks.stat(self.path, follow_symlinks=follow_symlinks)


class _Entries:
    """Result of `os.scandir` for a simulated folder."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._rest = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self

    def __next__(self) -> _Entry:
        return next(self._rest)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Discard the remaining entries."""
        self._rest = iter(())


class Hooks:
    """Context manager in which Python's file functions reach a simulated kernel.

    Modules that have imported a function (`from fcntl import ioctl`) get the hooked function as well, except
    those of the standard library and of this project.

    Parameters
    ----------
    kernel : see `rkcosim.driver.kernel.Kernel`; the caller closes it afterwards.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._inside = threading.local()
        self._undo: list[tuple[Any, str, Any]] = []
        self.mapped = self._guarded(lambda *_: None, self._mapped)
        """(descriptor for the caller to close, offset) to map for the machine's descriptors, or None."""

    def __enter__(self) -> Hooks:
        global _active
        if _active is not None:
            raise RuntimeError("this process already has a simulated device: leave its `with` block first")
        self._folder = tempfile.TemporaryDirectory(prefix="rkcosim-")
        self.machine = Machine(self._kernel)
        try:
            self.tree = self.machine.tree(Path(self._folder.name) / "root")
        except BaseException:
            self.machine.close()
            self._folder.cleanup()
            raise
        self._user = OwnMemory(self.machine)
        self._who = Credentials(os.getpid(), os.getuid(), os.getgid())
        self._real: dict[str, Any] = {}
        _active = self
        self._patch()
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)
        self._undo.clear()
        _active = None
        self.machine.close()
        self.tree.close()
        self._folder.cleanup()

    # Installation of the hooks

    def _patch(self) -> None:
        places: list[tuple[Any, str, Callable[..., Any]]] = [
            *((os, name, getattr(self, f"_{name}")) for name in ("open", "close", "fstat", "lseek", "write")),
            *((os, name, getattr(self, f"_{name}")) for name in ("stat", "lstat", "access", "readlink")),
            *((os, name, getattr(self, f"_{name}")) for name in ("listdir", "scandir")),
            (fcntl, "ioctl", self._ioctl),
            (builtins, "open", self._open_file),
        ]
        replaced: dict[int, Any] = {}
        for owner, name, hook in places:
            original = getattr(owner, name)
            key = "open_file" if owner is builtins else name
            self._real[key] = original
            replacement = self._guarded(original, hook)
            replaced[id(original)] = replacement
            self._set(owner, name, replacement)
        self._set(io, "open", builtins.open)
        mapping = _mapping(self, mmap.mmap)
        replaced[id(mmap.mmap)] = mapping
        self._set(mmap, "mmap", mapping)
        for module in list(sys.modules.values()):
            name = getattr(module, "__name__", "")
            top = name.partition(".")[0]
            if (top in sys.stdlib_module_names and top != "__main__") or top == "rkcosim":
                continue
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in replaced:
                    self._set(module, key, replaced[id(value)])

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _guarded(self, original: Any, hook: Callable[..., Any]) -> Any:
        """The hook, or the original function where the hooks call it."""

        @functools.wraps(original)
        def call(*args: Any, **named: Any) -> Any:
            if getattr(self._inside, "now", False):
                return original(*args, **named)
            self._inside.now = True
            try:
                return hook(*args, **named)
            except KernelError as error:
                raise OSError(error.code, os.strerror(error.code)) from None
            finally:
                self._inside.now = False

        return call

    def _place(self, path: Any, follow: bool = True, dir_fd: int | None = None) -> Place | None:
        """Destination of a path; None outside of the simulated machine."""
        if dir_fd is not None or isinstance(path, int):
            return None
        try:
            name = os.fsdecode(path)
        except TypeError:
            return None
        return self.tree.find(name, follow=follow)

    # os

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, not flags & os.O_NOFOLLOW, dir_fd)
        if place is None:
            return self._real["open"](path, flags, mode, dir_fd=dir_fd)
        status = place.stat()
        if stat.S_ISDIR(status.st_mode) or flags & os.O_PATH:
            return self._real["open"](place.real, flags)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise KernelError(EEXIST)
        if flags & os.O_DIRECTORY:
            raise KernelError(ENOTDIR)
        return self.machine.open(place.path, flags, self._who)

    def _close(self, fd: int) -> None:
        self._real["close"](fd)
        self.machine.descriptors.reap()

    def _fstat(self, fd: int) -> os.stat_result:
        status = self._real["fstat"](fd)
        obj = self.machine.descriptors.find_fd(fd) if stat.S_ISFIFO(status.st_mode) else None
        node = next((node for node in self.machine.nodes if node.path == getattr(obj, "path", None)), None)
        return as_node(status, node)

    def _lseek(self, fd: int, position: int, whence: int) -> int:
        obj = self.machine.descriptors.find_fd(fd)
        if obj is None:
            return self._real["lseek"](fd, position, whence)
        return self.machine.size(obj) if whence == os.SEEK_END else 0

    def _write(self, fd: int, data: Any) -> int:
        obj = self.machine.descriptors.find_fd(fd)
        if isinstance(obj, TextFile):
            return self.machine.write(obj, bytes(data))
        return self._real["write"](fd, data)

    def _stat(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if isinstance(path, int):
            return self._fstat(path)
        place = self._place(path, follow_symlinks, dir_fd)
        if place is None:
            return self._real["stat"](path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return place.stat(follow=follow_symlinks)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> os.stat_result:
        """Result of a program's `os.stat`."""
        return os.stat(path, follow_symlinks=follow_symlinks)

    def _lstat(self, path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        return self._stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def _access(self, path: Any, mode: int, *, dir_fd: int | None = None, **named: bool) -> bool:
        try:
            place = self._place(path, named.get("follow_symlinks", True), dir_fd)
        except FileNotFoundError:
            return False
        if place is None:
            return self._real["access"](path, mode, dir_fd=dir_fd, **named)
        return not mode & os.X_OK if place.node else self._real["access"](place.real, mode)

    def _readlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        place = self._place(path, False, dir_fd)
        if place is None:
            return self._real["readlink"](path, dir_fd=dir_fd)
        return self._real["readlink"](place.real)

    def _listdir(self, path: Any = ".") -> list[Any]:
        place = self._place(path)
        return self._real["listdir"](path if place is None else place.real)

    def _scandir(self, path: Any = ".") -> Any:
        place = self._place(path)
        if place is None:
            return self._real["scandir"](path)
        with self._real["scandir"](os.fspath(place.real)) as entries:
            return _Entries([_Entry(self, os.fsdecode(path), entry) for entry in entries])

    # open

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        place = None if "opener" in named else self._place(file)
        if place is None:
            return self._real["open_file"](file, mode, *args, **named)
        flags = {
            "r": os.O_RDONLY,
            "w": os.O_WRONLY,
            "a": os.O_WRONLY,
            "x": os.O_WRONLY | os.O_EXCL | os.O_CREAT,
        }
        wanted = flags.get(mode.replace("b", "").replace("t", "")[:1], os.O_RDONLY)
        if "+" in mode:
            wanted = wanted & ~os.O_WRONLY | os.O_RDWR
        fd = self._open(file, wanted | os.O_CLOEXEC)
        try:
            return self._real["open_file"](fd, mode.replace("x", "w"), *args, **named)
        except BaseException:
            self._close(fd)
            raise

    # fcntl and mmap

    def _ioctl(self, fd: Any, request: int, arg: Any = 0, mutate_flag: bool = True) -> Any:
        number = fd if isinstance(fd, int) else fd.fileno()
        obj = self.machine.descriptors.find_fd(number)
        if obj is None:
            return self._real["ioctl"](fd, request, arg, mutate_flag)
        self.machine.descriptors.reap()
        request &= 0xFFFFFFFF
        if isinstance(arg, int):
            return self.machine.ioctl(obj, request, arg & (1 << 64) - 1, self._user, self._user)
        given = memoryview(arg.encode() if isinstance(arg, str) else arg).cast("B")
        change = mutate_flag and not given.readonly
        if len(given) > IOCTL_BYTES and not change:
            raise ValueError("ioctl string arg too long")
        # As in Python, the kernel gets a copy with additional room.
        room = (ct.c_char * max(len(given), IOCTL_BYTES))()
        ct.memmove(room, given.tobytes(), len(given))
        result = self.machine.ioctl(obj, request, ct.addressof(room), self._user, self._user)
        if not change:
            return room.raw[: len(given)]
        given[:] = room.raw[: len(given)]
        return result

    def _mapped(self, fd: int, length: int, flags: int, prot: int, offset: int) -> tuple[int, int] | None:
        obj = self.machine.descriptors.find_fd(fd) if fd >= 0 else None
        return None if obj is None else self.machine.map(obj, offset, length, prot, flags)

    def really_close(self, fd: int) -> None:
        """Close a descriptor of the hooks."""
        self._real["close"](fd)


def _mapping(hooks: Hooks, real: type[mmap.mmap]) -> type[mmap.mmap]:
    """A class of mappings that share the device's memory if the descriptor belongs to a device."""

    class Kind(type):
        def __instancecheck__(cls, obj: object) -> bool:
            return isinstance(obj, real)

    class Mapping(real, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(
            cls,
            fileno: int,
            length: int,
            flags: int = mmap.MAP_SHARED,
            prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
            access: int = mmap.ACCESS_DEFAULT,
            offset: int = 0,
            **more: Any,
        ) -> Any:
            asked, protection = flags, prot
            if access == mmap.ACCESS_READ:
                asked, protection = mmap.MAP_SHARED, mmap.PROT_READ
            elif access == mmap.ACCESS_COPY:
                asked = mmap.MAP_PRIVATE
            place = hooks.mapped(fileno, length, asked, protection, offset)
            if place is None:
                return real.__new__(cls, fileno, length, flags, prot, access, offset, **more)
            fd, start = place
            try:
                return real.__new__(cls, fd, length, flags, prot, access, start, **more)
            finally:
                hooks.really_close(fd)

    Mapping.__name__ = Mapping.__qualname__ = "mmap"
    Mapping.__module__ = "mmap"
    return Mapping
