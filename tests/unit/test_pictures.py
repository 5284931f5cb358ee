"""Pictures as inputs."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from cosim.cli.pictures import PictureError, fit_picture, read_picture


def bmp(pixels: np.ndarray, bits: int = 24, top_down: bool = False) -> bytes:
    """A BMP file of (rows, columns, 3), red first."""
    height, width, _ = pixels.shape
    rows = pixels[:, :, ::-1] if top_down else pixels[::-1, :, ::-1]
    if bits == 32:
        rows = np.concatenate([rows, np.full((height, width, 1), 9, np.uint8)], axis=2)
    pitch = -(-width * bits // 8 // 4) * 4
    data = b"".join(row.tobytes().ljust(pitch, b"\0") for row in rows)
    signed = -height if top_down else height
    head = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 54 + len(data), 0, 0, 54, 40, width, signed, 1, bits, *[0] * 6
    )
    return head + data


@pytest.mark.parametrize(("bits", "top_down"), [(24, False), (24, True), (32, False)])
def test_bmp(bits: int, top_down: bool) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    assert np.array_equal(read_picture(bmp(pixels, bits, top_down)), pixels)


def test_ppm_and_pgm() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    assert np.array_equal(read_picture(b"P6\n# made here\n7 5\n255\n" + pixels.tobytes()), pixels)
    grey = read_picture(b"P5 7 5 255\n" + pixels[:, :, 0].tobytes())
    assert np.array_equal(grey, np.repeat(pixels[:, :, :1], 3, axis=2))


def test_sizes() -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    assert np.array_equal(fit_picture(pixels, (1, 3, 4, 6))[0].transpose(1, 2, 0), pixels)
    half = fit_picture(pixels, (1, 3, 2, 3))[0]
    assert half[0, 0, 0] == round(pixels[:2, :2, 0].mean())
    double = fit_picture(pixels, (1, 3, 8, 12))[0]
    assert np.array_equal(double[:, ::2, ::2].transpose(1, 2, 0), pixels)
    uneven = fit_picture(np.full((5, 7, 3), 77, np.uint8), (1, 1, 3, 4))
    assert uneven.shape == (1, 1, 3, 4) and (uneven == 77).all()


BAD = {
    "empty": b"",
    "no picture": b"GIF89a" + bytes(100),
    "short header": b"BM" + bytes(20),
    "short data": bmp(np.zeros((5, 7, 3), np.uint8))[:100],
    "palette": bmp(np.zeros((5, 7, 3), np.uint8), 24)[:28] + b"\x08" + bytes(200),
    "huge": b"P6 99999999 99999999 255\n",
    "no numbers": b"P6 a b c\n",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str) -> None:
    with pytest.raises(PictureError, match="is "):
        read_picture(BAD[name])


def test_not_a_picture_input() -> None:
    with pytest.raises(PictureError, match="none"):
        fit_picture(np.zeros((4, 4, 3), np.uint8), (1, 640))
