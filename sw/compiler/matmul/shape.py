"""A matrix product: the types that the NPU multiplies, the sizes, and the layout of matrices in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.spec.layouts import ATOM_BYTES

ATOM_BITS = 8 * ATOM_BYTES
MAX_CHANNELS = 65504
"""Largest K: DATAIN_CHANNEL has 16 bits."""
CHANNEL_STEP = 32
"""K must be a multiple of this, a whole weight tile in every type."""


class MatmulError(ValueError):
    """The product cannot be computed; the message gives the reason."""


@dataclass(frozen=True)
class MatmulKind:
    """Types of a product.

    `code` is the precision code of A and B [HW 3] and `out` that of C; `group` is the number
    of columns computed in parallel.
    """

    name: str
    code: int
    bits: int
    group: int
    out: int
    out_bits: int

    @property
    def is_float(self) -> bool:
        """Whether A and B are fp16."""
        return self.code == 2

    @property
    def sums(self) -> MatmulKind | None:
        """The kind with sums of parts of K that ERDMA can read back; None if K cannot be divided."""
        if self.is_float:
            return KINDS["float16 x float16 -> float32"]
        return KINDS["int8 x int8 -> int32"] if self.bits == 8 and self.out_bits == 32 else None

    @property
    def a_step(self) -> int:
        """Elements of A per atom, the last dimension of its native layout."""
        return ATOM_BITS // self.bits

    @property
    def c_step(self) -> int:
        """Elements of C per atom."""
        return ATOM_BITS // self.out_bits


INT4, INT8, FP16 = (6, 4, 64), (0, 8, 32), (2, 16, 16)
KINDS = {
    kind.name: kind
    for kind in (
        MatmulKind("float16 x float16 -> float32", *FP16, 5, 32),
        MatmulKind("float16 x float16 -> float16", *FP16, 2, 16),
        MatmulKind("int8 x int8 -> int32", *INT8, 4, 32),
        MatmulKind("int8 x int8 -> int8", *INT8, 0, 8),
        MatmulKind("int8 x int8 -> float32", *INT8, 5, 32),
        MatmulKind("int4 x int4 -> int16", *INT4, 1, 16),
    )
}
"""Products of the RK3588, by name."""


@dataclass(frozen=True)
class ProductShape:
    """C (M x N) = A (M x K) * B (K x N) with their layouts.

    Members
    -------
    a_native, c_native : whether A or C has the native layout; otherwise it is stored row by row.
    whole_k : whether K must not be divided into parts, each with its block of B: either B is stored in the
        native layout of the whole K x N, or the operation on the sums needs all of K.

    Raises
    ------
    MatmulError
        If a size is not a positive multiple of what the type needs, or K is above the limit.
    """

    kind: MatmulKind
    m: int
    k: int
    n: int
    a_native: bool = False
    c_native: bool = False
    whole_k: bool = False

    def __post_init__(self) -> None:
        if self.m <= 0 or self.k <= 0 or self.n <= 0:
            raise MatmulError(f"sizes must be positive, not M {self.m}, K {self.k}, N {self.n}")
        if self.k % CHANNEL_STEP:
            raise MatmulError(f"K must be a multiple of {CHANNEL_STEP}, not {self.k}")
        if self.n % self.kind.group:
            raise MatmulError(f"N must be a multiple of {self.kind.group} for {self.kind.name}, not {self.n}")
        if self.k > MAX_CHANNELS:
            raise MatmulError(f"K may be up to {MAX_CHANNELS}, not {self.k}")

    @property
    def a_bytes(self) -> int:
        """Bytes of A."""
        return self.m * self.k * self.kind.bits // 8

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        return self.k * self.n * self.kind.bits // 8

    @property
    def c_bytes(self) -> int:
        """Bytes of C."""
        return self.m * self.n * self.kind.out_bits // 8

    @property
    def row_atoms(self) -> int:
        """Atoms of a row of A."""
        return self.k * self.kind.bits // ATOM_BITS

    @property
    def line_atoms(self) -> int:
        """Atoms of a row of C."""
        return self.n * self.kind.out_bits // ATOM_BITS

    @property
    def divisible(self) -> bool:
        """Whether K may be divided into parts."""
        return self.kind.sums is not None and not self.whole_k


def pack_b(matrix: npt.NDArray[np.generic], kind: MatmulKind) -> npt.NDArray[np.uint8]:
    """Convert B (K x N; int4 as int8 numbers) to the native layout [N/G, K/32, G, 32], padded with zeros.

    In int4 the element with the even index of K is in the low nibble.
    """
    k, n = matrix.shape
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    full = np.zeros((rows * CHANNEL_STEP, columns * kind.group), dtype=matrix.dtype)
    full[:k, :n] = matrix
    tiles = full.reshape(rows, CHANNEL_STEP, columns, kind.group).transpose(2, 0, 3, 1)
    return pack_elements(np.ascontiguousarray(tiles), kind.bits)


def unpack_b(memory: npt.NDArray[np.uint8], k: int, n: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """Convert B from the native layout to (K x N); the inverse of `pack_b`."""
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    values = unpack_elements(memory, rows * columns * CHANNEL_STEP * kind.group, kind)
    tiles = values.reshape(columns, rows, kind.group, CHANNEL_STEP).transpose(1, 3, 0, 2)
    return np.ascontiguousarray(tiles.reshape(rows * CHANNEL_STEP, -1)[:k, :n])


def pack_elements(values: npt.NDArray[np.generic], bits: int) -> npt.NDArray[np.uint8]:
    """Bytes of an array in C order; with 4 bits, two elements a byte and the even one in the low nibble."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits != 4:
        return flat.view(np.uint8)
    nibbles = flat.astype(np.int8).view(np.uint8) % 16
    return (nibbles[0::2] + 16 * nibbles[1::2]).astype(np.uint8)


def unpack_elements(memory: npt.NDArray[np.uint8], count: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """Return `count` elements of A or B; the inverse of `pack_elements` (int4 as int8 numbers)."""
    data = np.ascontiguousarray(memory[: count * kind.bits // 8])
    if kind.bits != 4:
        return data.view(np.float16 if kind.is_float else np.int8)
    nibbles = np.stack([data % 16, data // 16], axis=1).reshape(-1).astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
