"""Naive twin of the PPU: pooling of one cube, written from docs/hardware.md section 6."""

from __future__ import annotations

import numpy as np


def average(total: int, kw: int, kh: int, recip_width: int, recip_height: int) -> int:
    """Rounded average of one window, before saturation."""
    magnitude = abs(total)
    taps = kw * kh
    nearest = (magnitude * recip_width * recip_height + (1 << 31)) >> 32
    result = nearest
    if taps % 2 == 0:
        for j in (nearest - 1, nearest):
            if j >= 0 and 2 * magnitude == (2 * j + 1) * taps:
                powers = (1, 2, 4, 8, 16)
                exact = kw in powers and kh in powers
                result = j + (j % 2) if exact else j
                break
    return -result if total < 0 else result


def pool(
    cube: np.ndarray,
    method: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    out_size: tuple[int, int],
    pad_value: int,
    recip: tuple[int, int],
) -> np.ndarray:
    """Pool `cube`, int8 [H, W, C]; all pairs are (rows, columns), `method` 0 average, 1 max, 2 min."""
    height, width, channels = cube.shape
    result = np.zeros((*out_size, channels), np.int8)
    for oy in range(out_size[0]):
        for ox in range(out_size[1]):
            for channel in range(channels):
                taps = []
                for y in range(oy * stride[0] - pad[0], oy * stride[0] - pad[0] + kernel[0]):
                    for x in range(ox * stride[1] - pad[1], ox * stride[1] - pad[1] + kernel[1]):
                        inside = 0 <= y < height and 0 <= x < width
                        taps.append(int(cube[y, x, channel]) if inside else pad_value)
                if method == 0:
                    value = average(sum(taps), kernel[1], kernel[0], recip[1], recip[0])
                else:
                    value = max(taps) if method == 1 else min(taps)
                result[oy, ox, channel] = max(-128, min(127, value))
    return result
