"""Format of compressed weights: segments, headers and the prefix code [HW 4.13].

A stream of int8 weights is divided into 16 segments, which are decoded in parallel.  Each segment consists of
a header of 16 bytes and a bit string with a prefix code of eight ranks. A rank stands for a class of values,
in most cases for all values of the same length in bits. The encoder (`rkcosim.spec.layouts.compressed`), the
RTL and the golden model share these constants; each implements the code separately.
"""

from __future__ import annotations

from rkcosim.spec.types import ATOM

SEGMENTS = 16
"""Number of segments of a stream."""

QUAD = 4
"""Number of neighbouring weights that are stored in the same segment."""

LANES_OF_ATOM = ATOM // QUAD
"""Number of segments that hold an atom of weights."""

WHOLE = SEGMENTS * QUAD
"""Weights of which each segment holds four; their number is a multiple of it in all known streams."""

SEGMENT_ALIGN = 64
"""Alignment of a segment in bytes, relative to the address of the weights."""

HEADER_BYTES = 16
"""Bytes of a segment's header."""

CONTROL = 1
"""The only known value of DECOMP_CONTROL other than 0 (no compression)."""

REGNUM = 0x55555555
"""The only known value of DCOMP_REGNUM: 1 in the two bits of each segment."""

MOST_UNITS = 1 << 20
"""Exclusive upper limit of DCOMP_AMOUNT: the longest code of 128 MiB of weights needs less."""

PREFIXES = ("00", "10", "111", "110", "011", "0101", "01001", "01000")
"""Prefix of each rank; the first character is the bit that is read first."""

PLAIN, RUNS = 0x00, 0x11
"""Values of header byte 0: each value is coded separately, or class 0 is a run of zeros."""

ZERO_RUN = "0"
"""Code of the first length of a run; the codes of the other three lengths are unknown."""

WIDEST = 7
"""Class of the values with the most bits."""

HEADER_FLAGS, HEADER_OFFSET, HEADER_ZERO, HEADER_CLASSES, HEADER_RUNS = 0, 1, 3, 4, 8
"""Byte positions in a header: flags, offset (2 bytes), a zero byte, eight classes of 4 bits, and four lengths
of 2 bytes."""

UNKNOWN_RUN = HEADER_RUNS + 2
"""Header byte that is reported for an unknown run code: the first length whose code is unknown."""
