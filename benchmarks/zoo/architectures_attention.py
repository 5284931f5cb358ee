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


def attention(n: Network, x: str, shape: Shape) -> str:
    """Attention of all tokens to all tokens."""
    depth = shape.width // shape.heads
    split = n.constant([1, shape.tokens, shape.heads, depth], int)

    def part(axes: list[int]) -> str:
        y = n.add("Reshape", dense(n, x, shape.width, shape.width), split)
        return n.add("Transpose", y, perm=axes)

    q, k, v = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
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


def bert_mini() -> Made:
    """The 4 layers of BERT-Mini for 128 tokens (Turc et al. 2019) behind the embedding: width 256."""
    n = Network("bert_mini", (1, 128, 256), 33)
    x = "image"
    for _ in range(4):
        x = layer(n, x, Shape(128, 256, 4, 1024), first=False)
    return n, x
