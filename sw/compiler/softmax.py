"""A Softmax of fp16 tensors on the NPU instead of on the host, where that takes less time.

The host would have to bring the numbers from the NPU's layout into rows and back, which takes longer than the
function itself (docs/models.md has the measurements).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rkcosim.compiler.graph import Affine, Graph, OnHost, Op, Tensor, channels_last
from rkcosim.compiler.graph_products import Product
from rkcosim.spec.layouts.features import atom_channels

SMALL = 4096
"""Elements up to which the host computes a Softmax: its tasks would cost as much."""
MAX_PIXELS = 8191
"""Largest number of rows of a task of the DPU."""
MAX_UNALIGNED = 512
"""Largest number of channels that do not fill atoms: their matrices grow with the square of it."""


@dataclass(frozen=True)
class Softmax(Op):
    """Softmax over the channels of an fp16 tensor."""


def softmax_on_npu(graph: Graph) -> None:
    """Replace the Softmax functions of the host that the NPU computes in less time."""
    graph.ops = [_replaced(graph, op) for op in graph.ops]


def _replaced(graph: Graph, op: Op) -> Op:
    if not isinstance(op, OnHost) or op.function != "Softmax":
        return op
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.output]
    channels, rows, columns = x.cube
    fits = x.real and y.real and x.cube == y.cube and x.elements > SMALL
    if not fits or not _over_channels(x, op.attributes["axis"]) or rows * columns == 1 or channels < 2:
        return op
    aligned = channels % atom_channels(2) == 0
    if not aligned and (channels > MAX_UNALIGNED or not _finite(graph, op.inputs[0])):
        return op
    return Softmax(op.name, op.inputs, op.output)


def _over_channels(tensor: Tensor, axis: int) -> bool:
    """Whether an axis of the tensor's shape are the channels of its cube."""
    shape = tensor.shape
    axis %= len(shape)
    line = len(shape) == 3 and tensor.cube == (shape[1], 1, shape[2])
    if line or (len(shape) == 4 and shape == (1, *tensor.cube)):
        return axis == 1
    rows = tensor.cube == (shape[-1], math.prod(shape[:-1]), 1) and channels_last(tensor)
    return rows and axis == len(shape) - 1


def _finite(graph: Graph, name: str) -> bool:
    """Whether a tensor is a product, also by numbers: infinite only if it overflows.

    Of other tensors the channels are not moved by a matrix, whose zeros times an infinite number are NaN.
    """
    root = graph.root(name)
    maker = next((op for op in graph.ops if op.output == root), None)
    if isinstance(maker, Affine) and not maker.gated and not maker.shift.any():
        return _finite(graph, maker.inputs[0])
    return isinstance(maker, Product)
