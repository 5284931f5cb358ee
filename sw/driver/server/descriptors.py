"""Descriptors that represent objects of the simulated kernel, in any process.

A program's descriptor is the read end of a pipe whose other end this process holds.  It can be
duplicated, inherited, passed on and polled like any descriptor, and this process notices when its
last copy is closed. The inode of the pipe identifies the object.  Its F_GETSIG number, which all
copies share and which nothing else uses, is the kind of the object.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rkcosim.driver.kernel.memory import leaves_room

_F_SETSIG, _F_GETSIG = 10, 11  # Linux constant; not in Python's fcntl before 3.12


class Mark(IntEnum):
    """Kinds of descriptors; the mark of a node is NODE plus its number."""

    NODE = 40
    DMABUF = 60
    SYNC = 61
    TEXT = 62


NODES = 16
"""Maximum number of device nodes; the preload library has the same constant."""


@dataclass
class _Entry:
    obj: Any
    inode: tuple[int, int]
    """Device and inode number, because different file systems may have the same inode number."""
    near: int
    """End of the pipe in this process."""
    watched: int = -1
    """A descriptor that is readable when the program's descriptor is to be readable."""


class Descriptors:
    """All descriptors that programs hold, by device and inode number.

    `close()` of an object is called once when the last copy of its descriptor has been closed; an object that
    is passed on several times has several descriptors.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._by_near: dict[int, _Entry] = {}
        self._by_watched: dict[int, list[_Entry]] = {}
        self._lock = threading.RLock()
        self._reaping = threading.RLock()
        self._poll = select.epoll()
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="npu descriptors", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def make(
        self, obj: Any, mark: int, *, watched: int = -1, nonblock: bool = False, access: int = os.O_RDONLY
    ) -> int:
        """Create a new descriptor for the program, close-on-exec, which the caller passes on.

        Parameters
        ----------
        obj : object that it represents.
        mark : its kind.
        watched : a descriptor of this process that is readable when the new one is to be readable.
        nonblock : whether reading returns immediately.
        access : its access mode, O_RDONLY or O_RDWR; O_WRONLY becomes O_RDWR, because the other end of the
            pipe would have no reader.
        """
        flags = os.O_CLOEXEC | (os.O_NONBLOCK if nonblock else 0)
        far, near = os.pipe2(flags)
        _check_room(far, near)
        if access != os.O_RDONLY:
            far = _both_ways(far, near, flags)
        return self._add(obj, mark, far, near, watched)

    def make_text(self, obj: Any, content: bytes) -> int:
        """Create a descriptor that reads `content`; data written to it go to `obj.write(bytes)`."""
        far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _check_room(far, near)
        near.setblocking(False)
        with contextlib.suppress(OSError):
            near.send(content)
        near.shutdown(socket.SHUT_WR)
        return self._add(obj, Mark.TEXT, far.detach(), near.detach(), -1)

    def _add(self, obj: Any, mark: int, far: int, near: int, watched: int) -> int:
        fcntl.fcntl(far, _F_SETSIG, mark)
        inode = _identity(far)
        with self._lock:
            entry = _Entry(obj, inode, near, watched)
            self._entries[inode] = self._by_near[near] = entry
            # A pipe without readers reports POLLERR, a socket POLLHUP.
            self._poll.register(near, select.EPOLLIN if mark == Mark.TEXT else 0)
            if watched >= 0:
                waiting = self._by_watched.setdefault(watched, [])
                if not waiting:
                    self._poll.register(watched, select.EPOLLIN)
                waiting.append(entry)
        return far

    def find_fd(self, fd: int) -> Any:
        """The object of a descriptor of this process; None for other descriptors."""
        try:
            status = os.fstat(fd)
        except (OSError, ValueError):
            return None
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFIFO, stat.S_IFSOCK):
            return None
        with self._lock:
            entry = self._entries.get((status.st_dev, status.st_ino))
            return entry.obj if entry else None

    def reap(self) -> None:
        """Close the objects whose last descriptor has been closed, and propagate readability.

        This is complete when the method returns, even if another thread did the work.
        """
        with self._reaping:
            _close_all(self._collect())

    def _collect(self) -> list[Any]:
        gone: list[Any] = []
        with self._lock:
            if self._closed:
                return gone
            for fd, events in self._poll.poll(0):
                entry = self._by_near.get(fd)
                if entry is not None:
                    if events & select.EPOLLIN and not self._take_text(entry):
                        events |= select.EPOLLHUP
                    if events & (select.EPOLLERR | select.EPOLLHUP):
                        gone.append(self._forget(entry))
                elif fd in self._by_watched:
                    self._poll.unregister(fd)
                    for waiting in self._by_watched.pop(fd):
                        waiting.watched = -1
                        with contextlib.suppress(OSError):
                            os.write(waiting.near, b"\0")
                elif fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 64)
        return gone

    def _take_text(self, entry: _Entry) -> bool:
        """Process writes that did not arrive as calls; False at the end."""
        try:
            data = os.read(entry.near, 4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            with contextlib.suppress(OSError):
                entry.obj.write(data)
        return bool(data)

    def _forget(self, entry: _Entry) -> Any:
        del self._entries[entry.inode], self._by_near[entry.near]
        self._poll.unregister(entry.near)
        os.close(entry.near)
        if entry.watched >= 0:
            waiting = self._by_watched[entry.watched]
            waiting.remove(entry)
            if not waiting:
                del self._by_watched[entry.watched]
                self._poll.unregister(entry.watched)
        return entry.obj

    def discard(self, fd: int) -> None:
        """Discard a descriptor that no program received; its object is not closed."""
        inode = _identity(fd)
        with self._lock:
            if inode in self._entries:
                self._forget(self._entries[inode])
        os.close(fd)

    def _watch(self) -> None:
        """Start a thread that calls `reap` while no program calls."""
        wait = select.poll()
        wait.register(self._poll.fileno(), select.POLLIN)
        while not self._closed:
            wait.poll()
            self.reap()

    def close(self) -> None:
        """Close every object, as if all programs had ended."""
        with self._lock:
            if self._closed:
                return
            gone = [self._forget(entry) for entry in list(self._entries.values())]
            self._closed = True
            os.write(self._waker, b"\0")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        _close_all(gone)
        self._poll.close()
        os.close(self._wake)
        os.close(self._waker)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _both_ways(far: int, near: int, flags: int) -> int:
    """Replace the read end of a pipe by one that F_GETFL calls O_RDWR; close both ends after an error."""
    try:
        return os.open(f"/proc/self/fd/{far}", os.O_RDWR | flags)
    except OSError:
        os.close(near)
        raise
    finally:
        os.close(far)


def _check_room(*ends: Any) -> None:
    """Close the ends of a pair and raise OSError if they leave this process too few descriptors."""
    numbers = [end if isinstance(end, int) else end.fileno() for end in ends]
    if not all(leaves_room(number) for number in numbers):
        for end in ends:
            os.close(end) if isinstance(end, int) else end.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _close_all(objects: Iterable[Any]) -> None:
    for obj in objects:
        with contextlib.suppress(OSError):
            obj.close()
