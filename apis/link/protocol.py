"""Messages between a plug-in and its process, and the reader of their contents.

A message is a `Message` of 32 bytes on a socket of packets (descriptor 3 of the process); its contents are in
shared memory that the plug-in creates, a memfd that comes with the message if it is new.  The plug-in sends a
request, and the process answers it: `used` bytes in the same memory.  `native/rk_worker.h` declares the same.

========= ===================================================== =============================================
call      request                                               answer
========= ===================================================== =============================================
HELLO     `number`: `PROTOCOL`, and the `Runtime` in bits 32    what the plug-in must know (`greeting` of the
          and up; names and values of the options, each with    plug-in's module)
          a final zero
GRAPH     a graph                                               `number` of the graph; LiteRT: a byte for each
                                                                node: 1 if the process can read it;
                                                                onnxruntime: an int32 for each node: the
                                                                number of its part, or -1
COMPILE   `number` of a graph; a part of it                     `number` of the part; or LEAVE and the nodes
                                                                (int32) that cannot be in it (LiteRT only)
SHAPE     `number` of a part; shapes of its inputs as lists of  int64: bytes of a RUN, and for each output its
          int64 (onnxruntime only)                              rank and sizes
FORGET    `number` of a graph                                   -
RUN       `number` of a part; its inputs, each at a multiple of the outputs behind the inputs
          64 bytes; `used` includes the outputs
RELEASE   `number` of a part                                    -
CLOSE     -                                                     sent when all results are written; then the
                                                                process ends
========= ===================================================== =============================================

An answer with the status FAILED has a text instead.
"""

from __future__ import annotations

import array
import enum
import mmap
import socket
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

PROTOCOL = 3
"""Version of the messages; the library is compiled with this number."""

ALIGN = 64
"""Each tensor of a RUN begins at a multiple of this many bytes."""

_FORM = struct.Struct("<IIQQQ")


class Runtime(enum.IntEnum):
    """Runtimes that load a plug-in, and libraries with the interface of another vendor.

    The calls of HEXAGON and NNAPI are in `rkcosim.apis.hexagon.calls` and
    `rkcosim.apis.nnapi.ndk.calls`.
    """

    LITERT = 1
    ONNXRUNTIME = 2
    HEXAGON = 4
    NNAPI = 5


class RequestKind(enum.IntEnum):
    """Kinds of requests."""

    HELLO = 1
    GRAPH = 2
    COMPILE = 3
    FORGET = 4
    RUN = 5
    RELEASE = 6
    CLOSE = 7
    SHAPE = 8


class Status(enum.IntEnum):
    """Kinds of answers."""

    OK = 0
    FAILED = 1
    LEAVE = 2


class ProtocolError(Exception):
    """A message cannot be read."""


@dataclass(frozen=True)
class Message:
    """A request or an answer; the members are those of `struct rk_message`."""

    call: int
    status: int = Status.OK
    number: int = 0
    used: int = 0
    size: int = 0


class Channel:
    """The process's end of the connection.

    Parameters
    ----------
    connection : a socket of packets.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._memory: mmap.mmap | None = None

    def receive(self) -> tuple[Message, memoryview] | None:
        """Return the next request and the shared memory, None if the other end is closed.

        Raises
        ------
        ProtocolError
            if the message is damaged.
        """
        try:
            data, rights, _, _ = self._socket.recvmsg(_FORM.size, socket.CMSG_SPACE(4))
        except ConnectionError:
            return None
        if not data:
            return None
        descriptors = array.array("i")
        for level, kind, content in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content)
        try:
            if len(data) != _FORM.size:
                raise ProtocolError(f"a message of {len(data)} bytes")
            message = Message(*_FORM.unpack(data))
            if descriptors:
                self._memory = mmap.mmap(descriptors[0], message.size)
        except (OSError, ValueError, OverflowError) as error:
            raise ProtocolError(f"shared memory of {message.size} bytes: {error}") from error
        finally:
            for descriptor in descriptors:
                socket.close(descriptor)
        if self._memory is None or not message.used <= message.size == len(self._memory):
            raise ProtocolError("a message without its shared memory")
        return message, memoryview(self._memory)

    def send(self, message: Message, content: bytes = b"") -> None:
        """Answer a request; the contents are cut to the shared memory."""
        if content:
            assert self._memory is not None
            content = content[: len(self._memory)]
            self._memory[: len(content)] = content
            message = replace(message, used=len(content))
        data = _FORM.pack(message.call, message.status, message.number, message.used, message.size)
        try:
            self._socket.send(data)
        except ConnectionError:
            return  # the next `receive` reports it


class Reader:
    """Reads numbers, bytes and lists from the contents of a request.

    Parameters
    ----------
    data : the contents.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def bytes(self, size: int | None = None) -> bytes:
        """Read `size` bytes, or a number of bytes and then these."""
        size = self.number() if size is None else size
        if not 0 <= size <= len(self._data) - self._at:
            raise ProtocolError(f"{size} bytes at byte {self._at} of {len(self._data)}")
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._data) - self._at

    def number(self) -> int:
        """Read a signed number of 64 bits."""
        return int.from_bytes(self.bytes(8), "little", signed=True)

    def text(self) -> str:
        """Read a text."""
        return self.bytes().decode(errors="replace")

    def ints(self) -> tuple[int, ...]:
        """Read a list of int32."""
        return tuple(int(n) for n in self._array(np.dtype(np.int32)))

    def longs(self) -> tuple[int, ...]:
        """Read a list of int64."""
        return tuple(int(n) for n in self._array(np.dtype(np.int64)))

    def floats(self) -> npt.NDArray[np.float32]:
        """Read a list of float32."""
        return self._array(np.dtype(np.float32))

    def count(self, most: int = 10**6) -> int:
        """Read a number of elements, at most `most`."""
        number = self.number()
        if not 0 <= number <= most:
            raise ProtocolError(f"{number} elements at byte {self._at - 8}")
        return number

    def _array(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        data = self.bytes()
        if len(data) % dtype.itemsize:
            raise ProtocolError(f"a list of {len(data)} bytes at byte {self._at}")
        return np.frombuffer(data, dtype)
