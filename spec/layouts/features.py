"""Feature layouts: NC1HWC2 cubes and the packed pixels of the first layer ([HW 3.2], [HW 3.3])."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rkcosim.spec.config import ATOM_BYTES


def atom_channels(itemsize: int) -> int:
    """Return C2, the number of channels of one atom, for elements of `itemsize` bytes (1, 2 or 4).

    Raises
    ------
    ValueError
        For any other element size.
    """
    if itemsize not in (1, 2, 4):
        raise ValueError(f"elements of {itemsize} bytes have no atom layout; use 1, 2 or 4")
    return ATOM_BYTES // itemsize


def surfaces(channels: int, itemsize: int = 1) -> int:
    """Return C1, the number of surfaces that hold `channels` channels of elements of `itemsize` bytes."""
    c2 = atom_channels(itemsize)
    return -(-channels // c2)


def pack_feature(
    cube: npt.NDArray[np.generic], *, surface_count: int | None = None, fill: int = 0
) -> npt.NDArray[np.uint8]:
    """Pack a cube into NC1HWC2 [HW 3.2].

    Parameters
    ----------
    cube
        Array of shape (C, H, W), elements of 1, 2 or 4 bytes.
    surface_count
        Number of surfaces to write; None: as many as C needs.
    fill
        Value of the padding channels.

    Returns
    -------
    uint8 array of shape (C1 * H * W * 16,).

    Raises
    ------
    ValueError
        If the cube is not three-dimensional or does not fit `surface_count` surfaces.
    """
    if cube.ndim != 3:
        raise ValueError(f"a feature cube has shape (C, H, W), not {cube.shape}")
    channels, height, width = cube.shape
    c2 = atom_channels(cube.dtype.itemsize)
    needed = surfaces(channels, cube.dtype.itemsize)
    c1 = needed if surface_count is None else surface_count
    if c1 < needed:
        raise ValueError(f"{channels} channels need {needed} surfaces, not {c1}")
    padded = np.full((c1 * c2, height, width), fill, dtype=cube.dtype)
    padded[:channels] = cube
    atoms = padded.reshape(c1, c2, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(atoms).reshape(-1).view(np.uint8)


def unpack_feature(
    memory: npt.NDArray[np.uint8], shape: tuple[int, int, int], dtype: npt.DTypeLike = np.int8
) -> npt.NDArray[np.generic]:
    """Return the (C, H, W) cube that `memory` holds in NC1HWC2; the inverse of `pack_feature`.

    Raises
    ------
    ValueError
        If `memory` is too short for the cube.
    """
    element = np.dtype(dtype)
    channels, height, width = shape
    c2 = atom_channels(element.itemsize)
    c1 = surfaces(channels, element.itemsize)
    size = c1 * height * width * ATOM_BYTES
    if memory.size < size:
        raise ValueError(f"a cube of {shape} takes {size} bytes, the memory has {memory.size}")
    atoms = np.ascontiguousarray(memory[:size]).view(element).reshape(c1, height, width, c2)
    return np.ascontiguousarray(atoms.transpose(0, 3, 1, 2).reshape(c1 * c2, height, width)[:channels])


def argb_pitch(width: int, itemsize: int = 1) -> int:
    """Return the row pitch of packed pixels in pixels: a multiple of 16 / itemsize [HW 3.3]."""
    step = atom_channels(itemsize)
    return -(-width // step) * step


def pack_argb(image: npt.NDArray[np.generic], *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Pack an image of 1 to 4 channels as interleaved pixels in padded rows [HW 3.3].

    Parameters
    ----------
    image
        Array of shape (C, H, W), C = 1..4, elements of 1 or 2 bytes.
    fill
        Value of the pixels between the end of a row and its pitch.

    Returns
    -------
    uint8 array of shape (H * pitch * C * itemsize,).

    Raises
    ------
    ValueError
        If the shape is not (1..4, H, W).
    """
    if image.ndim != 3 or not 1 <= image.shape[0] <= 4:
        raise ValueError(f"packed pixels hold (1..4, H, W), not {image.shape}")
    channels, height, width = image.shape
    rows = np.full((height, argb_pitch(width, image.dtype.itemsize), channels), fill, dtype=image.dtype)
    rows[:, :width] = image.transpose(1, 2, 0)
    return rows.reshape(-1).view(np.uint8)


def unpack_argb(
    memory: npt.NDArray[np.uint8], shape: tuple[int, int, int], dtype: npt.DTypeLike = np.int8
) -> npt.NDArray[np.generic]:
    """Return the (C, H, W) image that `memory` holds as packed pixels; the inverse of `pack_argb`.

    Raises
    ------
    ValueError
        If `memory` is too short.
    """
    element = np.dtype(dtype)
    channels, height, width = shape
    pitch = argb_pitch(width, element.itemsize)
    size = height * pitch * channels * element.itemsize
    if memory.size < size:
        raise ValueError(f"an image of {shape} takes {size} bytes, the memory has {memory.size}")
    rows = np.ascontiguousarray(memory[:size]).view(element).reshape(height, pitch, channels)
    return np.ascontiguousarray(rows[:, :width].transpose(2, 0, 1))
