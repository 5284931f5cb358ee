"""Values between two processes of this package: the number of bytes, then the format of the module marshal.

marshal carries numbers, texts and containers of them only, so that a process that reads a hostile file cannot
give its parent code, as pickle would.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any, BinaryIO

_HEAD = struct.Struct("<Q")


def send(stream: BinaryIO, value: Any) -> None:
    """Write a value: numbers, texts, None, and lists, tuples and dictionaries of them."""
    data = marshal.dumps(value)
    stream.write(_HEAD.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read a value.

    Raises
    ------
    EOFError
        if the stream ends.
    """
    head = _exactly(stream, _HEAD.size)
    return marshal.loads(_exactly(stream, _HEAD.unpack(head)[0]))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data
