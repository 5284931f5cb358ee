"""Layers of TNN against TNN's own formulas, restated element by element.

NAIVE and the emitted ONNX nodes are both of this project and may be wrong together; what is expected here
follows Tencent/TNN f0cb0812, source/tnn/device/cpu/acc and source/tnn/layer.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rkcosim.apis.tnn import DeviceType, NetworkConfig, NetworkType
from rkcosim.apis.tnn.loader import to_onnx
from rkcosim.apis.tnn.loader.params import read_params
from rkcosim.apis.tnn.loader.proto import LayerInfo, read_proto, write_proto
from rkcosim.compiler.graph import ModelError
from tests.makers.tnn_layers import network_of, run
from tests.seeds import seed

F = np.float32
DEVICES = {
    "naive": NetworkConfig(),
    "rk3588": NetworkConfig(
        device_type=DeviceType.DEVICE_RK3588,
        network_type=NetworkType.NETWORK_TYPE_DEFAULT,
        engine="golden",
    ),
}


def maps(*shape: int) -> np.ndarray:
    """Return random numbers of fp16 in float32."""
    rng = np.random.default_rng([seed(__name__), *shape])
    return rng.normal(size=shape).astype(np.float16).astype(F)


def compared(kind: str, x: np.ndarray, words: list, want: np.ndarray, **arrays: np.ndarray) -> None:
    """Check a layer on both devices."""
    net = network_of(kind, ([x.shape], words, arrays, 1))
    for device, config in DEVICES.items():
        found = run(net, config, {"x0": x})["y0"]
        assert found.shape == want.shape
        np.testing.assert_allclose(found, want, 4e-3, 4e-3, err_msg=f"{kind} {words} on {device}")


# cpu_upsample_layer_acc.cc


def scale_of(size: int, made: int, corners: bool) -> F:
    if made <= 1:
        return F(0)
    return F(size - 1) / F(made - 1) if corners else F(size) / F(made)


def nearest_at(place: int, size: int, made: int, corners: bool) -> list[tuple[int, F]]:
    return [(min(int(F(place) * (F(size) / F(made))), size - 1), F(1))]


def bilinear_at(place: int, size: int, made: int, corners: bool) -> list[tuple[int, F]]:
    step = scale_of(size, made, corners)
    at = step * F(place) if corners else F(max(float(step) * (place + 0.5) - 0.5, 0.0))
    at = at if at < size - 1 else F(size - 1)
    first, share = int(at), F(at) - int(at)
    return [(first, F(1) - share), (first + (first < size - 1), share)]


def cubic_at(place: int, size: int, made: int, corners: bool) -> list[tuple[int, F]]:
    step, a = scale_of(size, made, corners), -0.75
    at = float(step) * place if corners else float(step) * (place + 0.5) - 0.5
    first, t = math.floor(at), at - math.floor(at)
    shares = [
        ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
        ((a + 2) * t - (a + 3)) * t * t + 1,
        ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1,
    ]
    shares.append(1 - sum(shares))
    return [(min(max(first + n - 1, 0), size - 1), F(share)) for n, share in enumerate(shares)]


MODES = {1: nearest_at, 2: bilinear_at, 3: cubic_at}


def upsampled(x: np.ndarray, mode: int, corners: bool, high: int, wide: int) -> np.ndarray:
    """Return the result of an Upsample, pixel by pixel."""
    n, c, h, w = x.shape
    if mode in (1, 2) and (h, w) == (high, wide):
        return x
    made = np.zeros((n, c, high, wide), F)
    for row in range(high):
        for column in range(wide):
            for i, high_share in MODES[mode](row, h, high, corners):
                for j, wide_share in MODES[mode](column, w, wide, corners):
                    made[:, :, row, column] += x[:, :, i, j] * high_share * wide_share
    return made


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "sizes", [(1, 1), (1, 4), (6, 1), (1, 8), (8, 8), (4, 4), (3, 5), (2, 3), (4, 8)], ids=str
)
def test_upsample(mode: int, corners: int, sizes: tuple[int, int]) -> None:
    x = maps(1, 3, 4, 4)
    compared("Upsample", x, [mode, 0, 0, corners, *sizes], upsampled(x, mode, bool(corners), *sizes))


@pytest.mark.parametrize(("factors", "corners"), [((2.0, 2.0), False), ((0.5, 0.5), True)])
def test_upsample_with_negative_corners(factors: tuple[float, float], corners: bool) -> None:
    """upsample_layer.cc: align_corners -1 aligns the corners if a factor shrinks, and given sizes do, too."""
    x = maps(1, 2, 4, 6)
    high, wide = (round(n * f) for n, f in zip((4, 6), factors, strict=True))
    compared("Upsample", x, [2, *factors, -1], upsampled(x, 2, corners, high, wide))
    compared("Upsample", x, [2, 0, 0, -1, high, wide], upsampled(x, 2, True, high, wide))


# pooling_layer.cc, pooling_layer_interpreter.cc, naive_compute.cc


def pooled(x: np.ndarray, average: bool, kernel: tuple[int, int], stride: int) -> np.ndarray:
    """Return pooling without padding, window by window."""
    high, wide = ((n - k) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True))
    made = np.zeros((*x.shape[:2], high, wide), F)
    for i in range(high):
        for j in range(wide):
            part = x[:, :, i * stride : i * stride + kernel[0], j * stride : j * stride + kernel[1]]
            made[:, :, i, j] = part.mean((2, 3)) if average else part.max((2, 3))
    return made


@pytest.mark.parametrize("average", [0, 1])
@pytest.mark.parametrize(
    ("words", "axes"), [((-1, -1), (None, None)), ((2, 3), (2, 3)), ((2, -1), (2, 2)), ((1, 3), (1, 3))]
)
def test_pooling_with_kernels_of_axes(average: int, words: tuple[int, int], axes: tuple) -> None:
    """Words 8 and 9 name axes of the input (-1: none, for columns that of the rows) that size the kernel."""
    x = maps(1, 3, 5, 7)
    kernel = tuple(2 if axis is None else x.shape[axis] for axis in axes)
    want = pooled(x, bool(average), kernel, 1)
    compared("Pooling", x, [average, 2, 2, 1, 1, 0, 0, *words, -1, 0], want)


def test_a_kernel_of_no_axis() -> None:
    layer = LayerInfo("Pooling", "p", ("x",), ("y",), tuple("1 2 2 1 1 0 0 4 -1 -1 0".split()))
    with pytest.raises(ModelError, match="as large as the axes 4 and -1"):
        read_params(layer)


# cpu_prelu_layer_acc.cc


@pytest.mark.parametrize(("shared", "count"), [(0, 4), (1, 4), (1, 1)])
def test_prelu(shared: int, count: int) -> None:
    """With channel_shared the first slope is that of all channels, however many the file has."""
    x, slope = maps(1, 4, 3, 3), np.array([0.25, -1.0, 2.0, 0.5], F)[:count]
    factors = np.full(4, slope[0]) if shared else slope
    want = np.where(x < 0, x * factors.reshape(1, 4, 1, 1), x)
    compared("PReLU", x, [shared, 1], want, slope=slope)


def test_prelu_with_too_few_slopes() -> None:
    x = maps(1, 4, 3, 3)
    net = network_of("PReLU", ([x.shape], [0, 1], {"slope": np.ones(3, F)}, 1))
    with pytest.raises(ModelError, match="3 slopes for 4 channels"):
        to_onnx(net)


# cpu_scale_layer_acc.cc, cpu_batch_norm_layer_acc.cc


@pytest.mark.parametrize("kind", ["Scale", "BatchNormCxx"])
@pytest.mark.parametrize(("factors", "summands"), [(4, 4), (1, 4), (1, 1), (4, 0), (1, 0)])
def test_one_factor_for_all_channels(kind: str, factors: int, summands: int) -> None:
    """With one factor the first summand is that of all channels, too."""
    x = maps(1, 4, 3, 3)
    scale, bias = np.array([2, 0.5, -1, 3], F)[:factors], np.array([1, -2, 0.25, 4], F)[:summands]
    added = np.zeros(1, F) if not summands else bias[:1] if factors == 1 else bias
    want = x * scale.reshape(1, -1, 1, 1) + added.reshape(1, -1, 1, 1)
    compared(kind, x, [1, 1, 1], want, scale=scale, bias=bias)


# cpu_clip_layer_acc.cc, cpu_hard_sigmoid_layer_acc.cc


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.75), (0.5, -0.5), (0.25, 0.25)])
def test_clip(low: float, high: float) -> None:
    """The larger of the lower bound and the smaller of x and the upper one, in this order."""
    x = maps(1, 4, 3, 3)
    compared("Clip", x, [low, high], np.maximum(low, np.minimum(high, x)))


@pytest.mark.parametrize("alpha", [0.25, -1.0])
def test_hard_sigmoid(alpha: float) -> None:
    """x is compared with -beta / alpha first, then with (1 - beta) / alpha."""
    x, low, high = maps(1, 4, 3, 3), -0.5 / alpha, 0.5 / alpha
    want = np.array([0 if v <= low else alpha * v + 0.5 if v < high else 1 for v in x.reshape(-1)], F)
    if alpha > 0:
        compared("HardSigmoid", x, [alpha, 0.5], want.reshape(x.shape))
        return
    net = network_of("HardSigmoid", ([x.shape], [alpha, 0.5], {}, 1))
    np.testing.assert_array_equal(run(net, DEVICES["naive"], {"x0": x})["y0"], want.reshape(x.shape))
    with pytest.raises(ModelError, match="alpha -1"):
        to_onnx(net)


# cpu_lrn_layer_acc.cc


def normalised(x: np.ndarray, alpha: float, beta: float, bias: float, size: int) -> np.ndarray:
    """Return an LRN: (size - 1) / 2 whole channels on each side, divided by the size all the same."""
    made, reach = np.zeros_like(x), (size - 1) // 2
    for c in range(x.shape[1]):
        sums = sum(x[:, i] ** 2 for i in range(max(0, c - reach), min(x.shape[1], c + reach + 1)))
        made[:, c] = x[:, c] / (bias + alpha / size * sums) ** beta
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_lrn(size: int) -> None:
    x = maps(1, 6, 2, 3)
    for alpha, beta in ((0.5, 0.75), (0.0, 1.0), (2.0, 0.0)):
        compared("LRN", x, [alpha, beta, 1.5, size], normalised(x, alpha, beta, 1.5, size))


@pytest.mark.parametrize(("alpha", "beta"), [(-0.1, 0.75), (0.5, -0.75)])
def test_lrn_with_negative_numbers(alpha: float, beta: float) -> None:
    """onnxruntime, which computes LRN for the NPU's networks, is wrong there: NAIVE computes it, ONNX not."""
    x = maps(1, 6, 2, 3)
    net = network_of("LRN", ([x.shape], [alpha, beta, 1.5, 3], {}, 1))
    want = normalised(x, alpha, beta, 1.5, 3)
    np.testing.assert_allclose(run(net, DEVICES["naive"], {"x0": x})["y0"], want, 1e-5)
    with pytest.raises(ModelError, match="a negative alpha or beta"):
        to_onnx(net)


# dims_function_utils.cc (StrideSlice), cpu_stride_slice_v2_layer_acc.cc


@pytest.mark.parametrize(
    ("begin", "end", "step", "count"),
    [(-1, -(2**31), -1, 5), (4, 0, -1, 4), (3, -5, -2, 2), (-1, -(2**31), -3, 2), (1, 2**31 - 1, 2, 2)],
)
@pytest.mark.parametrize("axis", [1, 3, -2])
def test_turned_slices(begin: int, end: int, step: int, count: int, axis: int) -> None:
    """Element n is begin + n * step of the axis; an end of INT_MIN is before the first element."""
    x = maps(1, 5, 5, 5)
    first = begin + 5 if begin < 0 else begin
    want = np.stack([np.take(x, first + n * step, axis) for n in range(count)], axis)
    compared("StridedSliceV2", x, [1, begin, 1, end, 1, axis, 1, step], want)


@pytest.mark.parametrize(
    "words", [[1, 2, 1, 3, 1, 1, 1, -1], [1, 5, 1, 0, 1, 1, 1, -1], [1, 0, 1, 3, 1, 1, 1, 0]]
)
def test_slices_without_elements(words: list) -> None:
    net = network_of("StridedSliceV2", ([(1, 5, 5, 5)], words, {}, 1))
    with pytest.raises(ModelError, match="in steps of"):
        to_onnx(net)


NAMES = {
    "Pooling_nhwc": "Pooling",
    "Pooling_split_CC": "Pooling",
    "QuantizedConvolution_nhwc": "Convolution",
    "StridedSlice_nhwc": "StridedSlice",
    "Reduce_Sum": "ReduceSum",
    "Relu6": "ReLU6",
}


@pytest.mark.parametrize("name", NAMES)
def test_other_names(name: str) -> None:
    """layer_type.cc has several names for a type."""
    written = write_proto(network_of("Abs", ([(1, 2, 3, 4)], [], {}, 1)).structure)
    read = read_proto(written.replace(b"Abs", name.encode()))
    assert read.layers[0].type == NAMES[name] and read.layers[0].quantized == name.startswith("Q")


# deconv_layer.cc, cpu_deconv_layer_acc.cc


@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("pad_type", [-1, 0, 1, 2, 3])
def test_deconvolution(pad_type: int, kernel: int) -> None:
    """Each product is added at its place; SAME and its form 3 differ in the side that loses the odd row."""
    x, stride, size = maps(1, 3, 4, 4), 2, 4
    weights, full = maps(3, 2, kernel, kernel), (size - 1) * stride + kernel
    out = {-1: full - 2, 1: full, 2: size * stride - (stride + kernel - 2)}.get(pad_type, size * stride)
    along = full - out
    begin = {-1: 1, 3: along - along // 2}.get(pad_type, along // 2)
    want = np.zeros((1, 2, full, full))
    for i in range(size):
        for j in range(size):
            part = np.einsum("nc,cokl->nokl", x[:, :, i, j], weights)
            want[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += part
    words = [1, 3, 2, kernel, kernel, stride, stride, 1, 1, 0, pad_type, 1, 1, 0]
    want = want[:, :, begin : begin + out, begin : begin + out]
    compared("Deconvolution", x, words, want, filter=weights)


def test_deconvolutions_that_have_no_result() -> None:
    for words, said in (
        ([5, 5, 2, 2, 0, 0, 0, 2, 1, 1, 0], "pad_type 2 leaves nothing of 1 rows or columns"),
        ([2, 2, 3, 3, 0, 0, 0, 3, 1, 1, 0], "strides larger than the kernel with pad_type 3"),
        ([2, 2, 2, 2, 0, 0, 0, 4, 1, 1, 0], "pad_type 4 is not supported"),
    ):
        weights = np.ones((3, 2, words[0], words[0]), F)
        net = network_of("Deconvolution", ([(1, 3, 1, 1)], [1, 3, 2, *words], {"filter": weights}, 1))
        with pytest.raises(ModelError, match=said):
            to_onnx(net)


# cpu_shuffle_layer_acc.cc, cpu_reshape_layer_acc.cc


@pytest.mark.parametrize("rest", [(), (5,), (3, 4), (2, 3, 4), (2, 2, 3, 2)], ids=str)
def test_shuffle_channel(rest: tuple[int, ...]) -> None:
    x = maps(2, 6, *rest)
    want = np.stack([x[:, (n % 3) * 2 + n // 3] for n in range(6)], 1)
    compared("ShuffleChannel", x, [3], want)


@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 4), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_reshape_with_the_channels_last(rank: int, shape: tuple[int, ...]) -> None:
    """Elements keep their order with the channels last, before and behind."""
    x = maps(*shape)
    flat = np.moveaxis(x, 1, -1).reshape(2, -1)
    sizes = [2, -1, *[1] * (rank - 2)]
    want = flat.reshape(2, -1, *[1] * (rank - 2))
    compared("Reshape", x, [0, rank, rank, *sizes, 1], want)
