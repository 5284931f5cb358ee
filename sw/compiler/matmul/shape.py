"""A matrix product: the types that the NPU multiplies, the sizes, and errors about them."""

from __future__ import annotations

from dataclasses import dataclass

from sw.layouts import ATOM_BYTES

ATOM_BITS = 8 * ATOM_BYTES
MAX_CHANNELS = 65504
"""K: DATAIN_CHANNEL has 16 bits."""
CHANNEL_STEP = 32
"""K must be a multiple of this: a whole weight tile in every type."""


class MatmulError(ValueError):
    """A product that cannot be computed; the message says why."""


@dataclass(frozen=True)
class MatmulKind:
    """Types of a product.

    `code` is the precision code of A and B (docs/hardware.md 0), `out` that of C; `group` the
    columns computed in parallel.
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
        """The kind that makes sums of a part of K, which ERDMA can bring back; None where K stays whole."""
        if self.is_float:
            return KINDS["float16 x float16 -> float32"]
        return KINDS["int8 x int8 -> int32"] if self.bits == 8 and self.out_bits == 32 else None

    @property
    def a_step(self) -> int:
        """Elements of A in an atom, the last dimension of its native layout."""
        return ATOM_BITS // self.bits

    @property
    def c_step(self) -> int:
        """Elements of C in an atom."""
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
    a_native, c_native : native layout instead of row by row.
    whole_k : K is not computed in parts, each with its own block of B: B lies in memory in the native
        layout of the whole K x N, or what is done with the sums needs all of them.

    Raises
    ------
    MatmulError
        for sizes that are not positive multiples of what the type needs, or K past the limit.
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
        """Whether K may be computed in parts."""
        return self.kind.sums is not None and not self.whole_k
