"""Writer of the DPU: packing and places of surfaces (docs/hardware.md 4.9, 4.10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import signed
from cosim.golden.task.context import Context
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def pack(dpu: View, elements: Ints, bits: int) -> Bytes:
    """Pack elements into atoms; channels past ORIG_CHANNEL and those that fill the last atom are OFFSET_PEND.

    Parameters
    ----------
    elements
        int64 [pixels, channels], of which the low `bits` bits count.

    Returns
    -------
    uint8 [surfaces, pixels, 16].
    """
    pixels, channels = elements.shape
    per_atom = ATOM * 8 // bits
    surfaces = -(-channels // per_atom)
    lanes = np.full((pixels, surfaces * per_atom), signed(dpu.get("OFFSET_PEND", "OFFSET_PEND"), 16))
    real = min(channels, dpu.get("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1)
    lanes[:, :real] = elements[:, :real]
    if bits == 4:
        raw = ((lanes[:, ::2] & 0xF) | (lanes[:, 1::2] & 0xF) << 4).astype(np.uint8)
    else:
        raw = lanes.astype(_UNSIGNED[bits]).view(np.uint8)
    return raw.reshape(pixels, surfaces, ATOM).transpose(1, 0, 2)


@dataclass(frozen=True)
class SurfacePlan:
    """Which of the cube's atoms go to memory as surfaces, and how the surfaces follow each other."""

    series: int
    """Surfaces at DST_SURF_STRIDE, after which SURF_ADD leads on (docs: Z)."""
    surfaces: int
    """Surfaces of the cube that are written."""
    pixels: int
    """Pixels of each that are written."""
    copies: int = 1
    """How often each surface is written."""


def write_surfaces(ctx: Context, dpu: View, atoms: Bytes, width: int, plan: SurfacePlan) -> None:
    """Write uint8 [surfaces, pixels, 16] as surfaces; `width` pixels are a line."""
    atoms = np.repeat(atoms[: plan.surfaces, : plan.pixels], plan.copies, axis=0)
    surface = np.arange(atoms.shape[0], dtype=np.int64)
    jump = (surface // plan.series) * dpu.get("SURFACE_ADD", "SURF_ADD")
    jump = jump + (surface % plan.series) * dpu.get("DST_SURF_STRIDE")
    line = width + dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    pixel = np.arange(atoms.shape[1], dtype=np.int64)[None, :]
    address = ctx.address(dpu, "DST_BASE_ADDR")
    if atoms.size:
        places = address + ATOM * (jump[:, None] + pixel // width * line + pixel % width)
        ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, atoms.reshape(-1, ATOM))
