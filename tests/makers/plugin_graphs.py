"""Graphs as the plug-ins of LiteRT and onnxruntime send them: a max pool, and a Relu with open sizes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from rkcosim.apis.link.protocol import ALIGN, Message, RequestKind, Status

FLOAT32, INT8 = 1, 9
"""Types of LiteRT's tensors; FLOAT32 is also ONNX's."""

MAX_POOL_2D = 17


def numbers(*values: int) -> bytes:
    """Return numbers of 64 bits."""
    return struct.pack(f"<{len(values)}q", *values)


def data(content: bytes) -> bytes:
    """Return bytes behind their number."""
    return numbers(len(content)) + content


def ints(*values: int) -> bytes:
    """Return a list of int32."""
    return data(struct.pack(f"<{len(values)}i", *values))


def longs(*values: int) -> bytes:
    """Return a list of int64."""
    return data(numbers(*values))


def _tensor(name: bytes, shape: Sequence[int]) -> bytes:
    scales, size = data(np.array([0.5], np.float32).tobytes()), int(np.prod(shape))
    facts = numbers(INT8, 0, 0) + data(name) + ints(*shape) + ints() + numbers(0)
    return facts + scales + ints(0) + numbers(size, 0) + data(b"")


def litert_pool(height: int, width: int, channels: int) -> bytes:
    """Return a graph of LiteRT: node 0 is a max pool of 2 x 2, int8, tensor 0 its input and 1 its output."""
    tensors = [
        _tensor(b"x", (1, height, width, channels)),
        _tensor(b"y", (1, height // 2, width // 2, channels)),
    ]
    node = numbers(0, MAX_POOL_2D, 1, 1) + ints(0) + ints(1)
    node += data(struct.pack("@6i", 2, 2, 2, 2, 2, 0)) + data(b"")
    return numbers(2) + b"".join(tensors) + numbers(1) + node


def _value(name: bytes, shape: Sequence[int]) -> bytes:
    return data(name) + numbers(0, 1, FLOAT32) + longs(*shape)


def ort_value(name: bytes, shape: Sequence[int]) -> bytes:
    """Return a list of one value."""
    return numbers(1) + _value(name, shape)


def ort_relu(shape: Sequence[int]) -> bytes:
    """Return a graph of onnxruntime: a Relu of x, whose result is y; -1 for open sizes."""
    x, y = ort_value(b"x", shape), ort_value(b"y", shape)
    node = data(b"relu") + data(b"Relu") + data(b"") + numbers(0) + x + numbers(0) + y + numbers(0)
    return data(b"") + numbers(8, 1) + data(b"") + numbers(13, 0, 1) + node + y


def room(*sizes: int) -> int:
    """Return the bytes of a RUN for tensors of these sizes."""
    return sum(-(-size // ALIGN) * ALIGN for size in sizes)


Answer = Callable[[Message, memoryview], tuple[Message, bytes]]


def ask(answer: Answer, kind: RequestKind, number: int = 0, content: bytes = b"") -> tuple[int, bytes]:
    """Send a request to the calls of a plug-in; return the number of the answer and its contents."""
    memory = bytearray(content)
    message, back = answer(
        Message(kind, number=number, used=len(memory), size=len(memory)), memoryview(memory)
    )
    assert message.status == Status.OK
    return message.number, back or bytes(memory)
