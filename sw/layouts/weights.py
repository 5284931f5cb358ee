"""Weight layouts of int8 convolutions (HARDWARE 3.6, docs/hardware.md 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

KERNEL_GROUP = 32
"""Kernels computed in parallel (int8)."""

CHANNEL_GROUP = 32
"""Input channels of one weight tile (int8)."""

DEPTHWISE_GROUP = 64
"""Channels computed in parallel by a depthwise convolution (int8)."""


def padded_kernels(kernels: int) -> int:
    """Return the kernel count as stored: int8 rounds up to even (HARDWARE 3.6)."""
    return kernels + kernels % 2


def padded_channels(channels: int) -> int:
    """Return the input channels as stored: whole atoms of 16 (HARDWARE 3.6)."""
    return -(-channels // 16) * 16


def weights_bytes(shape: tuple[int, int, int, int]) -> int:
    """Return the bytes that direct weights of shape (OC, IC, kh, kw) take in memory."""
    kernels, channels, height, width = shape
    return padded_kernels(kernels) * padded_channels(channels) * height * width


def _check(weights: npt.NDArray[np.int8], dimensions: int, what: str) -> None:
    if weights.dtype != np.int8 or weights.ndim != dimensions or 0 in weights.shape:
        raise ValueError(f"{what} must be a non-empty int8 array, not {weights.dtype} {weights.shape}")


def pack_weights(weights: npt.NDArray[np.int8], *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Pack direct weights as [OC/32][IC/32][kh][kw][kernels][channels] without gaps.

    The last kernel group holds the kernels that exist (rounded up to even), the last channel
    group 16 channels when 16 or fewer are left.

    Parameters
    ----------
    weights
        int8 array of shape (OC, IC, kh, kw).
    fill
        value of padding channels and kernels (the weight zero point).

    Returns
    -------
    uint8 array of `weights_bytes(weights.shape)` bytes.

    Raises
    ------
    ValueError
        if the array is not int8 of four dimensions.
    """
    _check(weights, 4, "direct weights (OC, IC, kh, kw)")
    kernels, channels, height, width = weights.shape
    full = np.full((padded_kernels(kernels), padded_channels(channels), height, width), fill, dtype=np.int8)
    full[:kernels, :channels] = weights
    tiles = [
        full[k : k + KERNEL_GROUP, c : c + CHANNEL_GROUP].transpose(2, 3, 0, 1).reshape(-1)
        for k in range(0, full.shape[0], KERNEL_GROUP)
        for c in range(0, full.shape[1], CHANNEL_GROUP)
    ]
    return np.concatenate(tiles).view(np.uint8)


def unpack_weights(memory: npt.NDArray[np.uint8], shape: tuple[int, int, int, int]) -> npt.NDArray[np.int8]:
    """Return the (OC, IC, kh, kw) weights in `memory`; the inverse of `pack_weights`.

    Raises
    ------
    ValueError
        if `memory` is too short.
    """
    if memory.size < weights_bytes(shape):
        raise ValueError(f"weights of {shape} take {weights_bytes(shape)} bytes, not {memory.size}")
    kernels, channels, height, width = shape
    full = np.empty((padded_kernels(kernels), padded_channels(channels), height, width), dtype=np.int8)
    stream = np.ascontiguousarray(memory).view(np.int8)
    at = 0
    for k in range(0, full.shape[0], KERNEL_GROUP):
        for c in range(0, full.shape[1], CHANNEL_GROUP):
            tile = full[k : k + KERNEL_GROUP, c : c + CHANNEL_GROUP]
            flat = stream[at : at + tile.size]
            tile[...] = flat.reshape(height, width, *tile.shape[:2]).transpose(2, 3, 0, 1)
            at += tile.size
    return np.ascontiguousarray(full[:kernels, :channels])


def pack_weights_depthwise(weights: npt.NDArray[np.int8], *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Pack depthwise weights as [C/64][kh][kw][64]; a partial group is filled up.

    Parameters
    ----------
    weights
        int8 array of shape (C, kh, kw).
    fill
        value of padding channels.

    Returns
    -------
    uint8 array of ceil(C/64) * kh * kw * 64 bytes.

    Raises
    ------
    ValueError
        if the array is not int8 of three dimensions.
    """
    _check(weights, 3, "depthwise weights (C, kh, kw)")
    channels, height, width = weights.shape
    groups = -(-channels // DEPTHWISE_GROUP)
    full = np.full((groups * DEPTHWISE_GROUP, height, width), fill, dtype=np.int8)
    full[:channels] = weights
    tiles = full.reshape(groups, DEPTHWISE_GROUP, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(tiles).reshape(-1).view(np.uint8)


def unpack_weights_depthwise(
    memory: npt.NDArray[np.uint8], shape: tuple[int, int, int]
) -> npt.NDArray[np.int8]:
    """Return the (C, kh, kw) weights in `memory`; the inverse of `pack_weights_depthwise`.

    Raises
    ------
    ValueError
        if `memory` is too short.
    """
    channels, height, width = shape
    groups = -(-channels // DEPTHWISE_GROUP)
    size = groups * DEPTHWISE_GROUP * height * width
    if memory.size < size:
        raise ValueError(f"depthwise weights of {shape} take {size} bytes, not {memory.size}")
    tiles = np.ascontiguousarray(memory[:size]).view(np.int8)
    tiles = tiles.reshape(groups, height, width, DEPTHWISE_GROUP).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(tiles.reshape(-1, height, width)[:channels])
