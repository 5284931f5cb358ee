"""Room in CBUF of a convolution task, and what is said when it is too small (docs/hardware.md 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def slabs(shape: ConvShape) -> tuple[int, int]:
    """Full slabs of a pixel and atoms of the rest slab, 0 to 2 (2.2)."""
    full, rest = divmod(shape.surfaces, ENTRY_ATOMS)
    return (full + 1, 0) if rest == 3 else (full, rest)


def feature_entries(cna: View) -> int:
    """Entries that can hold features: those before the weights' banks (2.7)."""
    return max(BANKS - cna.get("CBUF_CON0", "WEIGHT_BANK"), 0) * BANK_ENTRIES


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
        full, rest = slabs(shape)
        used = full * shape.width + (-(-shape.width // (ENTRY_ATOMS // rest)) if rest else 0)
        entries = max(shape.height - 1, 0) * pitch + used
        apart = shape.height == 1 or pitch >= used
        message = f"a row takes {used} entries"
        ctx.require(apart, "FEATURE_FOOTPRINT", cna, "CBUF_CON1", "DATA_ENTRIES", message)
    fits, message = entries <= data * BANK_ENTRIES, f"{entries} entries do not fit {data} banks"
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
