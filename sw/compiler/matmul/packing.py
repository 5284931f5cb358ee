"""Matrices of a product as bytes: elements in C order, and B in its native layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sw.compiler.matmul.shape import CHANNEL_STEP, MatmulKind


def pack_b(matrix: npt.NDArray[np.generic], kind: MatmulKind) -> npt.NDArray[np.uint8]:
    """B (K x N; int4 as int8 numbers) in the native layout [N/G, K/32, G, 32], zero padded.

    int4 has the even index of K in the low nibble.
    """
    k, n = matrix.shape
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    full = np.zeros((rows * CHANNEL_STEP, columns * kind.group), dtype=matrix.dtype)
    full[:k, :n] = matrix
    tiles = full.reshape(rows, CHANNEL_STEP, columns, kind.group).transpose(2, 0, 3, 1)
    return pack_elements(np.ascontiguousarray(tiles), kind.bits)


def unpack_b(memory: npt.NDArray[np.uint8], k: int, n: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """B (K x N) out of the native layout; the inverse of `pack_b`."""
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    values = unpack_elements(memory, rows * columns * CHANNEL_STEP * kind.group, kind)
    tiles = values.reshape(columns, rows, kind.group, CHANNEL_STEP).transpose(1, 3, 0, 2)
    return np.ascontiguousarray(tiles.reshape(rows * CHANNEL_STEP, -1)[:k, :n])


def pack_elements(values: npt.NDArray[np.generic], bits: int) -> npt.NDArray[np.uint8]:
    """Bytes of an array in C order; 4 bits: two elements a byte, the even one in the low nibble."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits != 4:
        return flat.view(np.uint8)
    nibbles = flat.astype(np.int8).view(np.uint8) % 16
    return (nibbles[0::2] + 16 * nibbles[1::2]).astype(np.uint8)


def unpack_elements(memory: npt.NDArray[np.uint8], count: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """`count` elements of A or B; the inverse of `pack_elements` (int4 as int8 numbers)."""
    data = np.ascontiguousarray(memory[: count * kind.bits // 8])
    if kind.bits != 4:
        return data.view(np.float16 if kind.is_float else np.int8)
    nibbles = np.stack([data % 16, data // 16], axis=1).reshape(-1).astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
