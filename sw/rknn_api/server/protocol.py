"""Messages between `librknnrt.so` and the server; the C side is sw/rknn_api/native/rknnrt.h.

Every message is one packet of 64 bytes on a SOCK_SEQPACKET socket: the kind of message, the number of a
function, the number of used bytes of the arena, and six numbers `a`. A file descriptor may accompany it
(SCM_RIGHTS). The arena is memory that a thread of the program shares with the server. It holds arguments and
results; a pointer in a message or in a struct in the arena is an offset, 0 for a null pointer.

=========  =====================================  =====================================================
op         a                                      effect and answer
=========  =====================================  =====================================================
SESSION    digest of the declarations             DONE with the session's number; the connection stays
                                                  open while the process runs, and when it is closed
                                                  all resources of the process are freed
THREAD     session; with the arena                the connection serves the calls of one thread
ARENA      with a new arena                       replaces the previous arena; no answer
CALL       arguments; with some calls a           GROW and CALLBACK from the server, then DONE
           descriptor
DONE       result, two numbers; with some calls   the call returns
           a descriptor
GROW       bytes                                  ANSWER with a larger arena that has all of the old one
CALLBACK   function, node, offset and number      ANSWER with the function's result; the function may
           of inputs and outputs; `number` 1      make calls before
           for the function that ends a node
ANSWER     result                                 ends GROW or CALLBACK
=========  =====================================  =====================================================
"""

from __future__ import annotations

import array
import ctypes as ct
import errno
import fcntl
import mmap
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from rkcosim.rknn_api.declarations import ARGUMENTS

ALIGN = 64
"""Alignment of objects in an arena, in bytes."""

MOST_BYTES = 1 << 34
"""Maximum size of an arena in bytes."""

_PACKET = struct.Struct(f"<IIQ{ARGUMENTS}q")
_RIGHTS_ROOM = socket.CMSG_SPACE(4)


class Op(IntEnum):
    """Kinds of messages."""

    SESSION = 1
    THREAD = 2
    ARENA = 3
    CALL = 4
    ANSWER = 5
    DONE = 16
    CALLBACK = 17
    GROW = 18


class ProtocolError(Exception):
    """Raised if the other side sends an invalid message, or one that refers to an unknown object."""


class Gone(Exception):
    """Raised if the program has ended or closed the connection."""


@dataclass
class Packet:
    """One message.

    Members
    -------
    op : kind of message, a value of `Op`.
    number : number of a function.
    used : number of used bytes of the arena.
    a : six numbers.
    fd : descriptor that came with the message; -1 without one.
    """

    op: int
    number: int
    used: int
    a: tuple[int, ...]
    fd: int = -1

    def close(self) -> None:
        """Close the descriptor, if there is one."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def take_fd(self) -> int:
        """Return the descriptor (-1 without one); the caller becomes responsible for closing it."""
        fd, self.fd = self.fd, -1
        return fd


class Channel:
    """Connection that sends and receives messages on a connected socket of type SOCK_SEQPACKET."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, op: Op, a: tuple[int, ...] = (), number: int = 0, used: int = 0, fd: int = -1) -> None:
        """Send a message, with the descriptor `fd` unless it is -1.

        Raises
        ------
        Gone
            if the other side has closed the connection.
        """
        packet = _PACKET.pack(op, number, used, *a, *(0,) * (ARGUMENTS - len(a)))
        try:
            if fd < 0:
                self.socket.send(packet, socket.MSG_NOSIGNAL)
            else:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
                self.socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Gone from error

    def receive(self) -> Packet:
        """Wait for the next message; the caller closes its descriptor.

        Raises
        ------
        Gone
            if the other side has closed the connection.
        ProtocolError
            if the packet has another size.
        """
        try:
            data, rights, _, _ = self.socket.recvmsg(_PACKET.size + 1, _RIGHTS_ROOM, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.EBADF, errno.ENOTCONN):
                raise Gone from error
            raise
        numbers = array.array("i")
        for level, kind, part in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers.frombytes(part[: len(part) - len(part) % numbers.itemsize])
        if len(data) != _PACKET.size:
            for number in numbers:
                os.close(number)
            if not data:
                raise Gone
            raise ProtocolError(f"a packet of {len(data)} bytes")
        for number in numbers[1:]:
            os.close(number)
        op, number, used, *a = _PACKET.unpack(data)
        return Packet(op, number, used, tuple(a), numbers[0] if numbers else -1)


class Arena:
    """Memory shared with a thread of a program.

    Parameters
    ----------
    fd : descriptor of a memory file that is sealed against shrinking; the caller closes it.

    Members
    -------
    base : address of the memory in this process.
    size : number of bytes.

    Raises
    ------
    ProtocolError
        if the file can shrink, is empty, larger than `MOST_BYTES` or cannot be mapped.
    """

    def __init__(self, fd: int) -> None:
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            self.size = os.fstat(fd).st_size
            if not seals & fcntl.F_SEAL_SHRINK or not 0 < self.size <= MOST_BYTES:
                raise ProtocolError("an arena that is not sealed against shrinking or has an invalid size")
            self._pages = mmap.mmap(fd, self.size)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"the arena cannot be mapped: {error}") from error
        self.base = ct.addressof(ct.c_char.from_buffer(self._pages))

    def address(self, offset: int, size: int) -> int:
        """Return the address of `size` bytes at an offset.

        Raises
        ------
        ProtocolError
            if the bytes are not within the arena.
        """
        if not 0 < offset <= self.size or not 0 <= size <= self.size - offset:
            raise ProtocolError(f"{size} bytes from {offset} of an arena of {self.size}")
        return self.base + offset

    def text(self, offset: int) -> bytes:
        """Return the bytes at an offset up to the next zero byte, without it; errors as `address`."""
        self.address(offset, 1)
        end = self._pages.find(b"\0", offset)
        if end < 0:
            raise ProtocolError("a text without a terminating zero")
        return self._pages[offset:end]


def aligned(offset: int) -> int:
    """Return an offset rounded up to a multiple of `ALIGN`."""
    return -(-offset // ALIGN) * ALIGN
