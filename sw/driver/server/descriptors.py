"""Descriptors that stand for objects of the simulated kernel, in any process.

A program's descriptor is the read end of a pipe of which this side holds the other end.  It can be
duplicated, inherited and passed on like any descriptor, it can be polled, and this side sees when its
last copy is closed; the pipe's inode number says which object it stands for.  Its F_GETSIG number, which
all copies share and which nothing else uses, says what kind it is.
"""

from __future__ import annotations

import contextlib
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

_F_SETSIG, _F_GETSIG = 10, 11  # Linux; not in Python's fcntl before 3.12


class Mark(IntEnum):
    """Kinds of descriptors; a node's mark is NODE and its number."""

    NODE = 40
    DMABUF = 60
    SYNC = 61
    TEXT = 62


NODES = 16
"""Most device nodes; the preload library has the same number."""


@dataclass
class _Entry:
    obj: Any
    inode: int
    near: int
    """This side's end."""
    watched: int = -1
    """A descriptor that becomes readable when the program's shall be."""


class Descriptors:
    """All descriptors that programs hold, by inode number.

    An object's `close()` is called once when the last copy of its descriptor is gone; an object that
    is handed out several times has several descriptors.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
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

    def make(self, obj: Any, mark: int, *, watched: int = -1, nonblock: bool = False) -> int:
        """A new descriptor for the program, close-on-exec; the caller hands it over.

        Parameters
        ----------
        obj : what it stands for.
        mark : its kind.
        watched : a descriptor of this process that becomes readable when the new one shall be.
        nonblock : whether reading it waits.
        """
        flags = os.O_CLOEXEC | (os.O_NONBLOCK if nonblock else 0)
        far, near = os.pipe2(flags)
        return self._add(obj, mark, far, near, watched)

    def make_text(self, obj: Any, content: bytes) -> int:
        """A descriptor that reads `content` and gives what is written to it to `obj.write(bytes)`."""
        far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        near.setblocking(False)
        with contextlib.suppress(OSError):
            near.send(content)
        near.shutdown(socket.SHUT_WR)
        return self._add(obj, Mark.TEXT, far.detach(), near.detach(), -1)

    def _add(self, obj: Any, mark: int, far: int, near: int, watched: int) -> int:
        fcntl.fcntl(far, _F_SETSIG, mark)
        inode = os.fstat(far).st_ino
        with self._lock:
            entry = _Entry(obj, inode, near, watched)
            self._entries[inode] = self._by_near[near] = entry
            # A pipe says POLLERR when nobody can read it any more, a socket POLLHUP.
            self._poll.register(near, select.EPOLLIN if mark == Mark.TEXT else 0)
            if watched >= 0:
                waiting = self._by_watched.setdefault(watched, [])
                if not waiting:
                    self._poll.register(watched, select.EPOLLIN)
                waiting.append(entry)
        return far

    def find(self, inode: int) -> Any:
        """The object of an inode number, None if it is none of ours."""
        with self._lock:
            entry = self._entries.get(inode)
            return entry.obj if entry else None

    def find_fd(self, fd: int) -> Any:
        """The object of a descriptor of this process, None if it is none of ours."""
        try:
            status = os.fstat(fd)
        except (OSError, ValueError):
            return None
        return (
            self.find(status.st_ino) if stat.S_IFMT(status.st_mode) in (stat.S_IFIFO, stat.S_IFSOCK) else None
        )

    def reap(self) -> None:
        """Close the objects whose last descriptor is gone, and pass on what became readable.

        When it returns that is done, whichever thread did it.
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
        """Writes that did not come as calls; False at the end."""
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
        """Take back a descriptor that no program got; its object is not closed."""
        inode = os.fstat(fd).st_ino
        with self._lock:
            if inode in self._entries:
                self._forget(self._entries[inode])
        os.close(fd)

    def _watch(self) -> None:
        """Sees to it that `reap` happens when no program calls."""
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


def _close_all(objects: Iterable[Any]) -> None:
    for obj in objects:
        with contextlib.suppress(OSError):
            obj.close()
