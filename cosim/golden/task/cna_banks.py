"""Room in CBUF of a convolution task, and what is said when it is too small (docs/hardware.md 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cosim.golden.task.cna_argb import pixel_bytes
from cosim.golden.task.cna_check import stop
from cosim.golden.task.cna_weights import BLOCK_ATOMS, group_bytes
from cosim.golden.task.context import Context
from cosim.golden.task.conv_types import INT8
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM
from cosim.golden.task.registers import View

if TYPE_CHECKING:
    from cosim.golden.task.cna import ConvShape

ENTRY_ATOMS = 4
BANK_ENTRIES = 512
BANKS = 12
ENTRY_BYTES = ENTRY_ATOMS * ATOM
STRIPE = 16
GROUP_ROWS = 4
"""Rows that are fetched together with GROUP_LINE_OFF = 0 (1.1)."""


def slabs(shape: ConvShape) -> tuple[int, int]:
    """Full slabs of a pixel and atoms of the rest slab, 0 to 2 (2.2)."""
    full, rest = divmod(shape.surfaces, ENTRY_ATOMS)
    return (full + 1, 0) if rest == 3 else (full, rest)


def row_entries(shape: ConvShape) -> int:
    """Entries that a row takes (2.2)."""
    full, rest = slabs(shape)
    return full * shape.width + (-(-shape.width // (ENTRY_ATOMS // rest)) if rest else 0)


def feature_ring(cna: View, shape: ConvShape) -> int:
    """Entries of the ring that the rows of a task pass through; 0 where there is none (2.7)."""
    banks, pitch = cna.get("CBUF_CON0", "WEIGHT_BANK"), cna.get("CBUF_CON1", "DATA_ENTRIES")
    ring = max(BANKS - banks, 0) * BANK_ENTRIES
    used = row_entries(shape)
    whole = max(shape.height - 1, 0) * pitch + used <= ring
    if cna.get("CBUF_CON0", "DATA_REUSE") or shape.argb or shape.groups != 1 or whole:
        return 0
    return ring if used <= pitch and _rows_together(cna, shape.height) * pitch <= ring else 0


def check_ring(ctx: Context, cna: View, shape: ConvShape) -> list[GoldenHang]:
    """Return why a task whose rows pass through a ring never ends, if so: a stripe needs too many at once."""
    ring, pitch = feature_ring(cna, shape), cna.get("CBUF_CON1", "DATA_ENTRIES")
    if not ring:
        return []
    fetched = 0
    for first, needed in _stripe_rows(shape):
        while fetched < shape.height:
            rows = fetched + _rows_together(cna, shape.height - fetched)
            if (rows - min(max(first, 0), fetched)) * pitch > ring:
                break
            fetched = rows
        if needed > fetched:
            message = f"a stripe needs rows {max(first, 0)} to {needed - 1} at once, more than its banks"
            return [stop(ctx, cna, "FEATURE_FOOTPRINT", "CBUF_CON0", "DATA_BANK", message)]
    return []


def _rows_together(cna: View, rows: int) -> int:
    """Rows that are fetched together where so many are left."""
    return 1 if cna.get("CONV_CON1", "GROUP_LINE_OFF") else min(rows, GROUP_ROWS)


def _stripe_rows(shape: ConvShape) -> list[tuple[int, int]]:
    """For each stripe the first row that it or a later one may need, and the number of rows it needs."""
    (step_y, step_x), (dil_y, dil_x) = shape.stride, shape.dilation
    (spread_y, spread_x) = shape.spread
    pixel = np.arange(shape.pixels)
    top = pixel // shape.out_width * step_y - shape.pad_top
    left = pixel % shape.out_width * step_x - shape.pad_left
    rows = top[:, None] + dil_y * np.arange(shape.kernel_height)
    columns = left[:, None] + dil_x * np.arange(shape.kernel_width)
    y, x = rows // spread_y, columns // spread_x
    there = (rows >= 0) & (rows % spread_y == 0) & (y < shape.height)
    wide = ((columns >= 0) & (columns % spread_x == 0) & (x < shape.width)).any(axis=1)
    needed = np.where(there & wide[:, None], y + 1, 0).max(axis=1)
    return [
        (int(top[start] // spread_y), int(needed[start : start + STRIPE].max()))
        for start in range(0, shape.pixels, STRIPE)
    ]


def check_banks(ctx: Context, cna: View, shape: ConvShape) -> None:
    """Diagnose the split of the banks, features that do not fit theirs, and the pitches of their memory."""
    names = ("DATA_BANK", "WEIGHT_BANK", "FC_DATA_BANK")
    data, weight, skip = (cna.get("CBUF_CON0", name) for name in names)
    message = f"{data} data, {weight} weight and {skip} skip banks of {BANKS}"
    ctx.require(data + weight + skip <= BANKS, "BANK_SUM", cna, "CBUF_CON0", "DATA_BANK", message)
    if cna.get("CBUF_CON0", "DATA_REUSE"):
        return
    ctx.check_address(cna, "FEATURE_DATA_ADDR")
    pitch, stride = cna.get("CBUF_CON1", "DATA_ENTRIES"), cna.get("DMA_CON1", "LINE_STRIDE")
    if shape.argb:
        entries = -(-shape.height * stride * pixel_bytes(shape) // ENTRY_BYTES)
        fits, message = stride >= shape.width, "pitch is below the width"
    else:
        fits = bool(cna.get("CONV_CON1", "GROUP_LINE_OFF")) or stride % 4 == 0
        message = "no multiple of four lines"
    ctx.require(fits, "SIZE_MISMATCH", cna, "DMA_CON1", "LINE_STRIDE", message)
    if not shape.argb:
        used = row_entries(shape)
        entries = max(shape.height - 1, 0) * pitch + used
        apart = shape.height == 1 or pitch >= used
        message = f"a row takes {used} entries"
        ctx.require(apart, "FEATURE_FOOTPRINT", cna, "CBUF_CON1", "DATA_ENTRIES", message)
    ring = feature_ring(cna, shape)
    fits, message = entries <= data * BANK_ENTRIES, f"{entries} entries do not fit {data} banks"
    if ring:
        fits, message = False, f"{entries} entries pass through the {ring} before the weights"
    ctx.require(fits, "FEATURE_FOOTPRINT", cna, "CBUF_CON0", "DATA_BANK", message)


def check_weights(ctx: Context, cna: View, shape: ConvShape) -> list[GoldenHang]:
    """Diagnose the number of weights and their room; return why the task never ends, if so."""
    stops = []
    banks, size = cna.get("CBUF_CON0", "WEIGHT_BANK"), cna.get("WEIGHT_SIZE0", "WEIGHT_BYTES")
    ring, sizes = banks * BANK_ENTRIES * ENTRY_BYTES, group_bytes(shape)
    if ring == 0:
        stops.append(stop(ctx, cna, "WEIGHT_FOOTPRINT", "CBUF_CON0", "WEIGHT_BANK", "no banks for weights"))
    reuse = bool(cna.get("CBUF_CON0", "WEIGHT_REUSE"))
    message = f"{size} bytes, but the ring holds {ring}"
    ctx.require(not reuse or size <= ring, "REUSE_FOOTPRINT", cna, "CBUF_CON0", "WEIGHT_REUSE", message)
    message = f"the kernels take {sum(sizes)} bytes"
    if -(-size // ATOM) * ATOM < sum(sizes):
        stops.append(stop(ctx, cna, "SIZE_MISMATCH", "WEIGHT_SIZE0", "WEIGHT_BYTES", message))
    else:
        ctx.require(size >= sum(sizes), "SIZE_MISMATCH", cna, "WEIGHT_SIZE0", "WEIGHT_BYTES", message)
    needed = max(sizes, default=0)
    if shape.pixels <= STRIPE:
        # The only stripe frees every tile at once; the halves of a depthwise group lie a whole block apart.
        two = shape.depthwise and shape.type is not INT8 and shape.surfaces > BLOCK_ATOMS
        needed = BLOCK_ATOMS * ATOM * shape.taps if two else 0
    if needed > ring:
        message = f"a kernel group needs {needed} bytes at once, more than its banks"
        if reuse:
            ctx.require(False, "WEIGHT_FOOTPRINT", cna, "WEIGHT_SIZE2", "WEIGHT_KERNELS", message)
        else:
            stops.append(stop(ctx, cna, "WEIGHT_FOOTPRINT", "WEIGHT_SIZE2", "WEIGHT_KERNELS", message))
    return stops
