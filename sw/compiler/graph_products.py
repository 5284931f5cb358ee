"""Operations of the graph for products of two activations.

The second factor of a product becomes the weights of the CNA.  Of fp16 numbers two operations of the DPU
bring it into the layout of weights [HW 3.6]: `KernelAtoms` puts the atoms of 32 elements of a row together,
`KernelTiles` puts the rows of 16 kernels together.  Bytes need one operation, `ByteTiles`, and `ColumnSums`
if the first factor has a zero point.
"""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.compiler.graph import Op, Tensor
from rkcosim.spec.layouts import ATOM_BYTES
from rkcosim.spec.layouts.weights import channel_group, kernel_group

SUM_BYTES = 4
"""Bytes of a sum in the table of `ColumnSums`."""


@dataclass(frozen=True)
class Factors:
    """The sizes of `heads` products (rows x depth) * (depth x columns), all of them in the same tensors.

    Members
    -------
    split_a, split_b, split_y
        Whether the heads of a tensor are ranges of its channels; otherwise they are ranges of its rows.
    turned
        Whether the rows of the second tensor are the columns of the product (the product with a transposed
        matrix); otherwise its channels are.
    itemsize
        Bytes of an element: 2 for fp16, 1 for codes.
    """

    heads: int
    rows: int
    depth: int
    columns: int
    split_a: bool = False
    split_b: bool = False
    split_y: bool = False
    turned: bool = True
    itemsize: int = 2

    @property
    def atom(self) -> int:
        """Elements of an atom."""
        return ATOM_BYTES // self.itemsize

    @property
    def group(self) -> int:
        """Kernels of a group."""
        return kernel_group(self.itemsize)

    @property
    def block_atoms(self) -> int:
        """Atoms of a kernel in a weight tile."""
        return channel_group() // self.atom

    @property
    def blocks(self) -> int:
        """Weight tiles along the depth."""
        return -(-self.depth // channel_group())

    @property
    def groups(self) -> int:
        """Kernel groups of a head, rounded up so that the channels of the result fill whole weight tiles."""
        per_tile = channel_group() // self.group
        return -(-self.columns // channel_group()) * per_tile

    @property
    def row_step(self) -> int:
        """Distance of the heads in the rows of `KernelAtoms`; 0 if they are ranges of its blocks."""
        return self.columns if self.split_b != self.turned else 0

    @property
    def block_step(self) -> int:
        """Distance of the heads in the blocks of `KernelAtoms`; 0 if they are ranges of its rows."""
        return 0 if self.row_step else self.blocks

    @property
    def atoms_cube(self) -> tuple[int, int, int]:
        """Cube of the result of `KernelAtoms`: a block of 32 elements of the depth, a kernel, an atom."""
        last = (self.heads - 1) * self.row_step
        blocks = self.blocks + (self.heads - 1) * self.block_step
        return 8 * blocks, last + kernel_group(2) * self.groups, 4

    @property
    def tiles_cube(self) -> tuple[int, int, int]:
        """Cube of the weights: a group of 16 kernels of a head, a block of the depth, an atom of a kernel."""
        return self.atom * self.heads * self.groups, self.blocks, self.block_atoms * self.group

    @property
    def sums_cube(self) -> tuple[int, int, int]:
        """Cube of the bytes of `ColumnSums`: 32 bits for each kernel of all heads."""
        return SUM_BYTES * self.heads * self.groups * self.group, 1, 1


@dataclass(frozen=True)
class KernelAtoms(Op):
    """Puts the four atoms of 32 elements of the depth of a kernel next to each other.

    The kernels are the rows of the input (`factors.turned`), or its channels; then elements are transposed.
    """

    factors: Factors


@dataclass(frozen=True)
class KernelTiles(Op):
    """Puts 16 kernels of 32 elements next to each other: the weights of all heads."""

    factors: Factors


@dataclass(frozen=True)
class ByteTiles(Op):
    """The weights of all heads from a tensor of codes, which do not change."""

    factors: Factors


@dataclass(frozen=True)
class ColumnSums(Op):
    """For each kernel the sum of its weights less their zero point, times `zero`, as an integer of 32 bits.

    `zero` is the zero point of the first factor.  The only input is the result of `ByteTiles`.
    """

    factors: Factors
    zero: int


@dataclass(frozen=True)
class Product(Op):
    """Product of each head's rows of the first tensor with its weights: `KernelTiles` or `ByteTiles`.

    Sums of fp16 are multiplied by `scale`, an fp16 number.  Of codes a third input is `ColumnSums`; without
    it the zero point of the first tensor is 0.
    """

    factors: Factors
    scale: float = 1.0

    @property
    def kind(self) -> str:
        """MatMul."""
        return "MatMul"


def rows_of(tensor: Tensor) -> int:
    """Return the rows of a tensor whose pixels are rows of a matrix."""
    return tensor.cube[1] * tensor.cube[2]
