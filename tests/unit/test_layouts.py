"""Layouts: inverses hold for any size, and single elements are at the places of [HW 3.2] to [HW 3.7]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.spec import layouts

SETTINGS = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)
dims = st.integers(1, 9)


def random(seed: int, shape: tuple[int, ...], dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


@SETTINGS
@given(seeds, st.integers(1, 70), dims, dims, st.sampled_from(["int8", "int16", "int32"]))
def test_feature_inverse(seed: int, channels: int, height: int, width: int, dtype: str) -> None:
    cube = random(seed, (channels, height, width), dtype)
    memory = layouts.pack_feature(cube)
    assert memory.size == layouts.surfaces(channels, cube.dtype.itemsize) * height * width * 16
    assert np.array_equal(layouts.unpack_feature(memory, cube.shape, dtype), cube)


@SETTINGS
@given(seeds, st.integers(1, 70), dims, dims)
def test_feature_address(seed: int, channels: int, height: int, width: int) -> None:
    cube = random(seed, (channels, height, width))
    memory = layouts.pack_feature(cube, surface_count=8, fill=5).view(np.int8)
    rng = np.random.default_rng(seed)
    c, y, x = (int(rng.integers(n)) for n in cube.shape)
    assert memory[((c // 16) * height * width + y * width + x) * 16 + c % 16] == cube[c, y, x]
    if channels % 16:
        assert memory[((channels // 16) * height * width) * 16 + channels % 16] == 5


@SETTINGS
@given(seeds, st.integers(1, 4), dims, st.integers(1, 40), st.sampled_from(["int8", "uint8", "int16"]))
def test_argb_inverse(seed: int, channels: int, height: int, width: int, dtype: str) -> None:
    image = random(seed, (channels, height, width), dtype)
    memory = layouts.pack_argb(image)
    pitch = layouts.argb_pitch(width, image.dtype.itemsize)
    assert pitch * image.dtype.itemsize % 16 == 0
    assert memory.size == height * pitch * channels * image.dtype.itemsize
    assert np.array_equal(layouts.unpack_argb(memory, image.shape, dtype), image)


@SETTINGS
@given(seeds, st.integers(1, 80), st.integers(1, 80), st.integers(1, 3), st.integers(1, 3))
def test_weights_inverse(seed: int, kernels: int, channels: int, height: int, width: int) -> None:
    weights = random(seed, (kernels, channels, height, width))
    memory = layouts.pack_weights(weights)
    assert memory.size == layouts.weights_bytes(weights.shape)
    assert np.array_equal(layouts.unpack_weights(memory, weights.shape), weights)


@SETTINGS
@given(seeds, st.integers(1, 150), st.integers(1, 3), st.integers(1, 3))
def test_depthwise_inverse(seed: int, channels: int, height: int, width: int) -> None:
    weights = random(seed, (channels, height, width))
    memory = layouts.pack_weights_depthwise(weights)
    assert memory.size == layouts.depthwise_bytes(weights.shape)
    assert np.array_equal(layouts.unpack_weights_depthwise(memory, weights.shape), weights)


@SETTINGS
@given(
    seeds, st.sampled_from([np.int16, np.int32]), st.integers(1, 40), st.integers(1, 80), st.integers(1, 3)
)
def test_wide_weights_inverse(seed: int, dtype: type, kernels: int, channels: int, height: int) -> None:
    weights = random(seed, (kernels, channels, height, 2), dtype)
    size = weights.dtype.itemsize
    memory = layouts.pack_weights(weights)
    assert memory.size == layouts.weights_bytes(weights.shape, size)
    assert np.array_equal(layouts.unpack_weights(memory, weights.shape, dtype), weights)
    if size == 2:
        memory = layouts.pack_weights_depthwise(weights[:, 0])
        shape = weights[:, 0].shape
        assert memory.size == layouts.depthwise_bytes(shape, 2)
        assert np.array_equal(layouts.unpack_weights_depthwise(memory, shape, dtype), weights[:, 0])


# Mesa and librocketnpu (widgetii/orangepi5plus-npu 8824479, librocketnpu/src/rnpu_regcmd.c), lists of the
# vendor's compiler (boydjohnson/iree-rocket 2362a1f7, iree-rocket-hal/src/rocket/conv.rs, the depthwise
# ladder), a network of the vendor's compiler (Nyan-SouthKorea/insightface-orangepi-rknn, det_500m_fp16.rknn:
# 16, 40, 72 and 152 channels) and a program that ran on boards (allbilly/rk3588 40fae7b,
# examples/conv_legacy.py: 3 channels).
INT8_3X3 = [(8, 0x90), (16, 0x90), (32, 0x120), (48, 576), (64, 576), (96, 864), (128, 1152)]
HALF_3X3 = [(3, 0x90), (8, 144), (16, 288), (32, 576), (40, 720), (48, 864), (64, 1152), (72, 1296)]
HALF_3X3 += [(96, 1728), (128, 2304), (152, 2880)]


@pytest.mark.parametrize(
    ("channels", "itemsize", "size"),
    [(channels, 1, size) for channels, size in INT8_3X3]
    + [(channels, 2, size) for channels, size in HALF_3X3],
)
@pytest.mark.board("3.6.2", source="depthwise-vendor", place="WEIGHT_BYTES, 3 x 3")
def test_depthwise_bytes_of_real_lists(channels: int, itemsize: int, size: int) -> None:
    assert layouts.depthwise_bytes((channels, 3, 3), itemsize) == size


@pytest.mark.parametrize(("channels", "last"), [(3, 16), (16, 16), (32, 32), (40, 64), (56, 64), (80, 16)])
def test_depthwise_places(channels: int, last: int) -> None:
    """Whole blocks of 64 channels, then one of as many atoms as remain, except that three count as four."""
    weights = random(2, (channels, 2, 3))
    memory = layouts.pack_weights_depthwise(weights, fill=77).view(np.int8)
    first = channels // 64 * 64 * 6
    tail = memory[first:].reshape(6, last)
    real = channels % 64
    assert np.array_equal(tail[:, :real], weights[-real:].reshape(real, 6).T)
    assert (tail[:, real:] == 77).all()


def test_wide_weight_places() -> None:
    """Blocks of 16 kernels x 32 channels x 2 bytes; 17 to 24 channels take four atoms [HW 3.6]."""
    weights = random(1, (20, 56, 2, 1), np.int16)
    memory = layouts.pack_weights(weights).view(np.int16)
    assert memory.size == 20 * 64 * 2
    assert memory[512 + 7 * 32 + 5] == weights[7, 5, 1, 0]
    assert memory[2 * 512 + 512 + 7 * 32 + 5] == weights[7, 37, 1, 0]
    assert memory[4 * 512 + 128 + 3 * 32 + 9] == weights[19, 9, 1, 0]


def test_weight_places() -> None:
    """Blocks of 1024 bytes per (group, channel group, tap); half groups for the last channels."""
    weights = random(1, (48, 48, 3, 2))
    memory = layouts.pack_weights(weights).view(np.int8)
    assert memory[((0 * 3 + 2) * 2 + 1) * 1024 + 7 * 32 + 5] == weights[7, 5, 2, 1]
    half = 6 * 1024
    assert memory[half + (1 * 2 + 1) * 512 + 7 * 16 + 5] == weights[7, 37, 1, 1]
    second = 6 * 1024 + 6 * 512
    assert memory[second + (1 * 2 + 0) * 512 + 3 * 32 + 9] == weights[35, 9, 1, 0]


def test_captured_two_kernels() -> None:
    """A captured kernel of two channels takes 16 bytes [HW 14.3.7]."""
    weights = np.array([[-127, 127], [127, -127]], dtype=np.int8).reshape(2, 2, 1, 1)
    memory = layouts.pack_weights(weights).view(np.int8)
    assert memory.tolist() == [-127, 127] + [0] * 14 + [127, -127] + [0] * 14


def test_odd_kernels_are_rounded_up() -> None:
    weights = np.ones((3, 16, 1, 1), dtype=np.int8)
    memory = layouts.pack_weights(weights, fill=9).view(np.int8)
    assert memory.size == 64 and (memory[48:] == 9).all()


@SETTINGS
@given(seeds, st.integers(1, 70))
def test_tables_inverse(seed: int, channels: int) -> None:
    alu, cpend, mul = (random(seed, (channels,), d) for d in ("int32", "int16", "int16"))
    memory = layouts.pack_bs_table(alu, cpend, mul)
    assert memory.size == -(-channels // 8) * 64
    for got, want in zip(layouts.unpack_bs_table(memory, channels), (alu, cpend, mul), strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(layouts.unpack_alu_table(layouts.pack_alu_table(alu), channels), alu)


def test_table_places() -> None:
    alu, cpend, mul = np.arange(9) + 1000, np.arange(9) + 100, np.arange(9) + 10
    memory = layouts.pack_bs_table(alu, cpend, mul)
    assert memory[:32].view("<i4").tolist() == list(range(1000, 1008))
    assert memory[32:48].view("<i2").tolist() == list(range(100, 108))
    assert memory[48:64].view("<i2").tolist() == list(range(10, 18))
    assert memory[64:68].view("<i4").tolist() == [1008]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="channel 1 is 40000"):
        layouts.pack_bs_table([0, 0], [0, 0], [0, 40000])
    with pytest.raises(ValueError, match="shape"):
        layouts.pack_feature(np.zeros((2, 2), np.int8))
    with pytest.raises(ValueError, match="float64"):
        layouts.pack_weights(np.zeros((2, 2, 1, 1)))
    with pytest.raises(ValueError, match=r"not \(5, 2, 2\)"):
        layouts.pack_argb(np.zeros((5, 2, 2), np.int8))
    with pytest.raises(ValueError, match="takes"):
        layouts.unpack_feature(np.zeros(15, np.uint8), (1, 1, 1))
