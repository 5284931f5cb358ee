"""Messages between the preload library and the server; the C side is sw/driver/native/npu_preload.h.

Every message is one packet of a SOCK_SEQPACKET socket: a header (`op`, number of payload bytes, five
64-bit numbers `a`) and the payload.  A client sends a request and answers the server's questions until
DONE.

=========  ======================================  =====================================================
op         a, payload                              then
=========  ======================================  =====================================================
HELLO      version, number                         first message of a connection; no answer
OPEN       flags; path                             DONE with the descriptor
IOCTL      inode, request, address; what goes in   questions, DONE
MMAP       inode, offset, length, prot, flags      DONE with a memory descriptor, a[1] its offset
SIZE       inode                                   DONE, a[0] the bytes of a buffer
TEXT       inode; bytes to write                   DONE
INTERRUPT  number of another connection            a signal: its call ends early if it can; no answer
READ       address, size                           ANSWER with the bytes, or a[0] the error
STORE      address; bytes                          ANSWER, a[0] the error or 0
INSTALL    close-on-exec; with a descriptor        ANSWER, a[0] its number
LOOKUP     descriptor                              ANSWER, a[0] its inode, 0 if it is none of ours
DONE       result, extra, address; bytes for it    the call returns
=========  ======================================  =====================================================
"""

from __future__ import annotations

import array
import errno
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
"""Of the protocol; library and server must have the same."""

CHUNK = 32768
"""Most payload bytes of a packet."""

_HEADER = struct.Struct("<II5q")


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


class ProtocolError(Exception):
    """The other side sent what no message looks like."""


@dataclass
class Message:
    """One packet: kind, five numbers, payload."""

    op: int
    a: tuple[int, ...]
    data: bytes


class Channel:
    """Sends and receives messages on a connected socket.

    Parameters
    ----------
    sock : of type SOCK_SEQPACKET.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, op: Op, a: tuple[int, ...] = (), data: bytes = b"", fd: int | None = None) -> None:
        """Send a message, with a descriptor or without.

        Raises
        ------
        OSError
            if the other side has gone.
        """
        packet = _HEADER.pack(op, len(data), *a, *(0,) * (5 - len(a))) + data
        if fd is None:
            self.socket.send(packet, socket.MSG_NOSIGNAL)
        else:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            self.socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)

    def receive(self) -> Message | None:
        """The next message, None if the other side has gone.

        Raises
        ------
        ProtocolError
        """
        try:
            packet = self.socket.recv(_HEADER.size + CHUNK)
        except OSError as error:
            if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.EBADF):
                return None
            raise
        if not packet:
            return None
        if len(packet) < _HEADER.size:
            raise ProtocolError(f"a packet of {len(packet)} bytes")
        op, size, *a = _HEADER.unpack_from(packet)
        if size != len(packet) - _HEADER.size:
            raise ProtocolError(f"a packet of {len(packet)} bytes that says it carries {size}")
        return Message(op, tuple(a), packet[_HEADER.size :])
