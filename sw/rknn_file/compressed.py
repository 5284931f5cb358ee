"""Decoder of the compressed weights of a `.rknn` file, for the mathematical value of a node [HW 4.13].

The NPU decodes compressed weights itself. This decoder is independent of RTL and golden model, so that the
checks on the level of the graph depend on neither.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rkcosim.rknn_file.container import FileTensor
from rkcosim.rknn_file.tables import RknnFileError
from rkcosim.spec import weight_code as form
from rkcosim.spec.layouts import unpack_weights, weights_bytes


def decompress(tensor: FileTensor) -> npt.NDArray[np.int8]:
    """Return the weights of a tensor, int8 (kernels, channels, height, width).

    Raises
    ------
    RknnFileError
        if a segment uses an unknown code (the message names segment and header byte) or ends too early.
    """
    kernels, channels, height, width = tensor.shape
    shape = (kernels, channels, height, width)
    size = weights_bytes(shape, 1)
    if size % form.WHOLE or len(tensor.segments) != form.SEGMENTS:
        raise RknnFileError(
            f"compressed weights '{tensor.name}' of {tensor.shape} in {len(tensor.segments)} segments; the "
            f"division into {form.SEGMENTS} segments is known for multiples of {form.WHOLE} bytes, not {size}"
        )
    stream = np.empty((size // form.WHOLE, form.SEGMENTS, form.QUAD), np.int8)
    for number, (data, header) in enumerate(tensor.segments):
        where = f"compressed weights '{tensor.name}', segment {number}"
        if header != form.HEADER_BYTES:
            raise RknnFileError(f"{where}: a header of {header} bytes")
        values = np.array(list(_values(data, size // form.SEGMENTS, where)), np.int8)
        stream[:, number] = values.reshape(-1, form.QUAD)
    return np.ascontiguousarray(unpack_weights(stream.reshape(-1).view(np.uint8), shape))


def _values(data: bytes, count: int, where: str) -> Iterator[int]:
    """Decode the first `count` values of a segment, -128 to 127; errors as `decompress`."""

    def unknown(byte: int) -> RknnFileError:
        return RknnFileError(f"{where}: header byte {byte} is {data[byte]:#04x}, whose meaning is unknown")

    runs = data[form.HEADER_FLAGS] == form.RUNS
    if data[form.HEADER_FLAGS] not in (form.PLAIN, form.RUNS):
        raise unknown(form.HEADER_FLAGS)
    if data[form.HEADER_ZERO]:
        raise unknown(form.HEADER_ZERO)
    offset = int.from_bytes(data[form.HEADER_OFFSET : form.HEADER_OFFSET + 2], "little", signed=True)
    packed = data[form.HEADER_CLASSES : form.HEADER_RUNS]
    classes = [kind for byte in packed for kind in (byte & 15, byte >> 4)]
    length = int.from_bytes(data[form.HEADER_RUNS : form.HEADER_RUNS + 2], "little")
    bits = np.unpackbits(np.frombuffer(data[form.HEADER_BYTES :], np.uint8), bitorder="little")
    at, given = 0, 0

    def take(size: int) -> int:
        nonlocal at
        if at + size > bits.size:
            raise RknnFileError(f"{where}: ends after {given} of {count} values")
        value = sum(int(bit) << n for n, bit in enumerate(bits[at : at + size]))
        at += size
        return value

    while given < count:
        prefix = ""
        while prefix not in form.PREFIXES:  # ends, since every string of five bits begins with a prefix
            prefix += str(take(1))
        kind = classes[form.PREFIXES.index(prefix)]
        if kind > form.WIDEST:
            raise unknown(form.HEADER_CLASSES + form.PREFIXES.index(prefix) // 2)
        if runs and kind == 0:
            if str(take(1)) != form.ZERO_RUN or not 1 <= length <= 4:
                raise unknown(form.UNKNOWN_RUN)
            zeros = min(length, count - given)
            given += zeros
            yield from [_byte(offset)] * zeros
            continue
        sign = take(1)
        if runs and kind == form.WIDEST:
            size = take(form.WIDEST)
            value = (-size if size else -128) if sign else size
        else:
            size = (1 << kind - 1) + take(kind - 1) if kind else 0
            value = (-size if runs else ~size) if sign else size
        given += 1
        yield _byte(value + offset)


def _byte(value: int) -> int:
    """Return a value modulo 256 as a signed byte."""
    return (value + 128) % 256 - 128
