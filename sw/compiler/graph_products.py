"""Operations of the graph for products of two activations.

The second factor of a product becomes the weights of the CNA.  Two operations of the DPU bring it into the
layout of weights [HW 3.6]: `KernelAtoms` puts the atoms of 32 elements of a row together, `KernelTiles` puts
the rows of 16 kernels together.
"""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.compiler.graph import Op, Tensor
from rkcosim.spec.layouts.weights import channel_group, kernel_group


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
    """

    heads: int
    rows: int
    depth: int
    columns: int
    split_a: bool = False
    split_b: bool = False
    split_y: bool = False
    turned: bool = True

    @property
    def blocks(self) -> int:
        """Weight tiles along the depth."""
        return -(-self.depth // channel_group())

    @property
    def groups(self) -> int:
        """Kernel groups of a head, rounded up so that the channels of the result fill whole weight tiles."""
        per_tile = channel_group() // kernel_group(2)
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
        return 8 * self.heads * self.groups, self.blocks, 4 * kernel_group(2)


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
class Product(Op):
    """Product of each head's rows of the first tensor with its weights, the result of `KernelTiles`.

    All sums are multiplied by `scale`, an fp16 number.
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
