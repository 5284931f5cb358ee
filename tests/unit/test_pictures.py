"""Pictures as inputs."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from rkcosim.measure.models.input_files import MAX_SIDE, PICTURES, fit_picture

PIXELS = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)


def written(pixels: np.ndarray, form: str, **options: object) -> bytes:
    """A file of a format, made by Pillow."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


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


def read(data: bytes, rows: int = 5, columns: int = 7) -> np.ndarray:
    """The pixels of a picture, (rows, columns, 3)."""
    return fit_picture(data, (1, 3, rows, columns))[0].transpose(1, 2, 0)


@pytest.mark.parametrize(("bits", "top_down"), [(24, False), (24, True), (32, False)])
def test_bmp(bits: int, top_down: bool) -> None:
    assert np.array_equal(read(bmp(PIXELS, bits, top_down)), PIXELS)


@pytest.mark.parametrize("form", ["PNG", "BMP", "PPM"])
def test_formats_without_loss(form: str) -> None:
    assert np.array_equal(read(written(PIXELS, form)), PIXELS)


def test_jpeg() -> None:
    smooth = np.linspace(0, 255, 16 * 16 * 3).reshape(16, 16, 3).astype(np.uint8)
    found = read(written(smooth, "JPEG", quality=95), 16, 16)
    assert np.abs(found.astype(int) - smooth).max() < 12


def test_endings() -> None:
    assert {".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm"} == set(PICTURES)


def test_ppm_and_pgm() -> None:
    assert np.array_equal(read(b"P6\n# made here\n7 5\n255\n" + PIXELS.tobytes()), PIXELS)
    grey = read(b"P5 7 5 255\n" + PIXELS[:, :, 0].tobytes())
    assert np.array_equal(grey, np.repeat(PIXELS[:, :, :1], 3, axis=2))


def test_one_channel_is_luma() -> None:
    found = fit_picture(written(PIXELS, "PNG"), (1, 1, 5, 7))[0, 0]
    luma = PIXELS @ np.array([0.299, 0.587, 0.114])
    assert np.abs(found - luma).max() <= 1


def test_sizes() -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    data = written(pixels, "PNG")
    half = fit_picture(data, (1, 3, 2, 3))[0]
    assert half[0, 0, 0] == round(pixels[:2, :2, 0].mean())
    double = fit_picture(data, (1, 3, 8, 12))[0]
    assert np.array_equal(double[:, ::2, ::2].transpose(1, 2, 0), pixels)
    uneven = fit_picture(written(np.full((5, 7, 3), 77, np.uint8), "PNG"), (1, 1, 3, 4))
    assert uneven.shape == (1, 1, 3, 4) and (uneven == 77).all()


BAD = {
    "empty": b"",
    "no picture": b"GIF89a" + bytes(100),
    "short header": b"BM" + bytes(20),
    "short data": bmp(np.zeros((5, 7, 3), np.uint8))[:100],
    "short PNG": written(PIXELS, "PNG")[:60],
    "palette": bmp(np.zeros((5, 7, 3), np.uint8), 24)[:28] + b"\x08" + bytes(10),
    "huge": b"P6 99999999 99999999 255\n",
    "too long": f"P6 {MAX_SIDE + 1} 1 255\n".encode() + bytes(3 * (MAX_SIDE + 1)),
    "no numbers": b"P6 a b c\n",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str) -> None:
    with pytest.raises(ValueError, match="is "):
        read(BAD[name])


def test_not_a_picture_input() -> None:
    with pytest.raises(ValueError, match="is not"):
        fit_picture(written(PIXELS, "PNG"), (1, 640))


@pytest.mark.parametrize("form", ["PNG", "PPM"])
def test_16_bits_are_scaled(form: str) -> None:
    """0 to 65535 become 0 to 255; Pillow's own conversion makes everything above 255 white."""
    from PIL import Image

    values = np.linspace(0, 65535, 35).astype(np.uint16).reshape(5, 7)
    file = io.BytesIO()
    if form == "PNG":
        Image.fromarray(values).save(file, form)
    else:
        file.write(b"P5 7 5 65535\n" + values.astype(">u2").tobytes())
    found = fit_picture(file.getvalue(), (1, 1, 5, 7))[0, 0]
    assert np.array_equal(found, np.rint(values / 257))
    assert np.array_equal(read(file.getvalue()), np.stack([found] * 3, axis=-1))
