"""Register programs that bring codes into the layout of weights, for products of two activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.products import Move, moved, split
from rkcosim.compiler.programs.task import Ref, Settings
from rkcosim.compiler.steps import ByteTilesStep
from rkcosim.spec.layouts import ATOM_BYTES
from rkcosim.spec.layouts.weights import channel_group

MAX_PACKETS = 2**11
"""Largest number of packets along the surfaces (SIZE_C_WDMA)."""
PACKET = 8
"""Atoms of a packet."""


def byte_tiles(step: ByteTilesStep, x: Place, y: Place) -> Iterator[Settings]:
    """Yield the programs of a `ByteTilesStep`.

    Raises
    ------
    ModelError
        If the rows to be transposed are not whole weight tiles.
    """
    yield from _rows(step, x, y) if step.factors.turned else _columns(step, x, y)


def _rows(step: ByteTilesStep, x: Place, y: Place) -> Iterator[Settings]:
    """Kernels are rows of x: the tasks of each group of a head put their atoms together."""
    factors = step.factors
    tile = factors.group * factors.block_atoms
    for head in range(factors.heads):
        surfaces = factors.blocks * factors.block_atoms
        first = head * surfaces * x.surface if factors.split_b else head * factors.columns
        for group in range(factors.groups):
            kernel = group * factors.group
            whole = Move(
                x.ref + (first + kernel) * ATOM_BYTES,
                y.ref + (head * factors.groups + group) * factors.blocks * tile * ATOM_BYTES,
                columns=1,
                rows=min(factors.group, factors.columns - kernel),
                surfaces=surfaces,
                apart=x.surface,
                line=factors.block_atoms,
                step=1,
                series=factors.block_atoms,
                add=tile,
            )
            yield from (moved(move) for move in split(whole))


@dataclass(frozen=True)
class _Band:
    """Kernels that lie one after another: the first atom, their number of surfaces, the first weight tile."""

    atom: int
    surfaces: int
    tile: int


def _columns(step: ByteTilesStep, x: Place, y: Place) -> Iterator[Settings]:
    """Kernels are channels of x: blocks of 16 x 16 codes are transposed, as packets [HW 7.12].

    A task takes every second atom of the depth and every second surface, because the packets are the same
    number of atoms apart only then.
    """
    factors = step.factors
    tile = factors.group * factors.block_atoms
    for band in _bands(step, x):
        for half in range(min(factors.block_atoms, band.surfaces)):
            count = -(-(band.surfaces - half) // factors.block_atoms)
            most = MAX_PACKETS // factors.blocks
            for at in range(0, count, most):
                for part in range(factors.block_atoms):
                    source = band.atom + (factors.block_atoms * at + half) * x.surface + factors.atom * part
                    target = (band.tile + at * factors.blocks) * tile + half * tile // 2 + part
                    ends = x.ref + source * ATOM_BYTES, y.ref + target * ATOM_BYTES
                    yield _packets(step, ends, min(most, count - at), x.surface)


def _bands(step: ByteTilesStep, x: Place) -> Iterator[_Band]:
    factors = step.factors
    depth, surfaces = factors.blocks * channel_group(), -(-factors.columns // factors.atom)
    if x.surface < (1 if factors.split_b else factors.heads) * depth:
        raise ModelError(f"{step.kind} '{step.name}': {x.surface} rows are not whole weight tiles")
    if factors.split_b and factors.columns % factors.group == 0:
        yield _Band(0, factors.heads * surfaces, 0)
        return
    for head in range(factors.heads):
        first = head * surfaces * x.surface if factors.split_b else head * depth
        yield _Band(first, surfaces, head * factors.groups * factors.blocks)


def _packets(step: ByteTilesStep, ends: tuple[Ref, Ref], surfaces: int, apart: int) -> Settings:
    """Return a task that transposes a line of 16 atoms from each block of `surfaces` surfaces."""
    factors = step.factors
    settings = moved(
        Move(
            *ends,
            columns=factors.atom,
            rows=factors.blocks,
            surfaces=surfaces,
            apart=factors.block_atoms * apart,
            line=factors.atom,
            step=factors.block_atoms,
            series=PACKET,
            add=factors.group * factors.block_atoms,
            skip=factors.atom * (factors.block_atoms - 1),
        ),
        packets=True,
    )
    # Row and surface of a packet are eight kernels of a surface, and a block of a surface.
    settings.change("DPU", "BS_OW_CFG", TP_ORG_EN=1)
    halves = factors.atom // PACKET
    settings.change("DPU", "WDMA_SIZE_0", TP_PRECISION=0, SIZE_C_WDMA=surfaces * factors.blocks - 1)
    settings.change("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=halves - 1, WIDTH_WDMA=0)
    notch = PACKET * factors.block_atoms - 1
    settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    return settings
