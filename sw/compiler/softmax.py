"""A Softmax of fp16 tensors on the NPU instead of on the host, where that takes less time.

The host would have to bring the numbers from the NPU's layout into rows and back, which takes longer than the
function itself (docs/models.md has the measurements).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rkcosim.compiler.constraints.normalisations import softmax_reason
from rkcosim.compiler.graph import Affine, Graph, OnHost, Op
from rkcosim.compiler.graph_products import Product


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
    if not y.real or x.cube != y.cube or softmax_reason(x, op.attributes["axis"], partial(_finite, graph)):
        return op
    return Softmax(op.name, op.inputs, op.output)


def _finite(graph: Graph, name: str) -> bool:
    """Whether a tensor is a product, also by numbers: infinite only if it overflows.

    Of other tensors the channels are not moved by a matrix, whose zeros times an infinite number are NaN.
    """
    root = graph.root(name)
    maker = next((op for op in graph.ops if op.output == root), None)
    if isinstance(maker, Affine) and not maker.gated and not maker.shift.any():
        return _finite(graph, maker.inputs[0])
    return isinstance(maker, Product)
