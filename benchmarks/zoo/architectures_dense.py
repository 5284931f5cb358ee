"""Networks on transformers that give a map, with random weights: depth, segmentation."""

from __future__ import annotations

import numpy as np

from benchmarks.zoo.architectures_attention import (
    Shape,
    activated,
    dense,
    layer_norm,
    patches,
    transformer,
)
from benchmarks.zoo.architectures_classify import Made
from rkcosim.examples.networks.make import Network


def depth_anything_small() -> Made:
    """Depth Anything small (Yang et al. 2024) at 252 x 252: ViT-S/14 of DINOv2 with the head of DPT.

    12 layers for 325 tokens of width 384; the head takes the tokens of four of them (48, 96, 192 and 384
    channels at 4, 2, 1 and 1/2 times the grid of patches), and joins them with 64 channels each.
    """
    size, grid, width, wide = 252, 18, 384, 64
    n = Network("depth_anything_small", (1, 3, size, size), 51, opset=17)
    x, kept = patches(n, size, 14, width), []
    for number in range(12):
        x = transformer(n, x, Shape(grid * grid + 1, width, 6, 1536), scaled=True)
        if number in (2, 5, 8, 11):
            kept.append(layer_norm(n, x, width))

    def transposed(y: str, channels: int, factor: int) -> str:
        weights = n.constant(n.rng.normal(size=(channels, channels, factor, factor)) / np.sqrt(channels))
        bias = n.constant(n.rng.normal(size=channels) * 0.02)
        return n.add("ConvTranspose", y, weights, bias, kernel_shape=[factor] * 2, strides=[factor] * 2)

    def residual(y: str) -> str:
        inner = n.conv(n.relu(y), wide, wide)
        return n.add("Add", n.conv(n.relu(inner), wide, wide), y)

    layers = []
    for tokens, channels, factor in zip(kept, (48, 96, 192, 384), (4, 2, 1, -2), strict=True):
        begin, end, axis = (n.constant([value], int) for value in (1, grid * grid + 1, 1))
        y = n.add("Transpose", n.add("Slice", tokens, begin, end, axis), perm=[0, 2, 1])
        y = n.conv(n.add("Reshape", y, n.constant([1, width, grid, grid], int)), width, channels, 1)
        if factor > 1:
            y = transposed(y, channels, factor)
        elif factor < 0:
            y = n.conv(y, channels, channels, 3, 2)
        layers.append(n.conv(y, channels, wide))
    x = ""
    for y, height in zip(reversed(layers), (grid, 2 * grid, 4 * grid, 8 * grid), strict=True):
        y = n.add("Add", x, residual(y)) if x else y
        x = n.conv(_enlarged(n, residual(y), wide, height), wide, wide, 1)
    x = _enlarged(n, n.conv(x, wide, 32), 32, size)
    return n, n.relu(n.conv(n.relu(n.conv(x, 32, 32)), 32, 1, 1))


def _enlarged(n: Network, x: str, channels: int, size: int) -> str:
    """Resize a map by linear interpolation between its corners."""
    sizes = n.constant([1, channels, size, size], int)
    return n.add("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="align_corners")


def norm_2d(n: Network, x: str, channels: int) -> str:
    """Layer normalisation over the channels of a map, as the neck of Segment Anything has it."""
    apart = n.add("Sub", x, n.add("ReduceMean", x, axes=[1], keepdims=1))
    square = n.add("ReduceMean", n.add("Pow", apart, n.constant(2.0)), axes=[1], keepdims=1)
    y = n.add("Div", apart, n.add("Sqrt", n.add("Add", square, n.constant(1e-6))))
    y = n.add("Mul", y, n.constant(1 + n.rng.normal(size=(channels, 1, 1)) * 0.1))
    return n.add("Add", y, n.constant(n.rng.normal(size=(channels, 1, 1)) * 0.1))


def mobile_sam_encoder() -> Made:
    """The image encoder of MobileSAM (Zhang et al. 2023), a TinyViT, at 512 x 512 instead of 1,024 x 1,024.

    Two stages of convolutions; then windows of 7 x 7, 14 x 14 and 7 x 7 tokens of width 128, 160 and 320
    with 4, 5 and 10 heads, whose maps are padded to whole windows; then a neck of 256 channels.
    """
    n = Network("mobile_sam_encoder", (1, 3, 512, 512), 52, opset=17)

    def gelu(y: str) -> str:
        return activated(n, y, "gelu")

    def block(y: str) -> str:
        """An inverted residual of 64 channels."""
        inner = gelu(n.conv(gelu(n.conv(y, 64, 256, 1)), 256, 256, 3, 1, 256))
        return gelu(n.add("Add", y, n.conv(inner, 256, 64, 1)))

    def merged(y: str, cin: int, cout: int, stride: int) -> str:
        y = gelu(n.conv(gelu(n.conv(y, cin, cout, 1)), cout, cout, 3, stride, cout))
        return n.conv(y, cout, cout, 1)

    x = gelu(n.conv("image", 3, 32, 3, 2))
    x = n.conv(x, 32, 64, 3, 2)
    x = block(block(x))
    size, cin = 128, 64
    stages = ((128, 2, 4, 7, 2), (160, 6, 5, 14, 2), (320, 2, 10, 7, 1))
    for width, layers, heads, window, stride in stages:
        x, cin, size = merged(x, cin, width, stride), width, size // stride
        for _ in range(layers):
            x = _windowed(n, x, size, width, heads, window)
    y = norm_2d(n, _without_bias(n, x, 320, 256, 1), 256)
    return n, norm_2d(n, _without_bias(n, y, 256, 256, 3), 256)


def _without_bias(n: Network, x: str, cin: int, cout: int, kernel: int) -> str:
    weights = n.constant(n.rng.normal(size=(cout, cin, kernel, kernel)) / np.sqrt(cin * kernel**2))
    return n.add("Conv", x, weights, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)


def _windowed(n: Network, x: str, size: int, width: int, heads: int, window: int) -> str:
    """A layer of TinyViT: attention within windows, a depthwise convolution, two products."""
    padded = -(-size // window) * window
    count, tokens, depth = padded // window, window**2, width // heads
    x = n.add("Transpose", x, perm=[0, 2, 3, 1])
    y = x
    if padded > size:
        y = n.add("Pad", y, n.constant([0] * 5 + [padded - size] * 2 + [0], int))
    y = n.add("Reshape", y, n.constant([1, count, window, count, window, width], int))
    y = n.add("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = n.add("Reshape", y, n.constant([count * count, tokens, width], int))
    y = dense(n, layer_norm(n, y, width), width, 3 * width)
    y = n.add("Reshape", y, n.constant([count * count, tokens, heads, 3 * depth], int))
    q, k, v = (f"{n.name}_{len(n.nodes)}_{part}" for part in "qkv")
    n.split(y, n.constant([depth] * 3, int), (q, k, v))
    q, v = (n.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
    scores = n.add("MatMul", q, n.add("Transpose", k, perm=[0, 2, 3, 1]))
    scores = n.add("Mul", scores, n.constant(depth**-0.5))
    scores = n.add("Add", scores, n.constant(n.rng.normal(size=(heads, tokens, tokens)) * 0.1))
    y = n.add("MatMul", n.add("Softmax", scores, axis=-1), v)
    y = n.add("Reshape", n.add("Transpose", y, perm=[0, 2, 1, 3]), n.constant([-1, tokens, width], int))
    y = dense(n, y, width, width)
    y = n.add("Reshape", y, n.constant([1, count, count, window, window, width], int))
    y = n.add("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = n.add("Reshape", y, n.constant([1, padded, padded, width], int))
    if padded > size:
        begins, ends, axes = (n.constant(value, int) for value in ([0, 0], [size, size], [1, 2]))
        y = n.add("Slice", y, begins, ends, axes)
    x = n.add("Transpose", n.add("Add", x, y), perm=[0, 3, 1, 2])
    x = n.conv(x, width, width, 3, 1, width)
    tokens_ = n.add("Reshape", x, n.constant([1, width, size * size], int))
    y = n.add("Transpose", tokens_, perm=[0, 2, 1])
    inner = activated(n, dense(n, layer_norm(n, y, width), width, 4 * width), "gelu")
    y = n.add("Add", y, dense(n, inner, 4 * width, width))
    return n.add("Reshape", n.add("Transpose", y, perm=[0, 2, 1]), n.constant([1, width, size, size], int))
