"""Writer of the DPU: packing, addresses of surfaces, packets ([HW 7.11.1] to [HW 7.12])."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.arith import signed
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.memory import Bytes
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import DpuCube
from rkcosim.spec.types import ATOM, LANES, PACKET, STRIPE

Ints = NDArray[np.int64]
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}


NEVER_INSIDE = "r2_pend_never_inside_atoms"
"""Option: OFFSET_PEND never replaces channels of an atom with others [HW 7.11.1]."""


def padded(cube: DpuCube, elements: Ints, options: frozenset[str]) -> Ints:
    """Replace the channels past ORIG_CHANNEL by OFFSET_PEND, where they are in an atom that is padded.

    Parameters
    ----------
    elements
        int64 [pixels, channels].
    """
    last = cube.view("DATA_CUBE_CHANNEL", "ORIG_CHANNEL")
    per = cube.per_atom
    inside = last // per >= (cube.channels - 1) // per  # the cube's last atom
    if cube.flying and (not inside or NEVER_INSIDE in options):
        last = (last // per + 1) * per - 1
    out = elements.copy()
    out[:, last + 1 :] = signed(cube.view("OFFSET_PEND", "OFFSET_PEND"), 16)
    return out


def pack(dpu: View, elements: Ints, bits: int) -> Bytes:
    """Pack elements into atoms; the channels that the last atom lacks are OFFSET_PEND.

    Parameters
    ----------
    elements
        int64 [pixels, channels], of which the low `bits` bits are used.

    Returns
    -------
    uint8 [surfaces, pixels, 16].
    """
    pixels, channels = elements.shape
    full, per_atom = ATOM * 8 // bits, DpuCube(dpu).per_atom
    surfaces = -(-channels // per_atom)
    lanes = np.full((pixels, surfaces * per_atom), signed(dpu("OFFSET_PEND", "OFFSET_PEND"), 16))
    lanes[:, :channels] = elements
    if per_atom < full:  # the rest of an atom is 0 (assumed)
        rest = np.zeros((pixels, surfaces, full - per_atom), np.int64)
        lanes = np.concatenate((lanes.reshape(pixels, surfaces, per_atom), rest), axis=2)
        lanes = lanes.reshape(pixels, surfaces * full)
    if bits == 4:
        raw = ((lanes[:, ::2] & 0xF) | (lanes[:, 1::2] & 0xF) << 4).astype(np.uint8)
    else:
        raw = lanes.astype(_UNSIGNED[bits]).view(np.uint8)
    return raw.reshape(pixels, surfaces, ATOM).transpose(1, 0, 2)


@dataclass(frozen=True)
class SurfacePlan:
    """Atoms of the cube that are written as surfaces, and the distances of the surfaces."""

    series: int
    """Number of surfaces at distance DST_SURF_STRIDE, after which SURF_ADD is added (docs: Z)."""
    surfaces: int
    """Number of surfaces of the cube that are written."""
    pixels: int
    """Number of pixels of each surface that are written."""
    copies: int = 1
    """How often each surface is written."""
    group: int = 1
    """Number of surfaces of a channel group, of which a stripe is written before the next one [HW 7.2]."""
    kept: int = 0
    """Number of surfaces of a series that are written, in order; 0: all."""


def write_surfaces(ctx: Context, dpu: View, atoms: Bytes, width: int, plan: SurfacePlan) -> None:
    """Write uint8 [surfaces, pixels, 16] as surfaces with lines of `width` pixels."""
    atoms = np.repeat(atoms[: plan.surfaces, : plan.pixels], plan.copies, axis=0)
    surface = np.arange(atoms.shape[0], dtype=np.int64)
    if plan.kept:
        surface = surface[surface % plan.series < plan.kept]
        atoms = atoms[surface]
    jump = (surface // plan.series) * dpu("SURFACE_ADD", "SURF_ADD")
    jump = jump + (surface % plan.series) * dpu("DST_SURF_STRIDE")
    line = width + dpu("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    pixel = np.arange(atoms.shape[1], dtype=np.int64)[None, :]
    address = ctx.place(dpu, "DST_BASE_ADDR")
    if atoms.size:
        places = address + ATOM * (jump[:, None] + pixel // width * line + pixel % width)
        if places.shape[0] > 1 and np.diff(np.sort(jump)).min() * ATOM <= places[0, -1] - places[0, 0]:
            # Surfaces overlap: what is written last counts.
            group, stripe = surface[:, None] // (plan.copies * plan.group), pixel // STRIPE
            keys = np.broadcast_arrays(pixel, surface[:, None], stripe, group)
            order = np.lexsort([key.ravel() for key in keys])
            places, atoms = places.ravel()[order], atoms.reshape(-1, ATOM)[order]
        ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, atoms.reshape(-1, ATOM))


def write_maxima(ctx: Context, dpu: View, atoms: Bytes) -> None:
    """Write the maximum over the channels of each pixel of fp16 atoms, uint8 [surfaces, pixels, 16], one
    number after the other [HW 7.16]."""
    pixels = atoms.shape[1]
    bits = np.ascontiguousarray(atoms).view(np.uint16).astype(np.int64)
    ordered = np.where(bits & 0x8000, -1 - (bits & 0x7FFF), bits)
    most = ordered.max(axis=(0, 2))
    row = np.zeros(-(-pixels // LANES) * LANES, np.uint16)
    row[:pixels] = np.where(most < 0, 0x8000 | (-1 - most), most)
    raw = row.view(np.uint8).reshape(-1, ATOM)
    places = ctx.place(dpu, "DST_BASE_ADDR") + ATOM * np.arange(raw.shape[0], dtype=np.int64)
    ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, raw)


def write_packets(ctx: Context, cube: DpuCube, atoms: Bytes) -> None:
    """Write uint8 [surfaces, pixels, 16] as packets of eight atoms [HW 7.12]."""
    dpu, (surfaces, pixels, _) = cube.view, atoms.shape
    each = cube.packet_atoms
    if cube.packet_run % cube.packet_block or (not cube.flying and surfaces % each):
        return
    if not cube.flying:
        grouped = atoms.reshape(surfaces // each, each, pixels, ATOM)
        atoms = grouped.transpose(0, 2, 1, 3)
    stream = np.ascontiguousarray(atoms.reshape(-1, ATOM))
    if dpu("BS_OW_CFG", "TP_ORG_EN"):
        size = cube.packet_block
        blocks = stream.reshape(-1, size, size, ATOM // size)
        stream = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))
    packets = stream.reshape(-1, PACKET, ATOM)[:, : dpu("BS_OW_CFG", "SIZE_E_1") + 1]
    k = np.arange(packets.shape[0], dtype=np.int64)
    width, height = dpu("WDMA_SIZE_1", "WIDTH_WDMA") + 1, dpu("WDMA_SIZE_1", "HEIGHT_WDMA") + 1
    line = width + dpu("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    first = k // (width * height) * dpu("SURFACE_ADD", "SURF_ADD")
    first = first + k // width % height * line + k % width
    e = np.arange(packets.shape[1], dtype=np.int64) * dpu("DST_SURF_STRIDE")
    places = ctx.place(dpu, "DST_BASE_ADDR") + ATOM * (first[:, None] + e[None, :])
    ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, packets.reshape(-1, ATOM))
