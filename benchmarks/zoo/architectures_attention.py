"""Transformers of published shapes with random weights, as float networks.

Normalisations and activations are written out in the operators that exporters of opset 14 use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.zoo.architectures_classify import IMAGE, Made
from rkcosim.examples.networks.make import Network

EPSILON = 1e-5
Activation = Literal["gelu", "quick"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer's layer: tokens, width, heads, width of the inner layer, and its activation."""

    tokens: int
    width: int
    heads: int
    inner: int
    activation: Activation = "gelu"


def dense(n: Network, x: str, cin: int, cout: int) -> str:
    """A product with a matrix and a sum."""
    y = n.add("MatMul", x, n.constant(n.rng.normal(size=(cin, cout)) / np.sqrt(cin)))
    return n.add("Add", y, n.constant(n.rng.normal(size=cout) * 0.02))


def normalised(n: Network, x: str, width: int) -> str:
    """Layer normalisation over the last axis."""
    mean = n.add("ReduceMean", x, axes=[-1], keepdims=1)
    apart = n.add("Sub", x, mean)
    square = n.add("ReduceMean", n.add("Pow", apart, n.constant(2.0)), axes=[-1], keepdims=1)
    y = n.add("Div", apart, n.add("Sqrt", n.add("Add", square, n.constant(EPSILON))))
    y = n.add("Mul", y, n.constant(1 + n.rng.normal(size=width) * 0.1))
    return n.add("Add", y, n.constant(n.rng.normal(size=width) * 0.1))


def activated(n: Network, x: str, activation: Activation) -> str:
    """Gelu by Erf, or x times the Sigmoid of 1.702 x."""
    if activation == "quick":
        return n.add("Mul", x, n.add("Sigmoid", n.add("Mul", x, n.constant(1.702))))
    y = n.add("Erf", n.add("Div", x, n.constant(np.sqrt(2))))
    y = n.add("Mul", x, n.add("Add", y, n.constant(1.0)))
    return n.add("Mul", y, n.constant(0.5))


def layer_norm(n: Network, x: str, width: int) -> str:
    """Layer normalisation over the last axis as one operator, which operator sets have from 17 on."""
    scale = n.constant(1 + n.rng.normal(size=width) * 0.1)
    return n.add("LayerNormalization", x, scale, n.constant(n.rng.normal(size=width) * 0.1), epsilon=EPSILON)


def attention(n: Network, x: str, shape: Shape, parts: tuple[str, str, str] | None = None) -> str:
    """Attention of all tokens to all tokens.

    Parameters
    ----------
    parts : queries, keys and values, if they are not products of `x`.
    """
    depth = shape.width // shape.heads
    split = n.constant([1, shape.tokens, shape.heads, depth], int)

    def part(number: int, axes: list[int]) -> str:
        y = parts[number] if parts else dense(n, x, shape.width, shape.width)
        return n.add("Transpose", n.add("Reshape", y, split), perm=axes)

    q, k, v = part(0, [0, 2, 1, 3]), part(1, [0, 2, 3, 1]), part(2, [0, 2, 1, 3])
    scores = n.add("Mul", n.add("MatMul", q, k), n.constant(depth**-0.5))
    y = n.add("MatMul", n.add("Softmax", scores, axis=-1), v)
    y = n.add("Transpose", y, perm=[0, 2, 1, 3])
    y = n.add("Reshape", y, n.constant([1, shape.tokens, shape.width], int))
    return dense(n, y, shape.width, shape.width)


def layer(n: Network, x: str, shape: Shape, first: bool = True) -> str:
    """A layer of a transformer.

    Parameters
    ----------
    first : whether normalisation comes before attention and inner layer (vision), or after the sums (BERT).
    """

    def inner(y: str) -> str:
        y = activated(n, dense(n, y, shape.width, shape.inner), shape.activation)
        return dense(n, y, shape.inner, shape.width)

    if first:
        x = n.add("Add", x, attention(n, normalised(n, x, shape.width), shape))
        return n.add("Add", x, inner(normalised(n, x, shape.width)))
    x = normalised(n, n.add("Add", x, attention(n, x, shape)), shape.width)
    return normalised(n, n.add("Add", x, inner(x)), shape.width)


def transformer(n: Network, x: str, shape: Shape, scaled: bool = False) -> str:
    """A layer of a transformer with `LayerNormalization` as an operator.

    Parameters
    ----------
    scaled : whether each sum has a factor for each channel of its own (the LayerScale of DINOv2).
    """

    def scale(y: str) -> str:
        return n.add("Mul", y, n.constant(n.rng.normal(size=shape.width) * 0.3)) if scaled else y

    x = n.add("Add", x, scale(attention(n, layer_norm(n, x, shape.width), shape)))
    y = dense(n, layer_norm(n, x, shape.width), shape.width, shape.inner)
    return n.add("Add", x, scale(dense(n, activated(n, y, shape.activation), shape.inner, shape.width)))


def patches(n: Network, size: int, patch: int, width: int) -> str:
    """Tokens of an image: products of its patches, behind one learned token, plus positions."""
    count = (size // patch) ** 2
    x = n.conv("image", 3, width, patch, patch, pad=0)
    x = n.add("Transpose", n.add("Reshape", x, n.constant([1, width, count], int)), perm=[0, 2, 1])
    x = n.add("Concat", n.constant(n.rng.normal(size=(1, 1, width)) * 0.02), x, axis=1)
    return n.add("Add", x, n.constant(n.rng.normal(size=(1, count + 1, width)) * 0.02))


def vit_tiny() -> Made:
    """ViT-Ti/16 at 224 x 224 (the DeiT-Ti of Touvron et al. 2021): 12 layers of width 192, 1.26 G MACs."""
    n, shape = Network("vit_tiny", IMAGE, 31), Shape(197, 192, 3, 768)
    x = n.conv("image", 3, 192, 16, 16, pad=0)
    x = n.add("Transpose", n.add("Reshape", x, n.constant([1, 192, 196], int)), perm=[0, 2, 1])
    token = n.constant(n.rng.normal(size=(1, 1, 192)) * 0.02)
    x = n.add("Add", n.add("Concat", token, x, axis=1), n.constant(n.rng.normal(size=(1, 197, 192)) * 0.02))
    for _ in range(12):
        x = layer(n, x, shape)
    x = n.add("Gather", normalised(n, x, 192), n.constant(0, int), axis=1)
    return n, n.add("Softmax", dense(n, x, 192, 1000), axis=-1)


def clip_block() -> Made:
    """One of the 12 layers of CLIP's image encoder ViT-B/32 (Radford et al. 2021): 50 tokens of width 768."""
    n = Network("clip_block", (1, 50, 768), 32)
    return n, layer(n, "image", Shape(50, 768, 12, 3072, "quick"))


def clip_vit_b32() -> Made:
    """CLIP's image encoder ViT-B/32 at 224 x 224 (Radford et al. 2021), with its product to 512 values."""
    n = Network("clip_vit_b32", IMAGE, 34, opset=17)
    x = layer_norm(n, patches(n, 224, 32, 768), 768)
    for _ in range(12):
        x = transformer(n, x, Shape(50, 768, 12, 3072, "quick"))
    x = layer_norm(n, n.add("Gather", x, n.constant(0, int), axis=1), 768)
    return n, n.add("MatMul", x, n.constant(n.rng.normal(size=(768, 512)) / np.sqrt(768)))


def language_model() -> Made:
    """Two of the 24 layers of Qwen2.5 0.5B (Yang et al. 2024) for one token behind 127 others.

    Width 896, 14 heads that share 2 pairs of keys and values, rotary positions, inner width 4,864. The keys
    and values of earlier tokens are inputs, those of all tokens outputs. Embedding and vocabulary are not in
    it.
    """
    width, heads, groups, depth, inner, tokens = 896, 14, 2, 64, 4864, 128
    n = Network("language_model", (1, 1, width), 35, opset=17)
    cosine, sine = n.input("cosine", (1, 1, 1, depth)), n.input("sine", (1, 1, 1, depth))

    def rms(y: str) -> str:
        square = n.add("ReduceMean", n.add("Pow", y, n.constant(2.0)), axes=[-1], keepdims=1)
        root = n.add("Sqrt", n.add("Add", square, n.constant(1e-6)))
        y = n.add("Mul", y, n.add("Reciprocal", root))
        return n.add("Mul", y, n.constant(1 + n.rng.normal(size=width) * 0.1))

    def product(y: str, cin: int, cout: int) -> str:
        return n.add("MatMul", y, n.constant(n.rng.normal(size=(cin, cout)) / np.sqrt(cin)))

    def by_heads(y: str, count: int) -> str:
        y = n.add("Reshape", y, n.constant([1, 1, count, depth], int))
        return n.add("Transpose", y, perm=[0, 2, 1, 3])

    def turned(y: str) -> str:
        first, second = f"{y}_first", f"{y}_second"
        n.split(y, n.constant([depth // 2] * 2, int), (first, second))
        crossed = n.add("Concat", n.add("Neg", second), first, axis=-1)
        return n.add("Add", n.add("Mul", y, cosine), n.add("Mul", crossed, sine))

    def shared(y: str) -> str:
        y = n.add("Unsqueeze", y, n.constant([2], int))
        y = n.add("Expand", y, n.constant([1, groups, heads // groups, tokens, depth], int))
        return n.add("Reshape", y, n.constant([1, heads, tokens, depth], int))

    x, outputs = "image", []
    for number in range(2):
        y = rms(x)
        query = turned(by_heads(dense(n, y, width, width), heads))
        key = turned(by_heads(dense(n, y, width, groups * depth), groups))
        value = by_heads(dense(n, y, width, groups * depth), groups)
        before = (1, groups, tokens - 1, depth)
        key = n.add("Concat", n.input(f"keys{number}", before), key, axis=2)
        value = n.add("Concat", n.input(f"values{number}", before), value, axis=2)
        outputs += [key, value]
        scores = n.add("MatMul", query, n.add("Transpose", shared(key), perm=[0, 1, 3, 2]))
        scores = n.add("Softmax", n.add("Div", scores, n.constant(np.sqrt(depth))), axis=-1)
        y = n.add("Transpose", n.add("MatMul", scores, shared(value)), perm=[0, 2, 1, 3])
        x = n.add("Add", x, product(n.add("Reshape", y, n.constant([1, 1, width], int)), width, width))
        y = rms(x)
        gate = product(y, width, inner)
        gate = n.add("Mul", gate, n.add("Sigmoid", gate))
        x = n.add("Add", x, product(n.add("Mul", gate, product(y, width, inner)), inner, width))
    return n, [x, *outputs]


def bert_mini() -> Made:
    """The 4 layers of BERT-Mini for 128 tokens (Turc et al. 2019) behind the embedding: width 256."""
    n = Network("bert_mini", (1, 128, 256), 33)
    x = "image"
    for _ in range(4):
        x = layer(n, x, Shape(128, 256, 4, 1024), first=False)
    return n, x
