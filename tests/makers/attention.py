"""Blocks of transformers with random weights, as exporters write them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.system.qdq_models import Net


@dataclass(frozen=True)
class Attention:
    """Sizes of a self-attention: `tokens` rows of `width` numbers in `heads` heads.

    `scaled` says what is scaled: the queries, the keys after their transposition, or the scores.
    """

    tokens: int
    width: int
    heads: int
    scaled: str = "scores"

    @property
    def depth(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads

    def linear(self, net: Net, x: str, count: int) -> str:
        """Add a product with a matrix and a bias; return its output's name."""
        weights = net.rng.normal(size=(self.width, count)) / np.sqrt(self.width)
        y = net.add("MatMul", x, net.constant(weights))
        return net.add("Add", y, net.constant(net.rng.normal(size=count) * 0.1))

    def _head(self, net: Net, x: str, order: list[int], scaled: bool = False) -> str:
        y = self.linear(net, x, self.width)
        shape = net.constant([1, self.tokens, self.heads, self.depth], np.int64)
        y = net.add("Transpose", net.add("Reshape", y, shape), perm=order)
        return self._scale(net, y) if scaled else y

    def _scale(self, net: Net, x: str) -> str:
        return net.add("Mul", x, net.constant(self.depth**-0.5))

    def add(self, net: Net, x: str) -> str:
        """Add the attention with its residual sum to a network; return its output's name."""
        queries = self._head(net, x, [0, 2, 1, 3], self.scaled == "queries")
        keys = self._head(net, x, [0, 2, 3, 1], self.scaled == "keys")
        scores = net.add("MatMul", queries, keys)
        if self.scaled == "scores":
            scores = self._scale(net, scores)
        shares = net.add("Softmax", scores, axis=-1)
        y = net.add("MatMul", shares, self._head(net, x, [0, 2, 1, 3]))
        shape = net.constant([1, self.tokens, self.width], np.int64)
        y = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), shape)
        return net.add("Add", self.linear(net, y, self.width), x)


def vision_block(net: Net, attention: Attention, patches: tuple[int, int]) -> str:
    """Add an attention between `patches` (rows, columns) of a picture, and a Gelu."""
    side = net.shape[2] // patches[0]
    y = net.conv("x", net.shape[1], attention.width, side, strides=[side, side])
    flat = net.constant([1, attention.width, attention.tokens], np.int64)
    y = net.add("Transpose", net.add("Reshape", y, flat), perm=[0, 2, 1])
    y = attention.add(net, y)
    return net.add("Gelu", attention.linear(net, y, 2 * attention.width))
