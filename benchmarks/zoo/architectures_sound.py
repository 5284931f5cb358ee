"""Encoders of speech recognition of published shapes with random weights, as float networks."""

from __future__ import annotations

import numpy as np

from benchmarks.zoo.architectures_attention import Shape, attention, dense, layer_norm, transformer
from benchmarks.zoo.architectures_classify import Made
from rkcosim.examples.networks.make import Network


def signal(n: Network, x: str, cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    """Add a convolution along the last axis of a tensor of three dimensions, which keeps the length."""
    depth = cin // groups
    weights = n.constant(n.rng.normal(size=(cout, depth, kernel)) / np.sqrt(depth * kernel))
    bias = n.constant(n.rng.normal(size=cout) * 0.02)
    pads = [kernel // 2] * 2
    return n.add("Conv", x, weights, bias, kernel_shape=[kernel], strides=[stride], pads=pads, group=groups)


def gelu(n: Network, x: str) -> str:
    """Gelu by Erf."""
    y = n.add("Add", n.add("Erf", n.add("Div", x, n.constant(np.sqrt(2)))), n.constant(1.0))
    return n.add("Mul", n.add("Mul", x, y), n.constant(0.5))


def whisper_tiny_encoder() -> Made:
    """The encoder of Whisper tiny (Radford et al. 2022): 80 mel bands of 20 s, 1,000 tokens of width 384.

    Whisper itself pads speech to 30 s; 20 s is what the vendor's own example of Whisper uses.
    """
    n = Network("whisper_tiny_encoder", (1, 80, 2000), 41, opset=17)
    x = gelu(n, signal(n, "image", 80, 384, 3))
    x = gelu(n, signal(n, x, 384, 384, 3, 2))
    x = n.add("Transpose", x, perm=[0, 2, 1])
    x = n.add("Add", x, n.constant(n.rng.normal(size=(1000, 384)) * 0.02))
    for _ in range(4):
        x = transformer(n, x, Shape(1000, 384, 6, 1536))
    return n, layer_norm(n, x, 384)


def sense_voice_blocks() -> Made:
    """The first three of SenseVoice small's 50 layers (An et al. 2024), for 10 s of speech.

    167 frames of 560 features; width 512, 4 heads, inner width 2,048. Each layer adds to its attention a
    memory: a depthwise convolution of the values over 11 frames.
    """
    frames, shape = 167, Shape(167, 512, 4, 2048)
    n = Network("sense_voice_blocks", (1, frames, 560), 42, opset=17)
    x = n.add("Mul", "image", n.constant(np.sqrt(512)))
    position = np.arange(1, frames + 1)[:, None] * np.exp(-np.arange(280) * np.log(10000) / 279)
    x = n.add("Add", x, n.constant(np.concatenate([np.sin(position), np.cos(position)], 1)[None]))
    width = 560
    for _ in range(3):
        y = layer_norm(n, x, width)
        parts = n.constant([512, 512, 512], int)
        q, k, v = (f"{n.name}_{len(n.nodes)}_{part}" for part in "qkv")
        n.split(dense(n, y, width, 3 * 512), parts, (q, k, v))
        memory = n.add("Transpose", v, perm=[0, 2, 1])
        memory = n.add("Transpose", signal(n, memory, 512, 512, 11, groups=512), perm=[0, 2, 1])
        y = n.add("Add", attention(n, "", shape, (q, k, v)), n.add("Add", memory, v))
        x = n.add("Add", x, y) if width == 512 else y
        width = 512
        y = n.add("Relu", dense(n, layer_norm(n, x, 512), 512, 2048))
        x = n.add("Add", x, dense(n, y, 2048, 512))
    return n, x
