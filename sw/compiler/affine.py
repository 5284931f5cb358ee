"""Graph rewrites of constant factors and sums of fp16 tensors.

Exporters write a normalisation, a learned scale or a HardSwish as several operations with constants.  Here
neighbouring ones become one operation, or part of the convolution before or after them, or of the
normalisation before them.  Only roundings to fp16 between the operations are left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rkcosim.compiler.graph import Affine, Binary, Clamp, Conv, Graph, Op
from rkcosim.compiler.graph_products import Product

LARGEST = 65504.0
"""Largest finite fp16 number."""


def fold_affines(graph: Graph) -> None:
    """Merge each `Affine` with a neighbour for as long as there is one that allows it."""
    while any(_merged(graph, op) for op in graph.ops if isinstance(op, Affine)):
        pass


def _merged(graph: Graph, op: Affine) -> bool:
    """Merge one operation with the one before it or after it; return whether the graph was changed."""
    maker = next((o for o in graph.ops if o.output == op.inputs[0]), None)
    alone = graph.read_once(op.inputs[0])
    same = maker is not None and graph.tensors[op.inputs[0]].cube == graph.tensors[op.output].cube
    if alone and same and maker is not None:
        if maker.clamp != Clamp() and not (isinstance(maker, Affine) and maker.gated):
            return False
        if isinstance(maker, Conv) and not op.gated and (fused := _behind(maker, op)) is not None:
            return _replace(graph, maker, op, fused)
        if isinstance(maker, Product) and (scaled := _scaled(maker, op)) is not None:
            return _replace(graph, maker, op, scaled)
        if (normal := _normalised(maker, op)) is not None:
            return _replace(graph, maker, op, normal)
        if isinstance(maker, Affine) and (both := _composed(maker, op)) is not None:
            return _replace(graph, maker, op, both)
    if not graph.read_once(op.output) or op.gated:
        return False
    reader = next(o for o in graph.ops if op.output in o.inputs)
    if isinstance(reader, Binary) and (gated := _gate(graph, op, reader)) is not None:
        return _replace(graph, op, reader, gated)
    if isinstance(reader, Conv) and (ahead := _ahead(graph, op, reader)) is not None:
        return _replace(graph, op, reader, ahead)
    return False


def _replace(graph: Graph, first: Op, second: Op, both: Op) -> bool:
    """Put `both` at the place of `second` and remove `first` with its output."""
    graph.ops = [both if o is second else o for o in graph.ops if o is not first]
    del graph.tensors[first.output]
    return True


def _normalised(maker: Op, op: Affine) -> Op | None:
    """Return a normalisation with the factors and sums behind it in its own.

    None for another operation, and if they are too large.
    """
    from rkcosim.compiler.normalisation import Scaled

    if not isinstance(maker, Scaled) or op.gated:
        return None
    scale, shift = maker.scale * op.scale, maker.shift * op.scale + op.shift
    if max(np.abs(scale).max(), np.abs(shift).max()) > LARGEST:
        return None
    return replace(maker, output=op.output, scale=scale, shift=shift, clamp=op.clamp)


def _behind(conv: Conv, op: Affine) -> Conv | None:
    """Return a convolution with the factors and sums behind it in its weights and biases."""
    if conv.weights.dtype.kind != "f":
        return None
    weights = conv.weights * op.scale.reshape(-1, *[1] * (conv.weights.ndim - 1))
    if np.abs(weights).max(initial=0.0) > LARGEST:
        return None
    bias = (conv.bias * op.scale + op.shift).astype(np.float32)
    return replace(
        conv,
        output=op.output,
        weights=weights.astype(np.float32),
        bias=np.broadcast_to(bias, conv.bias.shape),
        clamp=op.clamp,
    )


def _scaled(product: Product, op: Affine) -> Product | None:
    """Return a product of activations with the factor behind it; None for other operations."""
    plain = op.scale.size == 1 and not op.shift.any() and op.clamp == Clamp() and not op.gated
    if not plain or not 2.0**-14 <= abs(float(op.scale[0])) <= LARGEST or product.scale != 1.0:
        return None
    return replace(product, output=op.output, scale=float(np.float16(op.scale[0])))


def _ahead(graph: Graph, op: Affine, conv: Conv) -> Conv | None:
    """Return a convolution with the factors and sums before it; padding must not see the sums."""
    inside = not any(conv.window.pads) and conv.insert == (1, 1)
    same = graph.tensors[op.output].cube == graph.tensors[op.inputs[0]].cube
    if op.clamp != Clamp() or conv.weights.dtype.kind != "f" or not same or (op.shift.any() and not inside):
        return None
    if conv.groups != 1 and op.scale.size + op.shift.size > 2 and not conv.depthwise:
        return None
    axis = 0 if conv.depthwise else 1
    spread = [1] * conv.weights.ndim
    spread[axis] = -1
    weights = conv.weights * op.scale.reshape(spread)
    if np.abs(weights).max(initial=0.0) > LARGEST:
        return None
    more = (conv.weights * op.shift.reshape(spread)).reshape(len(conv.weights), -1).sum(axis=1)
    bias = (conv.bias + more).astype(np.float32)
    return replace(conv, inputs=op.inputs, weights=weights.astype(np.float32), bias=bias)


def _composed(first: Affine, second: Affine) -> Affine | None:
    """Return two operations as one."""
    if not first.gated:
        if second.gated:
            return None
        scale, shift = first.scale * second.scale, first.shift * second.scale + second.shift
        return replace(second, inputs=first.inputs, scale=scale, shift=shift)
    plain = second.scale.size == 1 and not second.shift.any() and second.clamp == Clamp()
    simple = first.shift.size == 1 and first.scale.size == 1 and float(first.scale[0]) == 1.0
    if second.gated or not plain or not simple:
        return None
    return replace(first, output=second.output, gain=first.gain * float(second.scale[0]))


def _gate(graph: Graph, op: Affine, product: Binary) -> Affine | None:
    """Return a product of x with a limited sum of x as one operation."""
    others = [name for name in product.inputs if name != op.output]
    if product.method != "mul" or others != list(op.inputs) or product.clamp != Clamp():
        return None
    cubes = {graph.tensors[name].cube for name in (*op.inputs, op.output, product.output)}
    if len(cubes) != 1 or not (op.clamp == Clamp() or op.clamp.low == 0.0):
        return None
    return replace(op, name=product.name, output=product.output, gated=True)
