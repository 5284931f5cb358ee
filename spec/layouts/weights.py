"""Weight layouts by element size: 8 bit, 16 bit, and tf32 [HW 3.6]."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.spec.layouts.features import atom_channels
from rkcosim.spec.regs.options import chosen_options
from rkcosim.spec.types import DEPTHWISE_GROUP, INT8

KERNEL_GROUP, CHANNEL_GROUP = INT8.kernels, INT8.channels
"""Kernels computed in parallel, and input channels of one weight tile (int8)."""

Weights = npt.NDArray[Any]


def kernel_group(itemsize: int = 1) -> int:
    """Return the number of kernels of a kernel group: 32 for 8 bits, 16 for 16 bits and for tf32."""
    return KERNEL_GROUP if itemsize == 1 else KERNEL_GROUP // 2


def channel_group(itemsize: int = 1) -> int:
    """Return the number of channels of a full weight tile: 32, or 16 for tf32."""
    return CHANNEL_GROUP if itemsize < 4 else CHANNEL_GROUP // 2


def padded_kernels(kernels: int, itemsize: int = 1) -> int:
    """Return the number of stored kernels: int8 rounds up to even [HW 3.6.4]."""
    return kernels + kernels % 2 if itemsize == 1 else kernels


def padded_channels(channels: int, itemsize: int = 1) -> int:
    """Return the number of stored input channels: whole atoms; for wide types 3 mod 4 atoms count as 4."""
    c2 = atom_channels(itemsize)
    atoms = -(-channels // c2)
    if itemsize > 1 and atoms % 4 == 3:
        atoms += 1
    return atoms * c2


def weights_bytes(shape: tuple[int, int, int, int], itemsize: int = 1) -> int:
    """Return the size in bytes of direct weights of shape (OC, IC, kh, kw) in memory."""
    kernels, channels, height, width = shape
    return padded_kernels(kernels, itemsize) * padded_channels(channels, itemsize) * height * width * itemsize


def depthwise_bytes(shape: tuple[int, int, int], itemsize: int = 1) -> int:
    """Return the size in bytes of depthwise weights of shape (C, kh, kw) in memory."""
    channels, height, width = shape
    return sum(_depthwise_blocks(channels, itemsize)) * height * width * itemsize


def _depthwise_blocks(channels: int, itemsize: int) -> list[int]:
    """Return the number of channels stored in each block: whole atoms, but three atoms count as four."""
    c2, whole = atom_channels(itemsize), DEPTHWISE_GROUP // itemsize
    three = itemsize == 1 and "d1_three_atoms_int8" in chosen_options()
    stored = []
    for first in range(0, channels, whole):
        atoms = -(-min(whole, channels - first) // c2)
        stored.append((4 if atoms == 3 and not three else atoms) * c2)
    return stored


def _check(weights: Weights, dimensions: int, what: str) -> None:
    known = weights.dtype.itemsize in (1, 2, 4)
    if not known or weights.ndim != dimensions or 0 in weights.shape:
        raise ValueError(
            f"{what} must be a non-empty array of 1, 2 or 4 bytes, not {weights.dtype} {weights.shape}"
        )


def pack_weights(weights: Weights, *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Pack direct weights as [OC/G][IC/C][kh][kw][kernels][channels] without gaps.

    G and C are `kernel_group` and `channel_group` of the element size. The last kernel group has only
    the existing kernels (int8: rounded up to even), and the last channel group has only the remaining atoms
    (for wide types three count as four).

    Parameters
    ----------
    weights
        Array of shape (OC, IC, kh, kw), elements of 1, 2 or 4 bytes.
    fill
        Value of padding channels and kernels (the weight zero point).

    Returns
    -------
    uint8 array of `weights_bytes(weights.shape, itemsize)` bytes.

    Raises
    ------
    ValueError
        If the element size is another one or the array does not have four dimensions.
    """
    _check(weights, 4, "direct weights (OC, IC, kh, kw)")
    kernels, channels, height, width = weights.shape
    size = weights.dtype.itemsize
    shape = (padded_kernels(kernels, size), padded_channels(channels, size), height, width)
    full = np.full(shape, fill, dtype=weights.dtype)
    full[:kernels, :channels] = weights
    g, cg = kernel_group(size), channel_group(size)
    tiles = [
        full[k : k + g, c : c + cg].transpose(2, 3, 0, 1).reshape(-1)
        for k in range(0, full.shape[0], g)
        for c in range(0, full.shape[1], cg)
    ]
    return np.concatenate(tiles).view(np.uint8)


def unpack_weights(
    memory: npt.NDArray[np.uint8], shape: tuple[int, int, int, int], dtype: npt.DTypeLike = np.int8
) -> Weights:
    """Return the (OC, IC, kh, kw) weights in `memory`; the inverse of `pack_weights`.

    Raises
    ------
    ValueError
        If `memory` is too short.
    """
    element = np.dtype(dtype)
    size = element.itemsize
    needed = weights_bytes(shape, size)
    if memory.size < needed:
        raise ValueError(f"weights of {shape} take {needed} bytes, not {memory.size}")
    kernels, channels, height, width = shape
    stored = (padded_kernels(kernels, size), padded_channels(channels, size), height, width)
    full = np.empty(stored, dtype=element)
    stream = np.ascontiguousarray(memory[:needed]).view(element)
    g, cg = kernel_group(size), channel_group(size)
    at = 0
    for k in range(0, full.shape[0], g):
        for c in range(0, full.shape[1], cg):
            tile = full[k : k + g, c : c + cg]
            flat = stream[at : at + tile.size]
            tile[...] = flat.reshape(height, width, *tile.shape[:2]).transpose(2, 3, 0, 1)
            at += tile.size
    return np.ascontiguousarray(full[:kernels, :channels])


def pack_weights_depthwise(weights: Weights, *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Pack depthwise weights in blocks, [C/B][kh][kw][B], B = 64 (8 bit) or 32 channels (64 bytes).

    The last block has as many atoms as its channels need, but four instead of three.

    Parameters
    ----------
    weights
        Array of shape (C, kh, kw), elements of 1 or 2 bytes.
    fill
        Value of padding channels.

    Returns
    -------
    uint8 array of `depthwise_bytes(weights.shape, itemsize)` bytes.

    Raises
    ------
    ValueError
        If the array does not have three dimensions or its elements are wider.
    """
    _check(weights, 3, "depthwise weights (C, kh, kw)")
    if weights.dtype.itemsize > 2:
        raise ValueError(f"depthwise weights have 1 or 2 bytes, not {weights.dtype}")
    channels, height, width = weights.shape
    blocks = _depthwise_blocks(channels, weights.dtype.itemsize)
    full = np.full((sum(blocks), height, width), fill, dtype=weights.dtype)
    full[:channels] = weights
    parts = np.split(full, np.cumsum(blocks)[:-1])
    return np.concatenate([part.transpose(1, 2, 0).reshape(-1) for part in parts]).view(np.uint8)


def unpack_weights_depthwise(
    memory: npt.NDArray[np.uint8], shape: tuple[int, int, int], dtype: npt.DTypeLike = np.int8
) -> Weights:
    """Return the (C, kh, kw) weights in `memory`; the inverse of `pack_weights_depthwise`.

    Raises
    ------
    ValueError
        If `memory` is too short.
    """
    channels, height, width = shape
    element = np.dtype(dtype)
    size = depthwise_bytes(shape, element.itemsize)
    if memory.size < size:
        raise ValueError(f"depthwise weights of {shape} take {size} bytes, not {memory.size}")
    blocks = np.array(_depthwise_blocks(channels, element.itemsize))
    stream = np.ascontiguousarray(memory[:size]).view(element)
    parts = np.split(stream, np.cumsum(blocks * height * width)[:-1])
    tiles = [part.reshape(height, width, -1).transpose(2, 0, 1) for part in parts]
    return np.ascontiguousarray(np.concatenate(tiles)[:channels])
