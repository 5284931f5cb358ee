"""Memory and matrices of TNN: the rule of the pool, and conversion with scale and bias."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.apis.tnn import (
    Blob,
    BlobConverter,
    BlobDesc,
    BlobHandle,
    BlobMemorySizeInfo,
    DataType,
    DeviceType,
    Mat,
    MatConvertParam,
    MatType,
    StatusCode,
    get_device,
)
from rkcosim.apis.tnn.blob import dequantised, quantised
from rkcosim.apis.tnn.loader.network import BlobScale
from rkcosim.apis.tnn.pool import plan_blobs

FLOAT, INT8 = DataType.DATA_TYPE_FLOAT, DataType.DATA_TYPE_INT8


def _sizes(**counts: int) -> dict[str, BlobMemorySizeInfo]:
    return {name: BlobMemorySizeInfo(FLOAT, (count,)) for name, count in counts.items()}


def test_a_chain_uses_two_blocks_beside_its_input():
    sizes = _sizes(x=10, a=20, b=30, c=25, d=5)
    layers = [(["x"], ["a"]), (["a"], ["b"]), (["b"], ["c"]), (["c"], ["d"])]
    pool, blocks = plan_blobs(["x"], layers, ["d"], sizes)
    assert blocks["a"] is blocks["c"] and blocks["b"] is blocks["d"]
    assert [block.size for block in pool.blocks] == [40, 100, 120]  # the first block has grown for c
    assert pool.assign() == 260 and [block.offset for block in pool.blocks] == [0, 40, 140]
    assert pool.assign(64) == 64 + 128 + 128


def test_the_block_of_the_most_similar_size_is_taken():
    """Blocks of 100 and 30 elements are free: 40 takes that of 30, which grows."""
    sizes = _sizes(x=1, a=100, b=30, s=2, y=40)
    layers = [(["x"], ["a"]), (["x"], ["b"]), (["a", "b"], ["s"]), (["s"], ["y"])]
    _, blocks = plan_blobs(["x"], layers, ["y"], sizes)
    assert blocks["y"] is blocks["b"] and blocks["b"].size == 160 and blocks["a"].size == 400


def test_types_do_not_share_blocks_and_unread_blobs_are_given_back():
    sizes = _sizes(x=4, a=4, b=4, c=4) | {"q": BlobMemorySizeInfo(INT8, (4,))}
    layers = [(["x"], ["a"]), (["a"], ["q"]), (["q"], ["b", "c"])]
    _, blocks = plan_blobs(["x"], layers, ["c"], sizes)
    assert blocks["q"].data_type == INT8 and blocks["b"] is blocks["a"] and blocks["c"] is not blocks["b"]
    _, twice = plan_blobs(["x"], [(["x"], ["a"]), (["x"], ["b"])], ["b"], sizes)
    assert twice["a"] is twice["b"]  # nothing reads a


@settings(max_examples=200, deadline=None, print_blob=True)
@given(st.integers(0, 1 << 32))
def test_no_blob_loses_its_block_before_its_last_reader(seed: int):
    """Random networks: at each layer, all blobs that are still needed have blocks of their own."""
    rng = np.random.default_rng(seed)
    names, layers = ["x"], []
    for number in range(int(rng.integers(1, 15))):
        taken = [
            str(name) for name in rng.choice(names, min(len(names), int(rng.integers(1, 4))), replace=False)
        ]
        made = [f"b{number}_{n}" for n in range(int(rng.integers(1, 3)))]
        layers.append((taken, made))
        names += made
    outputs = [str(name) for name in rng.choice(names, min(len(names), 2), replace=False)]
    sizes = {
        name: BlobMemorySizeInfo(rng.choice([FLOAT, INT8]), (int(rng.integers(1, 99)),)) for name in names
    }
    pool, blocks = plan_blobs(["x"], layers, outputs, sizes)
    total = pool.assign()
    ends = sorted((block.offset, block.offset + block.size) for block in pool.blocks)
    assert all(a[1] <= b[0] for a, b in pairwise(ends)) and ends[-1][1] == total
    known = ["x"]
    for place, (taken, made) in enumerate(layers):
        later = {name for one, _ in layers[place + 1 :] for name in one} | {*outputs, *taken, *made, "x"}
        known += made
        live = [name for name in known if name in later]
        assert len({id(blocks[name]) for name in live}) == len(live), f"layer {place}: {live}"
    for name in names:
        assert blocks[name].size >= sizes[name].size and blocks[name].data_type == sizes[name].data_type


def _blob(dims: tuple[int, ...], scale: BlobScale | None = None) -> Blob:
    desc = BlobDesc(DeviceType.DEVICE_NAIVE, INT8 if scale else FLOAT, dims=dims, name="blob")
    device = get_device(DeviceType.DEVICE_NAIVE)
    return Blob(desc, BlobHandle(device.Allocate(desc.size + 8, device.CreateContext(0)), 8), scale)


def _values(blob: Blob) -> np.ndarray:
    made = np.zeros(blob.desc.dims, blob.desc.data_type.dtype)
    get_device(DeviceType.DEVICE_NAIVE).CopyFromDevice(made, blob.handle, blob.desc)
    return made


def test_pictures_are_scaled_and_channels_turned():
    rng = np.random.default_rng(1)
    for kind, channels in ((MatType.N8UC3, 3), (MatType.N8UC4, 4), (MatType.NGRAY, 1)):
        picture = rng.integers(0, 256, (1, 4, 5, channels), dtype=np.uint8)
        blob = _blob((1, min(channels, 3), 4, 5))
        mat = Mat(DeviceType.DEVICE_NAIVE, kind, (1, channels, 4, 5), picture)
        factors, offsets = np.array([0.5, 0.25, 2.0])[:channels], np.array([1.0, 2.0, 3.0])[:channels]
        turned = channels > 1
        param = MatConvertParam(factors.tolist(), offsets.tolist(), reverse_channel=turned)
        assert BlobConverter(blob).ConvertFromMat(mat, param)
        wanted = picture[..., :3].transpose(0, 3, 1, 2).astype(np.float32)
        wanted = wanted[:, ::-1] if turned else wanted
        wanted = wanted * factors.reshape(1, -1, 1, 1) + offsets.reshape(1, -1, 1, 1)
        np.testing.assert_allclose(_values(blob), wanted, 1e-6)
        if channels < 4:
            inverse = MatConvertParam((1 / factors).tolist(), (-offsets / factors).tolist(), turned)
            back = Mat(DeviceType.DEVICE_NAIVE, kind, (1, channels, 4, 5))
            assert BlobConverter(blob).ConvertToMat(back, inverse)
            np.testing.assert_array_equal(back.GetData().reshape(picture.shape), picture)


def test_bytes_are_limited_and_rounded_half_away_from_zero():
    blob = _blob((1, 1, 1, 5))
    given_values = np.array([-3.0, 0.5, 1.4, 254.5, 300.0], np.float32)
    mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, (1, 1, 1, 5), given_values)
    assert BlobConverter(blob).ConvertFromMat(mat)
    gray = Mat(DeviceType.DEVICE_NAIVE, MatType.NGRAY, (1, 1, 1, 5))
    assert BlobConverter(blob).ConvertToMat(gray)
    assert gray.GetData().tolist() == [0, 1, 1, 255, 255]


def test_codes_are_rounded_half_away_from_zero_with_scales_of_channels():
    scale = BlobScale(np.array([0.5, 2.0], np.float32), 3)
    reals = np.array([[0.25, -0.25, 100.0], [1.0, -1.0, 5.0]], np.float32).reshape(1, 2, 1, 3)
    codes = quantised(reals, scale)
    assert codes.reshape(2, 3).tolist() == [[4, 3, 127], [4, 3, 6]]
    assert dequantised(codes, scale).reshape(2, 3).tolist() == [[0.5, 0.0, 62.0], [2.0, 0.0, 6.0]]
    blob = _blob((1, 2, 1, 3), scale)
    mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, (1, 2, 1, 3), reals)
    assert BlobConverter(blob).ConvertFromMat(mat)
    np.testing.assert_array_equal(_values(blob), codes)


def test_matrices_that_do_not_fit_are_refused():
    blob = _blob((1, 3, 2, 2))
    wide = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, (1, 3, 4, 1))
    assert BlobConverter(blob).ConvertFromMat(wide).code == StatusCode.TNNERR_INVALID_INPUT
    right = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, (1, 3, 2, 2))
    status = BlobConverter(blob).ConvertFromMat(right, MatConvertParam(scale=[1.0, 2.0]))
    assert status.code == StatusCode.TNNERR_PARAM_ERR and "2 values of scale for 3 channels" in status.text
    with pytest.raises(ValueError, match="NNV12 are not supported"):
        Mat(DeviceType.DEVICE_NAIVE, MatType.NNV12, (1, 3, 2, 2))
    with pytest.raises(ValueError, match="12 elements of float32 for a matrix N8UC3"):
        Mat(DeviceType.DEVICE_NAIVE, MatType.N8UC3, (1, 3, 2, 2), np.zeros(12, np.float32))
    with pytest.raises(ValueError, match="has not the shape"):
        Mat(DeviceType.DEVICE_NAIVE, MatType.NGRAY, (1, 3, 2, 2))
