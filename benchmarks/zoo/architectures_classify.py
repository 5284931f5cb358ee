"""Classifiers of published shapes with random weights, beyond those of `examples/networks/make.py`.

The layer tables are those of the publications that the docstrings name; weights are random with a fixed seed.
"""

from __future__ import annotations

import numpy as np

from rkcosim.examples.networks.make import Network

Made = tuple[Network, "str | list[str]"]

IMAGE = (1, 3, 224, 224)


def window(
    n: Network, x: str, cin: int, cout: int, kernel: tuple[int, int], stride: int = 1, same: bool = True
) -> str:
    """Add a convolution with a window of any height and width, followed by a Relu.

    Parameters
    ----------
    same : whether the map is padded so that it keeps its size but for the stride.
    """
    height, width = kernel
    weights = n.rng.normal(size=(cout, cin, height, width)) * np.sqrt(2 / (cin * height * width))
    pads = [height // 2, width // 2] * 2 if same else [0] * 4
    sizes: dict[str, object] = {"kernel_shape": [height, width], "strides": [stride, stride], "pads": pads}
    bias = n.constant(n.rng.normal(size=cout) * 0.1)
    return n.relu(n.add("Conv", x, n.constant(weights), bias, **sizes))


def maximum(n: Network, x: str, kernel: int, stride: int, pad: int) -> str:
    """Add a maximum pooling."""
    sizes: dict[str, object] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return n.add("MaxPool", x, **sizes)


def average(n: Network, x: str) -> str:
    """Add a 3x3 average pooling that keeps the size and counts the padding, as in torchvision."""
    sizes: dict[str, object] = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    return n.add("AveragePool", x, count_include_pad=1, **sizes)


def resnet18() -> Made:
    """ResNet-18 at 224 x 224 (He et al. 2016, table 1): 1.81 G MACs."""
    n = Network("resnet18", IMAGE, 11)
    x = maximum(n, n.relu(n.conv("image", 3, 64, 7, 2)), 3, 2, 1)
    cin = 64
    for width, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            short = n.conv(x, cin, width, 1, stride) if stride > 1 else x
            y = n.conv(n.relu(n.conv(x, cin, width, 3, stride)), width, width)
            x, cin = n.relu(n.add("Add", y, short)), width
    return n, n.classify(x, 512, 1000)


def squeezenet() -> Made:
    """SqueezeNet 1.1 at 224 x 224 (the authors' repository): 349 million MACs."""
    n = Network("squeezenet", IMAGE, 12)

    def fire(x: str, cin: int, narrow: int, wide: int) -> str:
        x = n.relu(n.conv(x, cin, narrow, 1))
        parts = [n.relu(n.conv(x, narrow, wide, kernel)) for kernel in (1, 3)]
        return n.add("Concat", *parts, axis=1)

    x = maximum(n, window(n, "image", 3, 64, (3, 3), 2, same=False), 3, 2, 0)
    x = maximum(n, fire(fire(x, 64, 16, 64), 128, 16, 64), 3, 2, 0)
    x = maximum(n, fire(fire(x, 128, 32, 128), 256, 32, 128), 3, 2, 0)
    for cin, narrow, wide in ((256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256)):
        x = fire(x, cin, narrow, wide)
    x = n.add("GlobalAveragePool", n.relu(n.conv(x, 512, 1000, 1)))
    return n, n.add("Softmax", n.add("Flatten", x), axis=1)


def efficientnet_lite0() -> Made:
    """EfficientNet-Lite0 at 224 x 224 (the lite models of the authors' repository): 385 million MACs."""
    n = Network("efficientnet_lite0", IMAGE, 13)
    x, cin = n.clip(n.conv("image", 3, 32, 3, 2)), 32
    first = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
    for factor, cout, repeats, strides, kernel in (
        *first,
        *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    ):
        for repeat in range(repeats):
            stride, wide = (strides if repeat == 0 else 1), cin * factor
            y = n.clip(n.conv(x, cin, wide, 1)) if factor > 1 else x
            y = n.clip(n.conv(y, wide, wide, kernel, stride, groups=wide))
            y = n.conv(y, wide, cout, 1)
            x = n.add("Add", x, y) if stride == 1 and cin == cout else y
            cin = cout
    return n, n.classify(n.clip(n.conv(x, cin, 1280, 1)), 1280, 1000)


def mobilenet_v3_large() -> Made:
    """MobileNetV3-Large 1.0 at 224 x 224 (Howard et al. 2019, table 1): 217 million MACs."""
    n = Network("mobilenet_v3_large", IMAGE, 14)

    def active(x: str, hard: bool) -> str:
        return n.add("HardSwish", x) if hard else n.relu(x)

    def excited(x: str, channels: int) -> str:
        narrow = -(-(channels // 4) // 8) * 8
        y = n.relu(n.conv(n.add("GlobalAveragePool", x), channels, narrow, 1))
        return n.add("Mul", x, n.add("HardSigmoid", n.conv(y, narrow, channels, 1), alpha=1 / 6, beta=0.5))

    x, cin = active(n.conv("image", 3, 16, 3, 2), True), 16
    blocks = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2)]
    blocks += [(5, 120, 40, 1, 0, 1)] * 2 + [(3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1)]
    blocks += [(3, 184, 80, 0, 1, 1)] * 2 + [(3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1)]
    blocks += [(5, 672, 160, 1, 1, 2)] + [(5, 960, 160, 1, 1, 1)] * 2
    for kernel, wide, cout, squeeze, hard, stride in blocks:
        y = active(n.conv(x, cin, wide, 1), bool(hard)) if wide != cin else x
        y = active(n.conv(y, wide, wide, kernel, stride, groups=wide), bool(hard))
        y = n.conv(excited(y, wide) if squeeze else y, wide, cout, 1)
        x = n.add("Add", x, y) if stride == 1 and cin == cout else y
        cin = cout
    x = n.add("GlobalAveragePool", active(n.conv(x, cin, 960, 1), True))
    x = n.conv(active(n.conv(x, 960, 1280, 1), True), 1280, 1000, 1)
    return n, n.add("Softmax", n.add("Flatten", x), axis=1)


def inception_v1() -> Made:
    """GoogLeNet at 224 x 224 without local response normalisation (Szegedy et al. 2015, table 1)."""
    n = Network("inception_v1", IMAGE, 15)
    x = maximum(n, n.relu(n.conv("image", 3, 64, 7, 2)), 3, 2, 1)
    x = maximum(n, n.relu(n.conv(n.relu(n.conv(x, 64, 64, 1)), 64, 192)), 3, 2, 1)
    cin = 192
    table = [(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None]
    table += [(192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64)]
    table += [(112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), None]
    table += [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)]
    for row in table:
        if row is None:
            x = maximum(n, x, 3, 2, 1)
            continue
        one, reduce3, three, reduce5, five, pooled = row
        parts = [n.relu(n.conv(x, cin, one, 1))]
        parts.append(n.relu(n.conv(n.relu(n.conv(x, cin, reduce3, 1)), reduce3, three)))
        parts.append(n.relu(n.conv(n.relu(n.conv(x, cin, reduce5, 1)), reduce5, five, 5)))
        parts.append(n.relu(n.conv(maximum(n, x, 3, 1, 1), cin, pooled, 1)))
        x, cin = n.add("Concat", *parts, axis=1), one + three + five + pooled
    return n, n.classify(x, 1024, 1000)


class InceptionV3:
    """Blocks of Inception v3 as in torchvision (Szegedy et al. 2016, table 1)."""

    def __init__(self) -> None:
        self.n = Network("inception_v3", (1, 3, 299, 299), 16)

    def row(self, x: str, cin: int, *layers: tuple[int, int, int]) -> str:
        """Convolutions one behind the other: channels, height and width of each window."""
        for cout, height, width in layers:
            x, cin = window(self.n, x, cin, cout, (height, width)), cout
        return x

    def join(self, *parts: str) -> str:
        """Concat of maps."""
        return self.n.add("Concat", *parts, axis=1)

    def small(self, x: str, cin: int, pooled: int) -> str:
        """A block of the 35 x 35 maps."""
        five = self.row(x, cin, (48, 1, 1), (64, 5, 5))
        three = self.row(x, cin, (64, 1, 1), (96, 3, 3), (96, 3, 3))
        pool = self.row(average(self.n, x), cin, (pooled, 1, 1))
        return self.join(self.row(x, cin, (64, 1, 1)), five, three, pool)

    def middle(self, x: str, c: int) -> str:
        """A block of the 17 x 17 maps with windows of 1 x 7 and 7 x 1."""
        seven = self.row(x, 768, (c, 1, 1), (c, 1, 7), (192, 7, 1))
        double = self.row(x, 768, (c, 1, 1), (c, 7, 1), (c, 1, 7), (c, 7, 1), (192, 1, 7))
        pool = self.row(average(self.n, x), 768, (192, 1, 1))
        return self.join(self.row(x, 768, (192, 1, 1)), seven, double, pool)

    def last(self, x: str, cin: int) -> str:
        """A block of the 8 x 8 maps."""
        y = self.row(x, cin, (384, 1, 1))
        z = self.row(x, cin, (448, 1, 1), (384, 3, 3))
        wide = [self.row(part, 384, (384, *window_)) for part in (y, z) for window_ in ((1, 3), (3, 1))]
        pool = self.row(average(self.n, x), cin, (192, 1, 1))
        return self.join(self.row(x, cin, (320, 1, 1)), *wide, pool)

    def halve(self, x: str, cin: int, cout: int) -> str:
        """A 3x3 convolution with stride 2 without padding."""
        return window(self.n, x, cin, cout, (3, 3), 2, same=False)


def inception_v3() -> Made:
    """Inception v3 at 299 x 299 (Szegedy et al. 2016): 5.71 G MACs."""
    net = InceptionV3()
    n = net.n
    x = window(n, net.halve("image", 3, 32), 32, 32, (3, 3), same=False)
    x = maximum(n, net.row(x, 32, (64, 3, 3)), 3, 2, 0)
    x = maximum(n, window(n, net.row(x, 64, (80, 1, 1)), 80, 192, (3, 3), same=False), 3, 2, 0)
    for cin, pooled in ((192, 32), (256, 64), (288, 64)):
        x = net.small(x, cin, pooled)
    double = net.halve(net.row(x, 288, (64, 1, 1), (96, 3, 3)), 96, 96)
    x = net.join(net.halve(x, 288, 384), double, maximum(n, x, 3, 2, 0))
    for channels in (128, 160, 160, 192):
        x = net.middle(x, channels)
    three = net.halve(net.row(x, 768, (192, 1, 1)), 192, 320)
    seven = net.halve(net.row(x, 768, (192, 1, 1), (192, 1, 7), (192, 7, 1)), 192, 192)
    x = net.join(three, seven, maximum(n, x, 3, 2, 0))
    x = net.last(net.last(x, 1280), 2048)
    return n, n.classify(x, 2048, 1000)


def mobile_face_net() -> Made:
    """MobileFaceNet at 112 x 112 (Chen et al. 2018, table 1): 128 values of a face."""
    n = Network("mobile_face_net", (1, 3, 112, 112), 18)

    def prelu(x: str, channels: int) -> str:
        return n.add("PRelu", x, n.constant(np.abs(n.rng.normal(size=(channels, 1, 1))) * 0.25))

    x = prelu(n.conv("image", 3, 64, 3, 2), 64)
    x = prelu(n.conv(x, 64, 64, 3, 1, 64), 64)
    cin = 64
    table = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))
    for factor, width, repeats, first in table:
        for stride in (first, *[1] * (repeats - 1)):
            inner = cin * factor
            y = prelu(n.conv(x, cin, inner, 1), inner)
            y = prelu(n.conv(y, inner, inner, 3, stride, inner), inner)
            y = n.conv(y, inner, width, 1)
            x, cin = n.add("Add", x, y) if stride == 1 and cin == width else y, width
    x = prelu(n.conv(x, cin, 512, 1), 512)
    x = n.conv(x, 512, 512, 7, 1, 512, pad=0)
    return n, n.add("Flatten", n.conv(x, 512, 128, 1))
