"""The server: programs of other processes call the simulated kernel over a Unix socket."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from errno import EBADF, EFAULT, EIO, EMFILE, ENFILE, ENOMEM
from pathlib import Path
from typing import Any

from rkcosim.base import BAD_INPUT, trust
from rkcosim.driver.kernel import BoardView, Credentials, Kernel, KernelError
from rkcosim.driver.kernel.interface import CallerError
from rkcosim.driver.kernel.memory import leaves_room
from rkcosim.driver.server.calls import Machine
from rkcosim.driver.server.protocol import CHUNK, VERSION, Channel, Message, Op, ProtocolError

MOST_BYTES = 64 << 20
"""Maximum size of a piece of a program's memory that one question requests."""

INTERRUPTS, INTERRUPT_SECONDS = 5, 0.01
"""How often a call is notified of a signal, and the seconds between notifications."""

ACCEPT_PAUSE = 0.05
"""Seconds until the next attempt if the server cannot accept a connection."""

_PATH_BYTES = 107  # of the address of a Unix socket
_REQUEST, _ADDRESS = (1 << 32) - 1, (1 << 64) - 1


class ServerError(Exception):
    """The server cannot start; the text has the path and the problem."""

    exit_code = BAD_INPUT


class Gone(CallerError):
    """The program at the other end has ended or closed the connection."""


class Server:
    """Listen on a socket and serve each connection in a separate thread.

    Parameters
    ----------
    kernel : see `rkcosim.driver.kernel.Kernel`; the caller closes it after the server.
    path : path of the socket; the files of the simulated machine are in `path` + ".d".

    Raises
    ------
    ServerError
        If the path is in use, too long or cannot be created, or others can write to its folder.
    """

    def __init__(self, kernel: Kernel | BoardView, path: Path) -> None:
        self.path = path.absolute()
        if len(os.fsencode(self.path)) > _PATH_BYTES:
            raise ServerError(f"{self.path}: a socket's path has at most {_PATH_BYTES} bytes")
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._closed = False
        self._told: set[str] = set()
        self.on_trouble: Callable[[str], None] = lambda text: None
        """Called with a line when programs cannot be served properly; each line once."""
        self._socket = _listen(self.path)
        try:
            self._inode = os.stat(self.path).st_ino
            self.machine = Machine(kernel)
            self.tree = self.machine.tree(Path(f"{self.path}.d"))
        except OSError as error:
            self._socket.close()
            raise ServerError(f"{error.filename or self.path}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._accept, name="npu server", daemon=True)
        self._thread.start()

    @property
    def clients(self) -> set[int]:
        """Ids of the connected processes."""
        with self._lock:
            return {connection.who.pid for connection in self._connections}

    def _accept(self) -> None:
        knocks = select.poll()
        knocks.register(self._socket, select.POLLIN)
        while True:
            try:
                knocks.poll()
                if self._closed:
                    return
                if not self._has_room():
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                sock, _ = self._socket.accept()
            except OSError as error:  # an error of the server: continue to serve other programs later
                if self._closed:
                    return
                self._tell(f"no new program is served for now: {error.strerror or error}")
                time.sleep(ACCEPT_PAUSE)
                continue
            self._told.clear()
            pid, uid, gid = trust.peer(sock)
            if not trust.is_own(uid):
                self.machine.kernel.log.warn(f"server: refused process {pid} of user {uid}")
                sock.close()
                continue
            connection = _Connection(self, Channel(sock), Credentials(pid, uid, gid))
            with self._lock:
                if self._closed:
                    sock.close()
                    return
                try:
                    connection.thread.start()  # before `close`, which joins the thread, can see it
                except RuntimeError as error:  # no more threads are available
                    self._tell(f"process {pid} is not served: {error}")
                    sock.close()
                    continue
                self._connections.add(connection)

    def _has_room(self) -> bool:
        """Whether there are enough descriptors for another connection."""
        fd = os.dup(self._socket.fileno())
        os.close(fd)
        return leaves_room(fd)

    def _tell(self, text: str) -> None:
        """Report a problem once, until a program has been served again."""
        if text not in self._told:
            self._told.add(text)
            self.machine.kernel.log.err(f"server: {text}")
            self.on_trouble(f"server: {text}")

    def _ended(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def interrupt(self, pid: int, number: int) -> None:
        """Interrupt the current call of a process's connection."""
        with self._lock:
            found = [one for one in self._connections if one.who.pid == pid and one.number == number]
        for connection in found:
            connection.interrupt()

    def close(self) -> None:
        """Close all connections and everything that programs have opened, remove socket and files."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in connections:
            connection.break_off()
        self.machine.close()  # ends the calls in progress
        for connection in connections:
            connection.thread.join()
        self._thread.join()
        self.remove()

    def remove(self) -> None:
        """Remove socket and files, as `close` does at the end."""
        self.tree.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listen(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        doubt = trust.why_not(path.parent, inside=False)
        if doubt is not None:
            raise ServerError(f"{path}: programs cannot trust a socket there, because {doubt}")
        if path.is_socket():
            probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()  # left by a server that was killed
                _remove_leftover(path)
            else:
                raise ServerError(f"{path}: another server listens there")
            finally:
                probe.close()
        elif path.exists():
            raise ServerError(f"{path}: exists and is not a socket")
        mask = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(mask)
        sock.listen(64)
    except OSError as error:
        sock.close()
        raise ServerError(f"{path}: {error.strerror or error}") from error
    except ServerError:
        sock.close()
        raise
    return sock


def _remove_leftover(path: Path) -> None:
    import shutil

    folder = Path(f"{path}.d")
    if (folder / "manifest").is_file():
        shutil.rmtree(folder, ignore_errors=True)


class _Connection:
    """Connection of one thread of a program: its calls, one after the other."""

    def __init__(self, server: Server, channel: Channel, who: Credentials) -> None:
        self.server, self.machine, self.channel, self.who = server, server.machine, channel, who
        self.thread = threading.Thread(target=self._serve, name=f"npu client {who.pid}", daemon=True)
        self.number = 0
        """Number by which the program identifies this connection."""
        self._calls = 0
        self._at_work: Any = None

    def break_off(self) -> None:
        """Close the connection, which the program notices."""
        with contextlib.suppress(OSError):
            self.channel.socket.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        try:
            hello = self.channel.receive()
            if hello is None:
                return
            if hello.op != Op.HELLO or hello.a[0] != VERSION:
                raise ProtocolError(f"speaks version {hello.a[0]}, not {VERSION}")
            self.number = hello.a[1]
            hello.close()
            while (message := self.channel.receive()) is not None:
                try:
                    self.machine.descriptors.reap()
                    if message.op == Op.INTERRUPT:
                        self.server.interrupt(self.who.pid, message.a[0])
                    else:
                        self._call(message)
                finally:
                    message.close()
        except (Gone, OSError):
            pass
        except ProtocolError as error:
            self.machine.kernel.log.warn(f"server: process {self.who.pid}: {error}")
        except Exception as error:  # outside of a call: only this connection ends
            self.machine.kernel.log.failed(f"the server of process {self.who.pid}", error)
        finally:
            self.channel.socket.close()
            self.server._ended(self)

    def _call(self, message: Message) -> None:
        """Execute a request and send the result."""
        user = _User(self, message)
        try:
            handler = _HANDLERS.get(message.op)
            if handler is None:
                raise ProtocolError(f"message {message.op} where a request was expected")
            result, extra, fd = handler(self, message, user)
        except KernelError as error:
            result, extra, fd = -error.code, 0, None
        except (Gone, ProtocolError):
            raise
        except Exception as error:  # a call of one program must not end the server
            self.machine.kernel.log.failed(f"the call {_name(message.op)}", error)
            result, extra, fd = -EIO, 0, None
        try:
            address, data = user.pending()
            self.channel.send(Op.DONE, (result, extra, address), data, fd)
        finally:
            if fd is not None:
                os.close(fd)

    def _open(self, message: Message, user: _User) -> tuple[int, int, int | None]:
        path = message.data.decode(errors="surrogateescape")
        return 0, 0, self.machine.open(path, message.a[0], self.who)

    def _ioctl(self, message: Message, user: _User) -> tuple[int, int, int | None]:
        request, argument = message.a[1] & _REQUEST, message.a[2] & _ADDRESS
        self._calls += 1
        self._at_work = obj = self._object(message)
        try:
            return self.machine.ioctl(obj, request, argument, user, user), 0, None
        finally:
            self._at_work = None

    def _map(self, message: Message, user: _User) -> tuple[int, int, int | None]:
        fd, offset = self.machine.map(self._object(message), *message.a[1:])
        return 0, offset, fd

    def _size(self, message: Message, user: _User) -> tuple[int, int, int | None]:
        return self.machine.size(self._object(message)), 0, None

    def _text(self, message: Message, user: _User) -> tuple[int, int, int | None]:
        return self.machine.write(self._object(message), message.data), 0, None

    def _object(self, message: Message) -> Any:
        """The object of the descriptor in a request, which is closed."""
        if message.short:
            raise KernelError(ENFILE, "the server has no descriptors left")
        obj = self.machine.descriptors.find_fd(message.fd)
        message.close()  # immediately: the server must notice when the program's last copy is closed
        if obj is None:
            raise KernelError(EBADF, "no descriptor of this server")
        return obj

    def ask(self, op: Op, a: tuple[int, ...], data: bytes = b"", fd: int | None = None) -> Message:
        """Send the program a question during a call and return the answer."""
        try:
            self.channel.send(op, a, data, fd)
            answer = self.channel.receive()
        except OSError as error:
            raise Gone from error
        if answer is None:
            raise Gone
        if op != Op.LOOKUP:
            answer.close()
        if answer.op != Op.ANSWER:
            answer.close()
            raise ProtocolError(f"message {answer.op} where an answer was expected")
        return answer

    def interrupt(self) -> None:
        """A signal arrived in the program's thread; called by the thread of another connection.

        The call may not be waiting yet, so it is notified more than once.
        """
        call = self._calls
        for _ in range(INTERRUPTS):
            obj = self._at_work
            if obj is None or self._calls != call:
                return
            if hasattr(obj, "interrupt"):
                obj.interrupt()
            time.sleep(INTERRUPT_SECONDS)


_HANDLERS: dict[int, Any] = {
    Op.OPEN: _Connection._open,
    Op.IOCTL: _Connection._ioctl,
    Op.MMAP: _Connection._map,
    Op.SIZE: _Connection._size,
    Op.TEXT: _Connection._text,
}


def _name(number: int) -> str:
    return Op(number).name if number in list(Op) else str(number)


class _User:
    """Memory and descriptors of the calling process during one call.

    The input bytes of an ioctl, as given by its number, have arrived with the request; bytes written there
    are returned with the result.
    """

    def __init__(self, connection: _Connection, message: Message) -> None:
        self._connection = connection
        self._start, self._data, self._dirty = 0, bytearray(), False
        if message.op == Op.IOCTL:
            self._start, self._data = message.a[2] & _ADDRESS, bytearray(message.data)

    def _inside(self, address: int, size: int) -> bool:
        return self._start <= address and address + size <= self._start + len(self._data)

    def _overlaps(self, address: int, size: int) -> bool:
        return address < self._start + len(self._data) and self._start < address + size

    def read(self, address: int, size: int) -> bytes:
        """Return bytes of the program's memory, or raise KernelError(EFAULT)."""
        if size > 0 and self._inside(address, size):
            at = address - self._start
            return bytes(self._data[at : at + size])
        self._check(address, size)
        if self._overlaps(address, size):
            self._flush()
        parts = []
        for at in range(address, address + size, CHUNK):
            part = min(CHUNK, address + size - at)
            answer = self._connection.ask(Op.READ, (_signed(at), part))
            if answer.a[0] or len(answer.data) != part:
                raise KernelError(EFAULT, f"no readable memory at 0x{at:X}")
            parts.append(answer.data)
        return b"".join(parts)

    def write(self, address: int, data: bytes) -> None:
        """Change the program's memory, or raise KernelError(EFAULT)."""
        if data and self._inside(address, len(data)):
            at = address - self._start
            self._data[at : at + len(data)] = data
            self._dirty = True
            return
        self._check(address, len(data))
        if self._overlaps(address, len(data)):
            self._flush()
            self._data = bytearray()
        self._store(address, data)

    def _store(self, address: int, data: bytes | bytearray) -> None:
        for at in range(0, len(data), CHUNK):
            answer = self._connection.ask(Op.STORE, (_signed(address + at),), bytes(data[at : at + CHUNK]))
            if answer.a[0]:
                raise KernelError(EFAULT, f"no writable memory at 0x{address + at:X}")

    def _check(self, address: int, size: int) -> None:
        if size < 0 or address < 0 or address + size > 1 << 64:
            raise KernelError(EFAULT, f"0x{address:X} is not an address")
        if size > MOST_BYTES:
            raise KernelError(ENOMEM, f"{size} bytes of a program's memory at once")

    def _flush(self) -> None:
        if self._dirty:
            self._dirty = False
            self._store(self._start, self._data)

    def pending(self) -> tuple[int, bytes]:
        """Data that are returned with the result: address and bytes."""
        return (_signed(self._start), bytes(self._data)) if self._dirty else (0, b"")

    def install(self, obj: Any, cloexec: bool) -> int:
        """Install a new descriptor in the program, or raise KernelError(EMFILE)."""
        machine = self._connection.machine
        fd = machine.install(obj)
        try:
            number = self._connection.ask(Op.INSTALL, (int(cloexec),), fd=fd).a[0]
            if number < 0:
                raise KernelError(EMFILE)
        except BaseException:
            machine.descriptors.discard(fd)
            raise
        os.close(fd)
        return number

    def lookup(self, fd: int) -> Any:
        """The object of a descriptor; None for other descriptors; KernelError(EBADF)."""
        answer = self._connection.ask(Op.LOOKUP, (fd,))
        try:
            if answer.a[0] < 0:
                raise KernelError(EBADF)
            if answer.short:
                raise KernelError(ENFILE, "the server has no descriptors left")
            return self._connection.machine.descriptors.find_fd(answer.fd)
        finally:
            answer.close()


def _signed(value: int) -> int:
    """A 64-bit number in the form used in messages."""
    return value - (1 << 64) if value >= 1 << 63 else value
