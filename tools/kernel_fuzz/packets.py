"""Hostile clients of the server's socket: packets that no library sends, answers that no program gives."""

from __future__ import annotations

import array
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import sizeof
from errno import errorcode

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.server.protocol import CHUNK, VERSION, Channel, Message, Op, ProtocolError
from rkcosim.driver.server.server import Server
from tools.kernel_fuzz import Report, watched
from tools.kernel_fuzz.mutations import EDGES

BOUND = 20.0
"""Seconds within which the server must answer or close the connection."""

MOST_QUESTIONS = 64
"""Number of questions of one call that are answered before the client disconnects."""

CLIENTS, KEPT = 4, 12
"""Number of simultaneous connections, and of device descriptors that they keep together."""

Draw = Callable[[random.Random], int]


def _small(rng: random.Random) -> int:
    return rng.randrange(1, 9)


def _offset(rng: random.Random) -> int:
    return 0xFFFF_8000_0000_0000 + 4096 * rng.randrange(8)


def _pages(rng: random.Random) -> int:
    return 4096 * _small(rng)


def _just(value: int) -> Draw:
    return lambda rng: value


_HANDLE: dict[str, Draw] = {"handle": _small}
_PRIME: dict[str, Draw] = {"handle": _small, "flags": _just(0x80002), "fd": _small}
_JOBS: dict[str, Draw] = {
    "jobs": _just(0x7F00_0000_8000),
    "job_count": lambda rng: rng.randrange(3),
    "job_struct_size": _just(sizeof(s.RocketJob)),
}
_CALLS: tuple[tuple[int, type[s.Struct], dict[str, Draw]], ...] = (
    (s.RKNPU_ACTION, s.Action, {"flags": lambda rng: rng.randrange(28)}),
    (s.RKNPU_MEM_CREATE, s.MemCreate, {"flags": _just(0x40B), "size": _pages}),
    (s.RKNPU_MEM_MAP, s.MemMap, _HANDLE),
    (s.RKNPU_MEM_DESTROY, s.MemDestroy, _HANDLE),
    (s.RKNPU_MEM_SYNC, s.MemSync, {"flags": _just(3), "obj_addr": _offset, "size": _just(4096)}),
    (s.RKNPU_SUBMIT, s.RknpuSubmit, {"flags": _just(1), "task_number": _small, "task_obj_addr": _offset}),
    (s.ROCKET_CREATE_BO, s.CreateBo, {"size": _pages}),
    (s.ROCKET_SUBMIT, s.RocketSubmit, _JOBS),
    (s.ROCKET_PREP_BO, s.PrepBo, _HANDLE),
    (s.ROCKET_FINI_BO, s.FiniBo, _HANDLE),
    (s.DRM_VERSION, s.Version, {"name_len": _small, "name": _just(0x7F00_0000_8000)}),
    (s.DRM_GEM_CLOSE, s.GemClose, _HANDLE),
    (s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle, _PRIME),
    (s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle, _PRIME),
)
"""Ioctls, and plausible values of their fields before these are modified."""


class _Broken(Exception):
    """The server or this client has closed the connection."""


class _Client:
    """One connection that misbehaves."""

    def __init__(
        self, path: str, rng: random.Random, fds: list[int], nodes: list[str], paths: list[str]
    ) -> None:
        self._rng, self._fds, self._nodes, self._paths = rng, fds, nodes, paths
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(BOUND)
        self._socket.connect(path)
        self._channel = Channel(self._socket)
        self.name = ""
        if rng.random() < 0.97:
            self._send(Op.HELLO, (VERSION, rng.randrange(8)))
        else:
            self.name = "another greeting"
            self._send(rng.choice(list(Op)), (self._number(), self._number()))

    def close(self) -> None:
        """Disconnect without a message."""
        self._socket.close()

    def one(self) -> str:
        """Send a packet and answer the server's questions; return "ok", an errno's name or its reaction.

        Raises
        ------
        TimeoutError
            If the server neither answers nor closes the connection.
        """
        rng = self._rng
        try:
            if rng.random() < 0.05:
                self.name = "no message"
                self._socket.send(self._packet())
            elif rng.random() < 0.05:
                self.name = "another kind of message"
                op = rng.choice([op for op in Op if op != Op.INTERRUPT])
                self._send(op, self._numbers(), self._bytes(), self._descriptor())
            elif rng.random() < 0.03:
                self.name = "interrupt"
                self._send(Op.INTERRUPT, (rng.randrange(8),))
                return "ok"
            else:
                self._request()
            return self._exchange()
        except (BrokenPipeError, ConnectionResetError, _Broken):
            raise _Broken from None

    # What is sent

    def _request(self) -> None:
        rng = self._rng
        others = (Op.MMAP, Op.SIZE, Op.TEXT) if rng.random() < 0.2 else (Op.IOCTL,)
        kind = Op.OPEN if len(self._fds) < 3 or rng.random() < 0.05 else rng.choice(others)
        self.name = kind.name
        if kind == Op.OPEN:
            strange = rng.choice((*self._paths, "/dev/zero", "", "x" * 5000, "/dev/dri/\0card1"))
            path = rng.choice(self._nodes) if rng.random() < 0.8 else strange
            flags = os.O_RDWR if rng.random() < 0.8 else self._number()
            self._send(kind, (flags,), path.encode())
        elif kind == Op.IOCTL:
            request, form, fields = rng.choice(_CALLS)
            data = bytearray(bytes(form(**{name: draw(rng) for name, draw in fields.items()})))
            for at in range(0, len(data), 4):
                if rng.random() < 0.05:
                    value = self._number() & 0xFFFFFFFF
                    data[at : at + 4] = value.to_bytes(4, "little")[: len(data) - at]
            if form is s.RknpuSubmit:
                data[4:8] = (1).to_bytes(4, "little")  # time-out in ms
            if rng.random() < 0.05:
                request ^= 1 << rng.randrange(32)
            if rng.random() < 0.1:
                del data[rng.randrange(len(data)) :]
            elif rng.random() < 0.05:
                data += rng.randbytes(rng.choice((1, 100, CHUNK - len(data))))
            self._send(kind, (0, request, self._address()), bytes(data), self._descriptor())
        else:
            self._send(kind, self._numbers(), self._bytes() if kind == Op.TEXT else b"", self._descriptor())

    def _packet(self) -> bytes:
        """Return bytes that are not a message: too short, of a wrong size, or random."""
        rng = self._rng
        data = bytearray(rng.randbytes(rng.choice((1, 4, 8, 47, 48, 49, 100, 4096))))
        if len(data) >= 8 and rng.random() < 0.5:
            data[:4] = rng.choice([op for op in Op if op != Op.INTERRUPT]).to_bytes(4, "little")
            data[4:8] = rng.choice((0, 1, 0xFFFFFFFF, len(data))).to_bytes(4, "little")
        return bytes(data)

    def _send(self, op: int, a: tuple[int, ...], data: bytes = b"", fd: int | None = None) -> None:
        numbers = tuple((value + (1 << 63)) % (1 << 64) - (1 << 63) for value in a)
        rng = self._rng
        if fd is not None and rng.random() < 0.05:  # several descriptors in one packet
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * rng.choice((2, 20))))]
            packet = (int(op)).to_bytes(4, "little") + len(data).to_bytes(4, "little")
            packet += b"".join(
                value.to_bytes(8, "little", signed=True) for value in (*numbers, 0, 0, 0, 0, 0)[:5]
            )
            self._socket.sendmsg([packet + data], rights, socket.MSG_NOSIGNAL)
            return
        self._channel.send(Op(op), numbers, data[:CHUNK], fd)

    def _descriptor(self) -> int | None:
        rng = self._rng
        if self._fds and rng.random() < 0.85:
            return rng.choice(self._fds)
        return rng.choice((None, None, self._socket.fileno()))

    def _number(self) -> int:
        rng = self._rng
        return rng.choice((rng.choice(EDGES), rng.randrange(64), rng.getrandbits(rng.choice((8, 32, 64)))))

    def _numbers(self) -> tuple[int, ...]:
        return tuple(self._number() for _ in range(5))

    def _address(self) -> int:
        return self._rng.choice((0x7F00_0000_1000, 0x7F00_0000_1001, 0, self._number()))

    def _bytes(self) -> bytes:
        rng = self._rng
        return rng.choice((b"", b"1", b"on\n", rng.randbytes(9), rng.randbytes(CHUNK)))

    # Answers of the server

    def _exchange(self) -> str:
        for _ in range(MOST_QUESTIONS):
            message = self._channel.receive()
            if message is None:
                raise _Broken
            try:
                if message.op == Op.DONE:
                    return self._done(message)
                if self._rng.random() < 0.02:
                    self.name += ", gone in the middle"
                    raise _Broken
                self._answer(message)
            finally:
                message.close()
        self.name += ", too many questions"
        raise _Broken

    def _done(self, message: Message) -> str:
        if message.a[0] < 0:
            return errorcode.get(-message.a[0], str(-message.a[0]))
        if self.name == "OPEN" and message.fd >= 0 and len(self._fds) < KEPT:
            self._fds.append(message.fd)
            message.fd = -1
        return "ok"

    def _answer(self, message: Message) -> None:
        rng = self._rng
        op = Op.ANSWER if rng.random() < 0.98 else rng.choice(list(Op))
        if message.op == Op.READ:
            size = min(max(message.a[1], 0), CHUNK)
            size = size if rng.random() < 0.9 else rng.choice((0, 1, size + 1))
            self._send(op, (0 if rng.random() < 0.95 else 14,), rng.randbytes(min(size, CHUNK)))
        elif message.op == Op.LOOKUP:
            self._send(op, (0 if rng.random() < 0.9 else 9,), b"", self._descriptor())
        else:  # STORE, INSTALL
            self._send(op, (rng.choice((0, 0, 0, 14, self._number())),))


def fuzz_protocol(
    server: Server, seed: int, n: int, *, progress: Callable[[int], None] | None = None
) -> Report:
    """Send `n` hostile packets to a server that also serves an honest program.

    Parameters
    ----------
    server : a server that is not used by anything else meanwhile; it can be used afterwards.
    seed : seed of all random numbers.
    n : number of requests.
    progress : called from time to time with the number of requests done.

    Returns
    -------
    Report
        Its `late` counts requests without an answer or a closed connection within `BOUND`.
    """
    kernel = server.machine.kernel
    rng, report = random.Random(seed), Report(seed, n)
    fds: list[int] = []
    nodes, paths = [node.path for node in kernel.nodes()], list(kernel.files())
    clients: list[_Client] = []
    with watched(kernel, report, rng, progress, _wrong) as count:
        for _ in range(n):
            start = time.monotonic()
            if len(clients) < CLIENTS:
                clients.append(_Client(str(server.path), rng, fds, nodes, paths))
            client = rng.choice(clients)
            client.name = ""
            try:
                outcome = client.one()
            except TimeoutError:
                outcome, report.late = "late", report.late + 1
            except _Broken:
                outcome = "broken off"
            except ProtocolError as error:
                outcome, report.internal = str(error), report.internal + 1
            if outcome in ("late", "broken off") or rng.random() < 0.01:
                client.close()
                clients.remove(client)
            if fds and rng.random() < 0.02:
                os.close(fds.pop(rng.randrange(len(fds))))
            if client.name.startswith("IOCTL"):
                report.ioctls += 1
                report.passed += outcome == "ok"
            count(outcome, start, client.name)
        for client in clients:
            client.close()
        for fd in fds:
            os.close(fd)
        _all_gone(server)
        if server.clients:
            report.leaks.append("connections are still served")
        if len(server.machine.descriptors):
            report.leaks.append(f"{len(server.machine.descriptors)} descriptors of programs")
    return report


def _wrong(text: str) -> bool:
    """Whether a line of the log reports an error of the kernel's model or of the server itself."""
    return "internal error" in text or (
        text.startswith("server: ") and not text.startswith("server: process")
    )


def _all_gone(server: Server) -> None:
    """Wait until the server has noticed that every client has disconnected."""
    end = time.monotonic() + BOUND
    while (server.clients or len(server.machine.descriptors)) and time.monotonic() < end:
        with suppress(OSError):
            server.machine.descriptors.reap()
        time.sleep(0.01)
