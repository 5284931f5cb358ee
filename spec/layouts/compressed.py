"""Encoder of compressed weights [HW 4.13]; the constants of the format are in `rkcosim.spec.weight_code`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from rkcosim.spec.types import ATOM
from rkcosim.spec.weight_code import (
    HEADER_BYTES,
    HEADER_CLASSES,
    HEADER_FLAGS,
    HEADER_OFFSET,
    HEADER_RUNS,
    LANES_OF_ATOM,
    PLAIN,
    PREFIXES,
    QUAD,
    RUNS,
    SEGMENT_ALIGN,
    SEGMENTS,
    WHOLE,
    WIDEST,
    ZERO_RUN,
)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SegmentCode:
    """Parameters of a segment's code, which its header stores.

    Attributes
    ----------
    runs : bool
        Whether class 0 is a run of zeros (header byte 0 is 0x11).
    offset : int
        Value that is subtracted from every weight, modulo 256; -128 to 255.
    classes : tuple of int
        Class of each of the eight ranks; no class occurs twice.
    lengths : tuple of int
        Lengths of the four kinds of runs, 1 to 4; the encoder uses only the first one.
    """

    runs: bool = False
    offset: int = 0
    classes: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    lengths: tuple[int, ...] = (1, 2, 3, 4)

    def header(self) -> bytes:
        """Return the header, 16 bytes."""
        out = bytearray(HEADER_BYTES)
        out[HEADER_FLAGS] = RUNS if self.runs else PLAIN
        out[HEADER_OFFSET : HEADER_OFFSET + 2] = (self.offset % (1 << 16)).to_bytes(2, "little")
        for rank, value in enumerate(self.classes):
            out[HEADER_CLASSES + rank // 2] |= value << 4 * (rank % 2)
        for rank, length in enumerate(self.lengths):
            out[HEADER_RUNS + 2 * rank : HEADER_RUNS + 2 * rank + 2] = length.to_bytes(2, "little")
        return bytes(out)

    def bits(self, weights: Bytes) -> str:
        """Encode the weights of a segment.

        Parameters
        ----------
        weights
            Weights of the segment in their order, uint8 [n].

        Returns
        -------
        The bits as characters "0" and "1", the first bit of the stream first.

        Raises
        ------
        ValueError
            if the class of a value has no rank, or the length of a run of zeros is not a multiple of the
            first of `lengths`.
        """
        values = [(int(w) - self.offset + 128) % 256 - 128 for w in weights]
        out: list[str] = []
        for value, same in groupby(values):
            count = sum(1 for _ in same)
            if self.runs and value == 0:
                if count % self.lengths[0]:
                    raise ValueError(f"{count} zeros cannot be divided into runs of {self.lengths[0]}")
                out += [self._prefix(0) + ZERO_RUN] * (count // self.lengths[0])
            else:
                out += [self._value(value)] * count
        return "".join(out)

    def _prefix(self, kind: int) -> str:
        if kind not in self.classes:
            raise ValueError(f"class {kind} has no rank")
        return PREFIXES[self.classes.index(kind)]

    def _value(self, value: int) -> str:
        sign, size = value < 0, abs(value) if self.runs else ~value if value < 0 else value
        kind = WIDEST if size >> WIDEST else size.bit_length()  # 128 is 0 in seven bits
        rest = size % (1 << WIDEST) if self.runs and kind == WIDEST else size - (1 << kind >> 1)
        width = WIDEST if self.runs and kind == WIDEST else max(kind - 1, 0)
        return self._prefix(kind) + str(int(sign)) + f"{rest:0{width}b}"[::-1][:width]


def segment_values(stream: Bytes) -> list[Bytes]:
    """Divide a stream of weights into 16 segments.

    Parameters
    ----------
    stream
        Weights in the layout of uncompressed weights in memory, uint8, a multiple of 64.

    Returns
    -------
    The weights of each segment in their order, uint8 [n].
    """
    quads = stream.reshape(-1, LANES_OF_ATOM, QUAD)
    step = SEGMENTS // LANES_OF_ATOM
    return [quads[n // LANES_OF_ATOM :: step, n % LANES_OF_ATOM].reshape(-1) for n in range(SEGMENTS)]


def _ranked(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the classes in descending order of their counts."""
    return tuple(sorted(range(len(counts)), key=lambda kind: (-counts[kind], kind)))


def best_code(weights: Bytes) -> SegmentCode:
    """Choose a code that needs few bits for the weights of a segment.

    The offset is the most frequent value, and more frequent classes get lower ranks. The codes with and
    without runs are compared.

    Parameters
    ----------
    weights
        Weights of the segment in their order, uint8 [n].

    Returns
    -------
    The shortest of the compared codes.
    """
    counts = np.bincount(weights, minlength=256)
    offset = int(np.argmax(counts))
    values = (weights.astype(np.int64) - offset + 128) % 256 - 128
    found: list[tuple[int, SegmentCode]] = []
    for runs in (False, True):
        sizes = np.abs(values) if runs else np.where(values < 0, ~values, values)
        kinds = [min(int(v).bit_length(), WIDEST) for v in sizes]
        classes = _ranked(tuple(np.bincount(kinds, minlength=WIDEST + 1).tolist()))
        for length in range(1, 5) if runs else (1,):
            lengths = (length, *(n for n in range(1, 5) if n != length))
            code = SegmentCode(runs, offset, classes, lengths)
            try:
                found.append((len(code.bits(weights)), code))
            except ValueError:
                continue  # the zeros cannot be divided into runs of this length
    return min(found, key=lambda item: item[0])[1]


def compress_weights(
    stream: Bytes, codes: Sequence[SegmentCode] | None = None
) -> tuple[Bytes, tuple[int, ...]]:
    """Compress weights of int8.

    Parameters
    ----------
    stream
        Weights in the layout of `pack_weights`, uint8, a multiple of 64 bytes.
    codes
        Code of each of the 16 segments; None selects `best_code` for each.

    Returns
    -------
    The bytes for memory, uint8, a multiple of 64 bytes, and the values of DCOMP_AMOUNT0 to 15: the size of
    each segment with its header in units of 16 bytes, minus one.

    Raises
    ------
    ValueError
        if the stream is empty or no multiple of 64 bytes, or if a code cannot encode its weights.
    """
    if stream.size == 0 or stream.size % WHOLE:
        raise ValueError(f"weights must have a positive multiple of {WHOLE} bytes, not {stream.size}")
    parts, amounts = [], []
    for number, weights in enumerate(segment_values(stream)):
        code = best_code(weights) if codes is None else codes[number]
        bits = np.array([int(bit) for bit in code.bits(weights)], np.uint8)
        payload = np.packbits(bits, bitorder="little").tobytes()
        amounts.append(-(-len(payload) // ATOM))
        segment = code.header() + payload
        parts.append(segment.ljust(-(-len(segment) // SEGMENT_ALIGN) * SEGMENT_ALIGN, b"\0"))
    return np.frombuffer(b"".join(parts), np.uint8), tuple(amounts)
