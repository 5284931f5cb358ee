"""Pictures as model inputs: BMP, PPM and PGM files, brought to size by averaging areas."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

PICTURES = (".bmp", ".ppm", ".pgm")
"""File endings that are read here."""

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in a grey picture (ITU-R BT.601)."""

MAX_SIDE = 1 << 14


class PictureError(ValueError):
    """A file that is no picture this module can read."""


def read_picture(data: bytes) -> npt.NDArray[np.uint8]:
    """Read a BMP (24 or 32 bit, not compressed) or a binary PPM or PGM.

    Returns
    -------
    uint8 array (rows, columns, 3), red first.

    Raises
    ------
    PictureError
        for anything else, saying what.
    """
    if data[:2] == b"BM":
        return _bmp(data)
    if data[:2] in (b"P5", b"P6"):
        return _pnm(data)
    raise PictureError("is no BMP, PPM or PGM picture")


def _bmp(data: bytes) -> npt.NDArray[np.uint8]:
    try:
        start, size, width, height, _, bits, method = struct.unpack_from("<10xIIiiHHI", data)
    except struct.error as error:
        raise PictureError("is a BMP cut short in its header") from error
    # Method 3 names the bytes of a pixel; with 24 and 32 bits that is the usual order.
    if size < 40 or bits not in (24, 32) or method not in (0, 3):
        raise PictureError(
            f"is a BMP of {bits} bits, method {method}; 24 or 32 bits without packing are read"
        )
    if not 0 < width <= MAX_SIDE or not 0 < abs(height) <= MAX_SIDE:
        raise PictureError(f"is a BMP of {width} x {height}")
    bytes_ = bits // 8
    pitch = -(-width * bytes_ // 4) * 4
    if len(data) < start + pitch * abs(height):
        raise PictureError(f"is a BMP cut short: {len(data)} bytes for {width} x {abs(height)}")
    rows = np.frombuffer(data, np.uint8, pitch * abs(height), start).reshape(abs(height), pitch)
    pixels = rows[:, : width * bytes_].reshape(abs(height), width, bytes_)[:, :, 2::-1]
    return np.ascontiguousarray(pixels[::-1] if height > 0 else pixels)


def _pnm(data: bytes) -> npt.NDArray[np.uint8]:
    fields: list[bytes] = []
    at = 0
    while len(fields) < 4:  # magic, width, height, largest value
        end = data.find(b"\n", at)
        if end < 0 or len(fields) > 4:
            raise PictureError("is a PPM or PGM cut short in its header")
        fields += data[at:end].split(b"#")[0].split()
        at = end + 1
    try:
        width, height, most = (int(f) for f in fields[1:4])
    except ValueError as error:
        raise PictureError("is a PPM or PGM with a damaged header") from error
    channels = 3 if fields[0] == b"P6" else 1
    count = width * height * channels
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and most == 255) or len(data) < at + count:
        raise PictureError(f"is a PPM or PGM of {width} x {height}, values up to {most}, {len(data)} bytes")
    pixels = np.frombuffer(data, np.uint8, count, at).reshape(height, width, channels)
    return np.ascontiguousarray(np.broadcast_to(pixels, (height, width, 3)))


def fit_picture(picture: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Bring a picture to a model's input shape (1, C, H, W), C 1 or 3.

    Each pixel is the average of the area it covers, rounded.

    Raises
    ------
    PictureError
        for an input that is no picture.
    """
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3):
        raise PictureError(f"is a picture; the model's input {list(shape)} is none")
    _, channels, height, width = shape
    values = _areas(_areas(picture.astype(np.float64), height, 0), width, 1)
    if channels == 1:
        values = (values @ LUMA)[:, :, None]
    return np.rint(values).clip(0, 255).astype(np.uint8).transpose(2, 0, 1)[None]


def _areas(values: npt.NDArray[Any], count: int, axis: int) -> npt.NDArray[Any]:
    """Averages over `count` equal parts of an axis."""
    values = np.moveaxis(values, axis, 0)
    total = np.concatenate([np.zeros((1, *values.shape[1:])), values.cumsum(axis=0)])
    edges = np.linspace(0, len(values), count + 1)
    whole = np.minimum(edges.astype(int), len(values) - 1)
    part = (edges - whole).reshape(-1, *[1] * (values.ndim - 1))
    upto = total[whole] + part * values[whole]
    return np.moveaxis(np.diff(upto, axis=0) / (len(values) / count), 0, axis)
