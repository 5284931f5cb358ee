"""Prefill and decoding of language models by matrix products, as a runtime without a graph would call them.

A layer has seven products with weights: q, k, v, the output of attention, gate, up and down.  The head
follows the last layer, for one token.  Attention between tokens, norms and the table of embeddings are work
of the host here, and are left out.  Each product is divided by columns among the cores, int8 with int8
weights and int32 sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rkcosim.compiler.matmul import CHANNEL_STEP, KINDS, Matmul
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.estimator import estimate_model

KIND = KINDS["int8 x int8 -> int32"]


@dataclass(frozen=True)
class LanguageModel:
    """Sizes of a decoder, from its public configuration.

    Members
    -------
    layers, width : number of layers, and elements of a token between them.
    queries, keys : elements of all queries, and of all keys, of a token.
    inner : elements inside the MLP.
    vocabulary : columns of the head.
    """

    layers: int
    width: int
    queries: int
    keys: int
    inner: int
    vocabulary: int

    def products(self, tokens: int) -> Counter[tuple[int, int, int]]:
        """Return (M, K, N) of the products of `tokens` tokens -> how often each is called."""
        calls: Counter[tuple[int, int, int]] = Counter()
        for k, n, times in (
            (self.width, self.queries, 1),
            (self.width, self.keys, 2),
            (self.queries, self.width, 1),
            (self.width, self.inner, 2),
            (self.inner, self.width, 1),
        ):
            calls[tokens, k, n] += times * self.layers
        calls[1, self.width, self.vocabulary] += 1
        return calls

    def macs(self, tokens: int) -> int:
        """Return the multiply-accumulates of `tokens` tokens."""
        return sum(m * k * n * times for (m, k, n), times in self.products(tokens).items())

    def sums(self, tokens: int) -> int:
        """Return the number of results of the products of `tokens` tokens."""
        return sum(m * n * times for (m, _, n), times in self.products(tokens).items())

    def weights(self) -> int:
        """Return the bytes of the weights that a token needs."""
        return self.macs(1)


def share(m: int, k: int, n: int, cores: int) -> Matmul:
    """Return one core's part of a product; K and the columns are rounded up to what the NPU supports."""
    columns = -(-n // (cores * KIND.group)) * KIND.group
    return Matmul(KIND, m, -(-k // CHANNEL_STEP) * CHANNEL_STEP, columns)


def cycles(model: LanguageModel, tokens: int, cores: int, dram: DramConfig, as_boards: bool = False) -> int:
    """Return the NPU's cycles of a prefill of `tokens` tokens, or, with one token, of a step of decoding."""
    total = 0
    for (m, k, n), times in model.products(tokens).items():
        part = share(m, k, n, cores)
        total += times * estimate_model(part, dram=dram, as_boards=as_boards, copies=cores).cycles
    return total
