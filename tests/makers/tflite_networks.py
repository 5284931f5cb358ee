"""Whole TFLite networks in the shapes of published ones, with random weights, for tests.

The shapes are those of the four networks of MLPerf Tiny (an autoencoder, a keyword spotter, ResNet-8 and
MobileNetV1 of width 0.25 for 96 x 96 pixels) and of MobileNetV1 of width 0.25 for 128 x 128 pixels with
unsigned weights.  Scales are chosen so that activations neither vanish nor saturate.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.makers.tflite_models import Tf

RELU, RELU6 = 1, 3
VALID = 1

BLOCKS = ((8, 1), (16, 2), (16, 1), (32, 2), (32, 1), (64, 2), *((64, 1),) * 5, (128, 2), (128, 1))
"""Half the output channels of each block of MobileNetV1 of width 0.25, and its stride."""


def _softmax(t: Tf, x: int) -> int:
    zero = -128 if t.dtype == "int8" else 0
    return t.add("SOFTMAX", [x], t.items[x].shape, scale=1 / 256, zero=zero, Beta=1.0)


def _average(t: Tf, x: int) -> int:
    """The average over all pixels, with the quantisation of its input."""
    item = t.items[x]
    _, height, width, channels = item.shape
    window = {"FilterHeight": height, "FilterWidth": width, "StrideH": height, "StrideW": width}
    shape = (1, 1, 1, channels)
    return t.add("AVERAGE_POOL_2D", [x], shape, Padding=VALID, scale=item.scale, zero=item.zero, **window)


def autoencoder() -> bytes:
    """Ten fully connected layers: 640 numbers to 8 and back."""
    t = Tf(seed=1)
    x = t.input((1, 640))
    for count in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = t.dense(x, count, FusedActivationFunction=RELU)
    return t.bytes(t.dense(x, 640))


def keywords() -> bytes:
    """A convolution of 10 x 4, four separable layers of 64 channels, an average, 12 classes."""
    t = Tf(seed=2)
    x = t.conv(t.input((1, 49, 10, 1)), 64, (10, 4), 2, FusedActivationFunction=RELU)
    for _ in range(4):
        x = t.depthwise(x, FusedActivationFunction=RELU)
        x = t.conv(x, 64, 1, FusedActivationFunction=RELU)
    return t.bytes(_softmax(t, t.dense(_average(t, x), 12)))


def resnet8() -> bytes:
    """A stem, three blocks of two convolutions with an addition each, an average, 10 classes."""
    t = Tf(seed=3)
    x = t.conv(t.input((1, 32, 32, 3)), 16, FusedActivationFunction=RELU)
    for count, stride in ((16, 1), (32, 2), (64, 2)):
        y = t.conv(x, count, 3, stride, FusedActivationFunction=RELU)
        y = t.conv(y, count)
        short = x if stride == 1 else t.conv(x, count, 1, stride)
        shape = t.items[y].shape
        scale = 1.2 * max(t.items[y].scale, t.items[short].scale)
        x = t.add("ADD", [short, y], shape, scale=scale, FusedActivationFunction=RELU)
    return t.bytes(_softmax(t, t.dense(_average(t, x), 10)))


def _mobilenet(t: Tf, size: int) -> int:
    x = t.conv(t.input((1, size, size, 3)), 8, 3, 2, FusedActivationFunction=RELU6, scale=6 / 255)
    for half, stride in BLOCKS:
        x = t.depthwise(x, 3, stride, FusedActivationFunction=RELU)
        x = t.conv(x, 2 * half, 1, FusedActivationFunction=RELU)
    return _average(t, x)


def wake_words() -> bytes:
    """MobileNetV1 of width 0.25 for 96 x 96 pixels, two classes."""
    t = Tf(seed=4)
    return t.bytes(_softmax(t, t.dense(_mobilenet(t, 96), 2)))


def mobilenet_uint8() -> bytes:
    """MobileNetV1 of width 0.25 for 128 x 128 pixels, unsigned, 1001 classes by a convolution of 1 x 1."""
    t = Tf(seed=5, dtype="uint8")
    x = t.conv(_mobilenet(t, 128), 1001, 1)
    x = t.add("RESHAPE", [x, t.ints([1, 1001])], (1, 1001), scale=t.items[x].scale, zero=t.items[x].zero)
    return t.bytes(_softmax(t, x))


NETWORKS: dict[str, tuple[Callable[[], bytes], int]] = {
    "autoencoder": (autoencoder, 10),
    "keywords": (keywords, 12),
    "resnet8": (resnet8, 12),
    "wake_words": (wake_words, 30),
    "mobilenet_uint8": (mobilenet_uint8, 30),
}
"""Networks by name, with the layers that they are compiled to."""
