"""First-layer input of the task-level golden model: packed pixels, input converter (docs/hardware.md 1.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import saturate, shift_even, shift_up, signed
from cosim.golden.task.context import Context
from cosim.golden.task.conv_types import decode
from cosim.golden.task.registers import View

if TYPE_CHECKING:
    from cosim.golden.task.cna import ConvShape

ATOM = 16


def pixel_bytes(shape: ConvShape) -> int:
    """Bytes of a pixel in CBUF: 4 elements for one channel, 8 for two, 16 for three or four (2.3)."""
    return 4 * shape.type.bits // 8 * (4 if shape.argb == 3 else shape.argb)


def load_argb(ctx: Context, cna: View, shape: ConvShape, image: NDArray[np.uint8]) -> None:
    """Fetch, convert and store the pixels.

    Parameters
    ----------
    image
        the bytes of CBUF before the weights, written in place from byte 0 on; what a pixel does not use,
        and the rest of the last atom, becomes zero.  Pixels behind its end are not stored (2.7).
    """
    pitch = cna.get("DMA_CON1", "LINE_STRIDE")
    total, size = shape.height * pitch, shape.type.bits // 8
    base = ctx.place(cna, "FEATURE_DATA_ADDR")
    raw = ctx.read_run("feature", "CNA", "FEATURE_DATA_ADDR", base, total * shape.argb * size)
    pixels = convert_input(cna, shape, raw.reshape(total, -1))
    step = pixel_bytes(shape)
    stored = np.zeros((total, step), np.uint8)
    stored[:, : shape.argb * size] = pixels
    flat = np.pad(stored.ravel(), (0, -total * step % ATOM))[: image.size]
    image[: flat.size] = flat


def argb_places(cna: View, shape: ConvShape) -> NDArray[np.int64]:
    """Byte from the first entry on of every channel of a pixel, int64 [rows, columns, channels' bytes]."""
    y = np.arange(shape.height, dtype=np.int64)[:, None, None]
    x = np.arange(shape.width, dtype=np.int64)[None, :, None]
    byte = np.arange(shape.argb * shape.type.bits // 8, dtype=np.int64)
    return (y * cna.get("DMA_CON1", "LINE_STRIDE") + x) * pixel_bytes(shape) + byte


def convert_input(cna: View, shape: ConvShape, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Input converter: bytes of pixels, uint8 [pixels, C * e] -> the same (docs/hardware.md 1.6)."""
    if cna.get("CVT_CON0", "CVT_BYPASS") or shape.type.is_float:
        return raw
    bits = shape.type.bits
    elements = decode(shape.type, raw).astype(np.int64)
    for channel in range(shape.argb):
        if not cna.get("CVT_CON5", "PER_CHANNEL_CVT_EN") >> channel & 1:
            continue
        x = elements[:, channel]
        if not cna.get("CVT_CON0", "DATA_SIGN"):
            x = x % (1 << bits)
        scale = signed(cna.get(f"CVT_CON{channel + 1}", f"CVT_SCALE{channel}"), 16)
        offset = signed(cna.get(f"CVT_CON{channel + 1}", f"CVT_OFFSET{channel}"), 16)
        shift = cna.get("CVT_CON0", f"CVT_TRUNCATE_{channel}")
        add_first = cna.get("CVT_CON0", "CVT_TYPE")
        t = (x + offset) * scale if add_first else x * scale
        t = shift_up(t, shift) if cna.get("CVT_CON0", "ROUND_TYPE") else shift_even(t, shift)
        elements[:, channel] = saturate(t if add_first else t + offset, bits)
    return elements.astype(f"<i{bits // 8}").view(np.uint8).reshape(raw.shape)
