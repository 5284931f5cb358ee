"""Server through which programs in other processes call the interface, by a Unix socket and shared memory."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rkcosim.base import trust
from rkcosim.base.failures import Failures
from rkcosim.rknn_api.declarations import digest
from rkcosim.rknn_api.server.calls import Calls
from rkcosim.rknn_api.server.protocol import Arena, Channel, Gone, Op, Packet, ProtocolError
from rkcosim.rknn_api.server.session import Closed, Session
from rkcosim.rknn_api.state import log, runtime

ACCEPT_PAUSE = 0.05
"""Seconds until the server tries again after it could not accept a connection."""

END_SECONDS = 30.0
"""Seconds that `close` waits for the calls of all programs together; none goes on after it."""


class RknnServer:
    """Serve programs on a socket: each process has a session, and each of its threads a connection.

    Calls use the device of `rkcosim.rknn_api.use_device`, whose driver must share its memory.

    Parameters
    ----------
    path : path of the socket, in a folder that only this user can access.
    closed : called with the name of a model and its context before the context is destroyed.
    failures : takes unforeseen errors behind the calls; default: a new record.

    Raises
    ------
    OSError
        if the socket cannot be created.
    """

    def __init__(self, path: Path, closed: Closed | None = None, failures: Failures | None = None) -> None:
        self.path = path.absolute()
        self.failures = failures or Failures()
        self._closed = closed
        self._sessions: dict[int, Session] = {}
        self._threads: set[threading.Thread] = set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._over = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.bind(str(self.path))
            self._socket.listen(64)
        except OSError:
            self._socket.close()
            raise
        runtime.failures = self.failures
        self._thread = threading.Thread(target=self._accept, name="rknn server", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._over:
            try:
                sock, _ = self._socket.accept()
            except OSError as error:
                if self._over:
                    return
                log.error("server: a connection cannot be accepted: %s", error.strerror or error)
                time.sleep(ACCEPT_PAUSE)
                continue
            pid, uid, _ = trust.peer(sock)
            thread = threading.Thread(target=self._serve, args=(sock, pid), name=f"rknn {pid}", daemon=True)
            with self._lock:
                if self._over or not trust.is_own(uid):
                    sock.close()
                    continue
                self._sockets.add(sock)
                self._threads.add(thread)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads
                log.error("server: process %d is not served: %s", pid, error)
                self._ended(sock, thread)

    def _ended(self, sock: socket.socket, thread: threading.Thread) -> None:
        with self._lock:
            self._sockets.discard(sock)
            self._threads.discard(thread)
        sock.close()

    def _serve(self, sock: socket.socket, pid: int) -> None:
        channel = Channel(sock)
        try:
            first = channel.receive()
            try:
                if first.op == Op.SESSION:
                    self._session(channel, first, pid)
                elif first.op == Op.THREAD:
                    session = self._sessions.get(first.a[0])
                    if session is None or session.pid != pid:
                        raise ProtocolError("a thread of an unknown session")
                    calls = Calls(session, channel, Arena(first.fd))
                    first.close()
                    calls.serve()
                else:
                    raise ProtocolError(f"message {first.op} at the beginning of a connection")
            finally:
                first.close()
        except Gone:
            pass
        except (ProtocolError, MemoryError, OSError) as error:
            log.error("server: process %d: %s", pid, error)
        except Exception as error:  # outside of a call, or at the end of a process: others go on
            self.failures.add(f"the server of process {pid}", error)
        finally:
            self._ended(sock, threading.current_thread())

    def _session(self, channel: Channel, first: Packet, pid: int) -> None:
        if first.a[0] != digest():
            raise ProtocolError("the program uses a librknnrt.so of another version")
        session = Session(pid, self._closed)
        self._sessions[session.number] = session
        try:
            channel.send(Op.DONE, (session.number,))
            channel.receive().close()  # returns when the process ends
        finally:
            del self._sessions[session.number]
            session.close()

    def share(self, backing_of: Callable[[int], Any]) -> None:
        """Let `rknn_create_mem_from_fd` use the pages of dma-bufs of the simulated kernel.

        Parameters
        ----------
        backing_of : returns the pages of a descriptor (`rkcosim.driver.server.calls.Machine.backing_of`).
        """
        runtime.backing_of = backing_of

    def close(self) -> None:
        """Close all connections, free the resources of all programs, and remove the socket."""
        with self._lock:
            self._over = True
            sockets, threads = list(self._sockets), list(self._threads)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        limit = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(limit - time.monotonic(), 0))
        for name in sorted({thread.name for thread in threads if thread.is_alive()}):
            # a program's file system never answers
            log.error("server: a call of '%s' has not ended within %g s", name, END_SECONDS)
        self._thread.join()
        runtime.failures = runtime.backing_of = None
        with contextlib.suppress(OSError):
            self.path.unlink()

    def __enter__(self) -> RknnServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
