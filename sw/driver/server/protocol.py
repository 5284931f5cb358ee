"""Messages between the preload library and the server; the C side is sw/driver/native/npu_preload.h.

Every message is one packet of a SOCK_SEQPACKET socket: a header (`op`, number of payload bytes, five
64-bit numbers `a`) and the payload.  A client sends a request and answers the server's questions until
DONE.

A descriptor is never identified by a number: the descriptor itself is part of the message (SCM_RIGHTS), so
that only a process that has it can use it.

=========  ======================================  =====================================================
op         a, payload                              then
=========  ======================================  =====================================================
HELLO      version, number                         first message of a connection; no answer
OPEN       flags; path                             DONE with the descriptor
IOCTL      -, request, address; input data         questions, DONE; with the descriptor
MMAP       -, offset, length, prot, flags          DONE with a memory descriptor, a[1] its offset; likewise
SIZE       likewise with the descriptor            DONE, a[0] the bytes of a buffer
TEXT       bytes to write; likewise                DONE
INTERRUPT  number of another connection            a signal: its call ends early if possible; no answer
READ       address, size                           ANSWER with the bytes, or a[0] the error
STORE      address; bytes                          ANSWER, a[0] the error or 0
INSTALL    close-on-exec; with a descriptor        ANSWER, a[0] its number
LOOKUP     descriptor                              ANSWER with it if the server made it; a[0] an error
DONE       result, extra, address; bytes for it    the call returns
=========  ======================================  =====================================================
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from rkcosim.driver.kernel.interface import CallerError

VERSION = 2
"""Version of the protocol; library and server must have the same one."""

CHUNK = 32768
"""Maximum number of payload bytes of a packet."""

_HEADER = struct.Struct("<II5q")


_RIGHTS_ROOM = socket.CMSG_SPACE(4)


def _first(rights: list[tuple[int, int, bytes]]) -> int:
    """The first descriptor of ancillary data, -1 if there is none; others are closed."""
    numbers = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    for number in numbers[1:]:
        os.close(number)
    return numbers[0] if numbers else -1


class Op(IntEnum):
    """Kinds of messages."""

    HELLO = 1
    OPEN = 2
    IOCTL = 3
    MMAP = 4
    SIZE = 5
    TEXT = 6
    INTERRUPT = 7
    READ = 16
    STORE = 17
    INSTALL = 18
    LOOKUP = 19
    DONE = 20
    ANSWER = 32


class ProtocolError(CallerError):
    """The other side sent data that are not a valid message."""


@dataclass
class Message:
    """One packet: kind, five numbers, payload, and the descriptor that it carries (-1: none).

    `short` is set if it carried a descriptor that this process had no room for.
    """

    op: int
    a: tuple[int, ...]
    data: bytes
    fd: int = -1
    short: bool = False

    def close(self) -> None:
        """Close the descriptor, if there is one."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class Channel:
    """Send and receive messages on a connected socket.

    Parameters
    ----------
    sock : socket of type SOCK_SEQPACKET.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, op: Op, a: tuple[int, ...] = (), data: bytes = b"", fd: int | None = None) -> None:
        """Send a message, with or without a descriptor.

        Raises
        ------
        OSError
            If the other side has closed the connection.
        """
        packet = _HEADER.pack(op, len(data), *a, *(0,) * (5 - len(a))) + data
        if fd is None:
            self.socket.send(packet, socket.MSG_NOSIGNAL)
        else:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            self.socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)

    def receive(self) -> Message | None:
        """The next message, None if the other side has closed; the caller closes its descriptor.

        Raises
        ------
        ProtocolError
            If the packet is not a valid message.
        """
        try:
            packet, rights, flags, _ = self.socket.recvmsg(
                _HEADER.size + CHUNK, _RIGHTS_ROOM, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.EBADF):
                return None
            raise
        fd = _first(rights)
        message = None
        try:
            message = self._message(packet)
        finally:
            if fd >= 0 and message is None:
                os.close(fd)
        if message is not None:
            message.fd, message.short = fd, fd < 0 and bool(flags & socket.MSG_CTRUNC)
        return message

    @staticmethod
    def _message(packet: bytes) -> Message | None:
        if not packet:
            return None
        if len(packet) < _HEADER.size:
            raise ProtocolError(f"a packet of {len(packet)} bytes")
        op, size, *a = _HEADER.unpack_from(packet)
        if size != len(packet) - _HEADER.size:
            raise ProtocolError(f"a packet of {len(packet)} bytes whose header specifies {size}")
        return Message(op, tuple(a), packet[_HEADER.size :])
