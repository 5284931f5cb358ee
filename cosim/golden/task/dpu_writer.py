"""Writer of the DPU: packing, places of surfaces, transposed order (docs/hardware.md 4.9 to 4.11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import signed
from cosim.golden.task.context import Context
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}
TRANSPOSED_CHANNELS, TRANSPOSED_SURFACES = 32, 8


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


def write_surfaces(
    ctx: Context, dpu: View, atoms: Bytes, height: int, width: int, group_surfaces: int
) -> None:
    """Write uint8 [surfaces, pixels, 16]: `group_surfaces` at DST_SURF_STRIDE, then on by SURF_ADD."""
    surface = np.arange(atoms.shape[0], dtype=np.int64)
    jump = (surface // group_surfaces) * dpu.get("SURFACE_ADD", "SURF_ADD")
    jump = jump + (surface % group_surfaces) * dpu.get("DST_SURF_STRIDE")
    line = width + dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    y = np.arange(height, dtype=np.int64)[None, :, None]
    x = np.arange(width, dtype=np.int64)[None, None, :]
    places = ctx.address(dpu, "DST_BASE_ADDR") + ATOM * (jump[:, None, None] + y * line + x)
    ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, atoms.reshape(-1, ATOM))


def check_transposed(ctx: Context, dpu: View, channels: int) -> None:
    """Diagnose what the transposed writer does not honour."""
    for ok, register, name, message in (
        (
            channels <= TRANSPOSED_CHANNELS,
            "DATA_CUBE_CHANNEL",
            "CHANNEL",
            f"more than {TRANSPOSED_CHANNELS} channels transposed",
        ),
        (
            dpu.get("BS_OW_CFG", "SIZE_E_1") + 1 == TRANSPOSED_SURFACES,
            "BS_OW_CFG",
            "SIZE_E_1",
            "must be 7 when transposed",
        ),
        (
            dpu.get("SURFACE_ADD", "SURF_ADD") == TRANSPOSED_SURFACES * dpu.get("DST_SURF_STRIDE"),
            "SURFACE_ADD",
            "SURF_ADD",
            "must be eight surfaces when transposed",
        ),
    ):
        ctx.require(ok, "SIZE_MISMATCH", dpu, register, name, message)


def write_transposed(ctx: Context, dpu: View, elements: Ints) -> None:
    """Write int64 [pixels, channels] in transposed order, the low 8 or 16 bits of each."""
    pixels, channels = elements.shape
    size = 1 + dpu.get("WDMA_SIZE_0", "TP_PRECISION")
    values = elements.copy()
    values[:, dpu.get("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1 :] = signed(
        dpu.get("OFFSET_PEND", "OFFSET_PEND"), 16
    )
    n = np.arange(channels, dtype=np.int64)
    quad = n // 4
    inner = quad % 4 + quad // 4 * 4 * pixels + n % 4 * 16 * pixels
    index = 4 * np.arange(pixels, dtype=np.int64)[:, None] + inner
    places = ctx.address(dpu, "DST_BASE_ADDR") + size * index
    # Channel by channel: where more than 64 channels meet in one place, the later one stays.
    raw = np.ascontiguousarray(values.T.astype(_UNSIGNED[8 * size])).view(np.uint8)
    ctx.write_elements("dpu", "DPU", "DST_BASE_ADDR", places.T, raw.reshape(-1, size))
