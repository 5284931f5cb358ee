"""Register programs of products of two activations, and of the layout of their weights if these are fp16."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rkcosim.compiler.graph import ModelError, Window
from rkcosim.compiler.graph_products import SUM_BYTES, Factors
from rkcosim.compiler.limits import MAX_NOTCH
from rkcosim.compiler.permutation import MOST_SURFACES
from rkcosim.compiler.programs.convolution import ConvOperands, convolution
from rkcosim.compiler.programs.dpu import Place, dpu_cube, dpu_rest, pointers, rdma_registers
from rkcosim.compiler.programs.elementwise import FLYING_BLOCKS, INT16, UNITS_PER_ATOM
from rkcosim.compiler.programs.floats import MINUS
from rkcosim.compiler.programs.stages import half_bits
from rkcosim.compiler.programs.task import Ref, Settings
from rkcosim.compiler.steps import AtomsStep, Converter, ConvStep, ProductStep, SumsStep, TilesStep
from rkcosim.compiler.tiling import ConvShape, Tile, plan_tiles
from rkcosim.spec.layouts import ATOM_BYTES
from rkcosim.spec.layouts.weights import channel_group, kernel_group

ITEM = 2
"""Bytes of an fp16 number, and of the units in which the DPU moves atoms."""
TILE_ATOMS = kernel_group(ITEM) * channel_group() * ITEM // ATOM_BYTES
"""Atoms of a weight tile: 16 kernels of 32 numbers."""
BLOCK_ATOMS = channel_group() * ITEM // ATOM_BYTES
"""Atoms of 32 numbers of a kernel."""
INT32 = 4
"""Precision code of int32."""


@dataclass(frozen=True)
class Move:
    """A cube of atoms that the DPU copies without changing a bit.

    Members
    -------
    columns, rows, surfaces
        Size of the cube that is read.
    apart
        Atoms between the surfaces that are read; lines follow one another.
    line, step, series, add
        Atoms between the written lines and between the surfaces of a series, surfaces of a series, and atoms
        between two series. A task writes surfaces at one distance only [HW 7.11]: see `split`.
    skip
        Atoms that are skipped after each line that is read.
    """

    source: Ref
    target: Ref
    columns: int
    rows: int
    surfaces: int
    apart: int
    line: int
    step: int
    series: int
    add: int
    skip: int = 0


def split(move: Move) -> Iterator[Move]:
    """Yield moves with one distance of surfaces each, as few as possible, that do the same together."""
    groups = -(-move.surfaces // move.series)
    if move.series == 1 or groups == 1:
        yield replace(move, series=1, add=move.add if move.series == 1 else move.step)
    elif groups < move.series:
        for first in range(0, move.surfaces, move.series):
            source = move.source + first * move.apart * ATOM_BYTES
            target = move.target + first // move.series * move.add * ATOM_BYTES
            here = min(move.series, move.surfaces - first)
            yield replace(move, source=source, target=target, surfaces=here, series=1, add=move.step)
    else:
        for member in range(move.series):
            source = move.source + member * move.apart * ATOM_BYTES
            target = move.target + member * move.step * ATOM_BYTES
            here, apart = -(-(move.surfaces - member) // move.series), move.apart * move.series
            yield replace(move, source=source, target=target, surfaces=here, apart=apart, series=1)


def moved(move: Move, packets: bool = False) -> Settings:
    """Return the program of a move: elements of 16 bits pass unchanged through the DPU.

    With `packets` the series are packets of eight atoms [HW 7.12]; otherwise a series has one surface.
    """
    assert packets or move.series == 1
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    halves = move.surfaces * UNITS_PER_ATOM
    cube = Place(move.target, (halves, move.rows, move.columns), move.surfaces, itemsize=ITEM)
    dpu_cube(settings, cube, move.rows, halves, move.target)
    settings.change("DPU", "DATA_FORMAT", OUT_PRECISION=INT16, IN_PRECISION=INT16, PROC_PRECISION=INT16)
    settings.change("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=move.step)
    notch = move.line - move.columns
    settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    settings.set("DPU", "BS_CFG", BS_RELU_BYPASS=1, BS_MUL_BYPASS=1, BS_ALU_BYPASS=1, BS_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG")
    settings.set("DPU", "BS_MUL_CFG")
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    size = move.series - 1
    settings.set("DPU", "BS_OW_CFG", SIZE_E_2=size, SIZE_E_1=size, SIZE_E_0=size, OD_BYPASS=1)
    dpu_rest(settings, cube, move.rows, halves, None, Converter(1, 0, 0), 1)
    settings.change("DPU", "SURFACE_ADD", SURF_ADD=move.add)
    rest = move.apart - move.rows * move.columns - (move.rows - 1) * move.skip
    rdma_registers(settings, cube, move.rows, halves, source=move.source, notches=(move.skip, rest))
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", IN_PRECISION=INT16, PROC_PRECISION=INT16)
    return settings


def kernel_atoms(step: AtomsStep, x: Place, y: Place) -> Iterator[Settings]:
    """Yield the programs of an `AtomsStep`; one that transposes if kernels are channels.

    Raises
    ------
    ModelError
        If the rows to be transposed are not whole weight tiles.
    """
    kernels, blocks = y.cube[1], y.cube[0] // UNITS_PER_ATOM
    if step.factors.turned:
        whole = Move(
            x.ref,
            y.ref,
            1,
            x.surface,
            blocks * BLOCK_ATOMS,
            apart=x.surface,
            line=BLOCK_ATOMS,
            step=1,
            series=BLOCK_ATOMS,
            add=kernels * BLOCK_ATOMS,
        )
        yield from (moved(move) for move in split(whole))
        return
    if x.surface != blocks * channel_group():
        raise ModelError(f"{step.kind} '{step.name}': {x.surface} rows are not whole weight tiles")
    together = blocks if (kernels - 1) * BLOCK_ATOMS <= MAX_NOTCH else 1
    count = -(-x.cube[0] // x.c2)
    for block, first in itertools.product(range(0, blocks, together), range(0, count, MOST_SURFACES)):
        source = x.ref + (first * x.surface + block * channel_group()) * ATOM_BYTES
        target = y.ref + (block * kernels + first * UNITS_PER_ATOM) * BLOCK_ATOMS * ATOM_BYTES
        yield _transposed(source, target, x.surface, min(MOST_SURFACES, count - first), kernels, together)


def _transposed(source: Ref, target: Ref, apart: int, surfaces: int, kernels: int, blocks: int) -> Settings:
    """Return the program that makes the atoms of kernels that are channels.

    Parameters
    ----------
    source, target
        First atoms.
    apart
        Atoms of a surface that is read.
    surfaces
        Surfaces of eight kernels.
    kernels
        Kernels of the result.
    blocks
        Blocks of 32 rows.
    """
    settings = moved(
        Move(
            source,
            target,
            1,
            blocks * channel_group(),
            surfaces,
            apart=apart,
            line=1,
            step=BLOCK_ATOMS,
            series=UNITS_PER_ATOM,
            add=UNITS_PER_ATOM * BLOCK_ATOMS,
        ),
        packets=True,
    )
    # Packets of 8 atoms [HW 7.12]: column, row and surface of a packet are atom and block of the depth, and
    # eight kernels.
    settings.change("DPU", "BS_OW_CFG", TP_ORG_EN=1)
    settings.change("DPU", "WDMA_SIZE_0", TP_PRECISION=1, SIZE_C_WDMA=surfaces - 1)
    settings.change("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=blocks - 1, WIDTH_WDMA=BLOCK_ATOMS - 1)
    notch = (kernels - 1) * BLOCK_ATOMS if blocks > 1 else 0
    settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    return settings


def kernel_tiles(step: TilesStep, x: Place, y: Place) -> Iterator[Settings]:
    """Yield the program of each head of a `TilesStep`."""
    factors = step.factors
    for head in range(factors.heads):
        first = head * (factors.block_step * x.surface + factors.row_step * BLOCK_ATOMS)
        yield moved(
            Move(
                x.ref + first * ATOM_BYTES,
                y.ref + head * factors.groups * factors.blocks * TILE_ATOMS * ATOM_BYTES,
                TILE_ATOMS,
                factors.groups,
                factors.blocks,
                apart=x.surface,
                line=factors.blocks * TILE_ATOMS,
                step=TILE_ATOMS,
                series=1,
                add=TILE_ATOMS,
            )
        )


def product_tiles(step: ProductStep | SumsStep) -> list[Tile]:
    """Return the tiles of one head; column sums are a product with one row.

    Raises
    ------
    ModelError
        If the product does not fit CBUF.
    """
    factors, what = step.factors, f"{step.kind} '{step.name}'"
    rows = factors.rows if isinstance(step, ProductStep) else 1
    tiles = plan_tiles(_shape(factors, rows, rows), what)
    if any(tile.first_kernel >= factors.columns for tile in tiles):
        raise ModelError(f"{what}: the last columns would need a task of their own")
    return tiles


def _shape(factors: Factors, rows: int, out: int) -> ConvShape:
    depth, kernels = factors.blocks * channel_group(), factors.groups * factors.group
    return ConvShape(depth, rows, 1, kernels, out, 1, Window((1, 1)), False, itemsize=factors.itemsize)


def _convolution(step: ProductStep | SumsStep, converter: Converter) -> ConvStep:
    """Return a convolution without weights of its own, from which the programs are made."""
    return ConvStep(
        step.name,
        step.kind,
        step.inputs,
        step.output,
        weights=np.zeros((0, 0, 1, 1), np.int8),
        bias=np.zeros(0, np.int64),
        multipliers=np.zeros(0, np.int64),
        window=Window((1, 1)),
        depthwise=False,
        converter=converter,
        shift=0,
    )


def _without_table(settings: Settings, weight_zero: int) -> None:
    """Let an int8 convolution have one zero point of the weights, and no multipliers."""
    settings.change("DPU", "BS_CFG", BS_MUL_BYPASS=1)
    settings.change("DPU", "BS_MUL_CFG", BS_MUL_SRC=0)
    settings.change("DPU", "BS_OW_CFG", OW_SRC=0)
    settings.change("DPU", "BS_OW_OP", OW_OP=-weight_zero)
    settings.change("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=1)


def product(
    step: ProductStep, places: tuple[Place, ...], y: Place, table: Ref, tiles: list[Tile]
) -> Iterator[tuple[Settings, Tile]]:
    """Yield the program and the tile of each task of a product.

    `table` has as many zeros as kernels; it is not read if the third place has sums of columns.
    """
    factors, (a, weights, *sums) = step.factors, places
    depth, kernels, size = factors.blocks * channel_group(), factors.groups * factors.group, factors.itemsize
    conv = _convolution(step, step.converter)
    for head in range(factors.heads):
        first = weights.ref + head * kernels * depth * size
        own = sums[0].ref + SUM_BYTES * kernels * head if sums else table
        x_row, x = _part(a, factors.depth, head, factors.split_a, factors.rows)
        y_row, out = _part(y, factors.columns, head, factors.split_y, factors.rows)
        shape = _shape(factors, x.surface, out.surface)
        for tile in tiles:
            start = first + tile.first_kernel * depth * size
            operands = ConvOperands(start, tile.kernels * depth * size, own + SUM_BYTES * tile.first_kernel)
            read = replace(tile, in_first=tile.in_first + x_row, first_row=tile.first_row + y_row)
            settings = convolution(conv, shape, read, x, out, operands)
            real = min(tile.kernels, factors.columns - tile.first_kernel)
            settings.change("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=real - 1)
            if size == 1:
                _without_table(settings, step.weight_zero)
                settings.change("DPU", "BS_CFG", BS_ALU_ALGO=MINUS)
            if step.scale != 1.0:
                settings.change("DPU", "BN_CFG", BN_BYPASS=0, BN_MUL_BYPASS=0)
                settings.change("DPU", "BN_MUL_CFG", BN_MUL_OPERAND=half_bits(step.scale))
            yield settings, tile


def column_sums(
    step: SumsStep, weights: Place, y: Place, features: Ref, tiles: list[Tile]
) -> Iterator[tuple[Settings, Tile]]:
    """Yield the program and the tile of each task of column sums.

    `features` is a pixel whose channels are the zero point, as many as the depth, and zeros behind them.
    """
    factors = step.factors
    depth, kernels = factors.blocks * channel_group(), factors.groups * factors.group
    shape, conv = _shape(factors, 1, 1), _convolution(step, Converter(1, 0, 0))
    x = Place(features, (depth, 1, 1), depth // factors.atom)
    surfaces = SUM_BYTES * factors.group // ATOM_BYTES
    for head in range(factors.heads):
        for tile in tiles:
            start = weights.ref + (head * kernels + tile.first_kernel) * depth
            out = y.ref + SUM_BYTES * (head * kernels + tile.first_kernel)
            settings = convolution(conv, shape, tile, x, y, ConvOperands(start, tile.kernels * depth, out))
            _without_table(settings, step.weight_zero)
            settings.change("DPU", "BS_CFG", BS_ALU_BYPASS=1, BS_BYPASS=1)
            settings.change("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=0)
            settings.change("DPU_RDMA", "BS_BASE_ADDR", BS_BASE_ADDR=0)
            settings.change("DPU", "DATA_FORMAT", OUT_PRECISION=INT32)
            size = surfaces - 1
            settings.change("DPU", "BS_OW_CFG", SIZE_E_2=size, SIZE_E_1=size, SIZE_E_0=size)
            settings.change("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=out)
            settings.change("DPU", "SURFACE_ADD", SURF_ADD=surfaces)
            yield settings, tile


def _part(place: Place, channels: int, head: int, split: bool, rows: int) -> tuple[int, Place]:
    """Return the first row and the place of a head's matrix, whose rows are pixels in one column."""
    place = replace(place, cube=(place.cube[0], place.surface, 1))
    if not split:
        return head * rows, place
    surfaces = -(-channels // place.c2)
    return 0, replace(place, ref=place.ref + head * surfaces * place.surface * ATOM_BYTES)
